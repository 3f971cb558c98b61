"""Distributions of a real number: mixtures of Gaussian or Student-t laws."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, logsumexp, ndtr, ndtri, stdtr, stdtrit

from likelier.base import Array
from likelier.predictive.mixture import average, component_array, log, mixture_weights
from likelier.predictive.numbers import NumberPredictive

_MAX_STEPS = 200  # bisection alone needs about 60 from a bracket of ordinary size
_TOLERANCE = 1e-13  # of a quantile, relative to its size and the smallest scale


def _like(value: Array, name: str, loc: Array) -> Array:
    """Broadcast to the shape of ``loc``."""
    try:
        return np.broadcast_to(value, loc.shape)
    except ValueError:
        raise ValueError(f"{name} has shape {value.shape}, but loc has {loc.shape}") from None


@dataclass(frozen=True, eq=False)
class LocationScale(NumberPredictive):
    """Mixture of a location-scale family.

    A scale of zero is a point mass: its quantiles are its location, its density is infinite.
    """

    loc: Array
    scale: Array

    def __post_init__(self) -> None:
        loc = component_array(self.loc, "loc", 2)
        scale = _like(component_array(self.scale, "scale", 2), "scale", loc)
        if not (scale >= 0.0).all():
            raise ValueError("scale must be >= 0")
        self._set(loc=loc, scale=scale, weights=mixture_weights(self.weights, *loc.shape))

    @abstractmethod
    def _standard_quantile(self, alpha: float) -> Any:
        """Quantile of the standard member of the family, broadcast over ``(n, M)``."""

    @abstractmethod
    def _standard_cdf(self, z: Array) -> Array:
        """Distribution function of the standard member."""

    @abstractmethod
    def _standard_log_density(self, z: Array) -> Array:
        """Log density of the standard member."""

    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log density at one number per row."""
        z = self._standardised(y)
        with np.errstate(over="ignore", invalid="ignore"):
            log_parts = self._standard_log_density(z) - log(self.scale)
        # z is infinite away from a point mass, where the density is zero
        log_parts = np.where(np.isinf(z), -np.inf, log_parts)
        return np.asarray(logsumexp(log(self.weights) + log_parts, axis=1))

    def cdf(self, y: npt.ArrayLike) -> Array:
        """Probability that the target is at most ``y``, one number per row."""
        z = self._standardised(y)
        z = np.where((z == 0.0) & (self.scale == 0.0), np.inf, z)  # at a point mass
        return average(self.weights, self._standard_cdf(z))

    def _quantile(self, alpha: float) -> Array:
        """Exact for one component; else Newton steps in a bracket that bisection shrinks."""
        each = self.loc + self.scale * self._standard_quantile(alpha)
        # every component has its quantile in the bracket, hence so has the mixture
        low, high, result = each.min(axis=1), each.max(axis=1), average(self.weights, each)
        rows = np.flatnonzero(low < high)  # whose quantile is still to be found
        moved = high - low
        for _ in range(_MAX_STEPS):
            if not len(rows):
                break
            part, x = self._take(rows), result[rows]
            gap = part.cdf(x) - alpha
            below = gap < 0.0
            low[rows], high[rows] = np.where(below, x, low[rows]), np.where(below, high[rows], x)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                newton = x - gap / np.exp(part.log_density(x))
            # a Newton step must stay inside and be at most half the last one; else bisect
            good = (newton >= low[rows]) & (newton <= high[rows])
            good &= abs(newton - x) <= 0.5 * moved[rows]
            result[rows] = np.where(good, newton, 0.5 * low[rows] + 0.5 * high[rows])
            moved[rows] = abs(result[rows] - x)
            rows = rows[moved[rows] > _TOLERANCE * (abs(x) + part.scale.min(axis=1))]
        return result

    def _take(self, rows: Array) -> Self:
        return replace(self, **{item.name: getattr(self, item.name)[rows] for item in fields(self)})

    def _standardised(self, y: npt.ArrayLike) -> Array:
        """Distance of one target per row from every location, in units of its scale."""
        away = self._targets(y)[:, np.newaxis] - self.loc
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.where(away == 0.0, 0.0, away / self.scale)


@dataclass(frozen=True, eq=False)
class Gaussian(LocationScale):
    """Mixture of Gaussians: ``loc`` the means, ``scale`` the standard deviations.

    Parameters
    ----------
    loc, scale : arrays of shape (n,) or (n, M)
        Mean and standard deviation of each component; a scale may be one number for all.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier.predictive import Gaussian
    >>> Gaussian(np.zeros(1), np.ones(1)).interval(0.9).round(3)
    array([[-1.645,  1.645]])
    """

    def _standard_quantile(self, alpha: float) -> Any:
        return ndtri(alpha)

    def _standard_cdf(self, z: Array) -> Array:
        return np.asarray(ndtr(z))

    def _standard_log_density(self, z: Array) -> Array:
        return np.asarray(-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi))

    def _component_moments(self) -> tuple[Array, Array]:
        return self.loc, self.scale**2


@dataclass(frozen=True, eq=False)
class StudentT(LocationScale):
    """Mixture of Student-t laws with ``df`` degrees of freedom.

    Parameters
    ----------
    loc, scale : arrays of shape (n,) or (n, M)
        Location and scale of each component; a scale may be one number for all.
    df : float or array of shape (M,), (n, 1) or (n, M)
        Degrees of freedom, 4 by default. The mean is NaN for ``df <= 1``, the variance infinite for
        ``df <= 2``.
    """

    df: Array | float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        df = np.asarray(self.df, dtype=np.float64)
        if not (np.isfinite(df) & (df > 0.0)).all():
            raise ValueError("df must be finite and > 0")
        self._set(df=_like(df, "df", self.loc))

    def _standard_quantile(self, alpha: float) -> Any:
        return stdtrit(self.df, alpha)

    def _standard_cdf(self, z: Array) -> Array:
        return np.asarray(stdtr(self.df, z))

    def _standard_log_density(self, z: Array) -> Array:
        df = self.df
        constant = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * np.log(np.pi * df)
        return np.asarray(constant - 0.5 * (df + 1.0) * np.log1p(z**2 / df))

    def _component_moments(self) -> tuple[Array, Array]:
        df, scale = self.df, self.scale
        mean = np.where(df > 1.0, self.loc, np.nan)
        heavy = np.where(df > 1.0, np.inf, np.nan)
        factor = np.where(df > 2.0, df / np.maximum(df - 2.0, np.finfo(float).tiny), heavy)
        with np.errstate(invalid="ignore"):  # a point mass has no variance whatever its tails
            variance = np.where(scale > 0.0, scale**2 * factor, 0.0)
        return mean, variance
