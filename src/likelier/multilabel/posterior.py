"""Posterior of a fitted `MultilabelClassifier`: combined log-odds of labels, and what they mean.

``fitted`` has the parameters and fitted attributes by their names: an estimator, or what a model
file holds.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import expit

from likelier.base import Array, Matrix, Posterior, Uncertainty
from likelier.files.declared import check_array
from likelier.fitting.probabilities import SMALLEST, class_probabilities
from likelier.losses import make_loss
from likelier.multilabel.checks import check_features, check_magnitude
from likelier.multilabel.combination import (
    MixtureScaling,
    log_odds,
    product_scores,
    use_base_rates,
)
from likelier.multilabel.declared import check_map, check_mixture, check_rates
from likelier.multilabel.distributions import DISTRIBUTIONS
from likelier.multilabel.entropy import split_entropy
from likelier.multilabel.features import FeatureMap
from likelier.multilabel.logistic import LabelWeights
from likelier.multilabel.mixture import DirichletMixture, MixtureParameters
from likelier.multilabel.variational import MixtureState
from likelier.predictive import Categorical, LabelSets

MATRIX, CLASSES = "labels", "classes"  # what the model was fitted to
CHUNK = 4096  # rows per chunk


@dataclass(frozen=True)
class CombinedPosterior(Posterior, ABC):
    """Stacked classifiers and the mixture, as arrays.

    Attributes
    ----------
    maps, weights : tuple of FeatureMap, of LabelWeights
        Feature maps, and the posterior of the labels' weights on the features of each.
    stack : array of shape (n_maps + 1,)
        Stacking weights of the classifiers and, last, of the mixture.
    mixture : tuple of MixtureState and MixtureScaling, or None
    base_rates, counts, thresholds : arrays of shape (n_labels,)
        Smoothed frequency, weight of the rows in which the label is known, and log-odds above
        which it is predicted.
    combine : {"log_odds", "product"}
    sparse_rows : bool
        Whether the model was fitted to sparse rows.
    features : str
        Distribution that the features were said to have.
    """

    maps: tuple[FeatureMap, ...]
    weights: tuple[LabelWeights, ...]
    stack: Array
    mixture: tuple[MixtureState, MixtureScaling] | None
    base_rates: Array
    counts: Array
    thresholds: Array
    combine: str
    sparse_rows: bool
    features: str

    # -- rows ---------------------------------------------------------------------------
    def check_rows(self, X: Matrix) -> None:
        check_magnitude(X, None)
        check_features(X, self.features, None)

    def scores(self, X: Matrix, with_std: bool = False) -> tuple[Array, Array]:
        """Log-odds of labels, ``(n, L)``, and their standard deviations if ``with_std``."""
        starts = range(0, max(1, X.shape[0]), CHUNK)
        parts = [self._score_chunk(X[start : start + CHUNK], with_std) for start in starts]
        scores, stds = zip(*parts, strict=True)
        return np.concatenate(scores), np.concatenate(stds)

    def decision(self, X: Matrix) -> Array:
        """Log-odds minus thresholds: a label is predicted where this is positive."""
        return self.scores(X)[0] - self.thresholds

    def _score_chunk(self, X: Matrix, with_std: bool) -> tuple[Array, Array]:
        X = match_layout(X, self.sparse_rows)
        total = np.zeros((X.shape[0], len(self.base_rates)))
        std = np.zeros_like(total)
        for g, part, weights in zip(self.stack, self.maps, self.weights, strict=False):
            if g == 0.0:
                continue
            Z = part.apply(X)
            total += g * weights.scores(Z)
            if with_std:  # maps are fitted to the same labels, so their errors are correlated
                std += g * np.sqrt(weights.variance(Z))
        if self.mixture is not None:
            if self.combine == "product":
                total = product_scores(total, self._mixture_odds(X), self.base_rates)
            elif self.stack[-1] > 0.0:
                total += self.stack[-1] * self._mixture_odds(X)
        use_base_rates(total, self.base_rates, self.counts)
        return total, std

    def _mixture_odds(self, X: Matrix) -> Array:
        assert self.mixture is not None
        state, scaling = self.mixture
        return log_odds(state.model, state.params, scaling.apply(X), self.base_rates)

    # -- what is loaded -------------------------------------------------------------------
    def _check_parts(self, n_features: int, n_labels: int) -> None:
        if self.combine not in ("log_odds", "product"):
            raise ValueError(f"combine_ is {self.combine!r}")
        if not isinstance(self.sparse_rows, bool | np.bool_):
            raise ValueError(f"sparse rows must be True or False, not {self.sparse_rows!r}")
        if len(self.maps) != len(self.weights):
            raise ValueError(f"maps_ are {len(self.maps)}, and weights_ {len(self.weights)}")
        check_rates(self.base_rates, self.counts, self.thresholds, n_labels)
        for part, weights in zip(self.maps, self.weights, strict=True):
            check_map(part, weights, n_features, n_labels)
        if self.mixture is not None:
            check_mixture(*self.mixture, n_features, n_labels)
        check_array("stack_weights_", self.stack, (len(self.maps) + 1,), low=0.0)


@dataclass(frozen=True)
class LabelSetPosterior(CombinedPosterior):
    """Of a model that was fitted to a matrix of labels."""

    label_sets: ClassVar[bool] = True

    def predictive(self, X: Matrix) -> LabelSets:
        return LabelSets(label_probability(self.scores(X)[0]))

    def point(self, X: Matrix) -> Array:
        """Indicators of the labels whose log-odds are above their thresholds."""
        return np.asarray(self.decision(X) > 0.0, dtype=np.int64)

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Entropy of each label, over the Gaussian posterior of its score."""
        scores, std = self.scores(X, with_std=True)
        return split_entropy(label_probability(scores), std)

    def check(self, n_features: int, n_classes: int | None) -> None:
        self._check_parts(n_features, n_classes or 0)


@dataclass(frozen=True)
class ExclusivePosterior(CombinedPosterior):
    """Of a model that was fitted to one class per row: a label for each class.

    Two classes have a single label, and a single class has none.
    """

    def class_scores(self, X: Matrix) -> Array:
        """Log-odds of every class, a vector for two."""
        scores = self.decision(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predictive(self, X: Matrix) -> Categorical:
        return Categorical(self._probability(self.class_scores(X)))

    def point(self, X: Matrix) -> Array:
        """Number of the class of the largest score."""
        scores = self.class_scores(X)
        if not scores.size:
            return np.zeros(X.shape[0], dtype=np.intp)
        return (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)

    def uncertainty(self, X: Matrix) -> Uncertainty:
        """Entropy of each class against all others, over the posterior of its score."""
        scores, std = self.scores(X, with_std=True)
        scores = scores - self.thresholds
        p = Categorical(
            self._probability(scores[:, 0] if scores.shape[1] == 1 else scores)
        ).probabilities()
        return split_entropy(p, np.broadcast_to(std, p.shape) if std.size else 0.0 * p)

    def check(self, n_features: int, n_classes: int | None) -> None:
        K = n_classes or 0
        self._check_parts(n_features, K - 1 if K <= 2 else K)

    @staticmethod
    def _probability(scores: Array) -> Array:
        if scores.ndim == 2 and not scores.shape[1]:
            return np.ones((len(scores), 1))
        return class_probabilities(make_loss("log_loss"), scores, {})


def label_probability(scores: Array) -> Array:
    """Probabilities of labels; none is certain."""
    return np.asarray(np.clip(expit(scores), SMALLEST, 1.0 - SMALLEST))


def match_layout(X: Matrix, sparse_rows: bool) -> Matrix:
    """Rows as dense or sparse, whichever the model was fitted to."""
    if sparse_rows and isinstance(X, np.ndarray):
        return sparse.csr_array(X)
    if not sparse_rows and not isinstance(X, np.ndarray):
        return np.asarray(X.toarray())
    return X


def write_mixture(state: MixtureState, scaling: MixtureScaling) -> dict[str, Any]:
    """The mixture and its scaling as the attribute ``mixture_``."""
    features, labels = state.model.feature_distribution, state.model.label_distribution
    return {
        "params": state.params.to_arrays(),
        "features": features.name,
        "feature_prior": features.prior,
        "labels": labels.name,
        "label_prior": labels.prior,
        "temperature": state.model.temperature,
        "step": state.step,
        "centre": scaling.centre,
        "scale": scaling.scale,
    }


def read_mixture(plain: dict[str, Any]) -> tuple[MixtureState, MixtureScaling]:
    """The mixture and its scaling from the attribute ``mixture_``."""
    params = MixtureParameters.from_arrays(plain["params"])
    model = DirichletMixture(
        DISTRIBUTIONS[plain["features"]](plain["feature_prior"]),
        DISTRIBUTIONS[plain["labels"]](plain["label_prior"]),
        params.n_components,
        plain["temperature"],
    )
    scaling = MixtureScaling(plain["centre"], plain["scale"])
    return MixtureState(model, params, plain["step"]), scaling


def classifier(fitted: Any) -> LabelSetPosterior | ExclusivePosterior:
    """Posterior of a `MultilabelClassifier`."""
    if fitted.target_kind_ not in (MATRIX, CLASSES):
        raise ValueError(f"target_kind_ is {fitted.target_kind_!r}")
    kind = LabelSetPosterior if fitted.target_kind_ == MATRIX else ExclusivePosterior
    return kind(
        tuple(FeatureMap.from_arrays(plain) for plain in fitted.maps_),
        tuple(LabelWeights.from_arrays(plain) for plain in fitted.weights_),
        fitted.stack_weights_,
        None if fitted.mixture_ is None else read_mixture(fitted.mixture_),
        fitted.base_rates_,
        fitted.label_counts_,
        fitted.thresholds_,
        fitted.combine_,
        fitted.sparse_rows_,
        fitted.features_,
    )
