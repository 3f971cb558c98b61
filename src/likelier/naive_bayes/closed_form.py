"""Closed-form inference: one pass of additive statistics, then the posterior."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix, Posterior, Uncertainty
from likelier.files.declared import check_array
from likelier.naive_bayes.distributions import has_missing, mark_missing, product
from likelier.naive_bayes.loops.counts import best_columns, best_rows, log_sum_rows, normalise_rows
from likelier.naive_bayes.model import ClassDistributions, ClassPrior, NaiveBayesModel
from likelier.predictive import Categorical

FOLDS = 5
DRAWS = 20  # of the parameters, for the epistemic part of the uncertainty
MOST = 700.0  # logarithm of a weight that has a finite exponential
LOWEST = 1e300  # finite stand-in for minus infinity


@dataclass(frozen=True)
class ClosedState:
    """A model and the statistics of all rows so far; None before the first step."""

    model: NaiveBayesModel
    stats: Any = None


@dataclass(frozen=True)
class ClassPosterior(Posterior):
    """Class-conditional distributions and log class probabilities.

    Class probabilities need not sum to one: `joint` uses them as given, `log_density` normalises
    them. With ``bayesian``, `draw` samples parameters given ``model`` and ``stats``.
    """

    takes_missing: ClassVar[bool] = True

    distributions: ClassDistributions
    log_prior: Array
    model: NaiveBayesModel | None = None
    stats: Any = None
    bayesian: bool = False
    seed: int = 0

    def draw(self, rng: np.random.Generator) -> ClassPosterior:
        """Return a posterior with parameters drawn from theirs."""
        assert self.model is not None
        return ClassPosterior(self.model.draw_distributions(self.stats, rng), self.log_prior)

    def joint(self, X: Matrix) -> Array:
        """``log p(class) + log p(x | class)``, without `log_measure`, which all classes share."""
        out = self.distributions.log_density(X)
        out += self.log_prior
        return out

    def log_density(self, X: Matrix) -> Array:
        """``log p(x)`` of every row."""
        out = self.distributions.log_measure(X)
        joint = np.ascontiguousarray(self.joint(X))
        total = np.empty(len(joint))
        log_sum_rows(joint, total)
        out += total - np.logaddexp.reduce(self.log_prior)
        return out

    def best(self, X: Matrix) -> Array:
        """Index of the most probable class of every row; -1 if no class is possible."""
        joint = self.joint(X)
        out = np.empty(len(joint), dtype=np.intp)
        if joint.flags.c_contiguous:
            best_columns(joint, out)
        else:
            best_rows(np.ascontiguousarray(joint.T), out)
        return out

    def point(self, X: Matrix) -> Array:
        """Index of the most probable class of every row."""
        best = self.best(X)
        return np.where(best < 0, self.most_common, best)

    @property
    def most_common(self) -> int:
        """Most probable class a priori: the prediction for a row impossible under every class."""
        return int(np.argmax(self.log_prior))

    def check(self, n_features: int, n_classes: int | None) -> None:
        K = n_classes or 0
        check_array("log prior", self.log_prior, (K,), high=MOST, finite=False)
        if np.isnan(self.log_prior).any() or not np.isfinite(self.log_prior).any():
            raise ValueError("the log probabilities of the classes are not numbers")
        self.distributions.check(n_features, K)
        if self.bayesian and self.model is not None:  # parameters are drawn from the statistics
            rng = np.random.default_rng(0)
            self.model.draw_distributions(self.stats, rng).check(n_features, K)

    def check_rows(self, X: Matrix) -> None:
        """Raise for invalid rows, such as negative counts."""
        if self.model is not None:
            self.model.check_rows(X)

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Entropies; if ``bayesian``, epistemic is the disagreement of parameter draws."""
        if not self.bayesian:
            return super().uncertainty(X)
        rng = np.random.default_rng([self.seed, 2])
        draws = [self.draw(rng).predictive(X).probabilities() for _ in range(DRAWS)]
        return Categorical(np.stack(draws, axis=1)).uncertainty()

    def predictive(self, X: Matrix) -> Categorical:
        return Categorical(class_probabilities(self.joint(X), self.log_prior))

    def typicality(self, X: Matrix) -> Array:
        """Outlier score: ``log p(x)`` divided by the size of the row; low for outliers."""
        out = np.asarray(self.log_density(X) / self.distributions.size(X))
        features = self.distributions.feature_scores() if has_missing(X) else None
        if features is not None:
            rows = np.flatnonzero(np.isnan(np.asarray(X.sum(axis=1))).reshape(-1))
            out[rows] = self._adjust_missing(out[rows], X[rows], features)
        return out

    def _adjust_missing(self, scores: Array, X: Matrix, features: tuple[Array, Array]) -> Array:
        """Scores of incomplete rows on the scale of complete ones.

        The log density of fewer features has another mean and a smaller variance. Missing features
        contribute their expected log density under the most probable class, and the deviation of
        the observed ones from their mean is scaled by the ratio of the standard deviations.
        """
        k, missing = np.maximum(self.best(X), 0), mark_missing(X)
        mean, missing_mean, variance, missing_variance = (
            part[k] if part.ndim == 1 else part[np.arange(len(k)), k]
            for table in features
            for part in (table.sum(axis=1), product(missing, table.T))
        )
        known = np.maximum(variance - missing_variance, 0.0)
        factor = np.sqrt(
            np.divide(variance, known, out=np.ones(len(k)), where=known > 1e-9 * variance)
        )
        prior = self.log_prior[k] - np.logaddexp.reduce(self.log_prior)
        return np.asarray(prior + mean + (scores - prior - (mean - missing_mean)) * factor)


def class_probabilities(joint: Array, log_prior: Array, logarithm: bool = False) -> Array:
    """Class probabilities of every row, or their logarithms.

    A row that is impossible under every class (only with ``alpha=0`` or after an overflow) gets
    the prior class probabilities.
    """
    out = np.empty(joint.shape)
    if np.isposinf(joint).any():
        raise ValueError("log probabilities of the rows must be finite: the model is malformed")
    normalise_rows(np.ascontiguousarray(joint), np.ascontiguousarray(log_prior), logarithm, out)
    return out


@dataclass(frozen=True)
class ClosedForm(Inference):
    """Statistics of all rows in one pass; the posterior follows without iterations.

    A step on another engine adds its rows, so batches can be learned one by one, and statistics
    of several machines are merged by addition. Cost: one visit to every value.
    """

    prior: ClassPrior = field(default_factory=ClassPrior)

    def init(self, model: NaiveBayesModel, engine: Engine) -> ClosedState:
        """Return a state without any rows."""
        return ClosedState(model)

    def step(self, state: ClosedState, engine: Engine) -> tuple[ClosedState, Info]:
        """Add the statistics of all rows of the engine."""
        found = engine.reduce(state.model.stats, lambda left, right: left + right)
        stats = found if state.stats is None else state.stats + found
        return replace(state, stats=stats), Info(passes=1.0, converged=True)

    def posterior(self, state: ClosedState) -> ClassPosterior:
        """Class-conditional distributions and class probabilities."""
        if state.stats is None:
            raise ValueError("no rows have been seen yet; call step first")
        return ClassPosterior(
            state.model.distributions(state.stats), self.prior.log(state.stats.class_count)
        )

    def out_of_fold_scores(
        self, state: ClosedState, batch: Batch, n_rows: int
    ) -> tuple[Array, Array]:
        """Out-of-fold `typicality` of some training rows, clipped to be finite, and their sizes.

        ``batch`` is a sample of the ``n_rows`` rows in the statistics. Its rows are subtracted from
        the statistics fold by fold, which leaves at least four fifths of all rows each time and
        needs no second pass. Empty for a single row.
        """
        m = batch.n_rows
        n_folds = min(m, -(-FOLDS * m // n_rows))
        out, size = np.empty((2, m))
        for fold in range(n_folds):
            rows = np.arange(fold, m, n_folds)
            part = replace(batch, rows=rows).compact()
            count, distributions, X = state.model.distributions_without(state.stats, part)
            if not count.any():
                return np.empty(0), np.empty(0)
            size[rows] = distributions.size(X)
            out[rows] = ClassPosterior(distributions, self.prior.log(count)).typicality(X)
        return np.clip(np.where(np.isnan(out), -LOWEST, out), -LOWEST, LOWEST), size
