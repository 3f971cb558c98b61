"""Memory and cost against the number of rows, and the coverage of intervals."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np

from benchmarks.common import ROOT, Cases
from benchmarks.datasets import data_folder

ROWS = (1_000, 3_000, 10_000, 25_000, 50_000)
SPLITS = 20
COVERAGE_SETS = ("kin8nm", "power-plant", "protein-casp", "airfoil")
COVERAGE_ROWS = 2_000

CHILD = """
import sys, time, warnings
from pathlib import Path
from sklearn.datasets import make_classification
from benchmarks.linear.memory import MEGABYTE, status
from likelier import SVC
warnings.simplefilter("ignore")
n, cache, limit = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
X, y = make_classification(n, 20, n_informative=10, n_redundant=0, flip_y=0.02, random_state=0)
SVC(cache_size=cache).fit(X[:400], y[:400])
Path("/proc/self/clear_refs").write_text("5")  # the peak so far, the parent's included
before = status("VmRSS")
start = time.process_time()
model = SVC(cache_size=cache, max_iter=limit).fit(X, y)
spent = time.process_time() - start
print(spent, (status("VmHWM") - before) / MEGABYTE, len(model.support_), model.fit_status_)
"""


def run(rows: tuple[int, ...] = ROWS, cache: int = 200) -> Cases:
    """Generated data of growing size, each fit in a process of its own; the last is the largest."""
    for n in (*rows, 100_000):
        limit = -1 if n < 100_000 else 20_000  # the largest only shows that memory is bounded
        command = [sys.executable, "-c", CHILD, str(n), str(cache), str(limit)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                       "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        seconds, growth, support, status = done.stdout.split()
        yield str(n), {"rows": n, "cache": cache, "seconds": float(seconds),
                       "growth_mb": float(growth), "support": int(support),
                       "whole": status == "0"}  # fmt: skip


def run_coverage(sets: tuple[str, ...] = COVERAGE_SETS, splits: int = SPLITS) -> Cases:
    """Coverage of 90% intervals on rows that were not seen."""
    for name in sets:
        covered, widths = [], []
        for split in range(splits):
            inside, width = _one_split(name, split)
            covered.append(inside)
            widths.append(width)
        yield name, {"set": name, "coverage": float(np.mean(covered)),
                     "spread": float(np.std(covered)), "width": float(np.mean(widths)),
                     "splits": splits}  # fmt: skip


def _one_split(name: str, seed: int) -> tuple[float, float]:
    from likelier import SVR

    X, y = _numbers(name)
    order = np.random.default_rng(seed).permutation(len(y))[: 2 * COVERAGE_ROWS]
    half = len(order) // 2
    train, test = order[:half], order[half:]
    mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - mean) / np.where(spread > 0, spread, 1.0)
    y = (y - y[train].mean()) / y[train].std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SVR(probability=True, random_state=seed).fit(X[train], y[train])
    low, high = model.predict_interval(X[test], coverage=0.9).T
    return float(((low <= y[test]) & (y[test] <= high)).mean()), float((high - low).mean())


def _numbers(name: str) -> Any:
    folder = data_folder()
    if folder is None:
        raise ValueError("set LIKELIER_DATA to the folder of the data sets")
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        return file["X"].astype(np.float64), file["y"].astype(np.float64)
