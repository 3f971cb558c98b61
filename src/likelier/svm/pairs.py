"""One-vs-one: a dual problem for every pair of classes, their coefficients, their votes.

Pairs are numbered as in LIBSVM: (0, 1), (0, 2), ..., (1, 2), ... A score above zero is a vote for
the first class of the pair, except that the only pair of two classes is turned round.
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
    PairRoom,
    are_dear,
    big_pairs,
    have_room,
    largest_pair,
    samples,
    worth_while,
)
from likelier.svm.estimator import Rows
from likelier.svm.kernel_cache import Memory, kept_memory
from likelier.svm.model import KernelExpansion
from likelier.svm.path import solve_path
from likelier.svm.small import PairTable, SmallPairs, enough_for
from likelier.svm.smo import SMALL, SMO, InterruptedSolveError, KernelPosterior

# The surest a pair of classes may be, as in LIBSVM, so that the coupling has one answer only.
SUREST = 1e-7
SYSTEM_NUMBERS = 1 << 20  # of the linear systems solved at once: 8 MB


def class_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Pairs of classes in LIBSVM's order."""
    return list(combinations(range(n_classes), 2))


class InterruptedPairsError(KeyboardInterrupt):
    """Ctrl-C between pairs, with what had been solved; pairs not begun have no opinion."""

    def __init__(self, table: PairTable) -> None:
        super().__init__()
        self.table = table


def solve_pairs(
    rows: Rows, codes: Array, n_classes: int, Cs: list[float],
    inference: Callable[..., SMO], team: ThreadTeam,
) -> PairTable:  # fmt: skip
    """Solve every pair for every (ascending) C.

    Pairs run side by side in the threads of the team, those of few rows many at a time; a single
    pair gets all threads for its kernel rows. Cost: that of SMO for the rows of two classes,
    times the pairs. After Ctrl-C the pairs that were solved are kept, and those in hand as far
    as they had come.
    """
    table = PairTable.empty(codes, n_classes, len(Cs))
    rows.make_working(largest_pair(np.diff(table.starts)) > SMALL)
    with kept_memory() as memory:
        work = _Work(rows, codes, table, Cs, inference, team, memory)
        try:
            for tasks in work.stages():
                team.together(partial(work.run, tasks), len(tasks))
        except KeyboardInterrupt:
            work.stop.set()
            team.close()  # awaits the others, who end their pair soon
            raise InterruptedPairsError(table) from None
    return table


class _Work:
    """What there is to solve, in stages of tasks for any thread."""

    def __init__(
        self, rows: Rows, codes: Array, table: PairTable, Cs: list[float],
        inference: Callable[..., SMO], team: ThreadTeam, memory: Memory,
    ) -> None:  # fmt: skip
        self.rows, self.codes, self.table, self.Cs = rows, codes, table, Cs
        self.models = [KernelExpansion(rows.prepared.kernel, Hinge(), C) for C in Cs]
        self.stop = threading.Event()
        self.alone = table.n_classes == 2
        n_pairs = table.solved.shape[1]
        share, threads = min(team.n_threads, n_pairs), team if self.alone else None
        self._share, self._team, self._memory = share, team, memory
        self._make = partial(inference, share=share, team=threads, stopped=self.stop.is_set)
        self._own = threading.local()  # one thread solves one pair after the other in one memory
        self._free = memory.for_threads(share)[::-1]  # its own goes to the thread that comes first
        self._bytes = self._make(len(codes)).cache_bytes
        self.small = SmallPairs.among(rows.subset(None), table, rows.weight, Cs, self._bytes)
        self.blocks: ClassBlocks | None = None  # where they pay

    def stages(self) -> Iterator[list[tuple[int, Array]]]:
        """Tasks, a class and later ones to pair it with; a stage begins when the last has ended.

        If all kernel values find room, a sample of the large pairs shows whether they are worth
        making; along several values of C they are.
        """
        few: list[tuple[int, Array]] = [] if self.small is None else self.small.groups()
        sizes, table, rows = np.diff(self.table.starts), self.table, self.rows.subset(None)
        large = big_pairs(sizes, 0 if self.small is None else SMALL)
        dear = [(a, b) for a, b in large if are_dear(rows, sizes[a] + sizes[b])]
        first = [pair for pair in dear if pair in samples(table.n_classes)]
        if len(self.Cs) > 1:
            first = []
        if len(dear) < 2 or not have_room(rows, table, self._bytes * self._share, self._share):
            yield few + _tasks(large)
            return
        yield few + _tasks(first)
        if len(self.Cs) > 1 or worth_while(table, first):
            self.blocks = ClassBlocks(rows, table, self._memory, self._team.together)
        yield _tasks([pair for pair in large if pair not in first])

    def run(self, tasks: list[tuple[int, Array]], number: int) -> None:
        """Carry out a task, unless it is time to stop."""
        if self.stop.is_set():
            return
        try:
            self._solve(*tasks[number])
        except BaseException as failure:
            told = isinstance(failure, InterruptedSolveError) and self.stop.is_set()
            self.stop.set()
            if not told:  # by another thread, which reports why
                raise

    def _solve(self, first: int, seconds: Array) -> None:
        """Solve pairs of a class, few rows in one go and the rest one by one."""
        sizes = np.diff(self.table.starts)
        if self.small is not None and sizes[first] + sizes[seconds[0]] <= SMALL:
            smo = self._make(SMALL)
            self.small.solve((first, seconds), smo.tol, enough_for(smo))
        for second in seconds.tolist():
            if not self.table.solved[:, self.table.number(first, second)].all():
                self._solve_pair(first, second)

    def _solve_pair(self, first: int, second: int) -> None:
        """Solve one pair; the rows of the only one stay in their order, and its sign is turned."""
        table, rows, codes, weight = self.table, self.rows, self.codes, self.rows.weight
        inside = None
        if not self.alone:
            inside = np.concatenate([table.members(first), table.members(second)])
            codes, weight = codes[inside], None if weight is None else weight[inside]
        y = np.where(codes == (second if self.alone else first), 1.0, -1.0)
        if not hasattr(self._own, "memory"):
            self._own.memory = self._free.pop() if self._free else Memory()
        problem = rows.subset(inside)
        if self.blocks is not None and are_dear(problem, len(y)):
            if not hasattr(self._own, "pair"):
                self._own.pair = PairRoom(self.blocks, self._own.memory)
            problem = replace(problem, made=self._own.pair.of(first, second))
        try:
            found = solve_path(self._make(len(y)), self.models, problem, y, weight,
                               self._own.memory)  # fmt: skip
        except InterruptedSolveError as stop:
            self._note(0, (first, second), stop.posterior)
            raise
        for c, posterior in enumerate(found):
            self._note(c, (first, second), posterior)

    def _note(self, c: int, pair: tuple[int, int], found: KernelPosterior) -> None:
        beta = found.beta[self.table.order] if self.alone else found.beta
        self.table.note(c, pair, found, beta)


def _tasks(pairs: list[tuple[int, int]]) -> list[tuple[int, Array]]:
    """Pairs as tasks of one each."""
    return [(first, np.array([second])) for first, second in pairs]


def join_pairs(table: PairTable, c: int = 0) -> dict[str, Array]:
    """Support vectors of all pairs, by class, with LIBSVM's table of coefficients.

    A support vector of class ``k`` has ``n_classes - 1`` coefficients, one against each other
    class in order.
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
    """Scores of all pairs without their intercepts, from kernel values with the support vectors.

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
    """Number of pairs that every class wins; a score of zero goes to the second class."""
    won = np.zeros((len(scores), n_classes))
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        ahead = scores[:, number] > 0.0
        won[:, first] += ahead
        won[:, second] += ~ahead
    return won


def class_scores(scores: Array, n_classes: int) -> Array:
    """One score per class: its votes, and less than half a vote for how clear they were."""
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

    A score ``f`` for the first class of a pair gives it the probability ``1 / (1 + exp(A f + B))``
    among the two. Pairs without rows know nothing: zeros.
    """
    turned = -scores if scores.shape[1] == 1 else scores
    A, B = np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        inside = np.flatnonzero((codes == first) | (codes == second))
        if len(inside):
            share = None if weight is None else weight[inside]
            found = fit_platt(turned[inside, number], codes[inside] == first, share)
            A[number], B[number] = -found.slope / found.scale, -found.intercept
    return A, B


def coupled(scores: Array, A: Array, B: Array, n_classes: int) -> Array:
    """Log probabilities of all classes that agree best with those of the pairs.

    With ``r_kj`` the probability of class k among k and j by the sigmoids, ``p`` minimises
    ``sum_kj (r_jk p_k - r_kj p_j)^2`` where ``sum p = 1`` (the second method of Wu, Lin and Weng,
    2004): one linear system per row. Cost: rows x classes^3.
    """
    first, second = np.array(class_pairs(n_classes)).T
    out = np.empty((len(scores), n_classes))
    at_once = max(1, SYSTEM_NUMBERS // (n_classes + 1) ** 2)
    for start in range(0, len(scores), at_once):
        part = scores[start : start + at_once]
        won = np.clip(expit(-(A * part + B)), SUREST, 1.0 - SUREST)
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
        # rounding may leave what is nearly zero below it
        out[start : start + at_once] = np.log(np.maximum(p, np.square(SUREST)))
    return out
