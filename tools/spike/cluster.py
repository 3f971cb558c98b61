"""What engines over a cluster have in common: packed blocks, and the work on a group of them.

Blocks are written to a file once, a row for each, as if a table had been numbered and packed. So a
worker that is lost can be replaced, and the driver holds no rows.
"""

from __future__ import annotations

import importlib
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from likelier.base import Array, Batch
from likelier.engines import LocalEngine
from likelier.engines.blocks import BlockEngine, Node, Task
from likelier.engines.keys import Purpose, keyed_stream
from likelier.engines.row_values import RowCache
from likelier.engines.rows import stack_rows
from likelier.engines.samples import joined, take
from likelier.engines.threads import one_blas_thread

EMBEDDED_BYTES = 1 << 16  # a task up to this size travels with every group, a larger one by itself
cloudpickle: Any = importlib.import_module("cloudpickle")  # it has no types
CACHE = RowCache()  # of this process: every worker has one


def packed(task: Task) -> bytes:
    """A task as bytes; lambdas travel by value."""
    found: bytes = cloudpickle.dumps(task)
    return found


def work(task: bytes, batches: Iterator[Batch]) -> bytes:
    """Results of a task for a group of blocks, where these are.

    Bytes go back: what a cluster unpacks by itself lies at odd addresses, where BLAS adds in
    another order.
    """
    with one_blas_thread():
        nodes = pickle.loads(task).on_group(batches, CACHE)
    found: bytes = cloudpickle.dumps(nodes)
    return found


def write_blocks(rows: LocalEngine, path: Path) -> None:
    """Write the blocks of rows to a Parquet file, one row and row group for each."""
    schema = pa.schema([("block", pa.int32()), ("data", pa.binary())])
    with pq.ParquetWriter(path, schema, compression="none") as file:
        for batch in rows.blocks():
            data = pickle.dumps(_in_one_piece(batch), protocol=5)
            file.write_table(pa.table([[batch.index], [data]], schema=schema))


def read_blocks(path: Path, first: int, last: int) -> list[Batch]:
    """Read neighbouring blocks."""
    file = pq.ParquetFile(path)
    table = file.read_row_groups(list(range(first, last)))
    return [pickle.loads(data.as_buffer()) for data in table["data"]]


def _in_one_piece(batch: Batch) -> Batch:
    """Rows of a matrix in Fortran order are not contiguous, and would be packed in C order."""
    X = batch.X
    if isinstance(X, np.ndarray) and not X.flags.c_contiguous:
        return replace(batch, X=np.asfortranarray(X))
    return batch


@dataclass(frozen=True)
class Pick:
    """The rows of some numbers: a map."""

    numbers: Array

    def __call__(self, batch: Batch) -> tuple[Array, Batch]:
        inside = self.numbers - batch.start
        found = np.flatnonzero((inside >= 0) & (inside < batch.n_rows))
        return found, take(batch, inside[found])


def whole(batch: Batch) -> Batch:
    """The map that brings blocks to the driver."""
    return batch


class ClusterEngine(BlockEngine):
    """Rows in blocks that workers hold.

    ``in_memory`` is what the engine claims of itself. With it, routes are those of rows in memory,
    and what addresses rows by number gets them here: the rows of `draw`, or all for
    ``blocks(iteration)``.
    """

    def __init__(self, rows: LocalEngine, *, seed: int, shuffle: bool, in_memory: bool) -> None:
        self._seed, self._shuffle, self._in_memory = seed, shuffle, in_memory
        self._n_rows, self._n_features = rows.n_rows, rows.n_features
        self._block_rows, self._n_blocks = rows.block_rows, rows.n_blocks
        self._folder = tempfile.TemporaryDirectory(prefix="likelier-blocks-")
        self._path = Path(self._folder.name) / "blocks.parquet"
        self._here: LocalEngine | None = None
        write_blocks(rows, self._path)

    @property
    def n_rows(self) -> int:
        return self._n_rows

    @property
    def n_features(self) -> int:
        return self._n_features

    @property
    def block_rows(self) -> int:
        return self._block_rows

    @property
    def repeatable(self) -> bool:
        return True

    @property
    def in_memory(self) -> bool:
        return self._in_memory

    def blocks(self, iteration: int | None = None) -> Iterator[Batch]:
        """Bring the blocks here: shuffled within each, or over all rows if they fit in memory."""
        if iteration is None:
            yield from self.map_blocks(whole)
        elif self._in_memory:
            yield from self._gathered().blocks(iteration)
        else:
            for batch in self.map_blocks(whole):
                stream = keyed_stream(self._seed, Purpose.SHUFFLE, iteration, batch.index)
                rows = stream.permutation(batch.n_rows) if self._shuffle else None
                yield replace(batch, rows=rows)

    def draw(self, n: int, iteration: int = 0) -> Batch:
        """The rows that rows in memory would give, found by their numbers in one pass."""
        if not self._in_memory:
            return self.sample(n, iteration)
        stream = keyed_stream(self._seed, Purpose.SAMPLE, iteration, 0)
        numbers = stream.choice(self._n_rows, size=min(n, self._n_rows), replace=False)
        found = list(self.map_blocks(Pick(numbers)))
        batch = found[0][1]
        for _, more in found[1:]:
            batch = joined(batch, more)
        return take(batch, np.argsort(np.concatenate([places for places, _ in found])))

    def _gathered(self) -> LocalEngine:
        """All rows, here."""
        if self._here is None:
            batches = list(self.map_blocks(whole))
            X = stack_rows([batch.X for batch in batches])
            y, weight = (_parts([getattr(b, name) for b in batches]) for name in ("y", "weight"))
            self._here = LocalEngine(X, y, weight, seed=self._seed, shuffle=self._shuffle)
        return self._here

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _parts(parts: list[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


def check_complete(nodes: list[Node[Any]], expected: int) -> None:
    """Raise unless every block of a pass is there once, in order."""
    at = 0
    for node in nodes:
        if node.position << node.level != at:
            raise RuntimeError(f"block {at} was expected, and {node} came")
        at += 1 << node.level
    if at != expected:
        raise RuntimeError(f"{expected} blocks were expected, and {at} came")


class HereEngine(ClusterEngine):
    """The routes of a cluster, worked on by this process: what clusters are compared with."""

    def _run(self, task: Task) -> Iterator[list[Node[Any]]]:
        for number in range(self._n_blocks):
            batches = iter(read_blocks(self._path, number, number + 1))
            yield pickle.loads(work(packed(task), batches))
