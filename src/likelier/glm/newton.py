"""Newton's method by sums over rows: the second-order finish for few features.

Each step is one reduction (gradient and Hessian are additive over blocks) and one small solve.
Early steps run on growing random subsets, where a few percent of the rows locate the optimum
well enough; the last ones use every row. Losses with kinks are replaced by their Moreau
envelope (a maximum over classes by a softmax), whose width shrinks until it is below the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info
from likelier.glm.gap import ROUNDING, gap_at
from likelier.glm.loops.centring import column_moments
from likelier.glm.model import LinearModel, LinearStats, SumsAt, ValuesAt
from likelier.glm.penalty import ElasticNet
from likelier.glm.posterior import LinearPosterior
from likelier.loops.rows import all_rows, as_rows

GROWTH = 4  # each subset is so many times larger than the one before
SUBSET_STEPS = 6
HESSIAN_ROWS = 64  # per parameter: enough for the first step on all rows after the subsets
PERFECT = 1e-10  # an objective below this part of the first one is a perfect fit
SUBSET_CELLS = 1 << 22  # of the largest subset: rows times features, held in memory
PRIOR_SCORE = 0.5  # a feature seen in 16 rows or fewer is mostly prior
FULL_STEP = 0.1  # a gap below this part of the objective: a full step is tried on trust
# times a bound of the Hessian: with 1 no step goes up, and sure predictions bend far less than that
DAMPINGS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
STEEP_DAMPINGS = (*DAMPINGS, 10.0, 1e2, 1e3, 1e4)  # where no bound exists, as for exp
NARROWING = 0.2  # of the envelope, once its own minimum is nearly found
NEAR = 0.2  # of its width
DEEPEST = 1e-13  # part of the objective that is as good as nothing
SLOW = 10.0  # what a step on an envelope gained, times this, may still be to come
PERFECT_FIT = (
    "because the model fits the training rows perfectly (the classes are separable), so without a "
    "penalty its weights grow without bound; set alpha > 0"
)


@dataclass(frozen=True)
class NewtonState:
    """The point reached, and what the last step learned there."""

    model: LinearModel
    theta: Array
    width: float = 0.0  # of the envelope; zero is the loss itself
    steep: float = 1.0  # typical slope squared: times the width, how far below the loss it lies
    objective: float = np.inf
    gap: float = np.inf
    stats: LinearStats | None = None  # sums at ``theta``, while they are still needed
    first: float = 0.0  # size of the first objective on all rows
    gain: float = 0.0  # of the last damped step
    n_rows: int = 0
    wary: bool = False  # a step taken on trust has failed
    every: int = 1  # rows of which one adds to the next Hessian
    bound: Array | None = None  # mean of x x^T: times the largest curvature, it bounds the Hessian
    trusted: NewtonState | None = None  # where a step taken on trust came from


@dataclass(frozen=True)
class Newton(Inference):
    """Newton steps, proximal where the penalty has a kink.

    Cost per step: rows x (nonzeros per row)^2 / 2 x outputs for the sums, features^3 for the
    solve; far from the optimum one cheap pass more chooses how far to go. Converged when the
    distance to the optimum is bounded by ``tol`` times the objective (`gap`).
    """

    resumable: ClassVar[bool] = True

    tol: float = 1e-4
    trusting: bool = False  # the curvature; whoever takes the result asks for a bound

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> NewtonState:
        """Improve ``theta`` (or zero) on growing random subsets of the rows."""
        state = self.start(model, engine, model.zeros() if theta is None else theta)
        for subset in subsets(model, engine):
            state = self.on_subset(state, engine, subset)
        return state

    def start(self, model: LinearModel, engine: Engine, theta: Array) -> NewtonState:
        """First State at ``theta`` itself."""
        if model.loss.smooth and not model.loss.flat_tails:
            return NewtonState(model, theta)
        batch = engine.sample(1000)
        width = float(model.stats(theta, batch).value.mean()) / batch.n_rows
        if model.loss.flat_tails:
            return NewtonState(model, theta, *_tails(model, theta, batch))
        return NewtonState(model, theta, max(1e-6, width))

    def on_subset(self, state: NewtonState, engine: Engine, subset: Engine) -> NewtonState:
        """Go on from a State on some rows of an engine, until as near as their sampling error."""
        model, n_rows, n_few = state.model, engine.n_rows, subset.n_rows
        assert n_rows is not None and n_few is not None
        few = NewtonState(_for_subset(model, subset), state.theta, state.width, state.steep)
        noise = model.n_rows_theta / (2.0 * n_few)
        for _ in range(SUBSET_STEPS):
            few = self._newton_step(few, subset)
            if few.gap < noise:
                break
        subset.close()
        every = 1
        if model.loss.smooth and not model.loss.coupled:
            every = max(1, n_rows // (HESSIAN_ROWS * model.n_rows_theta))
        return NewtonState(model, few.theta, state.width, state.steep, every=every)

    def step(self, state: NewtonState, engine: Engine) -> tuple[NewtonState, Info]:
        """One step on all rows."""
        before = state.theta
        state = self._newton_step(state, engine)
        state = replace(state, first=state.first or abs(state.objective))
        if state.width > 0.0:
            return self._narrow(state, engine)
        objective, gap, message = state.objective, state.gap, ""
        near = gap <= self.tol * abs(objective - state.model.floor)
        if near and not self.trusting:  # by the curvature; is it true where the step has led?
            objective, gap = gap_at(state.model, engine, state.theta)
            near = gap <= self.tol * abs(objective - state.model.floor)
        if not near and 0.0 <= state.objective < PERFECT * state.first:
            # nothing is left to gain: rounding, an intercept on its way to infinity, or all weights
            moved = np.abs(state.theta - before).max() > 1e-6 * np.abs(before).max()
            endless = bool(moved and not state.model.penalty.l2.any())
            near, message = not endless, PERFECT_FIT if endless else ""
        return state, Info(objective, gap, 1.0, near, message)

    def _narrow(self, state: NewtonState, engine: Engine) -> tuple[NewtonState, Info]:
        """What a step on an envelope is worth for the loss itself, and the next width.

        The envelope lies below the loss, so its minimum bounds that of the loss from below.
        Where few rows touch a kink its Hessian knows few directions and the Newton decrement
        says little: a step that still gained something is not near.
        """
        model = state.model
        sums = engine.reduce(ValuesAt(model), np.add, state=[state.theta])
        objective = float(sums.sum()) / state.n_rows
        objective += float(model.penalty.value(state.theta).sum())
        left = max(state.gap, SLOW * state.gain)
        gap = max(objective - state.objective, 0.0) + left
        if gap <= self.tol * abs(objective):
            # a loss that bends over a short length only is smooth in name: its slope jumps there
            widths = (state.width, 0.0) if model.loss.smooth else (state.width,)
            gap = np.inf
            for width in widths:
                envelope, bound = gap_at(model, engine, state.theta, width)
                gap = min(gap, max(objective - envelope, 0.0) + bound)
        near, message, depth = gap <= self.tol * abs(objective), "", state.width * state.steep
        if not near and left <= depth * NEAR:
            # near the optimum of this envelope: the next one is closer to the loss itself
            deep = depth <= DEEPEST * abs(objective)
            message = ROUNDING if deep and not model.loss.smooth else ""
            state = replace(state, width=0.0 if deep else state.width * NARROWING)
        return state, Info(objective, gap, 1.0, near, message)

    def _newton_step(self, state: NewtonState, engine: Engine) -> NewtonState:
        """Sums at the point, then a full step or the best of several dampings side by side.

        A full step is taken on trust; when the next sums show that it went up, it is taken
        back and the dampings decide, from then on whenever the optimum is not near.
        """
        model, theta, width = state.model, state.theta, state.width
        every, state = state.every, replace(state, every=1)
        sums = SumsAt(model, 2, width, every=every)
        stats = engine.reduce(sums, LinearStats.__add__, state=theta)
        objective = float(stats.value.sum()) / stats.n_rows
        objective += float(model.penalty.value(theta).sum())
        trusted = state.trusted
        if trusted is not None and not objective <= trusted.objective * (1.0 + 1e-12):
            return replace(self._damped(trusted, engine), gap=np.inf, wary=True)
        if not np.isfinite(objective):
            raise FloatingPointError("the objective is not finite; rescale the features or targets")
        full, gap = quadratic_minimum(model, theta, stats)
        state = replace(
            state, objective=objective, gap=gap, stats=stats, trusted=None, n_rows=stats.n_rows
        )
        bold = not state.wary and np.isfinite(model.loss.max_curvature)
        if width == 0.0 and (bold or gap <= FULL_STEP * abs(objective - model.floor)):
            return replace(state, theta=full, trusted=state, stats=None)
        return self._damped(state, engine)

    @staticmethod
    def _damped(state: NewtonState, engine: Engine) -> NewtonState:
        """Go to the best of several dampings, output by output where outputs are independent."""
        model, width, stats = state.model, state.width, state.stats
        assert stats is not None
        bound = _curvature_bound(state, engine, stats)
        state = replace(state, bound=bound)
        top = 1.0 / width if width > 0.0 else model.loss.max_curvature
        dampings: tuple[float, ...] = DAMPINGS
        if not np.isfinite(top):
            dampings = STEEP_DAMPINGS
            assert stats.hessian is not None
            top = float(np.trace(stats.hessian.mean(axis=0)) / stats.n_rows / np.trace(bound))
        points = [state.theta] + [
            quadratic_minimum(model, state.theta, stats, mu * top * bound)[0] for mu in dampings
        ]
        sums = engine.reduce(ValuesAt(model, width), np.add, state=points)
        penalties = np.stack([model.penalty.value(point) for point in points])
        if model.loss.coupled:
            penalties = penalties.sum(axis=1, keepdims=True)
        values = sums / stats.n_rows + penalties
        values = np.where(np.isfinite(values), values, np.inf)
        choice = np.argmin(values, axis=0)
        choice = np.broadcast_to(choice, model.n_outputs)
        best = np.stack([points[c][:, k] for k, c in enumerate(choice)], axis=1)
        gain = state.objective - float(np.min(values, axis=0).sum())
        return replace(state, theta=best, stats=None, trusted=None, gain=gain)

    def posterior(self, state: NewtonState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _tails(model: LinearModel, theta: Array, batch: Batch) -> tuple[float, float]:
    """Width of the envelope that bends where the rows are, and the slope squared there.

    Where a loss is steep but straight its own Hessian knows nothing. The envelope of width
    ``loss / slope^2`` is still bent at a typical row; it is zero where the loss bends itself.
    """
    batch = batch.compact()
    value, slope, curvature = model.terms(batch, model.scores(theta, batch.X), 2)
    omega = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    steep = float((slope[:, 0] ** 2 / omega).sum()) / batch.n_rows
    if curvature.sum() >= 0.5 * model.loss.max_curvature * omega.sum() or steep == 0.0:
        return 0.0, 1.0
    return float(value.sum()) / batch.n_rows / steep, steep


def _for_subset(model: LinearModel, subset: Engine) -> LinearModel:
    """The model with a penalty fit for a subset.

    A weak prior is added on what one feature may do to a score where it is not zero
    (standard deviation `PRIOR_SCORE`). A rare feature seen in three rows would otherwise seem to
    separate the classes, and a start from sure predictions that are wrong is where Newton's
    method breaks down.
    """
    d, n = model.n_features, subset.n_rows
    assert n is not None
    _, squares, counts = subset.reduce(_moments, np.add)
    prior = np.zeros(model.n_rows_theta)
    prior[:d] = squares / np.maximum(counts, 1.0) / (PRIOR_SCORE**2 * n)
    return replace(model, penalty=ElasticNet(model.penalty.l2 + prior, model.penalty.l1))


def _moments(batch: Batch) -> Array:
    """Sums, sums of squares and numbers of nonzeros of the columns."""
    sums = np.zeros((3, int(batch.X.shape[1])))
    column_moments(*as_rows(batch.X), all_rows(batch.X, batch.rows), *sums)
    return sums


def subset_sizes(model: LinearModel, n_rows: int | None) -> list[int]:
    """Sizes of the subsets to start on: from a few rows per parameter up to half of all."""
    if n_rows is None:
        return []
    parameters = model.n_rows_theta * (model.n_outputs if model.loss.coupled else 1)
    sizes: list[int] = []
    size = max(1000, 10 * parameters)
    while 2 * size <= n_rows and (not sizes or size * model.n_features <= SUBSET_CELLS):
        sizes.append(size)
        size *= GROWTH
    return sizes


def subsets(model: LinearModel, engine: Engine) -> list[Engine]:
    """The subsets to start on, by one pass."""
    return engine.subsets(subset_sizes(model, engine.n_rows), iteration=1)


def mean_gradient_and_hessian(model: LinearModel, stats: LinearStats) -> tuple[Array, Array]:
    """Derivatives of the mean loss; one row and one matrix per independent problem.

    A coupled loss does not change when all classes move together: where no penalty holds
    that direction, a term that does not touch the solution makes the matrix regular.
    """
    assert stats.gradient is not None and stats.hessian is not None
    hessian = stats.hessian / stats.n_rows
    slope = stats.gradient.T / stats.n_rows
    if model.loss.coupled:
        K, p = model.n_outputs, model.n_rows_theta
        blocks = hessian.reshape(K, p, K, p)
        for j in np.flatnonzero((model.penalty.l2 == 0.0) & (model.penalty.l1 == 0.0)):
            blocks[:, j, :, j] += np.trace(blocks[:, j, :, j]) / K**2
        slope = slope.reshape(1, K * p)
    return slope, hessian


def stacked_penalty(model: LinearModel) -> ElasticNet:
    """The penalty in the shape of the independent problems."""
    times = model.n_outputs if model.loss.coupled else 1
    return ElasticNet(np.tile(model.penalty.l2, times), np.tile(model.penalty.l1, times))


def _curvature_bound(state: NewtonState, engine: Engine, stats: LinearStats) -> Array:
    """Mean of ``x x^T`` over the rows: computed when first needed, then kept."""
    if state.bound is not None:
        return state.bound
    total: Array = engine.reduce(_Gram(state.model), np.add)
    return total / stats.n_rows


@dataclass(frozen=True)
class _Gram:
    """``sum_i x_i x_i^T``."""

    model: LinearModel

    def __call__(self, batch: Batch) -> Array:
        return self.model.gram(batch.compact().X, np.ones(batch.n_rows))


def quadratic_minimum(
    model: LinearModel,
    theta: Array,
    stats: LinearStats,
    extra: Array | None = None,
) -> tuple[Array, float]:
    """Minimum of the damped quadratic model at ``theta``, and how much it would gain.

    ``extra`` is added to the Hessian: where the loss is flat (rare features, sure predictions)
    it keeps steps short.
    """
    slopes, hessians = mean_gradient_and_hessian(model, stats)
    penalty = stacked_penalty(model)
    current = theta.T.reshape(slopes.shape)
    target, gain = np.empty_like(current), 0.0
    for k, (h, s, w) in enumerate(zip(hessians, slopes, current, strict=True)):
        if extra is not None:
            h = h + (np.kron(np.eye(model.n_outputs), extra) if model.loss.coupled else extra)
        target[k] = v = penalty.minimise(h, s, w)
        change = v - w
        gain -= float(s @ change + 0.5 * change @ h @ change)
        gain += float(penalty.value(w) - penalty.value(v))
    return np.ascontiguousarray(target.reshape(model.n_outputs, -1).T), max(gain, 0.0)
