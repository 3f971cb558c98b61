"""The distribution of a target around a prediction, from the errors on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from likelier.base import Array
from likelier.calibration import conformal_quantile
from likelier.predictive import LocationScale


@dataclass(frozen=True, eq=False)
class HeldOutErrors(LocationScale):
    """Symmetric about ``loc``; the absolute error is that of a held-out row, or larger.

    Split conformal prediction: the rows that were held out and a new one are exchangeable, so that
    its error is as likely to be above all of theirs as any row. Beyond them quantiles are infinite.

    Parameters
    ----------
    loc, scale : array of shape (n,)
        Predictions of the fit that the errors are of; the unit of the errors, one.
    errors, error_weight : array of shape (m,)
        Sorted absolute errors of held-out rows, and their weights.
    """

    errors: Array
    error_weight: Array

    def interval(self, coverage: float = 0.9) -> Array:
        """Central interval that holds the target with probability ``coverage``, ``(n, 2)``."""
        half_width = conformal_quantile(self.errors, coverage, self.error_weight)
        centre = self.loc[:, 0]
        return np.stack([centre - half_width, centre + half_width], axis=1)

    def log_density(self, y: npt.ArrayLike) -> Array:
        raise ValueError("held-out errors are a table without a density; use cdf or quantiles")

    def _standard_quantile(self, alpha: float) -> Any:
        coverage = abs(2.0 * alpha - 1.0)
        if not 0.0 < coverage < 1.0:
            return np.copysign(np.inf, alpha - 0.5) if coverage else 0.0
        return np.copysign(
            conformal_quantile(self.errors, coverage, self.error_weight), alpha - 0.5
        )

    def _standard_cdf(self, z: Array) -> Array:
        total = self.error_weight.sum() + self.error_weight.max()
        sums = np.concatenate([[0.0], np.cumsum(self.error_weight)]) / total
        within = sums[np.searchsorted(self.errors, abs(z), side="right")]
        return np.asarray(0.5 + 0.5 * np.sign(z) * np.where(np.isinf(z), 1.0, within))

    def _standard_log_density(self, z: Array) -> Array:
        raise ValueError("held-out errors are a table without a density")

    def _component_moments(self) -> tuple[Array, Array]:
        square = np.average(self.errors**2, weights=self.error_weight)
        return self.loc, np.full(self.loc.shape, square)
