"""Least-recently-used cache of kernel rows, which are computed on demand by BLAS in blocks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.kernels import Linear, Poly, Prepared, Rbf
from likelier.svm.kernel_values import KnownValues, RowSource
from likelier.svm.loops.smo import EXTERNAL, LINEAR, POLY, RBF, compact_rows, gather_block
from likelier.svm.model import PANEL, by_features, fill_panel, kernel_block

MIN_SLOTS = 8  # a pair of rows, and some prefetched ones
MIN_BLOCK, MAX_BLOCK = 16, 32  # rows computed at once
MIN_THREADED_VALUES = 20_000  # kernel values from which on threads pay off
FETCH_OVERHEAD = 6e4  # overhead of fetching a block, in nanoseconds
# If the features fit in the second-level cache of a core, rows are computed one at a time inside
# the compiled loop, which avoids prefetching rows that are never used.
IN_LOOP_BYTES = 3 << 17
Run = Callable[[Callable[[int], None], int], None]


ROWS, WHOLE, BLOCKS, PAIR = range(4)  # purposes of buffers
MAX_IDLE_BYTES = 80 << 20  # memory that the process may keep between fits


def run_sequentially(function: Callable[[int], None], count: int) -> None:
    """A sequential `Run`."""
    for number in range(count):
        function(number)


class BufferPool:
    """Buffers for kernel values, reused from one problem to the next.

    The operating system clears new pages on first access, which costs more than the kernel values
    of a small problem, in particular in a new thread.
    """

    def __init__(self) -> None:
        self._held = [np.empty(0, dtype=np.uint8) for _ in range(PAIR + 1)]
        self._others: list[BufferPool] = []

    def for_threads(self, count: int) -> list[BufferPool]:
        """One pool per thread: this one, and others that it owns."""
        self._others += [BufferPool() for _ in range(len(self._others), count - 1)]
        return [self, *self._others[: count - 1]]

    def take(self, purpose: int, count: int, dtype: np.dtype[Any]) -> Array:
        """An uninitialised array; invalidates the previous array of the same purpose."""
        size = count * dtype.itemsize
        if len(self._held[purpose]) < size:  # not touched before it is used
            self._held[purpose] = np.empty(size, dtype=np.uint8)
        return self._held[purpose][:size].view(dtype)

    def trim(self) -> None:
        """Release the largest buffers until at most `MAX_IDLE_BYTES` remain."""
        lists = [memory._held for memory in (self, *self._others)]
        buffers = [(len(held[k]), held, k) for held in lists for k in range(len(held))]
        buffers.sort(key=lambda buffer: buffer[0])
        total = sum(size for size, _, _ in buffers)
        while total > MAX_IDLE_BYTES:
            size, held, k = buffers.pop()
            held[k] = np.empty(0, dtype=np.uint8)
            total -= size


_idle: list[BufferPool] = []  # at most one


@contextmanager
def reusable_buffers() -> Generator[BufferPool, None, None]:
    """Buffers for a fit; those of the previous fit unless they are in use.

    So consecutive fits, as in a grid search, do not have to clear new pages.
    """
    try:
        memory = _idle.pop()
    except IndexError:
        memory = BufferPool()
    try:
        yield memory
    finally:
        memory.trim()
        if not _idle:
            _idle.append(memory)


class RowCache:
    """Cache of rows of the kernel matrix, restricted to the active rows.

    Row ``i`` (an index into the active set) is ``slots[slot_of[i]]``, not cached if that is -1.

    Parameters
    ----------
    rows : Prepared or Given
        All rows of the problem in the precision of the kernel rows, or their kernel values.
    n_bytes : int
        Memory for kernel rows.
    run : callable, optional
        ``run(function, count)`` calls ``function(0) ... function(count - 1)`` in threads.
    memory : Memory, optional
        Buffers to reuse.
    dtype : optional
        Precision of the kernel rows, if it differs from that of the rows.
    """

    def __init__(
        self, rows: Prepared | KnownValues, n_bytes: int, run: Run | None, n_parts: int,
        memory: BufferPool | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        self._rows, self._run, self.n_parts = rows, run, n_parts
        self._memory = memory or BufferPool()
        self.dtype = np.dtype(rows.dtype if dtype is None else dtype)
        n = self.n_rows = rows.n_rows
        item = self.dtype.itemsize
        held = min(n * n, max(n_bytes // item, MIN_SLOTS * n))
        self._room = n_bytes // item
        self._flat = self._memory.take(ROWS, held, self.dtype)
        self.budget = np.zeros(1, dtype=np.int64)
        self.count = np.zeros(1, dtype=np.int64)  # slots in use
        with np.errstate(over="ignore"):  # the caller checks `scale`
            self.diagonal = np.asarray(rows.diagonal(), dtype=self.dtype)
        self.scale = float(abs(self.diagonal).max()) if n else 0.0
        self.whole: Array | None = None
        self.error: float | None = None  # measured error of a kernel value
        self._reset(np.arange(n))

    def store_whole_matrix(self, given: Array | None = None) -> None:
        """Compute the whole matrix if there is memory for it and for a copy of active rows.

        ``given`` is the matrix in another precision. For several problems with the same rows:
        kernel values are computed once, and shrinking only copies. Cost: all pairs of rows.
        """
        n = self.n_rows
        if self.whole is None and n > 0 and 2 * n * n <= self._room:
            self.whole = self._all_pairs() if given is None else given.astype(self.dtype)
            self._activate_whole(np.arange(n))

    def _all_pairs(self) -> Array:
        """The whole matrix, computed in panels that fit in the cache."""
        n, rows = self.n_rows, self._rows
        whole = self._memory.take(WHOLE, n * n, self.dtype).reshape(n, n)
        if isinstance(rows, KnownValues):
            return rows.gather(np.arange(n), np.arange(n), whole)

        def panel(k: int) -> None:
            fill_panel(rows, whole, k * PANEL)

        self.each(panel, -(-n // PANEL))
        return whole

    def each(self, function: Callable[[int], None], count: int) -> None:
        """Call ``function(0) ... function(count - 1)``, in threads if available."""
        (self._run or run_sequentially)(function, count)

    @property
    def rows_are_expensive(self) -> bool:
        """Whether kernel rows are computed in blocks by BLAS, not singly inside the loop."""
        return self.row_source[0] == EXTERNAL

    def _activate_whole(self, active: Array) -> None:
        """Set the active rows and take all of their kernel rows from the whole matrix."""
        assert self.whole is not None
        n = len(active)
        self._set_active(active)
        self.slots = self.whole
        if n < len(self.whole):
            self.slots = self._flat[: n * n].reshape(n, n)
            gather_block(self.whole, active, active, self.slots)
        self.slot_of, self.row_of = np.arange(n), np.arange(n)
        self.stamps = np.zeros(n, dtype=np.int64)
        self.block, self.evicting_block, self.n_used = 1, 1, n

    def _set_active(self, active: Array) -> None:
        """Set the active rows and their diagonal."""
        self.active = active
        everything = len(active) == len(self.diagonal)
        self.active_diagonal = self.diagonal if everything else self.diagonal[active]

    def _reset(self, active: Array) -> None:
        """Empty the cache and set the active rows."""
        n = len(active)
        self._set_active(active)
        self.n_used = 0
        n_slots = min(n, len(self._flat) // n)
        self.slots = self._flat[: n_slots * n].reshape(n_slots, n)
        features = 0
        if isinstance(self._rows, KnownValues):
            self.row_source = self._rows.row_source(active, self.dtype)
        else:
            self._columns = self._rows if n == self.n_rows else self._rows.take(active)
            self.row_source, features = (
                _row_source(self._columns, self.dtype),
                self._columns.X.shape[1],
            )
            if self.row_source[0] == EXTERNAL:
                self._columns = by_features(self._columns)
        # prefetched rows may not be needed: prefetch as many as the overhead of a call is worth
        self._row_work = n * (0.04 * features + 1.2)  # nanoseconds
        block = int(min(max(FETCH_OVERHEAD / self._row_work, MIN_BLOCK), MAX_BLOCK))
        self.evicting_block = max(1, min(block, n_slots // 2))  # block size if rows must be evicted
        self.block = max(1, min(block * self.n_parts, n_slots // 2))
        self.slot_of = np.full(n, -1, dtype=np.int64)
        self.row_of = np.full(n_slots, -1, dtype=np.int64)
        self.stamps = np.zeros(n_slots, dtype=np.int64)

    @property
    def n_used(self) -> int:
        """Number of cached rows."""
        return int(self.count[0])

    @n_used.setter
    def n_used(self, count: int) -> None:
        self.count[0] = count

    @property
    def n_bytes(self) -> int:
        """Memory of the cache."""
        return self._flat.nbytes

    @property
    def n_slots(self) -> int:
        """Capacity in rows."""
        return len(self.slots)

    def restart(self) -> None:
        """Make all rows active again; this empties the cache unless the whole matrix is stored."""
        if len(self.active) == self.n_rows:
            return
        self.empty(np.arange(self.n_rows))

    def empty(self, active: Array) -> None:
        """Set the active rows and forget cached ones, which a stored matrix makes again."""
        if self.whole is not None:
            self._activate_whole(active)
        else:
            self._reset(active)

    @property
    def refill_work(self) -> float:
        """Estimated nanoseconds to compute all cached rows again."""
        return 0.0 if self.whole is not None else self.n_used * self._row_work

    def lend(self) -> Array:
        """The memory of the cache as a float64 array, until rows are fetched again.

        All rows become active, and the cache is emptied.
        """
        self.empty(np.arange(self.n_rows))
        item = self._flat.itemsize
        return self._flat[: len(self._flat) * item // 8 * (8 // item)].view(np.float64)

    def keep(self, positions: Array) -> None:
        """Restrict the active rows to some of them; cached rows are compacted."""
        if self.whole is not None:
            self._activate_whole(self.active[positions])
            return
        width = len(self.active)
        inside = np.zeros(width, dtype=bool)
        inside[positions] = True
        held = np.flatnonzero(inside[self.row_of[: self.n_used]])
        rows, stamps = self.row_of[held], self.stamps[held]
        compact_rows(self._flat, width, held, positions)
        self._reset(self.active[positions])
        held = held[: self.n_slots]
        new_position = np.cumsum(inside) - 1
        self.n_used = len(held)
        self.row_of[: len(held)] = new_position[rows[: len(held)]]
        self.stamps[: len(held)] = stamps[: len(held)]
        self.slot_of[self.row_of[: len(held)]] = np.arange(len(held))

    def values(self, rows: Array, columns: Array) -> Array:
        """Kernel values of any rows of the problem, in working precision."""
        if isinstance(self._rows, KnownValues):
            return self._rows.gather(rows, columns, np.empty((len(rows), len(columns)), self.dtype))
        return kernel_block(self._rows, rows, columns).astype(self.dtype, copy=False)

    def fetch(self, rows: Array) -> None:
        """Compute and cache kernel rows, none of which is cached yet."""
        count = len(rows)
        first = self.n_used
        if first + count <= self.n_slots:
            new_slots = np.arange(first, first + count)
            self.n_used += count
            self._make(rows, self.slots[first : first + count])
        else:
            new_slots = np.argpartition(self.stamps, count - 1)[:count]
            evicted = self.row_of[new_slots]
            self.slot_of[evicted[evicted >= 0]] = -1
            self.n_used = self.n_slots
            self.slots[new_slots] = self._make(rows, None)
        self.row_of[new_slots] = rows
        self.slot_of[rows] = new_slots
        self.budget[0] += 1
        self.stamps[new_slots] = self.budget[0]

    def _make(self, rows: Array, out: Array | None) -> Array:
        numbers = self.active[rows]
        if out is None:
            out = np.empty((len(rows), len(self.active)), dtype=self.dtype)
        if isinstance(self._rows, KnownValues):
            return self._rows.gather(numbers, self.active, out)
        some = self._rows.take(numbers)
        if self._run is None or len(rows) * len(self.active) < MIN_THREADED_VALUES:
            return some.block(self._columns, out)
        borders = np.linspace(0, len(self.active), self.n_parts + 1).astype(int)

        def part(k: int) -> None:  # split by columns, because products of few rows are slow
            inside = slice(borders[k], borders[k + 1])
            out[:, inside] = some.block(self._columns.take(inside))

        self._run(part, self.n_parts)
        return out


def _row_source(rows: Prepared, dtype: np.dtype[Any]) -> RowSource:
    """Arguments with which the compiled loop computes kernel rows itself."""
    kernel, X = rows.kernel, rows.X
    none, indices = np.zeros(1, dtype=dtype), np.zeros(1, dtype=np.intp)
    external = (EXTERNAL, none, none[:, None], none, indices)
    if not isinstance(X, np.ndarray) or X.nbytes > IN_LOOP_BYTES:
        return external
    columns = np.ascontiguousarray(X.T)
    if isinstance(kernel, Rbf):
        scale = 1.0 if isinstance(kernel.gamma, tuple) else kernel.gamma
        return RBF, np.array([scale], dtype=dtype), columns, np.asarray(rows.norms), indices
    if isinstance(kernel, Poly):
        numbers = [kernel.gamma, kernel.coef0, float(kernel.degree)]
        return POLY, np.array(numbers, dtype=dtype), columns, none, indices
    if type(kernel) is Linear:
        return LINEAR, none, columns, none, indices
    return external


def in_precision(prepared: Prepared, dtype: Any, dense_bytes: int) -> Prepared:
    """Rows in a precision; made dense if this is faster and memory allows it."""
    with np.errstate(over="ignore"):  # an overflow makes the row distant from all others
        X = prepared.X.astype(dtype, copy=False)
    size = X.shape[0] * X.shape[1]
    if (
        not isinstance(X, np.ndarray)
        and 24 * X.nnz > size
        and size * X.dtype.itemsize <= dense_bytes
    ):
        X = X.toarray()
    with np.errstate(over="ignore"):
        norms = None if prepared.norms is None else prepared.norms.astype(dtype, copy=False)
    return replace(prepared, X=X, norms=norms)
