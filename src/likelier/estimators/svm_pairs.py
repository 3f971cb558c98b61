"""One-vs-one: a dual problem for every pair of classes, their coefficients, their votes.

Pairs are numbered as in LIBSVM: (0, 1), (0, 2), ..., (1, 2), ... A score above zero is a vote for
the first class of the pair, except that the only pair of two classes is turned round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from likelier.base import Array
from likelier.calibration import fit_platt
from likelier.engines.threads import ThreadTeam
from likelier.estimators.svm_words import Rows
from likelier.inference.smo import SMO, InterruptedSolveError, KernelPosterior
from likelier.inference.smo_cache import Memory, kept_memory
from likelier.inference.smo_path import solve_path
from likelier.losses import Hinge
from likelier.models.kernel_expansion import KernelExpansion


@dataclass(frozen=True)
class PairSolution:
    """Solution of one pair: its rows (positions), their coefficients, and how it ended."""

    rows: Array
    beta: Array
    intercept: float
    n_iter: int
    gap: float
    converged: bool


def class_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Pairs of classes in LIBSVM's order."""
    return list(combinations(range(n_classes), 2))


def solve_pairs(
    rows: Rows, codes: Array, n_classes: int, Cs: list[float],
    inference: Callable[[int, int, ThreadTeam | None], SMO], team: ThreadTeam,
) -> list[list[PairSolution]]:  # fmt: skip
    """Solve every pair for every (ascending) C; one list per pair.

    Pairs run side by side in the threads of the team; a single pair gets them for its kernel
    rows. Cost: that of SMO for the rows of two classes, times the pairs.
    """
    pairs = class_pairs(n_classes)
    share = min(team.n_threads, len(pairs))
    alone = len(pairs) == 1
    own = threading.local()  # one thread solves one pair after the other in the same memory
    members = [np.flatnonzero(codes == k) for k in range(n_classes)]

    def solve(number: int) -> list[PairSolution]:
        first, second = pairs[number]
        inside = _rows_of(members, first, second)
        y = np.repeat([1.0, -1.0], [len(members[first]), len(members[second])])
        if alone:
            y = np.where(codes == second, 1.0, -1.0)
        weight = None if rows.weight is None else rows.weight[inside]
        smo = inference(len(inside), share, team if alone else None)
        models = [KernelExpansion(rows.prepared.kernel, Hinge(), C) for C in Cs]
        if not hasattr(own, "memory"):
            own.memory = next(free, None) or Memory()
        subset = rows.subset(None if alone else inside)
        found = solve_path(smo, models, subset, y, weight, own.memory)
        return [pair_solution(inside, posterior) for posterior in found]

    rows.make_working()
    with kept_memory() as memory:
        free = iter([memory])  # for the thread that comes first
        if share == 1 or alone:
            return _one_by_one(solve, members)
        return list(team.ordered_map(solve, len(pairs)))


def _rows_of(members: list[Array], first: int, second: int) -> Array:
    """Rows of a pair, one class after the other; the only pair has all rows in their order."""
    if len(members) == 2:
        return np.arange(len(members[0]) + len(members[1]))
    return np.concatenate([members[first], members[second]])


class InterruptedPairsError(KeyboardInterrupt):
    """Ctrl-C between pairs, with what had been solved; pairs not begun have no opinion."""

    def __init__(self, solutions: list[PairSolution]) -> None:
        super().__init__()
        self.solutions = solutions


def _one_by_one(
    solve: Callable[[int], list[PairSolution]], members: list[Array]
) -> list[list[PairSolution]]:
    pairs = class_pairs(len(members))
    done: list[list[PairSolution]] = []
    try:
        for number in range(len(pairs)):
            done.append(solve(number))
    except InterruptedSolveError as stop:
        solutions = [found[0] for found in done]
        for first, second in pairs[len(done) :]:
            inside = _rows_of(members, first, second)
            if len(solutions) == len(done):
                solutions.append(pair_solution(inside, stop.posterior))
            else:
                none = np.zeros(len(inside))
                solutions.append(PairSolution(inside, none, 0.0, 0, np.inf, False))
        raise InterruptedPairsError(solutions) from None
    return done


def pair_solution(inside: Array, found: KernelPosterior) -> PairSolution:
    """What is kept of a solution."""
    return PairSolution(
        inside, found.beta, found.intercept, found.n_iter, found.gap, found.converged
    )


def join_pairs(solutions: list[PairSolution], codes: Array, n_classes: int) -> dict[str, Array]:
    """Support vectors of all pairs, by class, with LIBSVM's table of coefficients.

    A support vector of class ``k`` has ``n_classes - 1`` coefficients, one against each other
    class in order.
    """
    used = np.zeros(len(codes), dtype=bool)
    for solution in solutions:
        used[solution.rows[solution.beta != 0.0]] = True
    support = np.concatenate([np.flatnonzero(used & (codes == k)) for k in range(n_classes)])
    place = np.full(len(codes), -1)
    place[support] = np.arange(len(support))
    table = np.zeros((n_classes - 1, len(support)))
    for (first, second), solution in zip(class_pairs(n_classes), solutions, strict=True):
        for own, other in ((first, second), (second, first)):
            mine = (codes[solution.rows] == own) & (solution.beta != 0.0)
            line = other - 1 if other > own else other
            table[line, place[solution.rows[mine]]] = solution.beta[mine]
    counts = np.bincount(codes[support], minlength=n_classes)
    return {"support": support, "dual_coef": table, "n_support": counts.astype(np.int32)}


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
