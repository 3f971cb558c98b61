"""SMO with shrinking: the exact dual of kernel machines, by bursts of pair updates.

A step runs a burst of pair updates, fetching kernel rows in blocks when the compiled loop needs
one. Kernel rows are float32; residuals are float64 and, if rounding could matter at the tolerance,
are recomputed from float64 kernel values at the end of a round. Further updates then correct the
rounding errors (iterative refinement), so the optimum is that of the float64 problem. Between
bursts the problem is shrunk, and a Newton step on the free coefficients is tried if pair updates
have become slow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import ClassVar

import numpy as np

from likelier.base import Array, Engine, Inference, Info
from likelier.kernels import Prepared
from likelier.svm.active_set import active_set_cost, solve_active_set
from likelier.svm.kernel_cache import BufferPool, RowCache, Run, in_precision
from likelier.svm.kernel_values import KnownValues, SubmatrixValues
from likelier.svm.loops.smo import CONVERGED, NEEDS_ROW, smo_updates
from likelier.svm.model import KernelExpansion, Subset, dual_objective
from likelier.svm.newton import MAX_FREE, newton_cost
from likelier.svm.saved_state import SavedState
from likelier.svm.solution import KernelPosterior
from likelier.svm.state import (
    SMOState,
    float32_too_coarse,
    free_rows,
    gap_of,
    intercept,
    movable_and_free,
    movable_rows,
    moved_length,
    newton_step,
    residuals,
    rounding_matters,
    rows_to_fetch,
    set_coefficients,
    whole_part,
)
from likelier.svm.watch import Watch

MIN_BURST = 1000
SHORT_BURST = 1500  # with a stored matrix, where pauses and shrinking cost little
# With float32 kernel values, tighter tolerances ensure that the exact residuals are within `tol`:
UPDATE_FACTOR = 0.9  # factor for pair updates
ALL_ROWS_FACTOR = 0.95  # factor for the check of all rows
MAX_REMAINING_FRACTION = 0.7  # shrink if at most this fraction of the rows remains
PATIENCE = 2.0  # work of pair updates, relative to a Newton step, before one is tried
MAX_STEPS = 5  # consecutive Newton steps
MAX_ROUNDS = 30
SMALL = 256  # rows up to which float64 and polishing beyond the tolerance are free
FEW = 1024  # rows up to which polishing beyond the tolerance is cheap
MAX_POLISH = 10
# Nanoseconds of work after which the cache of a single problem is emptied, so that a checkpoint
# needs no kernel rows; at least so much, and so much relative to making all of its rows again.
MIN_WORK_SAVED, WORK_PER_REFILL = 2e9, 10.0
LARGE = 1e35  # kernel values beyond which float32 could overflow


@dataclass(frozen=True)
class SMO(Inference):
    """Second-order working set selection with shrinking; rows in memory only.

    It is ``local_only``, as are its variants (`likelier.svm.path`, `small`, `active_set`): an
    update addresses two single rows of one kernel matrix, and changes the residuals of all rows.

    Parameters
    ----------
    tol : float
        Tolerance of the optimality conditions.
    max_iter : int
        Maximum number of pair updates; -1 for no limit.
    shrinking : bool
        Whether to remove rows that cannot move from the active set.
    cache_bytes : int
        Memory for kernel rows.
    run, n_parts : callable and int
        Threads for blocks of kernel rows, see `RowCache`.
    watch : Watch, optional
        Sees every step, and may end a solve early.

    Notes
    -----
    Cost per pair update: two passes over the active rows. Memory: ``cache_bytes`` and a few numbers
    per row.
    """

    local_only: ClassVar[bool] = True

    tol: float = 1e-3
    max_iter: int = -1
    shrinking: bool = True
    cache_bytes: int = 200 << 20
    run: Run | None = None
    n_parts: int = 1
    watch: Watch | None = None

    def init(self, model: KernelExpansion, engine: Engine, theta: Array | None = None) -> SMOState:
        """Start from the coefficients and intercept in ``theta``, or from zero."""
        batches = list(engine.blocks(0))  # batches of one matrix
        batch = batches[0]
        rows = np.sort(np.concatenate([np.asarray(b.rows) for b in batches]))
        assert batch.y is not None
        weight = None if batch.weight is None else batch.weight[rows]
        X = batch.X if len(rows) == batch.X.shape[0] else batch.X[rows]
        start = None if theta is None else theta[:-1, 0]
        return self.start(model, Subset(model.kernel.prepare(X)), batch.y[rows], weight, start)

    def start(
        self, model: KernelExpansion, rows: Subset, y: Array, weight: Array | None = None,
        beta: Array | None = None, cache: RowCache | None = None,
    ) -> SMOState:  # fmt: skip
        """Initial state for prepared rows; a cache of the same rows may be reused."""
        box = model.box(y, weight)
        n = len(box.target)
        cache = cache or self.cache(rows)
        state = SMOState(
            model, box, rows, cache, np.zeros(n), np.zeros(n), box.target.copy(),
            whole_part(box, np.zeros(n), box.target), self.tol,
        )  # fmt: skip
        if beta is not None:
            set_coefficients(state, np.clip(beta, box.lower, box.upper))
        return state

    def cache(
        self, rows: Subset, exact: bool = False, memory: BufferPool | None = None
    ) -> RowCache:
        """Cache of kernel rows, in float32 unless there are few or they must be exact."""
        exact = exact or rows.n_rows <= SMALL or float32_too_coarse(rows)
        kind = np.float64 if exact else np.float32
        working: Prepared | KnownValues
        if rows.exact.kernel.precomputed:  # values are copied from the given matrix
            indices = np.arange(rows.n_rows) if rows.inside is None else rows.inside
            working = SubmatrixValues(np.asarray(rows.exact.X), indices)
        elif exact:
            working = rows.take(rows.exact)
        elif rows.made is not None:
            working = rows.made
        elif rows.working is None:
            working = in_precision(rows.take(rows.exact), np.float32, self.cache_bytes)
        else:
            working = rows.take(rows.working)
        cache = RowCache(working, self.cache_bytes, self.run, self.n_parts, memory, kind)
        if exact or cache.scale < LARGE:
            return cache
        return self.cache(rows, True, memory)

    def step(self, state: SMOState, engine: Engine | None = None) -> tuple[SMOState, Info]:
        """Run a burst of pair updates, then end the round or shrink or try a Newton step."""
        if not state.done:
            before = state.n_iter
            if self._burst(state) == CONVERGED:
                self._end_round(state)
            elif 0 <= self.max_iter <= state.n_iter:
                _stop_early(state, "max_iter")
            else:
                self._accelerate(state)
            passes = 2.0 * (state.n_iter - before) / len(state.beta)
        else:
            passes = 0.0
        converged = state.done and not state.message
        part = state.part
        objective = dual_objective(state.box, state.beta, state.F) if state.done else np.nan
        if not state.done:
            objective = float(part.beta @ part.F)  # of the active rows, for progress only
        return state, Info(objective, state.gap, passes, converged, state.message)

    def solve(self, state: SMOState, later: tuple[float, ...] = ()) -> KernelPosterior:
        """Step until done, or until the watch ends it with what it has.

        ``later`` are values of C of the problems that will start from the solution.
        """
        watch = self.watch
        while not state.done:
            if watch is not None and watch.stopped():
                _stop_early(state, "stopped")
                break
            before = state.work
            _, info = self.step(state)
            if watch is None or state.done:
                continue
            watch.step(info)
            state.since_emptied += state.work - before
            if watch.single and state.since_emptied > _work_before_emptying(state):
                state.since_emptied = 0.0
                state.cache.empty(state.part.rows)
                watch.keep(partial(SavedState.of, state, later))
        return self.posterior(state)

    def resume(
        self, saved: SavedState, model: KernelExpansion, rows: Subset, y: Array,
        weight: Array | None = None, memory: BufferPool | None = None,
    ) -> SMOState:  # fmt: skip
        """The state of a problem that a checkpoint holds."""
        cache = self.cache(rows, saved.exact, memory)
        state = self.start(replace(model, C=saved.C), rows, y, weight, None, cache)
        saved.restore(state)
        return state

    def posterior(self, state: SMOState) -> KernelPosterior:
        """The current coefficients and their intercept."""
        beta = state.coefficients()
        F = state.F
        if not state.done:  # residuals of inactive rows are outdated
            F = residuals(state, beta)
        return KernelPosterior(
            state.model, state.rows, beta, intercept(state.box, beta, F), state.n_iter,
            state.gap, dual_objective(state.box, beta, F), state.done and not state.message,
        )  # fmt: skip

    # -- inside a round ------------------------------------------------------------------
    def _burst(self, state: SMOState) -> int:
        """Pair updates until convergence or the end of the budget."""
        part, cache, eps = state.part, state.cache, state.box.eps
        aim = state.tol if cache.dtype == np.float64 else UPDATE_FACTOR * state.tol
        diagonal = cache.active_diagonal
        left = max(len(part.F), MIN_BURST) if cache.whole is None else SHORT_BURST
        if self.max_iter >= 0:
            left = min(left, self.max_iter - state.n_iter)
        while True:
            held = cache.n_used
            status, count, wanted, gap = smo_updates(
                part.F, part.beta, part.lower, part.upper, eps, part.up, part.down, diagonal,
                aim, left, cache.slots, cache.slot_of, cache.row_of, cache.stamps, cache.budget,
                cache.count, *cache.row_source,
            )  # fmt: skip
            left -= count
            state.n_iter += count
            state.since_shrink += count
            made = 1.5 * (cache.n_used - held) * len(part.F)
            spent = count * (len(part.F) + 150.0)
            state.work += spent + made
            state.since_newton += spent
            if isfinite(gap):
                state.gap = gap
            if status != NEEDS_ROW:
                return int(status)
            rows = rows_to_fetch(part, cache, wanted)
            cache.fetch(rows)
            state.work += 1.5 * len(rows) * len(part.F)

    def _accelerate(self, state: SMOState) -> None:
        """Between bursts: shrink, or try a Newton step."""
        part = state.part
        movable, between = movable_and_free(part, state.box.eps)
        if self.shrinking and state.since_shrink > _min_updates_before_shrinking(state):
            state.since_shrink = 0
            keep = movable.nonzero()[0]
            if len(keep) <= MAX_REMAINING_FRACTION * len(part.F):
                state.beta[part.rows] = part.beta
                state.part, between = part.take(keep), between[keep]
                state.cache.keep(keep)
        free = between.nonzero()[0]
        if len(free) > MAX_FREE:
            self._try_active_set(state, len(free))
            return
        cost = newton_cost(len(free), len(state.part.F))
        if state.since_newton > PATIENCE * cost:
            state.since_newton, state.polished_at = 0.0, state.n_iter
            _newton_steps(state, free)

    def _try_active_set(self, state: SMOState, n_free: int) -> None:
        """Try the active set method once pair updates have cost as much as it would."""
        cost = active_set_cost(state, n_free)
        if state.since_newton <= state.patience * cost:
            return
        state.since_newton, state.since_shrink = 0.0, 0
        state.work += cost
        state.done = solve_active_set(state, None if self.watch is None else self.watch.stopped)
        state.patience *= 2.0  # it may fail again

    # -- between rounds ------------------------------------------------------------------
    def _end_round(self, state: SMOState) -> None:
        """Check convergence of all rows after that of the active ones."""
        if _polish(state):
            return
        shrunk = len(state.part.F) < len(state.beta)
        matters, length = rounding_matters(state), moved_length(state)
        state.beta[state.part.rows] = state.part.beta
        if not (shrunk or matters):
            state.drift = length
            state.F, state.anchor = state.part.F, state.beta.copy()
            state.done = True
            return
        state.F = residuals(state, state.beta, exact=matters)
        state.drift = 0.0 if matters else length
        state.anchor = state.beta.copy()
        state.rounds += 1
        part = whole_part(state.box, state.beta, state.F)
        state.gap = gap_of(part)
        state.history.append(state.gap)
        single = state.cache.dtype == np.float32 and not matters
        if state.gap <= (ALL_ROWS_FACTOR if single else 1.0) * state.tol:
            state.done = True
        elif state.rounds >= MAX_ROUNDS:
            state.done, state.message = True, "rounding"
        else:
            state.part = part
            state.since_shrink = 0
            self._next_round(state)

    def _next_round(self, state: SMOState) -> None:
        """Continue with all rows, or with the movable ones; in float64 if progress is slow."""
        slow = len(state.history) >= 4 and state.history[-1] > 0.5 * state.history[-3]
        if slow and state.cache.dtype == np.float32:
            state.cache = self.cache(state.rows, exact=True)
        state.cache.restart()
        keep = movable_rows(state.part, state.box.eps)
        if self.shrinking and len(keep) <= 0.5 * len(state.part.F):
            state.part = state.part.take(keep)
            state.cache.keep(keep)


def _stop_early(state: SMOState, message: str) -> None:
    """Stop before convergence, with exact residuals for the intercept and the reported gap.

    Residuals of inactive rows are outdated, and those from float32 rows may have drifted.
    """
    state.beta[state.part.rows] = state.part.beta
    state.F = residuals(state, state.beta)
    state.drift, state.anchor = 0.0, state.beta.copy()
    state.part = whole_part(state.box, state.beta, state.F)
    state.gap = gap_of(state.part)
    state.done, state.message = True, message


def _work_before_emptying(state: SMOState) -> float:
    """Work between two times that the cache is emptied: making its rows again is a fraction."""
    return max(MIN_WORK_SAVED, WORK_PER_REFILL * state.cache.refill_work)


def _newton_steps(state: SMOState, free: Array) -> None:
    """Repeat full Newton steps until convergence, at most `MAX_STEPS`."""
    for _ in range(MAX_STEPS):
        if not newton_step(state, free) or state.gap <= UPDATE_FACTOR * state.tol:
            break
        free = free_rows(state.part, state.box.eps)


def _polish(state: SMOState) -> bool:
    """A final Newton step if it is cheap relative to the work so far; whether it was tried.

    It makes the solution more accurate than the tolerance; further pair updates handle other rows.
    """
    n, held = len(state.beta), state.cache.whole is not None
    most = MAX_POLISH if held or n <= FEW else 1
    if state.polished_at == state.n_iter or state.n_polished >= most:
        return False
    free = free_rows(state.part, state.box.eps)
    state.polished_at = state.n_iter
    state.n_polished += 1
    fraction = 1.0 if held else 0.5 / state.n_polished  # with a stored matrix, work is updates only
    if n <= SMALL or newton_cost(len(free), len(state.part.F)) < fraction * state.work:
        newton_step(state, free)
        return True
    return False


def _min_updates_before_shrinking(state: SMOState) -> float:
    """Updates before shrinking, so that its cost is amortised."""
    if state.cache.whole is not None:
        return 0.0
    return float(max(MIN_BURST, state.cache.n_used))
