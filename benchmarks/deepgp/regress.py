"""Regression on the published splits: ours, GPyTorch's deep process, its exact and sparse ones."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import read_json
from benchmarks.deepgp.notes import Notes
from benchmarks.kernel.problem import Split, number_split
from likelier import DeepGPRegressor
from likelier.deep_gp.power_choice import FULL, HALF, MANY_ROWS

SETS = (
    "boston", "energy", "kin8nm", "naval", "power-plant", "protein-casp", "winequality-red",
)  # fmt: skip
# Test log-likelihoods by depth 1, 2, 3 as published for doubly stochastic variational inference.
PUBLISHED = {
    "boston": (-2.63, -2.63, -2.64), "energy": (-1.55, -0.727, -0.741),
    "kin8nm": (0.913, 1.293, 1.327), "naval": (6.11, 6.36, 6.22),
    "power-plant": (-2.846, -2.811, -2.806), "protein-casp": (-2.937, -2.847, -2.800),
    "winequality-red": (-0.933, -0.945, -0.945),
}  # fmt: skip
MODELS = (
    "ours", "ours one layer", "ours variational", "ours power 0.5", "ours power 1", "gpytorch",
    "exact", "sparse",
)  # fmt: skip
POWERS = {"ours variational": 1e-3, "ours power 0.5": 0.5, "ours power 1": 1.0}
GPYTORCH_SECONDS, EXACT_STEPS, EXACT_ROWS, MOST_TEST = 60.0, 100, 1500, 5000
OURS: dict[str, dict[str, Any]] = {
    "ours": {}, "ours one layer": {"layers": 1},
    **{model: {"inference__power": power} for model, power in POWERS.items()},
}  # fmt: skip
DTYPE = "float32"  # of ours and of GPyTorch's
N_INDUCING, BATCH = 100, 256  # of GPyTorch's, as ours has unasked


def run(notes: Notes, sets: Iterable[str], splits: Iterable[int], models: Iterable[str]) -> None:
    """Measure every set, split and model that is not stored yet."""
    for index in splits:
        for name in sets:
            for model in models:
                key = f"{name}/{index}"
                part = f"regress-{model.replace(' ', '-')}"
                record = notes.keep(part, key, partial(measure, notes.folder, key, model))
                print(f"{model} {name} split {index}: {record['log_density']:.3f}", flush=True)


def measure(folder: Path, key: str, model: str) -> dict[str, Any]:
    """Mean test log density in the units of the target, and times."""
    name, index = key.split("/")[0], int(key.split("/")[1])
    split = number_split(name, index)
    X_test, y_test = split.X_test[:MOST_TEST], split.y_test[:MOST_TEST]
    with threadpool_limits(1):
        wall, cpu = time.perf_counter(), time.process_time()
        if model in OURS:
            fitted = DeepGPRegressor(random_state=index).set_params(
                inference__dtype=DTYPE, **OURS[model]
            )
            fitted.fit(split.X, split.y)
            spent = (time.perf_counter() - wall, time.process_time() - cpu)
            density = fitted.log_predictive_density(X_test, y_test)
            error = fitted.predict(X_test) - y_test
            more = {"rmse": float(np.sqrt(np.mean(error**2))), "noise": fitted.noise_,
                    "power": fitted.power_}  # fmt: skip
        else:
            ours = read_json(folder / "regress-ours.json").get(key, {"cpu": GPYTORCH_SECONDS})
            test = (X_test, y_test)
            density, spent, more = _peer(split, model, test, (ours["cpu"], index))
    return {
        "rows": len(split.y), "log_density": float(np.mean(density)), "wall": spent[0],
        "cpu": spent[1], **more,
    }  # fmt: skip


def _peer(
    split: Split, model: str, test: tuple[Any, Any], given: tuple[float, int]
) -> tuple[Any, tuple[float, float], dict[str, Any]]:
    """Peers on standardised data; densities in the units of the target.

    All but the exact process are ``given`` as much processor time as ours took on the same split,
    and a seed.
    """
    import torch

    from benchmarks.deepgp.gpytorch_peer import Trainer, exact_gp_log_density, sparse_gp

    seconds, seed = given

    torch.set_num_threads(1)  # a second thread would use up the processor time without helping
    centre, scale = split.X.mean(axis=0), split.X.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    X, X_test = (split.X - centre) / scale, (test[0] - centre) / scale
    mean, spread = split.y.mean(), split.y.std()
    y, y_test = (split.y - mean) / spread, (test[1] - mean) / spread
    wall, cpu, more = time.perf_counter(), time.process_time(), {}
    if model == "exact":
        density = exact_gp_log_density(X, y, (X_test, y_test), EXACT_STEPS, EXACT_ROWS)
        spent = (time.perf_counter() - wall, time.process_time() - cpu)
    elif model == "sparse":
        judge, more["steps"] = sparse_gp((X, y), seed, cpu + seconds, N_INDUCING, BATCH)
        spent = (time.perf_counter() - wall, time.process_time() - cpu)
        density = judge(X_test, y_test)
    else:
        trainer = Trainer(X, y, N_INDUCING, BATCH, DTYPE)
        while time.process_time() - cpu < seconds:
            trainer.step()
            more["steps"] = more.get("steps", 0) + 1
        spent = (time.perf_counter() - wall, time.process_time() - cpu)
        density = trainer.log_density(X_test, y_test)
    return density - np.log(spread), spent, more


def means(folder: Path, model: str) -> dict[str, tuple[float, float, int, float]]:
    """Mean, standard error, number of splits and processor seconds of every measured set."""
    out: dict[str, tuple[float, float, int, float]] = {}
    records = read_json(folder / f"regress-{model.replace(' ', '-')}.json")
    for name in SETS:
        found = [value for key, value in records.items() if key.split("/")[0] == name]
        if found:
            values = np.array([record["log_density"] for record in found])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
            cpu = float(np.median([record["cpu"] for record in found]))
            out[name] = (float(values.mean()), float(error), len(values), cpu)
    return out


def by_power(folder: Path) -> dict[str, dict[str, Any]]:
    """Records of every power; of the one that is the default those of ours, which are the same."""
    ours = read_json(folder / "regress-ours.json")
    found = {}
    for model, power in POWERS.items():
        stored = read_json(folder / f"regress-{model.replace(' ', '-')}.json")
        default = {
            key: record for key, record in ours.items()
            if power == default_power(record)
        }  # fmt: skip
        found[model] = {**stored, **default}
    return found


def default_power(record: dict[str, Any]) -> float:
    """Power of a record of ours; those from before it was chosen by rows held out have none."""
    return float(record.get("power", FULL if record["rows"] >= MANY_ROWS else HALF))


def least_wall(folder: Path, name: str) -> float:
    """Shortest training of a set: the machine is shared, and others only make it longer."""
    records = read_json(folder / "regress-ours.json")
    return float(min(r["wall"] for key, r in records.items() if key.split("/")[0] == name))
