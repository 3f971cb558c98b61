"""Sums of squares of many numbers, which also tell whether all of them are finite."""

from __future__ import annotations

import numpy as np

from likelier.jit import njit


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def sum_of_squares(values):
    """Sum of the squares: not finite if a number is not, or if its square is too large.

    Four stretches are read at a time: one alone waits for the memory. Cost: one reading.
    """
    n = np.uintp(len(values) // 4)
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(n):
        a += np.float64(values[i]) * np.float64(values[i])
        b += np.float64(values[n + i]) * np.float64(values[n + i])
        c += np.float64(values[n + n + i]) * np.float64(values[n + n + i])
        d += np.float64(values[n + n + n + i]) * np.float64(values[n + n + n + i])
    for i in range(np.uintp(4) * n, np.uintp(len(values))):
        a += np.float64(values[i]) * np.float64(values[i])
    return (a + b) + (c + d)
