"""Coordinate descent on columns: a penalised quadratic whose Hessian is never formed.

The matrix is `Rows` of its transpose: feature j is row j, its entries belong to the rows of the
data.
"""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.loops.rows import column, row_dot, row_start


@njit(cache=True, nogil=True)
def column_curvatures(data, indices, indptr, n_rows, positions, curvature):
    """``sum_i h_i x_ij`` and ``sum_i h_i x_ij^2`` of the listed features."""
    first, second = np.zeros(len(positions)), np.zeros(len(positions))
    for a in range(len(positions)):
        j = positions[a]
        start, stop = row_start(indptr, n_rows, j), row_start(indptr, n_rows, j + 1)
        for p in range(start, stop):
            x = np.float64(data[p])
            weighted = x * curvature[column(indices, start, p)]
            first[a] += weighted
            second[a] += weighted * x
    return first, second


@njit(cache=True, nogil=True)
def descend_columns(
    data, indices, indptr, n_rows, positions, curvature, first, second, total, gradient, l2, l1, w,
    allowed, max_sweeps,
):  # fmt: skip
    """Minimise ``gradient^T (w - w0) + (w - w0)^T H (w - w0) / 2 + penalty(w)``, in place on ``w``.

    ``H_jk = sum_i h_i (x_ij - m_j) (x_ik - m_k)`` with ``m_j = first_j / total``: the intercept is
    profiled out; ``total`` is inf without one. Sweeps until the subgradient at every coordinate is
    at most ``allowed``. Returns ``first^T (w - w0)``, for the intercept. Cost per sweep: twice the
    nonzeros.
    """
    moved = np.zeros(len(curvature))  # h_i times the change of the score of row i
    shared = 0.0
    for _ in range(max_sweeps):
        done = True
        for a in range(len(positions)):
            curve = second[a] - first[a] * first[a] / total + l2[a]
            if not curve > 0.0:
                continue
            start = row_start(indptr, n_rows, positions[a])
            stop = row_start(indptr, n_rows, positions[a] + 1)
            residual = gradient[a] + row_dot(data, indices, start, stop, moved)
            residual += l2[a] * w[a] - first[a] * shared / total
            target = curve * w[a] - residual
            new = np.sign(target) * max(abs(target) - l1[a], 0.0) / curve
            change = new - w[a]
            if change == 0.0:
                continue
            done = done and abs(change) * curve <= allowed[a]
            w[a] = new
            shared += change * first[a]
            for p in range(start, stop):
                i = column(indices, start, p)
                moved[i] += change * data[p] * curvature[i]
        if done:
            break
    return shared
