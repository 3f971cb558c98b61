"""One-vs-one classification: a dual problem per pair of classes, and the votes of the pairs.

Pairs are ordered as in LIBSVM: (0, 1), (0, 2), ..., (1, 2), ... A positive score is a vote for the
first class of the pair, but for the second one if there are only two classes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
from scipy.special import expit

from likelier.base import Array
from likelier.calibration import fit_platt
from likelier.engines.threads import ThreadTeam
from likelier.losses import Hinge
from likelier.svm.class_blocks import (
    ClassBlocks,
    PairBuffer,
    blocks_pay_off,
    fits_in_memory,
    large_pairs,
    largest_pair,
    rows_are_expensive,
    sample_pairs,
)
from likelier.svm.estimator import Rows
from likelier.svm.kernel_cache import BufferPool, reusable_buffers
from likelier.svm.model import KernelExpansion
from likelier.svm.path import solve_path
from likelier.svm.small import PairTable, SmallPairs, update_limit
from likelier.svm.smo import SMALL, SMO, InterruptedSolveError, KernelPosterior

# Clipping of pairwise probabilities, as in LIBSVM, so that the coupling has a unique solution.
MIN_PROBABILITY = 1e-7
SYSTEM_VALUES = 1 << 20  # size of the linear systems solved at once: 8 MB


def class_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Pairs of classes in LIBSVM's order."""
    return list(combinations(range(n_classes), 2))


class InterruptedPairsError(KeyboardInterrupt):
    """Interrupt with the solutions so far; pairs that were not started have score zero."""

    def __init__(self, table: PairTable) -> None:
        super().__init__()
        self.table = table


def solve_pairs(
    rows: Rows, codes: Array, n_classes: int, Cs: list[float],
    inference: Callable[..., SMO], team: ThreadTeam,
) -> PairTable:  # fmt: skip
    """Solve every pair for every (ascending) C.

    Pairs run in parallel threads, small ones in groups; a single pair uses all threads for its
    kernel rows. Cost: that of SMO for the rows of two classes, times the number of pairs. An
    interrupt keeps finished pairs and the current state of the others.
    """
    table = PairTable.empty(codes, n_classes, len(Cs))
    rows.make_working(largest_pair(np.diff(table.starts)) > SMALL)
    with reusable_buffers() as memory:
        work = _PairScheduler(rows, codes, table, Cs, inference, team, memory)
        try:
            for tasks in work.stages():
                team.together(partial(work.run, tasks), len(tasks))
        except KeyboardInterrupt:
            work.stop.set()
            team.close()  # waits for the other threads, which stop soon
            raise InterruptedPairsError(table) from None
    return table


class _PairScheduler:
    """Schedules the pairs in stages of tasks, which any thread can run."""

    def __init__(
        self, rows: Rows, codes: Array, table: PairTable, Cs: list[float],
        inference: Callable[..., SMO], team: ThreadTeam, memory: BufferPool,
    ) -> None:  # fmt: skip
        self.rows, self.codes, self.table, self.Cs = rows, codes, table, Cs
        self.models = [KernelExpansion(rows.prepared.kernel, Hinge(), C) for C in Cs]
        self.stop = threading.Event()
        self.single_pair = table.n_classes == 2
        n_pairs = table.solved.shape[1]
        n_concurrent, threads = min(team.n_threads, n_pairs), team if self.single_pair else None
        self._n_concurrent, self._team, self._memory = n_concurrent, team, memory
        self._make = partial(
            inference, n_concurrent=n_concurrent, team=threads, stopped=self.stop.is_set
        )
        self._own = threading.local()  # buffers of a thread, reused for all of its pairs
        self._free = memory.for_threads(n_concurrent)[::-1]  # the first thread gets the main pool
        self._bytes = self._make(len(codes)).cache_bytes
        self.small = SmallPairs.among(rows.subset(None), table, rows.weight, Cs, self._bytes)
        self.blocks: ClassBlocks | None = None  # if they pay off

    def stages(self) -> Iterator[list[tuple[int, Array]]]:
        """Yield lists of tasks (a class and the later classes to pair it with), one per stage.

        If all kernel values fit in memory, a first stage of sample pairs decides whether to compute
        them in blocks; for several values of C it always pays off.
        """
        few: list[tuple[int, Array]] = [] if self.small is None else self.small.groups()
        sizes, table, rows = np.diff(self.table.starts), self.table, self.rows.subset(None)
        large = large_pairs(sizes, 0 if self.small is None else SMALL)
        expensive = [(a, b) for a, b in large if rows_are_expensive(rows, sizes[a] + sizes[b])]
        first = [pair for pair in expensive if pair in sample_pairs(table.n_classes)]
        if len(self.Cs) > 1:
            first = []
        if len(expensive) < 2 or not fits_in_memory(
            rows, table, self._bytes * self._n_concurrent, self._n_concurrent
        ):
            yield few + _tasks(large)
            return
        yield few + _tasks(first)
        if len(self.Cs) > 1 or blocks_pay_off(table, first):
            self.blocks = ClassBlocks(rows, table, self._memory, self._team.together)
        yield _tasks([pair for pair in large if pair not in first])

    def run(self, tasks: list[tuple[int, Array]], number: int) -> None:
        """Run a task, unless stopped."""
        if self.stop.is_set():
            return
        try:
            self._solve(*tasks[number])
        except BaseException as failure:
            stopped = isinstance(failure, InterruptedSolveError) and self.stop.is_set()
            self.stop.set()
            if not stopped:  # else another thread raises the cause
                raise

    def _solve(self, first: int, seconds: Array) -> None:
        """Solve pairs of a class; small ones in one call, the others singly."""
        sizes = np.diff(self.table.starts)
        if self.small is not None and sizes[first] + sizes[seconds[0]] <= SMALL:
            smo = self._make(SMALL)
            self.small.solve((first, seconds), smo.tol, update_limit(smo))
        for second in seconds.tolist():
            if not self.table.solved[:, self.table.pair_index(first, second)].all():
                self._solve_pair(first, second)

    def _solve_pair(self, first: int, second: int) -> None:
        """Solve one pair; a single pair keeps the order of the rows, with the sign flipped."""
        table, rows, codes, weight = self.table, self.rows, self.codes, self.rows.weight
        inside = None
        if not self.single_pair:
            inside = np.concatenate([table.members(first), table.members(second)])
            codes, weight = codes[inside], None if weight is None else weight[inside]
        y = np.where(codes == (second if self.single_pair else first), 1.0, -1.0)
        if not hasattr(self._own, "memory"):
            self._own.memory = self._free.pop() if self._free else BufferPool()
        problem = rows.subset(inside)
        if self.blocks is not None and rows_are_expensive(problem, len(y)):
            if not hasattr(self._own, "pair"):
                self._own.pair = PairBuffer(self.blocks, self._own.memory)
            problem = replace(problem, made=self._own.pair.of(first, second))
        try:
            found = solve_path(self._make(len(y)), self.models, problem, y, weight,
                               self._own.memory)  # fmt: skip
        except InterruptedSolveError as stop:
            self._store_pair(0, (first, second), stop.posterior)
            raise
        for c, posterior in enumerate(found):
            self._store_pair(c, (first, second), posterior)

    def _store_pair(self, c: int, pair: tuple[int, int], found: KernelPosterior) -> None:
        beta = found.beta[self.table.order] if self.single_pair else found.beta
        self.table.store(c, pair, found, beta)


def _tasks(pairs: list[tuple[int, int]]) -> list[tuple[int, Array]]:
    """Pairs as tasks of one pair each."""
    return [(first, np.array([second])) for first, second in pairs]


def join_pairs(table: PairTable, c: int = 0) -> dict[str, Array]:
    """Support vectors of all pairs, grouped by class, with LIBSVM's table of coefficients.

    A support vector has ``n_classes - 1`` coefficients, one per other class in order.
    """
    used = np.flatnonzero(table.coefficients[c].any(axis=0))
    counts = np.diff(np.searchsorted(used, table.starts))
    return {
        "support": table.order[used],
        "dual_coef": table.coefficients[c][:, used],
        "n_support": counts.astype(np.int32),
    }


def pair_columns(dual_coef: Array, n_support: Array) -> Array:
    """Coefficients with one column per pair, from LIBSVM's table."""
    n_classes = len(n_support)
    ends = np.cumsum(n_support)
    parts = [slice(end - count, end) for end, count in zip(ends, n_support, strict=True)]
    columns = np.zeros((dual_coef.shape[1], len(class_pairs(n_classes))))
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        columns[parts[first], number] = dual_coef[second - 1, parts[first]]
        columns[parts[second], number] = dual_coef[first, parts[second]]
    return columns


def pair_scores(K: Array, dual_coef: Array, n_support: Array) -> Array:
    """Scores of all pairs without intercepts, from kernel values with the support vectors.

    Cost: rows x support vectors x classes.
    """
    if len(dual_coef) == 1:
        return np.asarray(K @ dual_coef.T)
    ends = np.cumsum(n_support)
    parts = [slice(end - count, end) for end, count in zip(ends, n_support, strict=True)]
    against = np.stack([K[:, part] @ dual_coef[:, part].T for part in parts])
    first, second = np.array(class_pairs(len(n_support))).T
    return np.asarray((against[first, :, second - 1] + against[second, :, first]).T)


def votes(scores: Array, n_classes: int) -> Array:
    """Number of pairs won by every class; a score of zero is a vote for the second class."""
    won = np.zeros((len(scores), n_classes))
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        ahead = scores[:, number] > 0.0
        won[:, first] += ahead
        won[:, second] += ~ahead
    return won


def class_scores(scores: Array, n_classes: int) -> Array:
    """One score per class: its votes plus a bounded sum of its pair scores."""
    won, sums = np.zeros((len(scores), n_classes)), np.zeros((len(scores), n_classes))
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        score = scores[:, number]
        sums[:, first] += score
        sums[:, second] -= score
        ahead = score >= 0.0
        won[:, first] += ahead
        won[:, second] += ~ahead
    return won + sums / (3.0 * (abs(sums) + 1.0))


def pair_sigmoids(
    scores: Array, codes: Array, weight: Array | None, n_classes: int
) -> tuple[Array, Array]:
    """Platt's parameters of every pair, in LIBSVM's convention.

    The probability of the first class of a pair with score ``f`` is ``1 / (1 + exp(A f + B))``.
    Both are zero for pairs without rows.
    """
    flipped = -scores if scores.shape[1] == 1 else scores
    A, B = np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        inside = np.flatnonzero((codes == first) | (codes == second))
        if len(inside):
            pair_weight = None if weight is None else weight[inside]
            found = fit_platt(flipped[inside, number], codes[inside] == first, pair_weight)
            A[number], B[number] = -found.slope / found.scale, -found.intercept
    return A, B


def couple_probabilities(scores: Array, A: Array, B: Array, n_classes: int) -> Array:
    """Log probabilities of all classes from pairwise probabilities.

    With ``r_kj`` the probability of class k among k and j by the sigmoids, ``p`` minimises
    ``sum_kj (r_jk p_k - r_kj p_j)^2`` where ``sum p = 1`` (the second method of Wu, Lin and Weng,
    2004): one linear system per row. Cost: rows x classes^3.
    """
    first, second = np.array(class_pairs(n_classes)).T
    out = np.empty((len(scores), n_classes))
    at_once = max(1, SYSTEM_VALUES // (n_classes + 1) ** 2)
    for start in range(0, len(scores), at_once):
        part = scores[start : start + at_once]
        won = np.clip(expit(-(A * part + B)), MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
        r = np.zeros((len(part), n_classes, n_classes))
        r[:, first, second], r[:, second, first] = won, 1.0 - won
        system = np.ones((len(part), n_classes + 1, n_classes + 1))
        system[:, -1, -1] = 0.0
        system[:, :-1, :-1] = -r * r.transpose(0, 2, 1)
        diagonal = np.arange(n_classes)
        system[:, diagonal, diagonal] = np.square(r).sum(axis=1)
        right = np.zeros((len(part), n_classes + 1, 1))
        right[:, -1] = 1.0
        p = np.linalg.solve(system, right)[:, :-1, 0]
        # rounding may make tiny probabilities negative
        out[start : start + at_once] = np.log(np.maximum(p, np.square(MIN_PROBABILITY)))
    return out
