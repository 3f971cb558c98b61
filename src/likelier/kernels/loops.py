"""Pairwise inner products of sparse rows, and pairwise L1 distances.

Each left row is scattered into a dense buffer, so a pair of sparse rows costs only the stored
entries of the right row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array, Matrix
from likelier.jit import njit
from likelier.loops.rows import as_rows, column, row_dot, row_start

_REORDER = {"reassoc", "contract", "nsz"}
_compiled = njit(cache=True, nogil=True, fastmath=_REORDER)


@_compiled
def _scatter(data, indices, start, stop, buffer):
    """Scatter a row into the buffer, summing duplicate columns; return its L1 norm."""
    for p in range(start, stop):
        buffer[column(indices, start, p)] += data[p]
    total = buffer[0] * 0
    for p in range(start, stop):
        total += abs(data[p])
    return total


@_compiled
def _clear(indices, start, stop, buffer):
    for p in range(start, stop):
        buffer[column(indices, start, p)] = 0


@_compiled
def _all_products(left, right, same, out):
    """``out[i, j] = <x_i, y_j>``; the lower half only, mirrored, if both sides are the same."""
    data, indices, indptr, n_columns = left
    other, other_indices, other_indptr, _ = right
    buffer = np.zeros(n_columns, dtype=out.dtype)
    for i in range(out.shape[0]):
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        _scatter(data, indices, start, stop, buffer)
        for j in range(i + 1 if same else out.shape[1]):
            begin = row_start(other_indptr, n_columns, j)
            end = row_start(other_indptr, n_columns, j + 1)
            out[i, j] = row_dot(other, other_indices, begin, end, buffer)
            if same:
                out[j, i] = out[i, j]
        _clear(indices, start, stop, buffer)


@_compiled
def _l1_pair(data, indices, start, stop, buffer, norm):
    """``sum_j |b_j - x_j|`` of the buffered row ``b``, whose L1 norm is ``norm``, and ``x``."""
    total = norm
    if indices is None:
        total = norm * 0
        for p in range(start, stop):
            total += abs(buffer[p - start] - data[p])
        return total
    for p in range(start, stop):  # columns not stored here contribute the buffer alone
        value = buffer[column(indices, start, p)]
        total += abs(value - data[p]) - abs(value)
    return max(total, norm * 0)


@_compiled
def _all_l1(left, right, same, out):
    """``out[i, j] = |x_i - y_j|_1``; the lower half only, mirrored, if both sides are the same."""
    data, indices, indptr, n_columns = left
    other, other_indices, other_indptr, _ = right
    buffer = np.zeros(n_columns, dtype=out.dtype)
    for i in range(out.shape[0]):
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        norm = _scatter(data, indices, start, stop, buffer)
        for j in range(i + 1 if same else out.shape[1]):
            begin = row_start(other_indptr, n_columns, j)
            end = row_start(other_indptr, n_columns, j + 1)
            out[i, j] = _l1_pair(other, other_indices, begin, end, buffer, norm)
            if same:
                out[j, i] = out[i, j]
        _clear(indices, start, stop, buffer)


def sparse_products(X: Matrix, Y: Matrix, out: Array) -> None:
    """Write all pairwise inner products to ``out``; duplicate entries must be summed."""
    left: Any = as_rows(X)
    right: Any = as_rows(Y)
    _all_products(tuple(left), tuple(right), X is Y, out)


def l1_distances(X: Matrix, Y: Matrix, out: Array) -> None:
    """Write all pairwise L1 distances to ``out``; duplicate entries must be summed."""
    left: Any = as_rows(X)
    right: Any = as_rows(Y)
    _all_l1(tuple(left), tuple(right), X is Y, out)
