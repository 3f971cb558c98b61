"""Predictions, uncertainty and label patterns of `MultilabelClassifier`."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array, Matrix, Uncertainty
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.parameters import ValueParameters
from likelier.matrices import validated_rows
from likelier.multilabel.checks import check_features, check_magnitude
from likelier.multilabel.combination import MixtureScaling
from likelier.multilabel.posterior import (
    MATRIX,
    ExclusivePosterior,
    LabelSetPosterior,
    classifier,
    read_mixture,
)
from likelier.multilabel.rows import format_label, read_labels
from likelier.multilabel.variational import MixtureState

TOP = 10  # labels and features shown per pattern


class LabelPredictions(ValueParameters, ClassifierMixin, CallbackSupportMixin, BaseEstimator):
    """Predictions from the fitted parts of `MultilabelClassifier`."""

    combine_: str
    features_: str
    classes_: Array
    label_names_: Array
    thresholds_: Array
    stack_weights_: Array
    base_rates_: Array
    label_counts_: Array
    maps_: list[dict[str, Any]]
    weights_: list[dict[str, Array]]
    mixture_: dict[str, Any] | None
    target_kind_: str
    sparse_rows_: bool

    # -- rows ---------------------------------------------------------------------------
    def _check_X(self, X: Any, reset: bool) -> Matrix:
        rows = validated_rows(self, X, reset, order="C")
        kind = self._value("mixture").features if reset else self.features_
        names = getattr(self, "feature_names_in_", None)
        check_magnitude(rows, names)
        check_features(rows, kind, names)
        return rows

    def _posterior(self) -> LabelSetPosterior | ExclusivePosterior:
        check_is_fitted(self, "thresholds_")
        return classifier(self)

    def _mixture(self) -> tuple[MixtureState, MixtureScaling]:
        assert self.mixture_ is not None
        return read_mixture(self.mixture_)

    # -- predicting ---------------------------------------------------------------------
    def decision_function(self, X: Any) -> Array:
        """Log-odds of every label minus its threshold: positive where it is predicted."""
        posterior = self._posterior()
        scores = posterior.decision(self._check_X(X, reset=False))
        return scores[:, 0] if not posterior.label_sets and scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Labels of every row, 0 or 1 (or one class per row, if fitted to classes)."""
        posterior = self._posterior()
        point = posterior.point(self._check_X(X, reset=False))
        return point if posterior.label_sets else np.asarray(self.classes_[point])

    def predict_proba(self, X: Any) -> Array:
        """Probability of every label, ``(n, L)``; probabilities of classes sum to one."""
        return self._posterior().predictive(self._check_X(X, reset=False)).probabilities()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Fraction of rows with all labels predicted correctly; all labels must be known."""
        check_is_fitted(self, "thresholds_")
        if self.target_kind_ == MATRIX and np.ndim(y) == 2:
            labels = read_labels(y, kind=MATRIX)
            unknown = np.isnan(labels.Y)
            if unknown.any():
                row, column = (int(index[0]) for index in np.nonzero(unknown))
                label = format_label(labels.names[column])
                raise ValueError(
                    f"score requires known labels, but row {row} of label {label} is NaN. "
                    "Remove such rows, or compare predict(X) with y where y is known"
                )
            y = labels.reorder(self.label_names_).Y.astype(np.int64)
        return float(super().score(X, y, sample_weight))

    def predict_topk(self, X: Any, k: int = 5) -> tuple[Array, Array]:
        """Names of the ``k`` most probable labels of every row, and their probabilities.

        Parameters
        ----------
        X : array-like or CSR matrix of shape (n_samples, n_features)
            Rows.
        k : int
            Number of labels, capped at the number of all labels.

        Returns
        -------
        names, probabilities : arrays of shape (n_samples, k)
            Most probable first.
        """
        given: Any = k
        if isinstance(given, bool) or not isinstance(given, Integral):
            raise TypeError(f"k must be an integer, got {k!r}")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k!r}")
        p = self.predict_proba(X)
        names = self.label_names_ if self.target_kind_ == MATRIX else self.classes_
        order = np.argsort(-p, axis=1, kind="stable")[:, : int(k)]
        return np.asarray(names)[order], np.take_along_axis(p, order, axis=1)

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of every label in nats, arrays of the shape of `predict_proba`.

        ``total`` is the entropy of the predicted probability (for a class: against all others).
        ``epistemic`` is the part due to uncertain classifier weights: the score of a label is
        Gaussian, and the entropy is averaged over it by quadrature.
        """
        return self._posterior().uncertainty(self._check_X(X, reset=False))

    # -- inspection ----------------------------------------------------------------------
    @property
    def label_patterns_(self) -> list[dict[str, Any]]:
        """Patterns of labels, most frequent first.

        Each is a dictionary: ``weight``, its fraction of the rows; ``labels``, pairs of a label and
        its probability; ``features``, pairs of a feature and its deviation from the average (a
        difference in standard deviations for real features, a ratio for counts and binary
        features).
        """
        check_is_fitted(self, "thresholds_")
        if self.mixture_ is None:
            return []
        state, _ = self._mixture()
        weight = state.params.expected_weights()
        table = state.model.label_table(state.params, float(self.base_rates_.sum()))
        lift, rank = _feature_lift(state, weight)
        names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_))
        return [
            {
                "weight": float(weight[k]),
                "labels": _top(self.label_names_, table[k], table[k]),
                "features": _top(names, lift[k], rank[k]),
            }
            for k in np.argsort(-weight, kind="stable")
        ]


def _feature_lift(state: MixtureState, weight: Array) -> tuple[Array, Array]:
    """Deviation of the features of every component from the average, and their rank."""
    mean = state.model.feature_distribution.mean(state.params.features)
    average = weight @ mean
    if state.model.feature_distribution.name == "gaussian":
        return mean - average, abs(mean - average)
    ratio = mean / np.maximum(average, 1e-300)
    return ratio, mean * np.log(np.maximum(ratio, 1e-300))


def _top(names: Any, values: Array, rank: Array) -> list[tuple[Any, float]]:
    order = np.argsort(-rank, kind="stable")[:TOP]
    return [(names[j], float(values[j])) for j in order]
