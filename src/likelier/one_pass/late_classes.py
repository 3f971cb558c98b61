"""Scale and offset of the weights of classes that appear after the initial batch.

All classes share one precision, to which every row contributes, including rows seen before a class
existed, which carry no information about it. The rows of a late class therefore give its weights
the right direction (that of Fisher's discriminant) but far too small a norm. Two numbers per late
class correct this, a scale and an offset: the posterior mode over an importance-weighted sample of
rows of all classes, with the weights of the other classes fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.special import logsumexp

from likelier.base import Array
from likelier.one_pass.initial_batch import GRADIENT_TOL
from likelier.one_pass.loops import late_sums

ROUNDS, STEPS = 20, 5  # L-BFGS steps per round; curvatures are recomputed every round
MIN_CURVATURE = 1e-12  # relative; smaller curvatures are rounding errors


def scale_late_classes(
    mean: Array, late: Array, rows: tuple[Array, Array, Array], prior: Array, factor: float,
    has_intercept: bool,
) -> Array:  # fmt: skip
    """Weights of all classes; a late one moves along its difference from the background output.

    Costs a product of rows x coordinates x classes, and some tens of steps of rows x late
    classes.

    Parameters
    ----------
    mean : ndarray of shape (n_coordinates, n_classes + 1)
        Weights; the background output comes last.
    late : ndarray
        Indices of the late classes.
    rows : ndarray of shape (n_rows, n_coordinates), (n_rows,) and (n_rows,)
        Coordinates of the sample, class of every row, and importance weights.
    prior : ndarray of shape (n_coordinates,)
        Prior precisions.
    factor : float
        Scale of the scores.
    has_intercept : bool
        Whether the last coordinate is constant.
    """
    Z, codes, weight = rows
    background = mean[:, -1]
    direction = mean[:, late] - background[:, None]
    # fixed classes count as one output, the first; scores are relative to the background output
    fixed = np.delete(mean[:, :-1], late, axis=1)
    others = logsumexp(factor * (Z @ (fixed - background[:, None])), axis=1)
    output = np.zeros(mean.shape[1] - 1, dtype=np.intp)
    output[late] = np.arange(1, len(late) + 1)
    problem = _LateClassProblem(
        factor * (Z @ direction), others, output[codes], weight, background, direction, prior,
        factor, float(has_intercept),
    )  # fmt: skip
    out = mean[:, :-1].copy()
    out[:, late] = problem.weights(problem.minimum())
    return out


@dataclass(frozen=True)
class _LateClassProblem:
    """Energy of the late classes; a point is ``(scales, offsets)``, of shape (2, n_late)."""

    unit_scores: Array  # (rows, classes): change of the scores per unit of scale
    others: Array
    own: Array
    weight: Array
    background: Array
    direction: Array
    prior: Array
    factor: float
    has_offset: float  # 1, or 0 without intercept

    def weights(self, point: Array) -> Array:
        """Weights of the late classes."""
        weights = self.background[:, None] + point[0] * self.direction
        weights[-1] += self.has_offset * point[1]
        return np.asarray(weights)

    def energy(self, point: Array) -> tuple[float, Array]:
        """Negative log posterior and its gradient."""
        offset = self.has_offset * self.factor * point[1]
        rows = (self.unit_scores, self.others, self.own, self.weight)
        loss, gradient, _ = late_sums(*rows, point[0], offset, False)
        w = self.weights(point)
        gradient[0] += self.prior @ (w * self.direction)
        gradient[1] = self.has_offset * (self.factor * gradient[1] + self.prior[-1] * w[-1])
        return loss + 0.5 * float((self.prior @ w**2).sum()), gradient

    def metric(self, point: Array) -> tuple[Array, Array]:
        """Scales of both coordinates, and the offset that compensates a unit of scale, per class.

        In these coordinates the 2x2 curvature of every class is the identity, and the bound of 0 on
        the class scale is still a bound on one coordinate.
        """
        offset = self.has_offset * self.factor * point[1]
        rows = (self.unit_scores, self.others, self.own, self.weight)
        scale_curvature, cross_curvature, offset_curvature = late_sums(
            *rows, point[0], offset, True
        )[2]
        scale_curvature = scale_curvature + self.prior @ self.direction**2
        cross_curvature = self.has_offset * (
            self.factor * cross_curvature + self.prior[-1] * self.direction[-1]
        )
        offset_curvature = self.factor**2 * offset_curvature + self.prior[-1]
        shear = cross_curvature / offset_curvature
        schur = np.maximum(
            scale_curvature - cross_curvature * shear, MIN_CURVATURE * scale_curvature + 1e-300
        )
        return 1.0 / np.sqrt(np.array([schur, offset_curvature])), shear

    def minimum(self) -> Array:
        """Posterior mode, up to a small fraction of the posterior standard deviation."""
        point = np.array([np.ones(len(self.direction[0])), np.zeros(len(self.direction[0]))])
        for _ in range(ROUNDS):
            point, close = self._round(point)
            if close:
                break
        return point

    def _round(self, start: Array) -> tuple[Array, bool]:
        """A few L-BFGS steps in the metric of the start, and whether they converged."""
        step_scale, shear = self.metric(start)

        def moved(step: Array) -> Array:
            scale, offset = step_scale * step.reshape(2, -1)
            return np.array([np.maximum(start[0] + scale, 0.0), start[1] + offset - shear * scale])

        def energy(step: Array) -> tuple[float, Array]:
            value, gradient = self.energy(moved(step))
            gradient[0] -= shear * gradient[1]
            return value, (step_scale * gradient).ravel()

        lowest = np.concatenate([-start[0] / step_scale[0], np.full(len(shear), -np.inf)])
        options: Any = {"maxiter": STEPS, "gtol": GRADIENT_TOL}
        result = minimize(
            energy, np.zeros(start.size), jac=True, method="L-BFGS-B",
            bounds=Bounds(lowest, np.full(start.size, np.inf)), options=options,
        )  # fmt: skip
        return moved(result.x), result.nit < STEPS
