"""The opening of a stream: its first rows, while they are few enough to be kept, to convergence.

Sites that are made while the weights are still far off stay wrong, since no row is seen again. So
the first rows wait in a buffer of bounded size, are brought to the maximum of their posterior by
L-BFGS, and only then become sites, expanded about that maximum. A stream that ends before its
buffer is full gets the converged answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from likelier.base import Array

OPENING_VALUES = 1 << 19  # kept: four megabytes of double precision
OPENING_ROWS = 1 << 14
CLOSE = 0.02  # slope that is left, per standard deviation of a weight: far within its uncertainty
MAX_STEPS = 200
MEMORY = 20  # changes that L-BFGS remembers


def opening_size(n_features: int, block: int) -> int:
    """Rows of the opening: as many whole blocks as the buffer holds, and at least one."""
    return block * max(1, min(OPENING_ROWS, OPENING_VALUES // n_features) // block)


def converged(Z: Array, codes: Array, weight: Array, prior: Array, n_outputs: int) -> Array:
    """Weights of the largest softmax posterior, by L-BFGS in the metric of uncertain rows.

    Stops where no weight would move by more than a small part of what the rows leave open: more
    digits would be about these rows and not about the next. Costs rows x features^2 once, and
    two products of rows x features x outputs per step.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_coordinates)
    codes : ndarray of shape (n_rows,)
        Output of every row.
    weight : ndarray of shape (n_rows,)
    prior : ndarray of shape (n_coordinates,)
        Precisions.
    n_outputs : int
    """
    units, root = _metric(Z, weight, prior, n_outputs)
    shape = (len(prior), n_outputs)
    row_weight = weight.astype(Z.dtype)

    def weights(point: Array) -> Array:
        scaled = solve_triangular(root, point.reshape(shape), lower=True, trans=1)
        return np.asarray(units[:, None] * scaled)

    def energy(point: Array) -> tuple[float, Array]:
        w = weights(point)
        loss, residual = softmax_terms(w.T.astype(Z.dtype) @ Z.T, codes)
        value = float(weight @ loss) + 0.5 * float((prior @ w**2).sum())
        slope = Z.T @ (row_weight * residual).T + prior[:, None] * w
        return value, solve_triangular(root, units[:, None] * slope, lower=True).ravel()

    options: Any = {"maxiter": MAX_STEPS, "maxcor": MEMORY, "gtol": CLOSE,
               "ftol": float(np.finfo(Z.dtype).eps)}  # fmt: skip
    found = minimize(energy, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    return weights(found.x)


def _metric(Z: Array, weight: Array, prior: Array, n_outputs: int) -> tuple[Array, Array]:
    """Units of the coordinates, and the factor of an output's curvature where all are as likely."""
    even = (n_outputs - 1.0) / n_outputs**2
    rooted = Z * np.sqrt(even * weight).astype(Z.dtype)[:, None]
    curvature = (rooted.T @ rooted).astype(np.float64) + np.diag(prior)
    units = 1.0 / np.sqrt(np.diag(curvature))
    curvature *= np.outer(units, units)
    # as much more as the rounding of the sums may have taken
    curvature[np.diag_indices_from(curvature)] += len(prior) * float(np.finfo(Z.dtype).eps)
    return units, cholesky(curvature, lower=True, check_finite=False)


def softmax_terms(scores: Array, codes: Array) -> tuple[Array, Array]:
    """Loss of every row, and its derivative by the scores (outputs x rows), which it overwrites."""
    rows = np.arange(len(codes))
    scores -= scores.max(axis=0)
    own = scores[codes, rows]
    np.exp(scores, out=scores)
    total = scores.sum(axis=0)
    scores /= total
    scores[codes, rows] -= 1.0
    return np.log(total) - own, scores
