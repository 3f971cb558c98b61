"""Packing of dense rows of mostly zeros into sparse rows, in threads ahead of the learner.

Steps with several outputs skip zeros, but searching for them would take longer than the steps.
Results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from likelier.base import Array, Batch, Engine
from likelier.glm.loops.pack import pack_rows
from likelier.loops.rows import Rows, as_rows

if TYPE_CHECKING:
    from likelier.glm.sgd_state import AdaptiveState

MAX_DENSITY = 0.5  # fraction of nonzeros up to which rows are packed
MAX_COLUMNS = 1 << 22  # positions within a block of rows are 32-bit


def worth_packing(state: AdaptiveState, engine: Engine) -> bool:
    """Whether rows are dense, in this process and mostly zeros, as far as they have been seen.

    A single output is as fast without packing.
    """
    if not engine.is_local or len(state.intercept) == 1 or not state.counters[0]:
        return False
    n_features = state.model.n_features
    dense = isinstance(engine.draw(1).X, np.ndarray)
    density = float(state.counts.sum()) / float(state.counters[0] * n_features)
    return bool(dense and n_features <= MAX_COLUMNS and density <= MAX_DENSITY)


def packed(engine: Engine, iteration: int) -> Iterator[tuple[Batch, Rows]]:
    """The batches of a pass over dense rows, each with its rows as sparse ones.

    A batch has the targets and weights of its own rows only. Buffers are reused by the next one.
    """
    batches = list(engine.blocks(iteration))
    free: list[tuple[Array, Array]] = []
    capacity = batches[0].n_rows * batches[0].X.shape[1] + 1

    def pack(number: int) -> tuple[Batch, Rows, tuple[Array, Array]]:
        batch = batches[number]
        assert batch.rows is not None and batch.y is not None
        try:
            buffers = free.pop()
        except IndexError:
            buffers = (np.empty(capacity, batch.X.dtype), np.empty(capacity, np.uint32))
        view, indptr = as_rows(batch.X), np.empty(batch.n_rows + 1, np.int32)
        kind = np.uint64 if view.data.itemsize == 8 else np.uint32
        n = pack_rows(view.data, view.data.view(kind), view.n_columns, batch.rows, *buffers, indptr)
        weight = None if batch.weight is None else batch.weight[batch.rows]
        own = replace(batch, y=batch.y[batch.rows], weight=weight)
        return own, Rows(buffers[0][:n], buffers[1][:n], indptr, view.n_columns), buffers

    for batch, rows, buffers in engine.each(pack, len(batches)):
        yield batch, rows
        free.append(buffers)
