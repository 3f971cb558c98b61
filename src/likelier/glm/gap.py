"""Bounds of the distance of the objective to its optimum, from the smallest subgradient.

With ``s`` the smallest subgradient of the objective ``f``, and ``f - floor`` at subgrad the penalty
of the optimum ``w*``, convexity says ``f - f* <= sum_j |s_j| (|w_j| + |w*_j|)``, where the penalty
bounds ``w*``; squares in it make ``f`` strongly convex: ``f - f* <= sum_j s_j^2 / (2 l2_j)``.
"""

from __future__ import annotations

import numpy as np

from likelier.base import Array, Engine
from likelier.glm.model import LinearModel, LinearStats, SumsAt

TINY = 1e-150
ROUNDING = "because rounding errors of the objective are larger than the tolerance; raise tol"


def subgradient(model: LinearModel, theta: Array, gradient: Array) -> Array:
    """Smallest subgradient of the objective, from the gradient of the mean loss."""
    l1, l2 = model.penalty.l1[:, None], model.penalty.l2[:, None]
    gradient = gradient + l2 * theta
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    return np.asarray(np.where(theta == 0.0, at_zero, gradient + l1 * np.sign(theta)))


def per_problem(model: LinearModel, values: Array) -> Array:
    """Values of outputs as those of independent problems: summed for a coupled loss."""
    return values.sum(keepdims=True) if model.loss.coupled else values


def gaps(
    model: LinearModel, theta: Array, subgrad: Array, above: Array, strong: bool = True
) -> Array:
    """Bound of the gap of each independent problem; ``above`` is its distance to the floor.

    The optimal intercept is assumed to be within the size of a residual. Features without a penalty
    are ignored, since there is no bound for them. Unless ``strong``, strong convexity is not used.
    """
    d = model.n_features
    l1, l2 = model.penalty.l1[:d, None], model.penalty.l2[:d, None]
    s, w = np.abs(subgrad[:d]) * ((l1 > 0.0) | (l2 > 0.0)), np.abs(theta[:d])
    above = np.maximum(above, 0.0)
    ratio = (s / np.maximum(l1, TINY)).max(axis=0, initial=0.0)
    squares = per_problem(model, (s * s / np.maximum(l2, TINY)).sum(axis=0))
    if model.loss.coupled:
        ratio = ratio.max(keepdims=True)
    convex = per_problem(model, (s * w).sum(axis=0))
    convex = convex + np.minimum(ratio * above, np.sqrt(2.0 * above * squares))
    bound = np.minimum(convex, 0.5 * squares) if strong else convex
    if model.fit_intercept:
        bound = bound + per_problem(model, np.abs(subgrad[d])) * np.sqrt(2.0 * above)
    return np.asarray(np.minimum(bound, above))  # the floor is a bound too


def gap_at(
    model: LinearModel, engine: Engine, theta: Array, width: float = 0.0
) -> tuple[float, float]:
    """Objective at a point and a bound of its gap; for the envelope if ``width`` > 0.

    Cost: a first-order pass.
    """
    stats = engine.reduce(SumsAt(model, 1, width), LinearStats.__add__, state=theta)
    assert stats.gradient is not None
    value = stats.value / stats.n_rows + per_problem(model, model.penalty.value(theta))
    subgrad = subgradient(model, theta, stats.gradient / stats.n_rows)
    return float(value.sum()), float(gaps(model, theta, subgrad, value - model.floor).sum())
