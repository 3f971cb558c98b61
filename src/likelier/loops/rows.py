"""Compiled operations on a row, dense or sparse, and the weights of its columns.

A matrix enters a compiled loop as `Rows`: ``(data, indices, indptr, n_columns)``. For a dense
matrix ``data`` is a flat view of the C-ordered array, and ``indices`` and ``indptr`` are None,
which Numba resolves at compile time, so no loop is duplicated in the source.

Weights are ``(n_columns, n_lanes)`` in C order, passed as a vector. A lane is one output: a class,
a candidate learning rate, or a pair of both. The outputs of a column are contiguous, so a row is
read once for all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.jit import njit
from likelier.loops.lanes import (
    add_2,
    add_4,
    add_8,
    add_12,
    add_rates_2,
    add_rates_4,
    add_rates_8,
    add_rates_12,
    scores_2,
    scores_4,
    scores_8,
    scores_12,
)

# Sums along a row may be reordered, which enables vectorisation, but infinities and NaN keep IEEE
# semantics.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}
CHUNK = 1 << 19  # values squared at a time, so that temporary memory does not grow with the rows

LOOK_AHEAD = 3  # rows
LINE = 8  # floats per cache line
COLUMNS_AHEAD = np.uintp(8)  # entries of a row whose weights are prefetched


class Rows(NamedTuple):
    """A matrix as passed to compiled loops."""

    data: Array
    indices: Array | None
    indptr: Array | None
    n_columns: int


def as_rows(X: Matrix) -> Rows:
    """View a matrix as `Rows`. Nothing is copied, except a dense matrix not in C order."""
    if sparse.issparse(X):
        # Unsigned, here and below, because Numba checks signed indices for being negative, which
        # prevents vectorisation.
        kind = np.uint32 if X.indices.dtype.itemsize == 4 else np.uint64
        return Rows(X.data, X.indices.view(kind), X.indptr, X.shape[1])
    X = np.ascontiguousarray(X)
    return Rows(X.reshape(-1), None, None, X.shape[1])


def all_rows(X: Matrix, rows: Array | None) -> Array:
    """Indices of the rows to visit; None means all."""
    return np.arange(X.shape[0]) if rows is None else rows


def nonzeros_per_row(X: Matrix, rows: Array) -> int:
    """Mean number of stored entries of the listed rows, at least one."""
    if not sparse.issparse(X):
        return int(X.shape[1])
    stored = int((X.indptr[rows + 1] - X.indptr[rows]).sum())
    return max(1, stored // max(1, len(rows)))


@njit(cache=True, nogil=True)
def row_start(indptr, n_columns, i):
    """Start of row ``i`` in the data (unsigned, see `as_rows`)."""
    if indptr is None:
        return np.uintp(i) * np.uintp(n_columns)
    return np.uintp(indptr[i])


@njit(cache=True, nogil=True)
def column(indices, start, p):
    """Column of the entry at position ``p`` of a row that begins at ``start``."""
    if indices is None:
        return p - start
    return np.uintp(indices[p])


@intrinsic
def prefetch(typingctx, array, position):
    """Prefetch ``array[position]`` into the cache; never faults."""

    def codegen(context, builder, signature, args):
        array_type = signature.args[0]
        vector = context.make_array(array_type)(context, builder, args[0])
        address = builder.gep(vector.data, [args[1]])
        address = builder.bitcast(address, cgutils.voidptr_t)
        number = ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        builder.call(function, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.uintp), codegen


@njit(cache=True, nogil=True)
def prefetch_ahead(data, indices, indptr, n_columns, rows, r):
    """Prefetch a row soon after ``rows[r]``, because shuffled rows would miss the cache."""
    ahead = rows[min(r + LOOK_AHEAD, len(rows) - 1)]
    start, stop = row_start(indptr, n_columns, ahead), row_start(indptr, n_columns, ahead + 1)
    for p in range(start, stop, np.uintp(8)):
        prefetch(data, p)
    if indices is not None:
        for p in range(start, stop, np.uintp(16)):
            prefetch(indices, p)


@njit(cache=True, nogil=True)
def prefetch_weights(indices, indptr, n_columns, rows, r, weights, width, split):
    """Prefetch the weights of the sparse row after ``rows[r]``, if a column fits in a cache line.

    The row itself must have been prefetched (`prefetch_ahead`), since its columns are read. If the
    weights are ``split`` into two tables, both are prefetched.
    """
    if indices is None or (width > LINE and not split) or r + 1 >= len(rows):
        return
    start = row_start(indptr, n_columns, rows[r + 1])
    stop = row_start(indptr, n_columns, rows[r + 1] + 1)
    if split:
        rest, second = np.uintp(width - LINE), np.uintp(n_columns * LINE)
        for p in range(start, stop):
            prefetch(weights, np.uintp(indices[p]) * np.uintp(LINE))
            prefetch(weights, np.uintp(indices[p]) * rest + second)
        return
    for p in range(start, stop):
        prefetch(weights, np.uintp(indices[p]) * np.uintp(width))


@njit(cache=True, nogil=True)
def prefetch_lanes(indices, p, stop, weights, n_lanes):
    """Prefetch the weights of a column of a sparse row."""
    if indices is not None and p < stop:
        first = np.uintp(indices[p]) * n_lanes
        for lane in range(np.uintp(0), n_lanes, np.uintp(8)):
            prefetch(weights, first + lane)


@njit(cache=True, nogil=True, fastmath=_REORDER)
def row_dot(data, indices, start, stop, weights):
    """``sum_j x_j w[j]`` for a single output."""
    total = 0.0
    if indices is None:
        for p in range(start, stop):
            total += data[p] * weights[column(indices, start, p)]
        return total
    # four explicit partial sums: sparse rows are too short for a vectorised loop
    b, c, d = 0.0, 0.0, 0.0
    p = start
    while p + np.uintp(4) <= stop:
        total += data[p] * weights[np.uintp(indices[p])]
        b += data[p + np.uintp(1)] * weights[np.uintp(indices[p + np.uintp(1)])]
        c += data[p + np.uintp(2)] * weights[np.uintp(indices[p + np.uintp(2)])]
        d += data[p + np.uintp(3)] * weights[np.uintp(indices[p + np.uintp(3)])]
        p += np.uintp(4)
    while p < stop:
        total += data[p] * weights[np.uintp(indices[p])]
        p += np.uintp(1)
    return (total + b) + (c + d)


@njit(cache=True, nogil=True, fastmath=_REORDER)
def row_axpy(data, indices, start, stop, weights, step):
    """``w[j] += x_j step`` for a single output."""
    for p in range(start, stop):
        weights[column(indices, start, p)] += data[p] * step


@njit(cache=True, nogil=True, fastmath=_REORDER)
def row_dot_rates(data, indices, start, stop, weights, rates):
    """``sum_j x_j w[j]`` and ``sum_j rate_j x_j^2`` for a single output."""
    total, square = 0.0, 0.0
    for p in range(start, stop):
        j = column(indices, start, p)
        x = np.float64(data[p])
        total += x * weights[j]
        square += rates[j] * x * x
    return total, square


@njit(cache=True, nogil=True, fastmath=_REORDER)
def row_axpy_rates(data, indices, start, stop, weights, rates, step):
    """``w[j] += rate_j x_j step`` for a single output."""
    for p in range(start, stop):
        j = column(indices, start, p)
        weights[j] += rates[j] * data[p] * step


@njit(cache=True, nogil=True, fastmath=_REORDER)
def row_scores(data, indices, start, stop, weights, out):
    """``out[k] = sum_j x_j w[j, k]``."""
    n_lanes = np.uintp(len(out))
    if len(out) == 1:
        out[0] = row_dot(data, indices, start, stop, weights)
        return
    if len(out) == 2:
        scores_2(data, indices, start, stop, weights, out)
        return
    if len(out) == 4:
        scores_4(data, indices, start, stop, weights, out)
        return
    if len(out) == 8:
        scores_8(data, indices, start, stop, weights, out)
        return
    for lane in range(n_lanes):
        out[lane] = 0.0
    for p in range(start, stop):
        prefetch_lanes(indices, p + COLUMNS_AHEAD, stop, weights, n_lanes)
        x = data[p]
        if x != 0.0:
            first = column(indices, start, p) * n_lanes
            for lane in range(n_lanes):
                out[lane] += x * weights[first + lane]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def row_add(data, indices, start, stop, weights, step):
    """``w[j, k] += x_j step[k]``."""
    n_lanes = np.uintp(len(step))
    if len(step) == 1:
        row_axpy(data, indices, start, stop, weights, step[0])
        return
    if len(step) == 2:
        add_2(data, indices, start, stop, weights, step)
        return
    if len(step) == 4:
        add_4(data, indices, start, stop, weights, step)
        return
    if len(step) == 8:
        add_8(data, indices, start, stop, weights, step)
        return
    for p in range(start, stop):
        x = data[p]
        if x != 0.0:
            first = column(indices, start, p) * n_lanes
            for lane in range(n_lanes):
                weights[first + lane] += x * step[lane]


@njit(cache=True, nogil=True, fastmath=_REORDER)
def row_add_rates(data, indices, start, stop, weights, step, rates):
    """``w[j, k] += rate_j x_j step[k]``.

    If there are fewer rates than columns, they belong to the last columns, and the first ones have
    rate 1.
    """
    n_lanes = np.uintp(len(step))
    even = np.uintp(len(weights) // len(step) - len(rates))
    if len(step) == 2:
        add_rates_2(data, indices, start, stop, weights, step, rates, even)
        return
    if len(step) == 4:
        add_rates_4(data, indices, start, stop, weights, step, rates, even)
        return
    if len(step) == 8:
        add_rates_8(data, indices, start, stop, weights, step, rates, even)
        return
    for p in range(start, stop):
        j = column(indices, start, p)
        x = np.float64(data[p])
        if j >= even:
            x *= rates[j - even]
        if x != 0.0:
            for lane in range(n_lanes):
                weights[j * n_lanes + lane] += x * step[lane]


@njit(cache=True, nogil=True)
def table_scores(data, indices, start, stop, weights, out, split):
    """`row_scores` of weights that may be ``split`` into two tables (`likelier.loops.lanes`)."""
    if split:
        scores_12(data, indices, start, stop, weights, out)
    else:
        row_scores(data, indices, start, stop, weights, out)


@njit(cache=True, nogil=True)
def table_add(data, indices, start, stop, weights, step, rates, split):
    """`row_add`, or `row_add_rates` with rates, for weights that may be ``split``."""
    if rates is None:
        if split:
            add_12(data, indices, start, stop, weights, step)
        else:
            row_add(data, indices, start, stop, weights, step)
    elif split:
        even = np.uintp(len(weights) // len(step) - len(rates))
        add_rates_12(data, indices, start, stop, weights, step, rates, even)
    else:
        row_add_rates(data, indices, start, stop, weights, step, rates)


@njit(cache=True, nogil=True, fastmath=_REORDER)
def row_square(data, start, stop):
    """``sum_j x_j^2``."""
    total = 0.0
    for p in range(start, stop):
        total += np.float64(data[p]) * data[p]
    return total


@njit(cache=True, nogil=True, fastmath=_REORDER)
def squared_norms(data, indices, indptr, n_columns, n_rows, rates):
    """Squared Euclidean norm of every row, optionally weighted by the ``rates`` of the columns."""
    out = np.empty(n_rows)
    for i in range(n_rows):
        total = 0.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        for p in range(start, stop):
            square = np.float64(data[p]) * data[p]
            total += square if rates is None else square * rates[column(indices, start, p)]
        out[i] = total
    return out


def row_norms(X: Matrix, rates: Array | None = None) -> Array:
    """Squared Euclidean norm of every row, optionally weighted by the ``rates`` of the columns."""
    rows: Any = as_rows(X)
    return np.asarray(squared_norms(*rows, X.shape[0], rates))


def column_squares(X: Matrix, weight: Array | None = None) -> Array:
    """Weighted sum of squares of every column in double precision; overflow gives infinity."""
    if sparse.issparse(X):
        total = np.zeros(X.shape[1])
        omega = None if weight is None else np.repeat(weight, np.diff(X.indptr))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(X.data), CHUNK):
                part = slice(start, start + CHUNK)
                square = X.data[part].astype(np.float64) ** 2
                if omega is not None:
                    square *= omega[part]
                total += np.bincount(X.indices[part], weights=square, minlength=X.shape[1])
        return total
    if weight is None:
        return np.asarray(np.einsum("ij,ij->j", X, X, dtype=np.float64))
    return np.asarray(np.einsum("ij,ij,i->j", X, X, weight, dtype=np.float64))


def column_counts(X: Matrix) -> Array:
    """Number of nonzero entries of every column."""
    if sparse.issparse(X):
        return np.asarray(np.bincount(X.indices[X.data != 0], minlength=X.shape[1]))
    return np.asarray(np.count_nonzero(X, axis=0))
