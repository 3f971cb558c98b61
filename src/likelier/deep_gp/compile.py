"""Compiled training programs, kept in memory and on disk.

Compiling a program takes seconds, often longer than running it. A program depends on shapes only,
never on data, so it is kept: in this process, and as a file in the folder that the variable
``LIKELIER_CACHE_DIR`` names (else in the user's cache folder). JAX's own cache would do the same,
but is switched on by JAX's global configuration, which belongs to the user and is not touched.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable
from jax.scipy.linalg import solve_triangular

Program = Callable[..., Any]
# XLA's newer way to fuse loops takes most of a compilation, and the programs run no faster.
# Products of matrices this small take no less time on two threads than on one, and more where the
# other core is busy.
USUAL: dict[str, str | bool] = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_multi_thread_eigen": False,
}
# Small models less optimised run as fast; not optimised at all they compile in a third of the time
# and take twice as long to run, which pays up to about a thousand minibatches.
EFFORTS: dict[str, dict[str, str | bool]] = {
    "usual": USUAL,
    "little": {**USUAL, "xla_backend_optimization_level": "1"},
    "least": {**USUAL, "xla_backend_optimization_level": "0"},
}
_programs: dict[str, Program] = {}
_lock = threading.Lock()


def compiled_program(
    make: Callable[[], Callable[..., Any]],
    arguments: tuple[Any, ...],
    name: tuple[Any, ...],
    effort: str = "usual",
) -> Program:
    """Return the program that ``make()`` defines for arguments of these shapes.

    Parameters
    ----------
    make : callable
        Returns the function to compile; its first argument and first result have one structure,
        and its second result is one array.
    arguments : tuple
        Arrays (or trees of them) of the shapes to compile for.
    name : tuple
        What tells this function from others of the same shapes: plain values.
    effort : {"usual", "little", "least"}
        Less where a quick compilation matters more than the fastest program.
    """
    key = _key(arguments, (*name, effort))
    with _lock:
        if key not in _programs:
            _programs[key] = _from_disk(key, arguments) or _compile(make, arguments, key, effort)
        return _programs[key]


@contextmanager
def own_settings() -> Iterator[None]:
    """Settings that programs are written for, in this thread and this block alone.

    Whatever the user has set for programs of his own holds again afterwards. Models in single
    precision need doubles too, for the matrices of their inducing points.
    """
    with (
        jax.enable_x64(True),
        jax.numpy_rank_promotion("allow"),
        jax.disable_jit(False),
        jax.transfer_guard("allow"),  # rows and parameters come from NumPy
    ):
        yield


def forget_programs() -> None:
    """Drop the programs of this process; those on disk stay."""
    with _lock:
        _programs.clear()


def _compile(make: Callable[[], Any], arguments: tuple[Any, ...], key: str, effort: str) -> Program:
    lowered = jax.jit(make()).lower(*arguments)
    try:
        program = lowered.compile(compiler_options=EFFORTS[effort])
    except Exception:  # an option that this version of XLA does not have
        program = lowered.compile()
    with suppress(Exception):  # a cache that cannot be written is no reason to fail
        payload, _, _ = serialize_executable.serialize(program)
        _write(_folder() / key, payload)
    return program


def _from_disk(key: str, arguments: tuple[Any, ...]) -> Program | None:
    with suppress(Exception):  # a damaged or foreign file: compile again
        folder = _folder()
        if not _is_ours(folder):
            return None
        payload = (folder / key).read_bytes()
        _load_lapack()
        into = jax.tree.structure((arguments, {}))
        out = jax.tree.structure((arguments[0], 0.0))
        program: Program = serialize_executable.deserialize_and_load(payload, into, out)
        return program
    return None


def _load_lapack() -> None:
    """Let JAX find LAPACK, which it does when a program is lowered, and we have not done that.

    A program from disk that factorises a matrix would otherwise call a function that is not
    there, and end the process.
    """
    matrix = np.eye(2, dtype=np.float32)
    jax.jit(lambda a: solve_triangular(jnp.linalg.cholesky(a), a, lower=True)).lower(matrix)


def _folder() -> Path:
    named = os.environ.get("LIKELIER_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(base) if base else Path.home() / ".cache") / "likelier" / "programs"


def _is_ours(folder: Path) -> bool:
    """Whether only this user can have written there: a program is code that will run."""
    if os.name != "posix":
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _write(path: Path, payload: bytes) -> None:
    """Write at once: another process sees the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _key(arguments: tuple[Any, ...], name: tuple[Any, ...]) -> str:
    leaves = [(str(leaf.dtype), list(leaf.shape)) for leaf in jax.tree.leaves(arguments)]
    plain = json.dumps([list(name), leaves, str(jax.tree.structure(arguments)), _circumstances()])
    return hashlib.sha256(plain.encode()).hexdigest()


def _circumstances() -> list[str]:
    """All else that a compiled program depends on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return [
        jax.__version__,
        version("jaxlib"),
        jax.default_backend(),
        str(jax.config.values.get("jax_default_matmul_precision")),
        os.environ.get("XLA_FLAGS", ""),
        str(len(affinity(0)) if affinity else os.cpu_count()),
        _processor(),
        _sources(),
    ]


@functools.cache
def _processor() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        told = sorted({line for line in lines if line.startswith(("flags", "Features", "model"))})
        return hashlib.sha256("\n".join(told).encode()).hexdigest()
    return platform.machine() + platform.processor()


@functools.cache
def _sources() -> str:
    """Hash of the files that programs are made from."""
    files = Path(__file__).parent.glob("*.py")
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()
