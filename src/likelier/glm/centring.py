"""Centring for stochastic steps: columns with large means are centred by running means.

Columns with means far larger than their standard deviation are nearly collinear with each other
and with the intercept: a step for one row changes the scores of all others, and rates per
coordinate, which ignore correlations, must be small. With running means ``m`` the model is
``w^T (x - m) + c``, ``c = b + w^T m``, and steps in ``(w, c)`` are nearly independent.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from likelier.base import Array
from likelier.glm.loops.centring import centred_dense, centred_sparse
from likelier.loops.rows import Rows

MIN_ROWS = 16  # for estimates of mean and variance
MIN_RATIO = 1.0  # of squared mean to variance, from which a column is centred
MIN_DENSITY = 0.5  # fraction of nonzeros: a sparse column stays sparse
CONSTANT = 1e-12  # variance relative to the mean square that is rounding error
CHUNK = 1 << 18  # entries gathered at once: they stay in the cache


def large_means(sums: Array, squares: Array, counts: Array, n_rows: int) -> Array | None:
    """Means of the columns to centre, zero for the others; None if there are none."""
    if n_rows < MIN_ROWS:
        return None
    mean, square = sums / n_rows, squares / n_rows
    variance = square - mean * mean
    centred = (mean * mean > MIN_RATIO * variance) & (variance > CONSTANT * square)
    centred &= counts > MIN_DENSITY * n_rows
    return np.where(centred, mean, 0.0) if centred.any() else None


def column_rates(
    sums: Array, squares: Array, counts: Array, n_rows: int, fit_intercept: bool
) -> tuple[Array, float, Array | None]:
    """Rates ``sqrt(n_j) / S_j`` of the coordinates, their unit, and the shift of the rows.

    ``S_j`` is the sum of squares, for a centred column around its mean.
    """
    shift = large_means(sums, squares, counts, n_rows) if fit_intercept else None
    if shift is not None:
        squares = squares - n_rows * shift**2
    # 1 / nonzeros per row: a first step of rate one changes a score by about its derivative
    unit = n_rows / max(1.0, counts.sum())
    inverse = np.divide(np.sqrt(counts), squares, out=np.zeros(len(counts)), where=squares > 0)
    return unit * inverse, unit, shift


def limit_rates(rates: Array, unit: float, shift: Array, largest: Array) -> Array:
    """Rates at which no centred column changes the score of a row by more than its derivative.

    The same limit holds at the first step of a new feature: the variance of a nearly constant
    column comes from few rows.
    """
    shifted = (shift != 0.0) & (largest > 0.0)
    rates = rates.copy()
    rates[shifted] = np.minimum(rates[shifted], unit / largest[shifted] ** 2)
    return rates


def centred_chunks(view: Rows, rows: Array, shift: Array) -> Iterator[tuple[Rows, Array, Array]]:
    """Chunks of copied rows minus ``shift``.

    Each with its row indices, and the largest absolute value of every shifted column.
    """
    columns = np.flatnonzero(shift)
    entries = view.n_columns
    if view.indptr is not None:
        entries = len(columns) + int(np.max(view.indptr[rows + 1] - view.indptr[rows]))
    size = max(1, CHUNK // max(1, entries))
    for first in range(0, len(rows), size):
        some, largest = rows[first : first + size], np.zeros(len(shift))
        if view.indptr is None:
            out = np.empty(len(some) * view.n_columns)
            centred_dense(view.data, view.n_columns, some, shift, out, largest)
            yield Rows(out, None, None, view.n_columns), some, largest
        else:
            yield _sparse_chunk(view, some, shift, columns, largest), some, largest


def _sparse_chunk(view: Rows, rows: Array, shift: Array, columns: Array, largest: Array) -> Rows:
    assert view.indices is not None and view.indptr is not None
    capacity = int((view.indptr[rows + 1] - view.indptr[rows]).sum()) + len(rows) * len(columns)
    out, indices = np.empty(capacity), np.empty(capacity, dtype=view.indices.dtype)
    indptr = np.empty(len(rows) + 1, dtype=view.indptr.dtype)
    centred_sparse(
        view.data, view.indices, view.indptr, rows, shift, columns, out, indices, indptr, largest
    )
    return Rows(out, indices, indptr, view.n_columns)
