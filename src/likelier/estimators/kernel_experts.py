"""How a kernel classifier gets local experts: regions, a common choice, then one after another.

Rows in memory are gathered region by region, and every expert is learned from all of its rows at
once. Rows of a stream wait in bounded buffers: when that of a region is full its expert learns
them, and lets them go.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Matrix
from likelier.engines.rows import stack_rows, take_rows
from likelier.engines.threads import ThreadTeam, count_threads
from likelier.estimators.kernel_words import Clock
from likelier.inference.kernel_experts import (
    ExpertJudge,
    Region,
    absorb_rows,
    choose_experts,
    fit_expert,
    join_regions,
)
from likelier.inference.kernel_search import Choice, output_precision
from likelier.inference.laplace import HeadPosterior, add_variance, choose_spread
from likelier.inference.softmax_head import HeadLoss
from likelier.models.kernel_experts import (
    Experts,
    Tree,
    by_region,
    expert_map,
    grow_tree,
    no_experts,
)
from likelier.models.kernel_machine import LandmarkMap, as_dense, scale_rows

EXPERTS_FROM = 20_000  # rows
COMMON_ROWS, COMMON_VALUES = 50_000, 1 << 25  # what the common machine is learned from
COMMON_SAMPLE = 1  # number of that random sample
ROWS_PER_EXPERT, MAX_LANDMARKS, MAX_SQUARES = 1024, 512, 1 << 25  # squares: of all experts
MAX_EXPERTS, MAX_VALUES = 512, 1 << 26  # experts, and numbers in all of their landmarks
MAX_INPUTS = 2048
JUDGE_REGIONS, JUDGE_ROWS, JUDGE_LEAST, JUDGE_SHARE = 8, 1600, 4, 0.25
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
class Common:
    """The common machine that experts correct."""

    map: LandmarkMap
    posterior: HeadPosterior
    loss: HeadLoss

    def scaled(self, X: Matrix) -> Array:
        """Rows as experts take them: dense, in the scales of the common machine."""
        return np.asarray(as_dense(scale_rows(X, self.map.centre, self.map.gamma, np.float32)))

    def region(self, batch: Batch) -> Region:
        """Rows with their scores by the common machine."""
        offset = self.map.scores(batch.X, self.posterior.mean)
        return Region(self.scaled(batch.X), np.asarray(batch.y), batch.weight, offset)

    def covariance(self, Z: Array) -> Array:
        """Covariance of the scores of scaled rows."""
        d = Z.shape[1]
        plain = replace(self.map, centre=np.zeros(d, np.float32), gamma=np.ones(d, np.float32))
        Phi = plain(Z, np.float32)
        return self.posterior.covariance(Phi, plain.residual(Phi))


@dataclass
class Waiting:
    """Rows that wait, region by region, until there are enough for their expert to learn."""

    enough: int
    parts: dict[int, list[Region]] = field(default_factory=dict)

    def add(self, block: Region, tree: Tree) -> Iterator[tuple[int, Region]]:
        """Let rows wait; yield the regions that have enough."""
        for expert, rows in by_region(tree.regions(block.Z)):
            self.parts.setdefault(expert, []).append(block.take(rows))
            if sum(part.n for part in self.parts[expert]) >= self.enough:
                yield expert, join_regions(self.parts.pop(expert))

    def rest(self) -> Iterator[tuple[int, Region]]:
        """Yield what is left."""
        for expert in sorted(self.parts):
            yield expert, join_regions(self.parts.pop(expert))

    def to_plain(self) -> dict[int, Any]:
        """Plain form, of arrays."""
        joined = {expert: join_regions(parts) for expert, parts in self.parts.items()}
        return {expert: vars(region) for expert, region in joined.items()}

    @classmethod
    def from_plain(cls, enough: int, plain: dict[int, Any]) -> Waiting:
        """From the plain form."""
        return cls(enough, {int(expert): [Region(**parts)] for expert, parts in plain.items()})


@dataclass
class Drawn:
    """Rows drawn at random without replacement from all that pass by, in bounded memory.

    Every row gets a key and the ``most`` smallest stay: the same rows in whatever blocks they
    come.
    """

    most: int
    rng: np.random.Generator
    parts: list[Batch] = field(default_factory=list)
    keys: Array = field(default_factory=lambda: np.empty(0))
    bound: float = np.inf

    def add(self, batch: Batch) -> None:
        """Let rows pass by; at most twice as many as wanted are kept, and a block."""
        keys = self.rng.random(batch.n_rows)
        chosen = np.flatnonzero(keys < self.bound)
        if not len(chosen):
            return
        self.parts.append(take(batch, chosen))
        self.keys = np.concatenate([self.keys, keys[chosen]])
        if len(self.keys) > 2 * self.most:
            self.parts = [self.rows()]
            self.keys = np.sort(self.keys)[: self.most]
            self.bound = float(self.keys[-1])

    def rows(self) -> Batch:
        """The rows drawn so far, in random order."""
        weights = [part.weight for part in self.parts if part.weight is not None]
        whole = Batch(
            stack_rows([part.X for part in self.parts]),
            np.concatenate([np.asarray(part.y) for part in self.parts]),
            np.concatenate(weights) if weights else None,
        )
        return take(whole, np.argsort(self.keys, kind="stable")[: self.most])


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
    common: Common
    n_rows: int
    n_regions: int
    seed: int
    tol: float
    n_jobs: int | None
    clock: Clock
    experts: Experts | None = None

    def choose(self, sample: Matrix, precision: float, must: bool) -> tuple[Choice, float] | None:
        """Regions, then width, precision and spread by rows held out; None for no experts.

        There are none where the time is over, or no region has rows enough to judge by.
        """
        if self.clock.over:
            return None
        Z = self.common.scaled(sample)
        tree = grow_tree(Z, self.n_regions)
        parts = self._judge_parts(tree, np.bincount(tree.regions(Z), minlength=self.n_regions))
        if not parts:
            return None
        judge = ExpertJudge(parts, self.common.loss, n_landmarks(self.n_regions), self.seed)
        choice = choose_experts(judge, precision, lambda: self.clock.over, must)
        if choice is None or self.clock.over:
            return None
        scores, variance = judge.held(choice)
        held = join_regions([held for _, held in parts])
        covariance = add_variance(self.common.covariance(held.Z), variance)
        spread = choose_spread(held.offset + scores, covariance, held.codes, held.weight)
        shape = (n_landmarks(self.n_regions), self.common.loss.n_outputs)
        scaling = (self.common.map.centre, self.common.map.gamma, choice.scale)
        variance_before = 1.0 / output_precision(choice, self.common.loss)
        self.experts = no_experts(tree, shape, scaling, variance_before)
        return choice, spread

    def learn(self, choice: Choice) -> bool:
        """Learn every expert, or as many as time allows; whether that was all.

        Of rows in memory, experts that have learned already are left as they are.
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
                if self.clock.tick("experts", f"{whole:.1%} of the rows, about {left:.0f} s left"):
                    return False
        return True

    # -- rows of a region ---------------------------------------------------------------
    def _judge_parts(self, tree: Tree, sizes: Array) -> list[tuple[Region, Region]]:
        """Rows of a few regions, all of them with their whole density, and rows held out.

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
        parts = []
        for found in drawn.values():
            if len(found.keys) < JUDGE_LEAST:  # rows on a cut, rounded otherwise in the sample
                continue
            whole = self.common.region(found.rows())
            rows, n_held = np.arange(whole.n), int(JUDGE_SHARE * whole.n)
            parts.append((whole.take(rows[n_held:]), whole.take(rows[:n_held])))
        return parts

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
            if self.clock.over:
                return None
            region = self.common.region(take(whole, rows[start : start + MANY_ROWS]))
            before, loss = solution.posterior, self.common.loss
            after = absorb_rows(region, solution.map, loss, before, self.tol)
            solution = replace(solution, n_rows=solution.n_rows + region.n, posterior=after)
        return solution

    def _streamed(self, choice: Choice) -> Generator[Solution, None, None]:
        """Experts by rows of theirs whenever there are enough, and by what is left at the end."""
        assert self.experts is not None
        tree, d = self.experts.tree, len(self.common.map.gamma)
        enough = int(np.clip(BUFFER_VALUES // (tree.n_regions * d), LEAST_BUFFER, BUFFER_ROWS))
        waiting = Waiting(enough)
        for batch in self.engine.blocks():
            for expert, rows in waiting.add(self.common.region(batch), tree):
                yield self.solve(expert, rows, choice)
        for expert, rows in waiting.rest():
            yield self.solve(expert, rows, choice)

    # -- one expert ---------------------------------------------------------------------
    def solve(self, expert: int, region: Region, choice: Choice) -> Solution:
        """The posterior of one expert after these rows, its first or further ones."""
        experts, loss = self.experts, self.common.loss
        assert experts is not None
        if not experts.counts[expert]:
            rng = np.random.default_rng([self.seed, 2, expert])
            made = expert_map(region.Z, choice.scale, n_landmarks(self.n_regions), rng)
            fitted = fit_expert(region, made, loss, choice, self.tol)
            return Solution(expert, region.n, made, fitted)
        made = experts.map(expert)
        W, root = experts.weights[expert].astype(np.float64), experts.roots[expert][None]
        before = HeadPosterior(W, root, "shared", experts.prior_variance)
        return Solution(expert, region.n, made, absorb_rows(region, made, loss, before, self.tol))

    def keep(self, solution: Solution) -> None:
        """Make a solution part of the experts."""
        experts, expert = self.experts, solution.expert
        assert experts is not None
        experts.landmarks[expert] = solution.map.landmarks
        experts.whiten[expert] = solution.map.whiten
        experts.weights[expert] = solution.posterior.mean
        experts.roots[expert] = solution.posterior.roots[0]
        experts.counts[expert] += solution.n_rows


def take(batch: Batch, rows: Array) -> Batch:
    """Some rows of a batch."""
    weight = None if batch.weight is None else batch.weight[rows]
    return Batch(take_rows(batch.X, rows), np.asarray(batch.y)[rows], weight)
