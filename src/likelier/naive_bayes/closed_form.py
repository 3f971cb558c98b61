"""Closed form: one pass of additive statistics, and the posterior of a generative model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix, Posterior, Uncertainty
from likelier.naive_bayes.distributions import has_missing, mark_missing, product
from likelier.naive_bayes.loops.counts import best_columns, best_rows, log_sum_rows, normalise_rows
from likelier.naive_bayes.model import ClassLaws, ClassPrior, NaiveBayesModel
from likelier.predictive import Categorical

FOLDS = 5
DRAWS = 20  # of the parameters, for the epistemic part of the uncertainty
LOWEST = 1e300  # stands for the logarithm of zero where numbers must be finite


@dataclass(frozen=True)
class ClosedState:
    """A model and the statistics of all rows it has seen; None before the first."""

    model: NaiveBayesModel
    stats: Any = None


@dataclass(frozen=True)
class ClassPosterior(Posterior):
    """Distributions of the rows of the classes, and log probabilities of the classes.

    Probabilities that do not sum to one are taken as fractions: `joint` has them as they are, and
    `log_density` scaled. With ``bayesian``, parameters can be drawn given ``model`` and ``stats``.
    """

    takes_missing: ClassVar[bool] = True

    laws: ClassLaws
    log_prior: Array
    model: NaiveBayesModel | None = None
    stats: Any = None
    bayesian: bool = False
    seed: int = 0

    def draw(self, rng: np.random.Generator) -> ClassPosterior:
        """The same for parameters drawn from their posterior."""
        assert self.model is not None
        return ClassPosterior(self.model.draw_laws(self.stats, rng), self.log_prior)

    def joint(self, X: Matrix) -> Array:
        """``log p(class) + log p(x | class)``, up to the measure that all classes share."""
        out = self.laws.log_density(X)
        out += self.log_prior
        return out

    def log_density(self, X: Matrix) -> Array:
        """``log p(x)`` of every row."""
        out = self.laws.log_measure(X)
        joint = np.ascontiguousarray(self.joint(X))
        total = np.empty(len(joint))
        log_sum_rows(joint, total)
        out += total - np.logaddexp.reduce(self.log_prior)
        return out

    def best(self, X: Matrix) -> Array:
        """Number of the most probable class of every row; -1 where no class is possible."""
        joint = self.joint(X)
        out = np.empty(len(joint), dtype=np.intp)
        if joint.flags.c_contiguous:
            best_columns(joint, out)
        else:
            best_rows(np.ascontiguousarray(joint.T), out)
        return out

    def point(self, X: Matrix) -> Array:
        """Number of the most probable class of every row."""
        best = self.best(X)
        return np.where(best < 0, self.most_common, best)

    @property
    def most_common(self) -> int:
        """Class of a row that no class can have made, which is as good as no row."""
        return int(np.argmax(self.log_prior))

    def check_rows(self, X: Matrix) -> None:
        """Raise for negative counts, where the model is one of counts."""
        if self.model is not None:
            self.model.check_rows(X)

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Entropies; epistemic is the disagreement of draws of the parameters, if ``bayesian``."""
        if not self.bayesian:
            return super().uncertainty(X)
        rng = np.random.default_rng([self.seed, 2])
        draws = [self.draw(rng).predictive(X).probabilities() for _ in range(DRAWS)]
        return Categorical(np.stack(draws, axis=1)).uncertainty()

    def predictive(self, X: Matrix) -> Categorical:
        return Categorical(class_probabilities(self.joint(X), self.log_prior))

    def typicality(self, X: Matrix) -> Array:
        """``log p(x)`` per unit of size of the row: what tells strange rows apart."""
        out = np.asarray(self.log_density(X) / self.laws.size(X))
        features = self.laws.feature_scores() if has_missing(X) else None
        if features is not None:
            rows = np.flatnonzero(np.isnan(np.asarray(X.sum(axis=1))).reshape(-1))
            out[rows] = self._as_if_complete(out[rows], X[rows], features)
        return out

    def _as_if_complete(self, scores: Array, X: Matrix, features: tuple[Array, Array]) -> Array:
        """Scores as rows that are no more and no less strange would have them without gaps.

        A log density of fewer features is one in other units and varies less: what is missing is
        taken to be as strange as on average under the most probable class, and how far the rest
        is from its average is stretched by the standard deviations.
        """
        k, holes = np.maximum(self.best(X), 0), mark_missing(X)
        mean, lost_mean, variance, lost_variance = (
            part[k] if part.ndim == 1 else part[np.arange(len(k)), k]
            for table in features
            for part in (table.sum(axis=1), product(holes, table.T))
        )
        known = np.maximum(variance - lost_variance, 0.0)
        stretch = np.sqrt(
            np.divide(variance, known, out=np.ones(len(k)), where=known > 1e-9 * variance)
        )
        prior = self.log_prior[k] - np.logaddexp.reduce(self.log_prior)
        return np.asarray(prior + mean + (scores - prior - (mean - lost_mean)) * stretch)


def class_probabilities(joint: Array, log_prior: Array, logarithm: bool = False) -> Array:
    """Probabilities of the classes of every row, or their logarithms.

    A row that no class can have made (which takes ``alpha=0`` or an overflow) is as good as no
    row: its probabilities are those of the classes.
    """
    out = np.empty(joint.shape)
    normalise_rows(np.ascontiguousarray(joint), np.ascontiguousarray(log_prior), logarithm, out)
    return out


@dataclass(frozen=True)
class ClosedForm(Inference):
    """Statistics of all rows in one pass; the posterior follows without iterating.

    A further step on another engine adds its rows: a stream is learned batch by batch, and
    statistics of different machines are merged by adding them. Cost: one visit to every value.
    """

    prior: ClassPrior = field(default_factory=ClassPrior)

    def init(self, model: NaiveBayesModel, engine: Engine) -> ClosedState:
        """Return a state that has seen nothing."""
        return ClosedState(model)

    def step(self, state: ClosedState, engine: Engine) -> tuple[ClosedState, Info]:
        """Add the statistics of all rows of the engine."""
        found = engine.reduce(state.model.stats, lambda left, right: left + right)
        stats = found if state.stats is None else state.stats + found
        return replace(state, stats=stats), Info(passes=1.0, converged=True)

    def posterior(self, state: ClosedState) -> ClassPosterior:
        """Laws and probabilities of the classes."""
        if state.stats is None:
            raise ValueError("no rows have been seen yet: take a step first")
        return ClassPosterior(
            state.model.laws(state.stats), self.prior.log(state.stats.class_count)
        )

    def held_out(self, state: ClosedState, batch: Batch, n_rows: int) -> tuple[Array, Array]:
        """Typicality of rows under statistics that have not seen them, finite, and their sizes.

        ``batch`` is part of the ``n_rows`` rows in the statistics. It is taken out again, in
        as many parts as it takes to leave four fifths of the rows in each time: an
        out-of-fold score costs no second pass. A single row has none.
        """
        m = batch.n_rows
        n_folds = min(m, -(-FOLDS * m // n_rows))
        out, size = np.empty((2, m))
        for fold in range(n_folds):
            rows = np.arange(fold, m, n_folds)
            part = replace(batch, rows=rows).compact()
            count, laws, X = state.model.held_out_laws(state.stats, part)
            if not count.any():
                return np.empty(0), np.empty(0)
            size[rows] = laws.size(X)
            out[rows] = ClassPosterior(laws, self.prior.log(count)).typicality(X)
        return np.clip(np.where(np.isnan(out), -LOWEST, out), -LOWEST, LOWEST), size
