"""How the noise is shaped: a mixture of Gaussians of one mean and several widths.

Residuals of real data are rarely Gaussian: many are small and some are large, and an interval
made for a Gaussian of their variance is then too wide. The widths are fixed, half as wide to
four times as wide as the common one, and their shares are the most probable ones given
standardised residuals of rows that were left out. A few imagined rows of the common width keep
little data from claiming much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array

WIDTHS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
IMAGINED_ROWS = np.array([0.0, 0.0, 5.0, 0.0, 0.0])
N_STEPS = 200


@dataclass(frozen=True)
class NoiseShape:
    """Widths and shares of the components, and by how much they change the variance.

    Widths are those of a mixture of unit variance. The mean square of the residuals, which a
    few extreme ones may rule, is to be multiplied by ``variance``.
    """

    widths: Array
    shares: Array
    variance: float = 1.0


GAUSSIAN_SHAPE = NoiseShape(np.ones(1), np.ones(1))


def noise_shape(residuals: Array, weight: Array | None = None) -> NoiseShape:
    """Shares by expectation maximisation; cost 200 x 5 products per residual.

    Parameters
    ----------
    residuals : array of shape (n,)
        Residuals of rows that were left out, divided by their standard deviation.
    weight : array of shape (n,), optional
        How many equal rows each stands for.
    """
    omega = np.ones(len(residuals)) if weight is None else weight
    exponent = -0.5 * (residuals[:, None] / WIDTHS) ** 2 - np.log(WIDTHS)
    density = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    total = omega.sum() + IMAGINED_ROWS.sum()
    shares = np.full(len(WIDTHS), 1.0 / len(WIDTHS))
    for _ in range(N_STEPS):
        told = density.T @ (omega / (density @ shares))
        shares = (shares * told + IMAGINED_ROWS) / total
    used = shares > 1e-9
    widths, shares = WIDTHS[used], shares[used] / shares[used].sum()
    variance = float(shares @ widths**2)
    return NoiseShape(widths / np.sqrt(variance), shares, variance)
