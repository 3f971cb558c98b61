"""`MultinomialNB` and `BernoulliNB`, with outlier detection and sampling."""

from __future__ import annotations

import os
import warnings
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix
from likelier.naive_bayes.closed_form import ClassPosterior
from likelier.naive_bayes.count_model import (
    BernoulliModel,
    CountStats,
    MultinomialModel,
)
from likelier.naive_bayes.distributions import check_counts
from likelier.naive_bayes.model import ClassPrior, ClassStatistics
from likelier.naive_bayes.posterior import SMALLEST_ALPHA, bernoulli, multinomial
from likelier.naive_bayes.recipe import NaiveBayes

CONSTRAINTS: dict[str, Any] = {
    "alpha": [Interval(Real, 0, None, closed="left"), "array-like"],
    "force_alpha": ["boolean"],
    "fit_prior": ["boolean"],
    "class_prior": ["array-like", None],
    "bayesian": ["boolean"],
    "random_state": ["random_state"],
}


class MultinomialNB(NaiveBayes):
    """Multinomial naive Bayes for counts; results agree with scikit-learn.

    ``log p(x | y) = sum_j x_j log p_yj`` up to the multinomial coefficient, with
    ``p_yj = (n_yj + alpha) / (n_y + alpha d)``. Fractional counts (tf-idf) work too.

    Parameters
    ----------
    alpha : float or array-like of shape (n_features,), default=1.0
        Pseudocount of every term in every class.
    force_alpha : bool, default=True
        If False, an alpha below 1e-10 is raised to it.
    fit_prior : bool, default=True
        Learn the class probabilities; otherwise they are equal.
    class_prior : array-like of shape (n_classes,), default=None
        Probabilities of the classes.
    bayesian : bool, default=False
        Use the posterior predictive, a Dirichlet-multinomial, instead of plug-in estimates: a term
        that occurs once becomes more likely to occur again. Adds one row to each class count.
    n_jobs : int or None, default=None
        Number of threads.
    random_state : int, RandomState or None, default=None
        Seed of `sample`, `predict_uncertainty` and the rows that calibrate `is_outlier`.
    checkpoint : str or path-like, default=None
        Folder for checkpoints; an interrupted fit of the same data and parameters resumes there.

    Attributes
    ----------
    classes_, class_count_, class_log_prior_ : ndarray of shape (n_classes,)
    feature_count_, feature_log_prob_ : ndarray of shape (n_classes, n_features)
        Counts, and log probabilities of the terms.
    mean_length_ : ndarray of shape (n_classes,)
        Mean number of events in a row of each class.
    inlier_scores_, inlier_weight_ : ndarray
        Out-of-fold scores of a sample of training rows, used by `is_outlier`, and their weights.

    Notes
    -----
    `fit` visits every stored value once; predicting costs stored values x classes.

    `score_samples` is ``log p(x | length of x)``, including the multinomial coefficient.
    `is_outlier` compares it with training rows of similar length, since long rows are always less
    probable. Both reject negative counts, as `fit` does. `sample` draws row lengths from a Poisson
    distribution with the mean length of the class, and returns a CSR array.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import MultinomialNB
    >>> X = np.array([[3, 0, 1], [2, 1, 0], [0, 3, 1], [0, 2, 2]])
    >>> model = MultinomialNB().fit(X, ["a", "a", "b", "b"])
    >>> [str(label) for label in model.predict([[2, 0, 0], [0, 1, 1]])]
    ['a', 'b']
    """

    def __init__(
        self,
        *,
        alpha: Any = 1.0,
        force_alpha: bool = True,
        fit_prior: bool = True,
        class_prior: Any = None,
        bayesian: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.bayesian = bayesian
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.input_tags.positive_only = True
        return tags

    def _check_X(self, X: Any, reset: bool) -> Matrix:
        rows = super()._check_X(X, reset)
        if not reset:  # fit checks block by block
            check_counts(rows)
        return rows

    def _check_finite(self, stats: Any, X: Matrix) -> None:
        super()._check_finite(stats, X)
        if not np.isfinite(stats.feature_count).all():
            check_counts(X)

    _parameter_constraints: ClassVar[dict[str, Any]] = CONSTRAINTS
    _stats_kind: type[ClassStatistics] = CountStats
    feature_count_: Array
    feature_log_prob_: Array
    mean_length_: Array

    def _model(self, n_classes: int, n_features: int) -> MultinomialModel:
        alpha = checked_alpha(self.alpha, self.force_alpha, self.bayesian, n_features)
        return MultinomialModel(n_classes, alpha, bool(self.bayesian))

    def _prior(self, n_classes: int) -> ClassPrior:
        return checked_prior(self.class_prior, self.fit_prior, self.bayesian, n_classes)

    def _publish(self, model: MultinomialModel, stats: CountStats) -> dict[str, Any]:
        # transposed: one row per term in memory, as prediction needs it
        return {
            **_counts(stats, self._prior(len(stats.class_count))),
            "feature_log_prob_": model.log_table(stats).T,
            "mean_length_": model.mean_length(stats),
        }

    def _posterior(self) -> ClassPosterior:
        return multinomial(self)


class BernoulliNB(NaiveBayes):
    """Bernoulli naive Bayes for binary features; results agree with scikit-learn.

    ``p(x | y) = prod_j p_yj^x_j (1 - p_yj)^(1 - x_j)``, with
    ``p_yj = (rows of y with feature j + alpha) / (rows of y + 2 alpha)``. Missing values (NaN)
    are marginalised: the feature is left out of the product, and probabilities are estimated from
    the rows with a known value.

    Parameters
    ----------
    alpha : float or array-like of shape (n_features,), default=1.0
        Pseudocount of both values.
    force_alpha : bool, default=True
        If False, an alpha below 1e-10 is raised to it.
    binarize : float or None, default=0.0
        Values above it count as 1; None if X holds zeros and ones already.
    fit_prior : bool, default=True
        Learn the class probabilities; otherwise they are equal.
    class_prior : array-like of shape (n_classes,), default=None
        Probabilities of the classes.
    bayesian : bool, default=False
        Use the posterior predictive. Given the class it equals the smoothed plug-in estimate (the
        mean of a Beta distribution), but one row is added to each class count and
        `predict_uncertainty` has an epistemic part.
    n_jobs : int or None, default=None
        Number of threads.
    random_state : int, RandomState or None, default=None
        Seed of `sample`, `predict_uncertainty` and the rows that calibrate `is_outlier`.
    checkpoint : str or path-like, default=None
        Folder for checkpoints; an interrupted fit of the same data and parameters resumes there.

    Attributes
    ----------
    classes_, class_count_, class_log_prior_ : ndarray of shape (n_classes,)
    feature_count_, feature_log_prob_ : ndarray of shape (n_classes, n_features)
        Counts, and log probabilities of a 1.
    log_odds_ : ndarray of shape (n_classes, n_features)
        Log odds of a 1.
    empty_score_ : ndarray of shape (n_classes,)
        Log probability of a row of zeros.
    inlier_scores_, inlier_weight_ : ndarray
        Out-of-fold scores of a sample of training rows, used by `is_outlier`, and their weights.

    Notes
    -----
    `fit` visits every stored value once; predicting costs stored values x classes.

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import BernoulliNB
    >>> X = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [0, 1, 1]])
    >>> model = BernoulliNB().fit(X, ["a", "a", "b", "b"])
    >>> str(model.predict([[1, np.nan, 0]])[0])
    'a'
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **CONSTRAINTS,
        "binarize": [None, Interval(Real, 0, None, closed="left")],
    }
    _stats_kind: type[ClassStatistics] = CountStats
    feature_count_: Array
    log_odds_: Array
    empty_score_: Array

    def __init__(
        self,
        *,
        alpha: Any = 1.0,
        force_alpha: bool = True,
        binarize: float | None = 0.0,
        fit_prior: bool = True,
        class_prior: Any = None,
        bayesian: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.binarize = binarize
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.bayesian = bayesian
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.checkpoint = checkpoint

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.input_tags.allow_nan = True
        return tags

    def _model(self, n_classes: int, n_features: int) -> BernoulliModel:
        alpha = checked_alpha(self.alpha, self.force_alpha, self.bayesian, n_features)
        return BernoulliModel(n_classes, alpha, self.binarize)

    def _prior(self, n_classes: int) -> ClassPrior:
        return checked_prior(self.class_prior, self.fit_prior, self.bayesian, n_classes)

    def _publish(self, model: BernoulliModel, stats: CountStats) -> dict[str, Any]:
        distributions = model.distributions(stats)
        return {
            **_counts(stats, self._prior(len(stats.class_count))),
            "log_odds_": distributions.table.T,
            "empty_score_": distributions.base,
        }

    @property
    def feature_log_prob_(self) -> Array:
        """Log probability of a 1 for every class and feature, computed on access."""
        check_is_fitted(self, "classes_")
        model = self._model(len(self.classes_), self.n_features_in_)
        return model.log_present(self._stats(self.classes_)).T

    def _posterior(self) -> ClassPosterior:
        return bernoulli(self)

    def _check_mergeable(self, other: Any) -> None:
        super()._check_mergeable(other)
        if other.binarize != self.binarize:
            raise ValueError(
                f"other was fitted with binarize={other.binarize!r}, this model with "
                f"binarize={self.binarize!r}; models must share binarize to be merged"
            )


def checked_alpha(given: Any, force: bool, bayesian: bool, n_features: int) -> Array:
    """Pseudocounts: one for all features, or one each."""
    alpha = np.asarray(given, dtype=np.float64)
    if alpha.ndim and alpha.shape != (n_features,):
        raise ValueError(
            f"When alpha is an array, it should contains `n_features`. "
            f"Got {alpha.shape[0]} elements instead of {n_features}."
        )
    alpha = np.atleast_1d(alpha)
    if not (np.isfinite(alpha).all() and alpha.min() >= 0.0):
        raise ValueError("All values in alpha must be greater than 0.")
    if alpha.min() < SMALLEST_ALPHA and not force:
        warnings.warn(
            f"alpha too small will result in numeric errors, setting alpha = "
            f"{SMALLEST_ALPHA:.1e}. Use `force_alpha=True` to keep alpha unchanged.",
            stacklevel=2,
        )
        return np.maximum(alpha, SMALLEST_ALPHA)
    if bayesian and alpha.min() <= 0.0:
        raise ValueError("alpha must be positive with bayesian=True, where it is the prior")
    return alpha


def checked_prior(given: Any, learned: bool, bayesian: bool, n_classes: int) -> ClassPrior:
    """Class probabilities: given, learned, or equal."""
    if given is None:
        return ClassPrior(learned=bool(learned), bayesian=bool(bayesian))
    prior = np.asarray(given, dtype=np.float64)
    if prior.shape != (n_classes,):
        raise ValueError(
            f"Number of priors must match number of classes: class_prior has {len(prior)} "
            f"entries for {n_classes} classes"
        )
    if not (prior >= 0.0).all() or not prior.any():
        raise ValueError("class_prior must not be negative, nor zero for every class")
    return ClassPrior(prior)


def _counts(stats: CountStats, prior: ClassPrior) -> dict[str, Any]:
    """Fitted attributes that both estimators have."""
    return {
        "class_count_": stats.class_count,
        "class_log_prior_": np.array(prior.log(stats.class_count)),
        "feature_count_": stats.feature_count,
    }
