"""Smallest and largest number of every column, in one reading of a matrix."""

from __future__ import annotations

import numpy as np

from likelier.jit import njit


@njit(cache=True, nogil=True)
def dense_ranges(data, n_columns, low, high):
    """Lower ``low`` and raise ``high`` to the numbers of C-ordered rows; NaN is passed over."""
    for start in range(0, len(data), n_columns):
        row = data[start : start + n_columns]
        for j in range(n_columns):
            low[j] = row[j] if row[j] < low[j] else low[j]
            high[j] = row[j] if row[j] > high[j] else high[j]


@njit(cache=True, nogil=True)
def sparse_ranges(data, indices, ranges):
    """Smallest and largest stored number and least size of what is not zero, of every column.

    They lie side by side in ``ranges``, so that the numbers of a column share a cache line.
    """
    for p in range(len(data)):
        x, first = np.float64(data[p]), np.uintp(indices[p]) * np.uintp(3)
        if x < ranges[first]:
            ranges[first] = x
        if x > ranges[first + np.uintp(1)]:
            ranges[first + np.uintp(1)] = x
        if abs(x) < ranges[first + np.uintp(2)] and x != 0.0:
            ranges[first + np.uintp(2)] = abs(x)
