"""Detection of target leaks: columns that nearly determine the target by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from likelier.base import Array
from likelier.tables.cells import Cells
from likelier.tables.column import ColumnCode
from likelier.tables.column_numbers import NumberColumn

# Largest ratio of the error with one column to that without any, for a leak and for a predictive
# column.
LEAK_RATIO, PREDICTIVE_RATIO = 0.01, 0.5
MIN_ROWS, MIN_LEAK_ROWS = 20, 50
# Neighbouring rows on either side of a value that predict the target there.
NEIGHBOURS = 2


def find_leaks(
    codes: Sequence[ColumnCode], sampled: Callable[[str], Cells], y: Array
) -> tuple[str, ...]:
    """Return the names of columns that nearly determine the target by themselves."""
    if len(y) < MIN_LEAK_ROWS:
        return ()
    return tuple(
        code.name for code in codes if _error_ratio(code, sampled(code.name), y) <= LEAK_RATIO
    )


def is_predictive(code: ColumnCode, cells: Cells, y: Array) -> bool:
    """Whether a single column removes at least half of the error."""
    return _error_ratio(code, cells, y) <= PREDICTIVE_RATIO


def _error_ratio(code: ColumnCode, cells: Cells, y: Array) -> float:
    """Return the held-out error with one column, relative to that without any.

    The targets of one half of the rows predict those of the other half.
    """
    if len(y) < MIN_ROWS:
        return 1.0
    half = np.random.default_rng(0).permutation(len(y)) % 2 == 0
    classes = y.dtype.kind in "USOb" or len(np.unique(y)) <= 2
    if classes:
        y = np.unique(y, return_inverse=True)[1]
        predicted = _predicted(code, cells, y, half, classes)
        base = float((y[~half] != np.bincount(y[half]).argmax()).mean())
        error = 1.0 if predicted is None else float((y[~half] != predicted[~half]).mean())
    else:
        predicted = _predicted(code, cells, y, half, classes)
        base = _error(y, np.full(len(y), np.median(y)), half)
        error = base if predicted is None else _error(y, predicted, half)
    return error / base if base else 1.0


def _error(y: Array, predicted: Array, half: Array) -> float:
    return float(np.mean((y[~half] - predicted[~half]) ** 2))


def _predicted(
    code: ColumnCode, cells: Cells, y: Array, half: Array, classes: bool
) -> Array | None:
    """Return the predictions of the target from one column, in all rows."""
    if isinstance(code, NumberColumn):
        values = np.nan_to_num(code.read(cells), nan=code.fill)
    elif code.kind in ("category", "boolean"):
        values = cells.distinct[1].astype(float)
        if len(np.unique(values)) > len(values) / 5:
            return None  # most levels are unique
    else:
        return None
    order = np.argsort(values[half], kind="stable")
    known, targets = values[half][order], y[half][order]
    low = np.searchsorted(known, values, "left")
    high = np.searchsorted(known, values, "right")
    exact = high > low
    low = np.where(exact, low, np.maximum(low - NEIGHBOURS, 0))
    high = np.where(exact, high, np.minimum(high + NEIGHBOURS, len(known)))
    if classes:
        counts = np.eye(int(y.max()) + 1)[targets]
        sums = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
        return np.asarray((sums[high] - sums[low]).argmax(axis=1))
    sums = np.concatenate([[0.0], np.cumsum(targets)])
    return np.asarray((sums[high] - sums[low]) / np.maximum(high - low, 1))
