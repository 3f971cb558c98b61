"""Regression on the published splits of open data, against boosted trees."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from benchmarks.common import remember
from benchmarks.kernel.problem import n_published, number_split
from likelier import BayesianKernelRegressor


def run(folder: Path, sets: Iterable[str], splits: Iterable[int]) -> None:
    """Measure every set and split that is not stored yet."""
    for index in splits:
        for name in sets:
            if index >= n_published(name):
                continue
            key = f"{name}/{index}"
            record = remember(folder / "regress.json", key, partial(measure, name, index))
            print(f"{name} split {index}: rmse {record['rmse']:.4g}", flush=True)


def measure(name: str, index: int) -> dict[str, Any]:
    """Test log density, error and coverage of ours; error of the trees."""
    split = number_split(name, index)
    with threadpool_limits(1):
        start = time.process_time()
        model = BayesianKernelRegressor(random_state=index).fit(split.X, split.y)
        cpu = time.process_time() - start
        start = time.process_time()
        trees = HistGradientBoostingRegressor(random_state=index).fit(split.X, split.y)
        trees_cpu = time.process_time() - start
    mean = model.predict(split.X_test)
    low, high = model.predict_interval(split.X_test, 0.9).T
    rest = split.y_test - mean
    log_density = model.log_predictive_density(split.X_test, split.y_test)
    return {
        "rows": len(split.y), "inputs": split.X.shape[1], "cpu": cpu, "trees_cpu": trees_cpu,
        "rmse": float(np.sqrt(np.mean(rest**2))),
        "trees_rmse": float(np.sqrt(np.mean((trees.predict(split.X_test) - split.y_test) ** 2))),
        "log_density": float(log_density.mean()),
        "coverage": float(np.mean((low <= split.y_test) & (split.y_test <= high))),
    }  # fmt: skip
