"""Compiled work on rows of counted terms: frequencies, the order of terms, sorting, weights."""

import numpy as np
from numba import njit

_compiled = njit(cache=True, nogil=True, error_model="numpy")


@_compiled
def add_frequencies(terms, counts, documents, occurrences):
    """Add to each term in how many documents it is, and how often in all."""
    for i in range(len(terms)):
        documents[terms[i]] += 1
        occurrences[terms[i]] += counts[i]


@_compiled
def prefix_keys(arena, starts, ends, skip, width):
    """Return ``width`` bytes of each term from byte ``skip`` on, as a number; zeros follow it."""
    keys = np.empty(len(starts), dtype=np.uint64)
    for i in range(len(starts)):
        first = starts[i] + skip
        key = np.uint64(0)
        for k in range(width):
            key <<= np.uint64(8)
            if first + k < ends[i]:
                key |= np.uint64(arena[first + k])
        keys[i] = key
    return keys


@_compiled
def gather_terms(arena, starts, ends, order, new_arena, new_ends):
    """Copy the terms listed in ``order``, one after another."""
    written = 0
    for i in range(len(order)):
        for k in range(starts[order[i]], ends[order[i]]):
            new_arena[written] = arena[k]
            written += 1
        new_ends[i] = written


@_compiled
def sort_rows(terms, counts, row_ends, column_of, n_columns, indptr, indices, sorted_counts):
    """Put every row in the order of its columns; terms with a negative column are left out.

    Entries are dealt out by column and then, column by column, by row: linear in their number.
    Returns how many there are.
    """
    heads = np.zeros(n_columns + 1, dtype=np.int64)
    for i in range(len(terms)):
        heads[column_of[terms[i]] + 1] += 1
    heads[0] = 0  # where those without a column were counted
    for j in range(n_columns):
        heads[j + 1] += heads[j]
    rows = np.empty(heads[n_columns], dtype=np.int32)
    values = np.empty(heads[n_columns], dtype=np.int32)
    tails = heads[:-1].copy()
    indptr[0] = 0
    first = n_entries = 0
    for row in range(len(row_ends)):
        for i in range(first, row_ends[row]):
            column = column_of[terms[i]]
            if column >= 0:
                place = tails[column]
                rows[place] = row
                values[place] = counts[i]
                tails[column] = place + 1
                n_entries += 1
        first = row_ends[row]
        indptr[row + 1] = n_entries
    heads_of_rows = indptr[:-1].copy()
    for column in range(n_columns):
        for i in range(heads[column], heads[column + 1]):
            row = rows[i]
            indices[heads_of_rows[row]] = column
            sorted_counts[heads_of_rows[row]] = values[i]
            heads_of_rows[row] += 1
    return n_entries


@_compiled
def weigh_rows(indptr, indices, counts, lengths, idf, binary, sublinear, norm, out):
    """Turn counts into weights, row by row.

    ``lengths`` (what the counts of a row are divided by) and ``idf`` may be empty: no factor.
    ``norm`` is 0, 1 or 2: none, or the sum of absolute values or of squares is one.
    """
    for row in range(len(indptr) - 1):
        total = 0.0
        for i in range(indptr[row], indptr[row + 1]):
            value = 1.0 if binary else np.float64(counts[i])
            if sublinear:
                value = np.log(value) + 1.0
            if len(lengths) > 0:
                value /= lengths[row]
            if len(idf) > 0:
                value *= idf[indices[i]]
            out[i] = value
            total += abs(value) if norm == 1 else value * value
        if norm > 0 and total > 0.0:
            scale = total if norm == 1 else np.sqrt(total)
            for i in range(indptr[row], indptr[row + 1]):
                out[i] /= scale
