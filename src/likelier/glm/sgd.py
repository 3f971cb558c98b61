"""Stochastic gradient descent, explicit or implicit: one step is one pass over the rows.

`ScheduledSGD` has a given learning rate. `AdaptiveSGD` needs none: every coordinate has a rate from
its sum of squares so far, and several global rates are run in parallel and compared by progressive
validation (each row is scored before it is learned).

A step works on a copy of its State; `learn` writes into the State itself.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix
from likelier.glm.centring import centred_chunks, column_rates, limit_rates
from likelier.glm.class_parts import over_classes
from likelier.glm.joined import joined
from likelier.glm.loops.averages import take_average
from likelier.glm.loops.centring import column_moments
from likelier.glm.loops.sgd import adaptive_pass, apply_pending, scheduled_pass
from likelier.glm.model import NO_WEIGHT, LinearModel
from likelier.glm.packed import packed, worth_packing
from likelier.glm.posterior import LinearPosterior
from likelier.glm.sgd_state import AdaptiveState, SGDState, copied
from likelier.loops.rows import Rows, all_rows, as_rows, nonzeros_per_row

NEVER = 1 << 60
PATIENCE = 3  # passes without improvement until convergence
RATE_FACTORS = 4.0 ** np.arange(-3, 5)  # eight global rates over four decades
MIN_AVERAGE_ROWS = 16
MAX_AVERAGE_ROWS = 4096
NO_AVERAGE = np.empty(0)
MAX_DEFERRED = 0.01  # shrinkage of weights up to which penalties are applied per batch


def _improvement(state: Any, loss: float, tol: float) -> bool:
    """Whether the progressive loss has stopped improving.

    It is noisy, so several passes in a row must not improve.
    """
    better = loss < state.progressive - tol * abs(state.progressive)
    state.waited = 0 if better or not math.isfinite(loss) else state.waited + 1
    state.progressive = min(state.progressive, loss)
    return bool(state.waited >= PATIENCE)


@dataclass(frozen=True)
class ScheduledSGD(Inference):
    """One rate for all coordinates: ``eta0 / t^power``; power 0 keeps it constant.

    The parameters are the mean of the iterates from step ``average_from`` on, if it is reached.
    Cost per pass: nonzeros x outputs, twice; three times with the mean.
    """

    resumable: ClassVar[bool] = True

    eta0: float = 0.01
    power: float = 0.0
    implicit: bool = True
    average_from: int = NEVER
    tol: float = 0.0

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> SGDState:
        """Start from ``theta`` or from zero."""
        return self.start(model, theta)

    def start(self, model: LinearModel, theta: Array | None = None) -> SGDState:
        """Initial State, without access to data."""
        return _fresh_state(model, theta)

    def step(self, state: SGDState, engine: Engine) -> tuple[SGDState, Info]:
        """One pass over all rows in shuffled order."""
        state, total, n_rows = copied(state), 0.0, 0.0
        for batch in joined(engine.blocks(state.n_passes)):
            total += self.learn(state, batch)
            n_rows += batch.n_rows
        state.n_passes += 1
        state.fold()
        weights = state.average if state.counters[1] > 0 else state.weights
        loss = total / n_rows + 0.5 * float(state.model.penalty.l2[0] * (weights @ weights))
        converged = _improvement(state, loss, self.tol)
        return state, Info(objective=loss, passes=1.0, converged=converged)

    def learn(self, state: SGDState, batch: Batch) -> float:
        """Learn the rows of a batch in order; return an estimate of their total loss."""
        model, X = state.model, batch.X
        rows = all_rows(X, batch.rows)
        loss_every = 8 if len(rows) >= 4096 else 1
        means = self.average_from < NEVER
        if means:
            state.sum_up()
        total = loss_every * float(
            scheduled_pass(
                *as_rows(X), rows, batch.y, _weight(batch), _norms(state, X),
                model.loss.code, model.loss.parameters, model.loss.coupled or None,
                self.implicit, model.classes,
                state.weights, state.intercept,
                state.average if means else NO_AVERAGE, state.average_intercept,
                state.counters, state.lazy, float(model.penalty.l2[0]), self.eta0, self.power,
                float(model.fit_intercept), self.average_from, loss_every,
            )
        )  # fmt: skip
        if not self.implicit:
            schedule = "constant" if self.power == 0.0 else "invscaling"
            rate = f'learning_rate="{schedule}", eta0={self.eta0:g}'
            _require_finite(total, state.weights, rate)
        return total

    def posterior(self, state: SGDState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta())


def _fresh_state(model: LinearModel, theta: Array | None) -> SGDState:
    weights, average = (np.zeros(model.n_features * model.n_outputs) for _ in range(2))
    intercept, average_intercept = (np.zeros(model.n_outputs) for _ in range(2))
    if theta is not None:
        weights[:] = theta[: model.n_features].ravel()
        if model.fit_intercept:
            intercept[:] = theta[model.n_features]
    counters = np.zeros(2, dtype=np.int64)
    return SGDState(model, weights, intercept, average, average_intercept, counters)


def _require_finite(loss: float, weights: Array, rate: str) -> None:
    """Raise if the weights have diverged."""
    if not (math.isfinite(loss) and np.isfinite(weights).all()):
        raise ValueError(
            f'the weights diverged: the steps of update="explicit" with {rate} are too long for '
            'features of this scale; set update="implicit", which is stable at every rate, or a '
            "smaller eta0, or rescale the features"
        )


def _weight(batch: Batch) -> Array:
    return NO_WEIGHT if batch.weight is None else batch.weight


def _norms(state: SGDState, X: Matrix) -> Array:
    """Squared row norms, negative until computed; cached while batches share a matrix.

    The first pass computes them while a row is in the CPU cache.
    """
    if state.norms is None or state.norms[0] is not X:
        state.norms = (X, np.full(X.shape[0], -1.0))
    return state.norms[1]


@dataclass(frozen=True)
class AdaptiveSGD(Inference):
    """A rate per coordinate, several global rates in parallel, tail averaging.

    Coordinate j has the rate ``eta sqrt(n_j) / S_j``, with ``S_j`` the sum and ``n_j`` the number
    of nonzero ``x_j^2`` so far: scores are invariant to rescaling of features. With an intercept,
    columns with a mean larger than their standard deviation are centred (`centring`), in both
    ``x_j`` and ``S_j``: scores are nearly invariant to shifts of features.

    Cost per pass: nonzeros x outputs, twice, times the number of global rates until `keep_groups`
    drops some. The classes of a one-vs-rest problem are split among threads; the result does not
    depend on their number.
    """

    resumable: ClassVar[bool] = True

    implicit: bool = True
    tol: float = 0.0
    factors: Array = field(default_factory=lambda: RATE_FACTORS)
    n_jobs: int = 1

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> AdaptiveState:
        """Start every rate from ``theta`` or from zero."""
        return self.start(model, theta)

    def start(self, model: LinearModel, theta: Array | None = None) -> AdaptiveState:
        """Initial State, without access to data."""
        d, G = model.n_features, len(self.factors)
        theta = model.zeros() if theta is None else theta
        weights = np.tile(theta[:d], (1, G)).ravel().astype(np.float64)
        intercept = np.tile(
            theta[d] if model.fit_intercept else np.zeros(model.n_outputs), G
        ).astype(np.float64)
        return AdaptiveState(
            model, weights, intercept, weights.copy(), intercept.copy(),
            np.repeat(np.asarray(self.factors, dtype=np.float64), model.n_outputs),
            np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(1),
            np.zeros(2, dtype=np.int64), np.zeros(G),
        )  # fmt: skip

    def step(self, state: AdaptiveState, engine: Engine) -> tuple[AdaptiveState, Info]:
        """One pass over all rows in shuffled order."""
        state = copied(state)
        state.group_loss[:] = 0.0
        if worth_packing(state, engine):
            n_rows = self._packed_pass(state, engine)
        else:
            n_rows = over_classes(
                state, engine, self.n_jobs, lambda part, first: self._pass(part, engine, first)
            )
        state.n_passes += 1
        penalty = float(state.model.penalty.value(state.theta()).sum())
        loss = float(state.group_loss[state.best_group()]) / n_rows + penalty
        converged = _improvement(state, loss, self.tol)
        return state, Info(objective=loss, passes=1.0, converged=converged)

    def begin(self, state: AdaptiveState, batch: Batch, engine: Engine) -> None:
        """Learn the first rows, with the classes split among the engine's threads."""

        def some(part: AdaptiveState, first_class: int) -> int:
            y = batch.y if first_class == 0 or batch.y is None else batch.y - first_class
            self.learn(part, dataclasses.replace(batch, y=y))
            return batch.n_rows

        over_classes(state, engine, self.n_jobs, some)

    def _pass(self, state: AdaptiveState, engine: Engine, first_class: int) -> int:
        """Learn every row; the classes of ``state`` begin with the given one."""
        n_rows = 0
        given: Array | None = None
        shifted: Array | None = None
        for batch in engine.blocks(state.n_passes):
            if batch.y is not given:  # blocks in memory share their targets
                given = shifted = batch.y
                if first_class > 0 and given is not None:
                    shifted = given - first_class
            self.learn(state, dataclasses.replace(batch, y=shifted))
            n_rows += batch.n_rows
        return n_rows

    def _packed_pass(self, state: AdaptiveState, engine: Engine) -> int:
        """Learn every row of dense data, packed by other threads."""
        for batch, view in packed(engine, state.n_passes):
            self._learn_view(state, batch, view, np.arange(batch.n_rows), view.n_columns)
        return int(engine.n_rows or 0)

    def learn(self, state: AdaptiveState, batch: Batch) -> None:
        """Learn the rows of a batch in order, with averages along the way."""
        X, rows = batch.X, all_rows(batch.X, batch.rows)
        self._learn_view(state, batch, as_rows(X), rows, nonzeros_per_row(X, rows))

    def _learn_view(
        self, state: AdaptiveState, batch: Batch, view: Rows, rows: Array, nonzeros: int
    ) -> None:
        first = 0
        while first < len(rows):
            # an average costs features x outputs: take fewer as the run gets longer
            stride = max(MIN_AVERAGE_ROWS, 4 * view.n_columns // nonzeros, state.counters[0] // 12)
            stride = min(stride, MAX_AVERAGE_ROWS)
            self._learn_rows(state, batch, view, rows[first : first + stride])
            first += stride
        if not self.implicit:
            best = state.best_group()
            loss = float(state.group_loss[best])
            _require_finite(loss, state.theta(best), 'learning_rate="auto"')

    def _learn_rows(self, state: AdaptiveState, batch: Batch, view: Rows, rows: Array) -> None:
        model, penalty, d = state.model, state.model.penalty, state.model.n_features
        column_moments(*view, rows, state.sums, state.squares, state.counts)
        n_rows = len(rows) + int(state.counters[0])
        rates, unit, shift = column_rates(
            state.sums, state.squares, state.counts, n_rows, model.fit_intercept
        )
        intercept_rate = unit / math.sqrt(n_rows) * model.fit_intercept
        penalised = bool(penalty.l2.any() or penalty.l1.any())
        deferred = len(rows) * state.etas.max() * (rates * penalty.l2[:d]).max(initial=0.0)
        apply_now = penalised and (deferred > MAX_DEFERRED or penalty.sparse)

        def visit(view: Rows, rows: Array, y: Array | None, weight: Array, rates: Array) -> None:
            adaptive_pass(
                *view, rows, y, weight,
                model.loss.code, model.loss.parameters, model.loss.coupled or None, self.implicit,
                model.classes, model.n_outputs,
                state.weights, state.intercept, state.etas, rates, state.seen, state.elapsed,
                penalty.l2[:d], penalty.l1[:d], apply_now, 0.0, intercept_rate,
                state.counters, state.group_loss,
            )  # fmt: skip
            if penalised:
                apply_pending(
                    state.weights, len(state.intercept), state.etas, rates, state.seen,
                    state.elapsed, penalty.l2, penalty.l1,
                )  # fmt: skip

        if shift is None:
            visit(view, rows, batch.y, _weight(batch), rates)
        else:
            state.move_origin(shift)
            for chunk, some, largest in centred_chunks(view, rows, shift):
                targets = None if batch.y is None else batch.y[some]
                weight = NO_WEIGHT if batch.weight is None else batch.weight[some]
                slow = limit_rates(rates, unit, shift, largest)
                visit(chunk, np.arange(len(some)), targets, weight, slow)
            state.move_origin(-shift)
        state.counters[1] += 1
        take_average(
            state.weights, state.intercept, 1.0, state.average, state.average_intercept,
            state.counters[1],
        )  # fmt: skip

    @staticmethod
    def keep_groups(state: AdaptiveState, n_groups: int, first: int | None = None) -> AdaptiveState:
        """Return the State of the best global rate and the next larger ones.

        Larger ones, since long runs and averages favour larger rates than short runs. ``first``
        overrides the best group.
        """
        K, d = state.model.n_outputs, state.model.n_features
        best = state.best_group() if first is None else first
        groups = slice(best, best + n_groups)
        outputs = slice(best * K, (best + n_groups) * K)

        def columns(values: Array) -> Array:
            return np.ascontiguousarray(values.reshape(d, -1)[:, outputs]).ravel()

        return AdaptiveState(
            state.model, columns(state.weights), state.intercept[outputs].copy(),
            columns(state.average), state.average_intercept[outputs].copy(),
            state.etas[outputs].copy(), state.sums, state.squares, state.counts, state.seen,
            state.elapsed, state.counters, state.group_loss[groups].copy(), state.n_passes,
            state.progressive,
        )  # fmt: skip

    def posterior(self, state: AdaptiveState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta())
