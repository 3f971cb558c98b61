"""Dense rows of mostly zeros, packed without them by some threads while the caller learns.

Steps of several outputs skip zeros, but looking for them takes longer than the steps. Which thread
packs a batch makes no difference, so a pass is the same whatever their number.
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
    from likelier.glm.sgd import AdaptiveState

MOST = 0.5  # share of numbers that are not zero up to which rows are packed
LARGEST_BATCH = 1 << 31  # numbers: places are counted in 32 bits


def worth_packing(state: AdaptiveState, engine: Engine) -> bool:
    """Whether rows are dense, in memory and, as far as they have been seen, mostly zeros.

    A single output is as quick with the zeros.
    """
    if not engine.in_memory or len(state.intercept) == 1 or not state.clock[0]:
        return False
    first = next(iter(engine.blocks(0)))
    dense = isinstance(first.X, np.ndarray) and first.rows is not None
    share = float(state.counts.sum()) / float(state.clock[0] * state.model.n_features)
    small = first.n_rows * state.model.n_features < LARGEST_BATCH
    return bool(dense and small and share <= MOST)


def packed(engine: Engine, iteration: int) -> Iterator[tuple[Batch, Rows]]:
    """The batches of a pass over dense rows, and these rows without their zeros.

    A batch has the targets and weights of its rows alone. What was handed out is written over
    once the next is asked for.
    """
    batches = list(engine.blocks(iteration))
    free: list[tuple[Array, Array]] = []
    room = batches[0].n_rows * batches[0].X.shape[1] + 1

    def pack(number: int) -> tuple[Batch, Rows, tuple[Array, Array]]:
        batch = batches[number]
        assert batch.rows is not None and batch.y is not None
        try:
            pages = free.pop()
        except IndexError:
            pages = (np.empty(room, batch.X.dtype), np.empty(room, np.uint32))
        view, indptr = as_rows(batch.X), np.empty(batch.n_rows + 1, np.int32)
        kind = np.uint64 if view.data.itemsize == 8 else np.uint32
        n = pack_rows(view.data, view.data.view(kind), view.n_columns, batch.rows, *pages, indptr)
        weight = None if batch.weight is None else batch.weight[batch.rows]
        few = replace(batch, y=batch.y[batch.rows], weight=weight)
        return few, Rows(pages[0][:n], pages[1][:n], indptr, view.n_columns), pages

    for batch, rows, pages in engine.each(pack, len(batches)):
        yield batch, rows
        free.append(pages)
