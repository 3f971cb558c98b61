"""A Newton step on the free support vectors: many pair updates at the price of one Cholesky.

Pairs converge slowly where many coefficients lie between their bounds and the kernel matrix is
ill conditioned (large ``C``). On the face of the free coefficients the dual is a quadratic with
one constraint, which is solved at once; SMO then goes on from the better point. What would leave
its bounds is fixed there, some of it in every round. The factor of the whole face serves all
rounds: that a coefficient is fixed is one more constraint beside the sum, and the multipliers of
the constraints solve a small system (a Schur complement).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from likelier.base import Array

MAX_FREE = 2500  # free coefficients: beyond, one factorisation costs more than it gains
MAX_ROUNDS = 12
RIDGE = 1e-13  # of the mean diagonal and per row: what rounding may take from an eigenvalue


def newton_cost(n_free: int, n_active: int) -> float:
    """Rough time of a step in nanoseconds, to compare with pair updates."""
    return 0.03 * n_free**3 + 10.0 * n_free**2 + 0.3 * n_free * n_active + 3e5


def newton_move(
    K: Array, r: Array, low: Array, high: Array, ridge: float = 0.0
) -> tuple[Array, bool] | None:
    """Move of free coefficients that raises the dual, and whether it is a whole one; or None.

    Maximises ``r^T d - 1/2 d^T (K + ridge) d`` over ``sum d = 0``, ``low <= d <= high`` (``low <=
    0 <= high``), the bounds by fixing what is first to leave them and solving again: not always
    the optimum of the face, but never a loss. If something still leaves at the end the move is
    shortened. Cost: a Cholesky factorisation of ``K``, and a solution for each row fixed.
    """
    A = K.copy()
    A.ravel()[:: len(r) + 1] += ridge + RIDGE * K.trace()
    # transposes are views in the order that LAPACK wants, and the matrix is symmetric
    factor, failed = lapack.dpotrf(A.T, lower=1, clean=0, overwrite_a=1)
    found = None if failed else _inside(factor, r, low, high)
    return found if found and _rise(K, r, found[0]) > 0.0 else None


def _inside(factor: Array, r: Array, low: Array, high: Array) -> tuple[Array, bool] | None:
    """A step inside the bounds, and whether it is whole: not shortened to be there."""
    n, fixed, held = len(r), np.empty(0, dtype=np.intp), np.empty(0)
    sides = lapack.dtrtrs(factor, np.stack([r, np.ones(n)]).T, lower=1)[0]
    for _ in range(MAX_ROUNDS):
        step = _constrained(factor, sides, fixed, held)
        if step is None:
            return None
        out = np.flatnonzero((step < low) | (step > high))
        if not len(out):
            return step, True
        bound = np.where(step[out] > 0.0, high[out], low[out])
        share = bound / step[out]  # of the way that can be gone
        shortened = share.min() * step
        first = share.argsort(kind="stable")[: len(out) // 2 + 1]
        if len(fixed) + len(first) > n - 2:
            break
        fixed = np.concatenate([fixed, out[first]])
        held = np.concatenate([held, bound[first]])
        more = np.zeros((len(first), n))
        more[np.arange(len(first)), out[first]] = 1.0
        more = lapack.dtrtrs(factor, more.T, lower=1, overwrite_b=1)[0]
        sides = np.concatenate([sides.T, more.T]).T
    return shortened, False


def _constrained(factor: Array, sides: Array, fixed: Array, held: Array) -> Array | None:
    """The optimum where some coefficients are held; None if it is not found.

    ``sides`` are ``L^-1`` times the residuals, the ones of the sum and the unit vectors of what is
    fixed: those that follow the residuals are constraints.
    """
    inner = sides[:, 1:].T @ sides
    target = inner[:, 0].copy()
    target[1:] -= held
    _, multiplier, failed = lapack.dposv(inner[:, 1:], target)
    if failed:
        return None
    rest = sides[:, 0] - sides[:, 1:] @ multiplier
    step = np.asarray(lapack.dtrtrs(factor, rest, lower=1, trans=1)[0])
    step[fixed] = held
    return step if np.isfinite(step).all() else None


def _rise(K: Array, r: Array, move: Array) -> float:
    return float(move @ r - 0.5 * move @ (K @ move))
