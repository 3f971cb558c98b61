"""Conjugate distributions of mixture components in natural parameters.

A distribution describes a row of independent columns given its component. The posterior over the
parameters of ``K`` components is an array ``eta`` of natural parameters, ``(P, K, d)``; rows add
statistics of the same shape, so ``eta = eta_0 + sum_i r_ik t(x_i)`` for every distribution. NaN
values are unknown and contribute nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import betaln, digamma, gammaln

from likelier.base import Array, Matrix

LOG_2PI = float(np.log(2.0 * np.pi))


@dataclass(frozen=True)
class ColumnDistribution(ABC):
    """Independent columns of one kind.

    ``prior`` holds the prior natural parameters, ``(P, d)``, the same for every component. Costs:
    rows x columns x components for statistics and for log densities.
    """

    name: ClassVar[str]
    prior: Array

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.prior.shape[1])

    @abstractmethod
    def stats(self, X: Matrix, R: Array) -> Array:
        """Statistics of rows with responsibilities (times weights) ``R[:, k]``."""

    @abstractmethod
    def expected_log(self, eta: Array, X: Matrix) -> Array:
        """``E log p(x_i | component k)`` over the posterior of the parameters, ``(n, K)``."""

    @abstractmethod
    def divergence(self, eta: Array) -> float:
        """KL divergence of the parameters' posterior from the prior, over all components."""

    @abstractmethod
    def log_partition(self, eta: Array) -> Array:
        """Log normaliser of the parameters' posterior, ``(K,)``, up to a constant.

        Its difference from that of the prior is the log evidence of the rows behind ``eta``, up to
        terms that are the same for all components.
        """

    @abstractmethod
    def mean(self, eta: Array) -> Array:
        """Expected value of every column per component, ``(K, d)``."""


@dataclass(frozen=True)
class BernoulliDistribution(ColumnDistribution):
    """Binary columns with Beta posteriors. ``eta``: the two counts."""

    name = "bernoulli"

    def stats(self, X: Matrix, R: Array) -> Array:
        if isinstance(X, np.ndarray) and np.isnan(X).any():
            known = np.isfinite(X)
            ones = R.T @ np.where(known, X, 0.0)
            return np.stack([ones, R.T @ known - ones])
        ones = weighted_sums(R, X)
        return np.stack([ones, R.sum(axis=0)[:, None] - ones])

    def expected_log(self, eta: Array, X: Matrix) -> Array:
        both = digamma(eta.sum(axis=0))
        yes, no = digamma(eta[0]) - both, digamma(eta[1]) - both
        if isinstance(X, np.ndarray) and np.isnan(X).any():
            known = np.isfinite(X)
            return np.asarray(np.where(known, X, 0.0) @ (yes - no).T + known @ no.T)
        return np.asarray(X @ (yes - no).T + no.sum(axis=1))

    def divergence(self, eta: Array) -> float:
        return float(beta_divergence(eta[0], eta[1], *self.prior[:, None]).sum())

    def log_partition(self, eta: Array) -> Array:
        return np.asarray(betaln(eta[0], eta[1]).sum(axis=1))

    def mean(self, eta: Array) -> Array:
        return np.asarray(eta[0] / eta.sum(axis=0))


@dataclass(frozen=True)
class MultinomialDistribution(ColumnDistribution):
    """Rows of counts over all columns, with a Dirichlet posterior. ``eta``: counts.

    The multinomial coefficient of a row is the same for every component and left out.
    """

    name = "multinomial"

    def stats(self, X: Matrix, R: Array) -> Array:
        return weighted_sums(R, known_or_zero(X))[None]

    def expected_log(self, eta: Array, X: Matrix) -> Array:
        table = digamma(eta[0]) - digamma(eta[0].sum(axis=1, keepdims=True))
        return np.asarray(known_or_zero(X) @ table.T)

    def divergence(self, eta: Array) -> float:
        counts, before = eta[0], self.prior
        total = counts.sum(axis=1, keepdims=True)
        inside = (counts - before) * (digamma(counts) - digamma(total))
        inside += gammaln(before) - gammaln(counts)
        outside = gammaln(total[:, 0]) - gammaln(before.sum())
        return float(inside.sum() + outside.sum())

    def log_partition(self, eta: Array) -> Array:
        return np.asarray(gammaln(eta[0]).sum(axis=1) - gammaln(eta[0].sum(axis=1)))

    def mean(self, eta: Array) -> Array:
        return np.asarray(eta[0] / eta[0].sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class GaussianDistribution(ColumnDistribution):
    """Real columns with Normal-Gamma posteriors of mean and precision.

    ``mu ~ N(m, 1/(kappa lambda))``, ``lambda ~ Gamma(a, b)``; ``eta`` holds the natural
    parameters ``(kappa, kappa m, 2a, 2b + kappa m^2)``, which may be interpolated.
    """

    name = "gaussian"

    def stats(self, X: Matrix, R: Array) -> Array:
        count = np.broadcast_to(R.sum(axis=0)[:, None], (R.shape[1], self.n_columns))
        return np.stack([count, weighted_sums(R, X), count, weighted_sums(R, squared(X))])

    def expected_log(self, eta: Array, X: Matrix) -> Array:
        kappa, m, a, b = self._standard_parameters(eta)
        rate = a / b
        linear = squared(X) @ (-0.5 * rate).T + X @ (rate * m).T
        rest = digamma(a) - np.log(b) - LOG_2PI - rate * m * m - 1.0 / kappa
        return np.asarray(linear + 0.5 * rest.sum(axis=1))

    def divergence(self, eta: Array) -> float:
        kappa, m, a, b = self._standard_parameters(eta)
        kappa0, m0, a0, b0 = self._standard_parameters(self.prior[:, None])
        rate = a / b
        gamma_part = a * np.log(b) - a0 * np.log(b0) - gammaln(a) + gammaln(a0)
        gamma_part += (a - a0) * (digamma(a) - np.log(b)) - (b - b0) * rate
        normal_part = 0.5 * (np.log(kappa / kappa0) - 1.0)
        normal_part = normal_part + 0.5 * kappa0 * (rate * (m - m0) ** 2 + 1.0 / kappa)
        return float((gamma_part + normal_part).sum())

    def log_partition(self, eta: Array) -> Array:
        kappa, _, a, b = self._standard_parameters(eta)
        return np.asarray((gammaln(a) - a * np.log(b) - 0.5 * np.log(kappa)).sum(axis=1))

    def mean(self, eta: Array) -> Array:
        return np.asarray(eta[1] / eta[0])

    @staticmethod
    def _standard_parameters(eta: Array) -> tuple[Array, Array, Array, Array]:
        """``kappa, m, a, b`` of natural parameters."""
        kappa, m = eta[0], eta[1] / eta[0]
        b = 0.5 * (eta[3] - kappa * m * m)
        # rounding must not make the variance vanish; the prior keeps b positive
        return kappa, m, 0.5 * eta[2], np.maximum(b, 1e-12 * np.maximum(eta[3], 1e-300))


DISTRIBUTIONS: dict[str, Any] = {
    kind.name: kind
    for kind in (BernoulliDistribution, GaussianDistribution, MultinomialDistribution)
}


def feature_prior(name: str, X: Matrix) -> ColumnDistribution:
    """Feature distribution with a weak prior, worth one average row.

    Parameters
    ----------
    name : {"bernoulli", "gaussian", "multinomial"}
        Kind of the columns.
    X : matrix
        Rows, of which only the columns' means and variances are used.
    """
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    if name == "gaussian":
        variance = np.asarray(squared(X).mean(axis=0), dtype=np.float64).ravel() - mean**2
        variance = np.maximum(variance, 1e-3 * max(float(variance.mean()), 1e-12))
        ones = np.ones_like(mean)
        return GaussianDistribution(np.stack([ones, mean, 2.0 * ones, 2.0 * variance + mean**2]))
    if name == "bernoulli":
        frequency = np.clip(mean, 1e-3, 1.0 - 1e-3)
        return BernoulliDistribution(np.stack([frequency, 1.0 - frequency]))
    frequency = (mean + 1e-3 * mean.mean() + 1e-12) / max(float(mean.sum()), 1e-12)
    return MultinomialDistribution((0.1 * len(mean) * frequency)[None])


def label_prior(name: str, Y: Array, weight: Array) -> ColumnDistribution:
    """Label distribution with a prior worth one row with the labels' frequencies."""
    known = np.isfinite(Y)
    frequency = (weight @ np.where(known, Y, 0.0) + 0.5) / (weight @ known + 1.0)
    if name == "bernoulli":
        return BernoulliDistribution(np.stack([frequency, 1.0 - frequency]))
    return MultinomialDistribution((frequency / frequency.sum() * len(frequency) * 0.1)[None])


def infer_distribution(X: Matrix) -> str:
    """Kind of the features: binary, counts (or non-negative sparse values), or real."""
    values = X if isinstance(X, np.ndarray) else X.data
    if ((values == 0) | (values == 1)).all():
        return "bernoulli"
    negative = bool((values < 0).any())
    whole = not negative and bool((values == np.floor(values)).all())
    return "multinomial" if not negative and (whole or sparse.issparse(X)) else "gaussian"


def beta_divergence(a: Array, b: Array, a0: Array, b0: Array) -> Array:
    """KL divergence of Beta(a, b) from Beta(a0, b0)."""
    out = betaln(a0, b0) - betaln(a, b) + (a - a0) * digamma(a) + (b - b0) * digamma(b)
    return np.asarray(out + (a0 + b0 - a - b) * digamma(a + b))


def weighted_sums(R: Array, X: Matrix) -> Array:
    """``R^T X``, dense."""
    return np.asarray((X.T @ R).T, dtype=np.float64)


def squared(X: Matrix) -> Matrix:
    """Squares of all values."""
    return X * X if isinstance(X, np.ndarray) else X.multiply(X).tocsr()


def known_or_zero(X: Matrix) -> Matrix:
    """Rows with unknown values replaced by zero."""
    return np.nan_to_num(X, nan=0.0) if isinstance(X, np.ndarray) else X
