"""What the one-pass classifier asks of its rows, and of a model it is to be merged with."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Batch
from likelier.fitting.dataset import checked_rows
from likelier.fitting.extreme_cells import warn_extreme_cells
from likelier.fitting.labels import checked_labels


def check_rows(model: Any, X: Any, y: Any, sample_weight: Any, reset: bool) -> Batch:
    """Rows, labels and weights that can be learned from."""
    rows = Batch(*checked_rows(model, X, y, sample_weight, reset, checked_labels))
    warn_extreme_cells(model, rows.X, rows.weight)
    return rows


def lasting_parameters(model: Any) -> dict[str, Any]:
    """The words that the sums are made with, which hence cannot change while they grow."""
    names = ["update", "features", "fit_intercept"]
    if model.features is not None:
        names += ["n_components", "gamma"]
    return {name: getattr(model, name) for name in names}


def check_same_parameters(model: Any) -> None:
    """Raise if a word was changed that the rows so far were learned with."""
    for name, value in model.words_.items():
        if not np.array_equal(getattr(model, name), value):
            raise ValueError(
                f"{name} was {value!r} when the earlier rows were learned and is now "
                f"{getattr(model, name)!r}: set it back, or start anew with fit"
            )


def check_addable(one: Any, other: Any) -> None:
    """Raise unless two models of one kind add up sums over the same features."""
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
