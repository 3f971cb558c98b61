"""From what a fit has stored to the posterior that predicts, for both kernel estimators.

``fitted`` has the parameters and fitted attributes by their names: an estimator, or what a model
file holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from likelier.kernel_machine.class_posterior import ClassMachine, ClassPosterior
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import restore_map
from likelier.kernel_machine.laplace import WeightPosterior
from likelier.kernel_machine.noise import NoiseShape
from likelier.kernel_machine.regression import Weights
from likelier.kernel_machine.regression_posterior import RegressionMachine, RegressionPosterior

if TYPE_CHECKING:
    from likelier.kernel_machine.particle_posterior import ParticleClasses, ParticleNumbers


def classifier(fitted: Any) -> ClassPosterior | ParticleClasses:
    """Posterior of a `BayesianKernelClassifier`."""
    if hasattr(fitted, "particles_"):
        from likelier.kernel_machine.particle_posterior import particle_classes  # loads numba

        return particle_classes(fitted)
    machines = tuple(class_machine(fitted, i) for i in range(_count(fitted)))
    return ClassPosterior(machines, len(fitted.classes_))


def regressor(fitted: Any) -> RegressionPosterior | ParticleNumbers:
    """Posterior of a `BayesianKernelRegressor`."""
    if hasattr(fitted, "particles_"):
        from likelier.kernel_machine.particle_posterior import particle_numbers  # loads numba

        return particle_numbers(fitted)
    machines = tuple(regression_machine(fitted, i) for i in range(_count(fitted)))
    return RegressionPosterior(machines, fitted.target_mean_, fitted.target_scale_)


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
