"""The two sides of a comparison: an old commit and the present source, each in a process."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba_cache

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / ".cache" / "nets"
KEPT = 6
FIRST_TIME = 1_000_000_000  # of all files, or numba would compile them again
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NPROC",  # XLA
)


class WorkerError(Exception):
    """A process of a side ended without an answer."""


@dataclass(frozen=True)
class Side:
    """A source folder, and the folder of what was compiled from it."""

    label: str
    source: Path
    compiled: Path


def commit_side(commit: str) -> Side:
    """Write the source of a commit to a folder of its own, or find it there.

    The folder and the times of its files depend on the source alone: numba's cache goes by
    both, so that a second comparison with the same source compiles nothing.
    """
    full = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    tree = _git("rev-parse", "--verify", f"{full}:src").decode().strip()
    folder = STORE / tree[:16]
    if not folder.is_dir():
        _extract(full, folder)
    folder.touch()
    _forget_old()
    compiled = folder / "compiled"
    compiled.mkdir(exist_ok=True)
    return Side(full[:10], folder / "src", compiled)


def present_side() -> Side:
    """The source as it is in the working tree."""
    return Side("present", ROOT / "src", numba_cache.cache_dir(ROOT))


def _extract(commit: str, folder: Path) -> None:
    """Write ``src`` of a commit below a folder, whole or not at all."""
    STORE.mkdir(parents=True, exist_ok=True)
    archive = _git("archive", "--format=tar", commit, "src")
    with tempfile.TemporaryDirectory(dir=STORE) as temporary:
        whole = Path(temporary) / "whole"
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(whole, filter="data")
        for path in whole.rglob("*"):
            os.utime(path, (FIRST_TIME, FIRST_TIME))
        try:
            whole.rename(folder)
        except OSError:  # another comparison was faster
            if not folder.is_dir():
                raise


def _forget_old() -> None:
    folders = [path for path in STORE.iterdir() if len(path.name) == 16 and path.is_dir()]
    for old in sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.decode().strip()}")
    return done.stdout


class Worker(AbstractContextManager["Worker"]):
    """A process that runs cases with the source of a side."""

    def __init__(self, side: Side, folder: Path, log: Path) -> None:
        self.side = side
        self._log = log
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | dict.fromkeys(ONE_THREAD, "1")
        environment |= {
            "NUMBA_CACHE_DIR": str(side.compiled),
            # Named by their sources; but a mistake in that naming must not be hidden here.
            "LIKELIER_CACHE_DIR": str(side.compiled / "programs"),
            "PYTHONHASHSEED": "0",
        }
        environment.pop("PYTHONPATH", None)
        script = Path(__file__).with_name("worker.py")
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(script), str(side.source), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )

    def run(self, case: str, repeat: int) -> dict[str, Any]:
        """Run the large form of a case; the answer says how long it took, or what went wrong."""
        self.send(case, "large", keep=False, repeat=repeat)
        return self.receive()

    def send(self, case: str, size: str, *, keep: bool, repeat: int = 1) -> None:
        """Order a case without waiting for it."""
        assert self._process.stdin is not None
        order = {"case": case, "size": size, "keep": keep, "repeat": repeat}
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> dict[str, Any]:
        """Wait for an answer."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            reply: dict[str, Any] = json.loads(line)
            if "ready" not in reply:
                return reply
        raise self._ended()

    def _ended(self) -> WorkerError:
        self._process.wait()
        last = self._log.read_text(errors="replace")[-2000:]
        return WorkerError(f"the process of {self.side.label} ended:\n{last}")

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        if error[0] is not None:
            self._process.terminate()
        self._process.wait()
        self._process.stdout.close()
