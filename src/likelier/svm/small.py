"""Problems of few rows, solved in one compiled call each, or per class for one-vs-one.

With few rows the Python overhead of SMO costs more than its steps. Problems that do not converge
soon are passed on to SMO, which can shrink, be interrupted and obey its limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.svm.loops.small import intercept_of, solve_class_pairs, solve_small, start_from
from likelier.svm.model import BLOCK_BYTES, KernelExpansion, Subset, dual_objective
from likelier.svm.smo import SMALL, SMO
from likelier.svm.solution import KernelPosterior

MAX_COMPILED_UPDATES = 20_000  # updates of a compiled call, which cannot be interrupted


def update_limit(inference: SMO) -> int:
    """Updates after which a problem is passed on to SMO, at most ``max_iter``."""
    return (
        min(MAX_COMPILED_UPDATES, inference.max_iter)
        if inference.max_iter >= 0
        else MAX_COMPILED_UPDATES
    )


def solve_whole(
    inference: SMO, models: list[KernelExpansion], rows: Subset, y: Array, weight: Array | None
) -> list[KernelPosterior] | None:
    """Solutions for increasing ``C`` with warm starts; None if one does not converge soon."""
    n, none = len(y), np.empty((0, 0))
    column = np.int64(0)  # a Python int would trigger another compilation
    source = (*_whole_matrix(rows, 8 * n * n), none, none, column, none)
    K, held = np.empty((n, n)), np.full(n, -1)
    beta, F = np.zeros(n), np.array(y, dtype=np.float64)
    found: list[KernelPosterior] = []
    for model in models:
        box = model.box(y, weight)
        if found:
            ratio = model.C / found[-1].model.C
            limit = np.maximum(box.upper, -box.lower) / ratio
            start_from(F, beta, box.target, box.lower, box.upper, limit, ratio)
        count, gap, converged = solve_small(
            K,
            held,
            source,
            F,
            beta,
            box.lower,
            box.upper,
            box.eps,
            inference.tol,
            update_limit(inference),
        )
        if not converged:
            return None
        level = float(intercept_of(F, beta, box.lower, box.upper, box.eps))
        value = dual_objective(box, beta, F)
        found.append(KernelPosterior(model, rows, beta.copy(), level, count, gap, value, True))
    return found


@dataclass(frozen=True)
class PairTable:
    """Solutions of all pairs of classes for one or several values of C.

    Rows are sorted by class: ``order`` has their original indices, and class ``k`` begins at
    ``starts[k]``. ``coefficients[c]`` is LIBSVM's table: the line of a row against class ``k`` is
    ``k``, or ``k - 1`` if its own class comes before ``k``. Pairs are ordered as in LIBSVM.
    """

    order: Array
    starts: Array
    coefficients: Array  # (values of C, classes - 1, rows)
    intercepts: Array  # (values of C, pairs), like the following arrays
    n_iter: Array
    gap: Array
    solved: Array

    @classmethod
    def empty(cls, codes: Array, n_classes: int, n_values: int) -> PairTable:
        """Table without any solved pair."""
        starts = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n_classes))])
        shape = (n_values, n_classes * (n_classes - 1) // 2)
        return cls(
            np.argsort(codes, kind="stable"), starts,
            np.zeros((n_values, n_classes - 1, len(codes))), np.zeros(shape),
            np.zeros(shape, dtype=np.int64), np.full(shape, np.inf),
            np.zeros(shape, dtype=np.bool_),
        )  # fmt: skip

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.starts) - 1

    @property
    def codes(self) -> Array:
        """Class number of every row."""
        codes = np.empty(len(self.order), dtype=np.intp)
        codes[self.order] = np.repeat(np.arange(self.n_classes), np.diff(self.starts))
        return codes

    def members(self, k: int) -> Array:
        """Indices of the rows of a class, ascending."""
        return self.order[self.starts[k] : self.starts[k + 1]]

    def pair_index(self, first: int, second: int) -> int:
        """Index of a pair."""
        return first * (2 * self.n_classes - first - 1) // 2 + second - first - 1

    def store(self, c: int, pair: tuple[int, int], found: KernelPosterior, beta: Array) -> None:
        """Store a solution; ``beta`` has the rows of the first class, then of the second."""
        first, second = pair
        pair_index, begin, count = (
            self.pair_index(first, second),
            self.starts,
            len(self.members(first)),
        )
        table = self.coefficients[c]
        table[second - 1, begin[first] : begin[first + 1]] = beta[:count]
        table[first, begin[second] : begin[second + 1]] = beta[count:]
        self.intercepts[c, pair_index], self.n_iter[c, pair_index] = found.intercept, found.n_iter
        self.gap[c, pair_index] = found.gap
        self.solved[c, pair_index] = found.converged


@dataclass(frozen=True)
class SmallPairs:
    """The pairs of few rows, with their kernel values.

    Every kernel value is computed once. If there are not too many rows, or the kernel is
    precomputed, ``given`` is the whole matrix, and ``indices`` are the indices of the rows in it.
    Else ``blocks`` holds the matrices of the classes, and the values between two classes are
    computed when their pair is solved.
    """

    rows: Subset
    table: PairTable
    weight: Array
    Cs: Array
    given: Array
    indices: Array
    blocks: Array
    block_starts: Array

    @classmethod
    def among(
        cls, rows: Subset, table: PairTable, weight: Array | None, Cs: list[float], n_bytes: int
    ) -> SmallPairs | None:
        """The small pairs; None if there are none, or memory is too small."""
        sizes = np.diff(table.starts)
        used = np.where(sizes + sizes.min() <= SMALL, sizes**2, 0)
        if not used.any() or table.n_classes == 2:
            return None
        given, indices = _whole_matrix(rows, min(n_bytes, BLOCK_BYTES))
        used = np.zeros_like(sizes) if len(given) else used
        ends = np.cumsum(used)
        if 8 * ends[-1] > n_bytes:
            return None
        blocks = np.empty(ends[-1])
        for k in np.flatnonzero(used).tolist():
            blocks[ends[k] - used[k] : ends[k]] = rows.square(table.members(k)).ravel()
        weights = np.ones(len(table.order)) if weight is None else weight[table.order]
        indices = indices[table.order] if len(given) else indices
        return cls(rows, table, weights, np.array(Cs), given, indices, blocks, ends - used)

    def groups(self) -> list[tuple[int, Array]]:
        """Groups of pairs (a class and later ones) whose kernel values need little memory."""
        sizes = np.diff(self.table.starts)
        found = []
        for first in range(len(sizes) - 1):
            later = first + 1 + np.flatnonzero(sizes[first] + sizes[first + 1 :] <= SMALL)
            room = max(1, BLOCK_BYTES // (8 * SMALL * max(1, int(sizes[first]))))
            found += [(first, later[k : k + room]) for k in range(0, len(later), room)]
        return found

    def solve(self, group: tuple[int, Array], tol: float, max_updates: int) -> None:
        """Solve the pairs of a group; those that do not converge soon stay unsolved."""
        table, (first, seconds) = self.table, group
        panel = np.empty((0, 0))
        if not len(self.given):
            columns = np.concatenate([table.members(k) for k in seconds])
            panel = self.rows.block(table.members(first), columns)
        solve_class_pairs(
            first, seconds, self.indices, table.starts, self.given, panel, self.blocks,
            self.block_starts, self.weight, self.Cs, tol, max_updates, table.coefficients,
            table.intercepts, table.n_iter, table.gap, table.solved,
        )  # fmt: skip


def _whole_matrix(rows: Subset, n_bytes: int) -> tuple[Array, Array]:
    """All kernel values and the indices of the rows in them; empty if there are too many."""
    every = np.arange(rows.n_rows)
    if rows.exact.kernel.precomputed:
        return np.asarray(rows.exact.X), every if rows.inside is None else rows.inside
    if 8 * rows.n_rows**2 <= n_bytes:
        held = rows.hold().held
        assert held is not None
        return held, every
    return np.empty((0, 0)), every[:0]
