"""Posterior of a kernel regression by the evidence: a Gaussian function and its noise.

An ensemble has several machines, whose distributions are averaged. Local experts add to the mean
of a machine. Out of support, predictions revert to the mean and the spread of the targets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.files.declared import check_array, check_number
from likelier.kernel_machine.blockwise import PREDICT_ROWS
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.extrapolation import OutOfSupport
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.noise import NoiseShape, noise_mixture
from likelier.kernel_machine.regression import Weights
from likelier.kernel_machine.regression_experts import corrected_global_variance
from likelier.predictive import Gaussian


@dataclass(frozen=True)
class Moments:
    """Moments of each row: ``(n,)`` of one machine, ``(n, machines)`` of an ensemble.

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
class RegressionMachine:
    """One machine of an ensemble, for targets of mean zero and unit variance.

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
        Noise variance of the machine alone, and the factor of its variances where experts correct
        it.
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

    def moments(self, X: Matrix) -> Moments:
        """Moments of every row."""
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
        return Moments(mean, variance, noise, ratio, support.degree)

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

    def check(self, n_features: int) -> None:
        """Raise a ValueError unless all parts belong together."""
        self.map.check(n_features)
        D, mean, root = self.map.n_features, self.weights.mean, self.weights.root
        check_array("weights_", mean, (D,))
        if np.size(root):
            check_array("roots_", root, (D, D))
        check_number("ratio_", self.weights.ratio, np.finfo(float).tiny)
        for name in ("extrapolation_std", "global_noise", "global_scale"):
            check_number(f"{name}_", getattr(self, name), 0.0)
        check_number("noise_", self.noise, 0.0)
        check_number("extrapolation_trust_", self.extrapolation_trust, 0.0, 1.0)
        self.shape.check()
        if self.experts is not None:
            self.experts.check(n_features, 1)


@dataclass(frozen=True)
class RegressionPosterior(Posterior):
    """One machine or an ensemble of them, and the units of the targets."""

    machines: tuple[RegressionMachine, ...]
    target_mean: float
    target_scale: float

    def moments(self, X: Matrix) -> Moments:
        """Moments in the units of the targets."""
        parts = [vars(machine.moments(X)) for machine in self.machines]
        found = Moments(**{name: np.stack([p[name] for p in parts], axis=1) for name in parts[0]})
        mean, square = self.target_mean + self.target_scale * found.mean, self.target_scale**2
        return Moments(
            mean, square * found.variance, square * found.noise, found.ratio, found.degree
        )

    def predictive(self, X: Matrix) -> Gaussian:
        found = self.moments(X)
        shapes = [machine.shape for machine in self.machines]
        std = np.sqrt(found.variance + found.noise)
        return noise_mixture(found.mean, std, shapes, found.degree)

    def uncertainty(self, X: Matrix) -> Uncertainty:
        found = self.moments(X)
        return variance_parts(found.mean, found.variance, found.noise)

    def inlier_score(self, X: Matrix) -> Array:
        """How well the training data cover each row; low for outliers."""
        return np.asarray(-np.log(np.maximum(self.moments(X).ratio, 1e-300)).mean(axis=1))

    def check(self, n_features: int, n_classes: int | None) -> None:
        if not self.machines or n_classes is not None:
            raise ValueError("a kernel regression needs a machine and no classes")
        check_number("target_mean_", self.target_mean)
        check_number("target_scale_", self.target_scale, 0.0)
        for machine in self.machines:
            machine.check(n_features)


def variance_parts(mean: Array, inside: Array, noise: Array) -> Uncertainty:
    """Predictive variance: of the noise (aleatoric) and of the function (epistemic)."""
    epistemic, aleatoric = inside.mean(axis=1) + mean.var(axis=1), noise.mean(axis=1)
    return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)
