"""Cost model of a fit: how many rows and features fit into a time budget, from measurements.

A pass over many rows cannot be interrupted without losing it. With a time budget the work is
therefore timed on a few rows first and then run on as many random rows as the budget allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from likelier.fitting.rows import Rows
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.estimator import ROWS_PER_COMPONENT
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.regression import regression_sums
from likelier.kernel_machine.softmax_weights import (
    ClassLoss,
    Prior,
    WeightProblem,
    in_memory_reduction,
    ridge,
    stored_features,
)

MIN_ROWS = 2048  # lower limit of the rows under a time budget
TIMED_ROWS = 512  # rows to measure on
COMPONENT_STEP = 64
# Matrix factorisations of the size of the features per fit, relative to building a map.
N_FACTORS = 3.0
N_SEARCH_PASSES, N_METRICS = 8, 3  # typical of an optimisation of output weights
TIME_FRACTION = 0.8  # fraction of the remaining time; the rest is for what follows


def affordable_rows(
    budget: TimeBudget, n_rows: int, seconds_per_row: float, fraction: float = TIME_FRACTION
) -> int:
    """Number of rows that fit into the time, at least `MIN_ROWS`; all without a budget."""
    left = budget.left
    if left is None:
        return n_rows
    wanted = fraction * left / max(seconds_per_row, 1e-12)
    most = int(min(n_rows, max(wanted, MIN_ROWS)))
    budget.cut = budget.cut or most < n_rows
    return most


def weights_cost(feature_map: KernelMap, sample: Rows, loss: ClassLoss) -> float:
    """Seconds per row to fit output weights and their posterior."""
    probe = _some(sample)
    features, Phi = timed(lambda: feature_map(probe.X, np.float32))
    W = np.zeros((feature_map.n_features, loss.n_outputs))
    reduce = in_memory_reduction(Phi, probe.y, probe.weight)
    prior = Prior(ridge(feature_map.n_features, 1.0))
    problem = WeightProblem(reduce, stored_features, loss, prior)
    value, _ = timed(lambda: problem.value_gradient(W))
    gram, _ = timed(lambda: problem.gram(W))
    all_of_it = features + N_SEARCH_PASSES * value + (N_METRICS + loss.n_outputs) * gram
    return all_of_it / probe.n


def sums_cost(feature_map: KernelMap, sample: Rows) -> float:
    """Seconds per row of a regression pass, be it summing or leave-one-out."""
    probe = _some(sample)
    features, Phi = timed(lambda: feature_map(probe.X, np.float64))
    sums, found = timed(lambda: regression_sums(Phi, probe.y, probe.weight))
    leaving, _ = timed(lambda: Phi @ found.gram)  # as expensive as the variances
    return (features + max(sums, leaving)) / probe.n


def affordable_components(
    budget: TimeBudget,
    wanted: int,
    least: int,
    n_rows: int,
    try_out: Callable[[], tuple[float, float]],
) -> int:
    """Number of features that fit into the time, at least ``least``.

    ``try_out`` measures the seconds to build a map of ``least`` features, and per row. The largest
    number is chosen for which each feature still gets `ROWS_PER_COMPONENT` rows in time; with an
    ample budget it is the default number.
    """
    left = budget.left
    if left is None or wanted <= least:
        return wanted
    count = least
    if left > 0.0:
        factor, row = try_out()
        for count in range(wanted, least, -COMPONENT_STEP):
            times = count / least
            rows = min(n_rows, ROWS_PER_COMPONENT * count)
            if N_FACTORS * factor * times**3 + rows * row * times**2 <= TIME_FRACTION * (
                budget.left or 0.0
            ):
                break
        else:
            count = least
    budget.cut = budget.cut or count < wanted
    return count


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Run and time a function; return (seconds, result)."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def _some(sample: Rows) -> Rows:
    return sample.take(np.arange(min(TIMED_ROWS, sample.n)))
