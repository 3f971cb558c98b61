"""Noise of a kernel regression with local experts.

The noise is estimated anew with the experts, which explain part of what was noise to the global
model. The posterior of the global model keeps its width, by a factor on its variances. The part of
the function that its features do not carry is left to the experts, and stays uncertain in
proportion to their remaining prior variance. All variances are in units of the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.kernel_machine.noise import MIN_NOISE, NoiseShape, noise_shape


def corrected_global_variance(inside: Array, outside: Array, remaining: Array) -> Array:
    """Variance of the global model where experts correct it, in units of the noise.

    ``inside`` is the variance of its weights, ``outside`` that outside of its features, and
    ``remaining`` the remaining fraction of the experts' prior variance: one far away.
    """
    return np.asarray(inside + np.minimum(remaining, 1.0) * outside)


@dataclass(frozen=True)
class Residuals:
    """Residuals of rows that were not learned, variances of the function there, and weights.

    Variances are those of the expert and of the global model, in units of their noise.
    """

    residual: Array
    expert_variance: Array
    global_variance: Array
    omega: Array


@dataclass(frozen=True)
class NoiseModel:
    """Variance and shape of the noise, and a factor on the global model's variances.

    A target has the variance ``noise (1 + expert_variance + global_scale global_variance)``.
    """

    noise: float
    shape: NoiseShape
    global_scale: float

    def losses(self, rows: Residuals) -> Array:
        """Negative log density of every row."""
        std = np.sqrt(
            self.noise * (1.0 + rows.expert_variance + self.global_scale * rows.global_variance)
        )
        return np.asarray(np.log(std) - self.shape.log_density(rows.residual / std))


def fit_noise(rows: Residuals, global_noise: float | None = None) -> NoiseModel:
    """Fit the noise model to held-out residuals.

    ``global_noise`` is the noise variance of the global model alone; None if there are no experts.
    """
    scale = 1.0
    if global_noise is not None:
        noise_without_global = float(
            np.average(rows.residual**2 / (1.0 + rows.expert_variance), weights=rows.omega)
        )
        scale = max(global_noise / max(noise_without_global, MIN_NOISE), 1.0)
    variance = 1.0 + rows.expert_variance + scale * rows.global_variance
    noise = max(float(np.average(rows.residual**2 / variance, weights=rows.omega)), MIN_NOISE)
    shape = noise_shape(rows.residual / np.sqrt(noise * variance), rows.omega)
    return NoiseModel(noise * shape.variance, shape, scale)
