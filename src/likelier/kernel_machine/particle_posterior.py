"""Posteriors of kernel machines by particles: mixtures of what the particles predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.calibration import restore
from likelier.files.declared import check_array, check_number
from likelier.kernel_machine.blockwise import PREDICT_ROWS, BlockwisePredictive, Parts
from likelier.kernel_machine.stein_gaussian import GaussianMixturePosterior
from likelier.kernel_machine.svgd import ParticlePosterior
from likelier.predictive import Gaussian

ParticleState = ParticlePosterior | GaussianMixturePosterior


def _attributes(particles: ParticleState) -> dict[str, Any]:
    """What users may want to know, by the names of fitted attributes."""
    model = particles.model
    gamma = particles.gamma * model.standard.inverse
    return {"gamma_": gamma, "n_components_": model.machine.n_components}


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

    def attributes(self) -> dict[str, Any]:
        return _attributes(self.particles)

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

    def _means(self, X: Matrix) -> Array:
        """Mean of every particle, ``(n, particles)``."""
        return np.asarray(self.target_mean + self.target_scale * self.particles.scores(X)[..., 0].T)

    def predictive(self, X: Matrix) -> Gaussian:
        mean = self._means(X)
        return Gaussian(mean, np.full(mean.shape, self.noise), weights=np.ones(mean.shape[1]))

    def uncertainty(self, X: Matrix) -> Uncertainty:
        epistemic = self._means(X).var(axis=1)
        aleatoric = np.full(len(epistemic), self.noise**2)
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)

    def attributes(self) -> dict[str, Any]:
        return _attributes(self.particles) | {"noise_": self.noise}

    def check(self, n_features: int, n_classes: int | None) -> None:
        _check_particles(self.particles, n_features)
        check_number("noise", self.noise, 0.0)
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
