"""Compiled operations on rows of term counts: frequencies, sorting and weights."""

import numpy as np

from likelier.jit import njit

_compiled = njit(cache=True, nogil=True, error_model="numpy")
_helper = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

_ONE, _HALF, _LOW = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
SHORT = 32  # entries of a row up to which insertion sort is faster


@_compiled
def add_frequencies(terms, counts, documents, occurrences):
    """Update the document frequencies and total occurrences of the terms."""
    for i in range(len(terms)):
        documents[terms[i]] += 1
        occurrences[terms[i]] += counts[i]


@_compiled
def prefix_keys(arena, starts, ends, skip, width):
    """Return ``width`` bytes of each term from byte ``skip`` on as a zero-padded integer."""
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
    """Copy the terms listed in ``order`` to a new arena."""
    written = 0
    for i in range(len(order)):
        for k in range(starts[order[i]], ends[order[i]]):
            new_arena[written] = arena[k]
            written += 1
        new_ends[i] = written


@_helper
def _insertion_sort(entries, n):
    """Sort the first entries by insertion."""
    for i in range(1, n):
        entry = entries[i]
        k = i
        while k > 0 and entries[k - 1] > entry:
            entries[k] = entries[k - 1]
            k -= 1
        entries[k] = entry


@_helper
def _radix_sort(entries, other, heads, bits, n):
    """Sort the first entries by their columns, first by the lower half of the bits."""
    digit = (_ONE << bits) - _ONE
    heads[:] = 0
    for i in range(n):
        column = entries[i] >> _HALF
        heads[0, (column & digit) + _ONE] += 1
        heads[1, (column >> bits) + _ONE] += 1
    for k in range(digit):
        heads[0, k + 1] += heads[0, k]
        heads[1, k + 1] += heads[1, k]
    for i in range(n):
        place = (entries[i] >> _HALF) & digit
        other[heads[0, place]] = entries[i]
        heads[0, place] += 1
    for i in range(n):
        place = other[i] >> (_HALF + bits)
        entries[heads[1, place]] = other[i]
        heads[1, place] += 1


@_compiled
def sort_rows(terms, counts, row_ends, column_of, n_columns, indptr, indices, sorted_counts):
    """Sort every row by column, dropping terms with a negative column.

    Long rows use a radix sort with two digits, short ones insertion sort. Returns the number of
    entries.
    """
    bits = np.uint64(1)
    while n_columns > 1 << (2 * bits):
        bits += _ONE
    heads = np.empty((2, (1 << bits) + 1), dtype=np.int64)
    first = longest = 0
    for row in range(len(row_ends)):
        longest = max(longest, row_ends[row] - first)
        first = row_ends[row]
    entries, other = np.empty((2, longest), dtype=np.uint64)
    indptr[0] = 0
    first = n_entries = 0
    for row in range(len(row_ends)):
        n = 0
        for i in range(first, row_ends[row]):
            column = column_of[terms[i]]
            if column >= 0:
                entries[n] = (np.uint64(column) << _HALF) | np.uint64(counts[i])
                n += 1
        if n <= SHORT:
            _insertion_sort(entries, n)
        else:
            _radix_sort(entries, other, heads, bits, n)
        for i in range(n):
            indices[n_entries + i] = entries[i] >> _HALF
            sorted_counts[n_entries + i] = entries[i] & _LOW
        first = row_ends[row]
        n_entries += n
        indptr[row + 1] = n_entries
    return n_entries


@_compiled
def weigh_rows(indptr, indices, counts, lengths, idf, binary, sublinear, norm, out):
    """Turn counts into weights, row by row.

    ``lengths`` (the divisors of the counts of each row) and ``idf`` may be empty for no scaling.
    ``norm`` is 0, 1 or 2: none, L1 or L2.
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
