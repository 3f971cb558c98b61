"""Targets and weights as the models take them."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from likelier.base import Array

FEW_LABELS = 1024  # whole numbers so close together are looked up in a table
LARGEST_WHOLE = 2.0**53  # floats up to here tell every whole number from the next


def whole_labels(y: Array) -> tuple[Array, int] | None:
    """Labels as offsets from the smallest, if all are whole numbers not far apart; else None.

    Such labels need neither sorting nor searching: two sweeps over them tell everything.
    """
    if not len(y) or y.dtype.kind not in "iubf":
        return None
    low, high = y.min(), y.max()
    if y.dtype.kind == "f" and not (low >= -LARGEST_WHOLE and high <= LARGEST_WHOLE):
        return None  # also where one is NaN
    first, last = int(low), int(high)
    if last - first >= FEW_LABELS:
        return None
    if y.dtype.kind == "u":  # may be too large for a signed number, the difference is not
        return (y - low).astype(np.intp), first
    whole = y.astype(np.intp, copy=False)
    if y.dtype.kind == "f" and not (whole == y).all():
        return None
    return (whole - first if first else whole), first


def _labels_at(offsets: Array, first: int, dtype: np.dtype[Any]) -> Array:
    """Labels by their offsets from the first, counted in Python: none is too large."""
    return np.array([first + offset for offset in offsets.tolist()], dtype=dtype)


def check_labels(y: Array) -> None:
    """Raise unless ``y`` can be class labels; whole numbers are known to be without sorting."""
    check_no_missing_label(y)
    whole = whole_labels(y)
    if whole is not None and len(y) >= 2 * FEW_LABELS:
        return  # there cannot be so many different ones that they look like measurements
    if whole is None or 2 * np.count_nonzero(np.bincount(whole[0])) > len(y):
        check_classification_targets(y)


def check_no_missing_label(y: Array) -> None:
    """Raise where a label of an object array is None, NaN or NA, which no sorting can place."""
    if y.dtype.kind != "O":
        return
    missing = [row for row, label in enumerate(y.tolist()) if _is_missing(label)]
    if missing:
        raise ValueError(
            f"y holds {len(missing)} missing labels (None or NaN), the first in row {missing[0]}: "
            "leave such rows out, or give them a label of their own"
        )


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)  # as only NaN is
    except TypeError:  # NA of pandas, which does not say
        return True


def unique_labels(y: Array) -> Array:
    """Sorted distinct labels."""
    whole = whole_labels(y)
    if whole is None:
        return np.unique(y)
    offsets, low = whole
    return _labels_at(np.flatnonzero(np.bincount(offsets)), low, y.dtype)


def encoded_labels(y: Array) -> tuple[Array, Array]:
    """Sorted distinct labels, and the number of every row's among them."""
    whole = whole_labels(y)
    if whole is None:
        classes = np.unique(y)
        return classes, _searched(classes, y)
    offsets, low = whole
    present = np.bincount(offsets) > 0
    table = np.cumsum(present) - 1.0
    return _labels_at(np.flatnonzero(present), low, y.dtype), table.take(offsets, mode="clip")


def union_classes(known: Any, labels: Any) -> Array:
    """Sorted union of classes; text and numbers are not mixed, 1 and "1" being what they are."""
    known, labels = np.asarray(known), np.asarray(labels)
    if known.size and labels.size and _is_text(known) != _is_text(labels):
        kinds = ("text", "numbers") if _is_text(labels) else ("numbers", "text")
        raise ValueError(
            f"y holds {kinds[0]} ({labels.ravel()[0]!r}) where the classes known so far are "
            f"{kinds[1]} ({known.ravel()[0]!r}); give labels of one kind"
        )
    return np.union1d(known, labels)


def _is_text(labels: Array) -> bool:
    return labels.dtype.kind in "US" or isinstance(labels.ravel()[0], str)


def class_codes(classes: Array, y: Array) -> Array:
    """Number of each label in the sorted ``classes``; unknown labels are an error."""
    whole = whole_labels(y)
    if whole is not None and classes.dtype == y.dtype:
        offsets, low = whole
        distinct = np.flatnonzero(np.bincount(offsets))
        table = np.zeros(int(distinct[-1]) + 1)
        table[distinct] = _searched(classes, _labels_at(distinct, low, y.dtype))
        return np.asarray(table[offsets])
    return _searched(classes, y)


def _searched(classes: Array, y: Array) -> Array:
    codes = np.searchsorted(classes, y)
    codes = np.minimum(codes, len(classes) - 1)
    wrong = classes[codes] != y
    if wrong.any():
        raise ValueError(f"y holds {y[wrong][0]!r}, which is not one of the classes {classes!r}")
    return np.asarray(codes, dtype=np.float64)


def output_codes(codes: Array, n_outputs: int, out: Array | None = None) -> Array:
    """Class numbers as the outputs see them, written to ``out`` where they are other ones.

    With one output for two classes, that output (number 0) is positive for the second class.
    """
    return np.asarray(np.subtract(1.0, codes, out=out)) if n_outputs == 1 else codes


class OneClassError(ValueError):
    """Raised where there is nothing to tell apart."""

    def __init__(self, classes: Array) -> None:
        super().__init__("y needs at least two classes to tell apart; the data hold 1 class")
        self.classes = classes


def require_two_classes(classes: Array) -> Array:
    """Return the classes, or raise where there is nothing to tell apart."""
    if len(classes) < 2:
        raise OneClassError(classes)
    return classes


def class_weights(
    class_weight: Mapping[Any, float] | str | None,
    classes: Array,
    codes: Array,
    sample_weight: Array | None = None,
) -> Array | None:
    """Weight of every class, or None where all are one.

    With ``sample_weight``, "balanced" counts as many rows as the weights say: equal rows are
    then equal to one row of their weight. As in scikit-learn, a dict may name classes that the
    rows do not have, such as those of a fold without a rare class, if it names all they have.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced" and sample_weight is not None:
        return balanced_weights(np.bincount(codes.astype(np.intp), sample_weight, len(classes)))
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in classes]
        left_out = [label for label in classes.tolist() if label not in class_weight]
        if unknown and left_out:  # most likely one is meant to be the other
            raise ValueError(
                f"class_weight names {unknown}, not among the classes {classes!r}, and has no "
                f"weight for {left_out}"
            )
        check_class_weight(class_weight)
    elif class_weight != "balanced":
        raise ValueError(
            f'class_weight must be None, "balanced" or a dict of weights, got {class_weight!r}'
        )
    labels = classes[codes.astype(np.intp)]
    return np.asarray(compute_class_weight(class_weight, classes=classes, y=labels))


def balanced_weights(counts: Array) -> Array:
    """Weights that make classes count alike; one of which no row weighs anything has none."""
    there = counts > 0.0
    equal = counts.sum() / np.count_nonzero(there)
    return np.asarray(np.divide(equal, counts, out=np.zeros(len(counts)), where=there))


def check_class_weight(class_weight: Any) -> None:
    """Raise unless every weight of a dict is a number that rows can be multiplied by."""
    if not isinstance(class_weight, Mapping):
        return
    for label, value in class_weight.items():
        if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
            raise TypeError(f"class_weight[{label!r}] must be a number, got {value!r}")
        if not 0.0 <= float(value) < np.inf:
            raise ValueError(f"class_weight[{label!r}] must be finite and >= 0, got {value!r}")


def combine_weights(
    sample_weight: Array | None, per_class: Array | None, codes: Array
) -> Array | None:
    """Product of the weights of rows and of their classes."""
    if per_class is None:
        return sample_weight
    of_rows = per_class[codes.astype(np.intp)]
    return of_rows if sample_weight is None else sample_weight * of_rows
