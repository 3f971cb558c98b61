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

import numpy as np

from likelier.base import Array, Batch
from likelier.kernel_machine.joint_curvature import is_reducible, reduced_curvature
from likelier.kernel_machine.triangles import lower_inverse
from likelier.kernel_machine.weight_posterior import WeightPosterior
from likelier.kernel_machine.weights import (
    ClassLoss,
    ScoredRows,
    WeightProblem,
    lower_factor,
    weighted_gram,
)

MAX_JOINT = 600  # outputs x features


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
        return WeightPosterior(W, root, layout, prior_variance, found.bases, outside)

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
