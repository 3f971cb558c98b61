"""Kernel rows on demand: made by BLAS in blocks, kept in bounded memory, least used given up."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.kernels import Linear, Poly, Prepared, Rbf
from likelier.svm.kernel_values import Given, Recipe
from likelier.svm.loops.smo import ELSEWHERE, LINEAR, POLY, RBF, compact_rows, gather_block
from likelier.svm.model import PANEL, by_features, fill_panel, kernel_block

MIN_SLOTS = 8  # a pair of rows, and some that are fetched with it
MIN_BLOCK, MAX_BLOCK = 16, 32  # rows made at once
WORTH_THREADS = 20_000  # kernel values that take longer than to ask another thread for them
CALL = 6e4  # nanoseconds that asking for a block costs, whatever its size
# Features that stay in the second-level cache of a core: then a row is made where it is needed,
# one at a time, which saves the rows that a block would make in vain.
IN_LOOP_BYTES = 3 << 17
Run = Callable[[Callable[[int], None], int], None]


ROWS, WHOLE, BLOCKS, PAIR = range(4)  # what memory is taken for
KEPT_BYTES = 80 << 20  # memory that may stay with the process between fits


def one_by_one(function: Callable[[int], None], count: int) -> None:
    """A `Run` without threads."""
    for number in range(count):
        function(number)


class Memory:
    """Memory for kernel values that goes from one problem to the next.

    The system clears fresh memory page by page when it is first touched, which costs more than
    the kernel values of a small problem; most of all in a thread that has had none before.
    """

    def __init__(self) -> None:
        self._held = [np.empty(0, dtype=np.uint8) for _ in range(PAIR + 1)]
        self._others: list[Memory] = []

    def for_threads(self, count: int) -> list[Memory]:
        """Memories for so many threads: itself, and others that stay with it."""
        self._others += [Memory() for _ in range(len(self._others), count - 1)]
        return [self, *self._others[: count - 1]]

    def take(self, purpose: int, count: int, dtype: np.dtype[Any]) -> Array:
        """An array of ``count`` entries, not cleared; what was taken before is given up."""
        size = count * dtype.itemsize
        if len(self._held[purpose]) < size:  # not touched before it is used
            self._held[purpose] = np.empty(size, dtype=np.uint8)
        return self._held[purpose][:size].view(dtype)

    def trim(self) -> None:
        """Give up the largest pieces until what is left is little enough to be kept."""
        lists = [memory._held for memory in (self, *self._others)]
        pieces = [(len(held[k]), held, k) for held in lists for k in range(len(held))]
        pieces.sort(key=lambda piece: piece[0])
        kept = sum(size for size, _, _ in pieces)
        while kept > KEPT_BYTES:
            size, held, k = pieces.pop()
            held[k] = np.empty(0, dtype=np.uint8)
            kept -= size


_kept: list[Memory] = []  # at most one


@contextmanager
def kept_memory() -> Generator[Memory, None, None]:
    """Memory for a fit, that of the last one if nobody else uses it.

    Fits that follow one another, as in a search, need not wait until the system clears new pages.
    """
    try:
        memory = _kept.pop()
    except IndexError:
        memory = Memory()
    try:
        yield memory
    finally:
        memory.trim()
        if not _kept:
            _kept.append(memory)


class RowCache:
    """Rows of the kernel matrix over an active set of rows.

    Row ``i`` (a position in the active set) is ``slots[slot_of[i]]`` if that is not -1.

    Parameters
    ----------
    rows : Prepared or Given
        All rows of the problem in the precision the kernel rows shall have, or their values.
    n_bytes : int
        Memory for kernel rows.
    run : callable, optional
        ``run(function, count)`` calls ``function(0) ... function(count - 1)`` in threads.
    memory : Memory, optional
        Of a cache that is no longer used.
    dtype : optional
        Precision of the kernel rows, if it is not that of the rows.
    """

    def __init__(
        self, rows: Prepared | Given, n_bytes: int, run: Run | None, n_parts: int,
        memory: Memory | None = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        self._rows, self._run, self.n_parts = rows, run, n_parts
        self._memory = memory or Memory()
        self.dtype = np.dtype(rows.dtype if dtype is None else dtype)
        n = self.n_rows = rows.n_rows
        item = self.dtype.itemsize
        held = min(n * n, max(n_bytes // item, MIN_SLOTS * n))
        self._room = n_bytes // item
        self._flat = self._memory.take(ROWS, held, self.dtype)
        self.budget = np.zeros(1, dtype=np.int64)
        self.count = np.zeros(1, dtype=np.int64)  # slots in use
        with np.errstate(over="ignore"):  # the caller sees it in the scale
            self.diagonal = np.asarray(rows.diagonal(), dtype=self.dtype)
        self.scale = float(abs(self.diagonal).max()) if n else 0.0
        self.whole: Array | None = None
        self.error: float | None = None  # of a kernel value, where it has been measured
        self._reset(np.arange(n))

    def hold_everything(self, given: Array | None = None) -> None:
        """Make the whole matrix at once if there is room for it and for a part of it.

        ``given`` is the same in another precision.

        For callers that come back with the same rows: nothing is made twice, and going on with
        fewer rows or with all again is a copy or nothing. Cost: all pairs of rows.
        """
        n = self.n_rows
        if self.whole is None and n > 0 and 2 * n * n <= self._room:
            self.whole = self._all_pairs() if given is None else given.astype(self.dtype)
            self._hold(np.arange(n))

    def _all_pairs(self) -> Array:
        """The whole matrix, in panels that stay in a processor's cache while they are made."""
        n, rows = self.n_rows, self._rows
        whole = self._memory.take(WHOLE, n * n, self.dtype).reshape(n, n)
        if isinstance(rows, Given):
            return rows.gather(np.arange(n), np.arange(n), whole)

        def panel(k: int) -> None:
            fill_panel(rows, whole, k * PANEL)

        self.each(panel, -(-n // PANEL))
        return whole

    def each(self, function: Callable[[int], None], count: int) -> None:
        """Call ``function(0) ... function(count - 1)``, in threads where there are some."""
        (self._run or one_by_one)(function, count)

    @property
    def rows_are_dear(self) -> bool:
        """Whether kernel rows are made in blocks by BLAS, not one by one inside the loop."""
        return self.recipe[0] == ELSEWHERE

    def _hold(self, active: Array) -> None:
        """Hold all rows with the columns of ``active``, out of the whole matrix."""
        assert self.whole is not None
        n = len(active)
        self._activate(active)
        self.slots = self.whole
        if n < len(self.whole):
            self.slots = self._flat[: n * n].reshape(n, n)
            gather_block(self.whole, active, active, self.slots)
        self.slot_of, self.row_of = np.arange(n), np.arange(n)
        self.stamps = np.zeros(n, dtype=np.int64)
        self.block, self.fewer, self.n_used = 1, 1, n

    def _activate(self, active: Array) -> None:
        """Note the active rows and what belongs to them."""
        self.active = active
        everything = len(active) == len(self.diagonal)
        self.active_diagonal = self.diagonal if everything else self.diagonal[active]

    def _reset(self, active: Array) -> None:
        """Forget all rows; from now on they have the columns of ``active``."""
        n = len(active)
        self._activate(active)
        self.n_used = 0
        n_slots = min(n, len(self._flat) // n)
        self.slots = self._flat[: n_slots * n].reshape(n_slots, n)
        features = 0
        if isinstance(self._rows, Given):
            self.recipe = self._rows.recipe(active, self.dtype)
        else:
            self._columns = self._rows if n == self.n_rows else self._rows.take(active)
            self.recipe, features = _recipe(self._columns, self.dtype), self._columns.X.shape[1]
            if self.recipe[0] == ELSEWHERE:
                self._columns = by_features(self._columns)
        # rows fetched unasked may never be needed: as many as the call costs anyhow
        per_row = n * (0.04 * features + 1.2)
        block = int(min(max(CALL / per_row, MIN_BLOCK), MAX_BLOCK))
        self.fewer = max(1, min(block, n_slots // 2))  # where they drive out others
        self.block = max(1, min(block * self.n_parts, n_slots // 2))
        self.slot_of = np.full(n, -1, dtype=np.int64)
        self.row_of = np.full(n_slots, -1, dtype=np.int64)
        self.stamps = np.zeros(n_slots, dtype=np.int64)

    @property
    def n_used(self) -> int:
        """Number of rows held."""
        return int(self.count[0])

    @n_used.setter
    def n_used(self, count: int) -> None:
        self.count[0] = count

    @property
    def n_bytes(self) -> int:
        """Memory for rows."""
        return self._flat.nbytes

    @property
    def n_slots(self) -> int:
        """Number of rows that can be held."""
        return len(self.slots)

    def restart(self) -> None:
        """Return to all rows of the problem; those held are lost unless they are whole."""
        if len(self.active) == self.n_rows:
            return
        if self.whole is not None:
            self._hold(np.arange(self.n_rows))
        else:
            self._reset(np.arange(self.n_rows))

    def lend(self) -> Array:
        """The memory of the rows, as float64 numbers; all rows are active and none is held.

        For a caller who needs it no longer when rows are fetched again.
        """
        everything = np.arange(self.n_rows)
        if self.whole is None:
            self._reset(everything)
        else:
            self._hold(everything)
        item = self._flat.itemsize
        return self._flat[: len(self._flat) * item // 8 * (8 // item)].view(np.float64)

    def keep(self, positions: Array) -> None:
        """Go on with some of the active rows; the rows held keep what belongs to them."""
        if self.whole is not None:
            self._hold(self.active[positions])
            return
        width = len(self.active)
        inside = np.zeros(width, dtype=bool)
        inside[positions] = True
        held = np.flatnonzero(inside[self.row_of[: self.n_used]])
        rows, stamps = self.row_of[held], self.stamps[held]
        compact_rows(self._flat, width, held, positions)
        self._reset(self.active[positions])
        held = held[: self.n_slots]
        new_place = np.cumsum(inside) - 1
        self.n_used = len(held)
        self.row_of[: len(held)] = new_place[rows[: len(held)]]
        self.stamps[: len(held)] = stamps[: len(held)]
        self.slot_of[self.row_of[: len(held)]] = np.arange(len(held))

    def values(self, rows: Array, columns: Array) -> Array:
        """Kernel values of any rows of the problem, active or not, in working precision."""
        if isinstance(self._rows, Given):
            return self._rows.gather(rows, columns, np.empty((len(rows), len(columns)), self.dtype))
        return kernel_block(self._rows, rows, columns).astype(self.dtype, copy=False)

    def fetch(self, rows: Array) -> None:
        """Make kernel rows (none of them held yet) and hold them."""
        count = len(rows)
        first = self.n_used
        if first + count <= self.n_slots:
            places = np.arange(first, first + count)
            self.n_used += count
            self._make(rows, self.slots[first : first + count])
        else:
            places = np.argpartition(self.stamps, count - 1)[:count]
            given_up = self.row_of[places]
            self.slot_of[given_up[given_up >= 0]] = -1
            self.n_used = self.n_slots
            self.slots[places] = self._make(rows, None)
        self.row_of[places] = rows
        self.slot_of[rows] = places
        self.budget[0] += 1
        self.stamps[places] = self.budget[0]

    def _make(self, rows: Array, out: Array | None) -> Array:
        numbers = self.active[rows]
        if out is None:
            out = np.empty((len(rows), len(self.active)), dtype=self.dtype)
        if isinstance(self._rows, Given):
            return self._rows.gather(numbers, self.active, out)
        some = self._rows.take(numbers)
        if self._run is None or len(rows) * len(self.active) < WORTH_THREADS:
            return some.block(self._columns, out)
        borders = np.linspace(0, len(self.active), self.n_parts + 1).astype(int)

        def part(k: int) -> None:  # of the columns: a product of few rows is slow
            inside = slice(borders[k], borders[k + 1])
            out[:, inside] = some.block(self._columns.take(inside))

        self._run(part, self.n_parts)
        return out


def _recipe(rows: Prepared, dtype: np.dtype[Any]) -> Recipe:
    """How the compiled loop makes kernel rows itself: kind, parameters, features, norms, places."""
    kernel, X = rows.kernel, rows.X
    none, places = np.zeros(1, dtype=dtype), np.zeros(1, dtype=np.intp)
    elsewhere = (ELSEWHERE, none, none[:, None], none, places)
    if not isinstance(X, np.ndarray) or X.nbytes > IN_LOOP_BYTES:
        return elsewhere
    columns = np.ascontiguousarray(X.T)
    if isinstance(kernel, Rbf):
        scale = 1.0 if isinstance(kernel.gamma, tuple) else kernel.gamma
        return RBF, np.array([scale], dtype=dtype), columns, np.asarray(rows.norms), places
    if isinstance(kernel, Poly):
        numbers = [kernel.gamma, kernel.coef0, float(kernel.degree)]
        return POLY, np.array(numbers, dtype=dtype), columns, none, places
    if type(kernel) is Linear:
        return LINEAR, none, columns, none, places
    return elsewhere


def in_precision(prepared: Prepared, dtype: Any, dense_bytes: int) -> Prepared:
    """Rows in a precision; dense where BLAS is then faster and memory allows it."""
    with np.errstate(over="ignore"):  # beyond single precision a row is far from all others
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
