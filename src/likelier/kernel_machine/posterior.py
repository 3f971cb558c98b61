"""From what a fit has stored to the posterior that predicts, for both kernel estimators.

``fitted`` has the parameters and fitted attributes by their names: an estimator, or what a model
file holds.
"""

from __future__ import annotations

from typing import Any

from likelier.base import Loss
from likelier.kernel_machine.class_posterior import ClassMachine, ClassPosterior
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import restore_map
from likelier.kernel_machine.laplace import WeightPosterior
from likelier.kernel_machine.noise import NoiseShape
from likelier.kernel_machine.particle_posterior import (
    ParticleClasses,
    ParticleNumbers,
    restore_particles,
)
from likelier.kernel_machine.regression import Weights
from likelier.kernel_machine.regression_posterior import RegressionMachine, RegressionPosterior
from likelier.losses import EpsilonInsensitive, MulticlassHinge, Softmax, SquaredError


def class_loss(fitted: Any) -> Loss:
    """Loss of the particles of a classifier."""
    return MulticlassHinge() if fitted.loss == "hinge" else Softmax()


def number_loss(fitted: Any) -> Loss:
    """Loss of the particles of a regression."""
    gaussian = fitted.loss == "gaussian"
    return SquaredError() if gaussian else EpsilonInsensitive(float(fitted.epsilon))


def classifier(fitted: Any) -> ClassPosterior | ParticleClasses:
    """Posterior of a `BayesianKernelClassifier`."""
    n_classes = len(fitted.classes_)
    if hasattr(fitted, "particles_"):
        particles = restore_particles(fitted, class_loss(fitted), n_classes)
        return ParticleClasses(particles, fitted.calibration_[0])
    n_machines = _count(fitted)
    return ClassPosterior(tuple(class_machine(fitted, i) for i in range(n_machines)), n_classes)


def regressor(fitted: Any) -> RegressionPosterior | ParticleNumbers:
    """Posterior of a `BayesianKernelRegressor`."""
    mean, scale = fitted.target_mean_, fitted.target_scale_
    if hasattr(fitted, "particles_"):
        particles = restore_particles(fitted, number_loss(fitted), 1)
        return ParticleNumbers(particles, fitted.noise_[0], mean, scale)
    machines = tuple(regression_machine(fitted, i) for i in range(_count(fitted)))
    return RegressionPosterior(machines, mean, scale)


def _count(fitted: Any) -> int:
    """Number of machines."""
    if not hasattr(fitted, "maps_"):
        raise ValueError("no rows have been learned yet")
    return len(fitted.maps_)


def class_machine(fitted: Any, i: int) -> ClassMachine:
    """One machine of a classifier."""
    weights = WeightPosterior(
        fitted.weights_[i], fitted.roots_[i], fitted.layout_, float(fitted.prior_variance_[i]),
        fitted.mean_shift_[i], fitted.bases_[i], fitted.outside_[i],
    )  # fmt: skip
    return ClassMachine(
        restore_map(fitted.maps_[i]),
        weights,
        float(fitted.posterior_scale_[i]),
        fitted.extrapolation_scores_[i],
        float(fitted.extrapolation_trust_[i]),
        fitted.calibration_[i],
        _experts(fitted, i),
    )


def regression_machine(fitted: Any, i: int) -> RegressionMachine:
    """One machine of a regression."""
    shape = (fitted.noise_widths_[i], fitted.noise_weights_[i], fitted.noise_centres_[i])
    return RegressionMachine(
        restore_map(fitted.maps_[i]),
        Weights(fitted.weights_[i], fitted.roots_[i], float(fitted.ratio_[i])),
        (fitted.noise_[i] / fitted.target_scale_) ** 2,
        NoiseShape(*shape),
        float(fitted.extrapolation_std_[i]),
        float(fitted.extrapolation_trust_[i]),
        _experts(fitted, i),
        float(fitted.global_noise_[i]),
        float(fitted.global_scale_[i]),
    )


def _experts(fitted: Any, i: int) -> Experts | None:
    """Local experts of one machine, if there are any."""
    return Experts(**fitted.experts_[i]) if fitted.experts_[i] else None
