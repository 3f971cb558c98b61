"""How a kernel machine gets local experts: regions, a common choice, then one after another.

Rows in memory are gathered region by region, and every expert is learned from all of its rows at
once. Rows of a stream wait in bounded buffers: when that of a region is full its expert learns
them, and lets them go.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Matrix
from likelier.engines.threads import ThreadTeam, count_threads
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.expert_model import (
    Experts,
    Tree,
    by_region,
    expert_map,
    grow_tree,
    no_experts,
)
from likelier.kernel_machine.expert_rows import Drawn, Waiting, not_learned, take
from likelier.kernel_machine.experts import (
    ExpertJudge,
    Region,
    absorb_rows,
    choose_experts,
    fit_expert,
    join_regions,
)
from likelier.kernel_machine.features import LandmarkMap, as_dense, scale_rows
from likelier.kernel_machine.integrate import choose_spread
from likelier.kernel_machine.laplace import HeadPosterior, add_variance
from likelier.kernel_machine.resume import KeptJudge
from likelier.kernel_machine.search import Choice, output_precision
from likelier.kernel_machine.softmax_weights import HeadLoss

EXPERTS_FROM = 20_000  # rows
COMMON_ROWS, COMMON_VALUES = 50_000, 1 << 25  # what the common machine is learned from
COMMON_SAMPLE = 1  # number of that random sample
ROWS_PER_EXPERT, MAX_LANDMARKS, MAX_SQUARES = 1024, 512, 1 << 25  # squares: of all experts
MAX_EXPERTS, MAX_VALUES = 512, 1 << 26  # experts, and numbers in all of their landmarks
MAX_INPUTS = 2048
JUDGE_REGIONS, JUDGE_ROWS, JUDGE_LEAST, JUDGE_SHARE = 8, 1600, 4, 0.25
N_TRIAL = JUDGE_REGIONS * JUDGE_ROWS  # rows that experts are tried on
BUFFER_ROWS, LEAST_BUFFER, BUFFER_VALUES = 1024, 64, 1 << 26
MANY_ROWS = 16_384  # a region that holds more is learned in parts: equal rows stay together


def n_experts(n_rows: int, n_inputs: int) -> int:
    """A power of two: so many rows for each, and all of their landmarks in bounded memory."""
    least = n_landmarks(MAX_EXPERTS)
    most = min(n_rows // ROWS_PER_EXPERT, MAX_EXPERTS, MAX_VALUES // (least * n_inputs))
    return power_of_two(most)


def n_landmarks(n_experts: int) -> int:
    """Landmarks of an expert: fewer where there are many, so that their matrices fit."""
    return min(MAX_LANDMARKS, int((MAX_SQUARES // n_experts) ** 0.5))


def power_of_two(most: int) -> int:
    """The largest one that is not above ``most``."""
    return 1 << (max(most, 1).bit_length() - 1)


def common_rows(n_inputs: int) -> int:
    """How many rows the common machine is learned from, where there are experts."""
    return min(COMMON_ROWS, COMMON_VALUES // n_inputs)


@dataclass(frozen=True)
class CommonMachine(ABC):
    """The common machine that experts correct: what depends on the kind of target."""

    map: LandmarkMap

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Scores of a row."""

    def scaled(self, X: Matrix) -> Array:
        """Rows as experts take them: dense, in the scales of the common machine."""
        return np.asarray(as_dense(scale_rows(X, self.map.centre, self.map.gamma, np.float32)))

    @abstractmethod
    def region(self, batch: Batch) -> Region:
        """Rows with their scores by the common machine."""

    @abstractmethod
    def judge(self, regions: list[Batch], n_landmarks: int, seed: int) -> Any:
        """Losses of choices for the experts of a few regions, of rows they have not learned."""

    @abstractmethod
    def verdict(self, judge: Any, choice: Choice) -> Any:
        """How far predictions are to be trusted, by the same rows."""

    @abstractmethod
    def prior_variance(self, choice: Choice) -> float:
        """Variance of what an expert adds before it has learned anything."""

    @abstractmethod
    def choice(self, experts: Experts) -> Choice:
        """The choice that experts were made by."""

    @abstractmethod
    def fit(self, region: Region, made: LandmarkMap, choice: Choice, tol: float) -> HeadPosterior:
        """An expert by its first rows."""

    @abstractmethod
    def absorb(
        self, region: Region, made: LandmarkMap, before: HeadPosterior, tol: float
    ) -> HeadPosterior:
        """An expert by further rows."""


@dataclass(frozen=True)
class Common(CommonMachine):
    """The common machine of a classifier."""

    posterior: HeadPosterior
    loss: HeadLoss

    @property
    def n_outputs(self) -> int:
        """One score for two classes, else one per class."""
        return self.loss.n_outputs

    def region(self, batch: Batch) -> Region:
        """Rows with their scores."""
        offset = self.map.scores(batch.X, self.posterior.mean)
        return Region(self.scaled(batch.X), np.asarray(batch.y), batch.weight, offset)

    def judge(self, regions: list[Batch], n_landmarks: int, seed: int) -> ExpertJudge:
        """Some rows of every region are held out."""
        parts = []
        for batch in regions:
            whole = self.region(batch)
            rows, n_held = np.arange(whole.n), int(JUDGE_SHARE * whole.n)
            parts.append((whole.take(rows[n_held:]), whole.take(rows[:n_held])))
        return ExpertJudge(parts, self.loss, n_landmarks, seed)

    def verdict(self, judge: ExpertJudge, choice: Choice) -> float:
        """The spread of the posterior that held-out rows like best."""
        scores, variance = judge.held(choice)
        held = join_regions([held for _, held in judge.parts])
        covariance = add_variance(self.covariance(held.Z), variance)
        return choose_spread(held.offset + scores, covariance, held.codes, held.weight)

    def covariance(self, Z: Array) -> Array:
        """Covariance of the scores of scaled rows."""
        d = Z.shape[1]
        plain = replace(self.map, centre=np.zeros(d, np.float32), gamma=np.ones(d, np.float32))
        Phi = plain(Z, np.float32)
        return self.posterior.covariance(Phi, plain.residual(Phi))

    def prior_variance(self, choice: Choice) -> float:
        """Of one score."""
        return 1.0 / output_precision(choice, self.loss)

    def choice(self, experts: Experts) -> Choice:
        """The precision is that of the weights of a class."""
        scores_per_class = 0.5 if self.n_outputs == 1 else 1.0
        return Choice(1.0 / (scores_per_class * experts.prior_variance), experts.scale)

    def fit(self, region: Region, made: LandmarkMap, choice: Choice, tol: float) -> HeadPosterior:
        """The optimum, and the curvature there."""
        return fit_expert(region, made, self.loss, choice, tol)

    def absorb(
        self, region: Region, made: LandmarkMap, before: HeadPosterior, tol: float
    ) -> HeadPosterior:
        """The posterior so far is the prior of these rows."""
        return absorb_rows(region, made, self.loss, before, tol)


@dataclass(frozen=True)
class Solution:
    """What one expert is after it has learned some rows."""

    expert: int
    n_rows: int
    map: LandmarkMap
    posterior: HeadPosterior


@dataclass
class ExpertFit:
    """Learning of all experts; what has been learned is there at every moment."""

    engine: Engine
    common: CommonMachine
    n_rows: int
    n_regions: int
    seed: int
    tol: float
    n_jobs: int | None
    budget: TimeBudget
    experts: Experts | None = None
    known: dict[int, Array] = field(default_factory=dict)  # of a stream: random rows of regions

    def choose(self, sample: Matrix, precision: float, must: bool) -> tuple[Choice, Any] | None:
        """Regions, then width, precision and verdict by unlearned rows; None for no experts.

        There are none where the time is over, or no region has rows enough to judge by.
        """
        if self.budget.over:
            return None
        Z = self.common.scaled(sample)
        tree = grow_tree(Z, self.n_regions)
        drawn = self._judge_parts(tree, np.bincount(tree.regions(Z), minlength=self.n_regions))
        if not drawn:
            return None
        m = n_landmarks(self.n_regions)
        judge = self.common.judge(drawn, m, self.seed)
        kept = KeptJudge(judge, self.budget, "trial")
        choice = choose_experts(kept, precision, lambda: self.budget.over, must)
        if choice is None or self.budget.over:
            return None
        verdict = self.common.verdict(judge, choice)
        self.know(Z, tree)
        shape = (m, self.common.n_outputs)
        scaling = (self.common.map.centre, self.common.map.gamma, choice.scale)
        self.experts = no_experts(tree, shape, scaling, self.common.prior_variance(choice))
        return choice, verdict

    def know(self, Z: Array, tree: Tree) -> None:
        """Let scaled rows of a stream, drawn at random, be landmarks of their regions."""
        if not self.engine.in_memory:
            m = n_landmarks(self.n_regions)
            self.known = {r: Z[rows[:m]] for r, rows in by_region(tree.regions(Z))}

    def learn(self, choice: Choice) -> bool:
        """Learn every expert, or as many as time allows; whether that was all.

        Of rows in memory, experts that have learned already are left as they are; of a stream,
        each goes on after the rows that it has learned.
        """
        solved = self._in_memory(choice) if self.engine.in_memory else self._streamed(choice)
        assert self.experts is not None
        begin, before = time.perf_counter(), int(self.experts.counts.sum())
        n_done = 0
        with closing(solved):
            for solution in solved:
                self.keep(solution)
                n_done += solution.n_rows
                share = n_done / (self.n_rows - before)
                left = (time.perf_counter() - begin) * (1.0 / share - 1.0)
                whole = (before + n_done) / self.n_rows
                if self.budget.tick("experts", f"{whole:.1%} of the rows, about {left:.0f} s left"):
                    return False
        return True

    # -- rows of a region ---------------------------------------------------------------
    def _judge_parts(self, tree: Tree, sizes: Array) -> list[Batch]:
        """Rows of a few regions, all of them with their whole density.

        ``sizes`` are rows of each region that are known, of all rows or of a sample.
        """
        order = np.random.default_rng([self.seed, 1]).permutation(tree.n_regions)
        chosen = np.sort(order[sizes[order] >= JUDGE_LEAST][:JUDGE_REGIONS])
        drawn = {
            int(r): Drawn(JUDGE_ROWS, np.random.default_rng([self.seed, 1, r])) for r in chosen
        }
        if not drawn:
            return []

        def look(batch: Batch) -> list[tuple[int, Batch]]:
            found = tree.regions(self.common.scaled(batch.X))
            wanted = np.flatnonzero(np.isin(found, chosen))
            return [(r, take(batch, wanted[rows])) for r, rows in by_region(found[wanted])]

        for pieces in self.engine.map_blocks(look):
            for region, piece in pieces:
                drawn[region].add(piece)
        # too few: rows on a cut, rounded otherwise in the sample
        return [found.rows() for found in drawn.values() if len(found.keys) >= JUDGE_LEAST]

    def _in_memory(self, choice: Choice) -> Generator[Solution, None, None]:
        """Every expert by all of its rows, several at a time."""
        assert self.experts is not None
        tree, scaled = self.experts.tree, self.common.scaled
        regions = list(self.engine.map_blocks(lambda batch: tree.regions(scaled(batch.X))))
        found = by_region(np.concatenate(regions))
        parts = [(expert, rows) for expert, rows in found if not self.experts.counts[expert]]
        blocks = list(self.engine.blocks(0))  # they share the X of all rows, and list theirs
        present = np.sort(np.concatenate([np.asarray(block.rows) for block in blocks]))
        whole = replace(blocks[0], rows=None)

        def solve(number: int) -> Solution | None:
            expert, rows = parts[number]
            if len(rows) > MANY_ROWS:
                return self._solve_many(expert, whole, present[rows], choice)
            return self.solve(expert, self.common.region(take(whole, present[rows])), choice)

        team = ThreadTeam(count_threads(self.n_jobs))
        try:
            for solution in team.ordered_map(solve, len(parts)):
                if solution is not None:
                    yield solution
        finally:
            team.close()

    def _solve_many(
        self, expert: int, whole: Batch, rows: Array, choice: Choice
    ) -> Solution | None:
        """An expert of many rows: random parts one after another, each the prior of the next.

        None where time is over before the last: a fit that goes on then learns it from the first.
        """
        rows = np.random.default_rng([self.seed, 3, expert]).permutation(rows)
        solution = self.solve(expert, self.common.region(take(whole, rows[:MANY_ROWS])), choice)
        for start in range(MANY_ROWS, len(rows), MANY_ROWS):
            if self.budget.over:
                return None
            region = self.common.region(take(whole, rows[start : start + MANY_ROWS]))
            after = self.common.absorb(region, solution.map, solution.posterior, self.tol)
            solution = replace(solution, n_rows=solution.n_rows + region.n, posterior=after)
        return solution

    def _streamed(self, choice: Choice) -> Generator[Solution, None, None]:
        """Experts by rows of theirs whenever there are enough, and by what is left at the end."""
        assert self.experts is not None
        tree, d = self.experts.tree, len(self.common.map.gamma)
        enough = int(np.clip(BUFFER_VALUES // (tree.n_regions * d), LEAST_BUFFER, BUFFER_ROWS))
        waiting, learned = Waiting(enough), self.experts.counts.copy()
        for batch in self.engine.blocks():
            ready = waiting.add(self.common.region(batch), tree)
            for expert, rows in not_learned(ready, learned):
                yield self.solve(expert, rows, choice)
        for expert, rows in not_learned(waiting.rest(), learned):
            yield self.solve(expert, rows, choice)

    # -- one expert ---------------------------------------------------------------------
    def solve(self, expert: int, region: Region, choice: Choice) -> Solution:
        """The posterior of one expert after these rows, its first or further ones."""
        experts = self.experts
        assert experts is not None
        if not experts.counts[expert]:
            rng = np.random.default_rng([self.seed, 2, expert])
            made = self._first_map(expert, region.Z, choice.scale, rng)
            fitted = self.common.fit(region, made, choice, self.tol)
            return Solution(expert, region.n, made, fitted)
        made = experts.map(expert)
        W, root = experts.weights[expert].astype(np.float64), experts.roots[expert][None]
        before = HeadPosterior(W, root, "shared", experts.prior_variance)
        after = self.common.absorb(region, made, before, self.tol)
        return Solution(expert, region.n, made, after)

    def _first_map(
        self, expert: int, Z: Array, scale: float, rng: np.random.Generator
    ) -> LandmarkMap:
        """Features of an expert that has its first rows.

        A stream may be sorted, and its first rows of a region be those of a corner: rows that
        are known of the whole region are the better landmarks.
        """
        m, known = n_landmarks(self.n_regions), self.known.pop(expert, None)
        if known is not None:
            Z = np.concatenate([known, rng.permutation(Z)[: m - len(known)]])
        return expert_map(Z, scale, m, rng)

    def keep(self, solution: Solution) -> None:
        """Make a solution part of the experts."""
        experts, expert = self.experts, solution.expert
        assert experts is not None
        experts.landmarks[expert] = solution.map.landmarks
        experts.whiten[expert] = solution.map.whiten
        experts.weights[expert] = solution.posterior.mean
        experts.roots[expert] = solution.posterior.roots[0]
        experts.counts[expert] += solution.n_rows
