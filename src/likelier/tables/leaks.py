"""Columns that alone nearly determine the target: they may not be known when it matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from likelier.base import Array
from likelier.tables.cells import Cells
from likelier.tables.column import ColumnCode
from likelier.tables.column_numbers import NumberColumn

# A column is suspect if it leaves so little of the error that is made without it.
LEFT, MUCH = 0.01, 0.5
MIN_ROWS, MIN_LEAK_ROWS = 20, 50
# So many rows on either side of a value say what the target is there.
AROUND = 2


def find_leaks(
    codes: Sequence[ColumnCode], sampled: Callable[[str], Cells], y: Array
) -> tuple[str, ...]:
    """Return the names of columns from which alone nearly all of the target follows."""
    if len(y) < MIN_LEAK_ROWS:
        return ()
    return tuple(code.name for code in codes if _left(code, sampled(code.name), y) <= LEFT)


def tells_much(code: ColumnCode, cells: Cells, y: Array) -> bool:
    """Whether more of the target follows from one column than is left open."""
    return _left(code, cells, y) <= MUCH


def _left(code: ColumnCode, cells: Cells, y: Array) -> float:
    """Return how much of the error made without a column is left with it alone.

    Half of the rows say what the target is for each value, the others are asked.
    """
    if len(y) < MIN_ROWS:
        return 1.0
    half = np.random.default_rng(0).permutation(len(y)) % 2 == 0
    classes = y.dtype.kind in "USOb" or len(np.unique(y)) <= 2
    if classes:
        y = np.unique(y, return_inverse=True)[1]
        told = _predicted(code, cells, y, half, classes)
        base = float((y[~half] != np.bincount(y[half]).argmax()).mean())
        error = 1.0 if told is None else float((y[~half] != told[~half]).mean())
    else:
        told = _predicted(code, cells, y, half, classes)
        base = _error(y, np.full(len(y), np.median(y)), half)
        error = base if told is None else _error(y, told, half)
    return error / base if base else 1.0


def _error(y: Array, told: Array, half: Array) -> float:
    return float(np.mean((y[~half] - told[~half]) ** 2))


def _predicted(
    code: ColumnCode, cells: Cells, y: Array, half: Array, classes: bool
) -> Array | None:
    """Return the target that the value of a column stands for, in all rows."""
    if isinstance(code, NumberColumn):
        values = np.nan_to_num(code.read(cells), nan=code.fill)
    elif code.kind in ("category", "boolean"):
        values = cells.distinct[1].astype(float)
        if len(np.unique(values)) > len(values) / 5:
            return None  # hardly any level comes twice
    else:
        return None
    order = np.argsort(values[half], kind="stable")
    known, targets = values[half][order], y[half][order]
    low = np.searchsorted(known, values, "left")
    high = np.searchsorted(known, values, "right")
    exact = high > low
    low = np.where(exact, low, np.maximum(low - AROUND, 0))
    high = np.where(exact, high, np.minimum(high + AROUND, len(known)))
    if classes:
        counts = np.eye(int(y.max()) + 1)[targets]
        sums = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
        return np.asarray((sums[high] - sums[low]).argmax(axis=1))
    sums = np.concatenate([[0.0], np.cumsum(targets)])
    return np.asarray((sums[high] - sums[low]) / np.maximum(high - low, 1))
