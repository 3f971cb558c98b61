"""Time budgets: how many features and rows fit into the time, measured on a few rows.

A pass over many rows cannot be interrupted without losing it. With a time budget the work is
therefore timed on a few rows first, and then done on as many random rows as the budget allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows
from likelier.kernel_machine.task import Task

MIN_ROWS = 2048  # lower limit of the rows under a time budget
TIMED_ROWS, TIMED_COMPONENTS = 512, 512
COMPONENT_STEP, ROWS_PER_COMPONENT = 64, 4
N_FACTORS = 3.0  # factorisations of the size of the features per fit, relative to building a map
TIME_SHARE = 0.8  # of the time left; the rest is for what follows


@dataclass(frozen=True)
class Size:
    """Number of features and of rows to learn from, and the measured cost of a row."""

    n_components: int
    n_rows: int
    row_seconds: float = 0.0


def affordable_size(
    sample: Rows,
    task: Task,
    make_map: Callable[[int], tuple[Any, Any]],
    wanted: tuple[int, int],
    n_rows: int,
    monitor: Monitor,
    share: float,
) -> Size:
    """As many features as can still be learned from four rows each, then as many rows as can be.

    ``wanted`` are the number of features without a budget and the least there may be; ``share`` is
    the part of the time that may be used.
    """
    most, least = wanted
    if monitor.left is None:
        return Size(most, n_rows)
    few = sample.take(np.arange(min(TIMED_ROWS, sample.n)))
    tried = min(TIMED_COMPONENTS, most)
    begin = time.perf_counter()
    feature_map, _ = make_map(tried)
    factor = time.perf_counter() - begin
    row = task.row_seconds(feature_map, few)
    seconds = TIME_SHARE * share * (monitor.left or 0.0)
    n = most
    for n in range(most, least, -COMPONENT_STEP):
        rows = min(n_rows, ROWS_PER_COMPONENT * n)
        times = n / tried
        if N_FACTORS * factor * times**3 + rows * row * times**2 <= seconds:
            break
    else:
        n = least
    row *= (n / tried) ** 2
    affordable = int(min(n_rows, max(seconds / max(row, 1e-12), MIN_ROWS)))
    return Size(n, affordable, row)


def affordable_rows(size: Size, n_rows: int, monitor: Monitor) -> int:
    """Rows that fit into the time that is left."""
    if monitor.left is None:
        return n_rows
    return int(min(n_rows, TIME_SHARE * monitor.left / max(size.row_seconds, 1e-12)))
