"""Validation of labels and rows for `MultilabelClassifier`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils._missing import is_pandas_na
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    column_or_1d,
)

from likelier.base import Array, Matrix
from likelier.engines.rows import take_rows
from likelier.matrices import checked_matrix, checked_weight, refuse_complex
from likelier.multilabel.posterior import CLASSES, MATRIX

BINARIZER_HINT = "Convert lists or sets of labels with sklearn.preprocessing.MultiLabelBinarizer"
HASH_CELLS = 1 << 20  # values hashed at once


@dataclass(frozen=True)
class Labels:
    """A label matrix ``(n, L)`` of 0, 1 and NaN, and the names of its columns.

    ``kind`` says whether the input was a matrix or one class per row (then there is a column per
    class, or a single one for the second of two). ``named`` says whether the names are the columns
    of a frame.
    """

    Y: Array
    names: Array
    classes: Array
    kind: str
    named: bool = False

    def reorder(self, names: Array) -> Labels:
        """The same labels in the order of the given names.

        Unnamed labels are matched by position, and so is everything if the given names are only
        column numbers that the new names do not match.
        """
        own, known = [str(name) for name in self.names], [str(name) for name in names]
        if not self.named or own == known:
            return self
        if len(set(own)) == len(own) and set(own) == set(known):
            order = [own.index(name) for name in known]
            return replace(self, Y=np.ascontiguousarray(self.Y[:, order]), names=names)
        if np.array_equal(names, np.arange(len(own))):
            return self
        raise ValueError(
            f"the columns of y must be the labels of the first call, {known}, in any order; "
            f"got {own}. Rename the columns, or pass an array to match them by position"
        )


def read_labels(y: Any, classes: Any = None, kind: str | None = None) -> Labels:
    """Labels from a matrix (dense, sparse, a frame, nested lists) or one class per row.

    ``classes`` are the known classes, for one class per row; ``kind`` is the kind of the labels of
    the first call, which decides how a single column is read. Without it, a frame's column of 0 and
    1 is a label, and any other column holds classes.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    given = checked_matrix(y, "y")
    names = _column_names(y)
    values = np.asarray(given.toarray()) if sparse.issparse(y) else _to_array(y)
    refuse_complex(values)
    if values.ndim == 2 and kind is None:
        classes_only = _is_column(values) and (names is None or not _is_binary(values))
        kind = CLASSES if classes_only else MATRIX
    if values.ndim == 2 and (kind == MATRIX or values.shape[1] != 1):
        return _label_matrix(values, names)
    if values.dtype.kind == "f":
        assert_all_finite(values, input_name="y")
    missing = _is_missing(values)
    if missing.any():
        row = int(np.nonzero(missing)[0][0])
        raise ValueError(f"y has no class in row {row}; remove rows without a class")
    _check_single(values)
    return _class_columns(column_or_1d(values, warn=True), classes)


def _column_names(y: Any) -> list[Any] | None:
    """Names of a frame's columns: integers if all of them are, otherwise strings."""
    if not hasattr(y, "columns"):
        return None
    names = list(y.columns)
    if all(isinstance(name, Integral) and not isinstance(name, bool) for name in names):
        numbers = [int(name) for name in names]
        if all(-(2**63) <= number < 2**63 for number in numbers):
            return numbers
    return [str(name) for name in names]


def format_label(name: Any) -> str:
    """Name of a label as shown in messages."""
    return repr(name if isinstance(name, str) else int(name))


def _to_array(y: Any) -> Array:
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    try:
        return np.asarray(y)
    except ValueError:
        raise ValueError(
            f"y must be a matrix of 0 and 1, or hold one class per row. {BINARIZER_HINT}"
        ) from None


def _check_single(values: Array) -> None:
    """Raise if rows hold collections of labels instead of a class."""
    if values.dtype != object:
        return
    for row, value in enumerate(values.ravel()):
        if isinstance(value, (set, frozenset, list, tuple, dict, np.ndarray)):
            raise ValueError(
                f"row {row} of y is a {type(value).__name__} instead of a class. {BINARIZER_HINT}"
            )


def _is_binary(values: Array) -> bool:
    """Whether all values are 0 or 1."""
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return values.dtype.kind not in "US" and bool(((numbers == 0.0) | (numbers == 1.0)).all())


def _is_column(values: Array) -> bool:
    """Whether a matrix is one class per row; with a NaN it is a column of labels."""
    if values.shape[1] != 1:
        return False
    if values.dtype.kind == "f":
        return not np.isnan(values).any()
    return not _is_missing(values).any()


def _is_missing(values: Array) -> Array:
    """Mask of None and missing values of nullable columns."""
    if values.dtype != object:
        return np.zeros(values.shape, dtype=bool)
    mask = np.frompyfunc(lambda value: value is None or is_pandas_na(value), 1, 1)(values)
    return np.asarray(mask, dtype=bool)


def _label_matrix(values: Array, names: list[Any] | None) -> Labels:
    try:
        Y = np.where(_is_missing(values), np.nan, values).astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(_wrong_value(values, names)) from None
    if Y.shape[1] == 0:
        raise ValueError("Y must have at least one label (column)")
    wrong = ~(np.isnan(Y) | (Y == 0.0) | (Y == 1.0))
    if wrong.any():
        row, column = (int(index[0]) for index in np.nonzero(wrong))
        label = column if names is None else repr(names[column])
        raise ValueError(
            f"Y must contain only 0, 1 or NaN (unknown); row {row} of label {label} is "
            f"{Y[row, column]:g}. Unknown label type: matrix of other values"
        )
    return Labels(Y, _name_array(names, Y.shape[1]), np.array([0, 1]), MATRIX, names is not None)


def _name_array(names: list[Any] | None, n_labels: int) -> Array:
    """Names of labels as an array: integers, also if there are no names, or strings."""
    if names is None:
        return np.arange(n_labels)
    strings = any(isinstance(name, str) for name in names)
    return np.array(names, dtype=object if strings else np.int64)


def _wrong_value(values: Array, names: list[Any] | None) -> str:
    """Message about labels that are not numbers."""
    for column in range(values.shape[1]):
        for row, value in enumerate(values[:, column]):
            try:
                float(np.nan if _is_missing(np.array([value], dtype=object))[0] else value)
            except (TypeError, ValueError):
                label = column if names is None else repr(names[column])
                return (
                    f"Y must contain only 0, 1 or NaN (unknown); row {row} of label {label} is "
                    f"{value!r}. Encode the column as 0 and 1 with Y[column] == value or "
                    "sklearn.preprocessing.OneHotEncoder, or drop it"
                )
    return "Y must contain only 0, 1 or NaN (unknown); it contains other values"


def _class_columns(y: Array, classes: Any) -> Labels:
    check_classification_targets(y)
    present = np.unique(y)
    known = present if classes is None else np.unique(np.asarray(classes))
    if not np.isin(present, known).all():
        unknown = present[~np.isin(present, known)][0]
        raise ValueError(
            f"y contains the class {unknown!r}, which was not in the first call; "
            "pass all classes to the first call, partial_fit(..., classes=...)"
        )
    columns = known[1:] if len(known) <= 2 else known
    Y = (y[:, None] == columns[None]).astype(np.float64)
    return Labels(Y, columns, known, CLASSES)


@dataclass(frozen=True)
class Rows:
    """Distinct rows in a canonical order, with labels and weights.

    Equal rows with equal labels are merged and their weights added, and the order depends on the
    values only, but not on labels that are the same in every row. So neither the order of the data,
    nor whether a row is repeated or has twice the weight, nor a constant label, makes a difference.
    ``group`` identifies rows of equal features.
    """

    X: Matrix
    Y: Array
    weight: Array
    group: Array


def distinct_rows(X: Matrix, Y: Array, sample_weight: Any, seed: int) -> Rows:
    """Rows of positive weight, merged and ordered by a hash of their values."""
    check_consistent_length(X, Y)
    weight = np.ones(len(Y))
    if sample_weight is not None:
        weight = checked_weight(sample_weight, X)
    rng = np.random.default_rng([seed, 5])
    present = np.flatnonzero(weight > 0.0)
    if not len(present):
        raise ValueError("sample_weight must be positive for at least one row")
    features = _hashes(X, rng)
    labels = _varying_columns(np.where(Y == Y, Y, -1.0), present)
    keys = features * np.uint64(0x9E3779B97F4A7C15) + _hashes(labels, rng)
    _, first, group = np.unique(keys[present], return_index=True, return_inverse=True)
    rows = present[first]
    merged = np.bincount(group, weights=weight[present])
    return Rows(take_rows(X, rows), np.ascontiguousarray(Y[rows]), merged, features[rows])


def _varying_columns(values: Array, rows: Array) -> Array:
    """The columns that are not the same in all of the listed rows."""
    varying = (values != values[rows[0]])[rows].any(axis=0)
    return values if varying.all() else values[:, varying]


def known_counts(Y: Array, weight: Array) -> Array:
    """Weight of the rows in which each label is known."""
    return np.asarray(weight @ np.isfinite(Y))


def check_known(Y: Array, names: Array) -> None:
    """Raise if no label is known; warn about labels without a known value."""
    known = np.isfinite(Y).any(axis=0)
    if known.all():
        return
    if not known.any():
        raise ValueError("Y has no known label: every value is NaN or has a sample_weight of 0")
    unknown = [format_label(name) for name in names[~known]]
    which = f"label {unknown[0]} has"
    if len(unknown) > 1:
        which = f"labels {', '.join(unknown[:5])}{', ...' * (len(unknown) > 5)} have"
    warnings.warn(
        f"{which} no known value in Y: its probability will be 0.5 and it is never predicted",
        UserWarning, stacklevel=4,
    )  # fmt: skip


def _hashes(X: Matrix, rng: np.random.Generator) -> Array:
    """A hash of every row; the same for dense and sparse rows of the same values."""
    drawn: Any = rng.integers(1 << 62, size=X.shape[1], dtype=np.uint64)
    factors = np.asarray(
        2 * drawn + 1, dtype=np.uint64
    )  # multiplication by odd numbers is bijective
    if not isinstance(X, np.ndarray):
        mixed = np.append(_mix_bits(X.data) * factors[X.indices], np.uint64(0))
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed[:-1])])
        return np.asarray(sums[X.indptr[1:]] - sums[X.indptr[:-1]])
    out = np.empty(len(X), dtype=np.uint64)
    step = max(1, HASH_CELLS // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        part = _mix_bits(np.ascontiguousarray(X[start : start + step]))
        out[start : start + step] = (part * factors).sum(axis=1, dtype=np.uint64)
    return out


def _mix_bits(values: Any) -> Array:
    """Bits of floats, mixed; zero stays zero."""
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.asarray(bits ^ (bits >> np.uint64(29)))
