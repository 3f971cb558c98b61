"""Primal-dual active sets: few factorisations in place of millions of pairs.

Where thousands of coefficients lie between their bounds and the kernel matrix is ill conditioned
(large ``C``), pairs creep. Here every row has a place: at zero, on a bound, or free on one side
of zero. Given the places, the free coefficients are the solution of one linear system. Then a
free coefficient that has left its side goes to the end it passed, and one that is held where its
residual does not hold it becomes free: a semismooth Newton method (Hintermüller, Ito, Kunisch,
2002). Near the optimum it settles in a few steps; far from it, it may go round in circles. Then
it looks for the optimum with a price on the distance from where it is, a ridge on the kernel
matrix, and goes on from there with a smaller one (the proximal point method: each of these
points is better than the last).
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

EXPECTED = 6  # steps from where pairs have led to
MAX_STEPS = 80  # before pairs go on, of the size of the first; fewer free rows make them cheaper
CHEAPEST = 0.05
MAX_TRIES = 30  # steps with one ridge
MAX_WORSE = 3  # steps in a row that may change as many places as one before did
HOPELESS = 2.0 / 3.0  # share of all rows: if a step changes the places of more, it says nothing
# The ridge, in the size at which a residual as large as the violation moves a coefficient from
# bound to bound: little at first, more where steps lead nowhere, less where they lead on.
FIRST, HARDER, SOFTER = 1e-3, 10.0, 0.1
FORGIVEN = 0.7  # of a ridge that was too small, what is so after every success
MAX_FAILED = 6  # ridges in a row that did not help
FEW_STEPS = 2  # after which the ridge may be a thousandth of what it was
MAX_ROWS = 40_000  # free coefficients whose pairs LAPACK can count
SLACK = 0.25  # of the tolerance: a smaller violation changes no place


def places_cost(state: SMOState, n_free: int) -> float:
    """Rough time of the expected steps in nanoseconds, to compare with pair updates.

    Infinite where the factor would not find room in the memory of the kernel rows.
    """
    if n_free > MAX_ROWS or 8 * _packed_size(n_free) > state.cache.n_bytes:
        return inf
    n, kernel = len(state.beta), state.rows.exact.kernel
    value = 5.0 if kernel.precomputed else 5.0 + 0.1 * state.rows.exact.X.shape[1]
    return EXPECTED * (0.01 * float(n_free) ** 3 + value * n_free * (n + 0.5 * n_free))


def solve_places(state: SMOState, stopped: Callable[[], bool] | None = None) -> bool:
    """Solve the whole problem by places, from the coefficients as they are; False if in vain.

    Then the coefficients are not worse than before. In either case all rows are active, their
    residuals exact and no kernel row is held: the factor takes the place of these. Cost per step:
    a Cholesky factorisation of the free rows, and kernel values of all rows with these.
    """
    beta = state.coefficients()
    F = residuals(state, beta)
    room = state.cache.lend()
    _go_on_from(state, beta, F)
    beta, F, converged = _solved(state, room, stopped)
    _go_on_from(state, beta, F)
    return converged


def _go_on_from(state: SMOState, beta: Array, F: Array) -> None:
    """Coefficients and their exact residuals, with all rows active."""
    state.beta, state.anchor, state.F, state.drift = beta, beta.copy(), F, 0.0
    state.part = whole_part(state.box, beta, F)
    state.gap = gap_of(state.part)


def _solved(
    state: SMOState, room: Array, stopped: Callable[[], bool] | None
) -> tuple[Array, Array, bool]:
    """Better coefficients, their residuals, and whether they are within the tolerance."""
    box, beta, F = state.box, state.beta, state.F
    width = box.upper - box.lower
    ridge = FIRST * state.gap / float(np.median(width[width > 0.0]))
    n_first = _count_free(box, beta)
    left, n_failed, too_small = float(MAX_STEPS), 0, 0.0
    while left > 0.0 and n_failed < MAX_FAILED:
        found, used = _settled(state, beta, F, ridge, room, stopped)
        left -= used * max((_count_free(box, beta) / n_first) ** 2, CHEAPEST)
        if found is None or dual_objective(box, *found) < _hardly_below(box, beta, F):
            ridge, n_failed, too_small = ridge * HARDER, n_failed + 1, ridge
            continue
        (beta, F), n_failed = found, 0
        if gap_of(whole_part(box, beta, F)) <= state.tol:
            return beta, F, True
        too_small *= FORGIVEN
        ridge = max(SOFTER * ridge, too_small) if used > FEW_STEPS else SOFTER**3 * ridge
    return beta, F, False


def _hardly_below(box: Box, beta: Array, F: Array) -> float:
    """The objective but for rounding."""
    value = dual_objective(box, beta, F)
    return value - 1e-12 * abs(value)


def _settled(
    state: SMOState, centre: Array, F: Array, ridge: float, room: Array,
    stopped: Callable[[], bool] | None,
) -> tuple[tuple[Array, Array] | None, int]:  # fmt: skip
    """The optimum if ``ridge / 2`` times the squared distance from a centre has to be paid.

    Coefficients and residuals, or None if it is not found; and the number of steps.
    """
    box, beta, F = state.box, centre.copy(), F.copy()
    place = _places(box, beta)
    fewest, n_worse = len(beta) + 1, 0
    for k in range(1, MAX_TRIES + 1):
        if stopped is not None and stopped():
            raise KeyboardInterrupt
        is_free = abs(place) == 1
        free = np.flatnonzero(is_free)
        held = np.select([place == 2, place == -2], [box.upper, box.lower], 0.0)
        _move(state, beta, F, np.where(is_free, 0.0, held - beta))
        factor = PackedFactor.of(state.rows, free, room, ridge)
        pull = F - ridge * (beta - centre)
        found = factor and factor.solve((pull - box.eps * place)[free], -float(beta.sum()))
        if not found:
            return None, k
        step, level = np.zeros(len(beta)), found[1]
        step[free] = found[0]
        _move(state, beta, F, step)
        pull = F - ridge * (beta - centre) - level
        new = _next_places(box, place, beta, pull, SLACK * state.tol)
        n_changed = int(np.count_nonzero(new != place))
        if n_changed == 0:
            return (on_bounds(beta, box.lower, box.upper), F), k
        n_worse = n_worse + 1 if n_changed >= fewest else 0
        fewest, place = min(fewest, n_changed), new
        if n_worse > MAX_WORSE or n_changed > HOPELESS * len(beta):
            return None, k
    return None, MAX_TRIES


def _move(state: SMOState, beta: Array, F: Array, step: Array) -> None:
    """Move coefficients and carry the residuals along, exactly, in place."""
    some = np.flatnonzero(step)
    if len(some):
        F -= blockwise_product(state.cache, state.rows.block, some, step[some])
        beta += step


def _places(box: Box, beta: Array) -> Array:
    """Places of coefficients: -2 and 2 on a bound, 0 at zero, -1 and 1 free on that side of it."""
    on_bound = ((beta <= box.lower) | (beta >= box.upper)) & (beta != 0.0)
    return np.asarray(np.sign(beta) * (1 + on_bound), dtype=np.int8)


def _count_free(box: Box, beta: Array) -> int:
    """Coefficients between their bounds, at least one."""
    return max(1, int(np.count_nonzero(abs(_places(box, beta)) == 1)))


def _next_places(box: Box, place: Array, beta: Array, pull: Array, slack: float) -> Array:
    """Places after a step, by coefficients and by what the residuals ask for."""
    eps, new = box.eps, place.copy()
    rising, falling = place == 1, place == -1
    new[(rising & (beta <= 0.0)) | (falling & (beta >= 0.0))] = 0
    if eps == 0.0:  # nothing holds a coefficient at zero but a bound
        new[rising & (beta < 0.0) & (box.lower < 0.0)] = -1
        new[falling & (beta > 0.0) & (box.upper > 0.0)] = 1
    new[rising & (beta >= box.upper)] = 2
    new[falling & (beta <= box.lower)] = -2
    new[(place == 0) & (pull > eps + slack) & (box.upper > 0.0)] = 1
    new[(place == 0) & (pull < -eps - slack) & (box.lower < 0.0)] = -1
    new[(place == 2) & (pull < eps - slack)] = 1
    new[(place == -2) & (pull > slack - eps)] = -1
    return new


def _packed_size(n: int) -> int:
    """Entries of a triangle with its diagonal."""
    return n * (n + 1) // 2


@dataclass(frozen=True)
class PackedFactor:
    """Cholesky factor of the kernel values of some rows, in half the memory of their square.

    In the packed form of LAPACK whose speed is that of a whole matrix: with the second half of
    the rows from ``half`` on, line ``c`` has their row ``c`` up to its diagonal, and then row
    ``c`` of all from its diagonal on.
    """

    numbers: Array
    n_rows: int

    @classmethod
    def of(cls, rows: Subset, chosen: Array, room: Array, ridge: float) -> PackedFactor | None:
        """Factorise in ``room``; None if that is too small or the matrix not positive definite."""
        n = len(chosen)
        size = _packed_size(n)
        if not 2 <= n <= MAX_ROWS or size > len(room):
            return None
        numbers, trace = room[:size], 0.0
        half, even = (n + 1) // 2, 1 - n % 2
        lines = numbers.reshape(half, n + even)
        for start in range(0, half, PANEL):
            stop = min(start + PANEL, half)
            later = half + even - 1  # of the second half, line c has row ``later + c``
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
        factor, failed = lapack.dpftrf(n, numbers, transr="N", uplo="L", overwrite_a=1)
        return None if failed else cls(factor, n)

    def solve(self, r: Array, total: float) -> tuple[Array, float] | None:
        """``K d + b 1 = r`` with ``sum d = total``: ``d`` and ``b``; None if there are none."""
        sides = np.ones((self.n_rows, 2), order="F")
        sides[:, 0] = r
        both, _ = lapack.dpftrs(
            self.n_rows, self.numbers, sides, transr="N", uplo="L", overwrite_b=1
        )
        weight = both[:, 1].sum()
        if not weight > 0.0:
            return None
        level = float((both[:, 0].sum() - total) / weight)
        step = both[:, 0] - level * both[:, 1]
        return (step, level) if np.isfinite(step).all() else None
