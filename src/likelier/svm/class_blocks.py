"""Kernel values of pairs of classes, in blocks shared by all pairs of a class.

With one-vs-one, the kernel values within a class are needed by every pair of that class, and would
be computed again for each if fetched on demand. If many rows are support vectors it is cheaper to
compute everything once: the block of every class, and for a pair the block between its two classes,
in large matrix products.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from likelier.base import Array
from likelier.svm.kernel_cache import BLOCKS, IN_LOOP_BYTES, PAIR, BufferPool, Run
from likelier.svm.kernel_values import PairValues
from likelier.svm.model import PANEL, Subset, by_features, fill_panel
from likelier.svm.path import MAX_EXACT_ROWS
from likelier.svm.small import PairTable
from likelier.svm.smo import LARGE

# Fraction of support vectors above which all values cost less than fetched rows. Between two
# classes of n/2 rows there are n^2/4 values, computed at the full speed of BLAS; fetched rows have
# n values, at two thirds of that speed, and twice as many are fetched as needed.
MIN_SUPPORT_FRACTION = 1.0 / 12.0
DTYPE = np.dtype(np.float32)


class ClassBlocks:
    """Kernel matrices of the classes, in single precision; costs half of all pairs of rows."""

    def __init__(self, rows: Subset, table: PairTable, memory: BufferPool, run: Run) -> None:
        assert rows.working is not None
        numbers = table.order if rows.inside is None else rows.inside[table.order]
        every, starts = rows.working.take(numbers), table.starts
        parts = [slice(starts[k], starts[k + 1]) for k in range(table.n_classes)]
        self.left = [every.take(part) for part in parts]  # left operands, in row-major order
        self.right = [by_features(part) for part in self.left]
        self.sizes = np.diff(starts)
        self._ends = np.cumsum(self.sizes**2)
        self._flat = memory.take(BLOCKS, int(self._ends[-1]), DTYPE)
        run(self._make, table.n_classes)

    def _make(self, k: int) -> None:
        size = int(self.sizes[k])
        block = self._flat[self._ends[k] - size**2 : self._ends[k]].reshape(size, size)
        for start in range(0, size, PANEL):
            fill_panel(self.left[k], block, start, self.right[k])

    def between(self, first: int, second: int) -> Array:
        """Flat values from the block of one class to that of a later one, including both."""
        return self._flat[self._ends[first] - self.sizes[first] ** 2 : self._ends[second]]


class PairBuffer:
    """Reusable buffer of a thread for the kernel values between the classes of a pair."""

    def __init__(self, blocks: ClassBlocks, memory: BufferPool) -> None:
        self._blocks = blocks
        self._room = memory.take(PAIR, largest_product(blocks.sizes), DTYPE)

    def of(self, first: int, second: int) -> PairValues:
        """Kernel values of the rows of two classes; valid until the next call."""
        blocks = self._blocks
        left, right = blocks.left[first], blocks.right[second]
        across = self._room[: left.n_rows * right.n_rows].reshape(left.n_rows, right.n_rows)
        for start in range(0, left.n_rows, PANEL):  # panels fit in the cache
            inside = slice(start, start + PANEL)
            left.take(inside).block(right, across[inside])
        return PairValues(blocks.between(first, second), across)


def largest_pair(sizes: Array) -> int:
    """Total rows of the two largest classes."""
    return int(np.sort(sizes)[-2:].sum())


def largest_product(sizes: Array) -> int:
    """Number of kernel values between the two largest classes."""
    return int(np.sort(sizes)[-2:].prod())


def sample_pairs(n_classes: int) -> list[tuple[int, int]]:
    """A sample of pairs in which nearly every class occurs once."""
    return [(k, k + 1) for k in range(0, n_classes - 1, 2)]


def rows_are_expensive(rows: Subset, size: int) -> bool:
    """Whether kernel rows of a problem of this size are computed in blocks, not in the loop."""
    X = None if rows.working is None else rows.working.X
    return isinstance(X, np.ndarray) and size * X.shape[1] * X.itemsize > IN_LOOP_BYTES


def blocks_pay_off(table: PairTable, solved: list[tuple[int, int]]) -> bool:
    """Whether the fraction of support vectors of the solved pairs makes blocks worthwhile."""
    used = rows = 0
    for first, second in solved:
        for own, line in ((first, second - 1), (second, first)):
            inside = slice(table.starts[own], table.starts[own + 1])
            used += int(np.count_nonzero(table.coefficients[:, line, inside].any(axis=0)))
            rows += int(inside.stop - inside.start)
    shared = 1.0 + 1.0 / (table.n_classes - 1)  # adds a pair's part of the class blocks
    return used > MIN_SUPPORT_FRACTION * shared * rows


def fits_in_memory(rows: Subset, table: PairTable, n_bytes: int, n_threads: int) -> bool:
    """Whether blocks and matrices fit into memory, and their values into single precision.

    For several values of C, a pair of few rows also needs its matrix in double precision.
    """
    sizes = np.diff(table.starts)
    own = 2 * largest_pair(sizes) ** 2 + largest_product(sizes)
    if len(table.coefficients) > 1:
        own += 2 * min(largest_pair(sizes), MAX_EXACT_ROWS) ** 2
    features = 0 if rows.working is None else 2 * rows.n_rows * rows.working.X.shape[1]
    needed = int((sizes**2).sum()) + features + n_threads * own
    return DTYPE.itemsize * needed <= n_bytes and float(abs(rows.exact.diagonal()).max()) < LARGE


def large_pairs(sizes: Array, more_than: int) -> list[tuple[int, int]]:
    """Pairs of classes with more than ``more_than`` rows."""
    pairs = combinations(range(len(sizes)), 2)
    return [(a, b) for a, b in pairs if sizes[a] + sizes[b] > more_than]
