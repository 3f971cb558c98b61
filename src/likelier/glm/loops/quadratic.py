"""Minimum of a small quadratic under an elastic net, one coordinate at a time."""

from __future__ import annotations

import numpy as np

from likelier.jit import njit

SWEEPS = 1000
PRECISION = 1e-12


@njit(cache=True, nogil=True)
def coordinate_descent(hessian, gradient, w, l2, l1, v, allowed=None):
    """Cyclic coordinate descent on the penalised quadratic, in place on ``v``.

    It ends with a sweep that meets no subgradient larger than ``allowed``, one for each coordinate;
    without these, once a sweep hardly moves.
    """
    residual = gradient.copy()  # gradient of the quadratic at v
    for _ in range(SWEEPS):
        moved, size, done = 0.0, 0.0, True
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
                    residual[i] += change * hessian[j, i]
                if allowed is not None:
                    done = done and abs(change) * curve <= allowed[j]
            moved += curve * change * change
            size += curve * new * new
        if allowed is None:
            done = moved <= PRECISION * size
        if done:
            break
