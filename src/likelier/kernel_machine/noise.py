"""Noise distribution of a regression: a symmetric mixture of Gaussians.

Residuals are rarely Gaussian. With many small and some large ones, Gaussian intervals are too wide;
if some rows are known well and others have residuals of a typical size of either sign, they are too
narrow. Components are fixed: zero-mean Gaussians with a quarter to four times the common standard
deviation, and shoulders, pairs of narrow Gaussians at symmetric centres. Their weights are the MAP
estimate from standardised leave-one-out residuals, with a few pseudo-observations for the
common width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from likelier.base import Array
from likelier.files.declared import check_array
from likelier.predictive import Gaussian

LOG_WIDTHS = np.arange(-2.0, 2.5, 0.5)  # half octaves
SHOULDERS, SHOULDER_WIDTH = (1.0, 2.0), 0.5
CENTRES = np.concatenate([np.zeros(len(LOG_WIDTHS)), SHOULDERS])
WIDTHS = np.concatenate([2.0**LOG_WIDTHS, np.full(len(SHOULDERS), SHOULDER_WIDTH)])
PSEUDO_COUNTS = 5.0 * ((CENTRES == 0.0) & (WIDTHS == 1.0))
N_STEPS = 200
MIN_NOISE = 1e-12  # variance, of targets of unit variance


@dataclass(frozen=True)
class NoiseShape:
    """Centres, widths and weights of the components, and their effect on the variance.

    The mixture has mean zero and unit variance; nonzero centres come in symmetric pairs.
    ``variance`` is the factor from the mean squared residual, which outliers may dominate, to the
    noise variance.
    """

    widths: Array
    weights: Array
    centres: Array
    variance: float = 1.0

    def check(self) -> None:
        """Raise a ValueError unless there is a weight, a width and a centre for each component."""
        check_array("noise_weights_", self.weights, (None,), low=0.0)
        n = len(self.weights)
        check_array("noise_widths_", self.widths, (n,), low=0.0)
        check_array("noise_centres_", self.centres, (n,))
        if not self.weights.sum() > 0.0:
            raise ValueError("noise_weights_ must have a positive sum")

    def log_density(self, deviations: Array) -> Array:
        """Log density of deviations of unit variance."""
        standardised = (deviations[:, None] - self.centres) / self.widths
        exponent = -0.5 * standardised**2 - np.log(self.widths)
        return np.asarray(logsumexp(exponent, axis=1, b=self.weights) - 0.5 * np.log(2.0 * np.pi))


GAUSSIAN_SHAPE = NoiseShape(np.ones(1), np.ones(1), np.zeros(1))


def noise_shape(residuals: Array, weight: Array | None = None) -> NoiseShape:
    """Fit the mixture weights by expectation maximisation; costs 200 x 11 products per residual.

    Parameters
    ----------
    residuals : array of shape (n,)
        Leave-one-out residuals divided by their standard deviation.
    weight : array of shape (n,), optional
        Number of equal rows each residual represents.
    """
    omega = np.ones(len(residuals)) if weight is None else weight
    exponent = component_log_density(residuals)
    density = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    total = omega.sum() + PSEUDO_COUNTS.sum()
    weights = np.full(len(WIDTHS), 1.0 / len(WIDTHS))
    for _ in range(N_STEPS):
        responsibility = density.T @ (omega / (density @ weights))
        weights = (weights * responsibility + PSEUDO_COUNTS) / total
    return _shape_of(weights)


def component_log_density(residuals: Array) -> Array:
    """Log density of every component up to a constant; shoulders are pairs."""
    size = np.abs(residuals)[:, None]
    positive = -0.5 * ((size - CENTRES) / WIDTHS) ** 2
    negative = -0.5 * ((size + CENTRES) / WIDTHS) ** 2
    return np.asarray(positive + np.log1p(np.exp(negative - positive)) - np.log(WIDTHS))


def _shape_of(weights: Array) -> NoiseShape:
    """Components with nonzero weight; pairs are split into two."""
    used = weights > 1e-9
    weights, widths, centres = weights[used] / weights[used].sum(), WIDTHS[used], CENTRES[used]
    variance = float(weights @ (widths**2 + centres**2))
    pair = centres > 0.0
    sides = np.concatenate([centres, -centres[pair]])
    parts = np.concatenate([np.where(pair, 0.5, 1.0) * weights, 0.5 * weights[pair]])
    both = np.concatenate([widths, widths[pair]])
    scale = variance**-0.5
    return NoiseShape(scale * both, parts, scale * sides, variance)


def noise_mixture(mean: Array, std: Array, shape: NoiseShape, gaussian: Array) -> Gaussian:
    """Predictive mixture of each row.

    Parameters
    ----------
    mean, std : arrays of shape (n,)
        Mean and standard deviation of the target.
    shape : NoiseShape
    gaussian : array of shape (n,)
        Fraction of the variance that is Gaussian instead: residuals carry no information about the
        noise shape out of support.
    """
    part = 1.0 - gaussian[:, None]
    loc = mean[:, None] + std[:, None] * np.sqrt(part) * shape.centres
    scale = std[:, None] * np.sqrt(part * shape.widths**2 + gaussian[:, None])
    return Gaussian(loc, scale, weights=shape.weights)
