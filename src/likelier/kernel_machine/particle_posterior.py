"""Posteriors of kernel machines by particles: mixtures of what the particles predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Loss, Matrix, Posterior, Uncertainty
from likelier.calibration import restore
from likelier.files.declared import check_array, check_number
from likelier.fitting.standardize import Standard
from likelier.kernel_machine.blockwise import PREDICT_ROWS, BlockwisePredictive, Parts
from likelier.kernel_machine.fourier_machine import FourierMachine, ScaledMachine
from likelier.kernel_machine.regression_posterior import variance_parts
from likelier.kernel_machine.stein_gaussian import GaussianMixturePosterior
from likelier.kernel_machine.svgd import ParticlePosterior
from likelier.losses import EpsilonInsensitive, MulticlassHinge, Softmax, SquaredError
from likelier.predictive import Gaussian

ParticleState = ParticlePosterior | GaussianMixturePosterior


def class_loss(fitted: Any) -> Loss:
    """Loss of the particles of a classifier."""
    return MulticlassHinge() if fitted.loss == "hinge" else Softmax()


def number_loss(fitted: Any) -> Loss:
    """Loss of the particles of a regression."""
    gaussian = fitted.loss == "gaussian"
    return SquaredError() if gaussian else EpsilonInsensitive(float(fitted.epsilon))


def restore_particles(fitted: Any, loss: Loss, n_outputs: int) -> ParticleState:
    """Particles, or Gaussians, from the fitted attributes."""
    E = fitted.frequencies_ if len(fitted.frequencies_) else None
    d = len(fitted.input_scale_)
    machine = FourierMachine(loss, d, n_outputs, frequencies=E)
    varying = fitted.input_scale_ > 0.0
    inverse = np.divide(1.0, fitted.input_scale_, out=np.zeros(d), where=varying)
    model = ScaledMachine(machine, Standard(fitted.input_mean_, inverse))
    if len(fitted.particle_scale_):
        return GaussianMixturePosterior(model, fitted.particles_, fitted.particle_scale_)
    return ParticlePosterior(model, fitted.particles_)


def particle_draws(posterior: ParticleState, n_draws: int, rng: np.random.Generator) -> Array:
    """Weights of draws, intercept last, ``(n_draws, n_components + 1, outputs)``."""
    if isinstance(posterior, GaussianMixturePosterior):
        theta = posterior.draws(n_draws, rng)
    else:
        theta = posterior.theta[np.arange(n_draws) % len(posterior.theta)]
    parts = posterior.model.machine.split(theta)
    return np.concatenate([parts.weights, parts.intercept[:, None]], axis=1)


def _check_particles(particles: ParticleState, n_features: int) -> None:
    """Raise a ValueError unless particles and machine are of one size."""
    machine, standard = particles.model.machine, particles.model.standard
    check_array("input_mean_", standard.mean, (n_features,))
    check_array("input_scale_", standard.inverse, (n_features,), low=0.0)
    if machine.frequencies is not None:
        check_array("frequencies_", machine.frequencies, (None, n_features))
    theta = particles.theta if isinstance(particles, ParticlePosterior) else particles.mean
    check_array("particles_", theta, (None, machine.n_parameters))
    if not len(theta):
        raise ValueError("particles_ holds no particle")
    if isinstance(particles, GaussianMixturePosterior):
        check_array("particle_scale_", particles.scale, theta.shape, low=0.0)


@dataclass(frozen=True)
class ParticleClasses(Posterior):
    """Classes; ``calibration`` is empty if the loss has probabilities of its own."""

    particles: ParticleState
    calibration: dict[str, Any]

    def predictive(self, X: Matrix) -> BlockwisePredictive:
        link = calibrated_link(self.calibration)

        def parts() -> Parts:
            for start in range(0, X.shape[0], PREDICT_ROWS):
                rows = slice(start, start + PREDICT_ROWS)
                predictive: Any = self.particles.predictive(X[rows], link)
                yield rows, predictive

        n_classes = self.particles.model.machine.n_outputs
        return BlockwisePredictive(parts, int(X.shape[0]), n_classes)

    def check(self, n_features: int, n_classes: int | None) -> None:
        _check_particles(self.particles, n_features)
        machine = self.particles.model.machine
        if machine.n_outputs != n_classes:
            raise ValueError(f"classes_ must hold {machine.n_outputs} labels")
        if self.calibration:
            restore(self.calibration)  # checks its parts
        elif not machine.loss.probabilistic:
            raise ValueError(f"loss={machine.loss.name!r} needs a calibration")


@dataclass(frozen=True)
class ParticleNumbers(Posterior):
    """Numbers: the particles' functions, with noise of one standard deviation."""

    particles: ParticleState
    noise: float
    target_mean: float
    target_scale: float

    def moments(self, X: Matrix) -> tuple[Array, Array, Array]:
        """Mean, variance of the function and of the noise, ``(n, particles)`` each."""
        scores = self.particles.scores(X)[..., 0].T
        mean = self.target_mean + self.target_scale * scores
        return mean, np.zeros_like(mean), np.full_like(mean, self.noise**2)

    def predictive(self, X: Matrix) -> Gaussian:
        mean, inside, noise = self.moments(X)
        return Gaussian(mean, np.sqrt(inside + noise), weights=np.ones(mean.shape[1]))

    def uncertainty(self, X: Matrix) -> Uncertainty:
        return variance_parts(*self.moments(X))

    def check(self, n_features: int, n_classes: int | None) -> None:
        _check_particles(self.particles, n_features)
        check_number("noise_", self.noise, 0.0)
        check_number("target_mean_", self.target_mean)
        check_number("target_scale_", self.target_scale, 0.0)


def calibrated_link(calibration: dict[str, Any]) -> Callable[[Array], Array] | None:
    """Map from scores to probabilities; None if the loss has its own."""
    if not calibration:
        return None
    fitted = restore(calibration)

    def link(scores: Array) -> Array:
        if scores.shape[1] > 2:
            return fitted.probabilities(scores)
        positive = fitted.probabilities(scores[:, 1] - scores[:, 0])
        return np.stack([1.0 - positive, positive], axis=1)

    return link


def particle_classes(fitted: Any) -> ParticleClasses:
    """Posterior of a `BayesianKernelClassifier` by particles."""
    particles = restore_particles(fitted, class_loss(fitted), len(fitted.classes_))
    return ParticleClasses(particles, fitted.calibration_[0])


def particle_numbers(fitted: Any) -> ParticleNumbers:
    """Posterior of a `BayesianKernelRegressor` by particles."""
    particles = restore_particles(fitted, number_loss(fitted), 1)
    return ParticleNumbers(particles, fitted.noise_[0], fitted.target_mean_, fitted.target_scale_)
