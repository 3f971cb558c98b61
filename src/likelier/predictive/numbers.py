"""Distributions of a number: what all of them answer, whatever their components are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from likelier.base import Array, Uncertainty, check_share
from likelier.predictive.mixture import Predictive, average


def _levels(alpha: npt.ArrayLike) -> Array:
    try:
        levels = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    except (TypeError, ValueError):
        raise TypeError(f"alpha must be a number or a list of numbers, got {alpha!r}") from None
    if levels.ndim != 1 or not levels.size or not ((levels > 0.0) & (levels < 1.0)).all():
        raise ValueError(f"alpha must lie strictly between 0 and 1, got {alpha!r}")
    return levels


def smallest(
    enough: Callable[[Array], Array], low: Array, high: Array, value: Callable[[Array], Array]
) -> Array:
    """Bisect integers in ``(low, high]``: the value of the smallest that is enough, row by row."""
    low, high = low.astype(np.int64), high.astype(np.int64)
    while True:
        middle = (low & high) + ((low ^ high) >> 1)  # a sum of both may overflow
        if (middle == low).all():
            return value(high)
        above = enough(value(middle)) & (middle > low)
        low, high = np.where(above, low, middle), np.where(above, middle, high)


@dataclass(frozen=True, eq=False)
class NumberPredictive(Predictive):
    """Distribution of a number of each row."""

    @property
    def discrete(self) -> bool:
        """Whether ``log_density`` is the log of a probability, not of a density."""
        return False

    @abstractmethod
    def cdf(self, y: npt.ArrayLike) -> Array:
        """Probability that the target is at most ``y``, one number per row."""

    @abstractmethod
    def _quantile(self, alpha: float) -> Array:
        """Smallest number of each row whose ``cdf`` is at least ``alpha``."""

    @abstractmethod
    def _component_moments(self) -> tuple[Array, Array]:
        """Mean and variance of every component, ``(n, M)``."""

    def mean(self) -> Array:
        """Mean of each row."""
        mean, _ = self._component_moments()
        return average(self.weights, mean)

    def point(self) -> Array:
        """The mean."""
        return self.mean()

    def std(self) -> Array:
        """Standard deviation of each row: within the components and between them."""
        return np.asarray(np.sqrt(self.uncertainty().total))

    def uncertainty(self) -> Uncertainty:
        """Law of total variance: mean of the variances plus variance of the means."""
        mean, variance = self._component_moments()
        centre = average(self.weights, mean)
        aleatoric = average(self.weights, variance)
        epistemic = average(self.weights, (mean - centre[:, np.newaxis]) ** 2)
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)

    def quantiles(self, alpha: npt.ArrayLike) -> Array:
        """Quantiles of each row, ``(n, len(alpha))``; ``(n,)`` for a single number.

        The smallest number at which the distribution function is at least ``alpha``.
        """
        columns = [self._quantile(level) for level in _levels(alpha).tolist()]
        return columns[0] if np.ndim(alpha) == 0 else np.stack(columns, axis=1)

    def interval(self, coverage: float = 0.9) -> Array:
        """Central interval that holds the target with probability ``coverage``, ``(n, 2)``."""
        half = 0.5 * check_share("coverage", coverage)
        return self.quantiles([0.5 - half, 0.5 + half])

    def _targets(self, y: npt.ArrayLike) -> Array:
        """Checked targets, one number per row."""
        targets = np.asarray(y, dtype=np.float64)
        if targets.shape != (self.n_rows,):
            raise ValueError(f"y must hold one number for each of {self.n_rows} rows")
        if np.isnan(targets).any():
            raise ValueError("y must not hold NaN")
        return targets
