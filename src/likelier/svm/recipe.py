"""The expensive parts of a fit: pairs of classes, the folds that calibrate them, regressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from likelier.base import Array, Loss
from likelier.engines.threads import ThreadTeam
from likelier.fitting.monitor import Monitor
from likelier.svm.class_blocks import largest_pair
from likelier.svm.coupling import pair_scores
from likelier.svm.folds import FOLDS, assign_folds, row_hashes
from likelier.svm.hard_margin import finite_penalties
from likelier.svm.kernel_cache import reusable_buffers
from likelier.svm.model import KernelExpansion, kernel_block
from likelier.svm.pairs import join_pairs, solve_pairs
from likelier.svm.path import solve_path
from likelier.svm.rows import Rows
from likelier.svm.small import PairTable
from likelier.svm.smo import SMALL, SMO
from likelier.svm.solution import Solution
from likelier.svm.watch import Watch


@dataclass(frozen=True)
class Recipe:
    """Solves the problems of a fit as its stages.

    ``inference`` makes the `SMO` of a problem, ``tol`` is its tolerance.
    """

    inference: Callable[..., SMO]
    team: ThreadTeam
    tol: float
    monitor: Monitor

    def pairs(self, rows: Rows, codes: Array, n_classes: int, Cs: list[float]) -> PairTable:
        """Solutions of all pairs of classes for ascending values of C."""
        rows.make_working(largest_pair(np.bincount(codes)) > SMALL)  # folds need it, too
        solve = partial(self._pairs, "pairs", rows, codes, n_classes, Cs)
        return self.monitor.stage("pairs", solve)

    def out_of_fold_scores(
        self, X: Any, rows: Rows, codes: Array, n_classes: int, C: float, seed: int
    ) -> tuple[Array, Array]:
        """Scores of rows by fits that have not seen them, and the indices of these rows."""
        random_keys = np.random.default_rng([seed, 3]).permutation(len(codes))
        if not rows.prepared.kernel.precomputed:  # else duplicates cannot be detected
            folds = assign_folds(row_hashes(X, seed)[rows.indices], codes, seed)
            found = self._scores_of_folds(rows, codes, folds, n_classes, C)
            if len(found[1]):
                return found
        # or there are too few distinct rows to keep duplicates in one fold
        folds = assign_folds(random_keys, codes, seed)
        return self._scores_of_folds(rows, codes, folds, n_classes, C)

    def regression(
        self, stage: str, rows: Rows, y: Array, loss: Loss, Cs: list[float]
    ) -> list[Solution]:
        """Solutions of a regression for ascending values of C."""
        return self.monitor.stage(stage, partial(self._regression, stage, rows, y, loss, Cs))

    # -- stages --------------------------------------------------------------------------
    def _pairs(
        self, stage: str, rows: Rows, codes: Array, n_classes: int, Cs: list[float]
    ) -> PairTable:
        watch = Watch(self.monitor, stage, single=n_classes == 2)
        finite = finite_penalties(Cs, rows, self.tol)
        return solve_pairs(rows, codes, n_classes, finite, self.inference, self.team, watch)

    def _scores_of_folds(
        self, rows: Rows, codes: Array, folds: Array, n_classes: int, C: float
    ) -> tuple[Array, Array]:
        """Scores of the rows of every fold whose absence leaves rows of all classes."""
        n_pairs = n_classes * (n_classes - 1) // 2
        parts, positions = [np.empty((0, n_pairs))], [np.empty(0, dtype=np.intp)]
        for fold in range(FOLDS):
            outside, inside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            if not len(outside) or len(np.unique(codes[inside])) < n_classes:
                continue  # a class would have no training rows

            def scores(stage: str, outside: Array = outside, inside: Array = inside) -> Array:
                some = rows.restricted(inside)
                some.make_working(largest_pair(np.bincount(codes[inside])) > SMALL)
                table = self._pairs(stage, some, codes[inside], n_classes, [C])
                joined = join_pairs(table)
                K = kernel_block(rows.prepared, outside, inside[joined["support"]])
                found = pair_scores(K, joined["dual_coef"], joined["n_support"])
                return np.asarray(found + table.intercepts[0])

            name = f"fold {fold}"
            parts.append(self.monitor.stage(name, partial(scores, name)))
            positions.append(outside)
        return np.concatenate(parts), np.concatenate(positions)

    def _regression(
        self, stage: str, rows: Rows, y: Array, loss: Loss, Cs: list[float]
    ) -> list[Solution]:
        watch = Watch(self.monitor, stage, single=True)
        models = [
            KernelExpansion(rows.prepared.kernel, loss, C)
            for C in finite_penalties(Cs, rows, self.tol)
        ]
        rows.make_working(len(y) > SMALL)
        with reusable_buffers() as memory:
            inference = self.inference(len(y), 1, self.team, watch)
            found = solve_path(inference, models, rows.subset(None), y, rows.weight, memory)
        for one in found:
            watch.solved(one.n_iter, one.gap)
        return [one.solution for one in found]
