"""L1 penalties on many features: proximal Newton steps on an active set.

Every step computes the full gradient. Features with nonzero weights, and the worst violators of the
optimality conditions among the others, take part in a Newton step: one pass adds up their weighted
Gram matrix, and coordinate descent minimises the quadratic under the penalty (Friedman, Hastie,
Tibshirani, 2010; Yuan, Ho, Lin, 2012). The intercept is profiled out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, RowValues
from likelier.glm.gap import ROUNDING, TINY, gaps, per_problem, subgradient
from likelier.glm.line_search import Point, Scores, point_at, search
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.posterior import LinearPosterior

REFRESH = 10  # steps after which scores are recomputed from the parameters
MIN_NEW = 200  # features that may enter per step, or as many as are active
MAX_CELLS = 1 << 23  # of the Gram matrices of all outputs
INNER_TOL = 0.01  # of the current violation, for coordinate descent
MIN_CURVATURE = 1e-3  # of a row, relative to the largest curvature of the loss


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
class ActiveGrams:
    """Weighted Gram matrices of the active features of every output, one after the other.

    The last row and column of each belong to the intercept.
    """

    model: LinearModel

    def __call__(self, batch: Batch, scores: Array, actives: list[Array]) -> Array:
        curvature = self._curvature(batch, scores)
        grams = []
        for k, active in enumerate(actives):
            few = replace(self.model, n_features=len(active))
            grams.append(few.gram(batch.X[:, active], curvature[:, k]).ravel())
        return np.concatenate(grams)

    def _curvature(self, batch: Batch, scores: Array) -> Array:
        """Curvature of every row and output, bounded from below if the loss has a largest one.

        A row far in the tail of the loss has no curvature now, but may have some after the step.
        The Hessian of a coupled loss is bounded by twice its diagonal ``p_k (1 - p_k)``.
        """
        model, curvature = self.model, self.model.terms(batch, scores, 2)[2]
        omega = np.ones(batch.n_rows) if batch.weight is None else batch.weight
        top = model.loss.max_curvature
        if model.loss.coupled:
            curvature, top = 2.0 * omega[:, None] * curvature * (1.0 - curvature), 0.5
        if not np.isfinite(top):
            return curvature
        return np.maximum(curvature, MIN_CURVATURE * top * omega[:, None])


@dataclass(frozen=True)
class ActiveSet(Inference):
    """Proximal Newton on an active set. For smooth losses and penalties with L1.

    Cost per step: two products with the data, and rows x (active nonzeros per row)^2 / 2 for the
    Gram matrix of each output. Memory with the rows: two scores per row and output. Converged when
    the optimality conditions bound the distance to the optimum (`gap`).
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
        d, K, n_rows = model.n_features, model.n_outputs, engine.n_rows or 1
        ratio = np.abs(subgrad[:d]) / scale[:, None]
        most = math.isqrt(MAX_CELLS // K)
        actives = [_choose(point.theta[:d, k], ratio[:, k], most) for k in range(K)]
        grams = engine.reduce(ActiveGrams(model), np.add, point.scores, state=actives) / n_rows
        sizes = [(len(active) + int(model.fit_intercept)) ** 2 for active in actives]
        parts = np.split(grams, np.cumsum(sizes)[:-1])

        def work(k: int) -> Array:
            precision = max(0.1 * self.tol, INNER_TOL * float(ratio[:, k].max(initial=0.0)))
            allowed = precision * scale[actives[k]]
            return _newton(model, point, k, actives[k], parts[k], allowed)

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


def _newton(
    model: LinearModel, point: Point, k: int, active: Array, gram: Array, allowed: Array
) -> Array:
    """Direction of one output, zero for features that are not active."""
    p, w = len(active) + int(model.fit_intercept), point.theta[active, k]
    hessian, gradient = gram.reshape(p, p), point.gradient[active, k]
    first, total, intercept = np.zeros(len(active)), np.inf, 0.0
    if model.fit_intercept:  # it moves along
        first, total, intercept = hessian[-1, :-1], float(hessian[-1, -1]), point.gradient[-1, k]
        hessian, gradient = hessian[:-1, :-1], gradient - first * (intercept / total)
    centred = hessian - np.multiply.outer(first, first / total)
    penalty = ElasticNet(model.penalty.l2[active], model.penalty.l1[active])
    v = penalty.minimise(centred, gradient, w, allowed) if len(active) else w
    out = np.zeros(len(point.theta))
    out[active] = v - w
    if model.fit_intercept:
        out[-1] = -(intercept + first @ (v - w)) / total
    return out
