"""One pass with frozen Polya-Gamma means: additive statistics, and the ridge solve they make.

With every ``omega_i`` at its prior mean 1/4 the posterior of one-vs-rest logistic regression is
``w_k = P^-1 Q_k`` with ``P = Sigma0^-1 + 1/4 sum x x^T`` and ``Q_k = sum (1[y = k] - 1/2) x``.
Both follow from the weight, mean and scatter of the rows and the weight and mean of every class,
which add up over any blocks in any order. The prior is no part of the sums: it enters once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_solve, cholesky

from likelier.base import Array, Batch, Matrix, Model

FROZEN = 0.25  # E omega of PG(1, 0)
INTERCEPT_PRECISION = 0.01  # of the prior of an intercept: a standard deviation of 10
SCORE_VARIANCE = 25.0  # that the automatic prior gives the score of an ordinary row
# Share of a mean square below which a variance is rounding: of a difference of two sums, and of
# squares of values less their mean, which keep their digits however far from zero a column is.
CONSTANT, CENTRED_CONSTANT = 1e-12, 1e-22


@dataclass(frozen=True)
class FrozenSums:
    """Weight, mean and scatter of rows; weight and mean per class. Adding merges.

    The scatter is about the mean, so columns far from zero lose no digits.
    """

    weight: float
    mean: Array  # (d,)
    scatter: Array  # (d, d), sum of w (x - mean) (x - mean)^T
    class_weight: Array  # (K,)
    class_mean: Array  # (K, d)

    def __add__(self, other: FrozenSums) -> FrozenSums:
        """Sums over the rows of both, which know the same classes."""
        total = self.weight + other.weight
        if total == 0.0:
            return self
        apart = other.mean - self.mean
        share = other.weight / total
        scatter = self.scatter + other.scatter
        scatter += (self.weight * share) * np.outer(apart, apart)
        of_class = self.class_weight + other.class_weight
        part = np.divide(
            other.class_weight, of_class, out=np.zeros_like(of_class), where=of_class > 0.0
        )
        return FrozenSums(
            total,
            self.mean + share * apart,
            scatter,
            of_class,
            self.class_mean + part[:, None] * (other.class_mean - self.class_mean),
        )

    def spread(self, places: Array, n_classes: int) -> FrozenSums:
        """The same sums among more classes; ``places`` are the numbers of the known ones."""
        weight = np.zeros(n_classes)
        mean = np.zeros((n_classes, len(self.mean)))
        weight[places], mean[places] = self.class_weight, self.class_mean
        return replace(self, class_weight=weight, class_mean=mean)

    def faded(self, factor: float) -> FrozenSums:
        """The same rows, each with its weight times ``factor``."""
        return replace(
            self,
            weight=self.weight * factor,
            scatter=self.scatter * factor,
            class_weight=self.class_weight * factor,
        )

    def to_arrays(self) -> dict[str, Any]:
        """As plain arrays, for saving."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(frozen=True)
class FrozenModel(Model):
    """Statistics of a block of rows, whose ``y`` are class numbers; cost rows x features^2."""

    has_stats: ClassVar[bool] = True
    n_classes: int

    def stats(self, batch: Batch) -> FrozenSums:
        """Additive statistics of a batch."""
        batch = batch.compact()
        X = dense_rows(batch.X).astype(np.float64, copy=False)
        codes = np.asarray(batch.y, dtype=np.intp)
        weight = np.ones(len(codes)) if batch.weight is None else np.asarray(batch.weight)
        total = float(weight.sum())
        mean = weight @ X / total
        centred = X - mean
        rooted = centred * np.sqrt(weight)[:, None]
        of_class = np.bincount(codes, weights=weight, minlength=self.n_classes)
        members = np.zeros((self.n_classes, len(codes)))
        members[codes, np.arange(len(codes))] = weight
        sums = members @ centred
        seen = of_class > 0.0
        class_mean = np.zeros_like(sums)
        class_mean[seen] = mean + sums[seen] / of_class[seen, None]
        return FrozenSums(total, mean, rooted.T @ rooted, of_class, class_mean)


@dataclass(frozen=True)
class Weights:
    """Gaussian weights of every class over ``((x - centre) / scale, 1)``, with one covariance.

    ``root`` is the lower Cholesky factor of the precision, row and column ``j`` multiplied by
    ``units[j]``: the variance of a score is ``|root^-1 (units * z)|^2``.
    """

    mean: Array  # (d or d + 1, K)
    root: Array
    units: Array
    centre: Array
    scale: Array
    fit_intercept: bool

    def raw(self) -> tuple[Array, Array]:
        """Coefficients (K, d) and intercepts (K,) in the units of the rows."""
        d = len(self.scale)
        coef = (self.mean[:d] / self.scale[:, None]).T
        intercept = self.mean[d] if self.fit_intercept else np.zeros(self.mean.shape[1])
        return np.ascontiguousarray(coef), np.asarray(intercept - coef @ self.centre)


def frozen_weights(sums: FrozenSums, precision: float | None, fit_intercept: bool) -> Weights:
    """Posterior of all classes from the sums: one Cholesky factor, cost features^3 / 3."""
    W = max(sums.weight, 1e-300)
    square = np.diag(sums.scatter) / W + sums.mean**2
    variance = np.diag(sums.scatter) / W if fit_intercept else square
    scale = column_units(variance, square)
    centre = sums.mean if fit_intercept else np.zeros_like(sums.mean)
    scatter = sums.scatter
    if not fit_intercept:
        scatter = scatter + sums.weight * np.outer(sums.mean, sums.mean)
    P = FROZEN * scatter / np.outer(scale, scale)
    n_k = sums.class_weight
    Q = n_k * ((sums.class_mean - centre) / scale).T
    Q -= 0.5 * Q.sum(axis=1, keepdims=True)  # a class that is new has seen every row as negative
    if fit_intercept:  # about the mean, the intercept is independent of everything else
        P = np.pad(P, (0, 1))
        P[-1, -1] = FROZEN * sums.weight
        Q = np.vstack([Q, n_k - 0.5 * sums.weight])
    mean, root, units = solve_posterior(P, Q, prior_diagonal(np.ones(len(scale)), precision,
                                                            fit_intercept))  # fmt: skip
    return Weights(mean, root, units, centre, scale, fit_intercept)


def prior_diagonal(variance: Array, precision: float | None, fit_intercept: bool) -> Array:
    """Prior precisions for columns of this variance: ``precision`` per standardised column.

    None gives the score of an ordinary row the prior variance `SCORE_VARIANCE`, or one per
    column where there are fewer columns than that.
    """
    if precision is None:
        precision = max(1.0, len(variance) / SCORE_VARIANCE)
    pad = np.full(int(fit_intercept), INTERCEPT_PRECISION)
    return np.concatenate([precision * variance, pad])


def solve_posterior(P: Array, Q: Array, prior: Array) -> tuple[Array, Array, Array]:
    """Mean ``(P + prior)^-1 Q``, and the factor of the precision in units of its diagonal.

    Rounding of single precision rows may cost the matrix its definiteness in directions that
    only the prior knows; those get as little more precision as is needed.
    """
    A = P + np.diag(prior)
    units = 1.0 / np.sqrt(np.diag(A))
    A *= units[:, None]
    A *= units
    extra = 0.0
    while True:
        try:
            root = cholesky(A, lower=True, check_finite=False)
            break
        except np.linalg.LinAlgError:
            more = max(1e-9, 10.0 * extra)
            A[np.diag_indices_from(A)] += more - extra
            extra = more
    mean = units[:, None] * cho_solve((root, True), units[:, None] * Q, check_finite=False)
    return mean, root, units


def known_spread(variance: Array, square: Array) -> Array:
    """Variances, and one where a column does not vary."""
    return np.where(variance > np.maximum(CONSTANT * square, 1e-300), variance, 1.0)


def column_units(variance: Array, square: Array) -> Array:
    """Standard deviations from squares about the mean.

    The size of a column that does not vary: nothing depends on its unit, but for rounding.
    """
    varies = variance > np.maximum(CENTRED_CONSTANT * square, 1e-300)
    return np.sqrt(np.where(varies, variance, np.where(square > 1e-300, square, 1.0)))


def dense_rows(X: Matrix) -> Array:
    """Rows of a block as a dense array: a product of columns needs them all."""
    return X if isinstance(X, np.ndarray) else np.asarray(X.toarray())
