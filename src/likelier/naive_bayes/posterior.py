"""Posteriors of fitted naive Bayes models, made from their parameters and fitted attributes.

``fitted`` is an estimator, or the contents of a model file under the same names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array
from likelier.naive_bayes.closed_form import ClassPosterior
from likelier.naive_bayes.count_model import (
    BernoulliModel,
    CountStats,
    MultinomialModel,
)
from likelier.naive_bayes.gaussian_model import GaussianDistributions, GaussianModel, GaussianStats
from likelier.naive_bayes.model import ClassDistributions

SMALLEST_ALPHA = 1e-10


def pseudocounts(fitted: Any) -> Array:
    """The parameter ``alpha`` as an array of one entry, or one per feature."""
    alpha = np.atleast_1d(np.asarray(fitted.alpha, dtype=np.float64))
    return alpha if fitted.force_alpha else np.maximum(alpha, SMALLEST_ALPHA)


def _seed(fitted: Any) -> int:
    """Seed of parameter draws: the one that scikit-learn derives from an int."""
    state = fitted.random_state
    whole = isinstance(state, int | np.integer)
    return int(np.random.RandomState(state).randint(2**31 - 1)) if whole else 0


def gaussian(fitted: Any) -> ClassPosterior:
    """Posterior of a `GaussianNB`."""
    bayesian = bool(fitted.bayesian)
    model = GaussianModel(len(fitted.classes_), float(fitted.var_smoothing), bayesian)
    stats = GaussianStats.from_arrays(fitted.stats_)
    distributions: ClassDistributions = GaussianDistributions(fitted.theta_, fitted.var_)
    if bayesian:
        distributions = model.distributions(stats)
    with np.errstate(divide="ignore"):
        log_prior = np.asarray(np.log(fitted.class_prior_))
    return ClassPosterior(distributions, log_prior, model, stats, bayesian, _seed(fitted))


def multinomial(fitted: Any) -> ClassPosterior:
    """Posterior of a `MultinomialNB`."""
    bayesian = bool(fitted.bayesian)
    model = MultinomialModel(len(fitted.classes_), pseudocounts(fitted), bayesian)
    stats = CountStats.from_arrays(fitted.stats_)
    distributions: ClassDistributions
    if bayesian:
        distributions = model.distributions(stats)
    else:
        table = np.ascontiguousarray(fitted.feature_log_prob_.T)
        distributions = model.make_distributions(table, fitted.mean_length_)
    return ClassPosterior(
        distributions, fitted.class_log_prior_, model, stats, bayesian, _seed(fitted)
    )


def bernoulli(fitted: Any) -> ClassPosterior:
    """Posterior of a `BernoulliNB`."""
    model = BernoulliModel(len(fitted.classes_), pseudocounts(fitted), fitted.binarize)
    stats = CountStats.from_arrays(fitted.stats_)
    table = np.ascontiguousarray(fitted.log_odds_.T)
    distributions = model.make_distributions(
        table, fitted.empty_score_, lambda: model.log_present(stats)
    )
    return ClassPosterior(
        distributions, fitted.class_log_prior_, model, stats, bool(fitted.bayesian), _seed(fitted)
    )
