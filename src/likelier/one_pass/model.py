"""One pass with frozen Polya-Gamma means: additive statistics and a ridge solve.

With every ``omega_i`` at its prior mean 1/4 the posterior of one-vs-rest logistic regression is
``w_k = P^-1 Q_k`` with ``P = Sigma0^-1 + 1/4 sum x x^T`` and ``Q_k = sum (1[y = k] - 1/2) x``.
Both follow from the weight, mean and scatter of the rows and the weight and mean of every class,
which add up over any blocks in any order. The prior is not part of the sums: it enters once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_solve, cholesky

from likelier.base import Array, Batch, Matrix, Model

FROZEN = 0.25  # E omega of PG(1, 0)
INTERCEPT_PRECISION = 0.01  # of the prior of an intercept: a standard deviation of 10
SCORE_VARIANCE = 25.0  # prior variance of the score of a typical row with the automatic prior
# Fraction of the mean square below which a variance is a rounding error: of a difference of two
# sums, and of centred squares, which stay accurate however far from zero a column is.
CONSTANT, CENTRED_CONSTANT = 1e-12, 1e-22


@dataclass(frozen=True)
class FrozenSums:
    """Weight, mean and scatter of rows; weight and mean per class. Adding merges.

    The scatter is about the mean, so columns far from zero lose no precision.
    """

    weight: float
    mean: Array  # (d,)
    scatter: Array  # (d, d), sum of w (x - mean) (x - mean)^T
    class_weight: Array  # (K,)
    class_mean: Array  # (K, d)

    def __add__(self, other: FrozenSums) -> FrozenSums:
        """Sums over the rows of both; the classes must be the same."""
        total = self.weight + other.weight
        if total == 0.0:
            return self
        difference = other.mean - self.mean
        fraction = other.weight / total
        scatter = self.scatter + other.scatter
        scatter += (self.weight * fraction) * np.outer(difference, difference)
        class_weight = self.class_weight + other.class_weight
        class_fraction = np.divide(
            other.class_weight,
            class_weight,
            out=np.zeros_like(class_weight),
            where=class_weight > 0.0,
        )
        return FrozenSums(
            total,
            self.mean + fraction * difference,
            scatter,
            class_weight,
            self.class_mean + class_fraction[:, None] * (other.class_mean - self.class_mean),
        )

    def expand_classes(self, positions: Array, n_classes: int) -> FrozenSums:
        """The same sums among more classes; ``positions`` are the indices of the present ones."""
        weight = np.zeros(n_classes)
        mean = np.zeros((n_classes, len(self.mean)))
        weight[positions], mean[positions] = self.class_weight, self.class_mean
        return replace(self, class_weight=weight, class_mean=mean)

    def discounted(self, factor: float) -> FrozenSums:
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
    """Statistics of a block of rows, whose ``y`` are class codes; cost rows x features^2."""

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
        class_weight = np.bincount(codes, weights=weight, minlength=self.n_classes)
        members = np.zeros((self.n_classes, len(codes)))
        members[codes, np.arange(len(codes))] = weight
        sums = members @ centred
        seen = class_weight > 0.0
        class_mean = np.zeros_like(sums)
        class_mean[seen] = mean + sums[seen] / class_weight[seen, None]
        return FrozenSums(total, mean, rooted.T @ rooted, class_weight, class_mean)


@dataclass(frozen=True)
class Weights:
    """Gaussian weights of every class over ``((x - centre) / scale, 1)``, with one covariance.

    ``root`` is the lower Cholesky factor of the precision, row and column ``j`` multiplied by
    ``scaling[j]``: the variance of a score is ``|root^-1 (scaling * z)|^2``.
    """

    mean: Array  # (d or d + 1, K)
    root: Array
    scaling: Array
    centre: Array
    scale: Array
    fit_intercept: bool

    def raw(self) -> tuple[Array, Array]:
        """Coefficients (K, d) and intercepts (K,) in the original feature units."""
        d = len(self.scale)
        coef = (self.mean[:d] / self.scale[:, None]).T
        intercept = self.mean[d] if self.fit_intercept else np.zeros(self.mean.shape[1])
        return np.ascontiguousarray(coef), np.asarray(intercept - coef @ self.centre)


def frozen_weights(sums: FrozenSums, precision: float | None, fit_intercept: bool) -> Weights:
    """Posterior of all classes from the sums: one Cholesky factor, cost features^3 / 3."""
    W = max(sums.weight, 1e-300)
    square = np.diag(sums.scatter) / W + sums.mean**2
    variance = np.diag(sums.scatter) / W if fit_intercept else square
    scale = column_scales(variance, square)
    centre = sums.mean if fit_intercept else np.zeros_like(sums.mean)
    scatter = sums.scatter
    if not fit_intercept:
        scatter = scatter + sums.weight * np.outer(sums.mean, sums.mean)
    P = FROZEN * scatter / np.outer(scale, scale)
    n_k = sums.class_weight
    Q = n_k * ((sums.class_mean - centre) / scale).T
    Q -= 0.5 * Q.sum(axis=1, keepdims=True)  # for a new class, every row is a negative
    if fit_intercept:  # about the mean, the intercept is independent of everything else
        P = np.pad(P, (0, 1))
        P[-1, -1] = FROZEN * sums.weight
        Q = np.vstack([Q, n_k - 0.5 * sums.weight])
    mean, root, scaling = solve_posterior(P, Q, prior_diagonal(np.ones(len(scale)), precision,
                                                            fit_intercept))  # fmt: skip
    return Weights(mean, root, scaling, centre, scale, fit_intercept)


def prior_diagonal(variance: Array, precision: float | None, fit_intercept: bool) -> Array:
    """Prior precisions for columns of this variance: ``precision`` per standardised column.

    None gives the score of a typical row the prior variance `SCORE_VARIANCE`, or one per
    column where there are fewer columns than that.
    """
    if precision is None:
        precision = max(1.0, len(variance) / SCORE_VARIANCE)
    pad = np.full(int(fit_intercept), INTERCEPT_PRECISION)
    return np.concatenate([precision * variance, pad])


def solve_posterior(P: Array, Q: Array, prior: Array) -> tuple[Array, Array, Array]:
    """Mean ``(P + prior)^-1 Q``, and the Cholesky factor of the precision scaled to unit diagonal.

    With rows in single precision, rounding may make the matrix indefinite in directions that only
    the prior determines; the smallest sufficient multiple of the identity is then added.
    """
    A = P + np.diag(prior)
    scaling = 1.0 / np.sqrt(np.diag(A))
    A *= scaling[:, None]
    A *= scaling
    extra = 0.0
    while True:
        try:
            root = cholesky(A, lower=True, check_finite=False)
            break
        except np.linalg.LinAlgError:
            more = max(1e-9, 10.0 * extra)
            A[np.diag_indices_from(A)] += more - extra
            extra = more
    mean = scaling[:, None] * cho_solve((root, True), scaling[:, None] * Q, check_finite=False)
    return mean, root, scaling


def nonzero_variance(variance: Array, square: Array) -> Array:
    """Variances, with one for constant columns."""
    return np.where(variance > np.maximum(CONSTANT * square, 1e-300), variance, 1.0)


def column_scales(variance: Array, square: Array) -> Array:
    """Standard deviations from centred squares.

    A constant column gets its own magnitude, which affects rounding only.
    """
    varies = variance > np.maximum(CENTRED_CONSTANT * square, 1e-300)
    return np.sqrt(np.where(varies, variance, np.where(square > 1e-300, square, 1.0)))


def dense_rows(X: Matrix) -> Array:
    """Rows of a block as a dense array."""
    return X if isinstance(X, np.ndarray) else np.asarray(X.toarray())
