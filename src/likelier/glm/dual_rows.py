"""Rows of dual coordinate ascent, in a cache-friendly order.

Passes over a wide sparse matrix are bound by memory latency. The matrix is therefore copied once:
its rows in random order, so that a pass over runs of neighbours reads contiguous memory, and its
columns by frequency, so that the most frequent weights are contiguous. Within a row, frequent
columns roughly come first, so that cache misses of rare ones overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Matrix
from likelier.glm.loops.dual import arrange_rows, column_frequencies, labels_by_rank
from likelier.glm.model import NO_WEIGHT
from likelier.loops.memory import touched_empty
from likelier.loops.rows import Rows, as_rows, row_norms

CACHED_BYTES = 1 << 18  # weights up to this size stay in the cache whatever their order
RUN = 8  # neighbours of the copy that every pass visits together; more slow convergence
FEW_ROWS = 4096  # below, every pass shuffles single rows


@dataclass(frozen=True)
class DualRows:
    """Rows, targets, weights and squared norms, copied or as they were given.

    Attributes
    ----------
    rates : array or None
        If penalties differ: the median penalty over that of each feature. For a copy, those of
        its last columns; the first ones have rate 1.
    label : array or None
        Column of each feature in the copy.
    source, positions : array
        Rows of the data with nonzero weight, and their positions in these arrays (ascending).
    """

    rows: Rows
    y: Array
    weight: Array
    norms: Array
    rates: Array | None
    label: Array | None
    source: Array
    positions: Array

    def order(self, engine: Engine, iteration: int) -> Array:
        """Positions of the present rows in the order of a pass."""
        if self.label is None:
            return _row_numbers(engine, iteration)
        n_rows = len(self.source)
        if n_rows < FEW_ROWS or bool((np.diff(self.source) > 0).all()):  # few, or not shuffled
            position = np.empty(int(self.source.max()) + 1, dtype=np.int64)
            position[self.source] = self.positions
            return position[_row_numbers(engine, iteration)]
        n_runs = -(-n_rows // RUN)
        stream = engine.stream(iteration, 0)
        order = (stream.permutation(n_runs)[:, None] * RUN + stream.permutation(RUN)).ravel()
        return order[order < n_rows]


def dual_rows(engine: Engine, rates: Array | None, n_outputs: int, n_jobs: int) -> DualRows:
    """The rows of an engine; a wide sparse matrix is copied, in parallel.

    ``rates`` has one entry per feature, or is None if all are 1.
    """
    batch = engine.draw(1)  # shares the arrays of all rows
    X, present = batch.X, _row_numbers(engine, 0)
    assert batch.y is not None
    label = _labels(X, n_outputs, rates)
    if label is None:
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        positions = np.sort(present)
        norms = row_norms(X, rates)
        return DualRows(as_rows(X), batch.y, weight, norms, rates, None, positions, positions)
    rows, norms = _arrange(X, present, label, rates, partial(_in_parallel, engine, n_jobs))
    return DualRows(
        rows, batch.y[present], NO_WEIGHT if batch.weight is None else batch.weight[present],
        norms, None if rates is None else _last_rates(rates, label), label, present,
        np.arange(len(present)),
    )  # fmt: skip


def _row_numbers(engine: Engine, iteration: int) -> Array:
    return np.concatenate([_batch_rows(batch) for batch in engine.blocks(iteration)])


def _batch_rows(batch: Batch) -> Array:
    if batch.rows is not None:
        return batch.rows
    return np.arange(batch.start, batch.start + batch.n_rows)


def _labels(X: Matrix, n_outputs: int, rates: Array | None) -> Array | None:
    """New indices of the columns of a wide sparse matrix, by decreasing frequency.

    A few columns hold most of the entries of text data; if contiguous, their weights stay in the
    cache. Columns with rates other than 1 come last.
    """
    if not sparse.issparse(X) or X.shape[1] * n_outputs * 8 <= CACHED_BYTES:
        return None
    rank = column_frequencies(as_rows(X).indices, X.shape[1])
    if rates is not None:
        rank += np.where(rates == 1.0, rank.max() + 1, 0)
    label = np.empty(len(rank), dtype=np.uint32 if X.indices.dtype.itemsize == 4 else np.uint64)
    labels_by_rank(rank, int(rank.max()) + 1, label)
    return label


def _last_rates(rates: Array, label: Array) -> Array:
    """Rates in the order of the labels, without the leading ones."""
    ordered = np.empty_like(rates)
    ordered[label] = rates
    return ordered[np.count_nonzero(rates == 1.0) :]


def _arrange(
    X: Matrix, present: Array, label: Array, rates: Array | None, parallel: Callable[..., None]
) -> tuple[Rows, Array]:
    """A copy of the listed rows, with relabelled columns, and their squared norms."""
    rows = as_rows(X)
    assert rows.indptr is not None
    indptr = np.zeros(len(present) + 1, dtype=np.int64)
    np.cumsum(np.diff(rows.indptr)[present], out=indptr[1:])
    data, indices = touched_empty(indptr[-1], X.dtype), touched_empty(indptr[-1], label.dtype)
    out = (data, indices, indptr, np.empty(len(present)))
    level = np.frexp(label.astype(np.float64))[1].astype(np.uint8)  # binary digits
    parallel(
        lambda first, last: arrange_rows(
            rows.data, rows.indices, rows.indptr, present, label, level, rates, out, first, last
        ),
        indptr,
    )
    return Rows(data, indices, indptr, X.shape[1]), out[3]


def _in_parallel(
    engine: Engine, n_parts: int, work: Callable[[int, int], None], indptr: Array
) -> None:
    """Apply ``work`` to ranges of rows with equal numbers of entries, in parallel."""
    bounds = np.searchsorted(indptr, np.linspace(0, indptr[-1], n_parts + 1))
    bounds[0], bounds[-1] = 0, len(indptr) - 1
    list(engine.each(lambda k: work(int(bounds[k]), int(bounds[k + 1])), n_parts))
