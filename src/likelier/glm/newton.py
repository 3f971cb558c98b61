"""Newton's method by sums over rows, for few features.

Each step is one reduction (gradient and Hessian are additive over blocks) and one small solve.
Early steps run on growing random subsets, up to their sampling error; the last ones use every row.
Losses with kinks are replaced by their Moreau envelope (a maximum over classes by a softmax), whose
width decreases until the difference is below the tolerance.
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

GROWTH = 4  # ratio of the sizes of successive subsets
SUBSET_STEPS = 6
HESSIAN_ROWS = 64  # per parameter, for the first step on all rows
PERFECT = 1e-10  # relative to the first objective: a perfect fit
SUBSET_CELLS = 1 << 19  # rows times features of the largest subset, which is in memory
PRIOR_SCORE = 0.5  # a feature seen in 16 rows or fewer is mostly prior
FULL_STEP = 0.1  # gap relative to the objective below which a full step is tried first
# factors of a bound of the Hessian: 1 guarantees descent, but is far too large in the tails
DAMPINGS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
UNBOUNDED_DAMPINGS = (*DAMPINGS, 10.0, 1e2, 1e3, 1e4)  # without a bound, as for exp
NARROWING = 0.2  # factor of the width of the envelope, once its minimum is nearly reached
NEAR = 0.2  # gap relative to the depth of the envelope at which it is narrowed
MIN_DEPTH = 1e-13  # of the envelope, relative to the objective
GAIN_FACTOR = 10.0  # remaining gain on an envelope, relative to that of the last step
PERFECT_FIT = (
    "because the model fits the training rows perfectly (the classes are separable), so without a "
    "penalty its weights grow without bound; set alpha > 0"
)


@dataclass(frozen=True)
class NewtonState:
    """Parameters, and the results of the last step."""

    model: LinearModel
    theta: Array
    width: float = 0.0  # of the envelope; zero for the loss itself
    squared_derivative: float = 1.0  # typical value; times the width, the depth of the envelope
    objective: float = np.inf
    gap: float = np.inf
    stats: LinearStats | None = None  # sums at ``theta``, as long as needed
    first: float = 0.0  # absolute value of the first objective on all rows
    gain: float = 0.0  # of the last damped step
    n_rows: int = 0
    cautious: bool = False  # after a failed full step
    every: int = 1  # the next Hessian uses one row in so many
    bound: Array | None = None  # mean of x x^T: times the largest curvature, it bounds the Hessian
    previous: NewtonState | None = None  # before a full step


@dataclass(frozen=True)
class Newton(Inference):
    """Newton steps, proximal where the penalty has a kink.

    Cost per step: rows x (nonzeros per row)^2 / 2 x outputs for the sums, features^3 for the
    solve; far from the optimum, another cheap pass selects the damping. Converged when the gap is
    bounded by ``tol`` times the objective (`gap`).
    """

    resumable: ClassVar[bool] = True

    tol: float = 1e-4
    unverified: bool = False  # accept the Newton decrement; the caller verifies the gap

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
        """Iterate on a subset of the rows, up to its sampling error."""
        model, n_rows, n_subset = state.model, engine.n_rows, subset.n_rows
        assert n_rows is not None and n_subset is not None
        local = NewtonState(
            _for_subset(model, subset), state.theta, state.width, state.squared_derivative
        )
        noise = model.n_rows_theta / (2.0 * n_subset)
        for _ in range(SUBSET_STEPS):
            local = self._newton_step(local, subset)
            if local.gap < noise:
                break
        subset.close()
        every = 1
        if model.loss.smooth and not model.loss.coupled:
            every = max(1, n_rows // (HESSIAN_ROWS * model.n_rows_theta))
        return NewtonState(model, local.theta, state.width, state.squared_derivative, every=every)

    def step(self, state: NewtonState, engine: Engine) -> tuple[NewtonState, Info]:
        """One step on all rows."""
        before = state.theta
        state = self._newton_step(state, engine)
        state = replace(state, first=state.first or abs(state.objective))
        if state.width > 0.0:
            return self._narrow(state, engine)
        objective, gap, message = state.objective, state.gap, ""
        near = gap <= self.tol * abs(objective - state.model.floor)
        if near and not self.unverified:  # by the Newton decrement; verify after the step
            objective, gap = gap_at(state.model, engine, state.theta)
            near = gap <= self.tol * abs(objective - state.model.floor)
        if not near and 0.0 <= state.objective < PERFECT * state.first:
            # a perfect fit: rounding errors, or an intercept or all weights diverge
            moved = np.abs(state.theta - before).max() > 1e-6 * np.abs(before).max()
            diverges = bool(moved and not state.model.penalty.l2.any())
            near, message = not diverges, PERFECT_FIT if diverges else ""
        return state, Info(objective, gap, 1.0, near, message)

    def _narrow(self, state: NewtonState, engine: Engine) -> tuple[NewtonState, Info]:
        """Objective and gap of the loss itself after a step on an envelope, and the next width.

        The envelope is a lower bound of the loss, and so is its minimum. With few rows near a kink
        its Hessian is nearly singular and the Newton decrement unreliable, so the gain of the last
        step is used as well.
        """
        model = state.model
        sums = engine.reduce(ValuesAt(model), np.add, state=[state.theta])
        objective = float(sums.sum()) / state.n_rows
        objective += float(model.penalty.value(state.theta).sum())
        remaining = max(state.gap, GAIN_FACTOR * state.gain)
        gap = max(objective - state.objective, 0.0) + remaining
        if gap <= self.tol * abs(objective):
            # a smooth loss with curvature on a short interval only is like one with a kink
            widths = (state.width, 0.0) if model.loss.smooth else (state.width,)
            gap = np.inf
            for width in widths:
                envelope, bound = gap_at(model, engine, state.theta, width)
                gap = min(gap, max(objective - envelope, 0.0) + bound)
        near, message = gap <= self.tol * abs(objective), ""
        depth = state.width * state.squared_derivative
        if not near and remaining <= depth * NEAR:
            # near the optimum of this envelope: the next one is closer to the loss itself
            deep = depth <= MIN_DEPTH * abs(objective)
            message = ROUNDING if deep and not model.loss.smooth else ""
            state = replace(state, width=0.0 if deep else state.width * NARROWING)
        return state, Info(objective, gap, 1.0, near, message)

    def _newton_step(self, state: NewtonState, engine: Engine) -> NewtonState:
        """Compute the sums, then take a full step or the best of several damped ones.

        A full step is not checked. If the next sums show that the objective increased, it is
        undone, and damped steps are used from then on unless the optimum is near.
        """
        model, theta, width = state.model, state.theta, state.width
        every, state = state.every, replace(state, every=1)
        sums = SumsAt(model, 2, width, every=every)
        stats = engine.reduce(sums, LinearStats.__add__, state=theta)
        objective = float(stats.value.sum()) / stats.n_rows
        objective += float(model.penalty.value(theta).sum())
        previous = state.previous
        if previous is not None and not objective <= previous.objective * (1.0 + 1e-12):
            return replace(self._damped(previous, engine), gap=np.inf, cautious=True)
        if not np.isfinite(objective):
            raise FloatingPointError("the objective is not finite; rescale the features or targets")
        full, gap = quadratic_minimum(model, theta, stats)
        state = replace(
            state, objective=objective, gap=gap, stats=stats, previous=None, n_rows=stats.n_rows
        )
        try_full = not state.cautious and np.isfinite(model.loss.max_curvature)
        if width == 0.0 and (try_full or gap <= FULL_STEP * abs(objective - model.floor)):
            return replace(state, theta=full, previous=state, stats=None)
        return self._damped(state, engine)

    @staticmethod
    def _damped(state: NewtonState, engine: Engine) -> NewtonState:
        """Take the best of several damped steps, per independent output."""
        model, width, stats = state.model, state.width, state.stats
        assert stats is not None
        bound = _curvature_bound(state, engine, stats)
        state = replace(state, bound=bound)
        top = 1.0 / width if width > 0.0 else model.loss.max_curvature
        dampings: tuple[float, ...] = DAMPINGS
        if not np.isfinite(top):
            dampings = UNBOUNDED_DAMPINGS
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
        return replace(state, theta=best, stats=None, previous=None, gain=gain)

    def posterior(self, state: NewtonState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _tails(model: LinearModel, theta: Array, batch: Batch) -> tuple[float, float]:
    """Width of an envelope with curvature at a typical row, and the squared derivative there.

    In its linear tails the loss has no curvature, but the envelope of width ``loss / derivative^2``
    has. The width is zero if the loss itself has enough curvature.
    """
    batch = batch.compact()
    value, derivative, curvature = model.terms(batch, model.scores(theta, batch.X), 2)
    omega = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    squared = float((derivative[:, 0] ** 2 / omega).sum()) / batch.n_rows
    if curvature.sum() >= 0.5 * model.loss.max_curvature * omega.sum() or squared == 0.0:
        return 0.0, 1.0
    return float(value.sum()) / batch.n_rows / squared, squared


def _for_subset(model: LinearModel, subset: Engine) -> LinearModel:
    """The model with an additional penalty for a subset.

    It is a weak prior on the effect of one feature on a score (standard deviation `PRIOR_SCORE`). A
    rare feature in three rows could otherwise separate the classes, and Newton's method breaks down
    when started from wrong predictions of high confidence.
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
    """Sizes of the initial subsets: from a few rows per parameter up to half of all."""
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
    """The initial subsets, by one pass."""
    return engine.subsets(subset_sizes(model, engine.n_rows), iteration=1)


def mean_gradient_and_hessian(model: LinearModel, stats: LinearStats) -> tuple[Array, Array]:
    """Derivatives of the mean loss; one row and one matrix per independent problem.

    A coupled loss is invariant to a common shift of all classes. Without a penalty in that
    direction, a term that does not change the solution makes the matrix regular.
    """
    assert stats.gradient is not None and stats.hessian is not None
    hessian = stats.hessian / stats.n_rows
    gradient = stats.gradient.T / stats.n_rows
    if model.loss.coupled:
        K, p = model.n_outputs, model.n_rows_theta
        blocks = hessian.reshape(K, p, K, p)
        for j in np.flatnonzero((model.penalty.l2 == 0.0) & (model.penalty.l1 == 0.0)):
            blocks[:, j, :, j] += np.trace(blocks[:, j, :, j]) / K**2
        gradient = gradient.reshape(1, K * p)
    return gradient, hessian


def stacked_penalty(model: LinearModel) -> ElasticNet:
    """The penalty of the independent problems."""
    times = model.n_outputs if model.loss.coupled else 1
    return ElasticNet(np.tile(model.penalty.l2, times), np.tile(model.penalty.l1, times))


def _curvature_bound(state: NewtonState, engine: Engine, stats: LinearStats) -> Array:
    """Mean of ``x x^T`` over the rows, cached in the State."""
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
    """Minimum of the damped quadratic model at ``theta``, and its predicted gain.

    ``extra`` is added to the Hessian and limits steps where the loss is flat (rare features,
    confident predictions).
    """
    gradients, hessians = mean_gradient_and_hessian(model, stats)
    penalty = stacked_penalty(model)
    current = theta.T.reshape(gradients.shape)
    target, gain = np.empty_like(current), 0.0
    for k, (h, s, w) in enumerate(zip(hessians, gradients, current, strict=True)):
        if extra is not None:
            h = h + (np.kron(np.eye(model.n_outputs), extra) if model.loss.coupled else extra)
        target[k] = v = penalty.minimise(h, s, w)
        change = v - w
        gain -= float(s @ change + 0.5 * change @ h @ change)
        gain += float(penalty.value(w) - penalty.value(v))
    return np.ascontiguousarray(target.reshape(model.n_outputs, -1).T), max(gain, 0.0)
