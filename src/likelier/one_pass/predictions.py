"""Predictions and uncertainty of the one-pass classifier."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, Uncertainty
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.predictions import TableInput, by_blocks
from likelier.matrices import validated_rows
from likelier.one_pass.checks import check_same_parameters
from likelier.one_pass.posterior import OnePassPosterior, one_pass

LAZY_ATTRIBUTES = ("coef_", "intercept_")


class OnePassPredictions(ClassifierMixin, TableInput, CallbackSupportMixin, BaseEstimator):
    """Predictions from Gaussian weights that share one covariance."""

    n_jobs: int | None
    random_state: Any
    classes_: Array
    coef_: Array
    intercept_: Array

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- lazily computed fitted attributes ------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name in LAZY_ATTRIBUTES and (vars(self).get("stats_") or vars(self).get("pending_")):
            self._finalise()
            return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _finalise(self) -> None:
        """Compute weights that were deferred."""
        if "posterior_" not in vars(self):
            check_same_parameters(self)
            self._set_fitted_attributes()

    @abstractmethod
    def _set_fitted_attributes(self) -> None:
        """Set the fitted attributes from the statistics."""

    # -- rows ---------------------------------------------------------------------------
    def _check_X(self, X: Any, reset: bool) -> Matrix:
        rows = validated_rows(self, X, reset)
        if isinstance(rows, np.ndarray) and not rows.flags.forc:
            rows = np.ascontiguousarray(rows)
        return rows

    def _posterior(self) -> OnePassPosterior:
        """What is known of the weights, after all rows."""
        self._finalise()
        found = one_pass(self)
        assert isinstance(found, OnePassPosterior)
        return found

    def _by_blocks(self, X: Any, method: Callable[[OnePassPosterior, Matrix], Array]) -> Array:
        """Compute something for every row, block by block in bounded memory."""
        check_is_fitted(self, "classes_")
        X, posterior = self._check_X(X, reset=False), self._posterior()
        return by_blocks(X, lambda rows: method(posterior, rows), self.n_jobs)

    # -- predictions --------------------------------------------------------------------
    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes, otherwise one per class."""
        scores = self._by_blocks(X, OnePassPosterior.scores)
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Most probable class of every row."""
        codes = self._by_blocks(X, OnePassPosterior.point)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> Array:
        """Probability of every class, averaged over the posterior of the weights.

        The most probable class is always the one that `predict` returns. Costs features^2 per row
        for the variance of the scores.
        """
        return self._by_blocks(X, lambda found, rows: found.predictive(rows).probabilities())

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of `predict_proba` in nats, split into aleatoric and epistemic parts.

        The epistemic part, which more data would reduce, is the mutual information between the
        class and the weights, estimated with 32 draws of the scores. All rows share the random
        numbers.
        """
        check_is_fitted(self, "classes_")

        def parts(posterior: OnePassPosterior, rows: Matrix) -> Array:
            found = posterior.uncertainty(rows)
            return np.column_stack([found.total, found.aleatoric, found.epistemic])

        return Uncertainty(*np.ascontiguousarray(self._by_blocks(X, parts).T))

    def coef_covariance(self) -> Array:
        """Covariance of the coefficients of a class, in the original feature units.

        The same for every row of ``coef_``; with an intercept, that comes last. Costs features^3.
        """
        check_is_fitted(self, "classes_")
        return self._posterior().coef_covariance()
