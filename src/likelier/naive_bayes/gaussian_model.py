"""Gaussian naive Bayes: Gaussian features, or Student-t in the posterior predictive.

Plug-in: class means and population variances, the variances increased by ``var_smoothing``
times the largest variance of a feature over all rows. Bayesian: mean and variance of every
feature and class have the conjugate prior ``mu | v ~ N(m0, v)``, ``v ~ scaled inverse chi^2``
with one degree of freedom and scale ``v0``, where ``m0`` and ``v0`` are the weighted mean and
variance over all rows: the prior weighs as much as one row. The predictive is Student-t.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import digamma, gammaln, polygamma

from likelier.base import Array, Batch, Matrix
from likelier.files.declared import check_array
from likelier.loops.rows import as_rows
from likelier.naive_bayes.loops.moments import (
    dense_moments,
    dense_moments_missing,
    gaussian_log_density,
    sparse_squares,
    sparse_sums,
    student_log_density,
)
from likelier.naive_bayes.model import (
    ClassDistributions,
    ClassStatistics,
    NaiveBayesModel,
    codes_of,
    scatter_rows,
    weights_of,
)

TINY = float(np.finfo(np.float64).tiny)
FEW_DIGITS = TINY / float(np.finfo(np.float64).eps)  # smaller variances lose digits
NO_TABLE = np.empty((0, 0))


@dataclass(frozen=True)
class Moments:
    """Weight, mean and sum of squared deviations of every column of every group of rows.

    ``count`` has shape (groups, 1), or (groups, n_features) once values were missing.
    """

    count: Array
    mean: Array
    ssd: Array

    def __add__(self, other: Moments) -> Moments:
        """Moments of both sets of rows, by the rule of Chan, Golub and LeVeque."""
        count = self.count + other.count
        fraction = np.divide(other.count, count, out=np.zeros(count.shape), where=count > 0.0)
        deviation = other.mean - self.mean
        mean = self.mean + fraction * deviation
        # an empty group takes the other mean exactly
        mean = np.where(self.count == 0.0, other.mean, mean)
        ssd = self.ssd + other.ssd + self.count * fraction * deviation**2
        return Moments(count, mean, ssd)

    def __sub__(self, other: Moments) -> Moments:
        """Moments without rows that were added before; the inverse of addition."""
        count = np.maximum(self.count - other.count, 0.0)
        fraction = np.divide(other.count, count, out=np.zeros(count.shape), where=count > 0.0)
        deviation = self.mean - other.mean
        mean = np.where(count > 0.0, self.mean + fraction * deviation, 0.0)
        ssd = self.ssd - other.ssd - fraction * self.count * deviation**2
        return Moments(count, mean, np.where(count > 0.0, np.maximum(ssd, 0.0), 0.0))

    def variance(self) -> Array:
        """Population variance; zero for an empty group."""
        return np.divide(self.ssd, self.count, out=np.zeros(self.ssd.shape), where=self.count > 0.0)

    def pooled(self) -> Moments:
        """Moments of all groups together."""
        count = self.count.sum(axis=0, keepdims=True)
        fraction = np.divide(self.count, count, out=np.zeros(self.count.shape), where=count > 0.0)
        # relative to the mean of one group, so that a constant column has variance zero
        largest = np.argmax(np.broadcast_to(self.count, self.mean.shape), axis=0)
        first = np.take_along_axis(self.mean, largest[None], axis=0)
        mean = first + (fraction * (self.mean - first)).sum(axis=0, keepdims=True)
        between = (self.count * (self.mean - mean) ** 2).sum(axis=0, keepdims=True)
        return Moments(count, mean, self.ssd.sum(axis=0, keepdims=True) + between)


@dataclass(frozen=True)
class GaussianStats(ClassStatistics):
    """Weighted moments of every class, and unweighted moments of all rows."""

    class_count: Array
    count: Array
    mean: Array
    ssd: Array
    row_count: Array
    row_mean: Array
    row_ssd: Array

    @classmethod
    def of(cls, class_count: Array, classes: Moments, rows: Moments) -> Self:
        """Return the statistics with these moments."""
        return cls(
            class_count, classes.count, classes.mean, classes.ssd, rows.count, rows.mean, rows.ssd
        )

    @property
    def classes(self) -> Moments:
        """Moments of the classes."""
        return Moments(self.count, self.mean, self.ssd)

    @property
    def rows(self) -> Moments:
        """Unweighted moments of all rows, the reference of smoothing."""
        return Moments(self.row_count, self.row_mean, self.row_ssd)

    def overall(self) -> tuple[Array, Array]:
        """Weighted mean and variance over all rows; 0 and 1 for a feature without values."""
        pooled = self.classes.pooled()
        known = pooled.count > 0.0
        return np.where(known, pooled.mean, 0.0), np.where(known, pooled.variance(), 1.0)

    def __add__(self, other: Self) -> Self:
        return self.of(
            self.class_count + other.class_count,
            self.classes + other.classes,
            self.rows + other.rows,
        )

    def __sub__(self, other: Self) -> Self:
        left = np.maximum(self.class_count - other.class_count, 0.0)
        return self.of(left, self.classes - other.classes, self.rows - other.rows)

    def reindex(self, positions: Array, n_classes: int) -> Self:
        arrays = (self.class_count, self.count, self.mean, self.ssd)
        total, *moments = (scatter_rows(array, positions, n_classes) for array in arrays)
        return self.of(total, Moments(*moments), self.rows)


def class_moments(X: Matrix, codes: Array, weight: Array, n_classes: int) -> tuple[Array, Moments]:
    """Weight of every class and its moments. Cost: one visit to every stored value (CSR: two)."""
    shape = (n_classes, int(X.shape[1]))
    find = _sparse_moments if sparse.issparse(X) else _dense_moments
    with np.errstate(over="ignore", invalid="ignore"):
        total, found = find(X, codes, weight, shape)
    if not (np.isfinite(found.mean).all() and np.isfinite(found.ssd).all()):
        wrong = ~(np.isfinite(found.mean) & np.isfinite(found.ssd)).all(axis=0)
        raise ValueError(
            f"Input X contains infinity, or values whose squares are, in column "
            f"{int(np.argmax(wrong))}; only NaN, for missing values, is allowed"
        )
    return total, found


def _dense_moments(
    X: Matrix, codes: Array, weight: Array, shape: tuple[int, int]
) -> tuple[Array, Moments]:
    pivot, sums, squares = np.zeros((3, *shape))
    total = np.zeros(shape[0])
    data, _, _, d = as_rows(X)
    dense_moments(data, d, codes, weight, pivot, total, sums, squares)
    count = total[:, None]
    if np.isnan(sums).any():  # missing values: counts per column
        sums, squares, count = np.zeros((3, *shape))
        dense_moments_missing(data, d, codes, weight, pivot, count, sums, squares)
        pivot = np.where(count > 0.0, pivot, 0.0)
    deviation = np.divide(sums, count, out=np.zeros(shape), where=count > 0.0)
    return total, Moments(count, pivot + deviation, np.maximum(squares - deviation * sums, 0.0))


def _sparse_moments(
    X: Any, codes: Array, weight: Array, shape: tuple[int, int]
) -> tuple[Array, Moments]:
    data, indices, indptr, _ = as_rows(X)
    order = np.argsort(codes, kind="stable")  # by class, for cache locality
    total = np.bincount(codes, weights=weight if len(weight) else None, minlength=shape[0])
    total = total.astype(np.float64)
    hits, sums, missing = np.zeros(shape), np.zeros(shape), NO_TABLE
    sparse_sums(data, indices, indptr, order, codes, weight, missing, hits, sums)
    count = total[:, None]
    if np.isnan(sums).any():
        hits, sums, missing = np.zeros((3, *shape))
        sparse_sums(data, indices, indptr, order, codes, weight, missing, hits, sums)
        count = np.maximum(count - missing, 0.0)
    mean = np.divide(sums, count, out=np.zeros(shape), where=count > 0.0)
    ssd = np.maximum(count - hits, 0.0) * mean**2  # of implicit zeros
    sparse_squares(data, indices, indptr, order, codes, weight, mean, ssd)
    return total, Moments(count, mean, ssd)


@dataclass(frozen=True)
class GaussianModel(NaiveBayesModel):
    """Independent Gaussian features in every class.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    var_smoothing : float
        Fraction of the largest variance of a feature that is added to all variances.
    bayesian : bool
        Posterior predictive (Student-t) instead of plug-in estimates.
    """

    n_classes: int
    var_smoothing: float = 1e-9
    bayesian: bool = False

    def stats(self, batch: Batch) -> GaussianStats:
        """Moments of a batch. Cost: rows x features, or the stored values of a CSR matrix."""
        batch = batch.compact()
        codes, weight = codes_of(batch), weights_of(batch)
        total, classes = class_moments(batch.X, codes, weight, self.n_classes)
        if len(weight) == 0:
            return GaussianStats.of(total, classes, classes.pooled())
        _, rows = class_moments(batch.X, np.zeros(len(codes), dtype=np.intp), weight[:0], 1)
        return GaussianStats.of(total, classes, rows)

    def epsilon(self, stats: GaussianStats) -> float:
        """Constant added to every variance, relative to the variance of all rows."""
        return float(self.var_smoothing * stats.rows.variance().max())

    def check_varied(self, stats: GaussianStats) -> None:
        """Raise if all features vary so little that their squares underflow.

        A single feature of usual scale suffices, since smoothing raises the other variances.
        """
        largest = stats.rows.variance().max()
        if largest >= FEW_DIGITS:
            return
        known = np.broadcast_to(stats.count, stats.mean.shape) > 0.0
        low, high = (np.where(known, stats.mean, limit) for limit in (np.inf, -np.inf))
        if largest > 0.0 or (low.min(axis=0) < high.max(axis=0)).any():  # not merely constant
            raise ValueError(
                f"X is too small: the largest variance of a column is {largest:.2g}, too small for "
                "full double precision; rescale X, for instance with StandardScaler"
            )

    def estimates(self, stats: GaussianStats) -> tuple[Array, Array]:
        """Means and smoothed variances of the classes.

        A feature without values in a class has the weighted mean and variance of all rows; one
        without any values is standard Gaussian in all classes, and so has no influence.
        """
        theta, variance = stats.mean, stats.classes.variance()
        if stats.count.shape[1] > 1:
            unseen = (stats.count == 0.0) & (stats.class_count[:, None] > 0.0)
            overall = stats.overall()
            theta = np.where(unseen, overall[0], theta)
            variance = np.where(unseen, overall[1], variance)
        return theta, variance + self.epsilon(stats)

    def distributions(self, stats: GaussianStats) -> GaussianDistributions | StudentDistributions:
        """Gaussian distributions, or Student-t ones if ``bayesian``."""
        if not self.bayesian:
            return GaussianDistributions(*self.estimates(stats))
        kappa, df, loc, scale2 = self._posterior(stats)
        return StudentDistributions(loc, scale2 * (1.0 + 1.0 / kappa), df)

    def _posterior(self, stats: GaussianStats) -> tuple[Array, Array, Array, Array]:
        """``kappa, df, m, s2``: ``mu | v ~ N(m, v / kappa)``, ``v ~ df s2 / chi^2_df``."""
        n = np.broadcast_to(stats.count, stats.mean.shape)
        m0, v0 = stats.overall()
        v0 = v0 + self.epsilon(stats)
        kappa = 1.0 + n
        deviation = stats.mean - m0
        scale2 = (v0 + stats.ssd + n / kappa * deviation**2) / (1.0 + n)
        return kappa, 1.0 + n, m0 + n / kappa * deviation, scale2

    def draw_distributions(
        self, stats: GaussianStats, rng: np.random.Generator
    ) -> GaussianDistributions:
        """Gaussian distributions with means and variances drawn from their posterior."""
        kappa, df, loc, scale2 = self._posterior(stats)
        variance = scale2 * df / rng.chisquare(df)
        mean = loc + np.sqrt(variance / kappa) * rng.standard_normal(loc.shape)
        return GaussianDistributions(mean, variance)


@dataclass(frozen=True)
class GaussianDistributions(ClassDistributions):
    """Independent Gaussians: ``mean`` and ``variance`` of shape (n_classes, n_features)."""

    mean: Array
    variance: Array

    def check(self, n_features: int, n_classes: int) -> None:
        check_array("theta_", self.mean, (n_classes, n_features))
        check_array("var_", self.variance, (n_classes, n_features), low=0.0)

    @property
    def n_classes(self) -> int:
        return len(self.mean)

    def log_density(self, X: Matrix) -> Array:
        """Log density of every row under every class. Cost: rows x features x classes."""
        variance = np.maximum(self.variance, TINY)  # a point mass as a narrow Gaussian
        half_log = 0.5 * np.log(2.0 * np.pi * variance)
        out = np.empty((X.shape[0], self.n_classes))
        gaussian_log_density(
            *as_rows(X), np.ascontiguousarray(self.mean), 1.0 / variance, half_log,
            -half_log.sum(axis=1), out,
        )  # fmt: skip
        return out

    def feature_scores(self) -> tuple[Array, Array]:
        variance = np.maximum(self.variance, TINY)
        return -0.5 * np.log(2.0 * np.pi * np.e * variance), np.full(variance.shape, 0.5)

    def sample(self, codes: Array, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((len(codes), self.mean.shape[1]))
        return np.asarray(self.mean[codes] + np.sqrt(self.variance)[codes] * noise)


@dataclass(frozen=True)
class StudentDistributions(ClassDistributions):
    """Independent Student-t features: location, squared scale and degrees of freedom."""

    loc: Array
    scale2: Array
    df: Array

    def check(self, n_features: int, n_classes: int) -> None:
        check_array("location", self.loc, (n_classes, n_features))
        check_array("squared scale", self.scale2, (n_classes, n_features), low=0.0)
        check_array("degrees of freedom", self.df, (n_classes, n_features), low=TINY)

    @property
    def n_classes(self) -> int:
        return len(self.loc)

    def _squares(self) -> tuple[Array, Array]:
        """Positive squared scales, and the log density at the location."""
        df, scale2 = self.df, np.maximum(self.scale2, TINY)
        norm = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * np.log(np.pi * df * scale2)
        return scale2, norm

    def log_density(self, X: Matrix) -> Array:
        """Log density of every row under every class. Cost: rows x features x classes."""
        scale2, norm = self._squares()
        out = np.empty((X.shape[0], self.n_classes))
        student_log_density(
            *as_rows(X),
            self.loc,
            1.0 / (self.df * scale2),
            np.ascontiguousarray(self.df),
            norm,
            out,
        )
        return out

    def feature_scores(self) -> tuple[Array, Array]:
        # moments of the logarithm of 1 / (1 + t^2 / df), which has a Beta distribution
        half, more = 0.5 * self.df, 0.5 * (self.df + 1.0)
        mean = self._squares()[1] - more * (digamma(more) - digamma(half))
        return mean, more**2 * (polygamma(1, half) - polygamma(1, more))

    def sample(self, codes: Array, rng: np.random.Generator) -> Array:
        return np.asarray(
            self.loc[codes] + np.sqrt(self.scale2)[codes] * rng.standard_t(self.df[codes])
        )
