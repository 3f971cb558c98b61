"""The rows as implicit steps with memory visit them, in an order that is kind to the memory.

Passes over a wide sparse matrix mostly wait for the memory. It is therefore copied once: its rows
in random order, so that a pass over runs of neighbours reads one long stretch after another, and
its columns by how often they occur, so that the weights that are needed most lie side by side.
Within a row the frequent columns come first, at least roughly: the weights of the rare ones, which
have to come from far, are then waited for together and not one after another.
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
RUN = 8  # neighbours of the copy that every pass visits together; far more slow it down
FEW_ROWS = 4096  # below, every pass has an order of its own for single rows


@dataclass(frozen=True)
class DualRows:
    """Rows, targets, weights and squared norms, copied or as they were given.

    Attributes
    ----------
    rates : array or None
        Where penalties differ: the usual one over that of each feature. Of a copy, only those of
        its last columns: the first ones have rate 1.
    label : array or None
        Column of the copy that each feature has become.
    source, places : array
        Rows of the data that are present, and where these arrays have them (ascending).
    """

    rows: Rows
    y: Array
    weight: Array
    norms: Array
    rates: Array | None
    label: Array | None
    source: Array
    places: Array

    def order(self, engine: Engine, iteration: int) -> Array:
        """Positions of the present rows in the order of a pass."""
        if self.label is None:
            return _row_numbers(engine, iteration)
        n_rows = len(self.source)
        if n_rows < FEW_ROWS or bool((np.diff(self.source) > 0).all()):  # few, or not shuffled
            place = np.empty(int(self.source.max()) + 1, dtype=np.int64)
            place[self.source] = self.places
            return place[_row_numbers(engine, iteration)]
        n_runs = -(-n_rows // RUN)
        stream = engine.stream(iteration, 0)
        order = (stream.permutation(n_runs)[:, None] * RUN + stream.permutation(RUN)).ravel()
        return order[order < n_rows]


def dual_rows(engine: Engine, rates: Array | None, n_outputs: int, n_jobs: int) -> DualRows:
    """The rows of an engine; a wide sparse matrix is copied, by as many threads as there are.

    ``rates`` has a number for every feature, or is None if all are 1.
    """
    batch = next(iter(engine.blocks(0)))
    X, present = batch.X, _row_numbers(engine, 0)
    assert batch.y is not None
    label = _labels(X, n_outputs, rates)
    if label is None:
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        places = np.sort(present)
        norms = row_norms(X, rates)
        return DualRows(as_rows(X), batch.y, weight, norms, rates, None, places, places)
    rows, norms = _arranged(X, present, label, rates, partial(_shared, engine, n_jobs))
    return DualRows(
        rows, batch.y[present], NO_WEIGHT if batch.weight is None else batch.weight[present],
        norms, None if rates is None else _last_rates(rates, label), label, present,
        np.arange(len(present)),
    )  # fmt: skip


def _row_numbers(engine: Engine, iteration: int) -> Array:
    return np.concatenate([_numbers(batch) for batch in engine.blocks(iteration)])


def _numbers(batch: Batch) -> Array:
    if batch.rows is not None:
        return batch.rows
    return np.arange(batch.start, batch.start + batch.n_rows)


def _labels(X: Matrix, n_outputs: int, rates: Array | None) -> Array | None:
    """New numbers for the columns of a wide sparse matrix: the most frequent come first.

    Few columns hold most of the entries of a text; side by side their weights stay in the cache.
    Columns with rates other than 1 come last, whatever their frequency.
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
    """Rates in the order of the labels, from the first that is not 1."""
    ordered = np.empty_like(rates)
    ordered[label] = rates
    return ordered[np.count_nonzero(rates == 1.0) :]


def _arranged(
    X: Matrix, present: Array, label: Array, rates: Array | None, share: Callable[..., None]
) -> tuple[Rows, Array]:
    """A copy of the present rows in their order, with new columns, and their squared norms."""
    rows = as_rows(X)
    assert rows.indptr is not None
    indptr = np.zeros(len(present) + 1, dtype=np.int64)
    np.cumsum(np.diff(rows.indptr)[present], out=indptr[1:])
    data, indices = touched_empty(indptr[-1], X.dtype), touched_empty(indptr[-1], label.dtype)
    out = (data, indices, indptr, np.empty(len(present)))
    level = np.frexp(label.astype(np.float64))[1].astype(np.uint8)  # binary digits
    share(
        lambda first, last: arrange_rows(
            rows.data, rows.indices, rows.indptr, present, label, level, rates, out, first, last
        ),
        indptr,
    )
    return Rows(data, indices, indptr, X.shape[1]), out[3]


def _shared(engine: Engine, n_parts: int, work: Callable[[int, int], None], indptr: Array) -> None:
    """Rows from a first to a last one, with as many entries in every part, by the threads."""
    borders = np.searchsorted(indptr, np.linspace(0, indptr[-1], n_parts + 1))
    borders[0], borders[-1] = 0, len(indptr) - 1
    list(engine.each(lambda k: work(int(borders[k]), int(borders[k + 1])), n_parts))
