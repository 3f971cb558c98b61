"""How far a point can be above the optimum: bounds by the smallest subgradient there.

With ``s`` the smallest subgradient of the objective ``f``, and ``f - floor`` at least the penalty
of the optimum ``w*``, convexity says ``f - f* <= sum_j |s_j| (|w_j| + |w*_j|)``, where the penalty
bounds ``w*``; squares in it make ``f`` strongly convex: ``f - f* <= sum_j s_j^2 / (2 l2_j)``.
"""

from __future__ import annotations

import numpy as np

from likelier.base import Array, Engine
from likelier.glm.model import LinearModel, LinearStats, SumsAt

TINY = 1e-150
ROUNDING = "because rounding errors of the objective are larger than the tolerance; raise tol"


def subgradient(model: LinearModel, theta: Array, slopes: Array) -> Array:
    """The smallest subgradient of the objective, from slopes of the mean loss."""
    l1, l2 = model.penalty.l1[:, None], model.penalty.l2[:, None]
    slopes = slopes + l2 * theta
    at_zero = np.sign(slopes) * np.maximum(np.abs(slopes) - l1, 0.0)
    return np.asarray(np.where(theta == 0.0, at_zero, slopes + l1 * np.sign(theta)))


def together(model: LinearModel, values: Array) -> Array:
    """Numbers of every output as those of every independent problem."""
    return values.sum(keepdims=True) if model.loss.coupled else values


def gaps(
    model: LinearModel, theta: Array, least: Array, above: Array, strong: bool = True
) -> Array:
    """How far above its optimum each independent problem can be, ``above`` its floor as it is.

    The intercept has no bound of its own: it is taken to be within the size of a residual. About
    features without a penalty nothing is known. Unless ``strong``, convexity alone is asked.
    """
    d = model.n_features
    l1, l2 = model.penalty.l1[:d, None], model.penalty.l2[:d, None]
    s, w = np.abs(least[:d]) * ((l1 > 0.0) | (l2 > 0.0)), np.abs(theta[:d])
    above = np.maximum(above, 0.0)
    sharp = (s / np.maximum(l1, TINY)).max(axis=0, initial=0.0)
    round_ = together(model, (s * s / np.maximum(l2, TINY)).sum(axis=0))
    if model.loss.coupled:
        sharp = sharp.max(keepdims=True)
    far = together(model, (s * w).sum(axis=0))
    far = far + np.minimum(sharp * above, np.sqrt(2.0 * above * round_))
    found = np.minimum(far, 0.5 * round_) if strong else far
    if model.fit_intercept:
        found = found + together(model, np.abs(least[d])) * np.sqrt(2.0 * above)
    return np.asarray(np.minimum(found, above))  # what nothing can be below is a bound too


def gap_at(
    model: LinearModel, engine: Engine, theta: Array, width: float = 0.0
) -> tuple[float, float]:
    """Objective at a point and how far above the optimum it can be; of an envelope with ``width``.

    Cost: a first-order pass.
    """
    stats = engine.reduce(SumsAt(model, 1, width), LinearStats.__add__, state=theta)
    assert stats.gradient is not None
    value = stats.value / stats.n_rows + together(model, model.penalty.value(theta))
    least = subgradient(model, theta, stats.gradient / stats.n_rows)
    return float(value.sum()), float(gaps(model, theta, least, value - model.floor).sum())
