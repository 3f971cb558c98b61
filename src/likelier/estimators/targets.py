"""Targets and weights as the models take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from likelier.base import Array


def class_codes(classes: Array, y: Array) -> Array:
    """Number of each label in the sorted ``classes``; unknown labels are an error."""
    codes = np.searchsorted(classes, y)
    codes = np.minimum(codes, len(classes) - 1)
    wrong = classes[codes] != y
    if wrong.any():
        raise ValueError(f"y holds {y[wrong][0]!r}, which is not one of the classes {classes!r}")
    return np.asarray(codes, dtype=np.float64)


def lane_codes(codes: Array, n_outputs: int) -> Array:
    """Class numbers as the lanes see them.

    With one lane for two classes, that lane (number 0) is positive for the second class.
    """
    return 1.0 - codes if n_outputs == 1 else codes


def class_weights(
    class_weight: Mapping[Any, float] | str | None, classes: Array, codes: Array
) -> Array | None:
    """Weight of every class, or None where all are one."""
    if class_weight is None:
        return None
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in classes]
        if unknown:
            raise ValueError(f"class_weight names {unknown}, not among the classes {classes!r}")
    elif class_weight != "balanced":
        raise ValueError(
            f'class_weight must be None, "balanced" or a dict of weights, got {class_weight!r}'
        )
    labels = classes[codes.astype(np.intp)]
    return np.asarray(compute_class_weight(class_weight, classes=classes, y=labels))


def combine_weights(
    sample_weight: Array | None, per_class: Array | None, codes: Array
) -> Array | None:
    """Product of the weights of rows and of their classes."""
    if per_class is None:
        return sample_weight
    of_rows = per_class[codes.astype(np.intp)]
    return of_rows if sample_weight is None else sample_weight * of_rows
