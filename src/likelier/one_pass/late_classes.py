"""Classes that appear after the opening: how far their weights go, from few rows.

All classes share one precision, to which every row so far contributes, also those that say
nothing about a class because they came before it. Rows of a late class hence turn its weights the
right way (the direction of Fisher's discriminant), yet hardly move them. How far to go, and at
what level, is two numbers per late class: the largest posterior over a sample of rows of all
classes, each standing for its share, with the weights of the other classes held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.special import logsumexp

from likelier.base import Array
from likelier.one_pass.initial_batch import CLOSE
from likelier.one_pass.loops import late_sums

ROUNDS, STEPS = 20, 5  # steps of L-BFGS between which curvatures are computed anew
FLAT = 1e-12  # of a curvature: what rounding leaves


def raised(
    mean: Array, late: Array, rows: tuple[Array, Array, Array], prior: Array, factor: float,
    has_level: bool,
) -> Array:  # fmt: skip
    """Weights of all classes, the late ones as far from the spare output as the rows support.

    Costs a product of rows x coordinates x classes, and some tens of steps of rows x late
    classes.

    Parameters
    ----------
    mean : ndarray of shape (n_coordinates, n_classes + 1)
        Weights, those of the spare output last.
    late : ndarray
        Numbers of the late classes.
    rows : ndarray of shape (n_rows, n_coordinates), (n_rows,) and (n_rows,)
        Coordinates of the sample, class of every row, and the weight it stands for.
    prior : ndarray of shape (n_coordinates,)
        Precisions.
    factor : float
        Scale of the scores.
    has_level : bool
        Whether the last coordinate is constant.
    """
    Z, codes, weight = rows
    spare = mean[:, -1]
    away = mean[:, late] - spare[:, None]
    # classes that are held count as one output, the first; scores are relative to the spare output
    held = np.delete(mean[:, :-1], late, axis=1)
    others = logsumexp(factor * (Z @ (held - spare[:, None])), axis=1)
    output = np.zeros(mean.shape[1] - 1, dtype=np.intp)
    output[late] = np.arange(1, len(late) + 1)
    problem = _Late(
        factor * (Z @ away), others, output[codes], weight, spare, away, prior, factor,
        float(has_level),
    )  # fmt: skip
    out = mean[:, :-1].copy()
    out[:, late] = problem.weights(problem.solved())
    return out


@dataclass(frozen=True)
class _Late:
    """Energy of the late classes: a point is how far they go, and below it, at what level."""

    reach: Array  # (rows, classes): what one unit of distance adds to the scores
    others: Array
    own: Array
    weight: Array
    spare: Array
    away: Array
    prior: Array
    factor: float
    level: float  # 1 or, without levels, 0

    def weights(self, point: Array) -> Array:
        """Weights of the late classes."""
        found = self.spare[:, None] + point[0] * self.away
        found[-1] += self.level * point[1]
        return np.asarray(found)

    def energy(self, point: Array) -> tuple[float, Array]:
        """Negative logarithm of the posterior, and its slope."""
        up = self.level * self.factor * point[1]
        rows = (self.reach, self.others, self.own, self.weight)
        loss, slope, _ = late_sums(*rows, point[0], up, False)
        w = self.weights(point)
        slope[0] += self.prior @ (w * self.away)
        slope[1] = self.level * (self.factor * slope[1] + self.prior[-1] * w[-1])
        return loss + 0.5 * float((self.prior @ w**2).sum()), slope

    def metric(self, point: Array) -> tuple[Array, Array]:
        """Units of both, and by how much a level gives way to a distance: each class by itself.

        In these units the curvature of every class is round, and a distance is still bounded by 0.
        """
        up = self.level * self.factor * point[1]
        rows = (self.reach, self.others, self.own, self.weight)
        far_far, far_up, up_up = late_sums(*rows, point[0], up, True)[2]
        far_far = far_far + self.prior @ self.away**2
        far_up = self.level * (self.factor * far_up + self.prior[-1] * self.away[-1])
        up_up = self.factor**2 * up_up + self.prior[-1]
        tilt = far_up / up_up
        alone = np.maximum(far_far - far_up * tilt, FLAT * far_far + 1e-300)
        return 1.0 / np.sqrt(np.array([alone, up_up])), tilt

    def solved(self) -> Array:
        """The largest posterior, but for a small part of what the rows leave open."""
        point = np.array([np.ones(len(self.away[0])), np.zeros(len(self.away[0]))])
        for _ in range(ROUNDS):
            point, close = self._round(point)
            if close:
                break
        return point

    def _round(self, start: Array) -> tuple[Array, bool]:
        """A few steps in the metric of the start, and whether they ended close to the largest."""
        units, tilt = self.metric(start)

        def moved(step: Array) -> Array:
            far, up = units * step.reshape(2, -1)
            return np.array([np.maximum(start[0] + far, 0.0), start[1] + up - tilt * far])

        def energy(step: Array) -> tuple[float, Array]:
            value, slope = self.energy(moved(step))
            slope[0] -= tilt * slope[1]
            return value, (units * slope).ravel()

        lowest = np.concatenate([-start[0] / units[0], np.full(len(tilt), -np.inf)])
        options: Any = {"maxiter": STEPS, "gtol": CLOSE}
        found = minimize(
            energy, np.zeros(start.size), jac=True, method="L-BFGS-B",
            bounds=Bounds(lowest, np.full(start.size, np.inf)), options=options,
        )  # fmt: skip
        return moved(found.x), found.nit < STEPS
