"""The stream engine: rows come from a source of blocks and are never all in memory."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from likelier.base import Batch
from likelier.engines.blocks import BlockEngine, Node, Task, block_rows
from likelier.engines.keys import Purpose, check_seed, keyed_stream
from likelier.engines.row_values import RowCache
from likelier.engines.rows import present_rows, slice_rows
from likelier.engines.samples import joined, take
from likelier.engines.threads import one_blas_thread, read_ahead


class BlockSource(Protocol):
    """What a stream engine reads from; `likelier.tables.block_source` makes them."""

    @property
    def repeatable(self) -> bool:
        """Whether calling it again starts again at the first row."""

    @property
    def background(self) -> bool:
        """Whether its blocks may be made in another thread."""

    @property
    def n_features(self) -> int:
        """Number of columns; may have to look at the first block."""

    def __call__(self) -> Generator[Batch, None, None]:
        """Start a pass: yield the blocks in order."""


class StreamEngine(BlockEngine):
    """Rows read block by block, a few blocks in memory at a time.

    Rows of weight zero are absent, as in memory. Passes cut the rows into the blocks that they
    would have in memory; only `blocks`, for work that is sequential by nature, leaves them as the
    source cuts them. It shuffles within these only, so a source whose rows are sorted should be
    shuffled once on disk.

    Parameters
    ----------
    source : BlockSource
        Where the blocks come from. If it is repeatable each pass reads it again; if not, one
        pass (of any kind) is all there is.
    seed : int
        Keys every random stream, together with the iteration and the block.
    shuffle : bool
        Whether the rows of a block come in random order in ``blocks(iteration)``.

    Notes
    -----
    Where the source allows it, the next block is read in a thread while the current one is
    in use: at most three blocks exist at a time.
    """

    def __init__(self, source: BlockSource, *, seed: int = 0, shuffle: bool = True) -> None:
        self._source = source
        self._seed = check_seed(seed)
        self._shuffle = shuffle
        self._started = False
        self._n_rows: int | None = None
        self._block_rows = 0  # until the first block has come
        self._cache = RowCache()

    @property
    def n_rows(self) -> int | None:
        """Number of rows of positive weight, None until one pass has reached the end."""
        return self._n_rows

    def know_rows(self, n_rows: int) -> None:
        """Say how many rows there are, where an earlier pass over the source counted them."""
        self._n_rows = n_rows

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return self._source.n_features

    @property
    def repeatable(self) -> bool:
        """Whether the source can be read more than once."""
        return self._source.repeatable

    @property
    def is_local(self) -> bool:
        """Rows are never all in memory."""
        return False

    def blocks(self, iteration: int | None = None) -> Iterator[Batch]:
        """Yield the blocks one after another, rows shuffled within each given an iteration."""
        with closing(self._read()) as batches:
            for batch in batches:
                if iteration is None or not self._shuffle:
                    yield batch
                    continue
                stream = keyed_stream(self._seed, Purpose.SHUFFLE, iteration, batch.index)
                yield replace(batch, rows=stream.permutation(batch.n_rows))

    def _run(self, task: Task) -> Iterator[list[Node[Any]]]:
        """One block after the other, in the caller's thread."""
        with closing(self._even_blocks()) as batches, one_blas_thread():
            for batch in batches:
                yield task.on_group([batch], self._cache)

    def close(self) -> None:
        """Do nothing: a pass ends its own thread. Every engine can be closed."""

    def _read(self) -> Generator[Batch, None, None]:
        """Yield the blocks of one pass without absent rows, numbered anew, and count rows."""
        if self._started and not self._source.repeatable:
            raise ValueError(
                "the data came from an iterator, which can be read only once, and a second pass "
                "over it was asked for: give a path, a list of blocks or a function that returns "
                "a fresh iterator, or ask for a single pass"
            )
        self._started = True
        n_rows = n_blocks = 0
        with closing(self._source()) as raw:
            batches = read_ahead(raw) if self._source.background else raw
            with closing(batches):
                for batch in batches:
                    present = _without_absent(batch)
                    if present.n_rows == 0:
                        continue
                    yield replace(present, index=n_blocks, start=n_rows)
                    n_rows += present.n_rows
                    n_blocks += 1
        if n_rows == 0:
            raise ValueError("the data hold no rows of positive weight")
        self._n_rows = n_rows

    def _even_blocks(self) -> Generator[Batch, None, None]:
        """Yield the rows of one pass in blocks of one size; only the last may be shorter."""
        held: list[Batch] = []
        n_held = n_blocks = 0
        with closing(self._read()) as batches:
            for batch in batches:
                size, start = self._cut(batch), 0
                while start < batch.n_rows:
                    stop = min(batch.n_rows, start + size - n_held)
                    held.append(_slice(batch, start, stop))
                    n_held += stop - start
                    start = stop
                    if n_held == size:
                        yield replace(_stacked(held), index=n_blocks, start=n_blocks * size)
                        held, n_held, n_blocks = [], 0, n_blocks + 1
        if held:
            yield replace(_stacked(held), index=n_blocks, start=n_blocks * self._block_rows)

    def _cut(self, batch: Batch) -> int:
        """Rows of a block, once it is known how rows are stored."""
        if not self._block_rows:
            sparse_rows = not isinstance(batch.X, np.ndarray)
            self._block_rows = block_rows(int(batch.X.shape[1]), sparse_rows)
        return self._block_rows


def _without_absent(batch: Batch) -> Batch:
    """Return the rows of positive weight with ``rows=None``.

    Targets and weights lie without gaps: sums of strided numbers have other last digits.
    """
    batch = batch.compact()
    y, weight = (None if a is None else np.ascontiguousarray(a) for a in (batch.y, batch.weight))
    batch = replace(batch, y=y, weight=weight)
    try:
        present = present_rows(batch.weight, batch.n_rows)
    except ValueError as error:
        raise ValueError(f"block {batch.index} of the data: {error}") from None
    return batch if present is None else take(batch, present)


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    """Some rows of a batch that follow each other, as views."""
    if start == 0 and stop == batch.n_rows:
        return batch
    return Batch(
        slice_rows(batch.X, start, stop),
        None if batch.y is None else batch.y[start:stop],
        None if batch.weight is None else batch.weight[start:stop],
    )


def _stacked(parts: list[Batch]) -> Batch:
    """The rows of several batches as one."""
    whole = parts[0]
    for part in parts[1:]:
        whole = joined(whole, part)
    return whole
