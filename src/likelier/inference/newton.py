"""Newton's method by sums over rows: the second-order finish for few features.

Each step is one reduction (gradient and Hessian are additive over blocks) and one small solve.
Early steps run on growing random subsets, where a few percent of the rows locate the optimum
well enough; the last ones use every row. Losses with kinks are replaced by their Moreau
envelope, whose width shrinks until it is below the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info
from likelier.inference.posterior import LinearPosterior
from likelier.loops.rows import column_counts, column_squares
from likelier.models.linear import LinearModel, LinearStats
from likelier.models.penalty import ElasticNet

GROWTH = 8  # each subset is so many times larger than the one before
SUBSET_STEPS = 6
CHUNK = 4096
PRIOR_SCORE = 2.0
FULL_STEP = 0.1  # a gap below this part of the objective: a full step is tried on trust
DAMPINGS = (0.0, 1e-3, 1e-2, 0.1, 1.0)  # times a bound of the Hessian: with 1 no step goes up
NARROWING = 0.2  # of the envelope, once its own minimum is nearly found
NEAR = 0.2  # of its width


@dataclass(frozen=True)
class NewtonState:
    """The point reached, and what the last step learned there."""

    model: LinearModel
    theta: Array
    width: float = 0.0  # of the envelope; zero is the loss itself
    objective: float = np.inf
    gap: float = np.inf
    stats: LinearStats | None = None  # sums at ``theta``, while they are still needed
    bound: Array | None = None  # mean of x x^T: times the largest curvature, it bounds the Hessian
    trusted: NewtonState | None = None  # where a step taken on trust came from


class Rows(Protocol):
    """What a Newton step needs of the data: a reduction over batches."""

    def reduce(self, map: Any, merge: Any) -> Any:
        """Map every batch and merge the results in order."""


@dataclass(frozen=True)
class _Chunks:
    """A batch in memory, passed over in chunks that stay in the cache."""

    batch: Batch

    def reduce(self, map: Any, merge: Any) -> Any:
        batch, total = self.batch, None
        for first in range(0, batch.n_rows, CHUNK):
            rows = slice(first, first + CHUNK)
            weight = None if batch.weight is None else batch.weight[rows]
            assert batch.y is not None
            part = map(Batch(batch.X[rows], batch.y[rows], weight))
            total = part if total is None else merge(total, part)
        return total


@dataclass(frozen=True)
class Newton(Inference):
    """Newton steps, proximal where the penalty has a kink.

    Cost per step: rows x (nonzeros per row)^2 / 2 x outputs for the sums, features^3 for the
    solve; far from the optimum one cheap pass more chooses how far to go. Converged when the
    estimated distance to the optimum is below ``tol`` times the objective; that last step
    is taken too.
    """

    tol: float = 1e-4

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> NewtonState:
        """Improve ``theta`` (or zero) on growing random subsets of the rows."""
        state = self.start(model, engine, model.zeros() if theta is None else theta)
        width = state.width
        for size in subset_sizes(model, engine):
            assert engine.n_rows is not None
            batch = engine.sample(size, iteration=1)
            subset = NewtonState(_for_subset(model, batch, engine.n_rows), state.theta, width)
            state = self._on_subset(subset, batch)
        return NewtonState(model, state.theta, width)

    def start(self, model: LinearModel, engine: Engine, theta: Array) -> NewtonState:
        """First State at ``theta`` itself."""
        if model.loss.smooth:
            return NewtonState(model, theta)
        batch = engine.sample(1000)
        width = float(model.stats(theta, batch).value.mean()) / batch.n_rows
        return NewtonState(model, theta, max(1e-6, width))

    def _on_subset(self, state: NewtonState, batch: Batch) -> NewtonState:
        """A few steps on one subset: enough to be as near as its sampling error."""
        noise = state.model.n_rows_theta / (2.0 * batch.n_rows)
        for _ in range(SUBSET_STEPS):
            state = self._newton_step(state, _Chunks(batch))
            if state.gap < 0.1 * max(noise, 1e-2 * abs(state.objective)):
                break
        return state

    def step(self, state: NewtonState, engine: Engine) -> tuple[NewtonState, Info]:
        """One step on all rows."""
        state = self._newton_step(state, engine)
        enough = self.tol * abs(state.objective)
        near = state.gap <= enough
        if state.width > enough and state.gap <= state.width * NEAR:
            # near the optimum of this envelope: the next one is closer to the loss itself
            state = replace(state, width=max(state.width * NARROWING, 0.9 * enough))
            near = False
        return state, Info(state.objective, state.gap, 1.0, near)

    def _newton_step(self, state: NewtonState, rows: Rows) -> NewtonState:
        """Sums at the point, then a full step or the best of several dampings side by side.

        Near the optimum the full step is taken on trust; when the next sums show that it
        went up, it is taken back and the dampings decide.
        """
        model, theta, width = state.model, state.theta, state.width
        stats = rows.reduce(
            lambda batch: model.stats(theta, batch, order=2, width=width), LinearStats.__add__
        )
        objective = float(stats.value.sum()) / stats.n_rows
        objective += float(model.penalty.value(theta).sum())
        trusted = state.trusted
        if trusted is not None and not objective <= trusted.objective * (1.0 + 1e-12):
            return replace(self._damped(trusted, rows), gap=np.inf)
        if not np.isfinite(objective):
            raise FloatingPointError("the objective is not finite; rescale the features or targets")
        full, gap = quadratic_minimum(model, theta, stats)
        state = replace(state, objective=objective, gap=gap, stats=stats, trusted=None)
        if gap > FULL_STEP * abs(objective) or width > 0.0:
            return self._damped(state, rows)
        return replace(state, theta=full, trusted=state, stats=None)

    @staticmethod
    def _damped(state: NewtonState, rows: Rows) -> NewtonState:
        """Go to the best of several dampings, lane by lane where lanes are independent."""
        model, width, stats = state.model, state.width, state.stats
        assert stats is not None
        bound = _curvature_bound(state, rows, stats)
        state = replace(state, bound=bound)
        top = 1.0 / width if width > 0.0 else model.loss.max_curvature
        if not np.isfinite(top):
            assert stats.hessian is not None
            top = float(np.trace(stats.hessian.mean(axis=0)) / stats.n_rows / np.trace(bound))
        points = [state.theta] + [
            quadratic_minimum(model, state.theta, stats, mu * top * bound)[0] for mu in DAMPINGS
        ]
        sums = rows.reduce(lambda batch: model.values_at(points, batch, width), np.add)
        penalties = np.stack([model.penalty.value(point) for point in points])
        if model.loss.coupled:
            penalties = penalties.sum(axis=1, keepdims=True)
        values = sums / stats.n_rows + penalties
        choice = np.argmin(np.where(np.isfinite(values), values, np.inf), axis=0)
        choice = np.broadcast_to(choice, model.n_outputs)
        best = np.stack([points[c][:, k] for k, c in enumerate(choice)], axis=1)
        return replace(state, theta=best, stats=None, trusted=None)

    def posterior(self, state: NewtonState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _for_subset(model: LinearModel, batch: Batch, n_rows: int) -> LinearModel:
    """The model with a penalty fit for a subset.

    The penalty weighs as much more as rows are missing, and a weak prior is added on what
    one feature may do to a score where it is not zero (standard deviation `PRIOR_SCORE`). A
    rare feature seen in three rows would otherwise seem to separate the classes, and a start
    from sure predictions that are wrong is where Newton's method breaks down.
    """
    d, n = model.n_features, batch.n_rows
    counts = np.maximum(column_counts(batch.X), 1)
    prior = np.zeros(model.n_rows_theta)
    prior[:d] = column_squares(batch.X) / counts / (PRIOR_SCORE**2 * n)
    factor = n_rows / n
    penalty = ElasticNet(factor * model.penalty.l2 + prior, factor * model.penalty.l1)
    return replace(model, penalty=penalty)


def subset_sizes(model: LinearModel, engine: Engine) -> list[int]:
    """Sizes of the subsets to start on: from a few rows per parameter up to a part of all."""
    n_rows = engine.n_rows
    if n_rows is None or not engine.in_memory:
        return []
    parameters = model.n_rows_theta * (model.n_outputs if model.loss.coupled else 1)
    size, sizes = max(1000, 10 * parameters), []
    while size * GROWTH / 2 <= n_rows:
        sizes.append(size)
        size *= GROWTH
    return sizes


def mean_slope_and_hessian(model: LinearModel, stats: LinearStats) -> tuple[Array, Array]:
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
        for j in np.flatnonzero(model.penalty.l2 == 0.0):
            blocks[:, j, :, j] += np.trace(blocks[:, j, :, j]) / K**2
        slope = slope.reshape(1, K * p)
    return slope, hessian


def stacked_penalty(model: LinearModel) -> ElasticNet:
    """The penalty in the shape of the independent problems."""
    times = model.n_outputs if model.loss.coupled else 1
    return ElasticNet(np.tile(model.penalty.l2, times), np.tile(model.penalty.l1, times))


def _curvature_bound(state: NewtonState, rows: Rows, stats: LinearStats) -> Array:
    """Mean of ``x x^T`` over the rows: computed when first needed, then kept."""
    if state.bound is not None:
        return state.bound
    model = state.model
    total: Array = rows.reduce(lambda batch: model.gram(batch.X, np.ones(batch.n_rows)), np.add)
    return total / stats.n_rows


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
    slopes, hessians = mean_slope_and_hessian(model, stats)
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
