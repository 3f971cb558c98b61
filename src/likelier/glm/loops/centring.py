"""Column moments, and centred copies of rows."""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.loops.rows import column, prefetch_ahead, row_start


@njit(cache=True, nogil=True)
def column_moments(data, indices, indptr, n_columns, rows, sums, squares, counts):
    """Update sums, sums of squares and numbers of nonzeros of every column."""
    for r in range(len(rows)):
        i = rows[r]
        prefetch_ahead(data, indices, indptr, n_columns, rows, r)
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        for p in range(start, stop):
            j = column(indices, start, p)
            x = np.float64(data[p])
            sums[j] += x
            squares[j] += x * x
            counts[j] += 1.0 if x != 0.0 else 0.0


@njit(cache=True, nogil=True)
def centred_dense(data, n_columns, rows, shift, out, largest):
    """Gather ``x_i - shift`` of the listed rows, and the largest absolute values per column."""
    width = np.uintp(n_columns)
    for r in range(np.uintp(len(rows))):
        first, target = np.uintp(rows[r]) * width, r * width
        prefetch_ahead(data, None, None, n_columns, rows, r)
        for j in range(width):
            x = np.float64(data[first + j]) - shift[j]
            out[target + j] = x
            # not max(), whose handling of NaN prevents vectorisation
            largest[j] = abs(x) if abs(x) > largest[j] else largest[j]


@njit(cache=True, nogil=True)
def centred_sparse(
    data, indices, indptr, rows, shift, columns, out, out_indices, out_indptr, largest
):  # fmt: skip
    """Gather ``x_i - shift`` of sparse rows: the shifted ``columns`` are stored in every row.

    ``out`` and ``out_indices`` have capacity for the entries of the rows plus all shifted columns
    of each.
    """
    last_row = np.full(len(shift), -1)
    end = np.uintp(0)
    out_indptr[0] = 0
    for r in range(len(rows)):
        for p in range(np.uintp(indptr[rows[r]]), np.uintp(indptr[rows[r] + 1])):
            j = np.uintp(indices[p])
            out[end] = np.float64(data[p])
            out_indices[end] = j
            if shift[j] != 0.0:
                last_row[j] = r
                out[end] -= shift[j]
                largest[j] = max(largest[j], abs(out[end]))
            end += np.uintp(1)
        for j in columns:
            if last_row[j] != r:
                out[end] = -shift[j]
                out_indices[end] = j
                largest[j] = max(largest[j], abs(shift[j]))
                end += np.uintp(1)
        out_indptr[r + 1] = end
