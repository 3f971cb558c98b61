"""Low-rank approximation of the joint curvature of all classes.

With ``R_i = omega_i (diag p_i - p_i p_i^T)`` the log posterior of ``W`` has the curvature
``sum_i R_i (x) phi_i phi_i^T + lambda I``. In most directions the prior dominates: a class is
separated from the others by few rows, in few directions. For every class an orthonormal basis
``Q_k`` of the leading directions of ``sum_i R_ikk phi_i phi_i^T`` is computed, and the joint
curvature, including cross-class blocks, is exact within these subspaces. Outside, each class has a
scalar curvature: the prior's plus the average contribution of the data at the rows. With all
directions the result is exact.

The bases come from one randomised range-finder product ``(sum_i R_ikk phi_i phi_i^T) Omega``, with
the same normal matrix for every class; one product suffices since the curvature is then recomputed
in the bases.

Most rows are confidently classified and contribute almost no curvature each. Small class
probabilities are therefore thinned: a weight ``c < tau`` becomes ``tau`` for a fraction ``c / tau``
of the rows, with ``tau`` a fraction of the prior precision. This preserves the sum. Rows are
selected by multiples of the golden ratio instead of random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr

from likelier.base import Array, Batch
from likelier.kernel_machine.weights import ScoredRows, WeightProblem

# Total number of directions: that of the features, within these limits, so that a row costs about
# as much as its features. With 125 directions for each of ten classes, score variances were within
# a few percent of the exact ones.
MIN_DIRECTIONS, MAX_DIRECTIONS, MAX_CLASS_DIRECTIONS = 640, 1536, 256
NEARLY_ALL = 0.8  # fraction of the rows above which selecting them costs more than it saves
N_PROBES = 32  # rows per block that probe the curvature outside of the bases
MAX_OUTPUTS = 64  # a classes x classes matrix per row gets too expensive
THINNING = 0.05  # relative to the prior precision; smaller contributions are thinned
MAX_THINNED = 0.01  # upper limit, for rows of small weight
GOLDEN = 0.6180339887498949


def is_reducible(problem: WeightProblem, n_outputs: int) -> bool:
    """Whether the problem is a multiclass softmax with a ridge prior and not too many classes."""
    precision = problem.prior.precision
    ridge = precision.ndim == 1 and bool((precision[:-1] == precision[0]).all())
    return ridge and problem.loss.sharpness == 1.0 and 1 < n_outputs <= MAX_OUTPUTS


@dataclass(frozen=True)
class Reduced:
    """Curvature including the prior, within the class bases and outside of them.

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


def reduced_curvature(problem: WeightProblem, W: Array, n_directions: int | None = None) -> Reduced:
    """Bases and curvature, in two passes.

    ``n_directions`` is the total over all classes, by default the number of features, within
    limits. Costs ``rows x D x r`` and, for each class, ``2 D r + C r^2`` per row that is not
    confident about it.
    """
    precision, (D, C) = problem.prior.precision, W.shape
    if n_directions is None:
        n_directions = int(np.clip(D, MIN_DIRECTIONS, MAX_DIRECTIONS))
    r = min(D, max(2, n_directions // C), MAX_CLASS_DIRECTIONS)
    tau = THINNING * float(precision[0])
    if r == D:
        bases = np.broadcast_to(np.eye(D, dtype=np.float32), (C, D, D))
    else:
        bases = _leading_directions(problem, W, r, tau)

    H, outside_sum, length = problem.reduce(_sums_in_bases, _add_all, (W, tau, bases))
    own = np.append(np.full(r - 1, precision[0]), precision[-1])
    H[np.diag_indices_from(H)] += np.tile(own, C).astype(H.dtype)
    # with all directions only rounding error is outside
    added = np.divide(outside_sum, length, out=np.zeros(C), where=(length > 0.0) & (r < D))
    return Reduced(bases, H, precision[0] + added)


def _sums_in_bases(
    batch: Batch, rows: ScoredRows, W: Array, tau: float, bases: Array
) -> tuple[Array, Array, Array]:
    return _reduced_sums(_uncertain_rows(batch, rows, tau), bases)


def _add_all(one: tuple[Array, ...], other: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


@dataclass(frozen=True)
class UncertainRows:
    """Rows of a block that are not confident, with thinned probabilities; and probe rows."""

    Phi: Array
    p: Array
    omega: Array
    probes: Array  # features of a few rows, confident or not
    n_rows: int


def _leading_directions(problem: WeightProblem, W: Array, r: int, tau: float) -> Array:
    D, C = W.shape
    normal = np.random.default_rng(0).standard_normal((D - 1, r - 1)).astype(np.float32)

    products = np.asarray(problem.reduce(_range_of_block, np.add, (W, tau, normal)))
    bases = np.zeros((C, D, r), dtype=np.float32)
    for k, product in enumerate(products):
        bases[k, :-1, :-1] = qr(product, mode="economic", overwrite_a=True, check_finite=False)[0]
    bases[:, -1, -1] = 1.0
    return bases


def _range_of_block(batch: Batch, rows: ScoredRows, W: Array, tau: float, normal: Array) -> Array:
    some = _uncertain_rows(batch, rows, tau)
    return _range(some.Phi[:, :-1], some.p * (1.0 - some.p) * some.omega[:, None], normal)


def _range(Phi: Array, weights: Array, normal: Array) -> Array:
    """``Phi^T diag(weights_k) Phi normal`` of every class."""
    pushed = Phi @ normal.astype(Phi.dtype)
    out = np.zeros((weights.shape[1], *normal.shape), dtype=np.float32)
    for k, weight in enumerate(weights.T):
        rows = _nonzero_rows(weight)
        out[k] = Phi[rows].T @ (weight[rows, None] * pushed[rows])
    return out


def _reduced_sums(uncertain: UncertainRows, bases: Array) -> tuple[Array, Array, Array]:
    """Curvature of some rows in the bases, and the sums of `_outside` for every class.

    Only the lower triangle of the curvature is meaningful.
    """
    C, _, r = bases.shape
    Phi, p, root = uncertain.Phi, uncertain.p, np.sqrt(uncertain.omega)
    H = np.zeros((C * r, C * r), dtype=np.float32)
    outside_sum, length = np.zeros(C), np.zeros(C)
    near = Phi[:, :-1] @ uncertain.probes[:, :-1].T
    weighted = np.zeros((len(p), C * r), dtype=np.float32)  # sqrt(omega) p_k Q_k^T phi
    for k in range(C):
        rows, own = _nonzero_rows(p[:, k]), slice(k * r, (k + 1) * r)
        basis, probability = bases[k].astype(Phi.dtype, copy=False), p[rows, k]
        inside = Phi[rows] @ basis
        curvature = probability * (1.0 - probability)
        within = uncertain.probes[:, :-1] @ basis[:-1, :-1]
        outside_products = near[rows] - inside[:, :-1] @ within.T
        outside_sum[k], length[k] = _outside(
            uncertain, within, outside_products, curvature * uncertain.omega[rows]
        )
        inside *= root[rows, None]
        H[own, own] = inside.T @ (curvature[:, None] * inside)
        inside *= probability[:, None]
        if k:
            H[own, : k * r] = -(inside.T @ weighted[rows, : k * r])
        weighted[rows, own] = inside
    return H, outside_sum, length


def _outside(
    uncertain: UncertainRows, within: Array, outside_products: Array, weight: Array
) -> tuple[float, float]:
    """Contribution of some rows to the curvature of a class outside of its basis.

    For the components ``a`` of probe rows outside the basis: sums of
    ``a^T (sum_i R_ikk phi_i phi_i^T) a`` and of ``|a|^2``. ``within`` are the probes' coordinates
    in the basis, ``outside_products`` the products ``phi_i^T a``. A row is excluded at its own
    probe.
    """
    probes = uncertain.probes[:, :-1]
    factor = uncertain.n_rows / max(1, len(probes))
    squares = np.einsum("nd,nd->n", probes, probes, dtype=np.float64)
    squares = np.maximum(squares - np.einsum("nr,nr->n", within, within, dtype=np.float64), 0.0)
    products = outside_products**2
    products[products >= 0.999 * squares**2] = 0.0
    return factor * float((weight @ products).sum(dtype=np.float64)), factor * float(squares.sum())


def _nonzero_rows(weight: Array) -> Any:
    """Indices of rows of nonzero weight; a full slice, avoiding a copy, if nearly all are."""
    rows = np.flatnonzero(weight)
    return slice(None) if len(rows) > NEARLY_ALL * len(weight) else rows


def _uncertain_rows(batch: Batch, rows: ScoredRows, tau: float) -> UncertainRows:
    """Rows of a block that are not confident, with thinned probabilities."""
    Phi = rows.Phi
    omega = np.ones(len(Phi)) if batch.weight is None else np.asarray(batch.weight)
    p = thinned(rows.p, omega, tau, batch.start)
    uncertain = np.flatnonzero((p * (1.0 - p)).any(axis=1))
    probes = Phi[:: max(1, len(Phi) // N_PROBES)][:N_PROBES]
    return UncertainRows(
        Phi[uncertain], p[uncertain], omega[uncertain].astype(Phi.dtype), probes, len(Phi)
    )


def thinned(p: Array, omega: Array, tau: float, start: int = 0) -> Array:
    """Class probabilities in which those with ``omega p < tau`` are zeroed, or enlarged but rarer.

    Every row is renormalised to sum to one. ``start`` is the index of the first row.
    """
    with np.errstate(divide="ignore"):
        least = np.minimum(tau / omega, MAX_THINNED)[:, None].astype(p.dtype)
    number: Any = (start + np.arange(1, len(p) + 1)) * GOLDEN
    position = (number % 1.0).astype(p.dtype)[:, None]
    enlarged = np.where(position * least < p, least, p.dtype.type(0.0))
    kept_p = np.where(p < least, enlarged, p)
    return np.asarray(kept_p / kept_p.sum(axis=1, keepdims=True))
