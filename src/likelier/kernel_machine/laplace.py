"""The posterior of the head's weights: a Gaussian with the curvature of the softmax.

Around the optimum the log posterior of ``W`` has the curvature
``H = sum_i omega_i Lambda_i (x) phi_i phi_i^T + prior``, ``Lambda_i = diag p_i - p_i p_i^T``.
How much of it is kept depends on its size:

=============  ==================================================================
joint          all of it: two classes, or outputs x features at most `MAX_JOINT`
reduced        all of it within the directions in which rows tell a class from the
               others, one number outside of them: see `joint_curvature`
per_class      the diagonal blocks, ``p_ik (1 - p_ik)``: what classes say about
               each other is left out; of streams, whose sums are kept
shared         one block for all classes, the mean curvature: the hinge, very many
               classes, and local experts, which have one matrix each
=============  ==================================================================

Scores of a row are then Gaussian. What the features of a row do not carry, the residual
variance of its kernel, has its prior variance. A Gaussian around the mode overstates what is
open where rows are few and sure, so predictions scale the covariance by a factor that held-out
rows chose (``spread``); one is the posterior itself, zero is the plug-in. Held-out rows are like
the data: far from all data the prior variance counts in full (`open_far`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from likelier.base import Array, Batch
from likelier.kernel_machine.features import TINY
from likelier.kernel_machine.integrate import centred
from likelier.kernel_machine.joint_curvature import is_reducible, reduced_curvature
from likelier.kernel_machine.softmax_weights import HeadProblem, lower_factor, weighted_gram
from likelier.kernel_machine.triangles import lower_inverse

MAX_JOINT = 600  # outputs x features
FAR = 0.9999  # residual from which on a row begins to be far from all data: three length scales
FAR_ROWS = 10.0  # rows far from all landmarks after which the constants are half believed there
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class HeadPosterior:
    """Mean and covariance of the weights.

    Attributes
    ----------
    mean : array of shape (n_features, n_outputs)
    roots : array of shape (blocks, size, size)
        Inverse Cholesky factors of the blocks of ``H``, so that a variance is a square.
    layout : {"joint", "reduced", "per_class", "shared"}
    prior_variance : float
        Variance of a score that no feature informs.
    shift : array of the shape of ``mean``, optional
        How far the mean of the posterior is from its mode, by `mean_shift`. Draws have it;
        scores do not: held-out rows chose the spread around the mode.
    bases : array of shape (n_outputs, n_features, r), optional
        Of the layout "reduced": orthonormal directions of every class, in which the roots are
        given. The last one is the constant.
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

    def scores(self, Phi: Array) -> Array:
        """Mean scores, ``(n, n_outputs)``."""
        return np.asarray(Phi @ self.mean.astype(Phi.dtype), dtype=np.float64)

    def covariance(self, Phi: Array, residual: Array) -> Array:
        """Covariance of the scores of each row: ``(n, n_outputs)`` variances, or matrices.

        Cost per row: (blocks x) size^2 multiplications; of all outputs together half of it, and
        features x size to reach the bases.
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
        """In single precision: what is asked for is a spread."""
        C, D, r = bases.shape
        flat = np.ascontiguousarray(bases.transpose(1, 0, 2).reshape(D, C * r), np.float32)
        root = np.asarray(self.roots[0], dtype=np.float32)
        full = np.empty((len(Phi), C, C))
        for start in range(0, len(Phi), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            part = Phi[rows].astype(np.float32)
            part[np.abs(part) < TINY] = 0.0  # rounded, such numbers are slow
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
            left = self.outside * np.maximum(length[:, None] - known, 0.0)
            full[rows, range(C), range(C)] += left + extra[rows, None]
        return full

    def draw(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Draws of the weights, ``(n_draws, n_features, n_outputs)``."""
        D, C = self.mean.shape
        centre = self.mean if self.shift is None else self.mean + self.shift
        if self.bases is not None and self.outside is not None:
            bases, root = self.bases.astype(np.float64), self.roots[0].astype(np.float64)
            inside = (rng.standard_normal((n_draws, len(root))) @ root).reshape(n_draws, C, -1)
            left = np.sqrt(self.outside)[:, None] * rng.standard_normal((n_draws, C, D))
            inside -= np.einsum("skd,kdr->skr", left, bases, optimize=True)
            return np.asarray(
                centre + left.transpose(0, 2, 1)
                + np.einsum("skr,kdr->sdk", inside, bases, optimize=True)
            )  # fmt: skip
        if self.layout == "joint":
            z = rng.standard_normal((n_draws, C * D)) @ self.roots[0].astype(np.float64)
            return np.asarray(centre + z.reshape(n_draws, C, D).transpose(0, 2, 1))
        roots = self.roots if self.layout == "per_class" else np.repeat(self.roots, C, axis=0)
        z = [rng.standard_normal((n_draws, D)) @ root.astype(np.float64) for root in roots]
        return np.asarray(centre + np.stack(z, axis=2))


def add_variance(covariance: Array, variance: Array) -> Array:
    """Covariances of scores plus a variance of each row that their outputs have alike."""
    if covariance.ndim == 2:
        return np.asarray(covariance + variance[:, None])
    return np.asarray(covariance + variance[:, None, None] * np.eye(covariance.shape[1]))


def far_share(residual: Array) -> Array:
    """How far from all data rows are: zero among them, one where no feature tells anything."""
    return np.asarray(np.clip((residual - FAR) / (1.0 - FAR), 0.0, 1.0))


def open_variance(covariance: Array) -> Array:
    """Mean variance of the scores of each row; of matrices without what all classes have alike.

    No row says anything about the mean of all scores, so that its variance stays the prior's.
    """
    if covariance.ndim == 2:
        return np.asarray(covariance.mean(axis=1))
    apart = centred(covariance).trace(axis1=1, axis2=2)
    return np.asarray(apart / (covariance.shape[1] - 1))


def open_far(covariance: Array, away: Array, prior_variance: float, spread: float) -> Array:
    """Covariances that have the whole prior variance far from the data, once scaled by ``spread``.

    Held-out rows chose the spread; about rows that are like none of them they say nothing.
    ``away`` is `far_share` of the rows.
    """
    if not 0.0 < spread < 1.0:
        return covariance
    return add_variance(covariance, (1.0 / spread - 1.0) * prior_variance * away)


def choose_layout(problem: HeadProblem, n_features: int, n_outputs: int) -> str:
    """How much of the curvature to keep; see the table above."""
    if n_outputs == 1 or n_outputs * n_features <= MAX_JOINT:
        return "joint"
    return "reduced" if is_reducible(problem, n_outputs) else "shared"


def head_posterior(
    problem: HeadProblem,
    W: Array,
    prior_variance: float,
    layout: str | None = None,
    n_directions: int | None = None,
) -> HeadPosterior:
    """Curvature at the optimum and its inverse factors; one pass over the rows, reduced: two.

    ``n_directions`` is how many the layout "reduced" has for all classes together. Costs
    rows x features^2 / 2 for each block, joint: for each pair of outputs; reduced: see
    `likelier.kernel_machine.joint_curvature.reduced_curvature`.
    """
    D, C = W.shape
    layout = layout or choose_layout(problem, D, C)
    if layout == "reduced":
        found = reduced_curvature(problem, W, n_directions)
        root, outside = _inverse_root(found.inside)[None], 1.0 / found.outside
        return HeadPosterior(W, root, layout, prior_variance, None, found.bases, outside)

    def look(batch: Batch) -> Array:
        Phi = problem.features(batch)
        _, _, p = problem.loss.terms(problem.scores(batch, Phi, W), np.asarray(batch.y))
        weight = np.ones(1) if batch.weight is None else batch.weight
        if layout == "joint" and C > 1:
            return _joint_gram(Phi, p, problem.loss.sharpness * np.broadcast_to(weight, len(p)))
        if layout == "shared":
            return weighted_gram(Phi, problem.loss.row_curvature(p) * weight)[None]
        return _class_grams(problem, Phi, p, weight)

    blocks = np.asarray(problem.reduce(look, np.add))
    if C * D <= MAX_JOINT:  # small: the digits cost nothing
        blocks = blocks.astype(np.float64)
    _add_prior(blocks, problem.prior.precision.astype(blocks.dtype), C)
    roots = np.stack([_inverse_root(block) for block in blocks])
    return HeadPosterior(W, roots, layout, prior_variance)


def mean_shift(problem: HeadProblem, posterior: HeadPosterior) -> Array:
    """Mean of the posterior minus its mode, to the first order in one over the rows.

    The log posterior is skewed: with ``T_i`` the third derivative of a row's loss by its scores
    and ``V_i`` their covariance, the shift is ``-1/2 H^{-1} sum_i omega_i (T_i : V_i) phi_i``.
    For a softmax and the joint layout. One pass; cost as `head_posterior`.
    """
    if posterior.layout != "joint" or problem.loss.sharpness != 1.0:
        raise ValueError("the mean is known for the joint posterior of a softmax only")
    W = posterior.mean

    def look(batch: Batch) -> Array:
        Phi = np.asarray(problem.features(batch), dtype=np.float64)
        scores = problem.scores(batch, Phi, W)
        p = expit(scores) if W.shape[1] == 1 else softmax(scores, axis=1)
        push = skewness(p, posterior.covariance(Phi, np.zeros(len(Phi))))
        if batch.weight is not None:
            push = push * batch.weight[:, None]
        return Phi.T @ push

    total = np.asarray(problem.reduce(look, np.add))
    root = posterior.roots[0].astype(np.float64)
    return np.asarray(-0.5 * (root.T @ (root @ total.T.ravel())).reshape(W.shape[::-1]).T)


def skewness(p: Array, V: Array) -> Array:
    """``sum_lm d^3 loss / (df_k df_l df_m) V_lm`` of every row: one score, or one per class."""
    if p.shape[1] == 1:
        return np.asarray(p * (1.0 - p) * (1.0 - 2.0 * p) * V)
    variance = np.diagonal(V, axis1=1, axis2=2)
    with_mean = np.einsum("nl,nlk->nk", p, V)
    mean_variance = np.einsum("nk,nk->n", p, variance)[:, None]
    variance_of_mean = np.einsum("nk,nk->n", p, with_mean)[:, None]
    return np.asarray(p * (variance - mean_variance - 2.0 * (with_mean - variance_of_mean)))


def class_curvature(problem: HeadProblem, W: Array) -> Array:
    """Curvature of the loss for each output, ``(n_outputs, D, D)``, full and in double."""

    def look(batch: Batch) -> Array:
        Phi = problem.features(batch)
        _, _, p = problem.loss.terms(problem.scores(batch, Phi, W), np.asarray(batch.y))
        weight = np.ones(1) if batch.weight is None else batch.weight
        return _class_grams(problem, Phi, p, weight)

    lower = np.tril(np.asarray(problem.reduce(look, np.add), dtype=np.float64))
    return np.asarray(lower + np.tril(lower, -1).transpose(0, 2, 1))


def posterior_from_blocks(W: Array, precision: Array, prior_variance: float) -> HeadPosterior:
    """Posterior whose precision is known for each output."""
    roots = np.stack([_inverse_root(block) for block in precision]).astype(np.float32)
    layout = "joint" if W.shape[1] == 1 else "per_class"
    return HeadPosterior(W, roots, layout, prior_variance)


def _class_grams(problem: HeadProblem, Phi: Array, p: Array, weight: Array) -> Array:
    rows = problem.loss.sharpness * p * (1.0 - p) * weight[:, None]
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
    else:  # joint blocks of several outputs
        D = precision.shape[1]
        for k in range(n_outputs):
            blocks[0, k * D : (k + 1) * D, k * D : (k + 1) * D] += precision[k]


def _joint_gram(Phi: Array, p: Array, weight: Array) -> Array:
    """The whole curvature of a block of rows, outputs in turn: ``weight (diag p - p p^T)``."""
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
