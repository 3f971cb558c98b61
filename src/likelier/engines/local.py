"""The local engine: all rows in memory, passed over in blocks by threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Matrix, Output
from likelier.engines.blocks import BlockEngine, Node, Task
from likelier.engines.blocks import block_rows as default_block_rows
from likelier.engines.folds import Deal
from likelier.engines.keys import Purpose, check_seed, keyed_stream
from likelier.engines.row_values import RowCache
from likelier.engines.rows import present_rows, shuffled_rows, slice_rows, take_rows
from likelier.engines.samples import row_keys, smallest
from likelier.engines.threads import ThreadTeam, count_threads, one_blas_thread

MIN_GROUPS, MAX_GROUP = 16, 16  # blocks that one thread maps and merges at a time


class LocalEngine(BlockEngine):
    """Rows held in memory, in blocks, with threads.

    The data are never copied as a whole. `reduce`, `map_blocks` and ``blocks(None)`` hand out
    contiguous blocks as views with ``rows=None``; ``blocks(iteration)`` hands out batches
    that share the one ``X`` and list their ``rows``.

    Rows of weight zero are absent: row counts, block borders, permutations and samples are
    those of the data without them, bit for bit. Where they leave holes, a block is gathered
    when it is needed. ``Batch.start`` of a contiguous block counts the rows that are present;
    ``rows`` of a shuffled batch are positions in ``X`` as it was given.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_rows, n_features)
        float32 or float64. Dense data must be C- or F-contiguous. In a CSR matrix the caller
        has summed duplicate entries (``X.sum_duplicates()``); this is not checked.
    y : ndarray of length n_rows, optional
        Targets, passed through as they are.
    weight : ndarray of shape (n_rows,), optional
        Non-negative weights; None means one.
    seed : int
        Keys every random stream, together with the iteration and the block.
    n_jobs : int or None
        Threads used by `reduce`, `map_blocks` and `each`: None means 1, -1 all available cores.
        With more than one, BLAS is held to one thread per worker while they run.
    block_rows : int, optional
        Rows in a block, where other engines need not have the same blocks. The default depends
        on the number of columns and the storage only.
    shuffle : bool
        Whether the rows of ``blocks(iteration)`` come in random order, or else in order.

    Notes
    -----
    A shuffled pass costs one permutation of the row numbers; a reduction holds at most three
    results per thread. Close the engine, or use it as a context manager, to end its threads
    at once; otherwise they end with it.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> with LocalEngine(X, weight=np.array([1.0, 0.0, 2.0])) as engine:
    ...     engine.reduce(lambda block: block.weight @ block.X, np.add)
    array([ 8., 11.])
    """

    def __init__(
        self,
        X: Matrix,
        y: Array | None = None,
        weight: Array | None = None,
        *,
        seed: int = 0,
        n_jobs: int | None = 1,
        block_rows: int | None = None,
        shuffle: bool = True,
    ) -> None:
        _check_matrix(X)
        if y is not None and len(y) != X.shape[0]:
            raise ValueError(f"y must have one entry per row of X: {X.shape[0]} rows, {len(y)} y")
        if block_rows is not None and block_rows < 1:
            raise ValueError(f"block_rows must be at least 1, got {block_rows}")
        self._X, self._y, self._weight = X, y, weight
        self._kept = present_rows(weight, X.shape[0])
        self._n_rows = int(X.shape[0]) if self._kept is None else len(self._kept)
        if self._n_rows == 0:
            raise ValueError("there are no rows" if weight is None else "every weight is zero")
        self._seed = check_seed(seed)
        sparse_rows = not isinstance(X, np.ndarray)
        self._block_rows = block_rows or default_block_rows(int(X.shape[1]), sparse_rows)
        self._shuffle = shuffle
        self._cache = RowCache()
        self._team = ThreadTeam(count_threads(n_jobs))

    @property
    def n_rows(self) -> int:
        """Number of rows of positive weight."""
        return self._n_rows

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return int(self._X.shape[1])

    @property
    def repeatable(self) -> bool:
        """Data in memory can always be passed over again."""
        return True

    @property
    def is_local(self) -> bool:
        """All rows are in memory."""
        return True

    @property
    def n_jobs(self) -> int:
        """Number of threads."""
        return self._team.n_threads

    @property
    def block_rows(self) -> int:
        """Number of rows in every block but the last."""
        return self._block_rows

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self._n_rows // self._block_rows)

    @property
    def present(self) -> Array | None:
        """Positions in ``X`` of the rows of positive weight, or None if that is all of them."""
        return self._kept

    def blocks(self, iteration: int | None = None) -> Iterator[Batch]:
        """Yield the blocks one after another.

        Given an iteration, the batches share ``X`` and list their rows, shuffled over the
        whole data unless ``shuffle=False``; without one they are blocks in order.
        """
        if iteration is None:
            yield from map(self._block, range(self.n_blocks))
            return
        if self._shuffle:
            stream = keyed_stream(self._seed, Purpose.SHUFFLE, iteration, 0)
            order = shuffled_rows(self._n_rows, stream)
        else:
            order = np.arange(self._n_rows)
        if self._kept is not None:
            order = self._kept[order]
        for number in range(self.n_blocks):
            rows = order[number * self._block_rows : (number + 1) * self._block_rows]
            yield Batch(self._X, self._y, self._weight, rows=rows, index=number)

    def _run(self, task: Task) -> Iterator[list[Node[Any]]]:
        """Neighbours are merged by the thread that mapped them.

        Threads that meet after every short block spend their time waiting for each other.
        """
        size = 1
        while 2 * size <= min(MAX_GROUP, self.n_blocks // MIN_GROUPS):
            size *= 2

        def group(number: int) -> list[Node[Any]]:
            blocks = range(number * size, min((number + 1) * size, self.n_blocks))
            return task.on_group(map(self._block, blocks), self._cache)

        with one_blas_thread():  # several threads would add in another order
            yield from self._team.ordered_map(group, -(-self.n_blocks // size))

    def transformed(self, transform: Callable[[Batch], Batch]) -> Engine:
        """The same rows after a transform that treats each of them alike; applied once, to all."""
        batch = transform(Batch(self._X, self._y, self._weight))
        return LocalEngine(
            batch.X, batch.y, batch.weight, seed=self._seed, n_jobs=self.n_jobs,
            block_rows=self._block_rows, shuffle=self._shuffle,
        )  # fmt: skip

    def sample(self, n: int, iteration: int = 0) -> Batch:
        """Return ``n`` rows (all, if there are fewer) without replacement, in random order."""
        return self._gather(self._sampled(n, iteration))

    def draw(self, n: int, iteration: int = 0) -> Batch:
        """Return ``n`` random rows, sharing ``X``: nothing is copied."""
        return Batch(self._X, self._y, self._weight, rows=self._drawn(n, iteration))

    def folds(self, n_folds: int, key: int = 0) -> Iterator[tuple[Engine, Engine]]:
        """Yield the rows to learn from and the rows held out, for every fold; nothing is copied."""
        deal = Deal(n_folds, self._seed, key)
        sizes = [self._block(number).n_rows for number in range(self.n_blocks)]
        present = slice(None) if self._kept is None else self._kept
        numbers = np.full(self._X.shape[0], -1)
        numbers[present] = np.concatenate([deal.numbers(n, i) for i, n in enumerate(sizes)])
        weight = np.ones(len(numbers)) if self._weight is None else self._weight
        for fold in range(n_folds):
            held = numbers == fold
            yield self._weighted(np.where(held, 0.0, weight)), self._weighted(weight * held)

    def _weighted(self, weight: Array) -> LocalEngine:
        """The same rows with other weights."""
        return LocalEngine(
            self._X, self._y, weight, seed=self._seed, n_jobs=self.n_jobs,
            block_rows=self._block_rows, shuffle=self._shuffle,
        )  # fmt: skip

    def each(self, work: Callable[[int], Output], count: int) -> Iterator[Output]:
        """Yield the results of ``work`` in order; at most two per thread wait to be read."""
        return self._team.ordered_map(work, count)

    def close(self) -> None:
        """End the engine's threads; using the engine again starts new ones."""
        self._team.close()

    def _drawn(self, n: int, iteration: int) -> Array:
        """Numbers of ``n`` rows in random order."""
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        stream = keyed_stream(self._seed, Purpose.SAMPLE, iteration, 0)
        rows = stream.choice(self._n_rows, size=min(n, self._n_rows), replace=False)
        return rows if self._kept is None else self._kept[rows]

    def _sampled(self, n: int, iteration: int) -> Array:
        """Numbers of the rows of a sample, by the numbers that `Draw` gives every row."""
        draw, size = self.sampler(n, iteration), self._block_rows
        starts = range(0, self._n_rows, size)
        keys = [
            row_keys(min(size, self._n_rows - start), number, start, draw)
            for number, start in enumerate(starts)
        ]
        rows = smallest(np.concatenate(keys), draw.n)
        return rows if self._kept is None else self._kept[rows]

    def _block(self, number: int) -> Batch:
        """Return one block in the data's order, as a view unless rows are missing inside it."""
        start = number * self._block_rows
        stop = min(start + self._block_rows, self._n_rows)
        if self._kept is None:
            return self._view(start, stop, number, start)
        rows = self._kept[start:stop]
        first, last = int(rows[0]), int(rows[-1]) + 1
        if last - first == len(rows):
            return self._view(first, last, number, start)
        return self._gather(rows, number, start)

    def _view(self, first: int, last: int, index: int, start: int) -> Batch:
        return Batch(
            slice_rows(self._X, first, last),
            None if self._y is None else self._y[first:last],
            None if self._weight is None else self._weight[first:last],
            index=index,
            start=start,
        )

    def _gather(self, rows: Array, index: int = 0, start: int = 0) -> Batch:
        return Batch(
            take_rows(self._X, rows),
            None if self._y is None else self._y[rows],
            None if self._weight is None else self._weight[rows],
            index=index,
            start=start,
        )


def _check_matrix(X: Matrix) -> None:
    """Raise unless ``X`` is something blocks can be cut from without copying."""
    if not isinstance(X, np.ndarray | sparse.csr_array | sparse.csr_matrix):
        raise TypeError(f"X must be an ndarray or a SciPy CSR matrix, got {type(X).__name__}")
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, got {X.ndim}; reshape it to rows x columns")
    if X.dtype not in (np.float32, np.float64):
        raise TypeError(f"X must hold float32 or float64, got {X.dtype}; convert it with astype")
    if isinstance(X, np.ndarray) and not (X.flags.c_contiguous or X.flags.f_contiguous):
        raise ValueError("X must be C- or F-contiguous; use numpy.ascontiguousarray(X)")
