"""Weights of a kernel regression: closed form for Gaussian noise, convex optimisation otherwise.

For targets of unit variance, ``t = phi^T w + b + noise``, ``w ~ N(0, a I)``, with noise variance
``s`` and ratio ``rho = s/a``. With ``A = Phi^T Omega Phi + rho I`` the weights are
``w | t ~ N(A^{-1} Phi^T Omega t, s A^{-1})``, and a new target has the variance
``s (1 + phi^T A^{-1} phi + residual/rho)``, where the residual is the part of the kernel that the
features do not carry. The sums over rows are additive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from likelier.base import Array, Batch
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.noise import MIN_NOISE
from likelier.kernel_machine.regression_posterior import Weights
from likelier.kernel_machine.search import Choice, Fold, Validator, held_weights
from likelier.kernel_machine.triangles import lower_inverse
from likelier.kernel_machine.weights import (
    CURVATURE_FLOOR,
    Prior,
    WeightProblem,
    fit_weights,
    lower_factor,
    ridge,
    weighted_gram,
)

RATIO_RANGE = (1e-6, 10.0)
KINK_SHARPNESS = 20.0
VALIDATION_TOL, VALIDATION_ITER = 1e-4, 100  # of validation fits


@dataclass(frozen=True)
class Sums:
    """``Phi^T Omega Phi`` (lower triangle), ``Phi^T Omega t`` and the total weight."""

    gram: Array
    cross: Array
    weight: float

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.cross + other.cross, self.weight + other.weight)

    def scaled(self, factor: float) -> Sums:
        """Sums of rows whose weights are multiplied by a factor."""
        return Sums(factor * self.gram, factor * self.cross, factor * self.weight)


def regression_sums(Phi: Array, targets: Array, weight: Array | None) -> Sums:
    """Statistics of a block of rows; costs rows x features^2 / 2."""
    omega = np.ones(len(targets)) if weight is None else weight
    return Sums(weighted_gram(Phi, omega), Phi.T @ (omega * targets), float(omega.sum()))


def solve_weights(sums: Sums, ratio: float, prior: Prior | None = None) -> Weights:
    """Posterior mean and factor; costs features^3 / 2.

    ``prior`` is in units of the noise; by default all weights but the intercept have the precision
    ``ratio``.
    """
    A = np.array(sums.gram, dtype=np.float64, order="F")
    cross = sums.cross
    if prior is None:
        prior = Prior(ridge(len(A), ratio))
    if prior.mean is not None:
        cross = cross - prior.gradient(np.zeros((len(A), 1)))[:, 0]
    if prior.precision.ndim == 1:
        A[np.diag_indices_from(A)] += prior.precision
    else:
        A += prior.precision
    factor = lower_factor(A)
    mean, _ = lapack.dpotrs(factor, cross, lower=1)
    root = lower_inverse(factor)
    return Weights(np.asarray(mean).ravel(), np.asarray(root), ratio)


def leave_out(weights: Weights, Phi: Array, targets: Array, omega: Array) -> tuple[Array, Array]:
    """Leave-one-out residuals of learned rows, and variances of the function there.

    In closed form: leaving row i out changes its residual ``r`` to ``r / (1 - h)``, ``h = omega
    phi^T A^{-1} phi``, and the variance ``phi^T A^{-1} phi`` by the same factor. A row of weight
    zero was not learned. Costs rows x features^2.
    """
    inside = weights.variance(Phi, np.zeros(len(Phi)))
    keep = np.clip(1.0 - omega * inside, 1e-6, 1.0)
    return (targets - Phi @ weights.mean) / keep, inside / keep


def left_out(
    weights: Weights, Phi: Array, targets: Array, weight: Array | None, residual: Array
) -> Array:
    """Standardised leave-one-out residuals, for rows of unit weight.

    Their mean square estimates the noise variance ``s``.
    """
    omega = np.ones(len(targets)) if weight is None else weight
    errors, inside = leave_out(weights, Phi, targets, omega)
    return np.asarray(errors / np.sqrt(1.0 + inside + residual / weights.ratio))


@dataclass(frozen=True)
class EpsilonLoss:
    """Smoothed ``max(|t - f| - epsilon, 0)``, as a loss of `fit_output_weights`."""

    epsilon: float
    sharpness: float = KINK_SHARPNESS
    n_outputs: int = 1
    n_classes: int = 2

    def terms(self, scores: Array, targets: Array) -> tuple[Array, Array, Array]:
        """Loss, derivative, and two activations whose ``p (1 - p)`` sum to the curvature."""
        beta = self.sharpness
        errors = targets - scores[:, 0].astype(np.float64)
        above, below = beta * (errors - self.epsilon), beta * (-errors - self.epsilon)
        value = (np.logaddexp(0.0, above) + np.logaddexp(0.0, below)) / beta
        up, down = _logistic(above), _logistic(below)
        derivative = (down - up)[:, None].astype(scores.dtype)
        return value, derivative, np.stack([up, down], axis=1)

    def metric_curvature(self, p: Array) -> Array:
        """Curvature of each row."""
        return np.asarray(self.sharpness * (p * (1.0 - p)).sum(axis=1))

    @property
    def min_curvature(self) -> float:
        """Lower bound of the metric for rows currently inside the tube."""
        return 0.25 * CURVATURE_FLOOR * self.sharpness


def _logistic(z: Array) -> Array:
    return np.asarray(np.exp(np.minimum(z, 0.0)) / (1.0 + np.exp(-np.abs(z))))


class RegressionValidator(Validator):
    """Held-out losses of ratios and scales: negative log density, or the loss itself."""

    def __init__(self, folds: list[Fold], loss: EpsilonLoss | None, row: float = 1.0) -> None:
        self.folds, self.loss, self.row = folds, loss, row  # the weight that counts as one row

    @property
    def omega(self) -> Array:
        return held_weights(self.folds)

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row, with the noise profiled out."""
        errors, inside = self.residuals(choice)
        if self.loss is not None:
            return self.loss.terms(np.zeros((len(errors), 1)), errors)[0]
        variance = 1.0 + inside
        omega = self.omega
        noise = max(float(omega @ (errors**2 / variance) / omega.sum()), MIN_NOISE)
        return np.asarray(0.5 * np.log(noise * variance) + 0.5 * errors**2 / (noise * variance))

    def residuals(self, choice: Choice) -> tuple[Array, Array]:
        """Held-out residuals and variances of the function, in units of the noise."""
        parts = [self._of_fold(fold, choice) for fold in self.folds]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _of_fold(self, fold: Fold, choice: Choice) -> tuple[Array, Array]:
        feature_map, Phi, held = fold.features(choice.scale)
        if self.loss is None:
            sums = fold.engine.reduce(_sums_of_features, Sums.__add__, Phi)
            weights = solve_weights(sums.scaled(1.0 / self.row), choice.precision / self.row)
        else:
            prior = Prior(ridge(feature_map.n_features, choice.precision))
            problem = WeightProblem(fold.engine, Phi, self.loss, prior)
            start = np.zeros((feature_map.n_features, 1))
            W = fit_weights(problem, start, VALIDATION_TOL, VALIDATION_ITER).W
            weights = point_weights(W, choice.precision)
        inside = weights.variance(held, feature_map.residual(held))
        return fold.held.y - held @ weights.mean, inside


def point_weights(W: Array, ratio: float) -> Weights:
    """Weights under a loss without closed form: a point estimate, no posterior."""
    return Weights(W[:, 0], np.empty((0, 0)), ratio)


def _sums_of_features(batch: Batch, Phi: Array) -> Sums:
    return regression_sums(Phi, np.asarray(batch.y, dtype=np.float64), batch.weight)


def sums_of_rows(batch: Batch, feature_map: KernelMap) -> Sums:
    """The map of the pass over all rows, in double precision."""
    return _sums_of_features(batch, feature_map(batch.X, np.float64))
