"""From what a user passes to ``fit`` to an engine over rows with encoded targets.

Data are arrays, a path, or an iterator of blocks; labels are anything sortable. After this
module there are only matrices, numbers and an engine that passes over them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import get_tags
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from likelier.base import Array, Batch, Engine, Matrix
from likelier.data import Source
from likelier.engines import LocalEngine, StreamEngine
from likelier.fitting.moments import ColumnMoments
from likelier.fitting.targets import (
    balanced_weights,
    class_codes,
    class_weights,
    combine_weights,
    output_codes,
)
from likelier.loops.rows import column_counts, column_squares
from likelier.matrices import checked_matrix, checked_weight, refuse_complex
from likelier.tables import TableEncoding, block_source
from likelier.tables.sources import is_table

CONSTANT = 1e-12  # share of a mean square below which a variance is rounding
READER_WORDS = ("exclude", "kinds=", "decimal=", "also_missing")
HOLDS_ROWS = ("__array__", "__dataframe__", "__arrow_c_stream__", "shape")  # arrays and frames
WIDE = 100  # features from which on it matters how many rows have each
LARGEST = float(np.finfo(np.float64).max) / 16.0  # with some room for sums of the like


def is_stream(X: Any, y: Any = None) -> bool:
    """Whether ``X`` is read block by block: a path, a source, a frame with its target ``y``."""
    if isinstance(y, str) and is_table(X):
        return True
    if isinstance(X, str | os.PathLike) or callable(X) or hasattr(X, "__next__"):
        return True
    if not isinstance(X, Iterable) or any(hasattr(X, mark) for mark in HOLDS_ROWS):
        return False
    if not hasattr(X, "__getitem__"):  # no array can be made of what can only be iterated over
        return True
    try:
        first = X[0]
    except (IndexError, KeyError):  # nothing, or a mapping
        return False
    if isinstance(first, tuple) and first:  # a block, or a row?
        frame = type(first[0]).__name__ == "LazyFrame"  # refused where blocks are read
        return frame or len(getattr(first[0], "shape", ())) == 2
    return isinstance(first, Batch)


def checked_rows(
    estimator: Any, X: Any, y: Any, sample_weight: Any, reset: bool, check_y: Callable[[Array], Any]
) -> tuple[Matrix, Array, Array | None]:
    """Rows, targets and weights that can be learned from; nothing is copied that need not be."""
    X = estimator._check_X(X, reset=reset)
    return X, *checked_targets(X, y, sample_weight, check_y)


def checked_targets(
    X: Matrix, y: Any, sample_weight: Any, check_y: Callable[[Array], Any]
) -> tuple[Array, Array | None]:
    """Targets and weights of rows that have been checked."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    y = column_or_1d(checked_matrix(y, "y"), warn=True)
    refuse_complex(y)
    y = np.ascontiguousarray(check_y(y))  # sums of strided numbers have other last digits
    check_consistent_length(X, y)
    if sample_weight is None:
        return y, None
    return y, checked_weight(sample_weight, X)


def check_mergeable(one: Any, other: Any) -> None:
    """Raise unless ``other`` is a fitted model of the same kind and of the same columns."""
    check_is_fitted(one, "classes_")
    if type(other) is not type(one):
        raise TypeError(
            f"other must be a {type(one).__name__} to be merged, got {type(other).__name__}"
        )
    check_is_fitted(other, "classes_")
    if other.n_features_in_ != one.n_features_in_:
        raise ValueError(
            f"other has {other.n_features_in_} features and this model {one.n_features_in_}; "
            "only models of the same columns can be merged"
        )
    names = [getattr(m, "feature_names_in_", None) for m in (one, other)]
    if names[0] is not None and names[1] is not None and list(names[0]) != list(names[1]):
        raise ValueError("other has columns of other names, or in another order")


def check_squares(squares: Array, total: float, names: Any = None) -> None:
    """Raise where squares of a column, summed over rows, or those sums squared, overflow."""
    with np.errstate(over="ignore"):
        wrong = np.flatnonzero(~(squares * max(1.0, total) <= LARGEST))
    if len(wrong):
        column = int(wrong[0]) if names is None else repr(str(names[wrong[0]]))
        raise ValueError(
            f"X is too large in column {column}: squares of its values overflow; rescale the "
            "column (and sample_weight, if it is large)"
        )


def check_large_targets(y: Array) -> None:
    """Raise where squares of targets overflow."""
    if len(y) and np.abs(y).max() > np.sqrt(LARGEST / len(y)):
        raise ValueError("y is too large: squares of its values overflow; rescale it")


def open_source(estimator: Any, X: Any, y: Any) -> Any:
    """Source of blocks for a path or an iterator; gives the estimator the names of its columns."""
    if y is not None and not isinstance(y, str | int):
        raise TypeError(
            "with a path or an iterator as X, y is the name of the target column (or None); "
            f"got {type(y).__name__}"
        )
    allow_nan = bool(get_tags(estimator).input_tags.allow_nan)
    try:
        dense = bool(getattr(type(estimator), "dense_inputs", False))
        source = block_source(X, target=y, dense=dense, allow_nan=allow_nan)
    except ValueError as error:
        raise ValueError(f"{error}{_reader_advice(str(error), X, y)}") from error
    store_encoding(estimator, source)
    return source


def store_encoding(estimator: Any, source: Source) -> None:
    """Give an estimator what it knows of its columns, and how later tables become such."""
    estimator.n_features_in_ = int(source.n_features)
    for name in ("encoding_", "feature_names_in_"):
        estimator.__dict__.pop(name, None)
    if source.encoder is not None:  # what an iterator gives are matrices
        estimator.encoding_ = source.encoder
    if isinstance(source.encoder, TableEncoding):  # columns of a libsvm file have no names
        estimator.feature_names_in_ = np.array(source.feature_names, dtype=object)


def _reader_advice(message: str, X: Any, y: Any) -> str:
    """Where a message names words that `block_source` takes and no estimator: how to say them."""
    if not any(word in message for word in READER_WORDS):
        return ""
    path = str(X) if isinstance(X, str | os.PathLike) else X
    return f"; such words are for likelier.tables: fit(block_source({path!r}, target={y!r}, ...))"


@dataclass(frozen=True)
class Summary:
    """Sums over all rows that are needed before the model exists."""

    n_rows: int
    weight: float
    sums: Array  # weighted sums of the columns
    squares: Array  # and of their squares
    counts: Array  # nonzeros of every column, where there are many columns
    n_nonzeros: int
    labels: dict[Any, float] | None = None  # how often each label occurs, by weight
    targets: ColumnMoments | None = None  # of numbers

    def __add__(self, other: Summary) -> Summary:
        labels = None
        if self.labels is not None and other.labels is not None:
            labels = dict(self.labels)
            for label, count in other.labels.items():
                labels[label] = labels.get(label, 0) + count
        targets = None
        if self.targets is not None and other.targets is not None:
            targets = self.targets + other.targets
        return Summary(
            self.n_rows + other.n_rows,
            self.weight + other.weight,
            _plus(self.sums, other.sums),
            _plus(self.squares, other.squares),
            _plus(self.counts, other.counts),
            self.n_nonzeros + other.n_nonzeros,
            labels,
            targets,
        )


def _plus(a: Array, b: Array) -> Array:
    """Sum of two vectors; zeros nobody needs occupy one number and are not added up."""
    return a if b.strides == (0,) else a + b


@dataclass(frozen=True)
class Summarise:
    """The map to the `Summary` of a block.

    ``squares`` and ``labels`` say what is wanted beside the shape, ``targets`` makes moments of
    targets and weights. Without ``squares`` sums are zero.
    """

    squares: bool
    labels: bool = False
    targets: Callable[[Array, Array | None], ColumnMoments] | None = None

    def __call__(self, batch: Batch) -> Summary:
        found = summarise(batch, self.squares, self.labels)
        if self.targets is None:
            return found
        return replace(found, targets=self.targets(require_targets(batch), batch.weight))


def summarise(batch: Batch, with_squares: bool, with_labels: bool = False) -> Summary:
    """Summary of one batch; squares are zero where nobody needs them."""
    X, labels = batch.X, None
    n_nonzeros = X.nnz if sparse.issparse(X) else X.size
    if with_labels:
        values, codes = np.unique(require_targets(batch), return_inverse=True)
        times = np.bincount(codes.ravel(), batch.weight, len(values))
        labels = dict(zip(values.tolist(), times.tolist(), strict=True))
    weight = float(batch.n_rows if batch.weight is None else batch.weight.sum())
    counts: Array = np.broadcast_to(0.0, X.shape[1])
    sums = squares = counts
    if with_squares:
        with np.errstate(over="ignore", invalid="ignore"):  # `check_squares` tells of them
            sums, squares = column_sums(X, batch.weight), column_squares(X, batch.weight)
        counts = wide_counts(X)
    return Summary(batch.n_rows, weight, sums, squares, counts, int(n_nonzeros), labels)


def wide_counts(X: Matrix) -> Array:
    """Nonzeros of every column; zeros up to `WIDE` columns, where nobody asks."""
    return column_counts(X) if X.shape[1] > WIDE else np.broadcast_to(0.0, X.shape[1])


def column_sums(X: Matrix, weight: Array | None = None) -> Array:
    """Weighted sum of every column, in double precision."""
    return np.asarray(X.T @ (np.ones(X.shape[0]) if weight is None else weight))


def informative_squares(sums: Array, squares: Array, total: float, fit_intercept: bool) -> Array:
    """Mean square of what a feature can tell: around its mean where an intercept takes that.

    A constant column tells nothing an intercept does not; it counts with its own square.
    """
    square = squares / total
    if not fit_intercept:
        return square
    variance = square - (sums / total) ** 2
    return np.where(variance > CONSTANT * square, variance, square)


def require_targets(batch: Batch) -> Array:
    """Targets of a batch that must have them."""
    if batch.y is None:
        raise ValueError(
            "the data have no targets: name the target column, fit(path, y='column'), or yield "
            "(X, y) blocks"
        )
    return np.asarray(batch.y)


@dataclass(frozen=True)
class Dataset:
    """The rows of a fit behind an engine, and what one pass has found out about them.

    Attributes
    ----------
    engine : Engine
        Rows with encoded targets; weights include those of the classes.
    summary : Summary
    dtype : dtype
        Of what is fitted.
    batch : Batch or None
        All rows, where they are in memory.
    """

    engine: Engine
    summary: Summary
    dtype: Any
    batch: Batch | None = None


@dataclass(frozen=True)
class NumberSource:
    """A source whose targets are plain numbers."""

    source: Source

    @property
    def repeatable(self) -> bool:
        """Whether it can be read again."""
        return self.source.repeatable

    @property
    def background(self) -> bool:
        """Whether blocks may be made in another thread."""
        return self.source.background

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.source.n_features

    def __call__(self) -> Generator[Batch, None, None]:
        """Yield the blocks with their targets encoded."""
        for batch in self.source():
            yield self._encode(batch)

    def _encode(self, batch: Batch) -> Batch:
        return replace(batch, y=require_targets(batch).astype(np.float64))


@dataclass(frozen=True)
class CheckedSource(NumberSource):
    """A source whose targets are checked, and perhaps converted, block by block."""

    check: Callable[[Array], Array]

    def _encode(self, batch: Batch) -> Batch:
        return replace(batch, y=self.check(require_targets(batch)))


@dataclass(frozen=True)
class EncodedSource(NumberSource):
    """A source whose labels are class numbers and whose weights include the classes'."""

    classes: Array
    per_class: Array | None
    n_outputs: int

    def _encode(self, batch: Batch) -> Batch:
        labels = require_targets(batch)
        if batch.weight is not None and not batch.weight.all():  # absent rows may have any label
            labels = np.where(batch.weight > 0.0, labels, self.classes[0])
        codes = class_codes(self.classes, labels)
        weight = combine_weights(batch.weight, self.per_class, codes)
        return replace(batch, y=output_codes(codes, self.n_outputs), weight=weight)


def stream_classes(summary: Summary, class_weight: Any) -> tuple[Array, Array | None]:
    """Sorted classes of a stream, and their weights."""
    assert summary.labels is not None
    classes = np.array(sorted(summary.labels))
    counts = np.array([summary.labels[label] for label in classes.tolist()])
    if class_weight == "balanced":
        return classes, balanced_weights(counts)
    return classes, class_weights(class_weight, classes, np.arange(float(len(classes))))


def local_engine(
    X: Matrix,
    y: Array | None,
    weight: Array | None,
    seed: int,
    n_jobs: int | None,
    shuffle: bool,
    block_rows: int | None = None,
) -> LocalEngine:
    """Engine over data in memory; ``block_rows`` of stochastic passes are a parameter of these."""
    return LocalEngine(
        X, y, weight, seed=seed, n_jobs=n_jobs, shuffle=shuffle, block_rows=block_rows
    )


def stream_engine(source: Any, seed: int, shuffle: bool) -> StreamEngine:
    """Engine over a source of blocks."""
    return StreamEngine(source, seed=seed, shuffle=shuffle)
