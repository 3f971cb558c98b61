"""All pairs of rows of two matrices: inner products of sparse rows, L1 distances of any.

A row of the left matrix is spread out in a buffer as wide as the data, and the rows of the
right matrix are walked along, so that a pair of sparse rows costs the entries of one of them.
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
def _spread(data, indices, start, stop, buffer):
    """Write a row into the buffer, duplicate columns added; return its L1 norm."""
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
    """``out[i, j] = <x_i, y_j>``; half of them if both are the same rows."""
    data, indices, indptr, n_columns = left
    other, other_indices, other_indptr, _ = right
    buffer = np.zeros(n_columns, dtype=out.dtype)
    for i in range(out.shape[0]):
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        _spread(data, indices, start, stop, buffer)
        for j in range(i + 1 if same else out.shape[1]):
            begin = row_start(other_indptr, n_columns, j)
            end = row_start(other_indptr, n_columns, j + 1)
            out[i, j] = row_dot(other, other_indices, begin, end, buffer)
            if same:
                out[j, i] = out[i, j]
        _clear(indices, start, stop, buffer)


@_compiled
def _l1_pair(data, indices, start, stop, buffer, norm):
    """``sum_j |b_j - x_j|`` of a spread row ``b`` of this norm and a row ``x``."""
    total = norm
    if indices is None:
        total = norm * 0
        for p in range(start, stop):
            total += abs(buffer[p - start] - data[p])
        return total
    for p in range(start, stop):  # columns absent here differ by what the buffer holds
        held = buffer[column(indices, start, p)]
        total += abs(held - data[p]) - abs(held)
    return max(total, norm * 0)


@_compiled
def _all_l1(left, right, same, out):
    """``out[i, j] = |x_i - y_j|_1``; half of them if both are the same rows."""
    data, indices, indptr, n_columns = left
    other, other_indices, other_indptr, _ = right
    buffer = np.zeros(n_columns, dtype=out.dtype)
    for i in range(out.shape[0]):
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        norm = _spread(data, indices, start, stop, buffer)
        for j in range(i + 1 if same else out.shape[1]):
            begin = row_start(other_indptr, n_columns, j)
            end = row_start(other_indptr, n_columns, j + 1)
            out[i, j] = _l1_pair(other, other_indices, begin, end, buffer, norm)
            if same:
                out[j, i] = out[i, j]
        _clear(indices, start, stop, buffer)


def sparse_products(X: Matrix, Y: Matrix, out: Array) -> None:
    """Inner products of all pairs of rows, into ``out``; duplicate entries must be summed."""
    left: Any = as_rows(X)
    right: Any = as_rows(Y)
    _all_products(tuple(left), tuple(right), X is Y, out)


def l1_distances(X: Matrix, Y: Matrix, out: Array) -> None:
    """L1 distances of all pairs of rows, into ``out``; duplicate entries must be summed."""
    left: Any = as_rows(X)
    right: Any = as_rows(Y)
    _all_l1(tuple(left), tuple(right), X is Y, out)
