"""Sums over the rows of a block: losses, slopes, curvatures and weighted Gram matrices."""

from __future__ import annotations

import numpy as np
from numba import njit

from likelier.loops.rows import column, row_start
from likelier.loops.sgd import lane_target
from likelier.losses import (
    coupled_slope,
    coupled_value,
    loss_curvature,
    loss_envelope,
    loss_slope,
    loss_value,
)


@njit(cache=True, nogil=True)
def scalar_terms(code, p, classes, width, y, weight, scores, order, slope, curvature):
    """Losses summed per lane; slopes and curvatures, times the weight, into their arrays."""
    n_rows, n_lanes = scores.shape
    total = np.zeros(n_lanes)
    for i in range(n_rows):
        omega = weight[i] if len(weight) else 1.0
        for k in range(n_lanes):
            t = lane_target(classes, y[i], k)
            f = scores[i, k]
            if width > 0.0:
                value, first, second = loss_envelope(code, p, t, f, width)
                total[k] += omega * value
                if order >= 1:
                    slope[i, k] = omega * first
                if order >= 2:
                    curvature[i, k] = omega * second
                continue
            total[k] += omega * loss_value(code, p, t, f)
            if order >= 1:
                slope[i, k] = omega * loss_slope(code, p, t, f)
            if order >= 2:
                curvature[i, k] = omega * loss_curvature(code, p, t, f)
    return total


@njit(cache=True, nogil=True)
def coupled_terms(code, y, weight, scores, order, slope, shares):
    """The same for a coupled loss; ``shares`` gets the class probabilities (softmax)."""
    total = np.zeros(1)
    for i in range(scores.shape[0]):
        omega = weight[i] if len(weight) else 1.0
        cls = np.int64(y[i])
        total[0] += omega * coupled_value(code, cls, scores[i])
        if order >= 1:
            coupled_slope(code, cls, scores[i], slope[i])
            for k in range(scores.shape[1]):
                if order >= 2:
                    shares[i, k] = slope[i, k] + (1.0 if k == cls else 0.0)
                slope[i, k] *= omega
    return total


@njit(cache=True, nogil=True)
def values_along(code, p, coupled, classes, y, weight, scores, change, step):
    """Losses summed per lane at ``scores + step * change``: a line search without a pass."""
    n_rows, n_lanes = scores.shape
    total = np.zeros(1 if coupled else n_lanes)
    f = np.empty(n_lanes)
    for i in range(n_rows):
        omega = weight[i] if len(weight) else 1.0
        for k in range(n_lanes):
            f[k] = scores[i, k] + step[k] * change[i, k]
            if not coupled:
                t = lane_target(classes, y[i], k)
                total[k] += omega * loss_value(code, p, t, f[k])
        if coupled:
            total[0] += omega * coupled_value(code, np.int64(y[i]), f)
    return total


@njit(cache=True, nogil=True)
def sparse_gram(data, indices, indptr, n_columns, weight, out):
    """Add ``sum_i weight_i x_i x_i^T`` to ``out``, every pair of columns on one side only.

    Which side depends on the order of the row's entries: ``out + out.T`` with the diagonal
    halved is the whole matrix, whatever the order.
    """
    for i in range(len(weight)):
        h = weight[i]
        if h == 0.0:
            continue
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        for a in range(start, stop):
            row = out[column(indices, start, a)]
            x = h * data[a]
            for b in range(a, stop):
                row[column(indices, start, b)] += x * data[b]
