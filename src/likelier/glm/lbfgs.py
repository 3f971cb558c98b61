"""Preconditioned L-BFGS by sums over rows: the finish for a middling number of features.

The metric comes from a subset of the rows: the Cholesky factor of its weighted Gram matrix
where features are few enough, its diagonal otherwise. Scores are values per row that move with the
parameters, so that an iteration is one pass over the rows: the change of the scores, the objective
and its gradient a whole step ahead. Independent outputs (one-vs-rest) run side by side, each with
its own inner products and step length; for a coupled loss they share them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, RowValues
from likelier.glm.gap import ROUNDING, gaps
from likelier.glm.metric import Metric, make_metric
from likelier.glm.model import LinearModel
from likelier.glm.posterior import LinearPosterior

MEMORY = 20
ANCHOR = 20  # steps after which scores are made anew from the parameters
BACKTRACK = 0.4
TRIALS = 4  # step lengths that are tried in one pass, where a whole step was too long
MAX_TRIALS = 20
RECENT = (1, 2, 4)  # steps back to which gains are compared, to tell their rate
MAX_CG, HARDLY = 60, 0.02  # iterations of a Newton step, and gain of one as a share at its end
SLOWEST = 0.95  # rate that is believed: with it, 20 times the last gain is counted


@dataclass(frozen=True)
class LBFGSState:
    """Point, objective and gradient there, and the last changes of both.

    ``scores`` are those of the rows at the point, and None where they are to be made from
    ``theta``; ``metric`` is that of ``origin``, and None where it has to be made again.
    """

    model: LinearModel
    theta: Array
    origin: Array
    value: Array | None = None
    gradient: Array | None = None
    changes: tuple[tuple[Array, Array], ...] = ()
    gains: tuple[float, ...] = ()  # of the steps, in the objective
    wary: bool = False  # whether the changes have once told less than there was to gain
    n_steps: int = 0
    scores: RowValues | None = field(default=None, metadata={"checkpoint": False})
    metric: Metric | None = field(default=None, metadata={"checkpoint": False})


@dataclass(frozen=True)
class Scores:
    """Scores of the rows of a block; the parameters are the state of the pass."""

    model: LinearModel

    def __call__(self, batch: Batch, theta: Array) -> Array:
        return self.model.scores(theta, batch.X)


def move(batch: Batch, scores: Array, change: Array, step: Array) -> Array:
    """Scores a step further."""
    return np.asarray(scores + step * change)


@dataclass(frozen=True)
class Ahead:
    """Summed loss per output and its gradient a step further."""

    model: LinearModel

    def __call__(
        self, batch: Batch, scores: Array, change: Array, step: Array
    ) -> tuple[Array, Array]:
        value, slope, _ = self.model.terms(batch, scores + step * change, 1)
        return value, self.model.pull_back(batch.X, slope)


@dataclass(frozen=True)
class Here:
    """Summed loss per output and its gradient at the scores."""

    model: LinearModel

    def __call__(self, batch: Batch, scores: Array) -> tuple[Array, Array]:
        value, slope, _ = self.model.terms(batch, scores, 1)
        return value, self.model.pull_back(batch.X, slope)


@dataclass(frozen=True)
class Along:
    """Summed losses per output for several steps, one row for each."""

    model: LinearModel

    def __call__(self, batch: Batch, scores: Array, change: Array, steps: Array) -> Array:
        points = (scores + step * change for step in steps)
        return np.stack([self.model.terms(batch, point, 0)[0] for point in points])


@dataclass(frozen=True)
class Curved:
    """The second derivatives of the summed loss at the scores, times a vector."""

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


def _add_pairs(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    return one[0] + other[0], one[1] + other[1]


@dataclass(frozen=True)
class LBFGS(Inference):
    """L-BFGS in the metric of a subset, for smooth losses and penalties.

    Cost per step: one pass, two products with the data, rows x features x outputs each; the metric
    costs subset x features^2 / 2 once. Memory where the rows are: two scores per row and output.
    Before it says that it has converged it asks the curvature, by some ten further passes (up to
    60); where that finds more to gain, or the penalty no bound (`gap`), every further step costs
    as much.
    """

    resumable: ClassVar[bool] = True

    tol: float = 1e-4

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> LBFGSState:
        """State at ``theta`` (or zero); the metric will be made there."""
        theta = model.zeros() if theta is None else np.array(theta)
        return LBFGSState(model, theta, theta)

    def step(self, state: LBFGSState, engine: Engine) -> tuple[LBFGSState, Info]:
        """One step: a pass, and three products with the data the first time."""
        state = self._ready(state, engine)
        model, metric, scores = state.model, state.metric, state.scores
        assert metric is not None and scores is not None
        assert state.gradient is not None and state.value is not None
        objective = float(state.value.sum())
        limit = self.tol * abs(objective - model.floor)
        if not state.wary:
            direction = -self._inverse(state, state.gradient, engine)
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
            state = replace(state, wary=True, gains=())
        moved = self._move(state, engine, direction, slope)
        assert moved.value is not None
        stuck = not np.any(moved.theta != state.theta)
        near = stuck and _bound(moved) <= limit
        message = ROUNDING if stuck and not near else ""
        return moved, Info(float(moved.value.sum()), gap, 1.0, near, message)

    def _ready(self, state: LBFGSState, engine: Engine) -> LBFGSState:
        """With the metric, the scores, and the gradient of the first point."""
        model = state.model
        if state.metric is None:
            state = replace(state, metric=make_metric(model, engine, state.origin))
        if state.scores is None:
            state = replace(state, scores=engine.map_rows(Scores(model), state=state.theta))
        if state.gradient is None:
            assert state.scores is not None
            sums = engine.reduce(Here(model), _add_pairs, state.scores)
            value, gradient = self._objective(state.model, engine, state.theta, sums)
            state = replace(state, value=value, gradient=gradient)
        return state

    @staticmethod
    def _objective(
        model: LinearModel, engine: Engine, theta: Array, sums: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        """Objective of every output and its gradient, from sums over the rows."""
        assert engine.n_rows is not None
        value = sums[0] / engine.n_rows + _per_problem(model, model.penalty.value(theta))
        return value, sums[1] / engine.n_rows + model.penalty.l2[:, None] * theta

    def _move(
        self, state: LBFGSState, engine: Engine, direction: Array, slope: Array
    ) -> LBFGSState:
        """The State as far along the direction as the objective falls enough, for every output."""
        model, scores = state.model, state.scores
        assert scores is not None and state.gradient is not None and state.value is not None
        change = engine.map_rows(Scores(model), state=direction)
        step = np.ones(len(slope))
        theta = state.theta + direction
        sums = engine.reduce(
            Ahead(model), _add_pairs, scores, change, state=_per_output(model, step)
        )
        value, gradient = self._objective(model, engine, theta, sums)
        if not _falls(state, value, step, slope).all():
            step = self._backtrack(state, engine, (direction, change, slope), value)
            theta = state.theta + step * direction
            sums = engine.reduce(
                Ahead(model), _add_pairs, scores, change, state=_per_output(model, step)
            )
            value, gradient = self._objective(model, engine, theta, sums)
        changes, moved = state.changes, (step * direction, gradient - state.gradient)
        # curvature must be positive; a step of length zero teaches nothing
        if (_dots(model, *moved) > 0.0).any():
            changes = (*changes[1 - MEMORY :], moved)
        n_steps, gain = state.n_steps + 1, float(state.value.sum()) - float(value.sum())
        further = engine.map_rows(move, scores, change, state=_per_output(model, step))
        return replace(
            state, theta=theta, value=value, gradient=gradient, changes=changes, n_steps=n_steps,
            gains=(*state.gains[-RECENT[-1] :], gain),
            scores=further if n_steps % ANCHOR else None,
        )  # fmt: skip

    @staticmethod
    def _backtrack(
        state: LBFGSState, engine: Engine, ray: tuple[Array, RowValues, Array], value: Array
    ) -> Array:
        """Shorter steps for the outputs whose objective ``value`` a whole step ahead is too high.

        Several lengths are tried in a pass: the rows may be far away.
        """
        (direction, change, slope), model = ray, state.model
        assert state.scores is not None and engine.n_rows is not None
        step = np.ones(len(slope))
        high = ~_falls(state, value, step, slope)
        for first in range(1, MAX_TRIALS, TRIALS):
            lengths = BACKTRACK ** np.arange(first, first + TRIALS)
            tried = np.where(high, lengths[:, None], step)
            sums = engine.reduce(
                Along(model), np.add, state.scores, change, state=_per_output(model, tried)
            )
            for length, total in zip(tried, sums / engine.n_rows, strict=True):
                penalty = model.penalty.value(state.theta + length * direction)
                found = total + _per_problem(model, penalty)
                step = np.where(high, length, step)
                high = high & ~_falls(state, found, length, slope)
                if not high.any():
                    return step
        return np.where(high, 0.0, step)

    def _newton_direction(self, state: LBFGSState, engine: Engine) -> tuple[Array, float]:
        """Newton's step by conjugate gradients, and the gain that is expected of it.

        That gain grows with every iteration towards half the Newton decrement, so they go on
        until it hardly does. Cost of one: two products with the data.
        """
        model = state.model
        assert state.gradient is not None and state.scores is not None
        assert engine.n_rows is not None
        rest = -state.gradient
        found, gain = np.zeros_like(rest), 0.0
        ahead = self._inverse(state, rest, engine)
        along, size = ahead, _dots(model, rest, ahead)
        for _ in range(MAX_CG):
            curved = engine.reduce(Curved(model), np.add, state.scores, state=along)
            curved = curved / engine.n_rows + model.penalty.l2[:, None] * along
            curve = _dots(model, along, curved)
            length = np.divide(size, curve, out=np.zeros_like(curve), where=curve > 0.0)
            found, rest = found + length * along, rest - length * curved
            more = 0.5 * float((length * size).sum())
            gain += more
            if more <= HARDLY * gain:
                break
            ahead = self._inverse(state, rest, engine)
            new = _dots(model, rest, ahead)
            along = ahead + along * np.divide(new, size, out=np.zeros_like(new), where=size > 0.0)
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
        # scale of the metric along the last change: both are solved for side by side
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
        """Objective of every output (of all together, if they are coupled); None before a step."""
        return state.value

    def posterior(self, state: LBFGSState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _falls(state: LBFGSState, value: Array, step: Array, slope: Array) -> Array:
    """Whether the objective of each problem has fallen enough, but for rounding."""
    assert state.value is not None
    rounding = 1e-14 * np.abs(state.value)
    return np.asarray(value <= state.value + 1e-4 * step * slope + rounding)


def _per_output(model: LinearModel, steps: Array) -> Array:
    """Step lengths of problems as those of outputs."""
    return np.broadcast_to(steps, (*steps.shape[:-1], model.n_outputs)).copy()


def _bound(state: LBFGSState) -> float:
    """How far above the optimum the point can be; 0 where no penalty says anything of that.

    Where rows far from all others bend, curvature there may hide what is beyond.
    """
    assert state.gradient is not None and state.value is not None
    above = state.value - state.model.floor
    return float(gaps(state.model, state.theta, state.gradient, above).sum())


def _still_to_gain(gains: tuple[float, ...]) -> float:
    """The last gain and what follows if gains go on shrinking at the rate of the last ones.

    The model of the curvature knows the directions it has seen, and may take the slow ones for
    steep: what it expects is then about the gain of the next step, and not of all that follow. The
    last gain, which is behind, is a margin: the rate is an estimate too.
    """
    if len(gains) < 2 or min(gains) <= 0.0:
        return 0.0
    # single steps are erratic, and the first of all is often far longer than the others
    known = [back for back in RECENT[1:] if back < len(gains)] or list(RECENT[:1])
    rates = [float((gains[-1] / gains[-1 - back]) ** (1.0 / back)) for back in known]
    rate = min(SLOWEST, max(rates))
    return gains[-1] / (1.0 - rate)


def _per_problem(model: LinearModel, values: Array) -> Array:
    """Values of outputs as those of problems: all together for a coupled loss."""
    return values.sum(keepdims=True) if model.loss.coupled else values


def _dots(model: LinearModel, a: Array, b: Array) -> Array:
    """Inner product of each output, or of all together for a coupled loss."""
    return _per_problem(model, np.einsum("jk,jk->k", a, b))
