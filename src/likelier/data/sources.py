"""Sources of blocks for streaming fits, from a libsvm file or an iterator."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
from scipy import sparse

from likelier.base import Batch, Matrix
from likelier.data.libsvm import LibsvmFile, LibsvmLayout
from likelier.matrices import as_csr, checked_matrix, refuse_complex

SPARSE_BLOCK_ROWS = 4096


class Source(ABC):
    """A sequence of blocks over which an engine iterates.

    Attributes
    ----------
    repeatable : bool
        Whether it can be iterated more than once.
    background : bool
        Whether blocks may be produced in another thread.
    encoder : TableEncoding, LibsvmLayout or None
        The encoding to apply to other data; None for iterators, whose blocks are matrices.
    """

    repeatable: bool = True
    background: bool = True
    encoder: Any = None

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of columns of every block."""

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns, or None."""
        return None if self.encoder is None else list(self.encoder.get_feature_names_out())

    def unlabelled(self) -> Source:
        """Return the same rows for prediction, without reading the target."""
        return self

    @abstractmethod
    def __call__(self) -> Generator[Batch, None, None]:
        """Yield the blocks from the first."""


class LibsvmSource(Source):
    """Blocks of a libsvm file."""

    def __init__(
        self, path: str | os.PathLike[str], layout: LibsvmLayout | None, block_rows: int | None
    ) -> None:
        self._file = LibsvmFile(path, layout)
        self._block_rows = block_rows or SPARSE_BLOCK_ROWS
        self.encoder: LibsvmLayout = self._file.layout

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.encoder.n_features

    def __call__(self) -> Generator[Batch, None, None]:
        """Yield the blocks from the first."""
        start = 0
        for index, (X, y) in enumerate(self._file.blocks(self._block_rows)):
            yield Batch(X, y, index=index, start=start)
            start += X.shape[0]


class IterableSource(Source):
    """Blocks from an iterator, a list, or a function that returns iterators.

    They are requested in the caller's thread, because objects such as database cursors may not
    work in another. ``allow_nan`` is for models that support missing values.
    """

    background = False

    def __init__(
        self, blocks: Iterable[Any] | Callable[[], Iterable[Any]], allow_nan: bool = False
    ) -> None:
        self._allow_nan = allow_nan
        self._make: Callable[[], Iterable[Any]]
        if callable(blocks):
            self._make = blocks
        elif isinstance(blocks, Iterable):
            self._make = lambda: blocks
            self.repeatable = iter(blocks) is not blocks  # iterators can be consumed only once
        else:
            raise TypeError(
                "data must be a path, a data frame, an iterable of (X, y) or a function that "
                f"returns one, got {type(blocks).__name__}"
            )
        self._first: Batch | None = None
        self._others: Iterator[Any] = iter(())

    @property
    def n_features(self) -> int:
        """Number of columns of the first block."""
        return int(self._peek().X.shape[1])

    def __call__(self) -> Generator[Batch, None, None]:
        """Yield the blocks from the first."""
        batch = self._peek()
        others, n_features = self._others, batch.X.shape[1]
        self._first, self._others = None, iter(())
        labels = _check_label_type(batch, None)
        yield batch
        start = batch.n_rows
        for index, item in enumerate(others, start=1):
            batch = as_batch(item, index, start, self._allow_nan)
            if batch.X.shape[1] != n_features:
                raise ValueError(
                    f"block {index} of the data has {batch.X.shape[1]} columns, "
                    f"block 0 has {n_features}"
                )
            labels = _check_label_type(batch, labels)
            yield batch
            start += batch.n_rows

    def _peek(self) -> Batch:
        """Return the first block, and keep it for the next pass."""
        if self._first is None:
            self._others = iter(self._make())
            for item in self._others:
                self._first = as_batch(item, 0, 0, self._allow_nan)
                return self._first
            raise ValueError("no blocks: the iterator is empty, or has already been consumed")
        return self._first


def as_batch(item: Any, index: int, start: int, allow_nan: bool = False) -> Batch:
    """Return a block given as ``(X, y)``, ``(X, y, sample_weight)`` or a `Batch`, checked."""
    if isinstance(item, Batch):
        item = replace(item, X=checked_matrix(item.X)).compact()
        item = (item.X, item.y, item.weight)
    if not isinstance(item, tuple | list) or not 2 <= len(item) <= 3:
        raise TypeError(
            f"block {index} of the data must be (X, y) or (X, y, sample_weight), "
            f"got {type(item).__name__}"
        )
    try:
        X = _as_matrix(item[0], allow_nan)
        y = None if item[1] is None else np.asarray(checked_matrix(item[1], "y"))
        weight = None
        if len(item) == 3 and item[2] is not None:
            weight = np.asarray(checked_matrix(item[2], "sample_weight"))
            refuse_complex(weight, "sample_weight")
            weight = weight.astype(float)
        if y is not None:
            refuse_complex(y)
        for name, array in (("y", y), ("sample_weight", weight)):
            if array is not None and (array.ndim == 0 or len(array) != X.shape[0]):
                raise ValueError(f"X has {X.shape[0]} rows, {name} has shape {array.shape}")
    except (ValueError, TypeError) as error:
        raise ValueError(f"block {index} of the data: {error}") from error
    return Batch(X, y, weight, index=index, start=start)


def _check_label_type(batch: Batch, previous: Any) -> Any:
    """Raise if labels mix text and numbers, also with ``previous``; return an example of them.

    Rows of weight zero may have any label.
    """
    y = batch.y
    if y is None or y.ndim != 1:
        return previous
    present = y if batch.weight is None else y[batch.weight > 0.0]
    for label in (present if y.dtype.kind == "O" else present[:1]).tolist():
        if previous is not None and isinstance(label, str) != isinstance(previous, str):
            raise ValueError(
                f"block {batch.index} of the data: y contains {label!r} after {previous!r}; labels "
                "must be all text or all numbers"
            )
        previous = label if previous is None else previous
    return previous


def _as_matrix(X: Any, allow_nan: bool) -> Matrix:
    """Return floats without infinities, dense in C order or CSR without duplicates."""
    matrix: Any
    values: Any
    X = checked_matrix(X)
    if sparse.issparse(X):
        matrix = sparse.csr_array(cast(Any, X))
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        matrix = as_csr(matrix)
        values = matrix.data
    else:
        matrix = np.asarray(X)
        if matrix.ndim != 2:
            raise ValueError(f"X must have two dimensions, got {matrix.ndim}")
        keep = matrix.dtype in (np.float32, np.float64)
        matrix = values = np.ascontiguousarray(matrix, None if keep else np.float64)
    if allow_nan and np.isinf(values).any():
        raise ValueError("X contains infinity; replace it with finite numbers or NaN")
    if not allow_nan and not np.isfinite(values).all():
        raise ValueError("X contains NaN or infinity; replace or remove missing values first")
    checked: Matrix = matrix
    return checked
