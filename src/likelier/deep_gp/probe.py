"""Short fits that are judged by rows held out, to choose what no energy can tell."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from likelier.base import Array
from likelier.deep_gp.recipe import Task
from likelier.deep_gp.start import KernelStart
from likelier.engines import LocalEngine
from likelier.fitting.duplicates import settle_many
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard
from likelier.fitting.time_budget import TimeBudget

# Enough to see a difference; more would cost more than what the choice is worth.
MOST_JUDGED, MOST_HELD = 10_000, 2000
LEAST_BUDGET, BUDGET_SHARE = 30.0, 0.1  # seconds of the whole fit, share of one probe
SURE = 4.0  # standard errors
ENCODING = ("classes_", "target_mean_", "target_spread_", "noise_floor_")


@dataclass(frozen=True)
class Probe:
    """What a short fit may differ in from another.

    Attributes
    ----------
    layers : int
    steps : int
        Most minibatches.
    power : float
    kernel : KernelStart or None
        A kernel to keep; None learns it.
    """

    layers: int
    steps: int
    power: float
    kernel: KernelStart | None = None


def judged_rows(task: Task) -> Rows:
    """Rows to judge by: all, or a sample of many; copies are one row, or they would tell on it."""
    batch = task.engine.sample(min(task.n_rows, MOST_JUDGED))
    return settle_many(Rows(batch.X, np.asarray(batch.y), batch.weight))


def may_judge(estimator: Any) -> bool:
    """Whether there is time: short budgets are left to the training."""
    return estimator.time_budget is None or estimator.time_budget >= LEAST_BUDGET


def gains(estimator: Any, rows: Rows, out: Array, seed: int, probes: tuple[Probe, Probe]) -> Array:
    """Log density that the first probe gains over the second for each of the rows ``out``."""
    held, rest = rows.take(out), rows.take(np.setdiff1d(np.arange(rows.n), out))
    first, second = (
        fit_probe(estimator, rest, seed, probe)._log_density(held.X, held.y) for probe in probes
    )
    weight = np.ones(held.n) if held.weight is None else held.weight
    return np.asarray(weight * (first - second))


def clear(found: Array) -> bool:
    """Whether the sign of the sum of these gains would hardly change with more of them."""
    error = np.sqrt(len(found)) * found.std()
    return bool(abs(found.sum()) > SURE * error)


def fit_probe(estimator: Any, rows: Rows, seed: int, probe: Probe) -> Any:
    """The same estimator, but shorter and as the probe says, fitted to encoded rows."""
    budget = estimator.time_budget
    small = clone(estimator).set_params(
        layers=probe.layers, power=probe.power, dtype="float32", early_stopping=False,
        max_iter=min(probe.steps, estimator._n_steps(rows.n)), checkpoint=None, verbose=0,
        time_budget=None if budget is None else BUDGET_SHARE * budget,
    )  # fmt: skip
    for name in ENCODING:
        if hasattr(estimator, name):
            setattr(small, name, getattr(estimator, name))
    standard = small._scaling(Standard.of(rows.X, rows.weight))
    total = float(rows.n if rows.weight is None else rows.weight.sum())
    engine = LocalEngine(rows.X, rows.y, rows.weight, seed=seed)
    try:
        task = Task(engine, standard, total, rows.n, seed, kernel=probe.kernel, power=probe.power)
        with warnings.catch_warnings():  # the fit itself will say it
            warnings.simplefilter("ignore", ConvergenceWarning)
            small._train(task, False, TimeBudget(small, (None, None)))
    finally:
        engine.close()
    return small
