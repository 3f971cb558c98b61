"""Pair updates of the support vector dual: choose two rows, move them, carry the residuals along.

One form serves classification and regression: maximise over ``beta``

    ``sum_i t_i beta_i - eps sum_i |beta_i| - 1/2 beta^T K beta``,
    ``lower <= beta <= upper``, ``sum beta = 0``.

Residuals are ``F = t - K beta``. Moving ``beta_i`` up gains ``F_i + up_i`` per unit and moving it
down costs ``F_i + down_i``: ``up`` is ``-eps`` or ``+eps`` by the sign of beta, or ``-FAR`` where
the bound forbids the move, and ``down`` likewise. So the searches have no branch, and a loop
over all rows uses the vector unit.
"""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.jit import njit
from likelier.loops.exponential import fast_exp
from likelier.svm.loops.lanes import (
    FAR,
    FLAGS,
    TINY_CURVATURE,
    find_partner,
    move_and_find_top,
)

TILE = 16  # side of the squares in which a matrix is turned
STRIP = 512  # kernel values made at once: they stay in the first-level cache
CONVERGED, NEEDS_ROW, PAUSED = 0, 1, 2
NEAR = 1e-9  # of a bound: what many updates round away must not make a coefficient look free
# Kernels whose rows are made inside the loop; of all others the caller makes them.
ELSEWHERE, RBF, LINEAR, POLY, GIVEN, SHARED = 0, 1, 2, 3, 4, 5


@njit(cache=True, nogil=True)
def _find_top(F, up):
    best = 0
    for k in range(len(F)):
        if F[k] + up[k] > F[best] + up[best]:
            best = k
    return best, F[best] + up[best]


@njit(cache=True, nogil=True)
def _set_marks(i, beta, lower, upper, eps, up, down):
    b = beta[i]
    up[i] = -FAR if b >= upper[i] else (-eps if b >= 0.0 else eps)
    down[i] = FAR if b <= lower[i] else (-eps if b > 0.0 else eps)


@njit(cache=True, nogil=True)
def set_marks(beta, lower, upper, eps, up, down):
    """Prices of moving every row up or down."""
    for i in range(len(beta)):
        _set_marks(i, beta, lower, upper, eps, up, down)


@njit(cache=True, nogil=True)
def _moved_pair(bi, bj, step, ceiling, floor):
    """Move one row up and another down by ``step``, or until the first is at its limit."""
    room_i, room_j = ceiling - bi, bj - floor
    if step < room_i and step < room_j:
        return bi + step, bj - step
    if room_i < room_j:
        return ceiling, bj - room_i
    if room_j < room_i:
        return bi + room_j, floor
    return ceiling, floor


@njit(cache=True, nogil=True)
def _shared_row(own, across, row, columns, out):
    """Values of a row of one of two classes with the rows ``columns`` of both, second after first.

    ``own`` begins with the square matrix of the first class and ends with that of the second,
    ``across`` holds the values between the two.
    """
    m, n = across.shape
    second = len(own) - n * n
    if row < m:
        values, mine = across[row], own[row * m : (row + 1) * m]
        for k in range(len(columns)):
            column = columns[k]
            out[k] = mine[column] if column < m else values[column - m]
    else:
        row -= m
        mine = own[second + row * n : second + (row + 1) * n]
        for k in range(len(columns)):
            column = columns[k]
            out[k] = across[column, row] if column < m else mine[column - m]


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def _add_four(columns, f, start, i, part):
    """Add what four features contribute to the inner products of row ``i``."""
    stop = start + len(part)
    p, q = columns[f, start:stop], columns[f + 1, start:stop]
    r, s = columns[f + 2, start:stop], columns[f + 3, start:stop]
    a, b, c, d = columns[f, i], columns[f + 1, i], columns[f + 2, i], columns[f + 3, i]
    for k in range(len(part)):
        part[k] += (a * p[k] + b * q[k]) + (c * r[k] + d * s[k])


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def _make_row(kind, parameters, columns, norms, places, i, out):
    """Kernel values of row ``i`` with all, from features stored one after the other.

    Those of a matrix that is `GIVEN` in ``columns`` are in its rows and columns ``places``; those
    of two classes, in ``norms`` and ``columns``, are for the rows ``places`` of the two.
    """
    if kind == SHARED:
        _shared_row(norms, columns, places[i], places, out)
        return
    if kind == GIVEN:
        source = columns[places[i]]
        for k in range(len(out)):
            out[k] = source[places[k]]
        return
    n, one = len(out), out.dtype.type(1.0)
    for start in range(0, n, STRIP):
        part = out[start : start + STRIP]
        part[:] = one - one
        fours = len(columns) - len(columns) % 4
        for f in range(0, fours, 4):  # at once: sums are loaded and stored less often
            _add_four(columns, f, start, i, part)
        for f in range(fours, len(columns)):
            values, own = columns[f, start : start + STRIP], columns[f, i]
            for k in range(len(part)):
                part[k] += own * values[k]
        if kind == RBF:
            theirs, mine = norms[start : start + STRIP], norms[i]
            scale, two, zero = parameters[0], one + one, one - one
            for k in range(len(part)):
                square = (mine + theirs[k]) - two * part[k]
                square = zero if square <= zero else square
                part[k] = fast_exp(-scale * square)
        elif kind == POLY:
            for k in range(len(part)):
                value = parameters[0] * part[k] + parameters[1]
                power = one
                for _ in range(int(parameters[2])):
                    power = power * value
                part[k] = power


@njit(cache=True, nogil=True)
def _free_slot(slot_of, row_of, stamps, n_used):
    """A slot for one more row: the next free one, or the one not used for longest."""
    if n_used[0] < len(stamps):
        n_used[0] += 1
        return n_used[0] - 1
    slot = 0
    for k in range(len(stamps)):
        if stamps[k] < stamps[slot]:
            slot = k
    slot_of[row_of[slot]] = -1
    return slot


@njit(cache=True, nogil=True)
def _new_row(i, kind, parameters, columns, norms, places, slots, slot_of, row_of, stamps, n_used):
    """Slot of a kernel row that is not held, made if it can be made here, else -1."""
    if kind == ELSEWHERE:
        return -1
    slot = _free_slot(slot_of, row_of, stamps, n_used)
    _make_row(kind, parameters, columns, norms, places, i, slots[slot, : len(slot_of)])
    slot_of[i], row_of[slot] = slot, i
    return slot


@njit(cache=True, nogil=True)
def smo_updates(
    F, beta, lower, upper, eps, up, down, diagonal, tol, max_updates,
    slots, slot_of, row_of, stamps, budget, n_used, kind, parameters, columns, norms, places,
):  # fmt: skip
    """Update pairs until the gap is at most ``tol``, a kernel row is lacking, or it is enough.

    ``slots[slot_of[i]]`` is the kernel row of ``i``; -1 says there is none, and ``row_of`` is the
    inverse. ``stamps`` notes when a slot was last used. Cost per update: two passes over the
    rows; a row made here costs rows x features.

    Returns
    -------
    status, n_updates, wanted, gap
        ``wanted`` is the row that lacks its kernel values.
    """
    count = 0
    i, top = _find_top(F, up)
    while True:
        slot_i = slot_of[i]
        if slot_i < 0:
            slot_i = _new_row(
                i, kind, parameters, columns, norms, places, slots, slot_of, row_of, stamps, n_used
            )
            if slot_i < 0:
                return NEEDS_ROW, count, i, np.inf
        budget[0] += 1
        stamps[slot_i] = budget[0]
        j, lowest = find_partner(F, down, slots, slot_i, diagonal, diagonal[i], top)
        gap = top - lowest
        if gap <= tol:
            return CONVERGED, count, -1, gap
        if count >= max_updates:
            return PAUSED, count, -1, gap
        slot_j = slot_of[j]
        if slot_j < 0:
            slot_j = _new_row(
                j, kind, parameters, columns, norms, places, slots, slot_of, row_of, stamps, n_used
            )
            if slot_j < 0:
                return NEEDS_ROW, count, j, gap
        budget[0] += 1
        stamps[slot_j] = budget[0]
        curvature = (
            np.float64(diagonal[i]) + np.float64(diagonal[j]) - 2.0 * np.float64(slots[slot_i, j])
        )
        step = (top - (F[j] + down[j])) / max(curvature, TINY_CURVATURE)
        bi, bj = beta[i], beta[j]
        # the price changes where beta changes its sign: a move ends there at the latest
        ceiling = 0.0 if bi < 0.0 else upper[i]
        floor = 0.0 if bj > 0.0 else lower[j]
        beta[i], beta[j] = _moved_pair(bi, bj, step, ceiling, floor)
        _set_marks(i, beta, lower, upper, eps, up, down)
        _set_marks(j, beta, lower, upper, eps, up, down)
        i, top = move_and_find_top(F, up, slots, slot_i, slot_j, beta[i] - bi, beta[j] - bj)
        count += 1


@njit(cache=True, nogil=True)
def may_move(F, up, down, beta, lower, upper, kinked):
    """Which rows are free, or not held to their bound for sure; and which are free.

    A row may go up if somebody could go down at less, and the other way round. Where ``kinked``
    a coefficient of zero is at a bound.
    """
    top, lowest = -10.0 * FAR, 10.0 * FAR
    for i in range(len(F)):
        top, lowest = max(top, F[i] + up[i]), min(lowest, F[i] + down[i])
    movable, free = np.empty(len(F), dtype=np.bool_), np.empty(len(F), dtype=np.bool_)
    for i in range(len(F)):
        free[i] = lower[i] < beta[i] < upper[i] and not (kinked and beta[i] == 0.0)
        movable[i] = free[i] or F[i] + up[i] > lowest or F[i] + down[i] < top
    return movable, free


@njit(cache=True, nogil=True)
def _insert(value, row, values, rows, count):
    """Put a row into a short list sorted by falling value; return how many the list holds."""
    place = count if count < len(rows) else len(rows) - 1
    while place > 0 and values[place - 1] < value:
        values[place], rows[place] = values[place - 1], rows[place - 1]
        place -= 1
    values[place], rows[place] = value, row
    return min(count + 1, len(rows))


@njit(cache=True, nogil=True)
def likely_rows(F, up, down, slot_of, wanted, count):
    """The row that is lacking and up to ``count`` more without kernel values, in order.

    Half of them gain most by going up, half cost least to go down: the next ones to be asked for.
    ``count`` is at least 2.
    """
    half = (count + 1) // 2
    rising, falling = np.empty(half, dtype=np.int64), np.empty(count - half, dtype=np.int64)
    gains, savings = np.empty(half), np.empty(count - half)
    n_rising, n_falling = 0, 0
    for i in range(len(F)):
        if slot_of[i] >= 0 or i == wanted:
            continue
        gain, saving = F[i] + up[i], -(F[i] + down[i])
        if n_rising < half or gain > gains[half - 1]:
            n_rising = _insert(gain, i, gains, rising, n_rising)
        if n_falling < count - half or saving > savings[count - half - 1]:
            n_falling = _insert(saving, i, savings, falling, n_falling)
    every = np.empty(1 + n_rising + n_falling, dtype=np.int64)
    every[0] = wanted
    every[1 : 1 + n_rising] = rising[:n_rising]
    every[1 + n_rising :] = falling[:n_falling]
    return np.unique(every)


@njit(cache=True, nogil=True, fastmath=FLAGS)
def subtract_rows(F, slots, numbers, amounts):
    """``F -= sum_k amounts_k slots[numbers_k]``."""
    n = len(F)
    for k in range(len(numbers)):
        row, amount = slots[numbers[k], :n], amounts[k]
        for i in range(n):
            F[i] -= amount * row[i]


@njit(cache=True, nogil=True)
def compact_rows(flat, width, numbers, columns):
    """Keep some rows (ascending) and columns (ascending) of a flat matrix, in place.

    What is written never lies behind what is still to be read.
    """
    place = 0
    for number in numbers:
        start = number * width
        for column in columns:
            flat[place] = flat[start + column]
            place += 1


@njit(cache=True, nogil=True)
def gather_block(matrix, rows, columns, out):
    """``out = matrix[rows][:, columns]``, without a copy of the whole rows."""
    for k in range(len(rows)):
        source, target = matrix[rows[k]], out[k]
        for j in range(len(columns)):
            target[j] = source[columns[j]]


@njit(cache=True, nogil=True)
def gather_shared(own, across, rows, columns, out):
    """Values of some rows of two classes with some others, see `_shared_row`."""
    for k in range(len(rows)):
        _shared_row(own, across, rows[k], columns, out[k])


@njit(cache=True, nogil=True)
def part_of(matrix, rows, columns):
    """``matrix[rows][:, columns]`` as a new array."""
    out = np.empty((len(rows), len(columns)), dtype=matrix.dtype)
    gather_block(matrix, rows, columns, out)
    return out


@njit(cache=True, nogil=True)
def mirror_panel(matrix, start, stop):
    """Copy what rows ``start:stop`` of a symmetric matrix have above its diagonal to below it.

    That includes the square on the diagonal, whose halves BLAS may round differently. Square after
    square: the lines that are read and written stay in the first-level cache.
    """
    for first in range(start, len(matrix), TILE):
        last = min(first + TILE, len(matrix))
        for begin in range(start, min(stop, last), TILE):
            end = min(begin + TILE, stop)
            for column in range(first, last):
                target = matrix[column]
                for row in range(begin, min(end, column)):
                    target[row] = matrix[row, column]


@njit(cache=True, nogil=True)
def on_bound(value, lower, upper, largest, share=1e-14):
    """A value within rounding of a bound or of zero on it; ``largest`` is the size of the values.

    A bound far beyond all of them (a huge ``C``) says nothing about rounding.
    """
    scale = share * min(max(abs(lower), abs(upper)), largest)
    for bound in (lower, upper, 0.0):
        value = bound if abs(value - bound) <= scale else value
    return value


@njit(cache=True, nogil=True)
def on_bounds(values, lower, upper):
    """Values inside their bounds, and those within rounding of a bound or of zero on it."""
    out, largest = np.empty_like(values), 0.0
    for i in range(len(values)):
        out[i] = min(max(values[i], lower[i]), upper[i])
        largest = max(largest, abs(out[i]))
    for i in range(len(values)):
        out[i] = on_bound(out[i], lower[i], upper[i], largest)
    return out


@njit(cache=True, nogil=True)
def middle(F, beta, lower, upper, eps):
    """Mean of what free coefficients ask for and their number; the best gain, the lowest cost."""
    total, count, top, low, largest = 0.0, 0, -10.0 * FAR, 10.0 * FAR, np.abs(beta).max()
    for i in range(len(F)):
        b = on_bound(beta[i], lower[i], upper[i], largest, NEAR)
        rising, falling = b < upper[i], b > lower[i]
        if rising:
            top = max(top, F[i] + (eps if b < 0.0 else -eps))
        if falling:
            low = min(low, F[i] + (-eps if b > 0.0 else eps))
        if rising and falling and (b != 0.0 or eps == 0.0):
            total += F[i] - eps * np.sign(b)
            count += 1
    return total / max(count, 1), count, top, low


def marks(beta: Array, lower: Array, upper: Array, eps: float) -> tuple[Array, Array]:
    """Prices of moving every row up and down, as new arrays."""
    up, down = np.empty_like(beta), np.empty_like(beta)
    set_marks(beta, lower, upper, eps, up, down)
    return up, down
