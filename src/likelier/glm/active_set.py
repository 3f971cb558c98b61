"""L1 penalties on many features: proximal Newton steps on an active set.

Every step computes the full gradient. Features with nonzero weights, and the worst violators of the
optimality conditions among the others, take part in a Newton step, solved by coordinate descent
(Friedman, Hastie, Tibshirani, 2010; Yuan, Ho, Lin, 2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from likelier.base import Array, Engine, Inference, Info, RowValues
from likelier.glm.active_quadratic import active_quadratics
from likelier.glm.gap import ROUNDING, TINY, gaps, per_problem, subgradient
from likelier.glm.line_search import Point, Scores, point_at, search
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.posterior import LinearPosterior

REFRESH = 10  # steps after which scores are recomputed from the parameters
MIN_NEW = 200  # features that may enter per step, or as many as are active
MAX_CELLS = 1 << 23  # of the Gram matrices of all outputs
INNER_TOL = 0.01  # of the current violation, for coordinate descent


@dataclass(frozen=True)
class ActiveState:
    """Parameters, with objective and gradient of the mean loss; computed if None."""

    model: LinearModel
    theta: Array
    value: Array | None = None
    gradient: Array | None = None
    n_steps: int = 0
    scores: RowValues | None = field(default=None, metadata={"checkpoint": False})


@dataclass(frozen=True)
class ActiveSet(Inference):
    """Proximal Newton on an active set. For smooth losses and penalties with L1.

    Cost per step: two products with the data, and the quadratic (`active_quadratics`). Memory with
    the rows: two scores per row and output. Converged when the optimality conditions bound the
    distance to the optimum (`gap`).
    """

    resumable: ClassVar[bool] = True

    tol: float = 1e-4

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> ActiveState:
        """Start at ``theta`` or zero."""
        theta = model.zeros() if theta is None else np.array(theta, dtype=np.float64)
        return ActiveState(model, theta)

    def step(self, state: ActiveState, engine: Engine) -> tuple[ActiveState, Info]:
        """Unless the gradient certifies convergence, take a Newton step."""
        model, point = state.model, self._point(state, engine)
        state = replace(state, value=point.value, gradient=point.gradient, scores=point.scores)
        above = point.value - model.floor
        subgrad = subgradient(model, point.theta, point.gradient)
        # the bound by strong convexity would stop before all zero weights are exact
        gap = float(gaps(model, point.theta, subgrad, above, strong=False).sum())
        objective = float(point.value.sum())
        if gap <= self.tol * float(above.sum()):
            return state, Info(objective, gap, 0.0, True)
        scale = _scale(model, float(above.sum()))
        direction = self._direction(model, point, subgrad, scale, engine)
        descent = np.einsum("jk,jk->k", point.gradient, direction)
        descent = per_problem(model, descent + model.penalty.value(point.theta + direction))
        descent -= per_problem(model, model.penalty.value(point.theta))
        found, step = search(model, engine, point, direction, descent)
        n_steps = state.n_steps + 1
        moved = ActiveState(
            model, found.theta, found.value, found.gradient, n_steps,
            found.scores if n_steps % REFRESH else None,
        )  # fmt: skip
        return moved, Info(objective, gap, 2.0, False, "" if np.any(step > 0.0) else ROUNDING)

    @staticmethod
    def _point(state: ActiveState, engine: Engine) -> Point:
        """Where the state is; a pass for the first one."""
        model, scores = state.model, state.scores
        if scores is None:
            scores = engine.map_rows(Scores(model), state=state.theta)
        if state.value is None or state.gradient is None:
            return point_at(model, engine, state.theta, scores)
        return Point(state.theta, state.value, state.gradient, scores)

    def _direction(
        self, model: LinearModel, point: Point, subgrad: Array, scale: Array, engine: Engine
    ) -> Array:
        """Newton directions of all outputs, zero for features that are not active."""
        d, K = model.n_features, model.n_outputs
        ratio = np.abs(subgrad[:d]) / scale[:, None]
        most = math.isqrt(MAX_CELLS // K)
        actives = [_choose(point.theta[:d, k], ratio[:, k], most) for k in range(K)]
        quadratics = active_quadratics(model, engine, point.scores, actives)

        def work(k: int) -> Array:
            active, direction = actives[k], np.zeros(len(point.theta))
            precision = max(0.1 * self.tol, INNER_TOL * float(ratio[:, k].max(initial=0.0)))
            penalty = ElasticNet(model.penalty.l2[active], model.penalty.l1[active])
            intercept = float(point.gradient[-1, k]) if model.fit_intercept else None
            change, of_intercept = quadratics[k].descend(
                point.gradient[active, k], intercept, penalty, point.theta[active, k],
                precision * scale[active],
            )  # fmt: skip
            direction[active] = change
            if model.fit_intercept:
                direction[-1] = of_intercept
            return direction

        return np.stack(list(engine.each(work, K)), axis=1)

    def posterior(self, state: ActiveState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _scale(model: LinearModel, above: float) -> Array:
    """Scale of the subgradient: a gap of the order of the distance to the floor."""
    d = model.n_features
    l1, l2 = model.penalty.l1[:d], model.penalty.l2[:d]
    return np.maximum(np.maximum(l1, np.sqrt(0.5 * l2 * max(above, 0.0))), TINY)


def _choose(w: Array, ratio: Array, most: int) -> Array:
    """Features with nonzero weights, and the worst violators among the others.

    Of more than ``most`` features those of the largest violations, for a step on a part of them.
    """
    support = np.flatnonzero(w)
    others = _worst(np.flatnonzero((w == 0.0) & (ratio > 0.0)), ratio, max(MIN_NEW, len(support)))
    return np.sort(_worst(np.concatenate([support, others]), ratio, most))


def _worst(features: Array, ratio: Array, n: int) -> Array:
    """At most ``n`` features, of the largest violations."""
    if len(features) <= n:
        return features
    return np.asarray(features[np.argpartition(-ratio[features], n)[:n]])
