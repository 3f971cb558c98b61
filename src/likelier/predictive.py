"""Predictive: what is known about the target of each row, as a mixture of simple laws.

A posterior turns rows into one weighted mixture per row: of categorical or Bernoulli laws
for classes, of independent Bernoulli laws for sets of labels, of Gaussian or Student-t laws for
numbers. A point estimate is a mixture of one, draws are a mixture with equal weights.
Probabilities, intervals, quantiles, uncertainty and log densities of every estimator are
computed here and nowhere else.

Shapes: ``n`` rows, ``M`` components, ``K`` classes. Component arrays have shape ``(n, M)``
(categorical: ``(n, M, K)``); without the ``M`` axis they are a mixture of one. Weights have
shape ``(M,)``, the same for all rows, or ``(n, M)``; they need not sum to one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, kl_div, logsumexp, ndtr, ndtri, stdtr, stdtrit, xlogy

from likelier.base import Array, Uncertainty, check_share

_MAX_STEPS = 200  # bisection alone needs about 60 from a bracket of ordinary size
_TOLERANCE = 1e-13  # of a quantile, relative to its size and the smallest scale


def _component_array(value: npt.ArrayLike, name: str, ndim: int) -> Array:
    """Return a finite float64 array with a component axis, which a mixture of one may omit."""
    array = np.atleast_1d(np.asarray(value, dtype=np.float64))
    if array.ndim == ndim - 1:
        array = array[:, np.newaxis]
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim - 1} or {ndim} dimensions, got {array.ndim}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite; it holds NaN or infinity (of a fitted model: values of X are "
            "too large; rescale them)"
        )
    return array


def _like(value: Array, name: str, loc: Array) -> Array:
    """Broadcast to the shape of ``loc``."""
    try:
        return np.broadcast_to(value, loc.shape)
    except ValueError:
        raise ValueError(f"{name} has shape {value.shape}, but loc has {loc.shape}") from None


def _mixture_weights(weights: npt.ArrayLike, n: int, n_components: int) -> Array:
    """Return weights of shape ``(n, M)`` whose rows sum to one; a single one stands for all."""
    if n_components == 0:
        raise ValueError("a mixture needs at least one component, got none")
    array = np.atleast_2d(np.asarray(weights, dtype=np.float64))
    if array.shape not in ((1, 1), (1, n_components), (n, n_components)):
        raise ValueError(
            f"weights must have shape ({n_components},) or ({n}, {n_components}), "
            f"got {np.shape(weights)}"
        )
    if not (np.isfinite(array) & (array >= 0.0)).all():
        raise ValueError("weights must be finite and >= 0")
    array = np.broadcast_to(array, (array.shape[0], n_components))
    total = array.sum(axis=1, keepdims=True)
    if not ((total > 0.0) & np.isfinite(total)).all():
        raise ValueError("weights of every row must have a positive, finite sum")
    return np.broadcast_to(array / total, (n, n_components))


def _levels(alpha: npt.ArrayLike, name: str) -> Array:
    levels = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    if levels.ndim != 1 or not ((levels > 0.0) & (levels < 1.0)).all():
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {alpha!r}")
    return levels


def _average(weights: Array, values: Array) -> Array:
    """Weighted sum over components; weight zero stays zero, even of an infinite value."""
    parts = np.multiply(weights, values, where=weights > 0.0, out=np.zeros_like(values))
    return np.asarray(parts.sum(axis=1))


def _log(p: Array) -> Array:
    with np.errstate(divide="ignore"):  # zero has the logarithm minus infinity
        return np.asarray(np.log(p))


@dataclass(frozen=True, eq=False)
class Predictive(ABC):
    """Distribution of the target of each row, a weighted mixture.

    Parameters
    ----------
    weights : array of shape (M,) or (n, M)
        Weights of the components, equal by default.
    """

    weights: Array = field(default_factory=lambda: np.ones(1), kw_only=True)

    @property
    def n_rows(self) -> int:
        """How many rows are predicted."""
        return len(self.weights)

    def _set(self, **arrays: Array) -> None:
        """Keep checked arrays; for ``__post_init__`` only, since a predictive is frozen."""
        for name, array in arrays.items():
            object.__setattr__(self, name, array)

    @abstractmethod
    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log probability (classes) or log density (numbers) of one target per row."""

    @abstractmethod
    def point(self) -> Array:
        """One value for each row: the number of the most probable class, or the mean."""

    @abstractmethod
    def uncertainty(self) -> Uncertainty:
        """Uncertainty of each row: entropies in nats for classes, variances for numbers.

        Aleatoric is the average within the components, epistemic their disagreement.
        """


@dataclass(frozen=True, eq=False)
class ClassPredictive(Predictive):
    """Distribution over classes ``0..K-1``."""

    @abstractmethod
    def _components(self) -> Array:
        """Class probabilities of every component, ``(n, M, K)``."""

    def probabilities(self) -> Array:
        """Probability of each class, ``(n, K)``: the average of probabilities, never of scores."""
        parts = self._components()
        p = parts[:, 0] if parts.shape[1] == 1 else np.einsum("nm,nmk->nk", self.weights, parts)
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    def mode(self) -> Array:
        """Most probable class of each row; the first of several."""
        return np.asarray(self.probabilities().argmax(axis=1))

    def point(self) -> Array:
        """The most probable class."""
        return self.mode()

    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log probability of the class number ``y`` of each row."""
        p = self.probabilities()
        codes = np.asarray(y)
        if codes.shape != p.shape[:1]:
            raise ValueError(f"y must hold one class for each of {len(p)} rows")
        if not ((codes >= 0) & (codes < p.shape[1]) & (codes == np.floor(codes))).all():
            raise ValueError(f"y must hold class numbers 0..{p.shape[1] - 1}")
        return _log(p[np.arange(len(p)), codes.astype(np.intp)])

    def uncertainty(self) -> Uncertainty:
        """Entropy in nats of the mixture, mean entropy of the components, their difference."""
        # the difference is the mean divergence from the mixture; as such never negative
        parts, p = self._components(), self.probabilities()
        aleatoric = -_average(self.weights, xlogy(parts, parts).sum(axis=2))
        aleatoric = np.maximum(aleatoric, 0.0) + 0.0  # no minus zero for a certain row
        apart = np.maximum(kl_div(parts, p[:, np.newaxis]).sum(axis=2), 0.0)
        epistemic = _average(self.weights, apart)
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)


@dataclass(frozen=True, eq=False)
class Categorical(ClassPredictive):
    """Mixture of categorical laws.

    Parameters
    ----------
    probs : array of shape (n, K) or (n, M, K)
        Class probabilities of each component; rows sum to one.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier.predictive import Categorical
    >>> two_draws = Categorical(np.array([[[0.9, 0.1], [0.5, 0.5]]]))
    >>> two_draws.probabilities()
    array([[0.7, 0.3]])
    """

    probs: Array

    def __post_init__(self) -> None:
        probs = _component_array(self.probs, "probs", 3)
        if probs.shape[2] < 1 or not ((probs >= 0.0) & (probs <= 1.0 + 1e-8)).all():
            raise ValueError("probs must hold probabilities between 0 and 1, one per class")
        if not (abs(probs.sum(axis=2) - 1.0) <= 1e-5).all():
            raise ValueError("probs must sum to one over the classes (the last axis)")
        self._set(probs=probs, weights=_mixture_weights(self.weights, *probs.shape[:2]))

    def _components(self) -> Array:
        return self.probs


@dataclass(frozen=True, eq=False)
class Bernoulli(ClassPredictive):
    """Mixture of Bernoulli laws: two classes, given by the probability of class 1.

    Parameters
    ----------
    prob : array of shape (n,) or (n, M)
        Probability of class 1 of each component.
    """

    prob: Array

    def __post_init__(self) -> None:
        prob = _component_array(self.prob, "prob", 2)
        if not ((prob >= 0.0) & (prob <= 1.0)).all():
            raise ValueError("prob must lie between 0 and 1")
        self._set(prob=prob, weights=_mixture_weights(self.weights, *prob.shape))

    def _components(self) -> Array:
        return np.stack([1.0 - self.prob, self.prob], axis=2)


@dataclass(frozen=True, eq=False)
class LabelSets(Predictive):
    """Distribution of the set of labels of each row, each of which may be there or not.

    Labels are independent in a component, so that in a mixture of several they are not.

    Parameters
    ----------
    prob : array of shape (n, L) or (n, M, L)
        Probability of every label in each component.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier.predictive import LabelSets
    >>> both_or_none = LabelSets(np.array([[[0.9, 0.9], [0.1, 0.1]]]))
    >>> both_or_none.probabilities()
    array([[0.5, 0.5]])
    >>> np.exp(both_or_none.log_density([[1, 1]])).round(2)
    array([0.41])
    """

    prob: Array

    def __post_init__(self) -> None:
        prob = _component_array(self.prob, "prob", 3)
        if not ((prob >= 0.0) & (prob <= 1.0)).all():
            raise ValueError("prob must lie between 0 and 1")
        self._set(prob=prob, weights=_mixture_weights(self.weights, *prob.shape[:2]))

    def probabilities(self) -> Array:
        """Probability of each label, ``(n, L)``."""
        if self.prob.shape[1] == 1:
            return self.prob[:, 0]
        return np.asarray(np.minimum(np.einsum("nm,nml->nl", self.weights, self.prob), 1.0))

    def point(self) -> Array:
        """Indicators of the labels that are more probable than not."""
        return np.asarray(self.probabilities() > 0.5, dtype=np.int64)

    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log probability of the labels that are known in each row of ``y``: 0, 1 or NaN."""
        labels = np.asarray(y, dtype=np.float64)
        n, _, n_labels = self.prob.shape
        if labels.shape != (n, n_labels):
            raise ValueError(f"y must hold {n_labels} labels for each of {n} rows")
        known = np.isfinite(labels)
        if not (np.isnan(labels) | (labels == 0.0) | (labels == 1.0)).all():
            raise ValueError("y must hold 0, 1 or NaN (unknown)")
        labels, known = labels[:, np.newaxis], known[:, np.newaxis]
        with np.errstate(divide="ignore"):
            parts = np.where(labels == 1.0, np.log(self.prob), np.log1p(-self.prob))
        each = np.where(known, parts, 0.0).sum(axis=2)
        return np.asarray(logsumexp(_log(self.weights) + each, axis=1))

    def uncertainty(self) -> Uncertainty:
        """Entropy in nats of each label, ``(n, L)``, and its parts as for two classes."""
        n, n_components, n_labels = self.prob.shape
        if not n * n_labels:
            return Uncertainty(*(np.zeros((n, n_labels)) for _ in range(3)))
        prob = np.moveaxis(self.prob, 1, 2).reshape(-1, n_components)
        found = Bernoulli(prob, weights=np.repeat(self.weights, n_labels, axis=0)).uncertainty()
        shape = (n, n_labels)
        return Uncertainty(
            *(part.reshape(shape) for part in (found.total, found.aleatoric, found.epistemic))
        )


@dataclass(frozen=True, eq=False)
class NumberPredictive(Predictive):
    """Distribution of a real number: a mixture of a location-scale family.

    A scale of zero is a point mass: its quantiles are its location, its density is infinite.
    """

    loc: Array
    scale: Array

    def __post_init__(self) -> None:
        loc = _component_array(self.loc, "loc", 2)
        scale = _like(_component_array(self.scale, "scale", 2), "scale", loc)
        if not (scale >= 0.0).all():
            raise ValueError("scale must be >= 0")
        self._set(loc=loc, scale=scale, weights=_mixture_weights(self.weights, *loc.shape))

    @abstractmethod
    def _standard_quantile(self, alpha: float) -> Any:
        """Quantile of the standard member of the family, broadcast over ``(n, M)``."""

    @abstractmethod
    def _standard_cdf(self, z: Array) -> Array:
        """Distribution function of the standard member."""

    @abstractmethod
    def _standard_log_density(self, z: Array) -> Array:
        """Log density of the standard member."""

    @abstractmethod
    def _component_moments(self) -> tuple[Array, Array]:
        """Mean and variance of every component, ``(n, M)``."""

    def mean(self) -> Array:
        """Mean of each row."""
        mean, _ = self._component_moments()
        return _average(self.weights, mean)

    def point(self) -> Array:
        """The mean."""
        return self.mean()

    def std(self) -> Array:
        """Standard deviation of each row: within the components and between them."""
        return np.asarray(np.sqrt(self.uncertainty().total))

    def uncertainty(self) -> Uncertainty:
        """Law of total variance: mean of the variances plus variance of the means."""
        mean, variance = self._component_moments()
        centre = _average(self.weights, mean)
        aleatoric = _average(self.weights, variance)
        epistemic = _average(self.weights, (mean - centre[:, np.newaxis]) ** 2)
        return Uncertainty(aleatoric + epistemic, aleatoric, epistemic)

    def log_density(self, y: npt.ArrayLike) -> Array:
        """Log density at one number per row."""
        z = self._standardised(y)
        with np.errstate(over="ignore", invalid="ignore"):
            log_parts = self._standard_log_density(z) - _log(self.scale)
        # z is infinite away from a point mass, where the density is zero
        log_parts = np.where(np.isinf(z), -np.inf, log_parts)
        return np.asarray(logsumexp(_log(self.weights) + log_parts, axis=1))

    def cdf(self, y: npt.ArrayLike) -> Array:
        """Probability that the target is at most ``y``, one number per row."""
        return _average(self.weights, self._standard_cdf(self._standardised(y)))

    def quantiles(self, alpha: npt.ArrayLike) -> Array:
        """Quantiles of each row, ``(n, len(alpha))``; ``(n,)`` for a single number.

        Exact for a mixture of one; otherwise Newton steps on the mixture's distribution
        function, kept inside a bracket that bisection shrinks whenever they fail to.
        """
        columns = [self._quantile(level) for level in _levels(alpha, "alpha").tolist()]
        return columns[0] if np.ndim(alpha) == 0 else np.stack(columns, axis=1)

    def interval(self, coverage: float = 0.9) -> Array:
        """Central interval that holds the target with probability ``coverage``, ``(n, 2)``."""
        half = 0.5 * check_share("coverage", coverage)
        return self.quantiles([0.5 - half, 0.5 + half])

    def _quantile(self, alpha: float) -> Array:
        each = self.loc + self.scale * self._standard_quantile(alpha)
        # every component has its quantile in the bracket, hence so has the mixture
        low, high, result = each.min(axis=1), each.max(axis=1), _average(self.weights, each)
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
        targets = np.asarray(y, dtype=np.float64)
        if targets.shape != (self.n_rows,):
            raise ValueError(f"y must hold one number for each of {self.n_rows} rows")
        if np.isnan(targets).any():
            raise ValueError("y must not hold NaN")
        away = targets[:, np.newaxis] - self.loc
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.where(away == 0.0, 0.0, away / self.scale)


@dataclass(frozen=True, eq=False)
class Gaussian(NumberPredictive):
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
class StudentT(NumberPredictive):
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
