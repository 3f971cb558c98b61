"""Preconditioned L-BFGS by sums over rows: the finish for a middling number of features.

The metric comes from a subset of the rows: the Cholesky factor of its weighted Gram matrix
where features are few enough, its diagonal otherwise. Scores of all rows are kept, so a line
search costs no pass. Independent outputs (one-vs-rest) run side by side, each with its own
inner products and step length; for a coupled loss they share them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info
from likelier.glm.gap import ROUNDING, gaps
from likelier.glm.loops.cholesky import cholesky, cholesky_solve
from likelier.glm.loops.terms import values_along
from likelier.glm.model import NO_WEIGHT, LinearModel
from likelier.glm.posterior import LinearPosterior
from likelier.loops.memory import touched_empty
from likelier.loops.rows import column_squares

MEMORY = 20
METRIC_FEATURES = 3000  # beyond this many a full metric costs more than it saves
METRIC_WORK = 4e10  # products that a metric for every output may cost
MAX_HALVINGS = 20
PIECES = 16  # of the rows, for a line search
RECENT = (1, 2, 4)  # steps back to which gains are compared, to tell the pace of them
MAX_CG, HARDLY = 60, 0.02  # iterations of a Newton step, and gain of one as a share at its end
SLOWEST = 0.95  # pace that is believed: with it, 20 times the last gain is counted


@dataclass
class LBFGSState:
    """Point, gradient, scores of all rows, and the last changes; updated in place.

    ``change`` is that of the scores along the direction, ``y`` and ``weight`` are the targets and
    weights of the rows that are present: what a line search needs, in pieces of any size.
    """

    model: LinearModel
    theta: Array
    metric: Any
    scores: Array
    change: Array
    y: Array
    weight: Array = field(default_factory=lambda: NO_WEIGHT)
    gradient: Array | None = None
    value: Array | None = None
    changes: list[tuple[Array, Array]] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)  # of the steps, in the objective
    wary: bool = False  # whether the changes have once told less than there was to gain


@dataclass(frozen=True)
class LBFGS(Inference):
    """L-BFGS in the metric of a subset. For smooth losses and penalties, data in memory.

    Cost per step: two products with the data, rows x features x outputs each; the metric
    costs subset x features^2 / 2 once. Memory: one score per row and output. Before it says that
    it has converged it asks the curvature, by some ten further products (up to 120); where that
    finds more to gain, or the penalty no bound (`gap`), every further step costs as much.
    """

    tol: float = 1e-4

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> LBFGSState:
        """Build the metric at ``theta`` (or zero)."""
        theta = model.zeros() if theta is None else np.array(theta)
        n = max(2000, min(6 * model.n_features, 12_000))
        batch = engine.sample(n, iteration=1)
        assert engine.n_rows is not None
        shape = (engine.n_rows, model.n_outputs)
        scores, change = touched_empty(shape), touched_empty(shape)
        weight = NO_WEIGHT if batch.weight is None else touched_empty(shape[0])
        metric = _metric(model, batch, theta, engine)
        return LBFGSState(model, theta, metric, scores, change, touched_empty(shape[0]), weight)

    def step(self, state: LBFGSState, engine: Engine) -> tuple[LBFGSState, Info]:
        """One step: two products with the data (three the first time)."""
        assert engine.n_rows is not None
        model = state.model
        if state.gradient is None:
            self._look(state, engine, None)
        assert state.gradient is not None and state.value is not None
        objective = float(state.value.sum())
        limit = self.tol * abs(objective - model.floor)
        if not state.wary:
            direction = -self._inverse(state, state.gradient)
            slope = _dots(model, direction, state.gradient)
            gap = max(float(-0.5 * slope.sum()), _still_to_gain(state.gains))
            if gap <= limit and _bound(state) <= limit:
                return state, Info(objective, gap, 0.0, True)
        if state.wary or gap <= limit:
            # the model of the curvature believes so; the curvature itself may know better
            direction, gap = self._newton_direction(state, engine)
            slope = _dots(model, direction, state.gradient)
            if state.wary and state.gains:
                gap = max(gap, state.gains[-1])  # such steps gain nearly all that there is
            if gap <= limit and _bound(state) <= limit:
                return state, Info(objective, gap, 0.0, True)
            state.wary, state.gains = True, []

        def move(batch: Batch) -> int:
            state.change[_places(batch)] = model.scores(direction, batch.X)
            return 1

        engine.reduce(move, operator.add)
        step = self._line_search(state, engine, direction, slope)
        old, state.theta = state.gradient, state.theta + step * direction
        self._look(state, engine, step)
        bend = state.gradient - old
        state.gains = [*state.gains[-RECENT[-1] :], objective - float(state.value.sum())]
        # curvature must be positive; a step of length zero teaches nothing
        if (_dots(model, step * direction, bend) > 0.0).any():
            state.changes = [*state.changes[1 - MEMORY :], (step * direction, bend)]
        objective, stuck = float(state.value.sum()), not np.any(step > 0.0)
        near = stuck and _bound(state) <= limit
        return state, Info(objective, gap, 1.0, near, ROUNDING if stuck and not near else "")

    def _newton_direction(self, state: LBFGSState, engine: Engine) -> tuple[Array, float]:
        """Newton's step by conjugate gradients, and the gain that is expected of it.

        That gain grows with every iteration towards half the Newton decrement, so they go on
        until it hardly does. Cost of one: two products with the data.
        """
        model = state.model
        assert state.gradient is not None
        rest = -state.gradient
        found, gain = np.zeros_like(rest), 0.0
        ahead = self._inverse(state, rest)
        along, size = ahead, _dots(model, rest, ahead)
        for _ in range(MAX_CG):
            curved = self._curved(state, engine, along)
            curve = _dots(model, along, curved)
            length = np.divide(size, curve, out=np.zeros_like(curve), where=curve > 0.0)
            found, rest = found + length * along, rest - length * curved
            more = 0.5 * float((length * size).sum())
            gain += more
            if more <= HARDLY * gain:
                break
            ahead = self._inverse(state, rest)
            new = _dots(model, rest, ahead)
            along = ahead + along * np.divide(new, size, out=np.zeros_like(new), where=size > 0.0)
            size = new
        return found, gain

    def _curved(self, state: LBFGSState, engine: Engine, vector: Array) -> Array:
        """The second derivatives of the objective at the point, times a vector."""
        model, n_rows = state.model, engine.n_rows
        assert n_rows is not None

        def product(batch: Batch) -> Array:
            curvature = model.terms(batch, state.scores[_places(batch)], 2)[2]
            change = model.scores(vector, batch.X)
            if model.loss.coupled:  # class probabilities, not weighted
                change -= (curvature * change).sum(axis=1, keepdims=True)
                if batch.weight is not None:
                    change *= batch.weight[:, None]
            return model.pull_back(batch.X, curvature * change)

        total = engine.reduce(product, operator.add) / n_rows
        return np.asarray(total + model.penalty.l2[:, None] * vector)

    def _look(self, state: LBFGSState, engine: Engine, step: Array | None) -> None:
        """Value and gradient at the point; scores are updated, or computed the first time."""
        model, n_rows = state.model, engine.n_rows
        assert n_rows is not None

        def look(batch: Batch) -> tuple[Array, Array]:
            here = _places(batch)  # every block has a place of its own
            scores = state.scores[here]
            if step is None:
                scores[:], state.y[here] = model.scores(state.theta, batch.X), batch.y
                if batch.weight is not None:
                    state.weight[here] = batch.weight
            else:
                scores += step * state.change[here]
            value, slope, _ = model.terms(batch, scores, 1)
            return value, model.pull_back(batch.X, slope)

        value, gradient = engine.reduce(look, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        l2 = model.penalty.l2[:, None]
        penalty = _reduce_lanes(model, model.penalty.value(state.theta))
        state.value = value / n_rows + penalty
        state.gradient = gradient / n_rows + l2 * state.theta

    def _line_search(
        self, state: LBFGSState, engine: Engine, direction: Array, slope: Array
    ) -> Array:
        """Backtrack from one until the objective falls enough, output by output.

        The data are not read: pieces need not be as small as blocks, and threads meet less often.
        """
        model, n_rows = state.model, len(state.scores)
        assert state.value is not None
        step = np.ones(len(slope))
        loss, borders = model.loss, np.linspace(0, n_rows, PIECES + 1).astype(int).tolist()

        def values(piece: int) -> Array:
            here = slice(borders[piece], borders[piece + 1])
            return np.asarray(
                values_along(
                    loss.code, loss.parameters, loss.coupled, model.classes, state.y[here],
                    state.weight[here], state.scores[here], state.change[here],
                    np.broadcast_to(step, model.n_outputs).copy(),
                )
            )  # fmt: skip

        for _ in range(MAX_HALVINGS):
            total = reduce(np.add, engine.each(values, PIECES)) / n_rows
            total += _reduce_lanes(model, model.penalty.value(state.theta + step * direction))
            high = ~(total <= state.value + 1e-4 * step * slope + 1e-14 * np.abs(state.value))
            if not high.any():
                return step
            step[high] *= 0.4
        step[high] = 0.0
        return step

    def _inverse(self, state: LBFGSState, vector: Array) -> Array:
        """The two-loop recursion, with the metric in the middle."""
        model, used = state.model, []
        q = vector.copy()
        for s, y in reversed(state.changes):
            curve = _dots(model, s, y)
            a = np.divide(_dots(model, s, q), curve, out=np.zeros_like(curve), where=curve > 0.0)
            q -= a * y
            used.append((s, y, a, curve))
        if not used:
            return np.asarray(state.metric(q))
        # scale of the metric along the last change: both are solved for side by side
        _, y, _, curve = used[0]
        r, solved = np.hsplit(state.metric(np.hstack([q, y])), 2)
        size = _dots(model, y, solved)
        r *= np.divide(curve, size, out=np.ones_like(curve), where=(size > 0.0) & (curve > 0.0))
        for s, y, a, curve in reversed(used):
            b = np.divide(_dots(model, y, r), curve, out=np.zeros_like(curve), where=curve > 0.0)
            r += s * (a - b)
        return np.asarray(r)

    @staticmethod
    def objectives(state: LBFGSState) -> Array | None:
        """Objective of every output (of all together, if they are coupled); None before a step."""
        return state.value

    def posterior(self, state: LBFGSState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _places(batch: Batch) -> slice:
    """Where the rows of a block are among all that are present."""
    return slice(batch.start, batch.start + batch.n_rows)


def _bound(state: LBFGSState) -> float:
    """How far above the optimum the point can be; 0 where no penalty says anything of that.

    Where rows far from all others bend, curvature there may hide what is beyond.
    """
    assert state.gradient is not None and state.value is not None
    above = state.value - state.model.floor
    return float(gaps(state.model, state.theta, state.gradient, above).sum())


def _still_to_gain(gains: list[float]) -> float:
    """The last gain and what follows if gains go on shrinking at the pace of the last ones.

    The model of the curvature knows the directions it has seen, and may take the slow ones for
    steep: what it expects is then about the gain of the next step, and not of all that follow. The
    last gain, which is behind, is a reserve: the pace is an estimate too.
    """
    if len(gains) < 2 or min(gains) <= 0.0:
        return 0.0
    # single steps are erratic, and the first of all is often far longer than the others
    known = [back for back in RECENT[1:] if back < len(gains)] or RECENT[:1]
    paces = [float((gains[-1] / gains[-1 - back]) ** (1.0 / back)) for back in known]
    pace = min(SLOWEST, max(paces))
    return gains[-1] / (1.0 - pace)


def _reduce_lanes(model: LinearModel, values: Array) -> Array:
    return values.sum(keepdims=True) if model.loss.coupled else values


def _dots(model: LinearModel, a: Array, b: Array) -> Array:
    """Inner product of each output, or of all together for a coupled loss."""
    return _reduce_lanes(model, np.einsum("jk,jk->k", a, b))


def _metric(model: LinearModel, batch: Batch, theta: Array, engine: Engine) -> Any:
    """Inverse of the mean curvature of a subset, as a function of blocks of vectors side by side.

    A block has a vector for every output; outputs with a metric of their own are shared by
    the threads of the engine.
    """
    X, d = batch.X, model.n_features
    curvature = model.terms(batch, model.scores(theta, X), 2)[2]
    if model.loss.coupled:
        curvature = curvature * (1.0 - curvature)
    # sure predictions of a few rows may hide curvature that the rest of the data has
    floor = 1e-3 * model.loss.max_curvature
    curvature = np.maximum(curvature, floor if np.isfinite(floor) else 0.0)
    if d > METRIC_FEATURES:
        return _diagonal_metric(model, batch, curvature.mean(axis=1))
    work = batch.n_rows * float(d) ** 2 * model.n_outputs
    if work > METRIC_WORK:
        curvature = curvature.mean(axis=1, keepdims=True)
    if isinstance(X, np.ndarray):
        X = X.astype(np.float32)  # a metric need not be exact
    rows = curvature.T
    if len(rows) == 1:
        return _factor(model, X, rows[0])
    factors = list(engine.each(lambda k: _factor(model, X, rows[k]), len(rows)))

    def solve(v: Array) -> Array:
        out = np.empty_like(v)

        def one(k: int) -> None:
            out[:, k :: len(factors)] = factors[k](v[:, k :: len(factors)])

        list(engine.each(one, len(factors)))
        return out

    return solve


def _factor(model: LinearModel, X: Any, row: Array) -> Any:
    try:
        factor, scale = _scaled_factor(model, X, row, exact=False)
    except np.linalg.LinAlgError:  # single precision was not enough
        factor, scale = _scaled_factor(model, X, row, exact=True)
    return lambda v: scale[:, None] * cholesky_solve(factor, scale[:, None] * v)


def _scaled_factor(model: LinearModel, X: Any, row: Array, exact: bool) -> tuple[Array, Array]:
    """Cholesky factor of the mean curvature, scaled to a diagonal of ones, and the scales."""
    gram = model.gram(X, row.astype(X.dtype), exact) / X.shape[0]
    ridge = model.penalty.l2 + 1e-12
    scale = 1.0 / np.sqrt(np.diagonal(gram) + ridge)
    scaled = (gram + np.diag(ridge)) * scale[:, None] * scale
    scaled[np.diag_indices_from(scaled)] += 1e-5
    return np.ascontiguousarray(cholesky(scaled)), scale


def _diagonal_metric(model: LinearModel, batch: Batch, row: Array) -> Any:
    squares = column_squares(batch.X, row)
    squares = np.append(squares, [row.sum()] * int(model.fit_intercept))
    # what a subset has not seen still curves a little
    diagonal = squares / batch.n_rows + model.penalty.l2 + 1e-3 * row.mean()
    return lambda v: v / diagonal[:, None]
