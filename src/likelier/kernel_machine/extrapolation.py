"""Numbers far from all data: the mean of the targets, and an interval as wide as theirs.

A kernel regression says ``phi(x)^T w + b``, for targets of mean zero. Where the features vanish
the constant is left alone. It was learned where the data are, as a counterweight of what the
features add there, and says nothing of what lies far away: there it must be gone. On the way, a
constant of the size of the targets may be their level, and stays until no feature tells anything;
what is beyond that can only be a counterweight, and fades with the features' length ``|phi|``.

The prior variance is learned from what smooth functions leave open between rows, which may be far
less than they move. Beyond the data, as much as the features do not carry, it is made up to the
spread of the targets and to the counterweight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from likelier.base import Array
from likelier.kernel_machine.laplace import far_share

LEVEL = 2.0  # spreads of the targets; a constant beyond is a counterweight
COVERAGE = 0.9


def far_spread(targets: Array, weight: Array | None) -> float:
    """Standard deviation of a Gaussian that is as wide as the targets, of mean zero.

    It has at least their variance, and its central interval of 90% holds as many of them.
    """
    omega = np.ones(len(targets)) if weight is None else weight
    size = np.abs(targets)
    order = np.argsort(size, kind="stable")
    below = np.cumsum(omega[order])
    last = min(int(np.searchsorted(below, COVERAGE * below[-1])), len(size) - 1)
    quantile = float(size[order[last]] / ndtri(0.5 + 0.5 * COVERAGE))
    return max(quantile, float(np.sqrt(omega @ targets**2 / below[-1])))


@dataclass(frozen=True)
class FarRows:
    """How far rows are from all that was learned.

    Attributes
    ----------
    residual : array of shape (n,)
        Share of the prior variance that the features do not carry.
    unknown : float or array of shape (n,)
        How much of what is said there has not been learned in other ways.
    """

    residual: Array
    unknown: Array | float = 1.0

    @property
    def away(self) -> Array:
        """Zero among the data, one where nothing is known."""
        return np.asarray(self.unknown * far_share(self.residual))

    def fading(self, constant: float) -> Array:
        """What to subtract from means that include the constant."""
        level = float(np.clip(constant, -LEVEL, LEVEL))
        faded = self.unknown * (1.0 - np.sqrt(np.clip(1.0 - self.residual, 0.0, 1.0)))
        return np.asarray(self.away * level + np.maximum(faded, self.away) * (constant - level))

    def variance(self, constant: float, spread: float, known: Array) -> Array:
        """What to add to variances; ``known`` is what they have far away, with the noise."""
        excess = max(abs(constant) - LEVEL, 0.0)
        missing = np.maximum(max(spread, excess) ** 2 - known, 0.0)
        return np.asarray(self.unknown * self.residual**2 * missing)
