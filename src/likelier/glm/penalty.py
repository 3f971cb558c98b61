"""Penalties on the weights: value, proximal step, and the minimum of a penalised quadratic.

The penalty is ``sum_j l1_j |w_j| + l2_j w_j^2 / 2``, with one strength per coordinate, since a
penalty on the scale of each feature needs them. A new penalty is a class with these methods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from likelier.base import Array
from likelier.glm.loops.quadratic import coordinate_descent


@dataclass(frozen=True)
class ElasticNet:
    """``sum_j l1_j |w_j| + l2_j w_j^2 / 2``; ridge is ``l1 = 0``, lasso ``l2 = 0``.

    Coordinates that are not penalised (intercepts) have zeros.
    """

    l2: Array
    l1: Array

    @property
    def sparse(self) -> bool:
        """Whether the penalty has a kink, so that weights become exactly zero."""
        return bool(self.l1.any())

    def value(self, w: Array) -> Array:
        """Penalty of each column of ``w``."""
        ridge = 0.5 * (self.l2 @ (w * w))
        return np.asarray(ridge + self.l1 @ np.abs(w) if self.sparse else ridge)

    def prox(self, w: Array, step: float) -> Array:
        """``argmin_v penalty(v) + |v - w|^2 / (2 step)``, column by column."""
        l1, l2 = step * self.l1[:, None], step * self.l2[:, None]
        return np.asarray(np.sign(w) * np.maximum(np.abs(w) - l1, 0.0) / (1.0 + l2))

    def minimise(
        self, hessian: Array, gradient: Array, w: Array, allowed: Array | None = None
    ) -> Array:
        """``argmin_v g^T (v - w) + (v - w)^T H (v - w) / 2 + penalty(v)``, for one column.

        With an L1 penalty, up to subgradients of ``allowed`` sizes where these are given.
        """
        if not self.sparse:
            return np.asarray(w - solve_positive(hessian, gradient + self.l2 * w, self.l2))
        v = w.astype(np.float64, copy=True)
        coordinate_descent(hessian, gradient, w, self.l2, self.l1, v, allowed)
        return v


def solve_positive(matrix: Array, right: Array, ridge: Array | float = 0.0) -> Array:
    """Solve with a positive semi-definite matrix whose rows may have very different scales.

    ``ridge`` is added to the diagonal. Scaling to a unit diagonal makes Cholesky as accurate as
    the best scaling of the features would. The solution is zero in the null space (collinear
    columns without a penalty). Cost: n^3 / 3.
    """
    diagonal = np.diagonal(matrix) + ridge
    alive = diagonal > 0.0
    inverse = alive / np.sqrt(np.where(alive, diagonal, 1.0))
    scaled = matrix * inverse
    scaled *= inverse[:, None]
    np.fill_diagonal(scaled, 1.0)
    right = (right.T * inverse).T
    # upper triangle of the transpose: LAPACK then works in place on C order
    factor, failed = lapack.dpotrf(scaled.T, lower=0, clean=0, overwrite_a=0)
    if failed or np.diagonal(factor).min() ** 2 < 1e-13 * len(scaled):
        values, vectors = linalg.eigh(scaled, check_finite=False)
        keep = values > 1e-12 * len(scaled) * values[-1]
        vectors = vectors[:, keep]
        solution = (vectors / values[keep]) @ (vectors.T @ right)
    else:
        solution = lapack.dpotrs(factor, right, lower=0)[0]
    return np.asarray((solution.T * inverse).T)
