"""Labels and rows as `MultilabelClassifier` takes them."""

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

MATRIX, CLASSES = "labels", "classes"
SEVERAL = "Lists or sets of labels are made a matrix by sklearn.preprocessing.MultiLabelBinarizer"
LARGEST = 1e153  # value of a feature, beyond which sums of squares may overflow
HASH_CELLS = 1 << 20  # values whose hashes are made at once


@dataclass(frozen=True)
class Labels:
    """A label matrix ``(n, L)`` of 0, 1 and NaN; what its columns are called.

    ``kind`` says whether a matrix was given, or one class per row (then there is a column per
    class, or a single one for the second of two). ``named`` says whether the names are those of
    a frame.
    """

    Y: Array
    names: Array
    classes: Array
    kind: str
    named: bool = False

    def in_order_of(self, names: Array) -> Labels:
        """The same labels in the order of names that are known already.

        Labels without names are taken by their place; so is everything if only numbers are
        known and these are not the names.
        """
        mine, known = [str(name) for name in self.names], [str(name) for name in names]
        if not self.named or mine == known:
            return self
        if len(set(mine)) == len(mine) and set(mine) == set(known):
            order = [mine.index(name) for name in known]
            return replace(self, Y=np.ascontiguousarray(self.Y[:, order]), names=names)
        if np.array_equal(names, np.arange(len(mine))):
            return self
        raise ValueError(
            f"the columns of y must be the labels of the first call, {known}, in any order; "
            f"got {mine}. Rename the columns, or pass an array to take them by place"
        )


def read_labels(y: Any, classes: Any = None, kind: str | None = None) -> Labels:
    """Labels from a matrix (dense, sparse, a frame, nested lists) or one class per row.

    ``classes`` are those known already, for one class per row; ``kind`` is that of the labels
    known already, which decides about a matrix of one column. Otherwise a frame's column of 0 and
    1 is a label, and any other one holds classes.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    given = checked_matrix(y, "y")
    names = _column_names(y)
    values = np.asarray(given.toarray()) if sparse.issparse(y) else _plain(y)
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
        raise ValueError(f"y holds no class in row {row}; leave out rows without a class")
    _check_single(values)
    return _class_columns(column_or_1d(values, warn=True), classes)


def _column_names(y: Any) -> list[Any] | None:
    """Names of a frame's columns: whole numbers if all of them are, else words."""
    if not hasattr(y, "columns"):
        return None
    names = list(y.columns)
    if all(isinstance(name, Integral) and not isinstance(name, bool) for name in names):
        numbers = [int(name) for name in names]
        if all(-(2**63) <= number < 2**63 for number in numbers):
            return numbers
    return [str(name) for name in names]


def label_word(name: Any) -> str:
    """Name of a label as messages show it."""
    return repr(name if isinstance(name, str) else int(name))


def _plain(y: Any) -> Array:
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    try:
        return np.asarray(y)
    except ValueError:
        raise ValueError(
            f"y must be a matrix of 0 and 1, or hold one class per row. {SEVERAL}"
        ) from None


def _check_single(values: Array) -> None:
    """Raise if rows hold collections of labels instead of a class."""
    if values.dtype != object:
        return
    for row, value in enumerate(values.ravel()):
        if isinstance(value, (set, frozenset, list, tuple, dict, np.ndarray)):
            raise ValueError(
                f"row {row} of y holds a {type(value).__name__} instead of a class. {SEVERAL}"
            )


def _is_binary(values: Array) -> bool:
    """Whether a table holds nothing but 0 and 1."""
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return values.dtype.kind not in "US" and bool(((numbers == 0.0) | (numbers == 1.0)).all())


def _is_column(values: Array) -> bool:
    """Whether a matrix is one class per row in disguise; a NaN says that it is labels."""
    if values.shape[1] != 1:
        return False
    if values.dtype.kind == "f":
        return not np.isnan(values).any()
    return not _is_missing(values).any()


def _is_missing(values: Array) -> Array:
    """Where a table of objects has holes: None, or what nullable columns of pandas have there."""
    if values.dtype != object:
        return np.zeros(values.shape, dtype=bool)
    found = np.frompyfunc(lambda value: value is None or is_pandas_na(value), 1, 1)(values)
    return np.asarray(found, dtype=bool)


def _label_matrix(values: Array, names: list[Any] | None) -> Labels:
    try:
        Y = np.where(_is_missing(values), np.nan, values).astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(_wrong_value(values, names)) from None
    if Y.shape[1] == 0:
        raise ValueError("Y must have at least one label (column)")
    wrong = ~(np.isnan(Y) | (Y == 0.0) | (Y == 1.0))
    if wrong.any():
        row, column = (int(place[0]) for place in np.nonzero(wrong))
        label = column if names is None else repr(names[column])
        raise ValueError(
            f"Y must hold 0, 1 or NaN (unknown); row {row} of label {label} holds "
            f"{Y[row, column]:g}. Unknown label type: a matrix of other numbers"
        )
    return Labels(Y, _called(names, Y.shape[1]), np.array([0, 1]), MATRIX, names is not None)


def _called(names: list[Any] | None, n_labels: int) -> Array:
    """Names of labels as an array: of whole numbers, also where there are none, or of words."""
    if names is None:
        return np.arange(n_labels)
    words = any(isinstance(name, str) for name in names)
    return np.array(names, dtype=object if words else np.int64)


def _wrong_value(values: Array, names: list[Any] | None) -> str:
    """What is wrong with labels that are no numbers, and what to do."""
    for column in range(values.shape[1]):
        for row, value in enumerate(values[:, column]):
            try:
                float(np.nan if _is_missing(np.array([value], dtype=object))[0] else value)
            except (TypeError, ValueError):
                label = column if names is None else repr(names[column])
                return (
                    f"Y must hold 0, 1 or NaN (unknown); row {row} of label {label} holds "
                    f"{value!r}. Make the column 0 and 1, by Y[column] == value, or leave it out; "
                    "a column of classes may be spread by sklearn.preprocessing.OneHotEncoder"
                )
    return "Y must hold 0, 1 or NaN (unknown); it holds other things"


def _class_columns(y: Array, classes: Any) -> Labels:
    check_classification_targets(y)
    found = np.unique(y)
    known = found if classes is None else np.unique(np.asarray(classes))
    if not np.isin(found, known).all():
        strange = found[~np.isin(found, known)][0]
        raise ValueError(
            f"y holds the class {strange!r}, which was not among the first classes; "
            "announce all of them by partial_fit(..., classes=...)"
        )
    columns = known[1:] if len(known) <= 2 else known
    Y = (y[:, None] == columns[None]).astype(np.float64)
    return Labels(Y, columns, known, CLASSES)


@dataclass(frozen=True)
class Rows:
    """Distinct rows in an order of their own, with labels and weights.

    Equal rows with equal labels are one row with the sum of their weights, and the order
    follows from the rows themselves. So neither the order of the data, nor whether a row is
    repeated or has twice the weight, makes any difference. ``group`` is the same number for rows
    of equal features.
    """

    X: Matrix
    Y: Array
    weight: Array
    group: Array


def distinct_rows(X: Matrix, Y: Array, sample_weight: Any, seed: int) -> Rows:
    """Rows of positive weight, merged and ordered by a hash of what they hold."""
    check_consistent_length(X, Y)
    weight = np.ones(len(Y))
    if sample_weight is not None:
        weight = checked_weight(sample_weight, X)
    rng = np.random.default_rng([seed, 5])
    features = _hashes(X, rng)
    keys = features * np.uint64(0x9E3779B97F4A7C15) + _hashes(np.where(Y == Y, Y, -1.0), rng)
    present = np.flatnonzero(weight > 0.0)
    if not len(present):
        raise ValueError("sample_weight must be positive for at least one row")
    _, first, group = np.unique(keys[present], return_index=True, return_inverse=True)
    rows = present[first]
    merged = np.bincount(group, weights=weight[present])
    return Rows(take_rows(X, rows), np.ascontiguousarray(Y[rows]), merged, features[rows])


def known_counts(Y: Array, weight: Array) -> Array:
    """Weight of the rows in which each label is known."""
    return np.asarray(weight @ np.isfinite(Y))


def check_known(Y: Array, names: Array) -> None:
    """Raise if no label is known, and warn of columns of which nothing is."""
    known = np.isfinite(Y).any(axis=0)
    if known.all():
        return
    if not known.any():
        raise ValueError(
            "Y holds no known label: every value is NaN, or its row has a sample_weight of 0"
        )
    lost = [label_word(name) for name in names[~known]]
    which = f"label {lost[0]} has"
    if len(lost) > 1:
        which = f"labels {', '.join(lost[:5])}{', ...' * (len(lost) > 5)} have"
    warnings.warn(
        f"{which} no known value in Y: its probability will be 0.5 and it is never predicted",
        UserWarning, stacklevel=4,
    )  # fmt: skip


def check_features(X: Matrix, law: str, names: Array | None, guessed: bool = False) -> None:
    """Raise unless all features can have the law.

    Parameters
    ----------
    X : array or CSR matrix
        Rows.
    law : str
        "bernoulli" takes 0 and 1, "multinomial" nothing negative, any other law everything.
    names : array or None
        Names of the columns.
    guessed : bool
        Whether the law was found in the first rows instead of being told.
    """
    if law not in ("bernoulli", "multinomial"):
        return
    values: Any = X if isinstance(X, np.ndarray) else X.data
    wrong = values < 0 if law == "multinomial" else (values != 0) & (values != 1)
    if not wrong.any():
        return
    column, value = _first_wrong(X, wrong, names)
    wanted = "0 or 1" if law == "bernoulli" else "counts, none of them negative"
    told = f"features='auto' has chosen '{law}', which" if guessed else f"features='{law}'"
    raise ValueError(
        f"{told} needs {wanted}; column {column} holds {value:g}. Make the values so before, or "
        "use features='gaussian' from the start"
    )


def check_size(X: Matrix, names: Array | None) -> None:
    """Raise if a column is too large to have a spread: squares would overflow, and it be lost."""
    values: Any = X if isinstance(X, np.ndarray) else X.data
    wrong = np.abs(values) > np.float64(LARGEST)  # which single precision cannot hold
    if wrong.any():
        column, value = _first_wrong(X, wrong, names)
        raise ValueError(
            f"column {column} of X holds {value:g}, too large to be squared; rescale the column"
        )


def _first_wrong(X: Matrix, wrong: Array, names: Array | None) -> tuple[str, float]:
    """Name of the first column in which a value is wrong, and that value."""
    if isinstance(X, np.ndarray):
        column = int(wrong.any(axis=0).argmax())
        value = X[wrong[:, column].argmax(), column]
    else:
        rows: Any = X
        column = int(rows.indices[wrong].min())
        value = rows.data[wrong & (rows.indices == column)][0]
    return str(column) if names is None else repr(names[column]), float(value)


def _hashes(X: Matrix, rng: np.random.Generator) -> Array:
    """A number for every row; the same for a dense and a sparse row of the same values."""
    drawn: Any = rng.integers(1 << 62, size=X.shape[1], dtype=np.uint64)
    factors = np.asarray(2 * drawn + 1, dtype=np.uint64)  # odd numbers lose no bits
    if not isinstance(X, np.ndarray):
        mixed = np.append(_mixed(X.data) * factors[X.indices], np.uint64(0))
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed[:-1])])
        return np.asarray(sums[X.indptr[1:]] - sums[X.indptr[:-1]])
    out = np.empty(len(X), dtype=np.uint64)
    step = max(1, HASH_CELLS // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        part = _mixed(np.ascontiguousarray(X[start : start + step]))
        out[start : start + step] = (part * factors).sum(axis=1, dtype=np.uint64)
    return out


def _mixed(values: Any) -> Array:
    """Bits of numbers, stirred; zero stays zero."""
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # minus zero becomes zero
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.asarray(bits ^ (bits >> np.uint64(29)))
