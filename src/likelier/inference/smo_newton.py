"""A Newton step on the free support vectors: many pair updates at the price of one Cholesky.

Pairs converge slowly where many coefficients lie between their bounds and the kernel matrix is
ill conditioned (large ``C``). On the face of the free coefficients the dual is a quadratic with
one constraint, which is solved at once; SMO then goes on from the better point.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from likelier.base import Array
from likelier.loops.smo import part_of

MAX_FREE = 2500  # free coefficients: beyond, one factorisation costs more than it gains
MAX_ROUNDS = 6
RIDGE = 1e-13  # of the mean diagonal and per row: what rounding may take from an eigenvalue


def newton_cost(n_free: int, n_active: int) -> float:
    """Rough time of a step in nanoseconds, to compare with pair updates."""
    return 0.1 * n_free**3 + 8.0 * n_free**2 + 0.3 * n_free * n_active + 2e5


def newton_move(K: Array, r: Array, low: Array, high: Array) -> Array | None:
    """Move of free coefficients that raises the dual, or None.

    Maximises ``r^T d - 1/2 d^T K d`` over ``sum d = 0``, ``low <= d <= high`` (``low <= 0 <=
    high``), the bounds by fixing what leaves them and solving again: not always the optimum of
    the face, but never a loss. Cost: a few Cholesky factorisations of ``K``.
    """
    first = _solve(K, r, 0.0)
    if first is None:
        return None
    move = _clipped(K, r, low, high, first)
    if move is not None and _rise(K, r, move) > 0.0:
        return move
    room = np.full(len(first), np.inf)
    np.divide(high, first, out=room, where=first > 0.0)
    np.divide(low, first, out=room, where=first < 0.0)
    move = first * min(1.0, float(room.min()))
    return move if _rise(K, r, move) > 0.0 else None


def _clipped(K: Array, r: Array, low: Array, high: Array, first: Array) -> Array | None:
    """Move inside the bounds, found by fixing at its bound whatever would leave it."""
    move, live, step = np.zeros(len(r)), np.arange(len(r)), first
    for _ in range(MAX_ROUNDS):
        out = (step < low[live]) | (step > high[live])
        if not out.any():
            move[live] = step
            return move
        gone = live[out]
        move[gone] = np.where(step[out] < low[gone], low[gone], high[gone])
        live = live[~out]
        fixed = np.flatnonzero(move)
        if len(live) < 2:
            return None
        rest = r[live] - (K[fixed].T @ move[fixed])[live]
        found = _solve(part_of(K, live, live), rest, -float(move[fixed].sum()))
        if found is None:
            return None
        step = found
    return None


def _solve(K: Array, r: Array, total: float) -> Array | None:
    """``K d + b 1 = r`` with ``sum d = total``; None if ``K`` is not positive definite."""
    n = len(r)
    A = K.copy()
    A.ravel()[:: n + 1] += RIDGE * K.trace()
    sides = np.ones((2, n))
    sides[0] = r
    # transposes are views in the order that LAPACK wants, and the matrix is symmetric
    factor, failed = lapack.dpotrf(A.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        return None
    both, _ = lapack.dpotrs(factor, sides.T, lower=1, overwrite_b=1)
    weight = both[:, 1].sum()
    if not weight > 0.0:
        return None
    shift = (both[:, 0].sum() - total) / weight
    step = np.asarray(both[:, 0] - shift * both[:, 1])
    return step if np.isfinite(step).all() else None


def _rise(K: Array, r: Array, move: Array) -> float:
    return float(move @ r - 0.5 * move @ (K @ move))
