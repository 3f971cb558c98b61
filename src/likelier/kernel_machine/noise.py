"""How the noise is shaped: a symmetric mixture of Gaussians of several widths, with shoulders.

Residuals of real data are rarely Gaussian. Many are small and some are large, and an interval
made for a Gaussian of their variance is then too wide; or a part of the rows is known well and
another has residuals of a typical size, either way, and then it is too narrow. Components are
fixed: widths from a quarter of the common one to four times it around zero, and shoulders, pairs
of narrow ones at equal distance on both sides. Their shares are the most probable ones given
standardised residuals of rows that were left out. A few imagined rows of the common width keep
little data from claiming much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from likelier.base import Array
from likelier.predictive import Gaussian

STEPS = np.arange(-2.0, 2.5, 0.5)  # half octaves
SHOULDERS, SHOULDER_WIDTH = (1.0, 2.0), 0.5
CENTRES = np.concatenate([np.zeros(len(STEPS)), SHOULDERS])
WIDTHS = np.concatenate([2.0**STEPS, np.full(len(SHOULDERS), SHOULDER_WIDTH)])
IMAGINED_ROWS = 5.0 * ((CENTRES == 0.0) & (WIDTHS == 1.0))
N_STEPS = 200


@dataclass(frozen=True)
class NoiseShape:
    """Centres, widths and shares of the components, and by how much they change the variance.

    Centres and widths are those of a mixture of mean zero and unit variance; a centre that is
    not zero comes with its opposite. The mean square of the residuals, which a few extreme ones
    may rule, is to be multiplied by ``variance``.
    """

    widths: Array
    shares: Array
    centres: Array
    variance: float = 1.0

    def log_density(self, deviations: Array) -> Array:
        """Of deviations whose variance is one."""
        away = (deviations[:, None] - self.centres) / self.widths
        exponent = -0.5 * away**2 - np.log(self.widths)
        return np.asarray(logsumexp(exponent, axis=1, b=self.shares) - 0.5 * np.log(2.0 * np.pi))


GAUSSIAN_SHAPE = NoiseShape(np.ones(1), np.ones(1), np.zeros(1))


def noise_shape(residuals: Array, weight: Array | None = None) -> NoiseShape:
    """Shares by expectation maximisation; cost 200 x 11 products per residual.

    Parameters
    ----------
    residuals : array of shape (n,)
        Residuals of rows that were left out, divided by their standard deviation.
    weight : array of shape (n,), optional
        How many equal rows each stands for.
    """
    omega = np.ones(len(residuals)) if weight is None else weight
    exponent = component_log_density(residuals)
    density = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    total = omega.sum() + IMAGINED_ROWS.sum()
    shares = np.full(len(WIDTHS), 1.0 / len(WIDTHS))
    for _ in range(N_STEPS):
        told = density.T @ (omega / (density @ shares))
        shares = (shares * told + IMAGINED_ROWS) / total
    return _shape_of(shares)


def component_log_density(residuals: Array) -> Array:
    """Log density of every component, but for a constant; shoulders are pairs."""
    size = np.abs(residuals)[:, None]
    near, far = -0.5 * ((size - CENTRES) / WIDTHS) ** 2, -0.5 * ((size + CENTRES) / WIDTHS) ** 2
    return np.asarray(near + np.log1p(np.exp(far - near)) - np.log(WIDTHS))


def _shape_of(shares: Array) -> NoiseShape:
    """The components that are used, pairs as two."""
    used = shares > 1e-9
    shares, widths, centres = shares[used] / shares[used].sum(), WIDTHS[used], CENTRES[used]
    variance = float(shares @ (widths**2 + centres**2))
    pair = centres > 0.0
    sides = np.concatenate([centres, -centres[pair]])
    parts = np.concatenate([np.where(pair, 0.5, 1.0) * shares, 0.5 * shares[pair]])
    both = np.concatenate([widths, widths[pair]])
    scale = variance**-0.5
    return NoiseShape(scale * both, parts, scale * sides, variance)


def with_shapes(
    mean: Array, std: Array, shapes: list[NoiseShape], away: Array | float = 0.0
) -> Gaussian:
    """Mixture of all components around means of shape ``(n, len(shapes))``, each of which is one.

    Parameters
    ----------
    mean, std : arrays of shape (n, len(shapes))
        Mean and standard deviation of the target; a column is one model.
    away : array of the same shape, or a number
        Share of the variance that is not of this shape but Gaussian: residuals say nothing of
        rows far from all of them.
    """
    gauss = np.broadcast_to(np.asarray(away, dtype=np.float64), mean.shape)
    loc, scale = [], []
    for i, shape in enumerate(shapes):
        part = 1.0 - gauss[:, [i]]
        loc.append(mean[:, [i]] + std[:, [i]] * np.sqrt(part) * shape.centres)
        scale.append(std[:, [i]] * np.sqrt(part * shape.widths**2 + gauss[:, [i]]))
    weights = np.concatenate([shape.shares for shape in shapes])
    return Gaussian(np.concatenate(loc, axis=1), np.concatenate(scale, axis=1), weights=weights)
