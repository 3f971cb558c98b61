"""Checks of the input rows of the one-pass classifier, and of models that are to be merged."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Batch
from likelier.fitting.dataset import checked_rows
from likelier.fitting.extreme_cells import warn_extreme_cells
from likelier.fitting.labels import checked_labels


def check_rows(model: Any, X: Any, y: Any, sample_weight: Any, reset: bool) -> Batch:
    """Validate rows, labels and weights for training."""
    rows = Batch(*checked_rows(model, X, y, sample_weight, reset, checked_labels))
    warn_extreme_cells(model, rows.X, rows.weight)
    return rows


def fixed_parameters(model: Any) -> dict[str, Any]:
    """Parameters that define the statistics and so cannot change while these are accumulated."""
    names = ["update", "features", "fit_intercept"]
    if model.features is not None:
        names += ["n_components", "gamma"]
    return {name: getattr(model, name) for name in names}


def check_same_parameters(model: Any) -> None:
    """Raise if a parameter that defines the statistics has changed since the earlier rows."""
    for name, value in model.fixed_params_.items():
        if not np.array_equal(getattr(model, name), value):
            raise ValueError(
                f"{name} was {value!r} when the earlier rows were learned and is now "
                f"{getattr(model, name)!r}; set it back, or call fit to start again"
            )


def check_compatible(one: Any, other: Any) -> None:
    """Raise unless two models have statistics of the same features, which can be added."""
    for name in ("update", "features", "fit_intercept"):
        if getattr(one, name) != getattr(other, name):
            raise ValueError(f"other has another {name}; both models must have the same")
    same = one.map_.keys() == other.map_.keys() and all(
        np.array_equal(one.map_[key], other.map_[key]) for key in one.map_
    )
    if not same:
        raise ValueError(
            "other has different Fourier features; give both models the same random_state and a "
            "numeric gamma"
        )
