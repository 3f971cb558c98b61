"""How many rows can be learned in the time that is left: measured on a few of them, not guessed.

A pass over many rows cannot be broken off without losing it. Where there is a time budget the
work is therefore tried on some rows first, and done on as many as the budget pays for: a model
of random rows, which are the whole answer to fewer questions.
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
    HeadLoss,
    HeadProblem,
    Prior,
    ready_features,
    ridge,
    rows_in_memory,
)

PROBE_ROWS = 2048  # the fewest rows that weights are learned from for want of time
TIMED_ROWS = 512  # rows that are timed to know how many more there can be
COMPONENT_STEP = 64
# Factors of as many rows and columns as there are features, for each one that makes a map.
N_FACTORS = 3.0
N_SEARCH_PASSES, N_METRICS = 8, 3  # of a usual search for the weights of a head
SHARE = 0.8  # of the time that is left; what follows the passes takes the rest


def affordable_rows(
    budget: TimeBudget, n_rows: int, seconds_per_row: float, share: float = SHARE
) -> int:
    """As many rows as time allows, at least `PROBE_ROWS`; all where there is no budget."""
    left = budget.left
    if left is None:
        return n_rows
    wanted = share * left / max(seconds_per_row, 1e-12)
    most = int(min(n_rows, max(wanted, PROBE_ROWS)))
    budget.cut = budget.cut or most < n_rows
    return most


def head_pace(made: KernelMap, sample: Rows, loss: HeadLoss) -> float:
    """Seconds a row takes until a head has its weights and their posterior."""
    probe = _some(sample)
    features, Phi = timed(lambda: made(probe.X, np.float32))
    W = np.zeros((made.n_features, loss.n_outputs))
    reduce = rows_in_memory(Phi, probe.y, probe.weight)
    prior = Prior(ridge(made.n_features, 1.0))
    problem = HeadProblem(reduce, ready_features, loss, prior)
    value, _ = timed(lambda: problem.value_gradient(W))
    gram, _ = timed(lambda: problem.gram(W))
    all_of_it = features + N_SEARCH_PASSES * value + (N_METRICS + loss.n_outputs) * gram
    return all_of_it / probe.n


def sums_pace(made: KernelMap, sample: Rows) -> float:
    """Seconds a row takes in a pass of a regression, be it added to the sums or left out."""
    probe = _some(sample)
    features, Phi = timed(lambda: made(probe.X, np.float64))
    sums, found = timed(lambda: regression_sums(Phi, probe.y, probe.weight))
    leaving, _ = timed(lambda: Phi @ found.gram)  # as many multiplications as variances need
    return (features + max(sums, leaving)) / probe.n


def components_in_time(
    budget: TimeBudget,
    wanted: int,
    least: int,
    n_rows: int,
    try_out: Callable[[], tuple[float, float]],
) -> int:
    """How many features there is time for, at least ``least``.

    ``try_out`` gives the seconds that a map of ``least`` features takes, and a row with it. So
    many features are made that each still gets `ROWS_PER_COMPONENT` rows in the time that is
    left, and no fewer than a fit without a budget would make if that is ample.
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
            if N_FACTORS * factor * times**3 + rows * row * times**2 <= SHARE * (
                budget.left or 0.0
            ):
                break
        else:
            count = least
    budget.cut = budget.cut or count < wanted
    return count


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a piece of work takes, and what it gives."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def _some(sample: Rows) -> Rows:
    return sample.take(np.arange(min(TIMED_ROWS, sample.n)))
