"""One-vs-one classification: a dual problem per pair of classes, in the order of LIBSVM."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from likelier.base import Array
from likelier.engines.threads import ThreadTeam
from likelier.losses import Hinge
from likelier.svm.class_blocks import (
    ClassBlocks,
    PairBuffer,
    blocks_pay_off,
    fits_in_memory,
    large_pairs,
    rows_are_expensive,
    sample_pairs,
)
from likelier.svm.kernel_cache import BufferPool, reusable_buffers
from likelier.svm.model import KernelExpansion
from likelier.svm.path import solve_path
from likelier.svm.rows import Rows
from likelier.svm.small import PairTable, SmallPairs, update_limit
from likelier.svm.smo import SMALL, SMO
from likelier.svm.solution import KernelPosterior
from likelier.svm.watch import Watch


def solve_pairs(
    rows: Rows, codes: Array, n_classes: int, Cs: list[float],
    inference: Callable[..., SMO], team: ThreadTeam, watch: Watch,
) -> PairTable:  # fmt: skip
    """Solve every pair for every (ascending) C; ``watch`` may know some solutions already.

    Pairs run in parallel threads, small ones in groups; a single pair uses all threads for its
    kernel rows. Cost: that of SMO for the rows of two classes, times the number of pairs. Pairs
    that were not started when the watch ended the fit have score zero.
    """
    saved = None if watch.single else watch.saved()
    table = PairTable.empty(codes, n_classes, len(Cs)) if saved is None else saved
    with reusable_buffers() as memory:
        work = _PairScheduler(rows, table, Cs, inference, team, memory, watch)
        try:
            for tasks in work.stages():
                team.together(partial(work.run, tasks), len(tasks))
        except BaseException:
            watch.stop()
            team.close()  # waits for the other threads, which stop soon
            raise
    return table


class _PairScheduler:
    """Schedules the pairs in stages of tasks, which any thread can run."""

    def __init__(
        self, rows: Rows, table: PairTable, Cs: list[float],
        inference: Callable[..., SMO], team: ThreadTeam, memory: BufferPool, watch: Watch,
    ) -> None:  # fmt: skip
        self.watch = watch
        self._known = table.solved.copy()  # what no thread is at work on
        self.rows, self.codes, self.table, self.Cs = rows, table.codes, table, Cs
        self.models = [KernelExpansion(rows.prepared.kernel, Hinge(), C) for C in Cs]
        self.single_pair = table.n_classes == 2
        n_pairs = table.solved.shape[1]
        n_concurrent, threads = min(team.n_threads, n_pairs), team if self.single_pair else None
        self._n_concurrent, self._team, self._memory = n_concurrent, team, memory
        self._make = partial(inference, n_concurrent=n_concurrent, team=threads, watch=watch)
        self._own = threading.local()  # buffers of a thread, reused for all of its pairs
        self._free = memory.for_threads(n_concurrent)[::-1]  # the first thread gets the main pool
        self._bytes = self._make(len(self.codes)).cache_bytes
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
        if self.watch.stopped():
            return
        try:
            self._solve(*tasks[number])
        except BaseException:
            self.watch.stop()
            raise

    def _snapshot(self) -> PairTable:
        """The solutions so far; pairs that threads are at work on are not among them."""
        return replace(self.table, solved=self._known.copy())

    def _report(self, first: int, seconds: Array) -> None:
        """Tell the watch of pairs that are solved."""
        table = self.table
        for second in seconds.tolist():
            pair = table.pair_index(first, second)
            self._known[:, pair] = table.solved[:, pair]
            n_iter, gap = int(table.n_iter[:, pair].sum()), float(table.gap[:, pair].max())
            self.watch.solved(n_iter, gap, self._snapshot)

    def _solve(self, first: int, seconds: Array) -> None:
        """Solve pairs of a class; small ones in one call, the others singly."""
        sizes, table = np.diff(self.table.starts), self.table
        pairs = [table.pair_index(first, second) for second in seconds.tolist()]
        if table.solved[:, pairs].all():  # by an earlier fit
            return
        if self.small is not None and sizes[first] + sizes[seconds[0]] <= SMALL:
            smo = self._make(SMALL)
            self.small.solve((first, seconds), smo.tol, update_limit(smo))
        for second in seconds.tolist():
            if not table.solved[:, table.pair_index(first, second)].all():
                self._solve_pair(first, second)
        self._report(first, seconds)

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
        inference = self._make(len(y))
        found = solve_path(inference, self.models, problem, y, weight, self._own.memory)
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
