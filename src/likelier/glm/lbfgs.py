"""Preconditioned L-BFGS by sums over rows, for a medium number of features.

The preconditioner (metric) comes from a subset of the rows: the Cholesky factor of its weighted
Gram matrix if features are few enough, otherwise its diagonal. Scores are stored per row and
updated with the parameters, so that an iteration is one pass: the change of the scores, and
objective and gradient after a full step. Independent outputs (one-vs-rest) run in parallel, each
with its own inner products and step length; for a coupled loss they share them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, RowValues
from likelier.glm.gap import ROUNDING, gaps, per_problem
from likelier.glm.line_search import Point, Scores, point_at, search
from likelier.glm.metric import Metric, make_metric
from likelier.glm.model import LinearModel
from likelier.glm.posterior import LinearPosterior

MEMORY = 20
REFRESH = 20  # steps after which scores are recomputed from the parameters
LAGS = (1, 2, 4)  # of steps, to estimate the rate at which gains decrease
MAX_CG, CG_TOL = 60, 0.02  # iterations of a Newton step, and relative gain of the last one
MAX_RATE = 0.95  # of gains: the remaining gain is at most 20 times the last one


@dataclass(frozen=True)
class LBFGSState:
    """Parameters, objective and gradient, and the last changes of parameters and gradient.

    ``scores`` belong to ``theta`` and ``metric`` to ``origin``; both are recomputed if None.
    """

    model: LinearModel
    theta: Array
    origin: Array
    value: Array | None = None
    gradient: Array | None = None
    changes: tuple[tuple[Array, Array], ...] = ()
    gains: tuple[float, ...] = ()  # decreases of the objective
    newton: bool = False  # Newton steps, after the L-BFGS estimate of the gap proved too small
    n_steps: int = 0
    scores: RowValues | None = field(default=None, metadata={"checkpoint": False})
    metric: Metric | None = field(default=None, metadata={"checkpoint": False})


@dataclass(frozen=True)
class HessianProduct:
    """Hessian of the summed loss at the scores, times a vector."""

    model: LinearModel

    def __call__(self, batch: Batch, scores: Array, vector: Array) -> Array:
        model = self.model
        curvature = model.terms(batch, scores, 2)[2]
        change = model.scores(vector, batch.X)
        if model.loss.coupled:  # class probabilities, not weighted
            change -= (curvature * change).sum(axis=1, keepdims=True)
            if batch.weight is not None:
                change *= batch.weight[:, None]
        return model.pull_back(batch.X, curvature * change)


@dataclass(frozen=True)
class LBFGS(Inference):
    """L-BFGS in the metric of a subset, for smooth losses and penalties.

    Cost per step: one pass with two products with the data, rows x features x outputs each; the
    metric costs subset x features^2 / 2 once. Memory with the rows: two scores per row and output.
    Convergence is verified by a Newton-CG step of about ten passes (up to 60). If that finds more
    to gain, or if the penalty gives no bound (`gap`), all further steps are such steps.
    """

    resumable: ClassVar[bool] = True

    tol: float = 1e-4

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> LBFGSState:
        """State at ``theta`` (or zero), where the metric will be computed."""
        theta = model.zeros() if theta is None else np.array(theta)
        return LBFGSState(model, theta, theta)

    def step(self, state: LBFGSState, engine: Engine) -> tuple[LBFGSState, Info]:
        """One step: a pass; the first one has three products with the data."""
        state = self._ready(state, engine)
        model, metric, scores = state.model, state.metric, state.scores
        assert metric is not None and scores is not None
        assert state.gradient is not None and state.value is not None
        objective = float(state.value.sum())
        limit = self.tol * abs(objective - model.floor)
        if not state.newton:
            direction = -self._inverse(state, state.gradient, engine)
            descent = _dots(model, direction, state.gradient)
            gap = max(float(-0.5 * descent.sum()), _remaining_gain(state.gains))
            if gap <= limit and _gap_bound(state) <= limit:
                return state, Info(objective, gap, 0.0, True)
        if state.newton or gap <= limit:
            # verify with the exact curvature
            direction, gap = self._newton_direction(state, engine)
            descent = _dots(model, direction, state.gradient)
            if state.newton and state.gains:
                gap = max(gap, state.gains[-1])  # a Newton step gains nearly all of the gap
            if gap <= limit and _gap_bound(state) <= limit:
                return state, Info(objective, gap, 0.0, True)
            state = replace(state, newton=True, gains=())
        moved = self._move(state, engine, direction, descent)
        assert moved.value is not None
        stalled = not np.any(moved.theta != state.theta)
        near = stalled and _gap_bound(moved) <= limit
        message = ROUNDING if stalled and not near else ""
        return moved, Info(float(moved.value.sum()), gap, 1.0, near, message)

    def _ready(self, state: LBFGSState, engine: Engine) -> LBFGSState:
        """State with the metric, the scores and the first gradient."""
        model = state.model
        if state.metric is None:
            state = replace(state, metric=make_metric(model, engine, state.origin))
        if state.scores is None:
            state = replace(state, scores=engine.map_rows(Scores(model), state=state.theta))
        if state.gradient is None:
            assert state.scores is not None
            point = point_at(model, engine, state.theta, state.scores)
            gradient = point.gradient + model.penalty.l2[:, None] * point.theta
            state = replace(state, value=point.value, gradient=gradient)
        return state

    @staticmethod
    def _move(state: LBFGSState, engine: Engine, direction: Array, descent: Array) -> LBFGSState:
        """State after a line search, per independent problem."""
        model = state.model
        assert state.scores is not None and state.gradient is not None and state.value is not None
        start = Point(state.theta, state.value, state.gradient, state.scores)
        point, step = search(model, engine, start, direction, descent)
        gradient = point.gradient + model.penalty.l2[:, None] * point.theta
        changes, moved = state.changes, (step * direction, gradient - state.gradient)
        # curvature must be positive, which excludes steps of length zero
        if (_dots(model, *moved) > 0.0).any():
            changes = (*changes[1 - MEMORY :], moved)
        n_steps, gain = state.n_steps + 1, float(state.value.sum()) - float(point.value.sum())
        return replace(
            state, theta=point.theta, value=point.value, gradient=gradient, changes=changes,
            n_steps=n_steps, gains=(*state.gains[-LAGS[-1] :], gain),
            scores=point.scores if n_steps % REFRESH else None,
        )  # fmt: skip

    def _newton_direction(self, state: LBFGSState, engine: Engine) -> tuple[Array, float]:
        """Newton step by conjugate gradients, and its predicted gain.

        The gain increases towards half the Newton decrement with every iteration; they stop once it
        hardly does. Cost per iteration: two products with the data.
        """
        model = state.model
        assert state.gradient is not None and state.scores is not None
        assert engine.n_rows is not None
        residual = -state.gradient
        found, gain = np.zeros_like(residual), 0.0
        preconditioned = self._inverse(state, residual, engine)
        conjugate, size = preconditioned, _dots(model, residual, preconditioned)
        for _ in range(MAX_CG):
            product = engine.reduce(HessianProduct(model), np.add, state.scores, state=conjugate)
            product = product / engine.n_rows + model.penalty.l2[:, None] * conjugate
            curve = _dots(model, conjugate, product)
            length = np.divide(size, curve, out=np.zeros_like(curve), where=curve > 0.0)
            found, residual = found + length * conjugate, residual - length * product
            last_gain = 0.5 * float((length * size).sum())
            gain += last_gain
            if last_gain <= CG_TOL * gain:
                break
            preconditioned = self._inverse(state, residual, engine)
            new = _dots(model, residual, preconditioned)
            conjugate = preconditioned + conjugate * np.divide(
                new, size, out=np.zeros_like(new), where=size > 0.0
            )
            size = new
        return found, gain

    def _inverse(self, state: LBFGSState, vector: Array, engine: Engine) -> Array:
        """The two-loop recursion, with the metric in the middle."""
        model, metric, used = state.model, state.metric, []
        assert metric is not None
        q = vector.copy()
        for s, y in reversed(state.changes):
            curve = _dots(model, s, y)
            a = np.divide(_dots(model, s, q), curve, out=np.zeros_like(curve), where=curve > 0.0)
            q -= a * y
            used.append((s, y, a, curve))
        if not used:
            return metric.solve(q, engine)
        # scale of the metric along the last change: both right-hand sides are solved together
        _, y, _, curve = used[0]
        r, solved = np.hsplit(metric.solve(np.hstack([q, y]), engine), 2)
        size = _dots(model, y, solved)
        r *= np.divide(curve, size, out=np.ones_like(curve), where=(size > 0.0) & (curve > 0.0))
        for s, y, a, curve in reversed(used):
            b = np.divide(_dots(model, y, r), curve, out=np.zeros_like(curve), where=curve > 0.0)
            r += s * (a - b)
        return np.asarray(r)

    @staticmethod
    def objectives(state: LBFGSState) -> Array | None:
        """Objective of every output (of all together for a coupled loss); None before a step."""
        return state.value

    def posterior(self, state: LBFGSState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _gap_bound(state: LBFGSState) -> float:
    """Bound of the gap; 0 without a penalty.

    It does not depend on the local curvature, which outlying rows can dominate.
    """
    assert state.gradient is not None and state.value is not None
    above = state.value - state.model.floor
    return float(gaps(state.model, state.theta, state.gradient, above).sum())


def _remaining_gain(gains: tuple[float, ...]) -> float:
    """Estimated sum of future gains, by geometric extrapolation of the last ones.

    The L-BFGS model only knows the directions of past steps, and may overestimate the curvature of
    others: it then predicts the gain of the next step only. The last gain is included as a margin.
    """
    if len(gains) < 2 or min(gains) <= 0.0:
        return 0.0
    # single gains are erratic, and the first one is often far larger
    lags = [lag for lag in LAGS[1:] if lag < len(gains)] or list(LAGS[:1])
    rates = [float((gains[-1] / gains[-1 - lag]) ** (1.0 / lag)) for lag in lags]
    rate = min(MAX_RATE, max(rates))
    return gains[-1] / (1.0 - rate)


def _dots(model: LinearModel, a: Array, b: Array) -> Array:
    """Inner product per independent problem."""
    return per_problem(model, np.einsum("jk,jk->k", a, b))
