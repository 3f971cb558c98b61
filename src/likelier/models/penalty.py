"""Penalties on the weights: value, proximal step, and the minimum of a penalised quadratic.

A penalty is what an inference needs to know about ``sum_j l1_j |w_j| + l2_j w_j^2 / 2``. One
strength per coordinate, because a penalty in the units of each feature has one; a new kind of
penalty is a class with these three methods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from likelier.base import Array
from likelier.loops.quadratic import coordinate_descent


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
        return np.asarray(self.l1 @ np.abs(w) + 0.5 * (self.l2 @ (w * w)))

    def prox(self, w: Array, step: float) -> Array:
        """``argmin_v penalty(v) + |v - w|^2 / (2 step)``, column by column."""
        l1, l2 = step * self.l1[:, None], step * self.l2[:, None]
        return np.asarray(np.sign(w) * np.maximum(np.abs(w) - l1, 0.0) / (1.0 + l2))

    def minimise(self, hessian: Array, slope: Array, w: Array) -> Array:
        """``argmin_v slope^T (v - w) + (v - w)^T hessian (v - w) / 2 + penalty(v)``, one column."""
        if not self.sparse:
            gradient = slope + self.l2 * w
            return np.asarray(w - solve_positive(hessian + np.diag(self.l2), gradient))
        v = w.astype(np.float64, copy=True)
        coordinate_descent(hessian, slope, w, self.l2, self.l1, v)
        return v


def solve_positive(matrix: Array, right: Array) -> Array:
    """Solve with a positive semi-definite matrix whose rows may have very different scales.

    Scaling to a unit diagonal first makes Cholesky as accurate as the best scaling of the
    features would. Directions the matrix knows nothing about (collinear columns without a
    penalty) get nothing.
    """
    scale = np.sqrt(np.diagonal(matrix))
    alive = scale > 0.0
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=alive)
    scaled = matrix * inverse[:, None] * inverse
    scaled[~alive, ~alive] = 1.0
    right = (right.T * inverse).T
    try:
        factor = linalg.cho_factor(scaled, lower=True, check_finite=False)
        if np.abs(np.diagonal(factor[0])).min() ** 2 < 1e-13 * len(scaled):
            raise linalg.LinAlgError
        solution = linalg.cho_solve(factor, right, check_finite=False)
    except linalg.LinAlgError:
        values, vectors = linalg.eigh(scaled, check_finite=False)
        keep = values > 1e-12 * len(scaled) * values[-1]
        vectors = vectors[:, keep]
        solution = (vectors / values[keep]) @ (vectors.T @ right)
    return np.asarray((solution.T * inverse).T)
