"""From a posterior to plain values for a model file, and back, for both kernel estimators.

``fitted`` has the fitted attributes by their names: an estimator, or what a model file holds.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from likelier.fitting.standardize import Standard
from likelier.kernel_machine.class_posterior import ClassPosterior
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import KernelMap, restore_map
from likelier.kernel_machine.noise import NoiseShape
from likelier.kernel_machine.regression_posterior import RegressionPosterior, Weights
from likelier.kernel_machine.weight_posterior import WeightPosterior

if TYPE_CHECKING:
    from likelier.kernel_machine.particle_posterior import (
        ParticleClasses,
        ParticleNumbers,
        ParticleState,
    )


def to_plain(posterior: Any) -> dict[str, Any]:
    """Fields as arrays, numbers and dicts of them; particles have a form of their own."""
    plain = {item.name: getattr(posterior, item.name) for item in fields(posterior)}
    for name, value in plain.items():
        if name == "particles":
            plain[name] = _plain_particles(value)
        elif isinstance(value, KernelMap):
            plain[name] = value.to_arrays()
        elif is_dataclass(value):
            plain[name] = {item.name: getattr(value, item.name) for item in fields(value)}
    return plain


def classifier(fitted: Any) -> ClassPosterior | ParticleClasses:
    """Posterior of a `BayesianKernelClassifier`."""
    plain = _stored(fitted)
    if "particles" in plain:
        from likelier.kernel_machine.particle_posterior import ParticleClasses  # loads numba

        particles = _restored_particles(plain.pop("particles"))
        return ParticleClasses(particles, **plain)
    plain |= {"map": restore_map(plain["map"]), "weights": WeightPosterior(**plain["weights"])}
    return ClassPosterior(**_with_experts(plain))


def regressor(fitted: Any) -> RegressionPosterior | ParticleNumbers:
    """Posterior of a `BayesianKernelRegressor`."""
    plain = _stored(fitted)
    if "particles" in plain:
        from likelier.kernel_machine.particle_posterior import ParticleNumbers  # loads numba

        particles = _restored_particles(plain.pop("particles"))
        return ParticleNumbers(particles, **plain)
    plain |= {"map": restore_map(plain["map"]), "weights": Weights(**plain["weights"])}
    plain["shape"] = NoiseShape(**plain["shape"])
    return RegressionPosterior(**_with_experts(plain))


def _stored(fitted: Any) -> dict[str, Any]:
    plain = getattr(fitted, "posterior_", None)
    if plain is None:
        raise ValueError("no rows have been learned yet")
    return dict(plain)


def _with_experts(plain: dict[str, Any]) -> dict[str, Any]:
    experts = plain["experts"]
    return plain | {"experts": None if experts is None else Experts(**experts)}


def _plain_particles(particles: ParticleState) -> dict[str, Any]:
    from likelier.kernel_machine.svgd import ParticlePosterior

    machine, standard = particles.model.machine, particles.model.standard
    single = isinstance(particles, ParticlePosterior)
    return {
        "loss": machine.loss,
        "n_outputs": machine.n_outputs,
        "frequencies": machine.frequencies,
        "input_mean": standard.mean,
        "input_inverse": standard.inverse,
        "theta": particles.theta if single else particles.mean,  # type: ignore[union-attr]
        "scale": None if single else particles.scale,  # type: ignore[union-attr]
    }


def _restored_particles(plain: dict[str, Any]) -> ParticleState:
    from likelier.kernel_machine.fourier_machine import FourierMachine, ScaledMachine
    from likelier.kernel_machine.stein_gaussian import GaussianMixturePosterior
    from likelier.kernel_machine.svgd import ParticlePosterior

    standard = Standard(plain["input_mean"], plain["input_inverse"])
    machine = FourierMachine(
        plain["loss"], len(np.asarray(standard.mean)), plain["n_outputs"],
        frequencies=plain["frequencies"],
    )  # fmt: skip
    model = ScaledMachine(machine, standard)
    if plain["scale"] is None:
        return ParticlePosterior(model, plain["theta"])
    return GaussianMixturePosterior(model, plain["theta"], plain["scale"])
