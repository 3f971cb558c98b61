"""Labels of rows that come in batches: sorted classes that may grow, and class numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from likelier.base import Array
from likelier.fitting.targets import check_no_missing_label, union_classes

MAX_RANGE = 1 << 16  # of integer labels that are looked up instead of sorted


def encode_labels(y: Array) -> tuple[Array, Array]:
    """Sorted classes and the number of each label among them.

    Integers of a small range are looked up in a table; anything else is sorted.
    """
    if y.dtype.kind in "iu" and len(y):
        low, high = int(y.min()), int(y.max())
        if high - low < MAX_RANGE:
            present = np.zeros(high - low + 1, dtype=np.intp)
            # a small signed type must not wrap around when the smallest label is taken off, and an
            # unsigned one may be too large for a signed number: their difference is not
            places = (y - y.min()).astype(np.intp) if y.dtype.kind == "u" else y
            if low and y.dtype.kind == "i":
                places = y.astype(np.int64) - low
            present[places] = 1
            found = np.flatnonzero(present).tolist()
            classes = np.array([low + place for place in found], dtype=y.dtype)
            return classes, (np.cumsum(present) - 1)[places]
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes.astype(np.intp)


def checked_labels(y: Array) -> Array:
    """Raise unless these are labels of classes."""
    check_no_missing_label(y)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    if y.dtype.kind not in "iubUS":  # which cannot be anything else
        check_classification_targets(y)
    return y


def join_classes(known: Array | None, classes: Any, labels: Array) -> Array:
    """Sorted union of the classes known, those announced and those of a batch."""
    joined = (
        labels if classes is None else union_classes(checked_labels(np.asarray(classes)), labels)
    )
    return joined if known is None else union_classes(known, joined)
