"""Multinomial and Bernoulli naive Bayes: term counts, and binary features.

Both scores are linear in the row: ``log p(x | k) = x^T table_k + base_k``. ``alpha`` is a
pseudocount per feature and class: the prior is Dirichlet(alpha), or Beta(alpha, alpha). The
posterior predictive of a row of counts is Dirichlet-multinomial; that of a binary feature is
Bernoulli with the smoothed probability, which is also the plug-in estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Matrix
from likelier.loops.rows import as_rows
from likelier.naive_bayes.distributions import (
    DirichletDistributions,
    LinearDistributions,
    check_binary,
    check_counts,
    has_missing,
    narrow,
    stored_values,
    zero_for_missing,
)
from likelier.naive_bayes.loops.counts import (
    add_counts,
    add_missing,
    log_counts,
    log_odds,
)
from likelier.naive_bayes.model import (
    ClassDistributions,
    ClassStatistics,
    NaiveBayesModel,
    codes_of,
    scatter_rows,
    weights_of,
)

NO_SKIP = np.empty(0, dtype=bool)
NO_TABLE = np.empty((0, 0))


@dataclass(frozen=True)
class CountStats(ClassStatistics):
    """Weight of every class, and weighted counts of its features.

    ``seen`` is the weight of rows with a known value: of shape (n_classes, 1), or (n_classes,
    n_features) once values were missing.
    """

    class_count: Array
    feature_count: Array
    seen: Array

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.class_count + other.class_count,
            self.feature_count + other.feature_count,
            self.seen + other.seen,
        )

    def __sub__(self, other: Self) -> Self:
        return type(self)(
            _without(self.class_count, other.class_count),
            _without(self.feature_count, other.feature_count),
            _without(self.seen, other.seen),
        )

    def reindex(self, positions: Array, n_classes: int) -> Self:
        arrays = (self.class_count, self.feature_count, self.seen)
        return type(self)(*(scatter_rows(array, positions, n_classes) for array in arrays))


def _without(total: Array, part: Array) -> Array:
    """Difference, clipped at zero: fractional weights leave rounding errors."""
    left = total - part
    return np.asarray(np.maximum(left, 0.0, out=left))


def count_rows(
    X: Matrix, codes: Array, weight: Array, n_classes: int, threshold: float | None
) -> CountStats:
    """Sums of values per class, or with a threshold counts of values above it.

    Cost: one visit to every stored value.
    """
    counts = np.zeros((n_classes, int(X.shape[1])))
    # sparse rows class by class keep one row of the table in the cache
    order = np.argsort(codes, kind="stable") if sparse.issparse(X) else np.arange(len(codes))
    level = 0.0 if threshold is None else float(threshold)
    add_counts(*as_rows(X), order, codes, weight, threshold is not None, level, counts)
    total = np.bincount(codes, weights=weight if len(weight) else None, minlength=n_classes)
    total = total.astype(np.float64)
    return CountStats(total, counts, total[:, None])


@dataclass(frozen=True)
class MultinomialModel(NaiveBayesModel):
    """Rows of counts, drawn term by term from the class's distribution over terms.

    The length of a row is conditioned on and carries no information about the class.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    alpha : array of shape (1,) or (n_features,)
        Pseudocount of every term in every class.
    bayesian : bool
        Posterior predictive (Dirichlet-multinomial) instead of plug-in estimates.
    """

    n_classes: int
    alpha: Array
    bayesian: bool = False

    def stats(self, batch: Batch) -> CountStats:
        """Counts of a batch. Cost: one visit to every stored value."""
        batch = batch.compact()
        values = stored_values(batch.X)
        if values.size and not values.min() >= 0.0:  # one pass; the rest is checked in the sums
            check_counts(batch.X)
        return count_rows(batch.X, codes_of(batch), weights_of(batch), self.n_classes, None)

    def log_table(self, stats: CountStats) -> Array:
        """``log p(term | class)`` with one row per term."""
        counts = stats.feature_count
        return log_probabilities(counts, self.alpha, self._totals(counts))

    def _totals(self, counts: Array) -> Array:
        """Sum of counts and pseudocounts of each class."""
        each = counts.shape[1] if len(self.alpha) == 1 else 1
        return np.asarray(counts.sum(axis=1) + each * self.alpha.sum())

    def check_rows(self, X: Matrix) -> None:
        check_counts(X)

    def distributions(self, stats: CountStats) -> LinearDistributions | DirichletDistributions:
        """Multinomial distributions, or Dirichlet-multinomial ones if ``bayesian``."""
        length = self.mean_length(stats)
        if not self.bayesian:
            return self.make_distributions(self.log_table(stats), length)
        return DirichletDistributions(
            self.posterior(stats), self._totals(stats.feature_count), length
        )

    def posterior(self, stats: CountStats) -> Array:
        """Parameters of the Dirichlet posterior."""
        return np.asarray(stats.feature_count + self.alpha)

    def distributions_without(
        self, stats: CountStats, batch: Batch
    ) -> tuple[Array, ClassDistributions, Matrix]:
        """Distributions without the given rows, restricted to terms that occur in them."""
        X, terms = narrow(batch.X)
        part = count_rows(X, codes_of(batch), weights_of(batch), self.n_classes, None)
        counts = _without(stats.feature_count[:, terms], part.feature_count)
        total = self._totals(stats.feature_count) - part.feature_count.sum(axis=1)
        total = np.maximum(total, counts.sum(axis=1))
        alpha = self.alpha if len(self.alpha) == 1 else self.alpha[terms]
        distributions: ClassDistributions
        if self.bayesian:
            distributions = DirichletDistributions(counts + alpha, total, self.mean_length(stats))
        else:
            distributions = self.make_distributions(
                log_probabilities(counts, alpha, total), self.mean_length(stats)
            )
        return _without(stats.class_count, part.class_count), distributions, X

    def draw_distributions(
        self, stats: CountStats, rng: np.random.Generator
    ) -> LinearDistributions:
        """Multinomial distributions with probabilities drawn from the Dirichlet posterior."""
        prob = rng.standard_gamma(self.posterior(stats))
        prob = np.maximum(prob, np.finfo(np.float64).tiny)
        table = np.log(prob) - np.log(prob.sum(axis=1, keepdims=True))
        length = self.mean_length(stats)
        return self.make_distributions(np.ascontiguousarray(table.T), length)

    def make_distributions(self, table: Array, length: Array) -> LinearDistributions:
        """Distributions with a table of log probabilities and mean row lengths."""
        zeros = np.zeros(self.n_classes)
        return LinearDistributions(table, zeros, length=length, forbids=not self.alpha.all())

    def mean_length(self, stats: CountStats) -> Array:
        """Mean length of the rows of every class."""
        total, rows = stats.feature_count.sum(axis=1), stats.class_count
        out = np.zeros(len(rows))
        return np.asarray(np.divide(total, rows, out=out, where=rows > 0.0))


@dataclass(frozen=True)
class BernoulliModel(NaiveBayesModel):
    """Independent binary features.

    Parameters
    ----------
    n_classes : int
        Number of classes.
    alpha : array of shape (1,) or (n_features,)
        Pseudocount of presence and of absence, of every feature in every class.
    threshold : float or None
        Values above it count as 1; None if values are zero or one already.
    """

    n_classes: int
    alpha: Array
    threshold: float | None = 0.0

    def stats(self, batch: Batch) -> CountStats:
        """Counts of a batch. Cost: one visit to every stored value."""
        batch = batch.compact()
        codes, weight, X = codes_of(batch), weights_of(batch), batch.X
        missing = has_missing(X)
        if self.threshold is None:
            check_binary(X)
            X = zero_for_missing(X) if missing else X
        stats = count_rows(X, codes, weight, self.n_classes, self.threshold)
        if not missing:
            return stats
        missing_weight = np.zeros(stats.feature_count.shape)
        add_missing(*as_rows(batch.X), codes, weight, missing_weight)
        return replace(stats, seen=np.maximum(stats.seen - missing_weight, 0.0))

    def log_present(self, stats: CountStats) -> Array:
        """``log p(present | class)`` with one row per feature."""
        return log_probabilities(stats.feature_count, self.alpha, stats.seen + 2.0 * self.alpha)

    def distributions(self, stats: CountStats) -> LinearDistributions:
        """Bernoulli distributions: both plug-in and posterior predictive."""
        K, d = stats.feature_count.shape
        table, base = np.empty((d, K)), np.zeros(K)
        log_odds(stats.feature_count, stats.seen, self.alpha, NO_SKIP, table, base)
        return self.make_distributions(table, base, lambda: self.log_present(stats))

    def make_distributions(
        self, table: Array, base: Array, log_present: Callable[[], Array]
    ) -> LinearDistributions:
        """Distributions with a table of log odds; ``base`` is the score of an empty row."""
        return LinearDistributions(
            table, base, log_present=log_present, threshold=self.threshold,
            forbids=not self.alpha.all(),
        )  # fmt: skip

    def distributions_without(
        self, stats: CountStats, batch: Batch
    ) -> tuple[Array, ClassDistributions, Matrix]:
        """Distributions without the given rows, restricted to features present in them."""
        if not sparse.issparse(batch.X) or stats.seen.shape[1] > 1 or has_missing(batch.X):
            return super().distributions_without(stats, batch)
        X, features = narrow(batch.X)
        part = count_rows(X, codes_of(batch), weights_of(batch), self.n_classes, self.threshold)
        counts = _without(stats.feature_count[:, features], part.feature_count)
        left = CountStats(
            _without(stats.class_count, part.class_count), counts, _without(stats.seen, part.seen)
        )
        alpha = self.alpha if len(self.alpha) == 1 else self.alpha[features]
        distributions = replace(self, alpha=alpha).distributions(left)
        skip = np.zeros(stats.feature_count.shape[1], dtype=bool)
        skip[features] = True
        log_odds(stats.feature_count, left.seen, self.alpha, skip, NO_TABLE, distributions.base)
        return left.class_count, distributions, X

    def draw_distributions(
        self, stats: CountStats, rng: np.random.Generator
    ) -> LinearDistributions:
        """Bernoulli distributions with probabilities drawn from their Beta posterior."""
        p = rng.beta(
            stats.feature_count + self.alpha,
            np.maximum(stats.seen - stats.feature_count, 0.0) + self.alpha,
        )
        p = np.clip(p, 1e-300, 1.0 - 2.0**-53)
        absent, present = np.log1p(-p), np.log(p)
        table = np.ascontiguousarray((present - absent).T)
        return self.make_distributions(table, absent.sum(axis=1), lambda: present.T)


def log_probabilities(counts: Array, alpha: Array, total: Array) -> Array:
    """``log((counts + alpha) / total)`` with one row per feature; ``total`` (K,) or (K, 1 or d)."""
    K, d = counts.shape
    out = np.empty((d, K))
    if total.ndim == 1 or total.shape[1] == 1:
        log_counts(counts, alpha, _log_total(total).reshape(K), out)
        return out
    log_counts(counts, alpha, np.zeros(K), out)
    out -= _log_total(total).T
    return out


def _log_total(total: Array) -> Array:
    """Logarithm, with zero for a total of zero, whose terms are all zero."""
    return np.asarray(np.log(np.where(total > 0.0, total, 1.0)))
