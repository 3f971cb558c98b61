"""Calibration: from scores to probabilities, from residuals to intervals, and diagnostics.

A map from scores to probabilities is a small frozen record of numbers, fitted by penalised
maximum likelihood on scores the model was not trained on. Two of them never contradict the
prediction: `SignPreserving` (one score, the sign decides) and `Temperature` (one score per
class, the largest decides). `Platt` is the classic map, which may.

In a fit, weights count rows: weight 2 is the row twice. Weight 0 is absence everywhere.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

from likelier.base import Array, check_share
from likelier.thresholds import best_thresholds as best_thresholds

Weight = ArrayLike | None

_MAX_LOGIT = 700.0  # beyond it the probability is 0 or 1 in double precision
_NUDGE = 2.0**-53  # the smallest step from one half that its complement takes too
# Widths of Gaussian priors: of log(slope_pos / slope_neg), the mean log of the slopes, log power.
# Chosen on held-out hinge scores: a hundred rows gain by them, thousands hardly feel them.
_RATIO_WIDTH, _LEVEL_WIDTH, _POWER_WIDTH = 1.0, 4.0, 0.5
_MEASURED = np.array([[1.0, -1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
_WIDTHS = np.array([[_RATIO_WIDTH], [_LEVEL_WIDTH], [_POWER_WIDTH]])
_PRECISION = (_MEASURED / _WIDTHS).T @ (_MEASURED / _WIDTHS)
_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Calibration(ABC):
    """A map from scores to probabilities; all its fields are finite numbers."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not math.isfinite(value):
                raise ValueError(f"{item.name} of {type(self).__name__} must be finite: {value!r}")

    @abstractmethod
    def probabilities(self, scores: ArrayLike) -> Array:
        """Return the probability of class 1 of every score, or of every class of a row."""

    def to_arrays(self) -> dict[str, Array]:
        """Plain form: one array with one number for every field."""
        return {item.name: np.array([getattr(self, item.name)]) for item in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Return the map whose plain form this is."""
        names = {item.name for item in fields(cls)}
        if set(arrays) != names:
            raise ValueError(f"arrays of {cls.__name__} must be {sorted(names)}: {sorted(arrays)}")
        return cls(**{name: float(np.asarray(arrays[name]).item()) for name in names})


@dataclass(frozen=True)
class SignPreserving(Calibration):
    """``logit p = sign(f) slope (|f| / scale)^power``, one slope for each sign.

    Monotone, and on the side of one half that the sign says, in floating point too: a positive
    score has p > 1/2, however small it is.

    Attributes
    ----------
    slope_pos, slope_neg : float
        Slopes for positive and negative scores, >= 0.
    power : float
        Below 1 large scores are less sure than small ones say; above 1 crowded ones are spread.
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
    """``logit p = slope f / scale + intercept``: one half need not be at score zero."""

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
    sharpness, scale : float
        Inverse of the temperature, >= 0, and typical distance of the two largest scores, > 0.
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
            p = np.asarray(softmax(self.sharpness * _behind(f, self.scale), axis=1))
        # where rounding made an earlier class level with the largest, give back the order
        rows, top = np.arange(len(f)), f.argmax(axis=1)
        lost = p.argmax(axis=1) != top
        p[rows[lost], top[lost]] = np.nextafter(p[rows[lost], top[lost]], 1.0)
        return p


def restore(arrays: Mapping[str, ArrayLike]) -> Calibration:
    """Return the map, of whichever kind, whose plain form `Calibration.to_arrays` gave."""
    for kind in (SignPreserving, Platt, Temperature):
        if set(arrays) == {item.name for item in fields(kind)}:
            return kind.from_arrays(arrays)
    raise ValueError(f"arrays named {sorted(arrays)} are no calibration")


# -- fitting ------------------------------------------------------------------------------


def fit_sign_preserving(scores: ArrayLike, y: ArrayLike, weight: Weight = None) -> SignPreserving:
    """Fit `SignPreserving` to scores and their labels (-1 and 1, or 0 and 1).

    Penalised maximum likelihood with Platt's smoothed targets, so that separated classes,
    one class only, or scores of one sign only give a finite answer. Rescaling all scores
    changes no probability. Costs about ten passes over the scores.
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
        pull = w * (expit(logit) - target) * np.where(abs(logit) < _MAX_LOGIT, logit, 0.0)
        pulls = [pull @ positive, pull @ ~positive, math.exp(theta[2]) * (pull @ size)]
        return float(value), np.array(pulls) + _PRECISION @ theta

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
        pull = w * (expit(logit) - target)
        weak = theta / _LEVEL_WIDTH**2 * 1e-3  # decides only what constant scores leave open
        value = w @ (np.logaddexp(0.0, logit) - target * logit) + 0.5 * theta @ weak
        return float(value), np.array([pull @ z, pull.sum()]) + weak

    slope, intercept = _minimise(objective, np.zeros(2), [(None, None)] * 2, w.sum())
    return Platt(slope, intercept, scale)


def fit_temperature(scores: ArrayLike, codes: ArrayLike, weight: Weight = None) -> Temperature:
    """Fit `Temperature` to scores of shape (n, K) and class numbers ``0..K-1``.

    Targets are smoothed: of N rows, each is taken to be of another class, whichever, with
    probability ``1 / (N + 2)``. That is one row of doubt in all for the one parameter; a row of
    doubt for every class and every other, as in Platt's rule, made ten classes far too unsure.
    """
    f = _finite(scores, "scores", 2)
    k = _codes(codes, *f.shape)
    w = _weights(weight, len(f))
    top = np.partition(f, -2, axis=1)[:, -2:]
    with np.errstate(over="ignore"):
        scale = _typical_size(top[:, 1] - top[:, 0], w)
    z = np.maximum(_behind(f, scale), -1e4)
    rest = 1.0 / ((w.sum() + 2.0) * (f.shape[1] - 1))
    own = z[np.arange(len(z)), k]
    aim = (1.0 - f.shape[1] * rest) * own + rest * z.sum(axis=1)  # targets times scores

    def objective(theta: Array) -> tuple[float, Array]:
        sharpness, weak = math.exp(theta[0]), theta / _LEVEL_WIDTH**2
        value = w @ (logsumexp(sharpness * z, axis=1) - sharpness * aim)
        pull = sharpness * (w @ ((softmax(sharpness * z, axis=1) * z).sum(axis=1) - aim))
        return float(value + 0.5 * theta @ weak), pull + weak

    (level,) = _minimise(objective, np.zeros(1), [(-12.0, 12.0)], w.sum())
    return Temperature(math.exp(level), scale)


def _minimise(
    objective: Callable[[Array], tuple[float, Array]], start: Array, bounds: Any, total: float
) -> list[float]:
    """Minimise a smooth function of few parameters, given with its gradient."""

    def mean_objective(theta: Array) -> tuple[float, Array]:
        value, gradient = objective(theta)
        return value / total, gradient / total

    words: Any = {"ftol": 1e-12, "gtol": 1e-8, "maxiter": 500}
    found = minimize(mean_objective, start, jac=True, bounds=bounds, options=words)
    return [float(value) for value in found.x]


# -- intervals and diagnostics ---------------------------------------------------------------


def conformal_quantile(residuals: ArrayLike, coverage: float, weight: Weight = None) -> float:
    """Bound that a further exchangeable residual stays below with probability ``coverage``.

    The ``ceil((n + 1) coverage)``-th smallest of n residuals; with weights, the smallest that
    holds a share ``coverage`` of all weight and that of a new row, taken as the largest seen.
    Infinity says that there are too few residuals for this coverage.

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
    held = np.cumsum(w[order])
    # less a rounding: 0.55 * 20 is a little above 11
    needed = coverage * (held[-1] + w.max()) * (1.0 - 1e-12)
    place = int(np.searchsorted(held, needed))
    return float(r[order[place]]) if place < len(r) else math.inf


@dataclass(frozen=True)
class Estimate:
    """A mean over rows and its standard error (NaN for a single row)."""

    value: float
    stderr: float


def estimate_mean(values: ArrayLike, weight: Weight = None) -> Estimate:
    """Weighted mean and its standard error; rows of weight zero do not count."""
    v = _finite(values, "values", 1)
    w = _weights(weight, len(v))
    v, w = v[w > 0.0], w[w > 0.0]
    mean, n = float(w @ v / w.sum()), len(v)
    spread = math.sqrt(float((w * (v - mean)) @ (w * (v - mean)))) / float(w.sum())
    return Estimate(mean, spread * math.sqrt(n / (n - 1)) if n > 1 else math.nan)


def brier(probabilities: ArrayLike, codes: ArrayLike, weight: Weight = None) -> Estimate:
    """Brier score: ``(p - y)^2`` for two classes, summed over classes for more."""
    p, k = _predictions(probabilities, codes)
    squares = (p - np.eye(p.shape[1])[k]) ** 2
    return estimate_mean(squares.sum(axis=1) * (0.5 if p.shape[1] == 2 else 1.0), weight)


def log_loss(probabilities: ArrayLike, codes: ArrayLike, weight: Weight = None) -> Estimate:
    """Minus log probability of the true class, in nats; clipped as scikit-learn does."""
    p, k = _predictions(probabilities, codes)
    given = np.clip(p[np.arange(len(p)), k], _SMALLEST_PROBABILITY, 1.0)
    return estimate_mean(-np.log(given), weight)


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
        raise ValueError(f"{name} must be finite; it holds NaN or infinity")
    return array


def _weights(weight: Weight, n: int) -> Array:
    if n == 0:
        raise ValueError("at least one row is needed, got none")
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
        raise ValueError(f"codes must hold one class number for each of {n} rows: {k.shape}")
    if n_classes < 2 or not ((k >= 0) & (k < n_classes) & (k == np.floor(k))).all():
        raise ValueError(f"codes must be class numbers 0..{n_classes - 1} of two or more classes")
    return k.astype(np.intp)


def _predictions(probabilities: ArrayLike, codes: ArrayLike) -> tuple[Array, Array]:
    """Probabilities of shape (n, K), from those of class 1 if need be, and class numbers."""
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
        raise ValueError(f"y must hold one label for each of {len(f)} scores: {labels.shape}")
    if not (np.isin(labels, [-1, 1]).all() or np.isin(labels, [0, 1]).all()):
        raise ValueError("y must hold the labels -1 and 1, or 0 and 1")
    positive = labels > 0
    n_pos, n_neg = float(w @ positive), float(w @ ~positive)
    return f, np.where(positive, (n_pos + 1.0) / (n_pos + 2.0), 1.0 / (n_neg + 2.0)), w


def _weighted_median(values: Array, w: Array) -> float:
    order = np.argsort(values, kind="stable")
    held = np.cumsum(w[order])
    return float(values[order[np.searchsorted(held, 0.5 * held[-1])]])


def _typical_size(size: Array, w: Array) -> float:
    """Weighted median of the sizes that are positive and finite; one if there is none."""
    used = (size > 0.0) & (size < math.inf) & (w > 0.0)
    return _weighted_median(size[used], w[used]) if used.any() else 1.0


def _behind(f: Array, scale: float) -> Array:
    """How far every score is behind the largest of its row, in units of ``scale``."""
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum((f - f.max(axis=1, keepdims=True)) / scale, -1e300))
