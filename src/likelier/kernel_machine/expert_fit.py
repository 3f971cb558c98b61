"""Fitting of local experts: regions, shared hyperparameters, then the experts themselves.

In memory, rows are gathered by region and each expert is fitted to all of its rows at once. On a
stream, rows wait in bounded buffers; when the buffer of a region is full, its expert is updated
and the buffer released.
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
from likelier.kernel_machine.expert_rows import RegionBuffers, ReservoirSample, skip_learned, take
from likelier.kernel_machine.experts import (
    ClassExpertValidator,
    Region,
    absorb_rows,
    choose_experts,
    fit_expert,
    join_regions,
)
from likelier.kernel_machine.features import LandmarkMap, as_dense, scale_rows
from likelier.kernel_machine.integrate import choose_posterior_scale
from likelier.kernel_machine.laplace import WeightPosterior, add_variance
from likelier.kernel_machine.resume import CachedValidator
from likelier.kernel_machine.search import Choice, output_precision
from likelier.kernel_machine.softmax_weights import ClassLoss

MIN_EXPERT_ROWS = 20_000  # rows
GLOBAL_ROWS, GLOBAL_VALUES = 50_000, 1 << 25  # limits of the rows that the global model learns
GLOBAL_SAMPLE = 1  # index of that random sample
# MAX_SQUARES: total size of all whitening matrices
ROWS_PER_EXPERT, MAX_LANDMARKS, MAX_SQUARES = (1024, 512, 1 << 25)
MAX_EXPERTS, MAX_VALUES = 512, 1 << 26  # number of experts, and values in all of their landmarks
MAX_INPUTS = 2048
TRIAL_REGIONS, TRIAL_ROWS, TRIAL_MIN_ROWS, HOLD_OUT_FRACTION = 8, 1600, 4, 0.25
N_TRIAL = TRIAL_REGIONS * TRIAL_ROWS  # number of validation rows
MAX_BUFFER_ROWS, MIN_BUFFER_ROWS, BUFFER_VALUES = 1024, 64, 1 << 26
MAX_PART_ROWS = 16_384  # larger regions (equal rows stay together) are learned in parts


def n_experts(n_rows: int, n_inputs: int) -> int:
    """Default number of experts: a power of two, limited by rows and by memory for landmarks."""
    least = n_landmarks(MAX_EXPERTS)
    most = min(n_rows // ROWS_PER_EXPERT, MAX_EXPERTS, MAX_VALUES // (least * n_inputs))
    return power_of_two(most)


def n_landmarks(n_experts: int) -> int:
    """Landmarks per expert; fewer for many experts, to bound the memory of their matrices."""
    return min(MAX_LANDMARKS, int((MAX_SQUARES // n_experts) ** 0.5))


def power_of_two(most: int) -> int:
    """Largest power of two up to ``most``."""
    return 1 << (max(most, 1).bit_length() - 1)


def global_rows(n_inputs: int) -> int:
    """Number of rows that the global model learns if there are experts."""
    return min(GLOBAL_ROWS, GLOBAL_VALUES // n_inputs)


@dataclass(frozen=True)
class GlobalModel(ABC):
    """Global model that experts correct; subclasses handle the kind of target."""

    map: LandmarkMap

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of scores per row."""

    def scaled(self, X: Matrix) -> Array:
        """Rows as the experts take them: dense, scaled as in the global model."""
        return np.asarray(as_dense(scale_rows(X, self.map.centre, self.map.gamma, np.float32)))

    @abstractmethod
    def region(self, batch: Batch) -> Region:
        """Rows with their scores by the global model."""

    @abstractmethod
    def validator(self, regions: list[Batch], n_landmarks: int, seed: int) -> Any:
        """Validator of expert hyperparameters on a few regions."""

    @abstractmethod
    def uncertainty(self, validator: Any, choice: Choice) -> Any:
        """Posterior scale or noise model, estimated on the validation rows."""

    @abstractmethod
    def prior_variance(self, choice: Choice) -> float:
        """Prior variance of an expert's correction."""

    @abstractmethod
    def choice(self, experts: Experts) -> Choice:
        """Hyperparameters the experts were made with."""

    @abstractmethod
    def fit(
        self, region: Region, feature_map: LandmarkMap, choice: Choice, tol: float
    ) -> WeightPosterior:
        """Posterior of an expert after its first rows."""

    @abstractmethod
    def absorb(
        self, region: Region, feature_map: LandmarkMap, before: WeightPosterior, tol: float
    ) -> WeightPosterior:
        """Posterior of an expert after further rows."""


@dataclass(frozen=True)
class GlobalClassifier(GlobalModel):
    """Global model of a classifier."""

    posterior: WeightPosterior
    loss: ClassLoss

    @property
    def n_outputs(self) -> int:
        """One score for two classes, else one per class."""
        return self.loss.n_outputs

    def region(self, batch: Batch) -> Region:
        """Rows with their scores."""
        offset = self.map.scores(batch.X, self.posterior.mean)
        return Region(self.scaled(batch.X), np.asarray(batch.y), batch.weight, offset)

    def validator(self, regions: list[Batch], n_landmarks: int, seed: int) -> ClassExpertValidator:
        """Validator that holds out some rows of every region."""
        parts = []
        for batch in regions:
            whole = self.region(batch)
            rows, n_held = np.arange(whole.n), int(HOLD_OUT_FRACTION * whole.n)
            parts.append((whole.take(rows[n_held:]), whole.take(rows[:n_held])))
        return ClassExpertValidator(parts, self.loss, n_landmarks, seed)

    def uncertainty(self, validator: ClassExpertValidator, choice: Choice) -> float:
        """Posterior scale with the smallest held-out loss."""
        scores, variance = validator.held(choice)
        held = join_regions([held for _, held in validator.parts])
        covariance = add_variance(self.covariance(held.Z), variance)
        return choose_posterior_scale(held.offset + scores, covariance, held.codes, held.weight)

    def covariance(self, Z: Array) -> Array:
        """Covariance of the global scores of scaled rows."""
        d = Z.shape[1]
        plain = replace(self.map, centre=np.zeros(d, np.float32), gamma=np.ones(d, np.float32))
        Phi = plain(Z, np.float32)
        return self.posterior.covariance(Phi, plain.residual(Phi))

    def prior_variance(self, choice: Choice) -> float:
        """Prior variance of one score."""
        return 1.0 / output_precision(choice, self.loss)

    def choice(self, experts: Experts) -> Choice:
        """Hyperparameters, with the precision of the weights of a class."""
        scores_per_class = 0.5 if self.n_outputs == 1 else 1.0
        return Choice(1.0 / (scores_per_class * experts.prior_variance), experts.scale)

    def fit(
        self, region: Region, feature_map: LandmarkMap, choice: Choice, tol: float
    ) -> WeightPosterior:
        """Optimum, with the curvature there."""
        return fit_expert(region, feature_map, self.loss, choice, tol)

    def absorb(
        self, region: Region, feature_map: LandmarkMap, before: WeightPosterior, tol: float
    ) -> WeightPosterior:
        """Update with the current posterior as prior."""
        return absorb_rows(region, feature_map, self.loss, before, tol)


@dataclass(frozen=True)
class Solution:
    """State of one expert after learning some rows."""

    expert: int
    n_rows: int
    map: LandmarkMap
    posterior: WeightPosterior


@dataclass
class ExpertFit:
    """Fitting of all experts; the experts learned so far are available at any time."""

    engine: Engine
    global_model: GlobalModel
    n_rows: int
    n_regions: int
    seed: int
    tol: float
    n_jobs: int | None
    budget: TimeBudget
    experts: Experts | None = None
    # random rows per region of a stream
    landmark_rows: dict[int, Array] = field(default_factory=dict)

    def choose(self, sample: Matrix, precision: float, required: bool) -> tuple[Choice, Any] | None:
        """Choose regions, then kernel width, precision and uncertainty on validation rows.

        None if no experts are worthwhile, the time is over, or no region has enough rows.
        """
        if self.budget.over:
            return None
        Z = self.global_model.scaled(sample)
        tree = grow_tree(Z, self.n_regions)
        samples = self._validation_regions(
            tree, np.bincount(tree.regions(Z), minlength=self.n_regions)
        )
        if not samples:
            return None
        m = n_landmarks(self.n_regions)
        validator = self.global_model.validator(samples, m, self.seed)
        cached = CachedValidator(validator, self.budget, "trial")
        choice = choose_experts(cached, precision, lambda: self.budget.over, required)
        if choice is None or self.budget.over:
            return None
        uncertainty = self.global_model.uncertainty(validator, choice)
        self.set_landmark_rows(Z, tree)
        shape = (m, self.global_model.n_outputs)
        scaling = (self.global_model.map.centre, self.global_model.map.gamma, choice.scale)
        self.experts = no_experts(tree, shape, scaling, self.global_model.prior_variance(choice))
        return choice, uncertainty

    def set_landmark_rows(self, Z: Array, tree: Tree) -> None:
        """On a stream, take landmarks of each region from a random sample of scaled rows."""
        if not self.engine.in_memory:
            m = n_landmarks(self.n_regions)
            self.landmark_rows = {r: Z[rows[:m]] for r, rows in by_region(tree.regions(Z))}

    def learn(self, choice: Choice) -> bool:
        """Learn every expert, or as many as time allows; return whether all were learned.

        In memory, experts that have learned are skipped; on a stream, each resumes after the rows
        it has learned.
        """
        solved = self._in_memory(choice) if self.engine.in_memory else self._streamed(choice)
        assert self.experts is not None
        begin, before = time.perf_counter(), int(self.experts.counts.sum())
        n_done = 0
        with closing(solved):
            for solution in solved:
                self.store(solution)
                n_done += solution.n_rows
                fraction = n_done / (self.n_rows - before)
                seconds_left = (time.perf_counter() - begin) * (1.0 / fraction - 1.0)
                whole = (before + n_done) / self.n_rows
                if self.budget.tick(
                    "experts", f"{whole:.1%} of the rows, about {seconds_left:.0f} s left"
                ):
                    return False
        return True

    # -- rows of a region ---------------------------------------------------------------
    def _validation_regions(self, tree: Tree, sizes: Array) -> list[Batch]:
        """All rows (up to `TRIAL_ROWS`) of a few random regions.

        ``sizes`` are the numbers of known rows per region, in all rows or in a sample.
        """
        order = np.random.default_rng([self.seed, 1]).permutation(tree.n_regions)
        chosen = np.sort(order[sizes[order] >= TRIAL_MIN_ROWS][:TRIAL_REGIONS])
        samples = {
            int(r): ReservoirSample(TRIAL_ROWS, np.random.default_rng([self.seed, 1, r]))
            for r in chosen
        }
        if not samples:
            return []

        def map_block(batch: Batch) -> list[tuple[int, Batch]]:
            found = tree.regions(self.global_model.scaled(batch.X))
            wanted = np.flatnonzero(np.isin(found, chosen))
            return [(r, take(batch, wanted[rows])) for r, rows in by_region(found[wanted])]

        for parts in self.engine.map_blocks(map_block):
            for region, part in parts:
                samples[region].add(part)
        # regions may be smaller than in the sample: rows on a cut may round to the other side
        return [found.rows() for found in samples.values() if len(found.keys) >= TRIAL_MIN_ROWS]

    def _in_memory(self, choice: Choice) -> Generator[Solution, None, None]:
        """Fit experts to all of their rows, in parallel."""
        assert self.experts is not None
        tree, scaled = self.experts.tree, self.global_model.scaled
        regions = list(self.engine.map_blocks(lambda batch: tree.regions(scaled(batch.X))))
        found = by_region(np.concatenate(regions))
        parts = [(expert, rows) for expert, rows in found if not self.experts.counts[expert]]
        blocks = list(self.engine.blocks(0))  # they share X and hold row indices
        present = np.sort(np.concatenate([np.asarray(block.rows) for block in blocks]))
        whole = replace(blocks[0], rows=None)

        def solve(number: int) -> Solution | None:
            expert, rows = parts[number]
            if len(rows) > MAX_PART_ROWS:
                return self._solve_many(expert, whole, present[rows], choice)
            return self.solve(expert, self.global_model.region(take(whole, present[rows])), choice)

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
        """Fit an expert of many rows sequentially to random parts of them.

        None if the time is over before the last part; a resumed fit then starts this expert anew.
        """
        rows = np.random.default_rng([self.seed, 3, expert]).permutation(rows)
        solution = self.solve(
            expert, self.global_model.region(take(whole, rows[:MAX_PART_ROWS])), choice
        )
        for start in range(MAX_PART_ROWS, len(rows), MAX_PART_ROWS):
            if self.budget.over:
                return None
            region = self.global_model.region(take(whole, rows[start : start + MAX_PART_ROWS]))
            after = self.global_model.absorb(region, solution.map, solution.posterior, self.tol)
            solution = replace(solution, n_rows=solution.n_rows + region.n, posterior=after)
        return solution

    def _streamed(self, choice: Choice) -> Generator[Solution, None, None]:
        """Update experts whenever their buffer is full, and with the remainder at the end."""
        assert self.experts is not None
        tree, d = self.experts.tree, len(self.global_model.map.gamma)
        enough = int(
            np.clip(BUFFER_VALUES // (tree.n_regions * d), MIN_BUFFER_ROWS, MAX_BUFFER_ROWS)
        )
        waiting, learned = RegionBuffers(enough), self.experts.counts.copy()
        for batch in self.engine.blocks():
            ready = waiting.add(self.global_model.region(batch), tree)
            for expert, rows in skip_learned(ready, learned):
                yield self.solve(expert, rows, choice)
        for expert, rows in skip_learned(waiting.flush(), learned):
            yield self.solve(expert, rows, choice)

    # -- one expert ---------------------------------------------------------------------
    def solve(self, expert: int, region: Region, choice: Choice) -> Solution:
        """Posterior of one expert after these rows."""
        experts = self.experts
        assert experts is not None
        if not experts.counts[expert]:
            rng = np.random.default_rng([self.seed, 2, expert])
            feature_map = self._first_map(expert, region.Z, choice.scale, rng)
            fitted = self.global_model.fit(region, feature_map, choice, self.tol)
            return Solution(expert, region.n, feature_map, fitted)
        feature_map = experts.map(expert)
        W, root = experts.weights[expert].astype(np.float64), experts.roots[expert][None]
        before = WeightPosterior(W, root, "shared", experts.prior_variance)
        after = self.global_model.absorb(region, feature_map, before, self.tol)
        return Solution(expert, region.n, feature_map, after)

    def _first_map(
        self, expert: int, Z: Array, scale: float, rng: np.random.Generator
    ) -> LandmarkMap:
        """Features of an expert that learns its first rows.

        A sorted stream may begin in a corner of the region, so landmarks come first from the random
        sample of the whole region.
        """
        m, landmark_rows = n_landmarks(self.n_regions), self.landmark_rows.pop(expert, None)
        if landmark_rows is not None:
            Z = np.concatenate([landmark_rows, rng.permutation(Z)[: m - len(landmark_rows)]])
        return expert_map(Z, scale, m, rng)

    def store(self, solution: Solution) -> None:
        """Store a solution in the experts."""
        experts, expert = self.experts, solution.expert
        assert experts is not None
        experts.landmarks[expert] = solution.map.landmarks
        experts.whiten[expert] = solution.map.whiten
        experts.weights[expert] = solution.posterior.mean
        experts.roots[expert] = solution.posterior.roots[0]
        experts.counts[expert] += solution.n_rows
