"""The initial batch of a stream: its first rows, buffered and fitted to convergence.

Sites computed while the weights are far from the optimum stay wrong, since no row is seen again.
Therefore the first rows are kept in a buffer of bounded size, fitted by L-BFGS to the posterior
mode, and only then turned into sites, expanded about that mode. A stream that ends before its
buffer is full gets the converged answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from likelier.base import Array

INITIAL_VALUES = 1 << 19  # four megabytes in double precision
INITIAL_ROWS = 1 << 14
GRADIENT_TOL = 0.02  # per posterior standard deviation of a weight: well within its uncertainty
MAX_STEPS = 200
LBFGS_MEMORY = 20


def initial_batch_size(n_features: int, block: int) -> int:
    """Rows of the initial batch: as many whole blocks as fit in the buffer, at least one."""
    return block * max(1, min(INITIAL_ROWS, INITIAL_VALUES // n_features) // block)


def fit_softmax(Z: Array, codes: Array, weight: Array, prior: Array, n_outputs: int) -> Array:
    """Posterior mode of softmax regression by L-BFGS, preconditioned by a shared curvature.

    Stops when the remaining error of every weight is a small fraction of its posterior standard
    deviation. Costs rows x features^2 once, and two products of rows x features x outputs per step.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_coordinates)
    codes : ndarray of shape (n_rows,)
        Output of every row.
    weight : ndarray of shape (n_rows,)
    prior : ndarray of shape (n_coordinates,)
        Prior precisions.
    n_outputs : int
    """
    scale, root = _metric(Z, weight, prior, n_outputs)
    shape = (len(prior), n_outputs)
    row_weight = weight.astype(Z.dtype)

    def weights(point: Array) -> Array:
        scaled = solve_triangular(root, point.reshape(shape), lower=True, trans=1)
        return np.asarray(scale[:, None] * scaled)

    def energy(point: Array) -> tuple[float, Array]:
        w = weights(point)
        loss, residual = softmax_terms(w.T.astype(Z.dtype) @ Z.T, codes)
        value = float(weight @ loss) + 0.5 * float((prior @ w**2).sum())
        gradient = Z.T @ (row_weight * residual).T + prior[:, None] * w
        return value, solve_triangular(root, scale[:, None] * gradient, lower=True).ravel()

    options: Any = {"maxiter": MAX_STEPS, "maxcor": LBFGS_MEMORY, "gtol": GRADIENT_TOL,
               "ftol": float(np.finfo(Z.dtype).eps)}  # fmt: skip
    result = minimize(energy, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    return weights(result.x)


def _metric(Z: Array, weight: Array, prior: Array, n_outputs: int) -> tuple[Array, Array]:
    """Scale of the coordinates, and the Cholesky factor of the curvature at equal probabilities."""
    variance = (n_outputs - 1.0) / n_outputs**2
    rooted = Z * np.sqrt(variance * weight).astype(Z.dtype)[:, None]
    curvature = (rooted.T @ rooted).astype(np.float64) + np.diag(prior)
    scale = 1.0 / np.sqrt(np.diag(curvature))
    curvature *= np.outer(scale, scale)
    # a bound on the rounding error of the sums
    curvature[np.diag_indices_from(curvature)] += len(prior) * float(np.finfo(Z.dtype).eps)
    return scale, cholesky(curvature, lower=True, check_finite=False)


def softmax_terms(scores: Array, codes: Array) -> tuple[Array, Array]:
    """Loss of every row, and its gradient in the scores (outputs x rows), written in place."""
    rows = np.arange(len(codes))
    scores -= scores.max(axis=0)
    own = scores[codes, rows]
    np.exp(scores, out=scores)
    total = scores.sum(axis=0)
    scores /= total
    scores[codes, rows] -= 1.0
    return np.log(total) - own, scores
