"""Cholesky factorisation and solution without the GIL.

SciPy's functions hold the GIL, which prevents running them in parallel threads.
"""

from __future__ import annotations

import numpy as np

from likelier.jit import njit


@njit(cache=True, nogil=True)
def cholesky(matrix):
    """Lower factor of a symmetric matrix; raises ``LinAlgError`` if it is not definite."""
    return np.linalg.cholesky(matrix)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def cholesky_solve(factor, right):
    """Solve ``factor factor^T x = b`` for every column ``b``; ``factor`` is in C order.

    For few columns, where the time is that of reading the factor: each of its rows is read once
    forwards and once backwards, for all columns.
    """
    n, n_columns = right.shape
    out = np.empty((n_columns, n))
    for k in range(n_columns):
        for i in range(n):
            out[k, i] = right[i, k]
    for i in range(n):
        row = factor[i]
        for k in range(n_columns):
            x, total = out[k], 0.0
            for j in range(i):
                total += row[j] * x[j]
            x[i] = (x[i] - total) / row[i]
    for i in range(n - 1, -1, -1):
        row = factor[i]
        for k in range(n_columns):
            x = out[k]
            x[i] /= row[i]
            last = x[i]
            for j in range(i):
                x[j] -= row[j] * last
    return out.T
