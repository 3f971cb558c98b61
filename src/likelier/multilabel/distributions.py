"""What the components of a mixture may be made of: conjugate laws in natural parameters.

A law describes a row of independent columns given its component. What is known about the
parameters of ``K`` components is an array ``eta`` of natural parameters, ``(P, K, d)``; rows add
statistics of the same shape, so ``eta = eta_0 + sum_i r_ik t(x_i)`` whatever the law. A value
that is NaN is unknown, adds nothing and says nothing.
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
class Law(ABC):
    """Independent columns of one kind.

    ``prior`` holds the natural parameters before any row, ``(P, d)``, the same for every
    component. Costs: rows x columns x components for statistics and for log densities.
    """

    name: ClassVar[str]
    prior: Array

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.prior.shape[1])

    @abstractmethod
    def stats(self, X: Matrix, R: Array) -> Array:
        """Statistics of rows that belong to component ``k`` with weight ``R[:, k]``."""

    @abstractmethod
    def expected_log(self, eta: Array, X: Matrix) -> Array:
        """``E log p(x_i | component k)`` under the law of the parameters, ``(n, K)``."""

    @abstractmethod
    def divergence(self, eta: Array) -> float:
        """KL divergence of the parameters' law from the prior, over all components."""

    @abstractmethod
    def log_partition(self, eta: Array) -> Array:
        """Log normaliser of the parameters' law, ``(K,)``, up to a constant.

        Its growth from the prior is the evidence of the rows behind ``eta``, up to what is the
        same for all components.
        """

    @abstractmethod
    def mean(self, eta: Array) -> Array:
        """Expected value of every column per component, ``(K, d)``."""


@dataclass(frozen=True)
class BernoulliLaw(Law):
    """Columns that are 0 or 1; probabilities with a Beta law. ``eta``: the two counts."""

    name = "bernoulli"

    def stats(self, X: Matrix, R: Array) -> Array:
        if isinstance(X, np.ndarray) and np.isnan(X).any():
            known = np.isfinite(X)
            ones = R.T @ np.where(known, X, 0.0)
            return np.stack([ones, R.T @ known - ones])
        ones = product(R, X)
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
class MultinomialLaw(Law):
    """Rows of counts; one distribution over all columns with a Dirichlet law. ``eta``: counts.

    The multinomial coefficient of a row is the same for every component and left out.
    """

    name = "multinomial"

    def stats(self, X: Matrix, R: Array) -> Array:
        return product(R, known_or_zero(X))[None]

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
class GaussianLaw(Law):
    """Real columns; mean and precision with a Normal-Gamma law.

    ``mu ~ N(m, 1/(kappa lambda))``, ``lambda ~ Gamma(a, b)``; ``eta`` holds the natural
    parameters ``(kappa, kappa m, 2a, 2b + kappa m^2)``, which may be blended.
    """

    name = "gaussian"

    def stats(self, X: Matrix, R: Array) -> Array:
        count = np.broadcast_to(R.sum(axis=0)[:, None], (R.shape[1], self.n_columns))
        return np.stack([count, product(R, X), count, product(R, squared(X))])

    def expected_log(self, eta: Array, X: Matrix) -> Array:
        kappa, m, a, b = self._usual(eta)
        rate = a / b
        linear = squared(X) @ (-0.5 * rate).T + X @ (rate * m).T
        rest = digamma(a) - np.log(b) - LOG_2PI - rate * m * m - 1.0 / kappa
        return np.asarray(linear + 0.5 * rest.sum(axis=1))

    def divergence(self, eta: Array) -> float:
        kappa, m, a, b = self._usual(eta)
        kappa0, m0, a0, b0 = self._usual(self.prior[:, None])
        rate = a / b
        gamma_part = a * np.log(b) - a0 * np.log(b0) - gammaln(a) + gammaln(a0)
        gamma_part += (a - a0) * (digamma(a) - np.log(b)) - (b - b0) * rate
        normal_part = 0.5 * (np.log(kappa / kappa0) - 1.0)
        normal_part = normal_part + 0.5 * kappa0 * (rate * (m - m0) ** 2 + 1.0 / kappa)
        return float((gamma_part + normal_part).sum())

    def log_partition(self, eta: Array) -> Array:
        kappa, _, a, b = self._usual(eta)
        return np.asarray((gammaln(a) - a * np.log(b) - 0.5 * np.log(kappa)).sum(axis=1))

    def mean(self, eta: Array) -> Array:
        return np.asarray(eta[1] / eta[0])

    @staticmethod
    def _usual(eta: Array) -> tuple[Array, Array, Array, Array]:
        """``kappa, m, a, b`` of natural parameters."""
        kappa, m = eta[0], eta[1] / eta[0]
        b = 0.5 * (eta[3] - kappa * m * m)
        # rounding must not make a variance vanish: the prior's part of b never does
        return kappa, m, 0.5 * eta[2], np.maximum(b, 1e-12 * np.maximum(eta[3], 1e-300))


LAWS: dict[str, Any] = {law.name: law for law in (BernoulliLaw, GaussianLaw, MultinomialLaw)}


def feature_prior(name: str, X: Matrix) -> Law:
    """Law of features with a weak prior: as much as one row that is like all others.

    Parameters
    ----------
    name : {"bernoulli", "gaussian", "multinomial"}
        Kind of the columns.
    X : matrix
        Rows, of which only the columns' means and variances are used.
    """
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    if name == "gaussian":
        spread = np.asarray(squared(X).mean(axis=0), dtype=np.float64).ravel() - mean**2
        spread = np.maximum(spread, 1e-3 * max(float(spread.mean()), 1e-12))
        ones = np.ones_like(mean)
        return GaussianLaw(np.stack([ones, mean, 2.0 * ones, 2.0 * spread + mean**2]))
    if name == "bernoulli":
        share = np.clip(mean, 1e-3, 1.0 - 1e-3)
        return BernoulliLaw(np.stack([share, 1.0 - share]))
    share = (mean + 1e-3 * mean.mean() + 1e-12) / max(float(mean.sum()), 1e-12)
    return MultinomialLaw((0.1 * len(mean) * share)[None])


def label_prior(name: str, Y: Array, weight: Array) -> Law:
    """Law of labels whose prior weighs as much as one row with the labels' frequencies."""
    known = np.isfinite(Y)
    share = (weight @ np.where(known, Y, 0.0) + 0.5) / (weight @ known + 1.0)
    if name == "bernoulli":
        return BernoulliLaw(np.stack([share, 1.0 - share]))
    return MultinomialLaw((share / share.sum() * len(share) * 0.1)[None])


def guess_law(X: Matrix) -> str:
    """Kind of features: presence, counts (or other amounts in sparse rows), or numbers."""
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


def product(R: Array, X: Matrix) -> Array:
    """``R^T X``, dense."""
    return np.asarray((X.T @ R).T, dtype=np.float64)


def squared(X: Matrix) -> Matrix:
    """Squares of all values."""
    return X * X if isinstance(X, np.ndarray) else X.multiply(X).tocsr()


def known_or_zero(X: Matrix) -> Matrix:
    """Rows with zeros for unknown values."""
    return np.nan_to_num(X, nan=0.0) if isinstance(X, np.ndarray) else X
