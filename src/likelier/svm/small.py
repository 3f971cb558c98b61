"""Problems of few rows, each solved in one compiled call; those of a class with later ones in one.

With few rows Python between the steps of SMO costs more than the steps. What does not converge
soon is left to SMO itself, which puts rows aside, can be interrupted and keeps to its limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array
from likelier.svm.loops.small import intercept_of, solve_class_pairs, solve_small, start_from
from likelier.svm.model import BLOCK_BYTES, KernelExpansion, Subset, dual_objective
from likelier.svm.smo import SMALL, SMO, KernelPosterior

SOON = 20_000  # updates: a call that cannot be interrupted must not last


def enough_for(inference: SMO) -> int:
    """Updates after which a problem is left to SMO, which then takes no more than its limit."""
    return min(SOON, inference.max_iter) if inference.max_iter >= 0 else SOON


def solve_whole(
    inference: SMO, models: list[KernelExpansion], rows: Subset, y: Array, weight: Array | None
) -> list[KernelPosterior] | None:
    """Solutions for growing ``C``, each from the one before; None if one is not soon found."""
    n, none = len(y), np.empty((0, 0))
    column = np.int64(0)  # the compiler takes a plain zero for a constant, and compiles again
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
            enough_for(inference),
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

    Rows are in the order of their classes: ``order`` has their positions, those of class ``k``
    begin at ``starts[k]``. ``coefficients[c]`` is LIBSVM's table: the line of a row against class
    ``k`` is ``k``, one less if its own class comes before. Pairs are numbered as in LIBSVM.
    """

    order: Array
    starts: Array
    coefficients: Array  # (values of C, classes - 1, rows)
    intercepts: Array  # (values of C, pairs), as the others
    n_iter: Array
    gap: Array
    solved: Array

    @classmethod
    def empty(cls, codes: Array, n_classes: int, n_values: int) -> PairTable:
        """No pair solved yet: no pair has an opinion."""
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

    def members(self, k: int) -> Array:
        """Positions of the rows of a class, ascending."""
        return self.order[self.starts[k] : self.starts[k + 1]]

    def number(self, first: int, second: int) -> int:
        """Number of a pair."""
        return first * (2 * self.n_classes - first - 1) // 2 + second - first - 1

    def note(self, c: int, pair: tuple[int, int], found: KernelPosterior, beta: Array) -> None:
        """Store a solution; ``beta`` is of the rows of one class, then of those of the other."""
        first, second = pair
        place, begin, count = self.number(first, second), self.starts, len(self.members(first))
        table = self.coefficients[c]
        table[second - 1, begin[first] : begin[first + 1]] = beta[:count]
        table[first, begin[second] : begin[second + 1]] = beta[count:]
        self.intercepts[c, place], self.n_iter[c, place] = found.intercept, found.n_iter
        self.gap[c, place] = found.gap
        self.solved[c, place] = found.converged


@dataclass(frozen=True)
class SmallPairs:
    """The pairs of few rows among all: kernel values, and what to solve.

    Every kernel value is made once. Of not too many rows the whole matrix is ``given``, or was by
    the user; ``places`` are the numbers of the rows there. Else ``blocks`` holds the matrices of
    the classes, and the values between two classes are made when their pair's turn comes.
    """

    rows: Subset
    table: PairTable
    weight: Array
    Cs: Array
    given: Array
    places: Array
    blocks: Array
    block_starts: Array

    @classmethod
    def among(
        cls, rows: Subset, table: PairTable, weight: Array | None, Cs: list[float], n_bytes: int
    ) -> SmallPairs | None:
        """None if there are none, or too many rows for the memory."""
        sizes = np.diff(table.starts)
        used = np.where(sizes + sizes.min() <= SMALL, sizes**2, 0)
        if not used.any() or table.n_classes == 2:
            return None
        given, places = _whole_matrix(rows, min(n_bytes, BLOCK_BYTES))
        used = np.zeros_like(sizes) if len(given) else used
        ends = np.cumsum(used)
        if 8 * ends[-1] > n_bytes:
            return None
        blocks = np.empty(ends[-1])
        for k in np.flatnonzero(used).tolist():
            blocks[ends[k] - used[k] : ends[k]] = rows.square(table.members(k)).ravel()
        each = np.ones(len(table.order)) if weight is None else weight[table.order]
        places = places[table.order] if len(given) else places
        return cls(rows, table, each, np.array(Cs), given, places, blocks, ends - used)

    def groups(self) -> list[tuple[int, Array]]:
        """Classes and later ones to pair each with, so that kernel values need little memory."""
        sizes = np.diff(self.table.starts)
        found = []
        for first in range(len(sizes) - 1):
            later = first + 1 + np.flatnonzero(sizes[first] + sizes[first + 1 :] <= SMALL)
            room = max(1, BLOCK_BYTES // (8 * SMALL * max(1, int(sizes[first]))))
            found += [(first, later[k : k + room]) for k in range(0, len(later), room)]
        return found

    def solve(self, group: tuple[int, Array], tol: float, max_updates: int) -> None:
        """Solve the pairs of a group; those not soon solved are not marked as such."""
        table, (first, seconds) = self.table, group
        panel = np.empty((0, 0))
        if not len(self.given):
            columns = np.concatenate([table.members(k) for k in seconds])
            panel = self.rows.block(table.members(first), columns)
        solve_class_pairs(
            first, seconds, self.places, table.starts, self.given, panel, self.blocks,
            self.block_starts, self.weight, self.Cs, tol, max_updates, table.coefficients,
            table.intercepts, table.n_iter, table.gap, table.solved,
        )  # fmt: skip


def _whole_matrix(rows: Subset, n_bytes: int) -> tuple[Array, Array]:
    """All kernel values and the numbers of the rows there; nothing if they are too many."""
    every = np.arange(rows.n_rows)
    if rows.exact.kernel.precomputed:
        return np.asarray(rows.exact.X), every if rows.inside is None else rows.inside
    if 8 * rows.n_rows**2 <= n_bytes:
        held = rows.hold().held
        assert held is not None
        return held, every
    return np.empty((0, 0)), every[:0]
