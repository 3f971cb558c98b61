"""Stochastic gradient descent, explicit or implicit: one step is one pass over the rows.

`ScheduledSGD` follows a rate the caller chose. `AdaptiveSGD` needs none: every coordinate has
its own rate from the squares it has met, and several global rates run side by side and are
compared by progressive validation (each row is scored before it is learned).

States own their arrays and a step updates them in place: the State returned is the one given.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix
from likelier.glm.centring import centred_pieces, column_rates, limited
from likelier.glm.class_parts import over_classes
from likelier.glm.joined import joined
from likelier.glm.loops.averages import take_average
from likelier.glm.loops.centring import column_moments
from likelier.glm.loops.sgd import adaptive_pass, scheduled_pass, settle
from likelier.glm.model import NO_WEIGHT, LinearModel
from likelier.glm.packed import packed, worth_packing
from likelier.glm.posterior import LinearPosterior
from likelier.glm.sgd_state import SGDState
from likelier.loops.rows import Rows, all_rows, as_rows, nonzeros_per_row

NEVER = 1 << 60
PATIENCE = 3  # passes without improvement before an inference calls it converged
RATE_FACTORS = 4.0 ** np.arange(-3, 5)  # eight global rates over four decades
MIN_AVERAGE_ROWS = 16
MAX_AVERAGE_ROWS = 4096
NO_MEAN = np.empty(0)
SMALL_DEBT = 0.01  # a penalty may be paid a little later if it shrinks weights by less


def _improvement(state: Any, loss: float, tol: float) -> bool:
    """Whether passes no longer improve the progressive loss; remembers the best.

    Its noise makes single passes seem to fail, so several in a row must.
    """
    better = loss < state.progressive - tol * abs(state.progressive)
    state.waited = 0 if better or not math.isfinite(loss) else state.waited + 1
    state.progressive = min(state.progressive, loss)
    return bool(state.waited >= PATIENCE)


@dataclass(frozen=True)
class ScheduledSGD(Inference):
    """One rate for all coordinates: ``eta0 / t^power``; power 0 keeps it constant.

    The parameters are the mean of the iterates from the ``average_from``-th on, if there is one.
    Cost per pass: nonzeros x outputs, twice; three times with the mean.
    """

    eta0: float = 0.01
    power: float = 0.0
    implicit: bool = True
    average_from: int = NEVER
    tol: float = 0.0

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> SGDState:
        """Start from ``theta`` or from zero."""
        return self.start(model, theta)

    def start(self, model: LinearModel, theta: Array | None = None) -> SGDState:
        """Return the first State; the data are not looked at yet."""
        return _fresh_state(model, theta)

    def step(self, state: SGDState, engine: Engine) -> tuple[SGDState, Info]:
        """Visit every row once in the shuffled order of this pass."""
        total = n_rows = 0.0
        for batch in joined(engine.blocks(state.n_passes)):
            total += self.learn(state, batch)
            n_rows += batch.n_rows
        state.n_passes += 1
        state.fold()
        weights = state.average if state.clock[1] > 0 else state.weights
        loss = total / n_rows + 0.5 * float(state.model.penalty.l2[0] * (weights @ weights))
        converged = _improvement(state, loss, self.tol)
        return state, Info(objective=loss, passes=1.0, converged=converged)

    def learn(self, state: SGDState, batch: Batch) -> float:
        """Learn the rows of a batch in order; return an estimate of their summed loss."""
        model, X = state.model, batch.X
        rows = all_rows(X, batch.rows)
        watch = 8 if len(rows) >= 4096 else 1
        means = self.average_from < NEVER
        if means:
            state.sum_up()
        total = watch * float(
            scheduled_pass(
                *as_rows(X), rows, batch.y, _weight(batch), _norms(state, X),
                model.loss.code, model.loss.parameters, model.loss.coupled,
                self.implicit, model.classes,
                state.weights, state.intercept,
                state.average if means else NO_MEAN, state.average_intercept,
                state.clock, state.lazy, float(model.penalty.l2[0]), self.eta0, self.power,
                float(model.fit_intercept), self.average_from, watch,
            )
        )  # fmt: skip
        if not self.implicit:
            word = "constant" if self.power == 0.0 else "invscaling"
            _require_finite(total, state.weights, f'learning_rate="{word}", eta0={self.eta0:g}')
        return total

    def posterior(self, state: SGDState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta())


def _fresh_state(model: LinearModel, theta: Array | None) -> SGDState:
    # memory of zeros is not touched before it is needed
    weights, average = (np.zeros(model.n_features * model.n_outputs) for _ in range(2))
    intercept, average_intercept = (np.zeros(model.n_outputs) for _ in range(2))
    if theta is not None:
        weights[:] = theta[: model.n_features].ravel()
        if model.fit_intercept:
            intercept[:] = theta[model.n_features]
    clock = np.zeros(2, dtype=np.int64)
    return SGDState(model, weights, intercept, average, average_intercept, clock)


def _require_finite(loss: float, weights: Array, rate: str) -> None:
    """Raise where steps have been so long that the weights have no value any more."""
    if not (math.isfinite(loss) and np.isfinite(weights).all()):
        raise ValueError(
            f'the weights grew without bound: update="explicit" with {rate} takes steps that are '
            'too long for features of this size; set update="implicit", which is stable at every '
            "rate, or a smaller eta0, or rescale the features"
        )


def _weight(batch: Batch) -> Array:
    return NO_WEIGHT if batch.weight is None else batch.weight


def _norms(state: SGDState, X: Matrix) -> Array:
    """Squared row norms, negative until a row is met; kept while batches are of one matrix.

    The first pass computes them: a row it has in the cache need not be read from the memory again.
    """
    if state.norms is None or state.norms[0] is not X:
        state.norms = (X, np.full(X.shape[0], -1.0))
    return state.norms[1]


@dataclass
class AdaptiveState:
    """Like `SGDState` with one group of outputs per global rate, and what the rates need."""

    model: LinearModel
    weights: Array
    intercept: Array
    average: Array
    average_intercept: Array
    etas: Array  # one per output
    sums: Array  # sum of x_j
    squares: Array  # sum of x_j^2
    counts: Array  # nonzeros of x_j
    seen: Array
    elapsed: Array
    clock: Array
    group_loss: Array = field(default_factory=lambda: np.zeros(1))
    n_passes: int = 0
    progressive: float = math.inf
    waited: int = 0

    @property
    def n_groups(self) -> int:
        """How many global rates are still running."""
        return len(self.intercept) // self.model.n_outputs

    def move_origin(self, shift: Array) -> None:
        """Let the intercepts be the scores of a row at ``shift`` from where they were."""
        with np.errstate(over="ignore", invalid="ignore"):  # a rate may have broken down
            self.intercept += shift @ self.weights.reshape(self.model.n_features, -1)

    def best_group(self) -> int:
        """Group of smallest progressive loss; one that broke down never wins."""
        return int(np.argmin(np.where(np.isfinite(self.group_loss), self.group_loss, np.inf)))

    def theta(self, group: int | None = None) -> Array:
        """Averaged parameters of a group, by default of the best."""
        K, best = self.model.n_outputs, self.best_group() if group is None else group
        outputs = slice(best * K, (best + 1) * K)
        W = self.average.reshape(self.model.n_features, -1)[:, outputs]
        if self.model.fit_intercept:
            return np.vstack([W, self.average_intercept[outputs]])
        return W.copy()  # the next pass goes on with its own


@dataclass(frozen=True)
class AdaptiveSGD(Inference):
    """A rate per coordinate, several global rates side by side, tail averaging.

    Coordinate j moves with ``eta sqrt(n_j) / S_j``, ``S_j`` the sum and ``n_j`` the count of
    the nonzero ``x_j^2`` so far: scores do not change when a feature is rescaled. With an
    intercept, columns whose mean exceeds their spread are seen around it (`centring`), in
    both ``x_j`` and ``S_j``: scores hardly change when a feature is moved.

    Cost per pass: nonzeros x outputs, twice; the search over rates multiplies the outputs by the
    number of rates, until `keep_groups` drops the losers. Threads share the classes of a
    one-vs-rest problem, with the same result.
    """

    implicit: bool = True
    tol: float = 0.0
    factors: Array = field(default_factory=lambda: RATE_FACTORS)
    n_jobs: int = 1

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> AdaptiveState:
        """Start every rate from ``theta`` or from zero."""
        return self.start(model, theta)

    def start(self, model: LinearModel, theta: Array | None = None) -> AdaptiveState:
        """Return the first State; the data are not looked at yet."""
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
        """Visit every row once in the shuffled order of this pass."""
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
        """Learn the first rows with a fresh State, the classes shared by the engine's threads."""

        def some(part: AdaptiveState, first_class: int) -> int:
            y = batch.y if first_class == 0 or batch.y is None else batch.y - first_class
            self.learn(part, dataclasses.replace(batch, y=y))
            return batch.n_rows

        over_classes(state, engine, self.n_jobs, some)

    def _pass(self, state: AdaptiveState, engine: Engine, first_class: int) -> int:
        """Learn every row; ``state`` has the classes from the given one on."""
        n_rows = 0
        given: Array | None = None
        shifted: Array | None = None
        for batch in engine.blocks(state.n_passes):
            if batch.y is not given:  # the blocks of data in memory share their targets
                given = shifted = batch.y
                if first_class > 0 and given is not None:
                    shifted = given - first_class
            self.learn(state, dataclasses.replace(batch, y=shifted))
            n_rows += batch.n_rows
        return n_rows

    def _packed_pass(self, state: AdaptiveState, engine: Engine) -> int:
        """Learn every row of dense data without its zeros; other threads prepare them."""
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
            # averages cost features x outputs each: less often as the run gets longer
            stride = max(MIN_AVERAGE_ROWS, 4 * view.n_columns // nonzeros, state.clock[0] // 12)
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
        n_rows = len(rows) + int(state.clock[0])
        rates, unit, shift = column_rates(
            state.sums, state.squares, state.counts, n_rows, model.fit_intercept
        )
        intercept_rate = unit / math.sqrt(n_rows) * model.fit_intercept
        penalised = bool(penalty.l2.any() or penalty.l1.any())
        debt = len(rows) * state.etas.max() * (rates * penalty.l2[:d]).max(initial=0.0)
        pay_now = penalised and (debt > SMALL_DEBT or penalty.sparse)

        def visit(view: Rows, rows: Array, y: Array | None, weight: Array, rates: Array) -> None:
            adaptive_pass(
                *view, rows, y, weight,
                model.loss.code, model.loss.parameters, model.loss.coupled, self.implicit,
                model.classes, model.n_outputs,
                state.weights, state.intercept, state.etas, rates, state.seen, state.elapsed,
                penalty.l2[:d], penalty.l1[:d], pay_now, 0.0, intercept_rate,
                state.clock, state.group_loss,
            )  # fmt: skip
            if penalised:
                settle(
                    state.weights, len(state.intercept), state.etas, rates, state.seen,
                    state.elapsed, penalty.l2, penalty.l1,
                )  # fmt: skip

        if shift is None:
            visit(view, rows, batch.y, _weight(batch), rates)
        else:
            state.move_origin(shift)
            for piece, some, largest in centred_pieces(view, rows, shift):
                told = None if batch.y is None else batch.y[some]
                weight = NO_WEIGHT if batch.weight is None else batch.weight[some]
                slow = limited(rates, unit, shift, largest)
                visit(piece, np.arange(len(some)), told, weight, slow)
            state.move_origin(-shift)
        state.clock[1] += 1
        take_average(
            state.weights, state.intercept, 1.0, state.average, state.average_intercept,
            state.clock[1],
        )  # fmt: skip

    @staticmethod
    def keep_groups(state: AdaptiveState, n_groups: int, first: int | None = None) -> AdaptiveState:
        """Return the State with only the best global rate and the next larger ones in it.

        Larger ones because a long run, and an average, want larger rates than a short one.
        ``first`` overrides which rate is the best.
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
            state.elapsed, state.clock, state.group_loss[groups].copy(), state.n_passes,
            state.progressive,
        )  # fmt: skip

    def posterior(self, state: AdaptiveState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta())
