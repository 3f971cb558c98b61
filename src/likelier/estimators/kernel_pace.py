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

from likelier.base import Array
from likelier.estimators.kernel_rows import Rows
from likelier.estimators.kernel_words import Clock
from likelier.inference.kernel_regression import regression_sums
from likelier.inference.softmax_head import (
    HeadLoss,
    HeadProblem,
    Prior,
    ready_features,
    ridge,
    rows_in_memory,
)
from likelier.models.kernel_machine import KernelMap

PROBE_ROWS = 2048
N_SEARCH_PASSES, N_METRICS = 8, 3  # of a usual search for the weights of a head
SHARE = 0.8  # of the time that is left; what follows the passes takes the rest


def affordable_rows(clock: Clock, n_rows: int, seconds_per_row: float, share: float = SHARE) -> int:
    """As many rows as time allows, at least `PROBE_ROWS`; all where there is no budget."""
    left = clock.left
    if left is None:
        return n_rows
    wanted = share * left / max(seconds_per_row, 1e-12)
    most = int(min(n_rows, max(wanted, PROBE_ROWS)))
    clock.cut = clock.cut or most < n_rows
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
    """Seconds a row takes to be added to the sums of a regression."""
    probe = _some(sample)

    def work() -> Array:
        return regression_sums(made(probe.X, np.float64), probe.y, probe.weight).gram

    return timed(work)[0] / probe.n


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a piece of work takes, and what it gives."""
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


def _some(sample: Rows) -> Rows:
    return sample.take(np.arange(min(PROBE_ROWS, sample.n)))
