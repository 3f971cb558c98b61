"""Weights of a kernel regression: closed form for Gaussian noise, a convex search otherwise.

Targets of unit variance: ``t = phi^T w + b + noise``, ``w ~ N(0, a I)``, noise variance ``s`` and
ratio ``rho = s/a``. With ``A = Phi^T Omega Phi + rho I`` the weights are
``w | t ~ N(A^{-1} Phi^T Omega t, s A^{-1})`` and a new target has the variance
``s (1 + phi^T A^{-1} phi + residual/rho)``, the residual being what the features do not carry of
the kernel. Sums over rows are additive: any order, any blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from likelier.base import Array, Batch
from likelier.kernel_machine.search import Choice, Fold, IndependentFits
from likelier.kernel_machine.softmax_weights import (
    CURVATURE_FLOOR,
    HeadProblem,
    Prior,
    fit_head,
    lower_factor,
    ready_features,
    ridge,
    rows_in_memory,
    weighted_gram,
)
from likelier.kernel_machine.triangles import lower_inverse
from likelier.kernel_machine.weights_state import HeadState

RATIO_RANGE = (1e-6, 10.0)
NOISE_LEAST = 1e-12
KINK_SHARPNESS = 20.0
JUDGE_TOL, JUDGE_ITER = 1e-4, 100  # of the fits that held-out rows compare


@dataclass(frozen=True)
class Sums:
    """``Phi^T Omega Phi`` (lower triangle), ``Phi^T Omega t`` and the total weight."""

    gram: Array
    cross: Array
    weight: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.cross + other.cross, self.weight + other.weight)


def regression_sums(Phi: Array, targets: Array, weight: Array | None) -> Sums:
    """Statistics of a block of rows; cost rows x features^2 / 2."""
    omega = np.ones(len(targets)) if weight is None else weight
    return Sums(weighted_gram(Phi, omega), Phi.T @ (omega * targets), float(omega.sum()))


@dataclass(frozen=True)
class Weights:
    """Mean of the weights, and the inverse Cholesky factor of ``A`` (empty: no posterior)."""

    mean: Array
    root: Array
    ratio: float

    def variance(self, Phi: Array, residual: Array) -> Array:
        """Variance of the function at each row, in units of the noise variance."""
        if not self.root.size:
            return np.zeros(len(Phi))
        pushed = Phi @ self.root.T.astype(Phi.dtype)
        squares = np.einsum("ij,ij->i", pushed, pushed, dtype=np.float64)
        return np.asarray(squares + residual / self.ratio)


def solve_weights(sums: Sums, ratio: float, prior: Prior | None = None) -> Weights:
    """Posterior mean and factor; cost features^3 / 2.

    ``prior`` is in the units of the noise; by default all weights have the precision ``ratio``,
    but for the constant.
    """
    A = np.array(sums.gram, dtype=np.float64, order="F")
    cross = sums.cross
    if prior is None:
        prior = Prior(ridge(len(A), ratio))
    if prior.mean is not None:
        cross = cross - prior.pull(np.zeros((len(A), 1)))[:, 0]
    if prior.precision.ndim == 1:
        A[np.diag_indices_from(A)] += prior.precision
    else:
        A += prior.precision
    factor = lower_factor(A)
    mean, _ = lapack.dpotrs(factor, cross, lower=1)
    root = lower_inverse(factor)
    return Weights(np.asarray(mean).ravel(), np.asarray(root), ratio)


def leave_out(weights: Weights, Phi: Array, targets: Array, omega: Array) -> tuple[Array, Array]:
    """Residuals of learned rows, and variances of the function there, as if each were left out.

    In closed form: leaving row i out changes its residual ``r`` to ``r / (1 - h)``, ``h = omega
    phi^T A^{-1} phi``, and the variance ``phi^T A^{-1} phi`` by the same factor. A row of weight
    zero was not learned. Cost rows x features^2.
    """
    inside = weights.variance(Phi, np.zeros(len(Phi)))
    keep = np.clip(1.0 - omega * inside, 1e-6, 1.0)
    return (targets - Phi @ weights.mean) / keep, inside / keep


def left_out(
    weights: Weights, Phi: Array, targets: Array, weight: Array | None, residual: Array
) -> Array:
    """Leave-one-out residuals as deviations of unit noise, for rows of unit weight.

    Their mean square is the variance ``s`` of the noise.
    """
    omega = np.ones(len(targets)) if weight is None else weight
    rest, inside = leave_out(weights, Phi, targets, omega)
    return np.asarray(rest / np.sqrt(1.0 + inside + residual / weights.ratio))


@dataclass(frozen=True)
class EpsilonLoss:
    """``max(|t - f| - epsilon, 0)`` with its kinks rounded, as a loss of `fit_head`."""

    epsilon: float
    sharpness: float = KINK_SHARPNESS
    n_outputs: int = 1
    n_classes: int = 2

    def terms(self, scores: Array, targets: Array) -> tuple[Array, Array, Array]:
        """Loss, slope, and the two activities whose ``p (1 - p)`` add up to the curvature."""
        beta = self.sharpness
        rest = targets - scores[:, 0].astype(np.float64)
        above, below = beta * (rest - self.epsilon), beta * (-rest - self.epsilon)
        value = (np.logaddexp(0.0, above) + np.logaddexp(0.0, below)) / beta
        up, down = _logistic(above), _logistic(below)
        slope = (down - up)[:, None].astype(scores.dtype)
        return value, slope, np.stack([up, down], axis=1)

    def metric_curvature(self, p: Array) -> Array:
        """Curvature of each row."""
        return np.asarray(self.sharpness * (p * (1.0 - p)).sum(axis=1))

    @property
    def least_curvature(self) -> float:
        """What the metric takes a row for that is inside the tube at the moment."""
        return 0.25 * CURVATURE_FLOOR * self.sharpness


def _logistic(z: Array) -> Array:
    return np.asarray(np.exp(np.minimum(z, 0.0)) / (1.0 + np.exp(-np.abs(z))))


class RegressionJudge(IndependentFits):
    """Held-out losses of ratios and scales: minus log density, or the loss itself."""

    def __init__(self, folds: list[Fold], loss: EpsilonLoss | None) -> None:
        self.folds, self.loss = folds, loss

    @property
    def omega(self) -> Array:
        """Weights of the held-out rows."""
        parts = [
            np.ones(len(f.held_codes)) if f.held_weight is None else f.held_weight
            for f in self.folds
        ]
        return np.concatenate(parts)

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row, the noise being as good as it can be."""
        rest, inside = self.residuals(choice)
        if self.loss is not None:
            return self.loss.terms(np.zeros((len(rest), 1)), rest)[0]
        spread = 1.0 + inside
        omega = self.omega
        noise = max(float(omega @ (rest**2 / spread) / omega.sum()), NOISE_LEAST)
        return np.asarray(0.5 * np.log(noise * spread) + 0.5 * rest**2 / (noise * spread))

    def residuals(self, choice: Choice) -> tuple[Array, Array]:
        """Residuals of held-out rows and variances of the function there, in units of noise."""
        parts = [self._of_fold(fold, choice) for fold in self.folds]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _of_fold(self, fold: Fold, choice: Choice) -> tuple[Array, Array]:
        made, Phi, held = fold.features(choice.scale)
        if self.loss is None:
            sums = regression_sums(Phi, fold.codes, fold.weight)
            weights = solve_weights(sums, choice.precision)
        else:
            reduce = rows_in_memory(Phi, fold.codes, fold.weight)
            start = np.zeros((Phi.shape[1], 1))
            weights = fit_weights(reduce, ready_features, self.loss, choice, start)
        inside = weights.variance(held, made.residual(held))
        return fold.held_codes - held @ weights.mean, inside


def fit_weights(
    reduce: object,
    features: object,
    loss: EpsilonLoss,
    choice: Choice,
    start: Array | HeadState,
    watch: object = None,
    limits: tuple[float, int] = (JUDGE_TOL, JUDGE_ITER),
) -> Weights:
    """Weights under a loss that has no closed form; a point, without a posterior.

    ``start`` are weights ``(n_features, 1)``, or where an earlier search ended. ``limits`` are the
    tolerance and the largest number of steps.
    """
    W = start.W if isinstance(start, HeadState) else start
    prior = Prior(ridge(len(W), choice.precision))
    problem = HeadProblem(reduce, features, loss, prior)  # type: ignore[arg-type]
    fit = fit_head(problem, start, *limits, watch)  # type: ignore[arg-type]
    return Weights(fit.W[:, 0], np.empty((0, 0)), choice.precision)


def batch_sums(batch: Batch, Phi: Array) -> Sums:
    """Statistics of a batch whose features are known."""
    return regression_sums(Phi, np.asarray(batch.y, dtype=np.float64), batch.weight)
