"""Implicit steps that remember: dual coordinate ascent written with the proximal step.

With ``w = sum_i omega_i dual_i x_i / (lambda N)`` each visit takes back what row i gave the
last time (``m = f - c dual_i``), solves the same scalar equation as the implicit update,
``g = -loss'(m + c g)`` with ``c = omega_i (|x_i|^2 / (lambda N) + k)``, and gives ``g``. There
is no learning rate, and the weights converge to the optimum itself.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from likelier.loops.rows import row_add, row_add_rates, row_scores, row_start
from likelier.loops.sgd import lane_target, steps
from likelier.losses import coupled_value, loss_value


@njit(cache=True, nogil=True)
def dual_pass(
    data,
    indices,
    indptr,
    n_columns,
    rows,
    y,
    weight,
    norms,
    code,
    p,
    coupled,
    classes,
    dual,
    points,
    weights,
    intercept,
    share,
    intercept_rate,
    rates=None,
):
    """Visit the rows once. ``share`` is ``1 / (lambda N)``.

    With ``rates`` every feature has a penalty of its own, ``lambda / rate_j``; the norms are then
    sums of ``rate_j x_j^2``.

    ``dual[i]`` holds the last ``g`` of row i and ``points[i]`` the score where it is a
    slope. Returns a lower bound on how much the dual objective (a sum over rows) rose.
    """
    n_lanes = len(intercept)
    m, g, step, c = np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes), np.empty(n_lanes)
    rise = 0.0
    for i in rows:
        omega = weight[i] if len(weight) else 1.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        row_scores(data, indices, start, stop, weights, m)
        size = omega * (norms[i] * share + intercept_rate)
        for k in range(n_lanes):
            c[k] = size
            m[k] += intercept[k] - size * dual[i, k]
        steps(code, p, coupled, True, classes, y[i], m, c, g)
        for k in range(n_lanes):
            change = g[k] - dual[i, k]
            rise += 0.5 * omega * size * change * change
            dual[i, k] = g[k]
            points[i, k] = m[k] + size * g[k]
            step[k] = omega * share * change
            intercept[k] += omega * intercept_rate * change
        if rates is None:
            row_add(data, indices, start, stop, weights, step)
        else:
            row_add_rates(data, indices, start, stop, weights, step, rates)
    return rise


@njit(cache=True, nogil=True)
def duality_gap(
    data,
    indices,
    indptr,
    n_columns,
    rows,
    y,
    weight,
    code,
    p,
    coupled,
    classes,
    dual,
    points,
    weights,
    intercept,
):
    """Sum of the losses, and the sum over rows of ``loss(f) - loss(u) - dual (u - f)``.

    Each term of the second sum is non-negative because the dual is minus a slope at the
    point ``u``; with no intercept, or when its duals sum to zero, it is the duality gap.
    """
    n_lanes = len(intercept)
    f = np.empty(n_lanes)
    total, gap = 0.0, 0.0
    for i in rows:
        omega = weight[i] if len(weight) else 1.0
        start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
        row_scores(data, indices, start, stop, weights, f)
        for k in range(n_lanes):
            f[k] += intercept[k]
        loss, below = 0.0, 0.0
        if coupled:
            loss = coupled_value(code, np.int64(y[i]), f)
            below = coupled_value(code, np.int64(y[i]), points[i])
        for k in range(n_lanes):
            if not coupled:
                t = lane_target(classes, y[i], k)
                loss += loss_value(code, p, t, f[k])
                below += loss_value(code, p, t, points[i, k])
            below += dual[i, k] * (points[i, k] - f[k])
        total += omega * loss
        gap += omega * max(loss - below, 0.0)
    return total, gap
