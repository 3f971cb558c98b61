"""Laplace approximation of the weight posterior.

At the optimum the log posterior of ``W`` has the curvature
``H = sum_i omega_i Lambda_i (x) phi_i phi_i^T + prior``, ``Lambda_i = diag p_i - p_i p_i^T``.
The layout depends on its size:

=============  ==================================================================
joint          exact: two classes, or outputs x features at most `MAX_JOINT`
reduced        exact within the leading directions of each class, a scalar outside:
               see `joint_curvature`
per_class      diagonal blocks ``p_ik (1 - p_ik)``, without cross-class terms; used
               for streams, where these sums are accumulated
shared         one block for all classes, the mean curvature: the hinge, very many
               classes, and local experts, which have one matrix each
=============  ==================================================================

The scores of a row are then Gaussian. The residual of its kernel value, which the features do not
carry, keeps its prior variance. A Gaussian around the mode overestimates the uncertainty for few,
confidently fitted rows, so predictions scale the covariance by a factor chosen on held-out rows
(the posterior scale): one is the posterior itself, zero the plug-in estimate. Held-out rows
resemble the data, so out of support the full prior variance is restored (`restore_prior_variance`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from likelier.base import Array, Batch
from likelier.files.declared import check_array, check_number
from likelier.kernel_machine.features import TINY
from likelier.kernel_machine.integrate import centred
from likelier.kernel_machine.joint_curvature import is_reducible, reduced_curvature
from likelier.kernel_machine.triangles import lower_inverse
from likelier.kernel_machine.weights import (
    ClassLoss,
    ScoredRows,
    WeightProblem,
    lower_factor,
    weighted_gram,
)

MAX_JOINT = 600  # outputs x features
# residual above which a row is out of support: about three length scales away
OUT_OF_SUPPORT = 0.9999
TRUST_ROWS = 10.0  # out-of-support rows after which intercepts are half trusted there
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class WeightPosterior:
    """Mean and covariance of the weights.

    Attributes
    ----------
    mean : array of shape (n_features, n_outputs)
    roots : array of shape (blocks, size, size)
        Inverse Cholesky factors of the blocks of ``H``; variances are squared norms.
    layout : {"joint", "reduced", "per_class", "shared"}
    prior_variance : float
        Variance of a score without informative features.
    shift : array of the shape of ``mean``, optional
        Posterior mean minus mode, by `mean_shift`. Included in draws but not in scores, since
        held-out rows chose the posterior scale around the mode.
    bases : array of shape (n_outputs, n_features, r), optional
        For the layout "reduced": orthonormal basis per class, in which the roots are given. The
        last column is the constant.
    outside : array of shape (n_outputs,), optional
        Variance of the weights of every class outside of its basis.
    """

    mean: Array
    roots: Array
    layout: str
    prior_variance: float
    shift: Array | None = None
    bases: Array | None = None
    outside: Array | None = None

    def check(self, n_features: int, n_outputs: int) -> None:
        """Raise a ValueError unless all arrays have the shapes that predicting needs."""
        D, C = n_features, n_outputs
        check_array("weights_", self.mean, (D, C))
        check_number("prior_variance_", self.prior_variance, 0.0)
        if self.shift is not None:
            check_array("mean_shift_", self.shift, (D, C))
        if self.layout == "reduced":
            bases: Any = self.bases
            check_array("bases_", bases, (C, D, None))
            check_array("outside_", self.outside, (C,), low=0.0)
            size = C * bases.shape[2]
            check_array("roots_", self.roots, (1, size, size))
            return
        if self.bases is not None or self.outside is not None:
            raise ValueError(f"layout_={self.layout!r} has no bases")
        sizes = {"joint": (1, C * D), "shared": (1, D), "per_class": (C, D)}
        if self.layout not in sizes:
            raise ValueError(f"layout_ must be one of {sorted(sizes)}, and is {self.layout!r}")
        blocks, size = sizes[self.layout]
        check_array("roots_", self.roots, (blocks, size, size))

    def scores(self, Phi: Array) -> Array:
        """Mean scores, ``(n, n_outputs)``."""
        return np.asarray(Phi @ self.mean.astype(Phi.dtype), dtype=np.float64)

    def covariance(self, Phi: Array, residual: Array) -> Array:
        """Covariance of the scores of each row: ``(n, n_outputs)`` variances, or matrices.

        Costs (blocks x) size^2 multiplications per row; half of it for the joint layout, plus
        features x size for the bases.
        """
        extra = self.prior_variance * residual
        n_outputs = self.mean.shape[1]
        if self.bases is not None:
            return self._reduced_covariance(Phi, extra, self.bases)
        if self.layout != "joint" or n_outputs == 1:
            parts = [_squares(Phi, root) for root in self.roots]
            columns = parts * (n_outputs if self.layout == "shared" else 1)
            return np.asarray(np.stack(columns, axis=1) + extra[:, None])
        D = Phi.shape[1]
        root = self.roots[0].reshape(-1, n_outputs, D).astype(Phi.dtype)
        pushed = np.einsum("skd,nd->nsk", root, Phi, optimize=True)
        full = np.einsum("nsk,nsl->nkl", pushed, pushed, optimize=True).astype(np.float64)
        return np.asarray(full + extra[:, None, None] * np.eye(n_outputs))

    def _reduced_covariance(self, Phi: Array, extra: Array, bases: Array) -> Array:
        """Covariance in single precision, which suffices for a scale."""
        C, D, r = bases.shape
        flat = np.ascontiguousarray(bases.transpose(1, 0, 2).reshape(D, C * r), np.float32)
        root = np.asarray(self.roots[0], dtype=np.float32)
        full = np.empty((len(Phi), C, C))
        for start in range(0, len(Phi), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            part = Phi[rows].astype(np.float32)
            part[np.abs(part) < TINY] = 0.0  # avoid slow subnormal arithmetic
            inside = part @ flat
            pushed = np.zeros((C, len(part), C * r), dtype=np.float32)
            for k in range(C):
                own = slice(k * r, (k + 1) * r)
                pushed[k, :, k * r :] = inside[:, own] @ root[k * r :, own].T
            by_row = pushed.transpose(1, 0, 2)
            full[rows] = by_row @ by_row.transpose(0, 2, 1)
            inside = inside.reshape(len(part), C, r)[:, :, :-1]
            known = np.einsum("nkr,nkr->nk", inside, inside, dtype=np.float64)
            length = np.einsum("nd,nd->n", part[:, :-1], part[:, :-1], dtype=np.float64)
            remainder = self.outside * np.maximum(length[:, None] - known, 0.0)
            full[rows, range(C), range(C)] += remainder + extra[rows, None]
        return full

    def draw(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Draws of the weights, ``(n_draws, n_features, n_outputs)``."""
        D, C = self.mean.shape
        centre = self.mean if self.shift is None else self.mean + self.shift
        if self.bases is not None and self.outside is not None:
            bases, root = self.bases.astype(np.float64), self.roots[0].astype(np.float64)
            inside = (rng.standard_normal((n_draws, len(root))) @ root).reshape(n_draws, C, -1)
            remainder = np.sqrt(self.outside)[:, None] * rng.standard_normal((n_draws, C, D))
            inside -= np.einsum("skd,kdr->skr", remainder, bases, optimize=True)
            return np.asarray(
                centre + remainder.transpose(0, 2, 1)
                + np.einsum("skr,kdr->sdk", inside, bases, optimize=True)
            )  # fmt: skip
        if self.layout == "joint":
            z = rng.standard_normal((n_draws, C * D)) @ self.roots[0].astype(np.float64)
            return np.asarray(centre + z.reshape(n_draws, C, D).transpose(0, 2, 1))
        roots = self.roots if self.layout == "per_class" else np.repeat(self.roots, C, axis=0)
        z = [rng.standard_normal((n_draws, D)) @ root.astype(np.float64) for root in roots]
        return np.asarray(centre + np.stack(z, axis=2))

    def precision(self) -> Array:
        """Precision of the weights of every output, ``(n_outputs, D, D)``, without cross-terms.

        Costs features^3 per output at most.
        """
        D, C = self.mean.shape
        if self.bases is None or self.outside is None:
            whole = [_from_root(root) for root in self.roots]
            if self.layout == "joint":
                return np.stack([whole[0][s : s + D, s : s + D] for s in range(0, C * D, D)])
            return np.stack(whole * (C if self.layout == "shared" else 1))
        full, r, blocks = _from_root(self.roots[0]), self.bases.shape[2], []
        bases = self.bases.astype(np.float64)
        for k, (basis, outer) in enumerate(zip(bases, self.outside, strict=True)):
            own = slice(k * r, (k + 1) * r)
            inner = full[own, own] - np.eye(r) / outer
            blocks.append(basis @ inner @ basis.T + np.eye(D) / outer)
        return np.stack(blocks)


def _from_root(root: Array) -> Array:
    factor = lower_inverse(root.astype(np.float64))
    return np.asarray(factor @ factor.T)


def add_variance(covariance: Array, variance: Array) -> Array:
    """Add a variance per row to the scores of all outputs."""
    if covariance.ndim == 2:
        return np.asarray(covariance + variance[:, None])
    return np.asarray(covariance + variance[:, None, None] * np.eye(covariance.shape[1]))


def extrapolation_degree(residual: Array) -> Array:
    """Extrapolation degree of rows: zero among the data, one where no feature is active."""
    return np.asarray(np.clip((residual - OUT_OF_SUPPORT) / (1.0 - OUT_OF_SUPPORT), 0.0, 1.0))


def mean_score_variance(covariance: Array) -> Array:
    """Mean variance of the scores of each row.

    For matrices it is that of the deviation from the class mean: data never inform the mean of all
    scores, whose variance stays that of the prior.
    """
    if covariance.ndim == 2:
        return np.asarray(covariance.mean(axis=1))
    deviation_variance = centred(covariance).trace(axis1=1, axis2=2)
    return np.asarray(deviation_variance / (covariance.shape[1] - 1))


def restore_prior_variance(
    covariance: Array, degree: Array, prior_variance: float, scale: float
) -> Array:
    """Restore the full prior variance out of support, before scaling by ``scale``.

    Held-out rows chose the posterior scale, which says nothing about rows unlike them. ``degree``
    is the `extrapolation_degree` of the rows.
    """
    if not 0.0 < scale < 1.0:
        return covariance
    return add_variance(covariance, (1.0 / scale - 1.0) * prior_variance * degree)


def choose_layout(problem: WeightProblem, n_features: int, n_outputs: int) -> str:
    """Layout for this size; see the table above."""
    if n_outputs == 1 or n_outputs * n_features <= MAX_JOINT:
        return "joint"
    return "reduced" if is_reducible(problem, n_outputs) else "shared"


def laplace_posterior(
    problem: WeightProblem,
    W: Array,
    prior_variance: float,
    layout: str | None = None,
    n_directions: int | None = None,
) -> WeightPosterior:
    """Curvature at the optimum and its inverse factors, in one pass (reduced: two).

    ``n_directions`` is the total number of directions of the layout "reduced". Costs
    rows x features^2 / 2 per block (joint: per pair of outputs); for reduced see
    `likelier.kernel_machine.joint_curvature.reduced_curvature`.
    """
    D, C = W.shape
    layout = layout or choose_layout(problem, D, C)
    if layout == "reduced":
        found = reduced_curvature(problem, W, n_directions)
        root, outside = _inverse_root(found.inside)[None], 1.0 / found.outside
        return WeightPosterior(W, root, layout, prior_variance, None, found.bases, outside)

    loss = problem.loss

    def map_block(batch: Batch, rows: ScoredRows, W: Array) -> Array:
        Phi, p = rows.Phi, rows.p
        weight = np.ones(1) if batch.weight is None else batch.weight
        if layout == "joint" and C > 1:
            return _joint_gram(Phi, p, loss.sharpness * np.broadcast_to(weight, len(p)))
        if layout == "shared":
            return weighted_gram(Phi, loss.row_curvature(p) * weight)[None]
        return _class_grams(loss, Phi, p, weight)

    blocks = np.asarray(problem.reduce(map_block, np.add, (W,)))
    if C * D <= MAX_JOINT:  # double precision is cheap for small problems
        blocks = blocks.astype(np.float64)
    _add_prior(blocks, problem.prior.precision.astype(blocks.dtype), C)
    roots = np.stack([_inverse_root(block) for block in blocks])
    return WeightPosterior(W, roots, layout, prior_variance)


def mean_shift(problem: WeightProblem, posterior: WeightPosterior) -> Array:
    """Posterior mean minus mode, to first order in 1 / rows.

    The log posterior is skewed: with ``T_i`` the third derivative of a row's loss by its scores
    and ``V_i`` their covariance, the shift is ``-1/2 H^{-1} sum_i omega_i (T_i : V_i) phi_i``.
    For a softmax and the joint layout. One pass; costs as much as `laplace_posterior`.
    """
    if posterior.layout != "joint" or problem.loss.sharpness != 1.0:
        raise ValueError("mean_shift needs a softmax loss and the joint layout")
    W = posterior.mean

    def map_block(batch: Batch, rows: ScoredRows, W: Array, covered: WeightPosterior) -> Array:
        Phi = rows.Phi.astype(np.float64)
        scores = Phi @ W
        p = expit(scores) if W.shape[1] == 1 else softmax(scores, axis=1)
        third_order = skewness(p, covered.covariance(Phi, np.zeros(len(Phi))))
        if batch.weight is not None:
            third_order = third_order * batch.weight[:, None]
        return Phi.T @ third_order

    total = np.asarray(problem.reduce(map_block, np.add, (W, posterior)))
    root = posterior.roots[0].astype(np.float64)
    return np.asarray(-0.5 * (root.T @ (root @ total.T.ravel())).reshape(W.shape[::-1]).T)


def skewness(p: Array, V: Array) -> Array:
    """``sum_lm d^3 loss / (df_k df_l df_m) V_lm`` of every row, for one score or one per class."""
    if p.shape[1] == 1:
        return np.asarray(p * (1.0 - p) * (1.0 - 2.0 * p) * V)
    variance = np.diagonal(V, axis1=1, axis2=2)
    with_mean = np.einsum("nl,nlk->nk", p, V)
    mean_variance = np.einsum("nk,nk->n", p, variance)[:, None]
    variance_of_mean = np.einsum("nk,nk->n", p, with_mean)[:, None]
    return np.asarray(p * (variance - mean_variance - 2.0 * (with_mean - variance_of_mean)))


def class_curvature(problem: WeightProblem, W: Array) -> Array:
    """Curvature of the loss per output, ``(n_outputs, D, D)``, full and in double precision."""
    loss = problem.loss

    def map_block(batch: Batch, rows: ScoredRows, W: Array) -> Array:
        weight = np.ones(1) if batch.weight is None else batch.weight
        return _class_grams(loss, rows.Phi, rows.p, weight)

    lower = np.tril(np.asarray(problem.reduce(map_block, np.add, (W,)), dtype=np.float64))
    return np.asarray(lower + np.tril(lower, -1).transpose(0, 2, 1))


def posterior_from_blocks(W: Array, precision: Array, prior_variance: float) -> WeightPosterior:
    """Posterior from the precision of each output."""
    roots = np.stack([_inverse_root(block) for block in precision]).astype(np.float32)
    layout = "joint" if W.shape[1] == 1 else "per_class"
    return WeightPosterior(W, roots, layout, prior_variance)


def _class_grams(loss: ClassLoss, Phi: Array, p: Array, weight: Array) -> Array:
    rows = loss.sharpness * p * (1.0 - p) * weight[:, None]
    return np.stack([weighted_gram(Phi, rows[:, k]) for k in range(rows.shape[1])])


def _add_prior(blocks: Array, precision: Array, n_outputs: int) -> None:
    """Add the prior precision to the blocks, in place."""
    i = np.arange(blocks.shape[1])
    if precision.ndim == 1:
        blocks[:, i, i] += np.tile(precision, len(i) // len(precision))
    elif precision.ndim == 2 or len(blocks) == len(precision):
        blocks += precision
    elif blocks.shape[1] == precision.shape[1]:
        blocks += precision.mean(axis=0)
    else:  # joint block of several outputs
        D = precision.shape[1]
        for k in range(n_outputs):
            blocks[0, k * D : (k + 1) * D, k * D : (k + 1) * D] += precision[k]


def _joint_gram(Phi: Array, p: Array, weight: Array) -> Array:
    """Joint curvature of a block of rows, by outputs: ``weight (diag p - p p^T)``."""
    C, D = p.shape[1], Phi.shape[1]
    H = np.empty((1, C * D, C * D))
    for k in range(C):
        for other in range(k + 1):
            rows = p[:, k] * (float(k == other) - p[:, other]) * weight
            part = Phi.T @ (rows[:, None].astype(Phi.dtype) * Phi)
            H[0, k * D : (k + 1) * D, other * D : (other + 1) * D] = part
            H[0, other * D : (other + 1) * D, k * D : (k + 1) * D] = part.T
    return H


def _inverse_root(H: Array) -> Array:
    return lower_inverse(lower_factor(H))


def _squares(Phi: Array, root: Array) -> Array:
    pushed = Phi @ root.T.astype(Phi.dtype)
    return np.asarray(np.einsum("ij,ij->i", pushed, pushed, dtype=np.float64))
