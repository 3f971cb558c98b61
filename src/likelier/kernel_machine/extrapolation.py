"""Out-of-support predictions of a kernel regression: revert to the target mean and spread.

A kernel regression predicts ``phi(x)^T w + b`` for targets of mean zero. Where the features vanish
only the intercept remains, which was fitted to offset the features among the data and is
meaningless elsewhere, so it must vanish too. An intercept of the size of the targets may be their
level and stays until no feature is active; the excess can only be an offset, and fades with the
norm ``|phi|`` of the features.

The prior variance is fitted to the function between rows, which may be far less than the function
varies. Out of support it is raised to the variance of the targets and of the offset, in
proportion to the residual of the features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from likelier.base import Array
from likelier.kernel_machine.weight_posterior import extrapolation_degree

MAX_LEVEL = 2.0  # standard deviations of the targets; the excess of an intercept is an offset
COVERAGE = 0.9


def target_std(targets: Array, weight: Array | None) -> float:
    """Standard deviation of a zero-mean Gaussian as wide as the targets.

    It has at least their variance, and its central 90% interval covers at least 90% of them.
    """
    omega = np.ones(len(targets)) if weight is None else weight
    size = np.abs(targets)
    order = np.argsort(size, kind="stable")
    below = np.cumsum(omega[order])
    last = min(int(np.searchsorted(below, COVERAGE * below[-1])), len(size) - 1)
    quantile = float(size[order[last]] / ndtri(0.5 + 0.5 * COVERAGE))
    return max(quantile, float(np.sqrt(omega @ targets**2 / below[-1])))


@dataclass(frozen=True)
class OutOfSupport:
    """Degree to which rows lie outside the support of the training data.

    Attributes
    ----------
    residual : array of shape (n,)
        Fraction of the prior variance that the features do not carry.
    unknown : float or array of shape (n,)
        Fraction of the out-of-support prediction that has not been learned otherwise.
    """

    residual: Array
    unlearned: Array | float = 1.0

    @property
    def degree(self) -> Array:
        """Extrapolation degree: zero among the data, one without any information."""
        return np.asarray(self.unlearned * extrapolation_degree(self.residual))

    def mean_correction(self, constant: float) -> Array:
        """Correction to subtract from means that include the intercept."""
        level = float(np.clip(constant, -MAX_LEVEL, MAX_LEVEL))
        fade = self.unlearned * (1.0 - np.sqrt(np.clip(1.0 - self.residual, 0.0, 1.0)))
        return np.asarray(self.degree * level + np.maximum(fade, self.degree) * (constant - level))

    def variance(self, constant: float, std: float, known: Array) -> Array:
        """Variance to add; ``known`` is the out-of-support variance so far, noise included."""
        excess = max(abs(constant) - MAX_LEVEL, 0.0)
        missing = np.maximum(max(std, excess) ** 2 - known, 0.0)
        return np.asarray(self.unlearned * self.residual**2 * missing)
