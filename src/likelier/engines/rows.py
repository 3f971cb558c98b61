"""Rows of a dense or CSR matrix: slices that share memory, gathers that keep the layout."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix

RUN, WINDOW = 16, 2048


def slice_rows(X: Matrix, start: int, stop: int) -> Matrix:
    """Return rows ``start:stop`` as a view: no value of ``X`` is copied.

    SciPy's own row slicing copies ``data`` and ``indices``, and its constructor may convert
    64-bit indices; setting the three arrays of an empty matrix does neither.
    """
    if isinstance(X, np.ndarray):
        return X[start:stop]
    first, last = X.indptr[start], X.indptr[stop]
    block: sparse.csr_matrix = copy.copy(_empty(type(X), stop - start, X.shape[1], X.dtype))
    block.data = X.data[first:last]
    block.indices = X.indices[first:last]
    block.indptr = X.indptr[start : stop + 1] - first
    return block


@functools.lru_cache(maxsize=64)
def _empty(kind: Any, n_rows: int, n_columns: int, dtype: Any) -> Any:
    """An empty matrix to be copied: SciPy's constructor takes as long as a hundred short rows."""
    return kind((n_rows, n_columns), dtype=dtype)


def take_rows(X: Matrix, rows: Array) -> Matrix:
    """Return the listed rows in arrays of their own; C order stays C, F order stays F."""
    if isinstance(X, np.ndarray) and X.flags.f_contiguous and not X.flags.c_contiguous:
        return X.T.take(rows, axis=1).T
    return X[rows]


def shuffled_rows(n_rows: int, stream: np.random.Generator) -> Array:
    """Random order of the row numbers that stays kind to the memory.

    Visiting single rows of a large matrix at random costs more waiting than computing. Here
    runs of `RUN` neighbours are shuffled over all rows, and single rows within windows of
    `WINDOW`: a row meets rows from all over the data, while a window reads a few hundred
    places instead of thousands.
    """
    if n_rows < 2 * WINDOW:
        return stream.permutation(n_rows)
    firsts = stream.permutation(n_rows // RUN) * RUN
    places = stream.permutation(WINDOW)
    whole = n_rows - n_rows % WINDOW
    order = np.empty(n_rows, dtype=np.int64)
    windows = order[:whole].reshape(-1, WINDOW)
    runs = firsts[: whole // RUN].reshape(-1, WINDOW // RUN)
    runs.take(places // RUN, axis=1, out=windows, mode="clip")
    windows += places % RUN
    rest = (firsts[whole // RUN :, None] + np.arange(RUN)).ravel()
    rest = np.append(rest, np.arange(len(firsts) * RUN, n_rows))
    order[whole:] = stream.permutation(rest)
    return order


def stack_rows(parts: list[Any]) -> Matrix:
    """Put the rows of several matrices of one kind on top of each other."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    stacked: Matrix = sparse.vstack(parts, format="csr")
    return stacked


def present_rows(weight: Array | None, n_rows: int) -> Array | None:
    """Return the numbers of the rows of positive weight, or None if that is all of them.

    Raises
    ------
    ValueError
        If a weight is negative or not finite, or their number is not ``n_rows``.
    """
    if weight is None:
        return None
    if weight.shape != (n_rows,):
        raise ValueError(
            f"weight must have one entry per row: expected shape ({n_rows},), got {weight.shape}"
        )
    if not np.isfinite(weight).all():
        raise ValueError("weight contains NaN or infinity; give every row a finite weight")
    if n_rows and weight.min() < 0:
        bad = int(np.argmin(weight))
        raise ValueError(
            f"weight must not be negative, got {weight[bad]} in row {bad}; use 0 to leave a row out"
        )
    kept = np.flatnonzero(weight)
    return None if len(kept) == n_rows else kept
