"""L1 penalties on many features: proximal Newton steps on an active set.

Every step computes the full gradient. Features with nonzero weights, and the worst violators of the
optimality conditions among the others, take part in a Newton step, solved by coordinate descent
(Friedman, Hastie, Tibshirani, 2010; Yuan, Ho, Lin, 2012). The intercept is profiled out.
"""

from __future__ import annotations

import operator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix
from likelier.glm.gap import ROUNDING, TINY, gaps, per_problem, subgradient
from likelier.glm.loops.columns import column_curvatures, descend_columns
from likelier.glm.model import LinearModel
from likelier.glm.posterior import LinearPosterior
from likelier.loops.rows import as_rows

MIN_NEW = 200  # features that may enter per step, or as many as are active
INNER_TOL = 0.01  # of the current violation, for coordinate descent
MAX_SWEEPS = 200
MIN_CURVATURE = 1e-3  # of a row, relative to the largest curvature of the loss
MAX_HALVINGS = 30


@dataclass
class ActiveState:
    """Parameters, with scores and curvatures of every block; updated in place."""

    model: LinearModel
    theta: Array
    columns: Columns
    scores: dict[int, Array] = field(default_factory=dict)  # by block
    curvatures: dict[int, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Gradient:
    """Gradient of the mean loss, its intercept part, and the smallest subgradient."""

    mean: Array
    intercept: Array
    subgradient: Array


class Columns:
    """The data by column, without zero-weight rows."""

    def __init__(self, X: Matrix, present: Array | None) -> None:
        self._rows = present
        self.sparse = sparse.issparse(X)
        self._X: Any = X
        if self.sparse:
            self._X = sparse.csr_array((X if present is None else X[present]).T)
        self._cache: tuple[Array, Array] | None = None

    def take(self, active: Array) -> tuple[Any, Array]:
        """`Rows` that contain the active features, and their positions in it."""
        if self.sparse:
            return as_rows(self._X), active
        if self._cache is None or not np.array_equal(self._cache[0], active):
            some = self._X[:, active] if self._rows is None else self._X[:, active][self._rows]
            self._cache = (active, np.ascontiguousarray(some.T))
        return as_rows(self._cache[1]), np.arange(len(active))


@dataclass(frozen=True)
class ActiveSet(Inference):
    """Proximal Newton on an active set. For smooth losses, penalties with L1, data in memory.

    Cost per step: four products with the data, and per sweep of the descent twice the entries of
    the active features. Memory: a copy of sparse data, or of the active features of dense ones.
    Converged when the optimality conditions bound the distance to the optimum (`gap`).
    """

    tol: float = 1e-4
    n_jobs: int = 1  # threads share the outputs

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> ActiveState:
        """Start at ``theta`` or zero."""
        theta = model.zeros() if theta is None else np.array(theta, dtype=np.float64)
        X = next(iter(engine.blocks(0))).X
        return ActiveState(model, theta, Columns(X, getattr(engine, "present", None)))

    def step(self, state: ActiveState, engine: Engine) -> tuple[ActiveState, Info]:
        """Compute the gradient; unless it certifies convergence, take a Newton step."""
        model, n_rows = state.model, engine.n_rows or 1
        value, gradient = self._evaluate(state, engine)
        above = value - model.floor
        scale = _scale(model, float(above.sum()))
        # the bound by strong convexity would stop before all zero weights are exact
        gap = float(gaps(model, state.theta, gradient.subgradient, above, strong=False).sum())
        objective = float(value.sum())
        if gap <= self.tol * float(above.sum()):
            return state, Info(objective, gap, 1.0, True)
        direction = self._direction(state, n_rows, gradient, scale)
        step = self._line_search(state, engine, direction, value, gradient.mean)
        stalled = not np.any(step > 0.0)
        return state, Info(objective, gap, 2.0, False, ROUNDING if stalled else "")

    def _evaluate(self, state: ActiveState, engine: Engine) -> tuple[Array, Gradient]:
        """Objective of each independent problem, and the gradient."""
        model, n_rows = state.model, engine.n_rows or 1

        def evaluate(batch: Batch) -> tuple[Array, Array, Array]:
            scores = model.scores(state.theta, batch.X)
            value, derivative, curvature = model.terms(batch, scores, 2)
            state.scores[batch.index] = scores
            state.curvatures[batch.index] = _curvature(model, batch, curvature)
            return value, model.pull_back(batch.X, derivative), derivative.sum(axis=0)

        value, total, intercept = engine.reduce(
            evaluate, lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2])
        )
        value = value / n_rows + per_problem(model, model.penalty.value(state.theta))
        mean = total / n_rows
        return value, Gradient(mean, intercept / n_rows, subgradient(model, state.theta, mean))

    def _direction(
        self, state: ActiveState, n_rows: int, gradient: Gradient, scale: Array
    ) -> Array:
        """Newton directions of all outputs, in parallel."""
        model, d = state.model, state.model.n_features
        ratio = np.abs(gradient.subgradient[:d]) / scale[:, None]
        blocks = [state.curvatures[k] for k in sorted(state.curvatures)]
        curvatures = np.concatenate(blocks) / n_rows
        direction = np.zeros_like(state.theta)

        def work(k: int) -> None:
            precision = max(0.1 * self.tol, INNER_TOL * float(ratio[:, k].max(initial=0.0)))
            active = _choose(state.theta[:d, k], ratio[:, k])
            allowed = precision * scale[active]
            direction[:, k] = _newton(state, k, active, curvatures[:, k].copy(), gradient, allowed)

        # dense data: the cache of gathered features serves one output at a time
        with ThreadPoolExecutor(self.n_jobs if state.columns.sparse else 1) as pool:
            list(pool.map(work, range(model.n_outputs)))
        return direction

    def _line_search(
        self, state: ActiveState, engine: Engine, direction: Array, value: Array, gradient: Array
    ) -> Array:
        """Backtracking line search per output; return the step lengths."""
        model, theta, n_rows = state.model, state.theta, engine.n_rows or 1
        penalty = model.penalty
        predicted = np.einsum("jk,jk->k", gradient, direction)
        predicted = per_problem(model, predicted + penalty.value(theta + direction))
        predicted -= per_problem(model, penalty.value(theta))
        change: dict[int, Array] = {}

        def score_change(batch: Batch) -> int:
            change[batch.index] = model.scores(direction, batch.X)
            return 1

        engine.reduce(score_change, operator.add)
        step = np.ones(len(predicted))

        def values(batch: Batch) -> Array:
            scores = state.scores[batch.index] + step * change[batch.index]
            return model.terms(batch, scores, 0)[0]

        for _ in range(MAX_HALVINGS):
            total = engine.reduce(values, np.add) / n_rows
            total += per_problem(model, penalty.value(theta + step * direction))
            too_high = ~(total <= value + 1e-4 * step * predicted + 1e-14 * np.abs(value))
            if not too_high.any():
                break
            step[too_high] *= 0.5
        else:
            step[too_high] = 0.0
        state.theta = theta + step * direction
        return step

    def posterior(self, state: ActiveState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _curvature(model: LinearModel, batch: Batch, curvature: Array) -> Array:
    """Curvature of every row and output, bounded from below if the loss has a largest curvature.

    A row far in the tail of the loss has no curvature now, but may have some after the step. The
    Hessian of a coupled loss is bounded by twice its diagonal ``p_k (1 - p_k)``.
    """
    omega = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    top = model.loss.max_curvature
    if model.loss.coupled:
        curvature, top = 2.0 * omega[:, None] * curvature * (1.0 - curvature), 0.5
    if not np.isfinite(top):
        return curvature
    return np.maximum(curvature, MIN_CURVATURE * top * omega[:, None])


def _scale(model: LinearModel, above: float) -> Array:
    """Scale of the subgradient: a gap of the order of the distance to the floor."""
    d = model.n_features
    l1, l2 = model.penalty.l1[:d], model.penalty.l2[:d]
    return np.maximum(np.maximum(l1, np.sqrt(0.5 * l2 * max(above, 0.0))), TINY)


def _choose(w: Array, ratio: Array) -> Array:
    """Features with nonzero weights, and the worst violators among the others."""
    support = np.flatnonzero(w)
    others = np.flatnonzero((w == 0.0) & (ratio > 0.0))
    n_new = max(MIN_NEW, len(support))
    if len(others) > n_new:
        others = others[np.argpartition(-ratio[others], n_new)[:n_new]]
    return np.sort(np.concatenate([support, others]))


def _newton(
    state: ActiveState, k: int, active: Array, curvature: Array, gradient: Gradient, allowed: Array
) -> Array:
    """Direction of one output, zero for features that are not active."""
    model, intercept = state.model, float(gradient.intercept[k])
    view, positions = state.columns.take(active)
    total = float(curvature.sum()) if model.fit_intercept else np.inf
    first, second = column_curvatures(*view, positions, curvature)
    w = state.theta[active, k].copy()
    linear = gradient.mean[active, k] - first * (intercept / total)  # the intercept moves along
    shared = descend_columns(
        *view, positions, curvature, first, second, total, linear,
        model.penalty.l2[active], model.penalty.l1[active], w, allowed, MAX_SWEEPS,
    )  # fmt: skip
    out = np.zeros(len(state.theta))
    out[active] = w - state.theta[active, k]
    if model.fit_intercept:
        out[-1] = -(intercept + shared) / total
    return out
