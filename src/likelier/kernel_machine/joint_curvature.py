"""The curvature of all classes together, for more weights than a matrix of them would fit.

With ``R_i = omega_i (diag p_i - p_i p_i^T)`` the log posterior of ``W`` has the curvature
``sum_i R_i (x) phi_i phi_i^T + lambda I``. Most of its directions are the prior's: a class is
told apart from others by few rows, in few directions. For every class an orthonormal basis
``Q_k`` of the leading directions of ``sum_i R_ikk phi_i phi_i^T`` is found, and the whole
curvature, what classes say about each other included, is kept within these directions. Outside
of them a class has one curvature: the prior's, and what the data add to it on average where rows
are. With all directions nothing is left out.

The bases are those of ``(sum_i R_ikk phi_i phi_i^T) Omega`` with the same normal numbers for
every class: one product, which is enough as the reduced curvature is then taken anew.

Sure rows are most of the rows and bend hardly at all, one by one. Chances too small to matter
alone are therefore thinned: one of weight ``c < tau`` is kept as ``tau`` for a share ``c / tau`` of
the rows, ``tau`` being a fraction of the prior precision. Their sum stays what it was, and no
random numbers are needed: which rows are kept is decided by multiples of the golden ratio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr

from likelier.base import Array, Batch
from likelier.kernel_machine.softmax_weights import HeadProblem

# Directions of all classes together are as many as features, within these limits: a row then costs
# about what it costs to make its features. With 125 directions of each of ten classes variances of
# scores were within some percent of those of the whole curvature.
LEAST_DIRECTIONS, MOST_DIRECTIONS, MOST_OF_A_CLASS = 640, 1536, 256
NEARLY_ALL = 0.8  # of the rows: taking them out would cost more than it saves
N_PLACES = 32  # rows of a block at which the curvature outside is looked at
MAX_OUTPUTS = 64  # beyond, a matrix of classes for every row is too much
THINNING = 0.05  # of the prior precision: a chance that weighs less does not matter alone
LARGEST_CHANCE = 0.01  # that is thinned, however little its row weighs
GOLDEN = 0.6180339887498949


def is_reducible(problem: HeadProblem, n_outputs: int) -> bool:
    """Whether there are several classes, not too many, of a softmax with a ridge as prior."""
    precision = problem.prior.precision
    ridge = precision.ndim == 1 and bool((precision[:-1] == precision[0]).all())
    return ridge and problem.loss.sharpness == 1.0 and 1 < n_outputs <= MAX_OUTPUTS


@dataclass(frozen=True)
class Reduced:
    """The curvature with the prior, in bases of every class and outside of them.

    Attributes
    ----------
    bases : array of shape (n_outputs, D, r)
        Orthonormal; the last column of each is the constant.
    inside : array of shape (n_outputs r, n_outputs r)
        Only the lower triangle is meaningful.
    outside : array of shape (n_outputs,)
    """

    bases: Array
    inside: Array
    outside: Array


def reduced_curvature(problem: HeadProblem, W: Array, n_directions: int | None = None) -> Reduced:
    """Bases and curvature in two passes.

    ``n_directions`` is how many there are of all classes together, by default as many as
    features, within limits. Costs ``rows x D x r`` and, for each class, ``2 D r + C r^2`` for
    each row that is not sure about it.
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

    def look(batch: Batch) -> tuple[Array, Array, Array]:
        return _reduced_sums(_chances(problem, batch, W, tau), bases)

    H, apart, length = problem.reduce(look, lambda a, b: tuple(map(np.add, a, b)))
    own = np.append(np.full(r - 1, precision[0]), precision[-1])
    H[np.diag_indices_from(H)] += np.tile(own, C).astype(H.dtype)
    # with all directions nothing is outside but rounding
    added = np.divide(apart, length, out=np.zeros(C), where=(length > 0.0) & (r < D))
    return Reduced(bases, H, precision[0] + added)


@dataclass(frozen=True)
class Unsure:
    """Rows of a block that are not sure: features, thinned chances, weights; and some of all."""

    Phi: Array
    p: Array
    omega: Array
    places: Array  # features of a few rows, sure or not
    n_rows: int


def _leading_directions(problem: HeadProblem, W: Array, r: int, tau: float) -> Array:
    D, C = W.shape
    normal = np.random.default_rng(0).standard_normal((D - 1, r - 1)).astype(np.float32)

    def look(batch: Batch) -> Array:
        rows = _chances(problem, batch, W, tau)
        return _range(rows.Phi[:, :-1], rows.p * (1.0 - rows.p) * rows.omega[:, None], normal)

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
        rows = _told(weight)
        out[k] = Phi[rows].T @ (weight[rows, None] * pushed[rows])
    return out


def _reduced_sums(unsure: Unsure, bases: Array) -> tuple[Array, Array, Array]:
    """Curvature of some rows in the bases, and what `_outside` says of every class.

    Only the lower triangle of the curvature is meaningful.
    """
    C, _, r = bases.shape
    Phi, p, root = unsure.Phi, unsure.p, np.sqrt(unsure.omega)
    H = np.zeros((C * r, C * r), dtype=np.float32)
    apart, length = np.zeros(C), np.zeros(C)
    near = Phi[:, :-1] @ unsure.places[:, :-1].T
    pulled = np.zeros((len(p), C * r), dtype=np.float32)  # sqrt(omega) p_k Q_k^T phi
    for k in range(C):
        rows, own = _told(p[:, k]), slice(k * r, (k + 1) * r)
        basis, chance = bases[k].astype(Phi.dtype, copy=False), p[rows, k]
        inside = Phi[rows] @ basis
        curvature = chance * (1.0 - chance)
        within = unsure.places[:, :-1] @ basis[:-1, :-1]
        away = near[rows] - inside[:, :-1] @ within.T
        apart[k], length[k] = _outside(unsure, within, away, curvature * unsure.omega[rows])
        inside *= root[rows, None]
        H[own, own] = inside.T @ (curvature[:, None] * inside)
        inside *= chance[:, None]
        if k:
            H[own, : k * r] = -(inside.T @ pulled[rows, : k * r])
        pulled[rows, own] = inside
    return H, apart, length


def _outside(unsure: Unsure, within: Array, away: Array, weight: Array) -> tuple[float, float]:
    """What some rows add to the curvature of a class outside of its basis.

    At places ``a``, parts of features outside: sums of ``a^T (sum_i R_ikk phi_i phi_i^T) a``, and
    of ``|a|^2``. ``within`` are the places in the basis, ``away`` the products ``phi_i^T a``. A row
    says nothing new about its own place, and is left out there.
    """
    places = unsure.places[:, :-1]
    share = unsure.n_rows / max(1, len(places))
    squares = np.einsum("nd,nd->n", places, places, dtype=np.float64)
    squares = np.maximum(squares - np.einsum("nr,nr->n", within, within, dtype=np.float64), 0.0)
    products = away**2
    products[products >= 0.999 * squares**2] = 0.0
    return share * float((weight @ products).sum(dtype=np.float64)), share * float(squares.sum())


def _told(weight: Array) -> Any:
    """Rows of any weight; all of them, without a copy, where hardly any has none."""
    rows = np.flatnonzero(weight)
    return slice(None) if len(rows) > NEARLY_ALL * len(weight) else rows


def _chances(problem: HeadProblem, batch: Batch, W: Array, tau: float) -> Unsure:
    """Rows of a block that are not sure, their chances thinned."""
    Phi = problem.features(batch)
    _, _, p = problem.loss.terms(problem.scores(batch, Phi, W), np.asarray(batch.y))
    omega = np.ones(len(p)) if batch.weight is None else np.asarray(batch.weight)
    p = thinned(p, omega, tau, batch.start)
    unsure = np.flatnonzero((p * (1.0 - p)).any(axis=1))
    places = Phi[:: max(1, len(Phi) // N_PLACES)][:N_PLACES]
    return Unsure(Phi[unsure], p[unsure], omega[unsure].astype(Phi.dtype), places, len(Phi))


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
