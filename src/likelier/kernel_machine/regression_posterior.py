"""Posterior of a kernel regression by the evidence: a Gaussian function and its noise.

Local experts add to the mean. Out of support, predictions revert to the mean and the spread of the
targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.files.declared import check_array, check_number
from likelier.kernel_machine.blockwise import PREDICT_ROWS
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.expert_noise import corrected_global_variance
from likelier.kernel_machine.extrapolation import OutOfSupport
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.noise import NoiseShape, noise_mixture
from likelier.predictive import Gaussian


@dataclass(frozen=True)
class Weights:
    """Mean of the weights and inverse Cholesky factor of ``A`` (empty if there is no posterior)."""

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


@dataclass(frozen=True)
class Moments:
    """Moments of each row.

    Attributes
    ----------
    mean : array
    variance, noise : array
        Variance of the function and of the noise.
    ratio : array
        Posterior-to-prior variance ratio of the function.
    degree : array
        Extrapolation degree.
    """

    mean: Array
    variance: Array
    noise: Array
    ratio: Array
    degree: Array


@dataclass(frozen=True)
class RegressionPosterior(Posterior):
    """What a fit of a regression knows, for targets of mean zero and unit variance.

    Attributes
    ----------
    map : KernelMap
    weights : Weights
    noise : float
        Variance of the noise.
    shape : NoiseShape
    extrapolation_std : float
        Lower bound of the predictive standard deviation out of support.
    extrapolation_trust : float
        Trust in the intercept out of support.
    experts : Experts, optional
    global_noise, global_scale : float
        Noise variance of the global model alone, and the factor of its variances where experts
        correct it.
    target_mean, target_scale : float
        Units of the targets.
    row : float
        Weight that counts as one row.
    temperature : float
        At which the rows were learned.
    """

    map: KernelMap
    weights: Weights
    noise: float
    shape: NoiseShape
    extrapolation_std: float
    extrapolation_trust: float
    experts: Experts | None
    global_noise: float
    global_scale: float
    target_mean: float
    target_scale: float
    row: float = 1.0
    temperature: float = 1.0

    def predictive(self, X: Matrix) -> Gaussian:
        found = self.moments(X)
        std = np.sqrt(found.variance + found.noise)
        return noise_mixture(found.mean, std, self.shape, found.degree)

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Predictive variance: of the noise (aleatoric) and of the function (epistemic)."""
        found = self.moments(X)
        return Uncertainty(found.variance + found.noise, found.noise, found.variance)

    def inlier_score(self, X: Matrix) -> Array:
        """How well the training data cover each row; low for outliers."""
        return np.asarray(-np.log(np.maximum(self.moments(X).ratio, 1e-300)))

    def moments(self, X: Matrix) -> Moments:
        """Moments in the units of the targets."""
        weights = self.weights
        mean, inside, outside = np.empty((3, X.shape[0]))
        for start in range(0, X.shape[0], PREDICT_ROWS):
            rows = slice(start, start + PREDICT_ROWS)
            Phi = self.map(X[rows], np.float64)
            mean[rows] = Phi @ weights.mean
            inside[rows] = weights.variance(Phi, np.zeros(len(Phi)))
            outside[rows] = self.map.residual(Phi) / weights.ratio
        noise = np.full(X.shape[0], self.noise)
        variance, prior = noise * (inside + outside), noise / weights.ratio
        unlearned: Any = 1.0 - self.extrapolation_trust
        if self.experts is not None:
            # double precision, so that predictions do not depend on the other rows
            added, expert_variance = self.experts.correct(X, np.float64)
            mean = mean + added[:, 0]
            variance, prior, noise = self._corrected(inside, outside, expert_variance)
            remaining = np.minimum(expert_variance / self.experts.prior_variance, 1.0)
            unlearned = unlearned * np.where(expert_variance > 0.0, remaining, 1.0)
        support = OutOfSupport(outside * weights.ratio, unlearned)
        ratio, constant = variance / prior, float(weights.mean[-1])
        mean = mean - support.mean_correction(constant)
        variance = variance + support.variance(constant, self.extrapolation_std, prior + noise)
        square = self.target_scale**2
        mean = self.target_mean + self.target_scale * mean
        return Moments(mean, square * variance, square * noise, ratio, support.degree)

    def _corrected(
        self, inside: Array, outside: Array, expert_variance: Array
    ) -> tuple[Array, Array, Array]:
        """Variance and prior variance of the function, and noise, where there are experts."""
        assert self.experts is not None
        learned, ratio = expert_variance > 0.0, self.weights.ratio
        noise, global_noise, scale = self.noise, self.global_noise, self.global_scale
        global_part = corrected_global_variance(
            inside, outside, expert_variance / self.experts.prior_variance
        )
        prior_sum = scale / ratio + self.experts.prior_variance
        variance = np.where(
            learned,
            noise * (scale * global_part + expert_variance),
            global_noise * (inside + outside),
        )
        prior = np.where(learned, noise * prior_sum, global_noise / ratio)
        return variance, prior, np.where(learned, noise, global_noise)

    def attributes(self) -> dict[str, Any]:
        """What users may want to know, by the names of fitted attributes."""
        return {
            "gamma_": self.map.gamma,
            "n_components_": self.map.n_features - 1,
            "alpha_": self.weights.ratio * self.row / self.temperature,
            "noise_": float(np.sqrt(self.noise)) * self.target_scale,
            "n_experts_": 0 if self.experts is None else len(self.experts.counts),
        }

    def check(self, n_features: int, n_classes: int | None) -> None:
        if n_classes is not None:
            raise ValueError("a kernel regression has no classes")
        self.map.check(n_features)
        D, mean, root = self.map.n_features, self.weights.mean, self.weights.root
        check_array("weights", mean, (D,))
        check_array("root", root, (D, D) if np.size(root) else (0, 0))
        check_number("ratio", self.weights.ratio, np.finfo(float).tiny)
        names = (
            "row",
            "noise",
            "extrapolation_std",
            "global_noise",
            "global_scale",
            "target_scale",
        )
        for name in names:
            check_number(name, getattr(self, name), 0.0)
        check_number("extrapolation_trust", self.extrapolation_trust, 0.0, 1.0)
        check_number("target_mean", self.target_mean)
        self.shape.check()
        if self.experts is not None:
            self.experts.check(n_features, 1)
