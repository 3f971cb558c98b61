"""What the one-pass classifier asks of its rows, and of a model it is to be merged with."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    column_or_1d,
)

from likelier.base import Batch
from likelier.estimators.naive_bayes_data import check_labels


def check_rows(model: Any, X: Any, y: Any, sample_weight: Any, reset: bool) -> Batch:
    """Rows, labels and weights that can be learned from."""
    X = model._check_X(X, reset=reset)
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    y = check_labels(column_or_1d(y, warn=True))
    check_consistent_length(X, y)
    if sample_weight is None:
        return Batch(X, y)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    return Batch(X, y, weight)


def check_mergeable(one: Any, other: Any) -> None:
    """Raise unless two models add up sums over the same features."""
    if other.n_features_in_ != one.n_features_in_:
        raise ValueError(
            f"other has {other.n_features_in_} features and this model {one.n_features_in_}; "
            "only models of the same columns can be merged"
        )
    names = [getattr(m, "feature_names_in_", None) for m in (one, other)]
    if names[0] is not None and names[1] is not None and list(names[0]) != list(names[1]):
        raise ValueError("other has columns of other names, or in another order")
    for word in ("update", "features", "fit_intercept"):
        if getattr(one, word) != getattr(other, word):
            raise ValueError(f"other was made with another {word}; it must be the same")
    same = one.map_.keys() == other.map_.keys() and all(
        np.array_equal(one.map_[key], other.map_[key]) for key in one.map_
    )
    if not same:
        raise ValueError(
            "other has other Fourier features: give both models the same random_state and a "
            "number as gamma"
        )
