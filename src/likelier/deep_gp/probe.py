"""Short fits compared by held-out log density, for choices that the energy cannot make."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from likelier.base import Array
from likelier.deep_gp.posterior import ClassifierPosterior, RegressorPosterior
from likelier.deep_gp.recipe import Task
from likelier.deep_gp.start import FixedKernel
from likelier.fitting.dataset import local_engine
from likelier.fitting.duplicates import settle_many
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import Standard

# Larger samples would cost more time than the choice gains.
MAX_ROWS, MAX_HELD_OUT = 10_000, 2000
MIN_BUDGET, BUDGET_FRACTION = 30.0, 0.1  # seconds for the fit, fraction of it for one probe
SIGNIFICANCE = 4.0  # standard errors
ENCODING = ("classes_", "target_mean_", "target_scale_", "noise_floor_")


@dataclass(frozen=True)
class Probe:
    """Settings of a short fit.

    Attributes
    ----------
    layers : int
    steps : int
        Maximum number of minibatches.
    power : float
    kernel : FixedKernel or None
        A fixed kernel; None learns it.
    """

    layers: int
    steps: int
    power: float
    kernel: FixedKernel | None = None


def comparison_rows(task: Task) -> Rows:
    """Rows of the comparison, at most `MAX_JUDGED`, with duplicates merged to avoid leakage."""
    batch = task.engine.sample(min(task.n_rows, MAX_ROWS))
    return settle_many(Rows(batch.X, np.asarray(batch.y), batch.weight))


def can_probe(estimator: Any) -> bool:
    """Whether the time budget, if any, is long enough for probes."""
    return estimator.time_budget is None or estimator.time_budget >= MIN_BUDGET


@dataclass(frozen=True)
class Comparison:
    """Two probes of an estimator, and what the comparison is about: the name of its stage."""

    name: str
    estimator: Any
    probes: tuple[Probe, Probe]

    def gains(self, rows: Rows, out: Array, seed: int, monitor: Monitor) -> Array:
        """Gain in log density of the first probe over the second, for each held-out row."""

        def compute() -> Array:
            found = density_gains(self.estimator, rows, out, seed, self.probes)
            monitor.tick("comparison", f"{self.name}: gain {found.sum():.3g} nats", lambda: None)
            return found

        return monitor.stage(self.name, compute)


def density_gains(
    estimator: Any, rows: Rows, out: Array, seed: int, probes: tuple[Probe, Probe]
) -> Array:
    """Gain in log density of the first probe over the second, for each held-out row in ``out``."""
    held, rest = rows.take(out), rows.take(np.setdiff1d(np.arange(rows.n), out))
    first, second = (
        fit_probe(estimator, rest, seed, probe).validation_score(held.X, held.y) for probe in probes
    )
    weight = np.ones(held.n) if held.weight is None else held.weight
    return np.asarray(weight * (first - second))


def is_significant(found: Array) -> bool:
    """Whether the mean gain is significantly different from zero."""
    error = np.sqrt(len(found)) * found.std()
    return bool(abs(found.sum()) > SIGNIFICANCE * error)


def fit_probe(
    estimator: Any, rows: Rows, seed: int, probe: Probe
) -> ClassifierPosterior | RegressorPosterior:
    """Posterior of a fit with the settings of the probe to encoded rows."""
    budget = estimator.time_budget
    small = clone(estimator).set_params(
        layers=probe.layers, max_iter=min(probe.steps, estimator._n_steps(rows.n)),
        inference__power=probe.power, inference__dtype="float32", inference__early_stopping=False,
    )  # fmt: skip
    for name in ENCODING:
        if hasattr(estimator, name):
            setattr(small, name, getattr(estimator, name))
    standard = small._scaling(Standard.of(rows.X, rows.weight))
    total = float(rows.n if rows.weight is None else rows.weight.sum())
    monitor = Monitor(time_budget=None if budget is None else BUDGET_FRACTION * budget)
    with local_engine(rows.X, rows.y, rows.weight, seed, 1, True) as engine:
        task = Task(engine, standard, total, rows.n, seed, kernel=probe.kernel, power=probe.power)
        with warnings.catch_warnings():  # the fit itself will warn
            warnings.simplefilter("ignore", ConvergenceWarning)
            training = small._train(task, monitor)
    posterior: ClassifierPosterior | RegressorPosterior = small._posterior(training.chosen, task)
    return posterior
