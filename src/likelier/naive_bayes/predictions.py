"""Methods of fitted naive Bayes estimators: prediction, outlier detection and sampling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import assert_all_finite, check_is_fitted

from likelier.base import Array, Matrix, Uncertainty
from likelier.calibration import conformal_quantile
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.predictions import TableInput, by_blocks
from likelier.matrices import validated_rows
from likelier.naive_bayes.closed_form import ClassPosterior, class_probabilities
from likelier.naive_bayes.inliers import InlierScores
from likelier.naive_bayes.model import ClassPrior, ClassStatistics, NaiveBayesModel
from likelier.predictive import Categorical


class NaiveBayesPredictions(ClassifierMixin, TableInput, CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of the three estimators.

    ``_model`` and ``_prior`` create the parts, ``_publish`` converts statistics to scikit-learn's
    fitted attributes, and ``_posterior`` rebuilds the posterior from those attributes.
    """

    _stats_kind: type[ClassStatistics]
    bayesian: bool
    n_jobs: int | None
    random_state: Any
    classes_: Array
    stats_: dict[str, Array]
    inliers_: dict[str, Array]

    # -- defined by subclasses ----------------------------------------------------------
    @abstractmethod
    def _model(self, n_classes: int, n_features: int) -> NaiveBayesModel: ...

    @abstractmethod
    def _prior(self, n_classes: int) -> ClassPrior: ...

    @abstractmethod
    def _publish(self, model: Any, stats: Any) -> dict[str, Any]: ...

    @abstractmethod
    def _posterior(self) -> ClassPosterior: ...

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _stats(self, classes: Array) -> Any:
        """Current statistics over ``classes``, which include the fitted ones."""
        stats = self._stats_kind.from_arrays(self.stats_)
        if len(classes) == len(self.classes_):
            return stats
        return stats.reindex(np.searchsorted(classes, self.classes_), len(classes))

    # -- checks -------------------------------------------------------------------------
    def _check_X(self, X: Any, reset: bool) -> Matrix:
        """Rows as float32 or float64; infinite values are detected from the results."""
        rows = validated_rows(self, X, reset, ensure_all_finite=False)
        if isinstance(rows, np.ndarray) and not rows.flags.forc:
            rows = np.ascontiguousarray(rows)
        return rows

    def _refuse_infinite(self, X: Matrix) -> None:
        values = X if isinstance(X, np.ndarray) else X.data
        assert_all_finite(values, allow_nan=True, input_name="X")

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    # -- prediction ---------------------------------------------------------------------
    def _by_blocks(self, X: Any, compute: Callable[[Matrix], Array]) -> Array:
        """Compute a value for every row, block by block, without large copies."""
        X = self._check_X(X, reset=False)
        out = by_blocks(X, compute, self.n_jobs)
        if not all_finite(out):
            self._refuse_infinite(X)
        return out

    def predict_joint_log_proba(self, X: Any) -> Array:
        """``log p(class) + log p(x | class)`` for every row and class, as in scikit-learn.

        Missing values are marginalised. The multinomial coefficient, equal for all classes, is left
        out here and included in `score_samples`.
        """
        check_is_fitted(self, "classes_")
        return self._by_blocks(X, self._posterior().joint)

    def predict(self, X: Any) -> Array:
        """Most probable class of every row."""
        check_is_fitted(self, "classes_")
        X = self._check_X(X, reset=False)
        codes = by_blocks(X, self._posterior().best, self.n_jobs)
        impossible = codes < 0
        if impossible.any():
            self._refuse_infinite(X)
            codes[impossible] = self._posterior().most_common
        return np.asarray(self.classes_[codes])

    def predict_log_proba(self, X: Any) -> Array:
        """Log probability of every class."""
        joint = self.predict_joint_log_proba(X)
        return class_probabilities(joint, self._posterior().log_prior, logarithm=True)

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class."""
        joint = self.predict_joint_log_proba(X)
        probabilities = class_probabilities(joint, self._posterior().log_prior)
        return Categorical(probabilities).probabilities()

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the predicted classes in nats.

        With ``bayesian=True`` the epistemic part is the disagreement of 20 posterior draws of the
        parameters; a plug-in estimate has none.
        """
        check_is_fitted(self, "classes_")
        X = self._check_X(X, reset=False)
        self._refuse_infinite(X)
        return self._posterior().uncertainty(X)

    # -- generative model -----------------------------------------------------------------
    @property
    def inlier_scores_(self) -> Array:
        """Out-of-fold scores of a sample of training rows."""
        return self.inliers_["scores"]

    @property
    def inlier_weight_(self) -> Array:
        """Weight of all rows that each of these scores represents."""
        return self.inliers_["weight"]

    def score_samples(self, X: Any) -> Array:
        """``log p(x)`` of every row; missing values are marginalised."""
        check_is_fitted(self, "classes_")
        return self._by_blocks(X, self._posterior().log_density)

    def is_outlier(self, X: Any, coverage: float = 0.99) -> Array:
        """Whether each row is an outlier with respect to the training rows.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows to test.
        coverage : float
            Fraction of inliers that should not be flagged.

        Returns
        -------
        array of bool
            True if ``log p(x)`` is below the threshold, which for rows of counts depends on their
            length.

        Notes
        -----
        Long rows of counts are always less probable, so rows are compared by ``log p(x) / n^g``,
        where ``n`` is the number of events and ``g``, from 0 to 1, the power with which
        ``-log p(x)`` of the training rows grows with ``n``. Rows longer than all of these are
        compared per event with the longest. Missing continuous or binary values count with their
        expected log density.

        The threshold is calibrated out of fold: `fit` stores scores of up to 1,000 training rows
        under statistics without these rows, but not the rows themselves. If they are too few for
        the coverage, no row is an outlier. See `partial_fit` for its guarantees.
        """
        check_is_fitted(self, "classes_")
        inliers = InlierScores(**self.inliers_)
        posterior = self._posterior()

        def outlier_score(rows: Matrix) -> Array:
            per_size = inliers.per_size(posterior.distributions.size(rows))
            return np.asarray(posterior.typicality(rows) * per_size)

        scores = self._by_blocks(X, outlier_score)
        if not len(inliers.scores):
            return np.zeros(len(scores), dtype=bool)
        reference = inliers.scores * inliers.per_size(inliers.size)
        return np.asarray(scores < -conformal_quantile(-reference, coverage, inliers.weight))

    def sample(self, n: int = 1, y: Any = None) -> tuple[Any, Array]:
        """Draw rows from the model.

        Parameters
        ----------
        n : int
            Number of rows.
        y : label or array-like of n labels, optional
            Their classes; drawn from the class probabilities by default.

        Returns
        -------
        X : ndarray or CSR array of shape (n, n_features)
            The rows.
        y : ndarray of shape (n,)
            Their classes.
        """
        check_is_fitted(self, "classes_")
        whole: Any = n
        if isinstance(whole, bool) or not isinstance(whole, Integral) or whole < 1:
            raise ValueError(f"n must be an integer of at least 1, got {n!r}")
        rng = np.random.default_rng([self._seed(), 3])
        if y is None:
            p = np.exp(self._posterior().log_prior)  # class_prior need not sum to one
            codes = rng.choice(len(self.classes_), size=int(n), p=p / p.sum())
        else:
            codes = self._codes_of(y, int(n))
        return self._posterior().distributions.sample(codes, rng), np.asarray(self.classes_[codes])

    def _codes_of(self, y: Any, n: int) -> Array:
        """Class indices of the given labels."""
        labels = np.atleast_1d(np.asarray(y))
        if labels.shape not in ((1,), (n,)):
            raise ValueError(f"y must be one label or {n} labels, got shape {labels.shape}")
        positions = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        wrong = self.classes_[positions] != labels
        if wrong.any():
            raise ValueError(
                f"y contains {labels[wrong][0]!r}, which is not among the classes {self.classes_!r}"
            )
        return np.broadcast_to(positions, (n,)).copy()


def all_finite(values: Array) -> bool:
    """Whether no value is infinite or NaN; a finite sum usually proves it."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())
