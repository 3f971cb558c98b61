"""Many rows: all of covtype and kddcup99, and scaling of time and memory with a stream.

Every case runs in its own process to measure its peak memory, which includes Python, the libraries
and, for the two sets, the data. The growing stream resamples the rows of covtype with noise of 1%
of each column's standard deviation, generated block by block.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.common import ROOT, markdown_table, read_json, remember
from benchmarks.datasets import data_folder
from benchmarks.kernel.problem import Split

SETS = ("covtype", "kddcup99")
STREAMS = (100_000, 1_000_000, 10_000_000)
BLOCK, NOISE = 50_000, 0.01
WANTED, MINUTES, MOST_MEGABYTES = 0.93, 30, 1536
CATEGORIES, NORMAL = (1, 2, 3), "normal"


def run(folder: Path, seeds: Iterable[int], quick: bool = False) -> None:
    """Run the missing measurements."""
    cases = ["stream-100000"] if quick else [*SETS, *(f"stream-{n}" for n in STREAMS)]
    for case in cases:
        for seed in seeds if case in SETS else (0,):
            key = f"{case}/{seed}"
            found = remember(folder / "scale.json", key, lambda c=case, s=seed: _apart(c, s))
            print(f"{key}: {found}", flush=True)


def _apart(case: str, seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.kernel.scale", case, str(seed)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(case: str, seed: int) -> dict[str, Any]:
    """One case, in this process."""
    from likelier import BayesianKernelClassifier

    model = BayesianKernelClassifier(random_state=seed, n_jobs=2)
    split = _whole(case, seed) if case in SETS else None
    n_rows = len(split.y) if split else int(case.rsplit("-", 1)[1])
    cpu, wall = time.process_time(), time.perf_counter()
    if split:
        model.fit(split.X, split.y)
    else:
        model.fit(_Stream(n_rows, seed))
    record = {
        "rows": n_rows, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "experts": model.n_experts_,
    }  # fmt: skip
    X, y = (split.X_test, split.y_test) if split else next(iter(_Stream(20_000, seed + 1)()))
    p = model.predict_proba(X)
    given = np.clip(p[np.arange(len(y)), y], 1e-15, 1.0)
    accuracy = float((p.argmax(axis=1) == y).mean())
    return {**record, "accuracy": accuracy, "log_loss": float(-np.log(given).mean())}


def _whole(name: str, seed: int) -> Split:
    folder = data_folder()
    if folder is None:
        raise ValueError("LIKELIER_DATA must name the data folder")
    if name == "covtype":
        X, y = _covtype(folder)
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.1, stratify=y, random_state=seed)
        return Split(X, y, X_test, y_test)
    with np.load(folder / "kddcup99_10pct.npz") as archive:
        normal = int(np.flatnonzero(np.char.startswith(archive["class_names"], NORMAL))[0])
        sizes = [len(archive[f"cat_{column}"]) for column in CATEGORIES]
        X, X_test = (_one_hot(archive[part], sizes) for part in ("X", "Xt"))
        y, y_test = ((archive[part] != normal).astype(np.int64) for part in ("y", "yt"))
    return Split(X, y, X_test, y_test)


def _covtype(folder: Path) -> tuple[Any, Any]:
    with np.load(folder / "covtype.npz") as archive:
        return archive["X"].astype(np.float32), (archive["y"] == 2).astype(np.int64)


def _one_hot(X: Any, sizes: list[int]) -> Any:
    """Continuous columns and one-hot categories, written once to avoid a second copy."""
    numbers = np.setdiff1d(np.arange(X.shape[1]), CATEGORIES)
    out = np.zeros((len(X), len(numbers) + sum(sizes)), dtype=np.float32)
    for place, column in enumerate(numbers):
        out[:, place] = X[:, column]
    place = len(numbers)
    for column, size in zip(CATEGORIES, sizes, strict=True):
        for value in range(size):
            out[:, place + value] = X[:, column] == value
        place += size
    return out


class _Stream:
    """Blocks of noisy covtype rows; every call restarts with the same rows."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self.n_rows, self.seed = n_rows, seed
        folder = data_folder()
        if folder is None:
            raise ValueError("LIKELIER_DATA must name the data folder")
        with np.load(folder / "covtype.npz") as archive:
            self.X, self.y = archive["X"], (archive["y"] == 2).astype(np.int64)
        self.noise = (NOISE * self.X[:BLOCK].std(axis=0)).astype(np.float32)

    def __call__(self) -> Iterator[tuple[Any, Any]]:
        for start in range(0, self.n_rows, BLOCK):
            rng = np.random.default_rng([self.seed, start])
            rows = rng.integers(len(self.y), size=min(BLOCK, self.n_rows - start))
            noise = rng.standard_normal((len(rows), self.X.shape[1]), dtype=np.float32)
            yield self.X[rows] + noise * self.noise, self.y[rows]


def text(folder: Path) -> str:
    """The two tables of the measurements so far."""
    stored = read_json(folder / "scale.json")
    if not stored:
        return ""
    whole = {k: v for k, v in stored.items() if not k.startswith("stream")}
    stream = sorted((v for k, v in stored.items() if k.startswith("stream")), key=_rows)
    parts = ["## Many rows", "", "Default options with two threads. " + _verdict(stored), ""]
    if whole:
        header = ["data set", "rows", "experts", "accuracy", "log loss", "wall s", "processor s",
                  "peak MB"]  # fmt: skip
        parts += [markdown_table(header, [_row(k, v) for k, v in sorted(whole.items())]), ""]
    if stream:
        header = ["stream of", "experts", "accuracy", "processor s per 100,000 rows", "peak MB"]
        table = [
            [f"{v['rows']:,}", str(v["experts"]), f"{100 * v['accuracy']:.2f}",
             f"{v['cpu'] / v['rows'] * 1e5:.1f}", f"{v['peak']:,.0f}"]
            for v in stream
        ]  # fmt: skip
        note = (
            "A stream read block by block, without storing it. Test rows are generated the same "
            "way, and most have a near duplicate in a long stream: only time and memory matter "
            "here."
        )
        parts += [note, "", markdown_table(header, table), ""]
    return "\n".join(parts)


def _rows(record: dict[str, Any]) -> int:
    return int(record["rows"])


def _row(key: str, v: dict[str, Any]) -> list[str]:
    return [
        key.rsplit("/", 1)[0], f"{v['rows']:,}", str(v["experts"]), f"{100 * v['accuracy']:.2f}",
        f"{v['log_loss']:.3f}", f"{v['wall']:.0f}", f"{v['cpu']:.0f}", f"{v['peak']:,.0f}",
    ]  # fmt: skip


def _verdict(stored: dict[str, Any]) -> str:
    found = [v for k, v in stored.items() if k.startswith("covtype/")]
    peak = max(v["peak"] for v in stored.values())
    text = f"Largest peak {peak:,.0f} MB (target {MOST_MEGABYTES:,}: "
    text += ("met" if peak < MOST_MEGABYTES else "missed") + ")."
    if found:
        least, minutes = (min(v["accuracy"] for v in found), max(v["wall"] for v in found) / 60)
        met = "met" if least >= WANTED and minutes <= MINUTES else "missed"
        text += f" covtype {100 * least:.2f}% in {minutes:.1f} minutes "
        text += f"(target {100 * WANTED:.0f} in {MINUTES}: {met})."
    return text


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
