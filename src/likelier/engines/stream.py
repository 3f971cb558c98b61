"""The stream engine: rows come from a source of blocks and are never all in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from likelier.base import Array, Batch, Engine, Output, Statistics
from likelier.engines.keys import Purpose, check_seed, keyed_stream
from likelier.engines.rows import present_rows, stack_rows, take_rows
from likelier.engines.threads import read_ahead


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


class StreamEngine(Engine):
    """Rows read block by block, a few blocks in memory at a time.

    Rows of weight zero are absent, as in memory, but a block they leave keeps its other rows:
    block borders are the source's own. Shuffling is within blocks only, so a source whose
    rows are sorted should be shuffled once on disk.

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
    def in_memory(self) -> bool:
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

    def reduce(
        self,
        map: Callable[[Batch], Statistics],
        merge: Callable[[Statistics, Statistics], Statistics],
    ) -> Statistics:
        """Map every block to statistics and merge them from the first block to the last."""
        with closing(self._read()) as batches:
            total = map(next(batches))
            for batch in batches:
                total = merge(total, map(batch))
        return total

    def map_blocks(self, map: Callable[[Batch], Output]) -> Iterator[Output]:
        """Map every block; results come in block order."""
        with closing(self._read()) as batches:
            for batch in batches:
                yield map(batch)

    def sample(self, n: int, iteration: int = 0) -> Batch:
        """Return ``n`` rows (all, if there are fewer) without replacement, in random order.

        Every row draws a key and the ``n`` smallest stay, which takes one pass and memory for
        at most ``2 n`` rows and a block. From a source that is not repeatable, that pass is
        the only one.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        kept: list[Batch] = []
        keys: list[Array] = []
        bound = np.inf
        with closing(self._read()) as batches:
            for batch in batches:
                stream = keyed_stream(self._seed, Purpose.SAMPLE, iteration, batch.index)
                key = stream.random(batch.n_rows)
                chosen = np.flatnonzero(key < bound)
                kept.append(_take(batch, chosen))
                keys.append(key[chosen])
                if sum(map(len, keys)) > 2 * n:
                    kept, keys = _smallest(kept, keys, n)
                    bound = keys[0][-1]
        kept, _ = _smallest(kept, keys, n)
        return kept[0]

    def stream(self, iteration: int, block: int) -> np.random.Generator:
        """Random numbers keyed on (seed, iteration, block)."""
        return keyed_stream(self._seed, Purpose.MODEL, iteration, block)

    def close(self) -> None:
        """Do nothing: a pass ends its own thread. Every engine can be closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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


def _without_absent(batch: Batch) -> Batch:
    """Return the rows of positive weight with ``rows=None``."""
    batch = batch.compact()
    try:
        present = present_rows(batch.weight, batch.n_rows)
    except ValueError as error:
        raise ValueError(f"block {batch.index} of the data: {error}") from None
    return batch if present is None else _take(batch, present)


def _take(batch: Batch, rows: Array) -> Batch:
    """Return the listed rows of a batch in arrays of their own."""
    return Batch(
        take_rows(batch.X, rows),
        None if batch.y is None else batch.y[rows],
        None if batch.weight is None else batch.weight[rows],
    )


def _smallest(kept: list[Batch], keys: list[Array], n: int) -> tuple[list[Batch], list[Array]]:
    """Return the ``n`` rows of smallest key, in the order of their keys, as one batch."""
    key = np.concatenate(keys)
    order = np.argsort(key, kind="stable")[:n]
    whole = Batch(
        stack_rows([batch.X for batch in kept]),
        None if kept[0].y is None else np.concatenate([_given(b.y) for b in kept]),
        None if kept[0].weight is None else np.concatenate([_given(b.weight) for b in kept]),
    )
    return [_take(whole, order)], [key[order]]


def _given(values: Array | None) -> Array:
    if values is None:
        raise ValueError(
            "some blocks of the data have targets or weights and some have none; "
            "give them in every block or in none"
        )
    return values
