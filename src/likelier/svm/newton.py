"""Newton step on the free support vectors, by one Cholesky factorisation.

Pair updates converge slowly if many coefficients lie between their bounds and the kernel matrix is
ill conditioned (large ``C``). On the face of the free coefficients the dual is a quadratic with one
constraint, which is solved directly; SMO then continues from the improved point. Coefficients that
would leave their bounds are fixed there, some in every round. All rounds use the factor of the
whole face: a fixed coefficient is another linear constraint, and the multipliers of the constraints
solve a small system (a Schur complement).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from likelier.base import Array

MAX_FREE = 2500  # free coefficients; beyond, a factorisation is too expensive
MAX_ROUNDS = 12
RIDGE = 1e-13  # of the trace; covers the rounding error of eigenvalues


def newton_cost(n_free: int, n_active: int) -> float:
    """Estimated time of a step in nanoseconds, to compare with pair updates."""
    return 0.03 * n_free**3 + 10.0 * n_free**2 + 0.3 * n_free * n_active + 3e5


def newton_move(
    K: Array, r: Array, low: Array, high: Array, ridge: float = 0.0
) -> tuple[Array, bool] | None:
    """Move of free coefficients that increases the dual, and whether it is a full step; or None.

    Maximises ``r^T d - 1/2 d^T (K + ridge) d`` over ``sum d = 0``, ``low <= d <= high`` (``low <=
    0 <= high``). Bounds are handled by fixing the coefficients that violate them first, and solving
    again: not always the optimum of the face, but never a decrease. If bounds are still violated in
    the last round, the move is shortened. Cost: a Cholesky factorisation of ``K``, and a triangular
    solve per fixed row.
    """
    A = K.copy()
    A.ravel()[:: len(r) + 1] += ridge + RIDGE * K.trace()
    # the matrix is symmetric, so its transposed view has LAPACK's memory layout
    factor, failed = lapack.dpotrf(A.T, lower=1, clean=0, overwrite_a=1)
    found = None if failed else _inside(factor, r, low, high)
    return found if found and _dual_increase(K, r, found[0]) > 0.0 else None


def _inside(factor: Array, r: Array, low: Array, high: Array) -> tuple[Array, bool] | None:
    """A step inside the bounds, and whether it is a full step, not a shortened one."""
    n, fixed, fixed_values = len(r), np.empty(0, dtype=np.intp), np.empty(0)
    sides = lapack.dtrtrs(factor, np.stack([r, np.ones(n)]).T, lower=1)[0]
    for _ in range(MAX_ROUNDS):
        step = _constrained(factor, sides, fixed, fixed_values)
        if step is None:
            return None
        out = np.flatnonzero((step < low) | (step > high))
        if not len(out):
            return step, True
        bound = np.where(step[out] > 0.0, high[out], low[out])
        fraction = bound / step[out]  # feasible fraction of the step
        shortened = fraction.min() * step
        first = fraction.argsort(kind="stable")[: len(out) // 2 + 1]
        if len(fixed) + len(first) > n - 2:
            break
        fixed = np.concatenate([fixed, out[first]])
        fixed_values = np.concatenate([fixed_values, bound[first]])
        more = np.zeros((len(first), n))
        more[np.arange(len(first)), out[first]] = 1.0
        more = lapack.dtrtrs(factor, more.T, lower=1, overwrite_b=1)[0]
        sides = np.concatenate([sides.T, more.T]).T
    return shortened, False


def _constrained(factor: Array, sides: Array, fixed: Array, fixed_values: Array) -> Array | None:
    """The optimum with some coefficients fixed; None if it is not found.

    ``sides`` are ``L^-1`` times the residuals, the vector of ones of the sum constraint, and the
    unit vectors of the fixed coefficients.
    """
    inner = sides[:, 1:].T @ sides
    target = inner[:, 0].copy()
    target[1:] -= fixed_values
    _, multiplier, failed = lapack.dposv(inner[:, 1:], target)
    if failed:
        return None
    rest = sides[:, 0] - sides[:, 1:] @ multiplier
    step = np.asarray(lapack.dtrtrs(factor, rest, lower=1, trans=1)[0])
    step[fixed] = fixed_values
    return step if np.isfinite(step).all() else None


def _dual_increase(K: Array, r: Array, move: Array) -> float:
    return float(move @ r - 0.5 * move @ (K @ move))
