"""Blocks of rows: how large they are, in what order their sums are added, what runs on them.

A block is a property of the data and never of the engine that holds it, and sums follow one
binary tree over the numbers of the blocks. So rows in memory, a stream and a cluster add the same
numbers in the same order, and give the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self

import numpy as np

from likelier.base import Array, Batch, Engine, Output, RowValues, Statistics
from likelier.engines.folds import Deal, FoldPart, FoldSource
from likelier.engines.keys import Purpose, keyed_stream
from likelier.engines.row_values import RowCache, parts_of
from likelier.engines.samples import Draw, Sample, first_rows

# A dense block and what a map makes of it should stay in the cache of a core, and be worth the
# microseconds that the interpreter takes for it.
DENSE_BLOCK_BYTES = 1 << 20
MIN_DENSE_ROWS, MAX_DENSE_ROWS = 256, 8192
# Statistics of sparse rows have an entry for every column, so that blocks grow with these.
COLUMNS_PER_SPARSE_ROW = 8
MIN_SPARSE_ROWS, MAX_SPARSE_ROWS = 4096, 16384


def block_rows(n_features: int, is_sparse: bool) -> int:
    """Rows in every block but the last: a power of two, the same on every engine.

    Depends on the number of columns and the storage alone: the number of rows, of nonzeros or of
    threads would not be the same wherever the rows are.
    """
    if is_sparse:
        wanted = n_features // COLUMNS_PER_SPARSE_ROW
        return _power_of_two(min(MAX_SPARSE_ROWS, max(MIN_SPARSE_ROWS, wanted)))
    wanted = DENSE_BLOCK_BYTES // (8 * max(1, n_features))
    return _power_of_two(min(MAX_DENSE_ROWS, max(MIN_DENSE_ROWS, wanted)))


def _power_of_two(number: int) -> int:
    """The largest power of two up to a number."""
    return 1 << (number.bit_length() - 1)


@dataclass(frozen=True)
class Node(Generic[Statistics]):
    """The sum of the ``2 ** level`` blocks from number ``position * 2 ** level`` on."""

    level: int
    position: int
    value: Statistics


def complete_subtrees(
    nodes: Iterable[Node[Statistics]], merge: Callable[[Statistics, Statistics], Statistics]
) -> list[Node[Statistics]]:
    """Merge siblings of the tree as far as they are there; ``nodes`` come in block order.

    At most one node of every level is waiting at a time.
    """
    waiting: list[Node[Statistics]] = []
    for node in nodes:
        while waiting and waiting[-1].level == node.level and node.position % 2:
            if waiting[-1].position != node.position - 1:
                break
            value = merge(waiting.pop().value, node.value)
            node = Node(node.level + 1, node.position // 2, value)
        waiting.append(node)
    return waiting


def total(
    nodes: Iterable[Node[Statistics]], merge: Callable[[Statistics, Statistics], Statistics]
) -> Statistics:
    """The sum over all blocks: the remaining subtrees are merged from the right end.

    A cluster may lose results without an error; a sum over fewer blocks would look fine.
    """
    waiting = complete_subtrees(nodes, merge)
    ends = [0, *((node.position + 1) << node.level for node in waiting)]
    if [node.position << node.level for node in waiting] != ends[:-1]:
        raise RuntimeError("some blocks of rows are missing from the results of a pass")
    value = waiting.pop().value
    while waiting:
        value = merge(waiting.pop().value, value)
    return value


@dataclass(frozen=True)
class Task:
    """A map over blocks as it is sent to where the blocks are.

    ``map`` is called with a batch, its part of each of the ``rows``, and the ``state`` of the pass
    where there is one.
    """

    map: Callable[..., Any]
    rows: tuple[RowValues, ...] = ()
    state: Any = None
    merge: Callable[[Any, Any], Any] | None = None  # None: results are wanted block by block

    def on_block(self, batch: Batch, cache: RowCache) -> Any:
        """Result of the map on one block."""
        parts = parts_of(self.rows, batch, cache)
        if self.state is None:
            return self.map(batch, *parts)
        return self.map(batch, *parts, self.state)

    def on_group(self, batches: Iterable[Batch], cache: RowCache) -> list[Node[Any]]:
        """Results for neighbouring blocks, merged as far as the tree allows."""
        nodes = (Node(0, batch.index, self.on_block(batch, cache)) for batch in batches)
        return list(nodes) if self.merge is None else complete_subtrees(nodes, self.merge)


@dataclass(frozen=True)
class Then:
    """A map of batches that are transformed first."""

    first: Callable[[Batch], Batch]
    map: Callable[..., Any]

    def __call__(self, batch: Batch, *rest: Any) -> Any:
        return self.map(self.first(batch), *rest)


class BlockEngine(Engine):
    """What engines have in common that can run a task where each group of blocks lives."""

    _seed: int

    @abstractmethod
    def _run(self, task: Task) -> Iterator[list[Node[Any]]]:
        """Results of a task for groups of neighbouring blocks, in block order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def reduce(
        self,
        map: Callable[..., Statistics],
        merge: Callable[[Statistics, Statistics], Statistics],
        *rows: RowValues,
        state: Any = None,
    ) -> Statistics:
        """Map every block to statistics, and merge them along one tree over block numbers."""
        with closing(_flat(self._run(Task(map, rows, state, merge)))) as nodes:  # type: ignore[type-var]
            found: Statistics = total(nodes, merge)
            return found

    def map_blocks(
        self, map: Callable[..., Output], *rows: RowValues, state: Any = None
    ) -> Iterator[Output]:
        """Map every block; results come in block order."""
        with closing(_flat(self._run(Task(map, rows, state)))) as nodes:  # type: ignore[type-var]
            for node in nodes:
                yield node.value

    def map_rows(self, map: Callable[..., Array], *rows: RowValues, state: Any = None) -> RowValues:
        """Values per row, made block by block when they are first needed."""
        return RowValues(map, rows, state)

    def transformed(self, transform: Callable[[Batch], Batch]) -> Engine:
        """The same rows after a transform of each block, applied anew in every pass."""
        from likelier.engines.transformed import TransformedEngine

        return TransformedEngine(self, transform)

    def sample(self, n: int, iteration: int = 0) -> Batch:
        """Return ``n`` rows (all, if there are fewer) without replacement, in random order.

        Every row has a random number, keyed on the block; the rows of the smallest are taken, in
        their order. So the sample is the same on every engine.
        """
        return self.reduce(self.sampler(n, iteration), Sample.__add__).batch

    def sampler(self, n: int, iteration: int = 0) -> Draw:
        """The map of `sample`, to be part of another pass."""
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        return Draw(int(n), self._seed, iteration)

    def subsets(self, sizes: Sequence[int], iteration: int = 0) -> list[Engine]:
        """Samples of growing size as engines of their own, in memory; each holds the one before."""
        from likelier.engines.local import LocalEngine

        if not sizes:
            return []
        whole = self.sample(max(sizes), iteration)
        return [
            LocalEngine(few.X, few.y, few.weight, seed=self._seed, n_jobs=self.n_jobs)
            for few in (first_rows(whole, size) for size in sizes)
        ]

    def head(self) -> Batch:
        """The first rows, a block of them."""
        blocks: Any = self.blocks()
        with closing(blocks):
            found: Batch = next(blocks)
            return found

    def folds(self, n_folds: int, key: int = 0) -> Iterator[tuple[Engine, Engine]]:
        """Yield the rows to learn from and the rows held out, for every fold."""
        from likelier.engines.stream import StreamEngine

        deal = Deal(n_folds, self._seed, key)
        for fold in range(n_folds):
            rest, held = (
                FoldSource(self, FoldPart(deal, fold, inside)) for inside in (False, True)
            )
            yield StreamEngine(rest, seed=self._seed), StreamEngine(held, seed=self._seed)

    @property
    def n_jobs(self) -> int:
        """Threads of this process that may work at a time."""
        return 1

    def stream(self, iteration: int, block: int) -> np.random.Generator:
        """Random numbers keyed on (seed, iteration, block)."""
        return self.streams(iteration)(block)

    def streams(self, iteration: int) -> Callable[[int], np.random.Generator]:
        """`stream` of one iteration, as a function of the block that holds no rows."""
        return partial(keyed_stream, self._seed, Purpose.MODEL, iteration)


def _flat(groups: Iterator[list[Node[Any]]]) -> Iterator[Node[Any]]:
    """The nodes of all groups; closing this ends the pass."""
    try:
        for group in groups:
            yield from group
    finally:
        close = getattr(groups, "close", None)
        if close is not None:
            close()
