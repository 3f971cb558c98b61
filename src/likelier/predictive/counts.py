"""Distributions of counts: mixtures of Poisson laws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp, pdtr, xlog1py, xlogy

from likelier.base import Array
from likelier.predictive.mixture import average, component_array, log, mixture_weights
from likelier.predictive.numbers import NumberPredictive, smallest

MAX_RATE = 1e150  # whose square is finite
WHOLE = 2.0**53  # floating point numbers beyond are all whole, and some whole numbers are missing
SERIES = 64.0  # from which on three terms of Stirling's series are exact to rounding


def _log_poisson(k: Array, rate: Array) -> Array:
    """Log probability of whole numbers; for large rates in the form of Loader (2000)."""
    few = xlogy(k, rate) - rate - gammaln(k + 1.0)  # loses digits where both are large and close
    r, m = np.maximum(rate, SERIES), np.maximum(k, SERIES)
    with np.errstate(over="ignore"):
        apart = (m - r) / r
        deviance = r * (xlog1py(1.0 + apart, apart) - apart)
        series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * m**2)) / m**2) / m
        many = -deviance - series - 0.5 * np.log(2.0 * np.pi * m)
    return np.asarray(np.where((rate < SERIES) | (k < SERIES), few, many))


def _count(number: Array) -> Array:
    """Count of this number among the whole floating point numbers: itself up to `WHOLE`."""
    beyond = np.maximum(number - int(WHOLE), 0) + np.float64(WHOLE).view(np.int64)
    return np.where(number <= WHOLE, number, beyond.view(np.float64))


def _number(count: Array) -> Array:
    """Inverse of `_count`."""
    beyond = np.maximum(count, WHOLE).view(np.int64) - np.float64(WHOLE).view(np.int64)
    return np.minimum(count, WHOLE).astype(np.int64) + beyond


@dataclass(frozen=True, eq=False)
class Counts(NumberPredictive):
    """Mixture of Poisson laws of the counts 0, 1, 2, ...

    ``log_density`` is the log probability; quantiles are the smallest count whose distribution
    function is at least the level, so that an interval may hold more than its coverage.

    Parameters
    ----------
    rate : array of shape (n,) or (n, M)
        Mean of each component.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier.predictive import Counts
    >>> Counts(np.array([0.1, 4.0])).interval(0.9)
    array([[0., 1.],
           [1., 8.]])
    """

    rate: Array

    def __post_init__(self) -> None:
        rate = component_array(self.rate, "rate", 2)
        if not ((rate >= 0.0) & (rate <= MAX_RATE)).all():
            raise ValueError(
                f"rate must lie between 0 and {MAX_RATE:g} (of a fitted model: values of X are too "
                "far from those of the fit)"
            )
        self._set(rate=rate, weights=mixture_weights(self.weights, *rate.shape))

    @property
    def discrete(self) -> bool:
        return True

    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log probability of one count per row; minus infinity of what is no count."""
        k = self._targets(y)[:, np.newaxis]
        count = (k >= 0.0) & (k == np.floor(k)) & np.isfinite(k)
        parts = np.where(count, _log_poisson(np.where(count, k, 0.0), self.rate), -np.inf)
        return np.asarray(logsumexp(log(self.weights) + parts, axis=1))

    def cdf(self, y: npt.ArrayLike) -> Array:
        """Probability that the count is at most ``y``, one number per row."""
        k = np.floor(self._targets(y))[:, np.newaxis]
        return average(self.weights, np.where(k < 0.0, 0.0, pdtr(np.maximum(k, 0.0), self.rate)))

    def _component_moments(self) -> tuple[Array, Array]:
        return self.rate, self.rate

    def _quantile(self, alpha: float) -> Array:
        # Chernoff's bounds of both tails, which hold for every component
        left, right = -np.log(alpha), -np.log1p(-alpha)
        low = self.rate - np.sqrt(2.0 * self.rate * left)
        high = self.rate + np.sqrt(2.0 * self.rate * right) + right
        return smallest(
            lambda k: self.cdf(k) >= alpha,
            _number(np.maximum(np.floor(low.min(axis=1)) - 2.0, -1.0)) - 1,
            _number(np.ceil(high.max(axis=1)) + 1.0) + 1,
            _count,
        )
