"""Stochastic steps on columns that lie far from zero: the rows are seen around their means.

Where a mean is many times the spread, all columns say the same and the intercept says it too: a
step for one row changes the scores of all others, and rates per coordinate, which know nothing
of correlations, must be small. Around running means ``m`` the model is ``w^T (x - m) + c`` with
``c = b + w^T m``, and steps in ``(w, c)`` do not disturb each other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from likelier.base import Array
from likelier.glm.loops.centring import centred_dense, centred_sparse
from likelier.loops.rows import Rows

MIN_ROWS = 16  # a mean and a spread of fewer say little
FAR = 1.0  # mean squared over variance from which on a column is seen around its mean
COMMON = 0.5  # share of rows where it is not zero: a sparse column stays sparse
CONSTANT = 1e-12  # share of a mean square below which a variance is rounding
PIECE = 1 << 18  # entries gathered at once: they stay in the cache


def far_means(sums: Array, squares: Array, counts: Array, n_rows: int) -> Array | None:
    """Means of the columns to be seen around them, zero for the others; None without any."""
    if n_rows < MIN_ROWS:
        return None
    mean, square = sums / n_rows, squares / n_rows
    variance = square - mean * mean
    far = (mean * mean > FAR * variance) & (variance > CONSTANT * square)
    far &= counts > COMMON * n_rows
    return np.where(far, mean, 0.0) if far.any() else None


def column_rates(
    sums: Array, squares: Array, counts: Array, n_rows: int, fit_intercept: bool
) -> tuple[Array, float, Array | None]:
    """Rates ``sqrt(n_j) / S_j`` of the coordinates, their unit, and means to be taken off the rows.

    ``S_j`` is the sum of squares, of a shifted column around its mean.
    """
    shift = far_means(sums, squares, counts, n_rows) if fit_intercept else None
    if shift is not None:
        squares = squares - n_rows * shift**2
    # 1 / nonzeros per row: a first step of rate one moves a score by about its slope
    unit = n_rows / max(1.0, counts.sum())
    inverse = np.divide(np.sqrt(counts), squares, out=np.zeros(len(counts)), where=squares > 0)
    return unit * inverse, unit, shift


def limited(rates: Array, unit: float, shift: Array, largest: Array) -> Array:
    """Rates at which no shifted column moves the score of a row by more than its slope.

    As in the first step of a feature that was always zero: a column that is nearly always the
    same value has a spread that few rows make.
    """
    moved = (shift != 0.0) & (largest > 0.0)
    rates = rates.copy()
    rates[moved] = np.minimum(rates[moved], unit / largest[moved] ** 2)
    return rates


def centred_pieces(view: Rows, rows: Array, shift: Array) -> Iterator[tuple[Rows, Array, Array]]:
    """Copies of the rows around ``shift``, some at a time.

    With each the numbers of its rows, and the largest distance from the shift in every column.
    """
    columns = np.flatnonzero(shift)
    entries = view.n_columns
    if view.indptr is not None:
        entries = len(columns) + int(np.max(view.indptr[rows + 1] - view.indptr[rows]))
    size = max(1, PIECE // max(1, entries))
    for first in range(0, len(rows), size):
        some, largest = rows[first : first + size], np.zeros(len(shift))
        if view.indptr is None:
            out = np.empty(len(some) * view.n_columns)
            centred_dense(view.data, view.n_columns, some, shift, out, largest)
            yield Rows(out, None, None, view.n_columns), some, largest
        else:
            yield _sparse_piece(view, some, shift, columns, largest), some, largest


def _sparse_piece(view: Rows, rows: Array, shift: Array, columns: Array, largest: Array) -> Rows:
    assert view.indices is not None and view.indptr is not None
    room = int((view.indptr[rows + 1] - view.indptr[rows]).sum()) + len(rows) * len(columns)
    out, indices = np.empty(room), np.empty(room, dtype=view.indices.dtype)
    indptr = np.empty(len(rows) + 1, dtype=view.indptr.dtype)
    centred_sparse(
        view.data, view.indices, view.indptr, rows, shift, columns, out, indices, indptr, largest
    )
    return Rows(out, indices, indptr, view.n_columns)
