"""Labels, batches and samples of rows as naive Bayes takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from likelier.base import Array, Batch, Matrix
from likelier.engines.local import default_block_rows
from likelier.engines.rows import stack_rows, take_rows
from likelier.estimators.targets import union_classes

HELD_OUT = 1000  # rows whose out-of-fold scores say what is ordinary
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


def check_labels(y: Array) -> Array:
    """Raise unless these are labels of classes."""
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    if y.dtype.kind not in "iubUS":  # which cannot be anything else
        check_classification_targets(y)
    return y


def join_classes(known: Array | None, classes: Any, labels: Array) -> Array:
    """Sorted union of the classes known, those announced and those of a batch."""
    joined = labels if classes is None else union_classes(check_labels(np.asarray(classes)), labels)
    return joined if known is None else union_classes(known, joined)


def stats_block_rows(X: Matrix, n_classes: int) -> int:
    """Rows in a block such that its statistics are small beside it.

    Every block makes a table of classes x features, which on wide sparse data can be larger
    than all rows together; one block will then do.
    """
    if sparse.issparse(X):
        per_row = max(1, int(X.nnz) // max(1, int(X.shape[0])))
        return max(default_block_rows(X), 8 * n_classes * int(X.shape[1]) // per_row)
    return max(default_block_rows(X), 64 * n_classes)


@dataclass(frozen=True)
class OrdinaryRows:
    """Out-of-fold scores of at most `HELD_OUT` rows, with their weights."""

    scores: Array
    weight: Array

    def __add__(self, other: OrdinaryRows) -> OrdinaryRows:
        """Scores of both; of too many the first are forgotten."""
        return OrdinaryRows(
            np.concatenate([self.scores, other.scores])[-HELD_OUT:],
            np.concatenate([self.weight, other.weight])[-HELD_OUT:],
        )

    def thinned_with(self, other: OrdinaryRows) -> OrdinaryRows:
        """Scores of both; of too many, every so many-eth of their order stays."""
        scores = np.concatenate([self.scores, other.scores])
        order = np.argsort(scores, kind="stable")
        weight = np.concatenate([self.weight, other.weight])
        if len(order) > HELD_OUT:
            order = order[np.linspace(0, len(order) - 1, HELD_OUT).round().astype(np.intp)]
        return OrdinaryRows(scores[order], weight[order])


class RowSample:
    """A uniform sample of the rows of a stream, kept while the stream passes."""

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self._rng = size, rng
        self._batches: list[Batch] = []
        self._keys: list[Array] = []

    def offer(self, batch: Batch) -> None:
        """Give every row a random key, and keep the rows of the smallest keys so far."""
        self._keys.append(self._rng.random(batch.n_rows))
        self._batches.append(batch)
        keys = np.concatenate(self._keys)
        kept = np.sort(np.argsort(keys, kind="stable")[: self.size])
        self._batches = [_take(_join(self._batches), kept)]
        self._keys = [keys[kept]]

    def batch(self) -> Batch:
        """Return the rows, with the labels and weights they came with."""
        return self._batches[0]


def _join(batches: list[Batch]) -> Batch:
    def joined(get: Callable[[Batch], Any]) -> Any:
        parts = [get(batch) for batch in batches]
        return None if parts[0] is None else np.concatenate(parts)

    if len(batches) == 1:
        return batches[0]
    weighted = [
        batch if batch.weight is not None else replace(batch, weight=np.ones(batch.n_rows))
        for batch in batches
    ]
    return Batch(
        stack_rows([b.X for b in batches]), joined(lambda b: b.y),
        np.concatenate([np.asarray(b.weight) for b in weighted]),
    )  # fmt: skip


def _take(batch: Batch, rows: Array) -> Batch:
    return Batch(
        take_rows(batch.X, rows),
        None if batch.y is None else batch.y[rows],
        None if batch.weight is None else batch.weight[rows],
    )
