"""What the naive Bayes estimators do once fitted: predict, judge strange rows, draw new ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import assert_all_finite, check_is_fitted

from likelier.base import Array, Matrix, Uncertainty
from likelier.calibration import conformal_quantile
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.predictions import by_blocks
from likelier.matrices import validated_rows
from likelier.naive_bayes.closed_form import ClassPosterior, class_probabilities
from likelier.naive_bayes.held_out import OrdinaryRows
from likelier.naive_bayes.model import ClassPrior, ClassStatistics, NaiveBayesModel
from likelier.predictive import Categorical


class NaiveBayesPredictions(ClassifierMixin, CallbackSupportMixin, BaseEstimator, ABC):
    """Shell of the three estimators, which say what the model is and what is fitted.

    ``_model`` and ``_prior`` name the parts, ``_publish`` shows statistics as scikit-learn's
    attributes, and ``_posterior`` reads the posterior back from those attributes.
    """

    _stats_kind: type[ClassStatistics]
    bayesian: bool
    n_jobs: int | None
    random_state: Any
    classes_: Array
    stats_: dict[str, Array]
    ordinary_: dict[str, Array]

    # -- what a subclass says -----------------------------------------------------------
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
        """Statistics so far, among at least the present classes."""
        stats = self._stats_kind.from_arrays(self.stats_)
        if len(classes) == len(self.classes_):
            return stats
        return stats.spread(np.searchsorted(classes, self.classes_), len(classes))

    # -- checks -------------------------------------------------------------------------
    def _check_X(self, X: Any, reset: bool) -> Matrix:
        """Rows as float32 or float64; that they are finite shows in the results."""
        rows = validated_rows(self, X, reset, ensure_all_finite=False)
        if isinstance(rows, np.ndarray) and not rows.flags.forc:
            rows = np.ascontiguousarray(rows)
        return rows

    def _refuse_infinite(self, X: Matrix) -> None:
        values = X if isinstance(X, np.ndarray) else X.data
        assert_all_finite(values, allow_nan=True, input_name="X")

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    # -- predicting ---------------------------------------------------------------------
    def _by_blocks(self, X: Any, compute: Callable[[Matrix], Array]) -> Array:
        """Compute something for every row, block by block: nothing large is copied."""
        X = self._check_X(X, reset=False)
        out = by_blocks(X, compute, self.n_jobs)
        if not all_finite(out):
            self._refuse_infinite(X)
        return out

    def predict_joint_log_proba(self, X: Any) -> Array:
        """``log p(class) + log p(x | class)`` for every row and class, as scikit-learn has it.

        Missing values are integrated out. What all classes share (the multinomial
        coefficient) is left out here and included in `score_samples`.
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
        shares = class_probabilities(joint, self._posterior().log_prior)
        return Categorical(shares).probabilities()

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the predicted classes in nats.

        With ``bayesian=True`` the epistemic part is the disagreement of 20 draws of the
        parameters from their posterior; a plug-in estimate has none.
        """
        check_is_fitted(self, "classes_")
        X = self._check_X(X, reset=False)
        found = replace(self._posterior(), seed=self._seed()).uncertainty(X)
        if not all_finite(found.total):
            self._refuse_infinite(X)
        return found

    # -- a model that generates -----------------------------------------------------------
    @property
    def ordinary_scores_(self) -> Array:
        """Out-of-fold scores of some training rows."""
        return self.ordinary_["scores"]

    @property
    def ordinary_weight_(self) -> Array:
        """Weight of all rows that each of these scores stands for."""
        return self.ordinary_["weight"]

    def score_samples(self, X: Any) -> Array:
        """``log p(x)`` of every row, whatever its class; missing values are integrated out."""
        check_is_fitted(self, "classes_")
        return self._by_blocks(X, self._posterior().log_density)

    def is_outlier(self, X: Any, coverage: float = 0.99) -> Array:
        """Whether each row is stranger than rows of the training data are.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows to judge.
        coverage : float
            Share of ordinary rows that should not be called outliers.

        Returns
        -------
        array of bool
            True where ``log p(x)`` is below the threshold; of rows of counts, below that for
            rows of their length.

        Notes
        -----
        Long rows of counts are less probable for their length alone: what is compared is
        ``log p(x) / n^g``, ``n`` the number of counted events and ``g``, from 0 to 1, the power
        by which ``-log p(x)`` of the training rows grows with it. Rows longer than all of these
        are compared per event with the longest. Rows of numbers or of presences with missing
        values are compared as if these were as strange as such values are on average.

        The threshold is calibrated out of fold: `fit` keeps the scores of up to 1,000 training
        rows under statistics they were taken out of, never the rows themselves. With too few
        of them for a coverage nothing is an outlier. What `partial_fit` can promise is said there.
        """
        check_is_fitted(self, "classes_")
        ordinary = OrdinaryRows(**self.ordinary_)
        posterior = self._posterior()

        def judge(rows: Matrix) -> Array:
            per_size = ordinary.per_size(posterior.laws.size(rows))
            return np.asarray(posterior.typicality(rows) * per_size)

        scores = self._by_blocks(X, judge)
        if not len(ordinary.scores):
            return np.zeros(len(scores), dtype=bool)
        usual = ordinary.scores * ordinary.per_size(ordinary.size)
        return np.asarray(scores < -conformal_quantile(-usual, coverage, ordinary.weight))

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
            raise ValueError(f"n must be a whole number of at least 1, got {n!r}")
        rng = np.random.default_rng([self._seed(), 3])
        if y is None:
            p = np.exp(self._posterior().log_prior)  # which a given prior may have sum to anything
            codes = rng.choice(len(self.classes_), size=int(n), p=p / p.sum())
        else:
            codes = self._codes_of(y, int(n))
        return self._posterior().laws.sample(codes, rng), np.asarray(self.classes_[codes])

    def _codes_of(self, y: Any, n: int) -> Array:
        """Class numbers of the labels asked for."""
        labels = np.atleast_1d(np.asarray(y))
        if labels.shape not in ((1,), (n,)):
            raise ValueError(f"y must be one label or {n} labels, got shape {labels.shape}")
        places = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
        wrong = self.classes_[places] != labels
        if wrong.any():
            raise ValueError(
                f"y holds {labels[wrong][0]!r}, which is not one of the classes {self.classes_!r}"
            )
        return np.broadcast_to(places, (n,)).copy()


def all_finite(values: Array) -> bool:
    """Whether no value is infinite or NaN; nearly always one sum tells."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())
