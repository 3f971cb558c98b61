"""Kernel values of pairs of classes, in blocks that the pairs of a class share.

One against one, the rows of a class meet each other in the problem of every pair of that class,
and fetched as they are needed their kernel values are made again for each. Where a good part of
the rows are support vectors it is cheaper to make everything, once: the block of every class, and
for a pair only what lies between its two classes, in products that BLAS is fastest at.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from likelier.base import Array
from likelier.svm.kernel_cache import BLOCKS, IN_LOOP_BYTES, PAIR, Memory, Run
from likelier.svm.kernel_values import PairValues
from likelier.svm.model import PANEL, Subset, by_features, fill_panel
from likelier.svm.path import HELD_EXACTLY
from likelier.svm.small import PairTable
from likelier.svm.smo import LARGE

# Share of support vectors from which on all values cost less than those of the rows that are
# fetched. Between two classes of n/2 rows are n^2/4 values, at the full speed of BLAS; fetched are
# whole rows of n values, at two thirds of that speed, and twice as many as are needed.
WORTH = 1.0 / 12.0
KIND = np.dtype(np.float32)


class ClassBlocks:
    """Kernel values of the rows of each class among themselves, in single precision.

    Cost: half of all pairs of rows of a class.
    """

    def __init__(self, rows: Subset, table: PairTable, memory: Memory, run: Run) -> None:
        assert rows.working is not None
        numbers = table.order if rows.inside is None else rows.inside[table.order]
        every, starts = rows.working.take(numbers), table.starts
        parts = [slice(starts[k], starts[k + 1]) for k in range(table.n_classes)]
        self.left = [every.take(part) for part in parts]  # of products: row by row
        self.right = [by_features(part) for part in self.left]
        self.sizes = np.diff(starts)
        self._ends = np.cumsum(self.sizes**2)
        self._flat = memory.take(BLOCKS, int(self._ends[-1]), KIND)
        run(self._make, table.n_classes)

    def _make(self, k: int) -> None:
        size = int(self.sizes[k])
        block = self._flat[self._ends[k] - size**2 : self._ends[k]].reshape(size, size)
        for start in range(0, size, PANEL):
            fill_panel(self.left[k], block, start, self.right[k])

    def between(self, first: int, second: int) -> Array:
        """What lies from the values of one class to those of a later one, with both."""
        return self._flat[self._ends[first] - self.sizes[first] ** 2 : self._ends[second]]


class PairRoom:
    """The kernel values of one pair after the other, in one memory: each thread has its own.

    Cost of a pair: kernel values between its classes.
    """

    def __init__(self, blocks: ClassBlocks, memory: Memory) -> None:
        self._blocks = blocks
        self._room = memory.take(PAIR, largest_product(blocks.sizes), KIND)

    def of(self, first: int, second: int) -> PairValues:
        """Values of the rows of two classes; until the next call."""
        blocks = self._blocks
        left, right = blocks.left[first], blocks.right[second]
        across = self._room[: left.n_rows * right.n_rows].reshape(left.n_rows, right.n_rows)
        for start in range(0, left.n_rows, PANEL):  # stays in a processor's cache
            inside = slice(start, start + PANEL)
            left.take(inside).block(right, across[inside])
        return PairValues(blocks.between(first, second), across)


def largest_pair(sizes: Array) -> int:
    """Rows of the two largest classes."""
    return int(np.sort(sizes)[-2:].sum())


def largest_product(sizes: Array) -> int:
    """Values between the two largest classes."""
    return int(np.sort(sizes)[-2:].prod())


def samples(n_classes: int) -> list[tuple[int, int]]:
    """Pairs that tell about all: every class is in one of them."""
    return [(k, k + 1) for k in range(0, n_classes - 1, 2)]


def are_dear(rows: Subset, size: int) -> bool:
    """Whether kernel rows of a problem of this size are made in blocks, not inside the loop."""
    X = None if rows.working is None else rows.working.X
    return isinstance(X, np.ndarray) and size * X.shape[1] * X.itemsize > IN_LOOP_BYTES


def worth_while(table: PairTable, solved: list[tuple[int, int]]) -> bool:
    """Whether so many rows of the pairs solved are support vectors that all values pay."""
    used = rows = 0
    for first, second in solved:
        for own, line in ((first, second - 1), (second, first)):
            inside = slice(table.starts[own], table.starts[own + 1])
            used += int(np.count_nonzero(table.coefficients[:, line, inside].any(axis=0)))
            rows += int(inside.stop - inside.start)
    shared = 1.0 + 1.0 / (table.n_classes - 1)  # the blocks of the classes, by the pair
    return used > WORTH * shared * rows


def have_room(rows: Subset, table: PairTable, n_bytes: int, n_threads: int) -> bool:
    """Whether blocks and matrices fit into the memory beside the kernel rows in use.

    Single precision must be able to hold the values, too. Along several values of C a pair of few
    rows also holds its matrix in double precision.
    """
    sizes = np.diff(table.starts)
    own = 2 * largest_pair(sizes) ** 2 + largest_product(sizes)
    if len(table.coefficients) > 1:
        own += 2 * min(largest_pair(sizes), HELD_EXACTLY) ** 2
    features = 0 if rows.working is None else 2 * rows.n_rows * rows.working.X.shape[1]
    needed = int((sizes**2).sum()) + features + n_threads * own
    return KIND.itemsize * needed <= n_bytes and float(abs(rows.exact.diagonal()).max()) < LARGE


def big_pairs(sizes: Array, more_than: int) -> list[tuple[int, int]]:
    """Pairs of classes with more rows than so many."""
    pairs = combinations(range(len(sizes)), 2)
    return [(a, b) for a, b in pairs if sizes[a] + sizes[b] > more_than]
