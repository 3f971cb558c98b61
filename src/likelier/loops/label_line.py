"""Sums over rows for many logistic regressions at once: one column of scores per label.

The inner loop runs over labels, which lie side by side in memory, so that it uses the vector
unit. A label that is NaN is unknown: the row then says nothing about it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from likelier.loops.exponential import FLAGS, fast_exp

_compiled = njit(cache=True, nogil=True, fastmath=FLAGS)


@_compiled
def line_sums(F, G, Y, weight, t, slope, curve):
    """First and second derivative of every label's loss along ``F + t G``, in place."""
    one, zero = F.dtype.type(1), F.dtype.type(0)
    slope[:] = 0.0
    curve[:] = 0.0
    for i in range(F.shape[0]):
        f, g, y, w = F[i], G[i], Y[i], weight[i]
        for c in range(len(f)):
            score = f[c] + t[c] * g[c]
            e = fast_exp(-abs(score))
            p = (one if score >= zero else e) / (one + e)
            known = w if y[c] == y[c] else zero
            target = y[c] if y[c] == y[c] else zero
            slope[c] += known * (p - target) * g[c]
            curve[c] += known * p * (one - p) * g[c] * g[c]


@_compiled
def residuals(F, Y, weight, R, curvature, total):
    """Weighted ``sigma(f) - y`` in ``R``; sums over rows of it and of the curvature.

    The curvature is ``sigma (1 - sigma)``, but at least a quarter of the residuals' size: far
    from the optimum, where sigmoids are flat, steps would be too long otherwise. At a
    calibrated optimum that is half of the former and changes nothing.
    """
    one, zero = F.dtype.type(1), F.dtype.type(0)
    curvature[:] = 0.0
    total[:] = 0.0
    size = np.zeros_like(total)
    for i in range(F.shape[0]):
        f, y, w, r = F[i], Y[i], weight[i], R[i]
        for c in range(len(f)):
            e = fast_exp(-abs(f[c]))
            p = (one if f[c] >= zero else e) / (one + e)
            known = w if y[c] == y[c] else zero
            target = y[c] if y[c] == y[c] else zero
            r[c] = known * (p - target)
            total[c] += r[c]
            size[c] += abs(r[c])
            curvature[c] += known * p * (one - p)
    for c in range(len(total)):
        curvature[c] = max(curvature[c], size[c] / 4)


@_compiled
def log_losses(F, Y, weight, out):
    """Sum over rows of every label's log loss, in place."""
    out[:] = 0.0
    for i in range(F.shape[0]):
        for c in range(F.shape[1]):
            y = Y[i, c]
            if y == y:
                f = F[i, c]
                out[c] += weight[i] * (np.log1p(np.exp(-abs(f))) + max(f, 0.0) - y * f)
