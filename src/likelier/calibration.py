"""Calibration: maps from scores to probabilities, conformal quantiles, and diagnostics.

A calibration map is a small frozen record of floats, fitted by penalised maximum likelihood to
scores of held-out rows. `SignPreserving` (one score, decided by its sign) and `Temperature`
(one score per class, decided by the largest) always agree with the prediction. `Platt` is the
classic map, which may not.

In a fit, weights are counts: weight 2 is the row twice. Rows of weight 0 are ignored everywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logsumexp, softmax

from likelier.base import Array, check_share
from likelier.thresholds import best_thresholds as best_thresholds

Weight = ArrayLike | None

_MAX_LOGIT = 700.0  # beyond it the probability is 0 or 1 in double precision
_NUDGE = 2.0**-53  # smallest step from one half that is exact for the complement too
# Standard deviations of Gaussian priors: of log(slope_pos / slope_neg), the mean log slope, and log
# power. Chosen on held-out hinge scores; they matter for hundreds of rows, hardly for thousands.
_RATIO_SD, _LEVEL_SD, _POWER_SD = 1.0, 4.0, 0.5
_CONTRASTS = np.array([[1.0, -1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
_SDS = np.array([[_RATIO_SD], [_LEVEL_SD], [_POWER_SD]])
_PRECISION = (_CONTRASTS / _SDS).T @ (_CONTRASTS / _SDS)
_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Calibration(ABC):
    """A map from scores to probabilities; all its fields are finite floats."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not math.isfinite(value):
                raise ValueError(f"{item.name} of {type(self).__name__} must be finite: {value!r}")

    @abstractmethod
    def probabilities(self, scores: ArrayLike) -> Array:
        """Probability of class 1 for every score, or of every class for every row."""

    def to_arrays(self) -> dict[str, Array]:
        """Plain form: an array of length one for every field."""
        return {item.name: np.array([getattr(self, item.name)]) for item in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Inverse of `to_arrays`."""
        names = {item.name for item in fields(cls)}
        if set(arrays) != names:
            raise ValueError(f"arrays of {cls.__name__} must be {sorted(names)}: {sorted(arrays)}")
        return cls(**{name: float(np.asarray(arrays[name]).item()) for name in names})


@dataclass(frozen=True)
class SignPreserving(Calibration):
    """``logit p = sign(f) slope (|f| / scale)^power``, one slope for each sign.

    Monotone, and on the side of one half given by the sign, also in floating point: a positive
    score has p > 1/2, however small it is.

    Attributes
    ----------
    slope_pos, slope_neg : float
        Slopes for positive and negative scores, >= 0.
    power : float
        Exponent, > 0; below 1 it compresses large scores.
    scale : float
        Typical size of a score, > 0.
    """

    slope_pos: float
    slope_neg: float
    power: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.slope_pos >= 0.0 and self.slope_neg >= 0.0):
            raise ValueError("slope_pos and slope_neg must be >= 0")
        if not (self.power > 0.0 and self.scale > 0.0):
            raise ValueError("power and scale must be > 0")

    def probabilities(self, scores: ArrayLike) -> Array:
        """Probability of the positive class of every score."""
        f = _finite(scores, "scores", 1)
        slope = np.where(f > 0.0, self.slope_pos, self.slope_neg)
        with np.errstate(divide="ignore"):
            log_logit = self.power * (np.log(abs(f)) - math.log(self.scale)) + np.log(slope)
        logit = np.exp(np.minimum(log_logit, math.log(_MAX_LOGIT)))
        p = np.asarray(expit(np.copysign(logit, f)))
        p = np.where(f > 0.0, np.maximum(p, 0.5 + _NUDGE), np.minimum(p, 0.5 - _NUDGE))
        return np.where(f == 0.0, 0.5, p)


@dataclass(frozen=True)
class Platt(Calibration):
    """``logit p = slope f / scale + intercept``: the decision boundary may move away from zero."""

    slope: float
    intercept: float
    scale: float = 1.0

    def probabilities(self, scores: ArrayLike) -> Array:
        """Probability of the positive class of every score."""
        f = _finite(scores, "scores", 1)
        with np.errstate(over="ignore"):
            logit = np.clip(f / self.scale, -1e300, 1e300) * self.slope + self.intercept
        return np.asarray(expit(np.clip(logit, -_MAX_LOGIT, _MAX_LOGIT)))


@dataclass(frozen=True)
class Temperature(Calibration):
    """``p = softmax(sharpness f / scale)``: the largest score has the largest probability.

    Attributes
    ----------
    sharpness : float
        Inverse of the temperature, >= 0.
    scale : float
        Typical difference of the two largest scores, > 0.
    """

    sharpness: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.sharpness >= 0.0 and self.scale > 0.0):
            raise ValueError("sharpness must be >= 0 and scale > 0")

    def probabilities(self, scores: ArrayLike) -> Array:
        """Probability of every class of every row."""
        f = _finite(scores, "scores", 2)
        with np.errstate(over="ignore"):
            p = np.asarray(softmax(self.sharpness * _below_largest(f, self.scale), axis=1))
        # break ties between an earlier class and the largest that rounding has made
        rows, top = np.arange(len(f)), f.argmax(axis=1)
        tied = p.argmax(axis=1) != top
        p[rows[tied], top[tied]] = np.nextafter(p[rows[tied], top[tied]], 1.0)
        return p


def restore(arrays: Mapping[str, ArrayLike]) -> Calibration:
    """Calibration map of any type from the plain form of `Calibration.to_arrays`."""
    for kind in (SignPreserving, Platt, Temperature):
        if set(arrays) == {item.name for item in fields(kind)}:
            return kind.from_arrays(arrays)
    raise ValueError(f"arrays must be those of a calibration map, got {sorted(arrays)}")


# -- fitting ------------------------------------------------------------------------------


def fit_sign_preserving(scores: ArrayLike, y: ArrayLike, weight: Weight = None) -> SignPreserving:
    """Fit `SignPreserving` to scores and their labels (-1 and 1, or 0 and 1).

    Penalised maximum likelihood with Platt's smoothed targets, so that the result is finite for
    separable classes, a single class, or scores of one sign. Invariant under rescaling of the
    scores. Costs about ten passes over the scores.
    """
    f, target, w = _binary(scores, y, weight)
    used = (f != 0.0) & (w > 0.0)
    if not used.any():
        return SignPreserving(1.0, 1.0)
    f, target, w = f[used], target[used], w[used]
    scale = _typical_size(abs(f), w)
    positive, sign, size = f > 0.0, np.sign(f), np.log(abs(f)) - math.log(scale)

    def objective(theta: Array) -> tuple[float, Array]:
        """Penalised loss and its gradient in (log slope_pos, log slope_neg, log power)."""
        log_logit = np.where(positive, theta[0], theta[1]) + math.exp(theta[2]) * size
        logit = sign * np.exp(np.minimum(log_logit, math.log(_MAX_LOGIT)))
        value = w @ (np.logaddexp(0.0, logit) - target * logit) + 0.5 * theta @ _PRECISION @ theta
        residual = w * (expit(logit) - target) * np.where(abs(logit) < _MAX_LOGIT, logit, 0.0)
        gradient = [
            residual @ positive,
            residual @ ~positive,
            math.exp(theta[2]) * (residual @ size),
        ]
        return float(value), np.array(gradient) + _PRECISION @ theta

    bounds = [(-12.0, 12.0), (-12.0, 12.0), (math.log(0.05), math.log(64.0))]
    pos, neg, power = np.exp(_minimise(objective, np.zeros(3), bounds, w.sum())).tolist()
    return SignPreserving(pos, neg, power, scale)


def fit_platt(scores: ArrayLike, y: ArrayLike, weight: Weight = None) -> Platt:
    """Fit `Platt` to scores and their labels (-1 and 1, or 0 and 1), with smoothed targets."""
    f, target, w = _binary(scores, y, weight)
    scale = _typical_size(abs(f), w)
    with np.errstate(over="ignore"):
        z = np.clip(f / scale, -1e6, 1e6)

    def objective(theta: Array) -> tuple[float, Array]:
        logit = theta[0] * z + theta[1]
        residual = w * (expit(logit) - target)
        weak = theta / _LEVEL_SD**2 * 1e-3  # matters only for constant scores
        value = w @ (np.logaddexp(0.0, logit) - target * logit) + 0.5 * theta @ weak
        return float(value), np.array([residual @ z, residual.sum()]) + weak

    slope, intercept = _minimise(objective, np.zeros(2), [(None, None)] * 2, w.sum())
    return Platt(slope, intercept, scale)


def fit_temperature(scores: ArrayLike, codes: ArrayLike, weight: Weight = None) -> Temperature:
    """Fit `Temperature` to scores of shape (n, K) and class codes ``0..K-1``.

    Targets are smoothed: with N rows, each belongs to some other class with probability ``1 / (N +
    2)``. In total that is one pseudo-observation for the single parameter; one per class, as in
    Platt's rule, makes ten classes far too uncertain.
    """
    f = _finite(scores, "scores", 2)
    k = _codes(codes, *f.shape)
    w = _weights(weight, len(f))
    top = np.partition(f, -2, axis=1)[:, -2:]
    with np.errstate(over="ignore"):
        scale = _typical_size(top[:, 1] - top[:, 0], w)
    z = np.maximum(_below_largest(f, scale), -1e4)
    smoothing = 1.0 / ((w.sum() + 2.0) * (f.shape[1] - 1))
    own = z[np.arange(len(z)), k]
    target_score = (1.0 - f.shape[1] * smoothing) * own + smoothing * z.sum(axis=1)

    def objective(theta: Array) -> tuple[float, Array]:
        sharpness, weak = math.exp(theta[0]), theta / _LEVEL_SD**2
        value = w @ (logsumexp(sharpness * z, axis=1) - sharpness * target_score)
        residual = sharpness * (
            w @ ((softmax(sharpness * z, axis=1) * z).sum(axis=1) - target_score)
        )
        return float(value + 0.5 * theta @ weak), residual + weak

    (level,) = _minimise(objective, np.zeros(1), [(-12.0, 12.0)], w.sum())
    return Temperature(math.exp(level), scale)


def _minimise(
    objective: Callable[[Array], tuple[float, Array]], start: Array, bounds: Any, total: float
) -> list[float]:
    """Minimise a smooth function of few parameters, with its gradient."""
    from scipy.optimize import minimize  # which predicting does not need

    def mean_objective(theta: Array) -> tuple[float, Array]:
        value, gradient = objective(theta)
        return value / total, gradient / total

    options: Any = {"ftol": 1e-12, "gtol": 1e-8, "maxiter": 500}
    result = minimize(mean_objective, start, jac=True, bounds=bounds, options=options)
    return [float(value) for value in result.x]


# -- intervals and diagnostics ---------------------------------------------------------------


def conformal_quantile(residuals: ArrayLike, coverage: float, weight: Weight = None) -> float:
    """Bound that a new exchangeable residual does not exceed with probability ``coverage``.

    The ``ceil((n + 1) coverage)``-th smallest of n residuals; with weights, the smallest residual
    whose cumulative weight reaches a fraction ``coverage`` of the total, including a new row of the
    largest weight. Infinity if there are too few residuals for this coverage.

    Examples
    --------
    >>> from likelier.calibration import conformal_quantile
    >>> conformal_quantile([0.1, 0.5, 0.2, 0.4], 0.6)
    0.4
    """
    r = _finite(residuals, "residuals", 1)
    coverage = check_share("coverage", coverage)
    w = _weights(weight, len(r))
    order = np.argsort(r, kind="stable")
    cumulative = np.cumsum(w[order])
    # tolerance for rounding: 0.55 * 20 is slightly above 11
    needed = coverage * (cumulative[-1] + w.max()) * (1.0 - 1e-12)
    index = int(np.searchsorted(cumulative, needed))
    return float(r[order[index]]) if index < len(r) else math.inf


@dataclass(frozen=True)
class Estimate:
    """A mean over rows and its standard error (NaN for a single row)."""

    value: float
    stderr: float


def estimate_mean(values: ArrayLike, weight: Weight = None) -> Estimate:
    """Weighted mean and its standard error; rows of weight zero are ignored."""
    v = _finite(values, "values", 1)
    w = _weights(weight, len(v))
    v, w = v[w > 0.0], w[w > 0.0]
    mean, n = float(w @ v / w.sum()), len(v)
    stderr = math.sqrt(float((w * (v - mean)) @ (w * (v - mean)))) / float(w.sum())
    return Estimate(mean, stderr * math.sqrt(n / (n - 1)) if n > 1 else math.nan)


def brier(probabilities: ArrayLike, codes: ArrayLike, weight: Weight = None) -> Estimate:
    """Brier score: ``(p - y)^2`` for two classes, summed over classes for more."""
    p, k = _predictions(probabilities, codes)
    squares = (p - np.eye(p.shape[1])[k]) ** 2
    return estimate_mean(squares.sum(axis=1) * (0.5 if p.shape[1] == 2 else 1.0), weight)


def log_loss(probabilities: ArrayLike, codes: ArrayLike, weight: Weight = None) -> Estimate:
    """Negative log probability of the true class, in nats; clipped as in scikit-learn."""
    p, k = _predictions(probabilities, codes)
    likelihood = np.clip(p[np.arange(len(p)), k], _SMALLEST_PROBABILITY, 1.0)
    return estimate_mean(-np.log(likelihood), weight)


def ece(
    probabilities: ArrayLike, codes: ArrayLike, n_bins: int = 15, weight: Weight = None
) -> float:
    """Expected calibration error of the most probable class, over bins of equal width."""
    p, k = _predictions(probabilities, codes)
    if n_bins < 1:
        raise ValueError(f"n_bins must be >= 1, got {n_bins!r}")
    w = _weights(weight, len(p))
    confidence = p.max(axis=1)
    gap = w * (confidence - (p.argmax(axis=1) == k))
    bins = np.minimum((confidence * n_bins).astype(np.intp), n_bins - 1)
    return float(abs(np.bincount(bins, weights=gap)).sum() / w.sum())


# -- checks ---------------------------------------------------------------------------------


def _finite(values: ArrayLike, name: str, ndim: int) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got {array.ndim}")
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite; it contains NaN or infinity (of a fitted model: values of X "
            "are too large; rescale them)"
        )
    return array


def _weights(weight: Weight, n: int) -> Array:
    if n == 0:
        raise ValueError("at least one row is required, got none")
    if weight is None:
        return np.ones(n)
    w = _finite(weight, "weight", 1)
    if len(w) != n:
        raise ValueError(f"weight must have one entry for each of {n} rows, got {len(w)}")
    if not ((w >= 0.0).all() and 0.0 < w.sum() < math.inf):
        raise ValueError("weight must be >= 0 with a positive, finite sum")
    return w


def _codes(codes: ArrayLike, n: int, n_classes: int) -> Array:
    k = np.asarray(codes)
    if k.shape != (n,):
        raise ValueError(f"codes must have shape ({n},), got {k.shape}")
    if n_classes < 2 or not ((k >= 0) & (k < n_classes) & (k == np.floor(k))).all():
        raise ValueError(f"codes must be integers 0..{n_classes - 1} of at least two classes")
    return k.astype(np.intp)


def _predictions(probabilities: ArrayLike, codes: ArrayLike) -> tuple[Array, Array]:
    """Probabilities of shape (n, K), also if those of class 1 were given, and class codes."""
    p = np.asarray(probabilities, dtype=np.float64)
    p = _finite(np.stack([1.0 - p, p], axis=1) if p.ndim == 1 else p, "probabilities", 2)
    if not ((p >= 0.0) & (p <= 1.0 + 1e-8)).all():
        raise ValueError("probabilities must lie between 0 and 1")
    return p, _codes(codes, *p.shape)


def _binary(scores: ArrayLike, y: ArrayLike, weight: Weight) -> tuple[Array, Array, Array]:
    """Scores, Platt's smoothed targets and weights."""
    f = _finite(scores, "scores", 1)
    w = _weights(weight, len(f))
    labels = np.asarray(y)
    if labels.shape != f.shape:
        raise ValueError(f"y must have the shape of scores, {f.shape}, got {labels.shape}")
    if not (np.isin(labels, [-1, 1]).all() or np.isin(labels, [0, 1]).all()):
        raise ValueError("y must contain only the labels -1 and 1, or 0 and 1")
    positive = labels > 0
    n_pos, n_neg = float(w @ positive), float(w @ ~positive)
    return f, np.where(positive, (n_pos + 1.0) / (n_pos + 2.0), 1.0 / (n_neg + 2.0)), w


def _weighted_median(values: Array, w: Array) -> float:
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(w[order])
    return float(values[order[np.searchsorted(cumulative, 0.5 * cumulative[-1])]])


def _typical_size(size: Array, w: Array) -> float:
    """Weighted median of the positive, finite sizes; one if there are none."""
    used = (size > 0.0) & (size < math.inf) & (w > 0.0)
    return _weighted_median(size[used], w[used]) if used.any() else 1.0


def _below_largest(f: Array, scale: float) -> Array:
    """Difference of every score to the largest of its row, in units of ``scale``."""
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum((f - f.max(axis=1, keepdims=True)) / scale, -1e300))
