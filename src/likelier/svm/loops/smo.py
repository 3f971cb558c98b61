"""Pair updates of the support vector dual: select two rows, move them, update the residuals.

One form serves classification and regression: maximise over ``beta``

    ``sum_i t_i beta_i - eps sum_i |beta_i| - 1/2 beta^T K beta``,
    ``lower <= beta <= upper``, ``sum beta = 0``.

Residuals are ``F = t - K beta``. Moving ``beta_i`` up gains ``F_i + up_i`` per unit and moving it
down costs ``F_i + down_i``: ``up`` is ``-eps`` or ``+eps`` by the sign of beta, or ``-HUGE`` if the
bound does not allow the move, and ``down`` likewise. So the searches are free of branches and
vectorise.
"""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.jit import njit
from likelier.loops.exponential import fast_exp
from likelier.svm.loops.simd import (
    FLAGS,
    HUGE,
    TINY_CURVATURE,
    find_partner,
    move_and_find_top,
)

TILE = 16  # tile size of a transposition
STRIP = 512  # kernel values computed at once: they fit in the first-level cache
CONVERGED, NEEDS_ROW, PAUSED = 0, 1, 2
BOUND_TOLERANCE = 1e-9  # relative distance to a bound that may be accumulated rounding error
# Sources of kernel rows: the loop computes or copies all but EXTERNAL ones.
EXTERNAL, RBF, LINEAR, POLY, MATRIX, CLASS_BLOCKS = 0, 1, 2, 3, 4, 5


@njit(cache=True, nogil=True)
def _find_top(F, up):
    best = 0
    for k in range(len(F)):
        if F[k] + up[k] > F[best] + up[best]:
            best = k
    return best, F[best] + up[best]


@njit(cache=True, nogil=True)
def _set_move_terms(i, beta, lower, upper, eps, up, down):
    b = beta[i]
    up[i] = -HUGE if b >= upper[i] else (-eps if b >= 0.0 else eps)
    down[i] = HUGE if b <= lower[i] else (-eps if b > 0.0 else eps)


@njit(cache=True, nogil=True)
def set_move_terms(beta, lower, upper, eps, up, down):
    """Set the terms ``up`` and ``down`` of the gains and costs of moving every row."""
    for i in range(len(beta)):
        _set_move_terms(i, beta, lower, upper, eps, up, down)


@njit(cache=True, nogil=True)
def _moved_pair(bi, bj, step, ceiling, floor):
    """Move one row up and another down by ``step``, or until one of them reaches its limit."""
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
    """Copy columns of a row of the kernel matrix of two classes, which is stored in blocks.

    ``own`` begins with the square matrix of the first class and ends with that of the second,
    ``across`` has the values between the two.
    """
    m, n = across.shape
    second = len(own) - n * n
    if row < m:
        values, own_values = across[row], own[row * m : (row + 1) * m]
        for k in range(len(columns)):
            column = columns[k]
            out[k] = own_values[column] if column < m else values[column - m]
    else:
        row -= m
        own_values = own[second + row * n : second + (row + 1) * n]
        for k in range(len(columns)):
            column = columns[k]
            out[k] = across[column, row] if column < m else own_values[column - m]


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def _add_four(columns, f, start, i, part):
    """Add the contribution of four features to the inner products of row ``i``."""
    stop = start + len(part)
    p, q = columns[f, start:stop], columns[f + 1, start:stop]
    r, s = columns[f + 2, start:stop], columns[f + 3, start:stop]
    a, b, c, d = columns[f, i], columns[f + 1, i], columns[f + 2, i], columns[f + 3, i]
    for k in range(len(part)):
        part[k] += (a * p[k] + b * q[k]) + (c * r[k] + d * s[k])


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def _make_row(kind, parameters, columns, norms, indices, i, out):
    """Kernel values of row ``i`` with all rows, from features in column-major order.

    For `MATRIX`, ``columns`` is a kernel matrix and ``indices`` are the indices of the rows in it;
    for `CLASS_BLOCKS`, ``norms`` and ``columns`` are the blocks of two classes and ``indices`` the
    indices of the rows among both.
    """
    if kind == CLASS_BLOCKS:
        _shared_row(norms, columns, indices[i], indices, out)
        return
    if kind == MATRIX:
        source = columns[indices[i]]
        for k in range(len(out)):
            out[k] = source[indices[k]]
        return
    n, one = len(out), out.dtype.type(1.0)
    for start in range(0, n, STRIP):
        part = out[start : start + STRIP]
        for k in range(len(part)):
            part[k] = one - one
        fours = len(columns) - len(columns) % 4
        for f in range(0, fours, 4):  # fewer loads and stores of the sums
            _add_four(columns, f, start, i, part)
        for f in range(fours, len(columns)):
            values, own = columns[f, start : start + STRIP], columns[f, i]
            for k in range(len(part)):
                part[k] += own * values[k]
        if kind == RBF:
            other_norms, own_norm = norms[start : start + STRIP], norms[i]
            scale, two, zero = parameters[0], one + one, one - one
            for k in range(len(part)):
                square = (own_norm + other_norms[k]) - two * part[k]
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
    """A slot for one more row: the next free one, or the least recently used."""
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
def _new_row(i, kind, parameters, columns, norms, indices, slots, slot_of, row_of, stamps, n_used):
    """Slot of a missing kernel row, computed here if possible, else -1."""
    if kind is None:  # a type: what computes rows need not be compiled
        return -1
    if kind == EXTERNAL:
        return -1
    slot = _free_slot(slot_of, row_of, stamps, n_used)
    _make_row(kind, parameters, columns, norms, indices, i, slots[slot, : len(slot_of)])
    slot_of[i], row_of[slot] = slot, i
    return slot


@njit(cache=True, nogil=True)
def smo_updates(
    F, beta, lower, upper, eps, up, down, diagonal, tol, max_updates,
    slots, slot_of, row_of, stamps, budget, n_used, kind, parameters, columns, norms, indices,
):  # fmt: skip
    """Update pairs until the gap is at most ``tol``, a kernel row is missing, or ``max_updates``.

    ``slots[slot_of[i]]`` is the kernel row of ``i``, which is missing if ``slot_of[i]`` is -1;
    ``row_of`` is the inverse. ``stamps`` has the time of last use of every slot. Cost per update:
    two passes over the rows; a row computed here costs rows x features.

    Returns
    -------
    status, n_updates, wanted, gap
        ``wanted`` is the row whose kernel values are missing.
    """
    count = 0
    i, top = _find_top(F, up)
    while True:
        slot_i = slot_of[i]
        if slot_i < 0:
            slot_i = _new_row(
                i, kind, parameters, columns, norms, indices, slots, slot_of, row_of, stamps, n_used
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
                j, kind, parameters, columns, norms, indices, slots, slot_of, row_of, stamps, n_used
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
        # zero is a kink of eps |beta|: a move ends there at the latest
        ceiling = 0.0 if bi < 0.0 else upper[i]
        floor = 0.0 if bj > 0.0 else lower[j]
        beta[i], beta[j] = _moved_pair(bi, bj, step, ceiling, floor)
        _set_move_terms(i, beta, lower, upper, eps, up, down)
        _set_move_terms(j, beta, lower, upper, eps, up, down)
        i, top = move_and_find_top(F, up, slots, slot_i, slot_j, beta[i] - bi, beta[j] - bj)
        count += 1


@njit(cache=True, nogil=True)
def may_move(F, up, down, beta, lower, upper, kinked):
    """Masks of movable and of free rows.

    A row is movable if it is free, if it may go up and another row could go down at a lower cost,
    or conversely. If ``kinked``, zero counts as a bound.
    """
    top, lowest = -10.0 * HUGE, 10.0 * HUGE
    for i in range(len(F)):
        top, lowest = max(top, F[i] + up[i]), min(lowest, F[i] + down[i])
    movable, free = np.empty(len(F), dtype=np.bool_), np.empty(len(F), dtype=np.bool_)
    for i in range(len(F)):
        free[i] = lower[i] < beta[i] < upper[i] and not (kinked and beta[i] == 0.0)
        movable[i] = free[i] or F[i] + up[i] > lowest or F[i] + down[i] < top
    return movable, free


@njit(cache=True, nogil=True)
def _insert(value, row, values, rows, count):
    """Insert a row into a short list sorted by descending value; return its length."""
    position = count if count < len(rows) else len(rows) - 1
    while position > 0 and values[position - 1] < value:
        values[position], rows[position] = values[position - 1], rows[position - 1]
        position -= 1
    values[position], rows[position] = value, row
    return min(count + 1, len(rows))


@njit(cache=True, nogil=True)
def likely_rows(F, up, down, slot_of, wanted, count):
    """The missing row and up to ``count`` more rows to prefetch, in ascending order.

    Half of them have the largest gains of going up, half the lowest costs of going down. ``count``
    is at least 2.
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
    for k in range(n_rising):
        every[1 + k] = rising[k]
    for k in range(n_falling):
        every[1 + n_rising + k] = falling[k]
    return np.unique(every)


@njit(cache=True, nogil=True, fastmath=FLAGS)
def subtract_rows(F, slots, indices, amounts):
    """``F -= sum_k amounts_k slots[indices_k]``."""
    n = len(F)
    for k in range(len(indices)):
        row, amount = slots[indices[k], :n], amounts[k]
        for i in range(n):
            F[i] -= amount * row[i]


@njit(cache=True, nogil=True)
def compact_rows(flat, width, indices, columns):
    """Keep some rows (ascending) and columns (ascending) of a flat matrix, in place.

    The write position never overtakes the read position.
    """
    position = 0
    for index in indices:
        start = index * width
        for column in columns:
            flat[position] = flat[start + column]
            position += 1


@njit(cache=True, nogil=True)
def gather_block(matrix, rows, columns, out):
    """``out = matrix[rows][:, columns]`` without copying whole rows."""
    for k in range(len(rows)):
        source, target = matrix[rows[k]], out[k]
        for j in range(len(columns)):
            target[j] = source[columns[j]]


@njit(cache=True, nogil=True)
def gather_shared(own, across, rows, columns, out):
    """Copy some rows and columns of the kernel matrix of two classes, see `_shared_row`."""
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
    """Copy rows ``start:stop`` of a symmetric matrix from above its diagonal to below it.

    This includes the diagonal block, whose halves BLAS may round differently. It goes tile by tile,
    so that the cache lines that are read and written stay in the first-level cache.
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
def on_bound(value, lower, upper, largest, tolerance=1e-14):
    """Snap a value to a bound or zero if it is within rounding; ``largest`` is the largest value.

    ``largest`` limits the tolerance, since a huge bound (a huge ``C``) would make it too large.
    """
    scale = tolerance * min(max(abs(lower), abs(upper)), largest)
    for bound in (lower, upper, 0.0):
        value = bound if abs(value - bound) <= scale else value
    return value


@njit(cache=True, nogil=True)
def on_bounds(values, lower, upper):
    """Clip values to their bounds, and snap those within rounding of a bound or zero."""
    out, largest = np.empty_like(values), 0.0
    for i in range(len(values)):
        out[i] = min(max(values[i], lower[i]), upper[i])
        largest = max(largest, abs(out[i]))
    for i in range(len(values)):
        out[i] = on_bound(out[i], lower[i], upper[i], largest)
    return out


@njit(cache=True, nogil=True)
def middle(F, beta, lower, upper, eps):
    """Mean residual and number of free coefficients; the largest gain, the lowest cost."""
    total, count, top, low, largest = 0.0, 0, -10.0 * HUGE, 10.0 * HUGE, 0.0
    for i in range(len(beta)):
        largest = max(largest, abs(beta[i]))
    for i in range(len(F)):
        b = on_bound(beta[i], lower[i], upper[i], largest, BOUND_TOLERANCE)
        rising, falling = b < upper[i], b > lower[i]
        if rising:
            top = max(top, F[i] + (eps if b < 0.0 else -eps))
        if falling:
            low = min(low, F[i] + (-eps if b > 0.0 else eps))
        if rising and falling and (b != 0.0 or eps == 0.0):
            total += F[i] - eps * np.sign(b)
            count += 1
    return total / max(count, 1), count, top, low


def move_terms(beta: Array, lower: Array, upper: Array, eps: float) -> tuple[Array, Array]:
    """The terms ``up`` and ``down`` of `set_move_terms` as new arrays."""
    up, down = np.empty_like(beta), np.empty_like(beta)
    set_move_terms(beta, lower, upper, eps, up, down)
    return up, down
