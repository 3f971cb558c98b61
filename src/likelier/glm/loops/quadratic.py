"""Minimum of a small quadratic under an elastic net, one coordinate at a time."""

from __future__ import annotations

import numpy as np

from likelier.jit import njit

SWEEPS = 1000
PRECISION = 1e-12


@njit(cache=True, nogil=True)
def coordinate_descent(hessian, gradient, w, l2, l1, v):
    """Cyclic coordinate descent on the penalised quadratic, in place on ``v``."""
    residual = gradient.copy()  # gradient of the quadratic at v
    for _ in range(SWEEPS):
        moved, size = 0.0, 0.0
        for j in range(len(v)):
            curve = hessian[j, j] + l2[j]
            if curve <= 0.0:
                continue
            target = hessian[j, j] * v[j] - residual[j]
            new = np.sign(target) * max(abs(target) - l1[j], 0.0) / curve
            change = new - v[j]
            if change != 0.0:
                v[j] = new
                for i in range(len(v)):
                    residual[i] += change * hessian[i, j]
            moved += curve * change * change
            size += curve * new * new
        if moved <= PRECISION * size:
            break
