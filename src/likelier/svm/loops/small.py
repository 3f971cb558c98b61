"""Compiled solver of the dual for few rows: pair updates and Newton steps.

With a few hundred rows the whole kernel matrix fits in the cache, and a solution takes less time
than the Python overhead. So one compiled call does everything: pair updates as in
`likelier.svm.loops.smo`, and Newton steps on the free coefficients, which make the solution more
accurate than the tolerance. There is no shrinking, and kernel values are float64.
"""

from __future__ import annotations

import numpy as np

from likelier.jit import njit
from likelier.svm.loops.simd import FLAGS, HUGE
from likelier.svm.loops.smo import (
    CONVERGED,
    NEEDS_ROW,
    middle,
    on_bound,
    on_bounds,
    part_of,
    set_move_terms,
    smo_updates,
    subtract_rows,
)

BURST = 1000  # pair updates between checks for a Newton step
PATIENCE = 2.0  # work of pair updates, relative to a Newton step, before one is tried
MAX_POLISH = 10  # Newton steps beyond the tolerance
MAX_FIXED = 6  # rounds of fixing coefficients at violated bounds
RIDGE = 1e-13  # of the trace; covers the rounding error of eigenvalues


@njit(cache=True, nogil=True, fastmath=FLAGS)
def _solve_on(live, K, r, total, A, step, ones):
    """Solve ``K d + b 1 = r``, ``sum d = total`` over the rows ``live``; False if singular.

    Writes ``d`` to ``step``, by a Cholesky factorisation in ``A``; ``r``, ``ones`` and ``step`` are
    in the order of ``live``.
    """
    n, trace = len(live), 0.0
    for i in range(n):
        trace += K[live[i], live[i]]
    for i in range(n):
        row, square = A[i], K[live[i], live[i]] + RIDGE * trace
        for j in range(i):
            value, other = K[live[i], live[j]], A[j]
            for k in range(j):
                value -= row[k] * other[k]
            row[j] = value / other[j]
            square -= row[j] * row[j]
        if square <= 0.0:
            return False
        row[i] = np.sqrt(square)
        step[i], ones[i] = r[i], 1.0
        for k in range(i):
            step[i] -= row[k] * step[k]
            ones[i] -= row[k] * ones[k]
        step[i] /= row[i]
        ones[i] /= row[i]
    excess, weight = -total, 0.0
    for i in range(n - 1, -1, -1):
        row = A[i]
        step[i] /= row[i]
        ones[i] /= row[i]
        excess, weight = excess + step[i], weight + ones[i]
        for k in range(i):
            step[k] -= row[k] * step[i]
            ones[k] -= row[k] * ones[i]
    if weight <= 0.0:
        return False
    for i in range(n):
        step[i] -= excess / weight * ones[i]
    return True


@njit(cache=True, nogil=True)
def _dual_increase(K, r, move):
    """Increase of the dual by a move."""
    rise = 0.0
    for i in range(len(r)):
        product = 0.0
        for j in range(len(r)):
            product += K[i, j] * move[j]
        rise += move[i] * (r[i] - 0.5 * product)
    return rise


@njit(cache=True, nogil=True)
def _fix_violations(live, step, low, high, move):
    """Fix coefficients at violated bounds; return the number of rows that are still live."""
    n_live = 0
    for k in range(len(live)):
        row = live[k]
        if step[k] < low[row]:
            move[row] = low[row]
        elif step[k] > high[row]:
            move[row] = high[row]
        else:
            live[n_live], step[n_live] = row, step[k]
            n_live += 1
    return n_live


@njit(cache=True, nogil=True)
def small_newton_move(K, r, low, high):
    """Move of free coefficients that increases the dual, and whether it was found.

    Like `likelier.svm.newton.newton_move`; with few rows a factor is cheap, so that all
    coefficients beyond their bounds are fixed at once and the others are factorised again.
    """
    n = len(r)
    A, step, ones, live = np.empty((n, n)), np.empty(n), np.empty(n), np.empty(n, dtype=np.int64)
    move, rest = np.zeros(n), np.empty(n)
    for k in range(n):
        live[k] = k
    if not _solve_on(live, K, r, 0.0, A, step, ones):
        return step, False
    first = np.empty(n)
    for k in range(n):
        first[k] = step[k]
    for _ in range(MAX_FIXED):
        n_live, live = len(live), live[: _fix_violations(live, step, low, high, move)]
        if len(live) == n_live:
            for k in range(n_live):
                move[live[k]] = step[k]
            if _dual_increase(K, r, move) > 0.0:
                return move, True
            break
        total = 0.0
        for row in range(n):
            total += move[row]
        for k in range(len(live)):
            rest[k] = r[live[k]]
            for row in range(n):
                rest[k] -= K[live[k], row] * move[row]
        if len(live) < 2 or not _solve_on(live, K, rest, -total, A, step, ones):
            break
    room = 1.0  # feasible fraction of the full step
    for k in range(n):
        bound = high[k] if first[k] > 0.0 else low[k]
        room = min(room, bound / first[k]) if first[k] != 0.0 else room
    for k in range(n):  # clipped because of rounding
        move[k] = min(max(room * first[k], low[k]), high[k])
    return move, _dual_increase(K, r, move) > 0.0


@njit(cache=True, nogil=True)
def _free_rows(beta, lower, upper, eps):
    """Positions of the coefficients that lie between their bounds (and kinks)."""
    free, count = np.empty(len(beta), dtype=np.int64), 0
    for i in range(len(beta)):
        if lower[i] < beta[i] < upper[i] and not (eps > 0.0 and beta[i] == 0.0):
            free[count] = i
            count += 1
    return free[:count]


@njit(cache=True, nogil=True)
def _copy_row(i, source, K):
    """Copy a kernel row from a given matrix or from blocks of two groups, see `solve_small`."""
    given, indices, own, across, column, other = source
    if len(indices):
        values = given[indices[i]]
        for k in range(len(indices)):
            K[i, k] = values[indices[k]]
        return
    n_own, n_other = len(own), len(other)
    for k in range(n_own):
        K[i, k] = own[i, k] if i < n_own else across[k, column + i - n_own]
    for k in range(n_other):
        K[i, n_own + k] = across[i, column + k] if i < n_own else other[i - n_own, k]


@njit(cache=True, nogil=True)
def _diagonal(n, source):
    given, indices, own, _, _, other = source
    values, n_own = np.empty(n), len(own)
    for i in range(n):
        if len(indices):
            values[i] = given[indices[i], indices[i]]
        else:
            values[i] = own[i, i] if i < n_own else other[i - n_own, i - n_own]
    return values


@njit(cache=True, nogil=True)
def _newton_step(K, F, beta, lower, upper, eps, free):
    """Try a Newton step on the free coefficients; update the residuals."""
    n = len(free)
    low, high, r, moved = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for k in range(n):
        i = free[k]
        b, floor, ceiling = beta[i], lower[i], upper[i]
        if eps > 0.0:  # zero is a kink, which must not be crossed
            floor = max(floor, 0.0) if b > 0.0 else floor
            ceiling = min(ceiling, 0.0) if b < 0.0 else ceiling
        low[k], high[k], r[k] = floor - b, ceiling - b, F[i] - eps * np.sign(b)
    move, found = small_newton_move(part_of(K, free, free), r, low, high)
    if not found:
        return
    largest = 0.0
    for k in range(n):
        moved[k] = beta[free[k]] + min(max(move[k], low[k]), high[k])
        largest = max(largest, abs(moved[k]))
    for k in range(n):
        i = free[k]
        new = on_bound(moved[k], lower[i], upper[i], largest)
        moved[k] = new - beta[i]
        beta[i] = new
    subtract_rows(F, K, free, moved)


@njit(cache=True, nogil=True)
def solve_small(K, held, source, F, beta, lower, upper, eps, tol, max_updates):
    """Solve the dual from ``beta`` with residuals ``F = t - K beta``, in place.

    ``K`` is a buffer for the kernel matrix, ``held`` the index of every row that it contains, or
    -1. Rows are copied from ``source = (given, indices, own, across, column, other)``: a given
    matrix and the indices of its rows and columns, or, without indices, the matrices of two groups
    of rows and the values between them, in ``across`` from ``column`` on.

    Cost: two passes over the rows per update, and a Cholesky factorisation per Newton step.

    Returns
    -------
    n_updates, gap, converged
    """
    n = len(F)
    stamps, none = np.zeros(n, dtype=np.int64), np.empty(0)
    budget, used = np.zeros(1, dtype=np.int64), np.full(1, n, dtype=np.int64)
    diagonal, up, down = _diagonal(n, source), np.empty(n), np.empty(n)
    set_move_terms(beta, lower, upper, eps, up, down)
    count, since, n_polished, tried_at = 0, 0.0, 0, -1
    while True:
        status, done, wanted, gap = smo_updates(
            F, beta, lower, upper, eps, up, down, diagonal, tol, min(BURST, max_updates - count),
            K, held, held, stamps, budget, used,
            None, none, K, none, held,
        )  # fmt: skip
        count += done
        since += done * (n + 150.0)
        if status == NEEDS_ROW:
            _copy_row(wanted, source, K)
            held[wanted] = wanted
            continue
        if status == CONVERGED and (tried_at == count or n_polished >= MAX_POLISH):
            return count, gap, True
        if status != CONVERGED and count >= max_updates:
            return count, gap, False
        free = _free_rows(beta, lower, upper, eps)
        cost = 0.3 * len(free) ** 3 + 0.3 * len(free) * n + 2e3  # nanoseconds, roughly
        if status != CONVERGED and since <= PATIENCE * cost:
            continue
        n_polished += status == CONVERGED
        since, tried_at = 0.0, count
        if len(free) >= 2:  # free rows have been moved, so their kernel rows are in K
            _newton_step(K, F, beta, lower, upper, eps, free)
            set_move_terms(beta, lower, upper, eps, up, down)


@njit(cache=True, nogil=True)
def intercept_of(F, beta, lower, upper, eps):
    """Mean residual of free support vectors, else the midpoint of the feasible interval."""
    mean, count, top, low = middle(F, beta, lower, upper, eps)
    if count:
        return mean
    if top <= -0.5 * HUGE or low >= 0.5 * HUGE:  # the interval is unbounded on one side
        return low if top <= -0.5 * HUGE else top
    return 0.5 * (top + low)


@njit(cache=True, nogil=True)
def start_from(F, beta, target, lower, upper, before, ratio):
    """Warm start from the solution for a smaller ``C``, unchanged or scaled, in place.

    ``before`` has its bound of every row. Unchanged, coefficients on their bound have to move to
    the new bound; scaled, these are on the new bound, but those between the bounds are displaced.
    The larger group decides.
    """
    n_used, n_bound = 0, 0
    for i in range(len(beta)):
        n_used += beta[i] != 0.0
        n_bound += beta[i] != 0.0 and abs(beta[i]) >= before[i]
    factor = ratio if 2 * n_bound >= n_used else 1.0
    for i in range(len(beta)):
        F[i] = target[i] - factor * (target[i] - F[i])
        beta[i] *= factor
    bounded = on_bounds(beta, lower, upper)
    for i in range(len(beta)):
        beta[i] = bounded[i]


@njit(cache=True, nogil=True)
def _square(blocks, starts, k, size):
    return blocks[starts[k] :][: size * size].reshape(size, size)


@njit(cache=True, nogil=True)
def _limits(y, weight, C, lower, upper):
    """Bounds of the coefficients of rows with label ``y``, in place."""
    for k in range(len(weight)):
        lower[k], upper[k] = min(y * C * weight[k], 0.0), max(y * C * weight[k], 0.0)


@njit(cache=True, nogil=True)
def solve_class_pairs(
    first, seconds, order, starts, given, panel, blocks, block_starts, weight, Cs, tol, max_updates,
    tables, intercepts, counts, gaps, solved,
):  # fmt: skip
    """Solve the pairs of one class with several later ones, for ascending values of C.

    Rows are sorted by class, and class ``k`` begins at ``starts[k]``. Their kernel values are in
    the ``given`` matrix, at indices ``order``; or, if ``order`` is empty, ``panel`` has those of
    the first class with the rows of ``seconds``, and ``blocks`` from ``block_starts[k]`` on those
    of class ``k`` with itself. Results for ``Cs[c]``: coefficients go to ``tables[c]`` (LIBSVM's
    table, for all rows), the rest to the column of the pair. A pair that takes more than
    ``max_updates`` stays unsolved.
    """
    n_classes, begin, end = len(starts) - 1, starts[first], starts[first + 1]
    column = np.int64(0)  # a literal 0 would be a type of its own, compiled once more
    m, largest = end - begin, 0  # rows of the first class
    for second in seconds:
        largest = max(largest, m + starts[second + 1] - starts[second])
    room, indices = np.empty(largest**2), np.empty(largest if len(order) else 0, dtype=np.int64)
    numbers = np.empty((5, largest))
    for second in seconds:
        start, stop = starts[second], starts[second + 1]
        n = m + stop - start
        if len(order):
            for k in range(m):
                indices[k] = order[begin + k]
            for k in range(m, n):
                indices[k] = order[start + k - m]
        source = (
            given, indices[:n], _square(blocks, block_starts, first, 0 if len(order) else m),
            panel, column, _square(blocks, block_starts, second, 0 if len(order) else n - m),
        )  # fmt: skip
        column += n - m
        K, held, pair = room[: n * n].reshape(n, n), np.full(n, -1), second - first - 1
        pair += first * (2 * n_classes - first - 1) // 2
        target, F, beta = numbers[0, :n], numbers[1, :n], numbers[2, :n]
        lower, upper, before = numbers[3, :n], numbers[4, :n], np.empty(n)
        for k in range(n):
            target[k] = F[k] = 1.0 if k < m else -1.0
            beta[k] = 0.0
        for c in range(len(Cs)):
            _limits(1.0, weight[begin:end], Cs[c], lower[:m], upper[:m])
            _limits(-1.0, weight[start:stop], Cs[c], lower[m:], upper[m:])
            if c > 0:
                start_from(F, beta, target, lower, upper, before, Cs[c] / Cs[c - 1])
            counts[c, pair], gaps[c, pair], solved[c, pair] = solve_small(
                K, held, source, F, beta, lower, upper, 0.0, tol, max_updates
            )
            if not solved[c, pair]:
                break
            intercepts[c, pair] = intercept_of(F, beta, lower, upper, 0.0)
            for k in range(m):
                tables[c, second - 1, begin + k] = beta[k]
            for k in range(m, n):
                tables[c, first, start + k - m] = beta[k]
            for k in range(n):
                before[k] = max(upper[k], -lower[k])
