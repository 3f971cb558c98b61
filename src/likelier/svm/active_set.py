"""Primal-dual active set method: few factorisations instead of millions of pair updates.

Pair updates converge slowly if thousands of coefficients lie between their bounds and the kernel
matrix is ill conditioned (large ``C``). Here every row has a status: at zero, on a bound, or free
on one side of zero. Given the statuses, the free coefficients are the solution of one linear
system. Then a free coefficient outside of its interval is fixed at the end that it passed, and a
fixed one whose residual violates optimality becomes free: a semismooth Newton method
(Hintermüller, Ito, Kunisch, 2002). Near the optimum it converges in a few steps; far from it, it
may cycle. Therefore the distance from the current point is penalised by a ridge on the kernel
matrix, which decreases from one solution to the next (the proximal point method: the objective
improves monotonically).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.linalg import lapack

from likelier.base import Array
from likelier.svm.loops.smo import on_bounds
from likelier.svm.model import PANEL, Box, Subset, dual_objective
from likelier.svm.newton import RIDGE
from likelier.svm.state import (
    SMOState,
    blockwise_product,
    gap_of,
    residuals,
    whole_part,
)

EXPECTED_STEPS = 6  # expected number of steps, for the cost estimate
MAX_STEPS = 80  # budget in steps of the initial size; with fewer free rows steps cost less
MIN_STEP_COST = 0.05  # minimum cost of a step, relative to the first
MAX_TRIES = 30  # steps with one ridge
MAX_STALLED = 3  # consecutive steps without a decrease in the number of status changes
MAX_CHANGED_FRACTION = 2.0 / 3.0  # fraction of rows; a step that changes more statuses has failed
# The ridge, relative to that at which a residual equal to the violation moves a coefficient from
# bound to bound: initial value, factor after a failure, factor after a success.
FIRST_RIDGE, RIDGE_INCREASE, RIDGE_DECREASE = 1e-3, 10.0, 0.1
RIDGE_DECAY = 0.7  # decay, per success, of the ridge regarded as too small
MAX_FAILED = 6  # consecutive failures
FEW_STEPS = 2  # a success in so few steps divides the ridge by 1000
MAX_ROWS = 40_000  # free coefficients; limited by 32-bit indices in LAPACK
SLACK = 0.25  # of the tolerance: a smaller violation changes no status


def active_set_cost(state: SMOState, n_free: int) -> float:
    """Estimated time in nanoseconds, to compare with pair updates.

    Infinite if the factor does not fit in the memory of the kernel rows.
    """
    if n_free > MAX_ROWS or 8 * _packed_size(n_free) > state.cache.n_bytes:
        return inf
    n, kernel = len(state.beta), state.rows.exact.kernel
    value = 5.0 if kernel.precomputed else 5.0 + 0.1 * state.rows.exact.X.shape[1]
    return EXPECTED_STEPS * (0.01 * float(n_free) ** 3 + value * n_free * (n + 0.5 * n_free))


def solve_active_set(state: SMOState, stopped: Callable[[], bool] | None = None) -> bool:
    """Solve the whole problem from the current coefficients; return whether it converged.

    The coefficients never get worse. Afterwards all rows are active, their residuals are exact, and
    no kernel rows are cached, because the factor uses their memory. Cost per step: a Cholesky
    factorisation of the free rows, and kernel values of all rows with these.
    """
    beta = state.coefficients()
    F = residuals(state, beta)
    room = state.cache.lend()
    _set_point(state, beta, F)
    beta, F, converged = _improve(state, room, stopped)
    _set_point(state, beta, F)
    return converged


def _set_point(state: SMOState, beta: Array, F: Array) -> None:
    """Set coefficients and their exact residuals, with all rows active."""
    state.beta, state.anchor, state.F, state.drift = beta, beta.copy(), F, 0.0
    state.part = whole_part(state.box, beta, F)
    state.gap = gap_of(state.part)


def _improve(
    state: SMOState, room: Array, stopped: Callable[[], bool] | None
) -> tuple[Array, Array, bool]:
    """Improved coefficients, their residuals, and whether they are within the tolerance."""
    box, beta, F = state.box, state.beta, state.F
    width = box.upper - box.lower
    ridge = FIRST_RIDGE * state.gap / float(np.median(width[width > 0.0]))
    n_first = _count_free(box, beta)
    budget, n_failed, too_small = float(MAX_STEPS), 0, 0.0
    while budget > 0.0 and n_failed < MAX_FAILED and not (stopped is not None and stopped()):
        solution, used = _proximal_point(state, beta, F, ridge, room, stopped)
        budget -= used * max((_count_free(box, beta) / n_first) ** 2, MIN_STEP_COST)
        if solution is None or dual_objective(box, *solution) < _slightly_below(box, beta, F):
            ridge, n_failed, too_small = ridge * RIDGE_INCREASE, n_failed + 1, ridge
            continue
        (beta, F), n_failed = solution, 0
        if gap_of(whole_part(box, beta, F)) <= state.tol:
            return beta, F, True
        too_small *= RIDGE_DECAY
        ridge = (
            max(RIDGE_DECREASE * ridge, too_small)
            if used > FEW_STEPS
            else RIDGE_DECREASE**3 * ridge
        )
    return beta, F, False


def _slightly_below(box: Box, beta: Array, F: Array) -> float:
    """The objective minus a rounding tolerance."""
    value = dual_objective(box, beta, F)
    return value - 1e-12 * abs(value)


def _proximal_point(
    state: SMOState, centre: Array, F: Array, ridge: float, room: Array,
    stopped: Callable[[], bool] | None,
) -> tuple[tuple[Array, Array] | None, int]:  # fmt: skip
    """The proximal point: optimum with a penalty ``ridge / 2`` times squared distance to a centre.

    Returns coefficients and residuals, or None if not found, and the number of steps.
    """
    box, beta, F = state.box, centre.copy(), F.copy()
    statuses = _statuses(box, beta)
    fewest, n_worse = len(beta) + 1, 0
    for k in range(1, MAX_TRIES + 1):
        if stopped is not None and stopped():
            return None, k
        is_free = abs(statuses) == 1
        free = np.flatnonzero(is_free)
        held = np.select([statuses == 2, statuses == -2], [box.upper, box.lower], 0.0)
        _move(state, beta, F, np.where(is_free, 0.0, held - beta))
        factor = PackedFactor.of(state.rows, free, room, ridge)
        gradient = F - ridge * (beta - centre)
        solution = factor and factor.solve(
            (gradient - box.eps * statuses)[free], -float(beta.sum())
        )
        if not solution:
            return None, k
        step, level = np.zeros(len(beta)), solution[1]
        step[free] = solution[0]
        _move(state, beta, F, step)
        gradient = F - ridge * (beta - centre) - level
        new = _next_statuses(box, statuses, beta, gradient, SLACK * state.tol)
        n_changed = int(np.count_nonzero(new != statuses))
        if n_changed == 0:
            return (on_bounds(beta, box.lower, box.upper), F), k
        n_worse = n_worse + 1 if n_changed >= fewest else 0
        fewest, statuses = min(fewest, n_changed), new
        if n_worse > MAX_STALLED or n_changed > MAX_CHANGED_FRACTION * len(beta):
            return None, k
    return None, MAX_TRIES


def _move(state: SMOState, beta: Array, F: Array, step: Array) -> None:
    """Move coefficients and update the residuals exactly, in place."""
    some = np.flatnonzero(step)
    if len(some):
        F -= blockwise_product(state.cache, state.rows.block, some, step[some])
        beta += step


def _statuses(box: Box, beta: Array) -> Array:
    """Status of coefficients: -2 and 2 on a bound, 0 at zero, -1 and 1 free with that sign."""
    on_bound = ((beta <= box.lower) | (beta >= box.upper)) & (beta != 0.0)
    return np.asarray(np.sign(beta) * (1 + on_bound), dtype=np.int8)


def _count_free(box: Box, beta: Array) -> int:
    """Number of coefficients between their bounds, at least one."""
    return max(1, int(np.count_nonzero(abs(_statuses(box, beta)) == 1)))


def _next_statuses(box: Box, statuses: Array, beta: Array, gradient: Array, slack: float) -> Array:
    """Statuses after a step, from coefficients and residuals."""
    eps, new = box.eps, statuses.copy()
    rising, falling = statuses == 1, statuses == -1
    new[(rising & (beta <= 0.0)) | (falling & (beta >= 0.0))] = 0
    if eps == 0.0:  # zero is only special if it is a bound
        new[rising & (beta < 0.0) & (box.lower < 0.0)] = -1
        new[falling & (beta > 0.0) & (box.upper > 0.0)] = 1
    new[rising & (beta >= box.upper)] = 2
    new[falling & (beta <= box.lower)] = -2
    new[(statuses == 0) & (gradient > eps + slack) & (box.upper > 0.0)] = 1
    new[(statuses == 0) & (gradient < -eps - slack) & (box.lower < 0.0)] = -1
    new[(statuses == 2) & (gradient < eps - slack)] = 1
    new[(statuses == -2) & (gradient > slack - eps)] = -1
    return new


def _packed_size(n: int) -> int:
    """Entries of a triangle including its diagonal."""
    return n * (n + 1) // 2


@dataclass(frozen=True)
class PackedFactor:
    """Cholesky factor of the kernel matrix of some rows, in half the memory of a square matrix.

    In LAPACK's rectangular full packed format, as fast as a full matrix: with the second half of
    the rows from ``half`` on, line ``c`` has their row ``c`` up to its diagonal, and then row ``c``
    of all rows from its diagonal on.
    """

    values: Array
    n_rows: int

    @classmethod
    def of(cls, rows: Subset, chosen: Array, room: Array, ridge: float) -> PackedFactor | None:
        """Factorise in ``room``; None if it is too small or the matrix not positive definite."""
        n = len(chosen)
        size = _packed_size(n)
        if not 2 <= n <= MAX_ROWS or size > len(room):
            return None
        values, trace = room[:size], 0.0
        half, even = (n + 1) // 2, 1 - n % 2
        lines = values.reshape(half, n + even)
        for start in range(0, half, PANEL):
            stop = min(start + PANEL, half)
            later = half + even - 1  # line c has row ``later + c`` of the second half
            upper = rows.block(chosen[start:stop], chosen[start:])
            first = max(start, 1 - even)
            lower = rows.block(chosen[later + first : later + stop], chosen[half : later + stop])
            for c in range(start, stop):
                lines[c, c + even :] = upper[c - start, c - start :]
                trace += upper[c - start, c - start]
                if c + even > 0:
                    lines[c, : c + even] = lower[c - first, : c + even]
                    trace += lower[c - first, c + even - 1]
        for c in range(half):
            lines[c, c + even] += ridge + RIDGE * trace
            if c + even > 0:
                lines[c, c + even - 1] += ridge + RIDGE * trace
        factor, failed = lapack.dpftrf(n, values, transr="N", uplo="L", overwrite_a=1)
        return None if failed else cls(factor, n)

    def solve(self, r: Array, total: float) -> tuple[Array, float] | None:
        """Solve ``K d + b 1 = r``, ``sum d = total`` for ``d`` and ``b``; None if singular."""
        sides = np.ones((self.n_rows, 2), order="F")
        sides[:, 0] = r
        both, _ = lapack.dpftrs(
            self.n_rows, self.values, sides, transr="N", uplo="L", overwrite_b=1
        )
        weight = both[:, 1].sum()
        if not weight > 0.0:
            return None
        level = float((both[:, 0].sum() - total) / weight)
        step = both[:, 0] - level * both[:, 1]
        return (step, level) if np.isfinite(step).all() else None
