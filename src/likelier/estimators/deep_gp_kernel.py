"""Whether few rows are worth a learned kernel, judged by rows held out.

The energy of power one counts the variance of the outputs as if it were noise of the labels, and
with few rows this pays: prior variances and length scales follow the training rows. Nearly
linear functions cannot, and miss what is not linear. One layer is enough to see which of both
predicts better, in a fraction of the time of a deep fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from likelier.base import Array
from likelier.engines import LocalEngine
from likelier.estimators.deep_gp_fit import Task
from likelier.estimators.kernel_rows import Rows
from likelier.estimators.kernel_words import Clock
from likelier.models.deep_gp_start import LONG, KernelStart
from likelier.models.kernel_machine import Standard

LENGTH_SCALES = ("auto", "learned", "long")
LEAST_ROWS, MOST_ROWS = 200, 2000  # with fewer folds tell nothing, with more they cost too much
FOLDS, MOST_STEPS = 3, 1000


def find_kernel(estimator: Any, task: Task) -> KernelStart | None:
    """The kernel of nearly linear functions, or None where it should be learned.

    Cost of the choice: six fits of one layer, of at most `MOST_STEPS` minibatches each.
    """
    if estimator.length_scales != "auto":
        return LONG if estimator.length_scales == "long" else None
    if estimator.time_budget is not None or not LEAST_ROWS <= task.n_rows <= MOST_ROWS:
        return None
    batch = task.engine.sample(task.n_rows)
    rows = Rows(batch.X, np.asarray(batch.y), batch.weight)
    return LONG if _gain(estimator, rows, task.seed) > 0.0 else None


def _gain(estimator: Any, rows: Rows, seed: int) -> float:
    """Held-out log likelihood that nearly linear functions gain, summed over the folds."""
    order = np.random.default_rng([seed, 4]).permutation(rows.n)
    return float(sum(
        _gain_of_fold(estimator, rows, np.sort(order[k::FOLDS]), seed) for k in range(FOLDS)
    ))  # fmt: skip


def _gain_of_fold(estimator: Any, rows: Rows, out: Array, seed: int) -> float:
    held, rest = rows.take(out), rows.take(np.setdiff1d(np.arange(rows.n), out))
    long, learned = (
        _probe(estimator, rest, seed, kernel)._log_density(held.X, held.y)
        for kernel in (LONG, None)
    )
    weight = np.ones(held.n) if held.weight is None else held.weight
    return float(weight @ (long - learned))


def _probe(estimator: Any, rows: Rows, seed: int, kernel: KernelStart | None) -> Any:
    """The same with one layer and this kernel (None: learned), fitted to encoded rows."""
    steps = min(MOST_STEPS, estimator._n_steps(rows.n))
    probe = clone(estimator).set_params(
        layers=1, max_iter=steps, dtype="float32", early_stopping=False, checkpoint=None,
        time_budget=None, verbose=0,
    )  # fmt: skip
    probe.classes_ = estimator.classes_
    standard = probe._scaling(Standard.of(rows.X, rows.weight))
    total = float(rows.n if rows.weight is None else rows.weight.sum())
    engine = LocalEngine(rows.X, rows.y, rows.weight, seed=seed)
    try:
        task = Task(engine, standard, total, rows.n, seed, kernel=kernel)
        probe._train(task, False, Clock(probe, (None, None)))
    finally:
        engine.close()
    return probe
