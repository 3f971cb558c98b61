"""The optimal objective, by a second-order solver in float64 with a certificate.

Every class is solved apart by damped Newton steps: a Cholesky factor of the Hessian where
there are few features, conjugate gradients where there are many. Strong convexity certifies
the result: ``F(w) - F* <= |gradient|^2 / (2 alpha)``. The hinge with few features is approached
by a softplus of falling width ``mu``, whose slopes are a feasible point of the hinge's dual;
with many features by long dual coordinate ascent. Either way the duality gap is known, and it
is stored beside the value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy import linalg, sparse
from scipy.special import expit

from benchmarks.common import remember
from benchmarks.datasets import Array, Matrix
from benchmarks.linear.problem import Problem, row_losses

# above this many features a Hessian costs more than conjugate gradients
DENSE_HESSIAN = 1000
SMOOTH_GAP = 1e-9
HINGE_GAP = 3e-4

# value, slope and curvature of a smooth loss of the margin
Smooth = Callable[[Array], tuple[Array, Array, Array]]


def solve(problem: Problem) -> dict[str, Any]:
    """Return the optimal objective of a problem, computed once and then remembered."""
    key = f"{problem.key}/{problem.data.n_rows}x{problem.data.n_features}"
    entry = remember(problem.reference / "optima.json", key, lambda: _solve(problem))
    problem.optimum = entry["objective"]
    return entry


def _solve(problem: Problem) -> dict[str, Any]:
    start = time.perf_counter()
    coef = np.zeros((problem.n_problems, problem.data.n_features))
    X, gap = problem.data.X, 0.0
    few = X.shape[1] <= DENSE_HESSIAN
    if sparse.issparse(X) and few:
        X = X.toarray()
    for k in range(problem.n_problems):
        y = problem.targets[:, k]
        if problem.loss == "log_loss":
            coef[k], part = _newton(X, y, problem.alpha, log_loss, coef[k])
        elif few:
            coef[k], part = _hinge(X, y, problem.alpha)
        else:
            coef[k], part = _dual_ascent(X, y, problem.alpha)
        gap += part
    objective = problem.objective(coef)
    return {
        "objective": objective,
        "certified_gap": gap / objective,
        "seconds": time.perf_counter() - start,
    }


def log_loss(z: Array) -> tuple[Array, Array, Array]:
    """Log loss of the margin with its two derivatives."""
    p = expit(-z)
    return np.logaddexp(0.0, -z), -p, p * (1 - p)


def smoothed_hinge(mu: float) -> Smooth:
    """Hinge with its corner rounded over a width of about ``mu``: a scaled softplus.

    Unlike a parabola it has curvature everywhere, which keeps Newton steps sensible.
    """

    def loss(z: Array) -> tuple[Array, Array, Array]:
        a = expit((1 - z) / mu)
        return mu * np.logaddexp(0.0, (1 - z) / mu), -a, a * (1 - a) / mu

    return loss


def _hinge(X: Matrix, y: Array, alpha: float) -> tuple[Array, float]:
    """Follow the smoothed optimum down in ``mu`` until the duality gap is small."""
    w, mu = np.zeros(X.shape[1]), 1.0
    gap = float("inf")
    for _ in range(25):
        w, _ = _newton(X, y, alpha, smoothed_hinge(mu), w, gap=HINGE_GAP / 3)
        z = y * (X @ w)
        a = expit((1 - z) / mu)
        pull = X.T @ (a * y) / len(y)
        primal = row_losses("hinge", z).mean() + alpha / 2 * w @ w
        gap = primal - (a.mean() - pull @ pull / (2 * alpha))
        if gap <= HINGE_GAP * primal:
            break
        mu /= 4
    return w, float(gap)


def _dual_ascent(X: sparse.csr_matrix, y: Array, alpha: float) -> tuple[Array, float]:
    """Dual coordinate ascent on a hinge problem with many features, until the gap is small."""
    n = len(y)
    a, w = np.zeros(n), np.zeros(X.shape[1])
    norms = np.asarray(X.multiply(X).sum(axis=1)).ravel() / (alpha * n)
    rng = np.random.default_rng(0)
    gap, active = float("inf"), np.arange(n)
    for sweep in range(20_000):
        moved = ascend(
            X.data, X.indices, X.indptr, y, (norms, a, w, alpha * n), rng.permutation(active)
        )
        # rows that stand still at a bound are left out until the next full sweep
        active = active[moved[active]] if sweep % 10 else np.arange(n)
        if sweep % 10 == 0:
            w = X.T @ (a * y) / (alpha * n)
            primal = row_losses("hinge", y * (X @ w)).mean() + alpha / 2 * w @ w
            gap = primal - (a.mean() - alpha / 2 * w @ w)
            if gap <= HINGE_GAP * primal:
                break
    return w, float(gap)


@njit(nogil=True)
def ascend(data, indices, indptr, y, state, order):
    """One pass of exact coordinate steps; ``w`` is kept equal to ``X^T (a y) / (alpha n)``.

    Maximising the dual over ``a_i`` in [0, 1] moves it by ``(1 - y_i x_i^T w) / norms_i``, where
    ``norms_i = |x_i|^2 / (alpha n)``. Returns which rows moved or lie strictly inside.
    """
    norms, a, w, alpha_n = state
    moved = np.zeros(len(a), dtype=np.bool_)
    for i in order:
        if norms[i] == 0.0:
            continue
        margin = 0.0
        for j in range(indptr[i], indptr[i + 1]):
            margin += data[j] * w[indices[j]]
        new = min(max(a[i] + (1.0 - y[i] * margin) / norms[i], 0.0), 1.0)
        change = new - a[i]
        moved[i] = change != 0.0 or (0.0 < new < 1.0)
        if change != 0.0:
            a[i] = new
            push = change * y[i] / alpha_n
            for j in range(indptr[i], indptr[i + 1]):
                w[indices[j]] += push * data[j]
    return moved


def _newton(
    X: Matrix, y: Array, alpha: float, loss: Smooth, w: Array, gap: float = SMOOTH_GAP
) -> tuple[Array, float]:
    """Damped Newton steps until the certified gap is below ``gap`` of the objective."""
    n = len(y)
    z = y * (X @ w)
    for _ in range(200):
        value, slope, curvature = loss(z)
        objective = value.mean() + alpha / 2 * w @ w
        gradient = X.T @ (slope * y) / n + alpha * w
        certificate = gradient @ gradient / (2 * alpha)
        if certificate <= gap * objective:
            break
        step = -_newton_direction(X, curvature / n, alpha, gradient)
        move = y * (X @ step)
        size = 1.0
        while size > 1e-12:
            trial = loss(z + size * move)[0].mean() + alpha / 2 * np.sum((w + size * step) ** 2)
            if trial <= objective + 1e-4 * size * (gradient @ step):
                break
            size /= 2
        if size <= 1e-12:
            # the objective is flat to the last digit: rounding, not the solver, limits us
            break
        w, z = w + size * step, z + size * move
    return w, float(certificate)


def _newton_direction(X: Matrix, curvature: Array, alpha: float, gradient: Array) -> Array:
    rows = np.flatnonzero(curvature > 1e-14 * max(curvature.max(), 1e-300))
    d = X.shape[1]
    if d <= DENSE_HESSIAN:
        active = X[rows] if len(rows) < X.shape[0] else X
        root = np.sqrt(curvature[rows])
        scaled = active * root[:, None]
        hessian = scaled.T @ scaled
        hessian.flat[:: d + 1] += alpha
        return linalg.cho_solve(linalg.cho_factor(hessian), gradient)
    return _conjugate_gradients(X[rows], curvature[rows], alpha, gradient)


def _conjugate_gradients(X: Matrix, curvature: Array, alpha: float, b: Array) -> Array:
    """Solve ``(X^T diag(curvature) X + alpha) v = b``, tighter as ``b`` gets smaller."""
    v, r = np.zeros_like(b), b.copy()
    direction, rr = r.copy(), float(b @ b)
    goal = min(0.1, rr**0.25) ** 2 * rr
    transposed = X.T.tocsr()
    for _ in range(1000):
        image = transposed @ (curvature * (X @ direction)) + alpha * direction
        step = rr / float(direction @ image)
        v += step * direction
        r -= step * image
        rr, before = float(r @ r), rr
        if rr <= goal:
            break
        direction = r + (rr / before) * direction
    return v
