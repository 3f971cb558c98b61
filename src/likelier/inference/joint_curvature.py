"""The curvature of all classes together, for more weights than a matrix of them would fit.

With ``R_i = omega_i (diag p_i - p_i p_i^T)`` the log posterior of ``W`` has the curvature
``sum_i R_i (x) phi_i phi_i^T + lambda I``. Most of its directions are the prior's: a class is
told apart from others by few rows, in few directions. For every class an orthonormal basis
``Q_k`` of the leading directions of ``sum_i R_ikk phi_i phi_i^T`` is found, and the whole
curvature, what classes say about each other included, is kept within these directions; outside
of them it is the prior's. What is left out is below the prior precision there, and leaving it
out only overstates a variance. With a basis of all directions nothing is left out.

The bases are those of ``(sum_i R_ikk phi_i phi_i^T) Omega`` with the same normal numbers for
every class: one product, which is enough as the reduced curvature is then taken anew.

Sure rows are most of the rows and bend hardly at all, one by one. Chances too small to matter
alone are therefore thinned: one of weight ``c < tau`` is kept as ``tau`` for a share ``c / tau`` of
the rows, ``tau`` being a fraction of the prior precision. Their sum stays what it was, and no
random numbers are needed: which rows are kept is decided by multiples of the golden ratio.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import qr

from likelier.base import Array, Batch
from likelier.inference.softmax_head import HeadProblem

# Directions of all classes together are as many as features, within these limits: a row then costs
# about what it costs to make its features.
LEAST_DIRECTIONS, MOST_DIRECTIONS, MOST_OF_A_CLASS = 640, 1536, 256
MAX_OUTPUTS = 64  # beyond, a matrix of classes for every row is too much
THINNING = 0.05  # of the prior precision: a chance that weighs less does not matter alone
LARGEST_CHANCE = 0.01  # that is thinned, however little its row weighs
GOLDEN = 0.6180339887498949


def is_reducible(problem: HeadProblem, n_outputs: int) -> bool:
    """Whether there are several classes, not too many, of a softmax with a ridge as prior."""
    ridge = problem.prior.precision.ndim == 1
    return ridge and problem.loss.sharpness == 1.0 and 1 < n_outputs <= MAX_OUTPUTS


def reduced_curvature(
    problem: HeadProblem, W: Array, n_directions: int | None = None
) -> tuple[Array, Array]:
    """Bases ``(n_outputs, D, r)``, and the curvature in them with the prior, lower triangle.

    The last column of a basis is the constant. ``n_directions`` is how many there are of all
    classes together, by default as many as features, within limits. Two passes, which cost ``rows x D x r`` and,
    for each class, ``2 D r + C r^2`` for each row that is not sure about it.
    """
    precision, (D, C) = problem.prior.precision, W.shape
    if n_directions is None:
        n_directions = int(np.clip(D, LEAST_DIRECTIONS, MOST_DIRECTIONS))
    r = min(D, max(2, n_directions // C), MOST_OF_A_CLASS)
    tau = THINNING * float(precision[0])
    if r == D:
        bases = np.broadcast_to(np.eye(D, dtype=np.float32), (C, D, D))
    else:
        bases = _leading_directions(problem, W, r, tau)

    def look(batch: Batch) -> Array:
        Phi, p, omega = _chances(problem, batch, W, tau)
        return _reduced_sums(Phi, p, omega, bases)

    H = np.asarray(problem.reduce(look, np.add))
    inside = np.einsum("kdr,d,kds->krs", bases, precision.astype(bases.dtype), bases, optimize=True)
    for k in range(C):
        part = slice(k * r, (k + 1) * r)
        H[part, part] += inside[k]
    return bases, H


def _leading_directions(problem: HeadProblem, W: Array, r: int, tau: float) -> Array:
    D, C = W.shape
    normal = np.random.default_rng(0).standard_normal((D - 1, r - 1)).astype(np.float32)

    def look(batch: Batch) -> Array:
        Phi, p, omega = _chances(problem, batch, W, tau)
        return _range(Phi[:, :-1], p * (1.0 - p) * omega[:, None], normal)

    products = np.asarray(problem.reduce(look, np.add))
    bases = np.zeros((C, D, r), dtype=np.float32)
    for k, product in enumerate(products):
        bases[k, :-1, :-1] = qr(product, mode="economic", overwrite_a=True, check_finite=False)[0]
    bases[:, -1, -1] = 1.0
    return bases


def _range(Phi: Array, weights: Array, normal: Array) -> Array:
    """``Phi^T diag(weights_k) Phi normal`` of every class."""
    pushed = Phi @ normal.astype(Phi.dtype)
    out = np.zeros((weights.shape[1], *normal.shape), dtype=np.float32)
    for k, weight in enumerate(weights.T):
        rows = np.flatnonzero(weight)
        out[k] = Phi[rows].T @ (weight[rows, None] * pushed[rows])
    return out


def _reduced_sums(Phi: Array, p: Array, omega: Array, bases: Array) -> Array:
    """Curvature of some rows in the bases; only the lower triangle is meaningful."""
    C, _, r = bases.shape
    root = np.sqrt(omega)
    H = np.zeros((C * r, C * r), dtype=np.float32)
    pulled = np.zeros((len(p), C * r), dtype=np.float32)  # sqrt(omega) p_k Q_k^T phi
    for k in range(C):
        rows, own = np.flatnonzero(p[:, k]), slice(k * r, (k + 1) * r)
        inside = Phi[rows] @ bases[k].astype(Phi.dtype)
        inside *= root[rows, None]
        H[own, own] = inside.T @ ((p[rows, k] * (1.0 - p[rows, k]))[:, None] * inside)
        inside *= p[rows, k, None]
        if k:
            H[own, : k * r] = -(inside.T @ pulled[rows, : k * r])
        pulled[rows, own] = inside
    return H


def _chances(problem: HeadProblem, batch: Batch, W: Array, tau: float) -> tuple[Array, Array, Array]:
    """Features, thinned class probabilities and weights of those rows that are not sure."""
    Phi = problem.features(batch)
    _, _, p = problem.loss.terms(problem.scores(batch, Phi, W), np.asarray(batch.y))
    omega = np.ones(len(p)) if batch.weight is None else np.asarray(batch.weight)
    p = thinned(p, omega, tau, batch.start)
    unsure = np.flatnonzero((p * (1.0 - p)).any(axis=1))
    return Phi[unsure], p[unsure], omega[unsure].astype(Phi.dtype)


def thinned(p: Array, omega: Array, tau: float, start: int = 0) -> Array:
    """Class probabilities of which those with ``omega p < tau`` are zero, or larger but rarer.

    Every row adds up to one. ``start`` is the number of the first row.
    """
    with np.errstate(divide="ignore"):
        least = np.minimum(tau / omega, LARGEST_CHANCE)[:, None].astype(p.dtype)
    number: Any = (start + np.arange(1, len(p) + 1)) * GOLDEN
    place = (number % 1.0).astype(p.dtype)[:, None]
    rarer = np.where(place * least < p, least, p.dtype.type(0.0))
    kept = np.where(p < least, rarer, p)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))
