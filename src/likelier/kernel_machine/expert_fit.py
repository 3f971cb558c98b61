"""Fitting of local experts: regions, hyperparameters shared by all, then one expert after another.

Experts correct a global model. One pass gathers the rows of all regions, each with its score by the
global model; more rows than fit into memory are thinned at random. Kernel width and prior precision
are validated on held-out rows of a few regions, at full density.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix
from likelier.engines.keys import Purpose, keyed_stream
from likelier.fitting.monitor import Monitor
from likelier.fitting.run import run
from likelier.kernel_machine.evidence import typical_weight
from likelier.kernel_machine.expert_model import Experts, Tree, by_region, expert_map, grow_tree
from likelier.kernel_machine.features import LandmarkMap, as_dense, scale_rows
from likelier.kernel_machine.search import Choice, is_significant
from likelier.kernel_machine.weight_posterior import WeightPosterior

GLOBAL_ROWS, GLOBAL_VALUES = 50_000, 1 << 25  # limits of the rows that the global model learns
# MAX_SQUARES: total size of all whitening matrices
ROWS_PER_EXPERT, MAX_LANDMARKS, MAX_SQUARES = 1024, 512, 1 << 25
MAX_EXPERTS, MAX_VALUES = 512, 1 << 26  # number of experts, and values in all of their landmarks
MAX_INPUTS = 2048
GATHERED_VALUES = 1 << 26  # values of all rows that experts learn
MAX_REGION_ROWS = 16_384  # of one expert; equal rows stay together in a region
TRIAL_REGIONS, TRIAL_ROWS, TRIAL_MIN_ROWS = 8, 1600, 4
PRECISION_STEP, SCALE_STEP = 4.0, 2.0
START_SCALES = (1.0, 2.0, 4.0, 8.0)  # a coarse grid, since the loss may have several minima
N_ROUNDS = 6
LIMITS = (1e-3, 64.0)
EXPERTS_PER_STEP = 8
SAMPLE_KEY = 7  # of the random numbers that thin the rows


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
class Region:
    """Scaled rows with their targets and weights, and their scores by the global model.

    ``variance`` holds columns of a regression, where the global model has learned the rows: two
    variances of its scores as if the row had been left out, that of the weights and that outside of
    the features, and the ratio of the residual to that of leaving the row out.
    """

    Z: Array
    y: Array
    weight: Array | None
    offset: Array
    variance: Array | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def omega(self) -> Array:
        """Weights, one by default."""
        return np.ones(self.n) if self.weight is None else self.weight

    def take(self, rows: Array) -> Region:
        """Subset of the rows."""
        weight, variance = (None if a is None else a[rows] for a in (self.weight, self.variance))
        return Region(self.Z[rows], self.y[rows], weight, self.offset[rows], variance)

    @classmethod
    def join(cls, parts: list[Region]) -> Region:
        """Concatenate rows."""
        first = parts[0]
        return cls(
            np.concatenate([part.Z for part in parts]),
            np.concatenate([part.y for part in parts]),
            None if first.weight is None else np.concatenate([part.omega for part in parts]),
            np.concatenate([part.offset for part in parts]),
            None if first.variance is None else np.concatenate([part.variance for part in parts]),
        )


@dataclass(frozen=True)
class Held:
    """Held-out rows of a region, with scores by its expert, their variance and its prior one."""

    rows: Region
    scores: Array
    variance: Array
    prior_variance: float


@dataclass(frozen=True)
class Corrected(ABC):
    """A global model that experts correct."""

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
    def fit(self, region: Region, feature_map: LandmarkMap, choice: Choice) -> WeightPosterior:
        """Posterior of an expert."""

    @abstractmethod
    def trial(
        self, region: Region, n_landmarks: int, choice: Choice, rng: np.random.Generator
    ) -> Held:
        """Some rows of a region, corrected by an expert that was fitted to the others."""

    @abstractmethod
    def losses(self, parts: list[Held]) -> Array:
        """Loss of every held-out row."""

    @abstractmethod
    def baseline(self, held: list[Region]) -> Array:
        """Loss of every held-out row without experts."""

    @abstractmethod
    def prior_variance(self, choice: Choice) -> float:
        """Prior variance of an expert's correction."""

    @abstractmethod
    def calibrate(self, parts: list[Held]) -> Any:
        """What held-out rows say of the uncertainty: posterior scale, or noise model."""


@dataclass(frozen=True)
class Gather:
    """The map of the pass that gathers rows; ``share`` of them, drawn by keyed random numbers."""

    tree: Tree
    share: float
    seed: int

    def __call__(self, batch: Batch, model: Corrected) -> list[tuple[Array, Region]]:
        if self.share < 1.0:
            keys = keyed_stream(self.seed, Purpose.SAMPLE, SAMPLE_KEY, batch.index)
            rows = np.flatnonzero(keys.random(batch.n_rows) < self.share)
            batch = Batch(batch.X, batch.y, batch.weight, rows).compact()
        if not batch.n_rows:
            return []
        region = model.region(batch)
        return [(self.tree.regions(region.Z), region)]


def gather(engine: Engine, model: Corrected, tree: Tree, seed: int) -> dict[int, Region]:
    """Rows of every region that has any, in one pass."""
    n_values = float(engine.n_rows or 1) * (len(model.map.gamma) + model.n_outputs + 2)
    work = Gather(tree, min(1.0, GATHERED_VALUES / n_values), seed)
    found = engine.reduce(work, list.__add__, state=model)
    if not found:
        return {}
    numbers = np.concatenate([numbers for numbers, _ in found])
    whole = Region.join([region for _, region in found])
    return {number: whole.take(rows) for number, rows in by_region(numbers)}


class ExpertValidator:
    """Held-out losses of expert hyperparameters on a few regions."""

    def __init__(self, model: Corrected, regions: dict[int, Region], m: int, seed: int) -> None:
        self.model, self.n_landmarks, self.seed = model, m, seed
        order = np.random.default_rng([seed, 1]).permutation(sorted(regions))
        large = [int(r) for r in order if regions[int(r)].n >= TRIAL_MIN_ROWS][:TRIAL_REGIONS]
        self.regions = [self._some(regions[r], r) for r in sorted(large)]
        self.rows: list[Region] = []  # held-out ones, the same for every choice

    def _some(self, region: Region, number: int) -> Region:
        rng = np.random.default_rng([self.seed, 1, number])
        return region.take(rng.permutation(region.n)[:TRIAL_ROWS])

    @property
    def omega(self) -> Array:
        """Weights of the held-out rows."""
        return np.concatenate([held.omega for held in self.rows])

    def baseline(self) -> Array:
        """Losses of the global model alone."""
        return self.model.baseline(self.rows)

    def losses(self, choice: Choice) -> Array:
        """Loss of every held-out row."""
        return self.model.losses(self.held(choice))

    def held(self, choice: Choice) -> list[Held]:
        """Held-out rows with experts of this choice."""
        found = []
        for number, region in enumerate(self.regions):
            rng = np.random.default_rng([self.seed, number])  # the same landmarks for every scale
            found.append(self.model.trial(region, self.n_landmarks, choice, rng))
        self.rows = [held.rows for held in found]
        return found


def choose_experts(
    validator: ExpertValidator, precision: float, required: bool, monitor: Monitor
) -> Choice | None:
    """Kernel width and precision with the smallest held-out loss; None for no experts.

    Starts from the best of a few widths. Then doubles or halves the width and quadruples or
    quarters the precision while the paired gain exceeds half its standard error. With ``required``
    there are experts in any case.
    """
    unit = typical_weight(np.concatenate([region.omega for region in validator.regions]))
    limits = (unit * LIMITS[0], unit * LIMITS[1])
    first = float(np.clip(unit * precision, *limits))
    tried: dict[Choice, Array] = {}
    for scale in START_SCALES:
        tried[Choice(first, scale)] = validator.losses(Choice(first, scale))
        if monitor.tick("expert trial", f"scale {scale:g}", lambda: None):
            break
    omega = validator.omega
    best = min(tried, key=lambda choice: float(omega @ tried[choice]))
    moves = [(1.0, SCALE_STEP), (1.0, 1 / SCALE_STEP), (PRECISION_STEP, 1.0),
             (1 / PRECISION_STEP, 1.0)]  # fmt: skip
    for _ in range(N_ROUNDS):
        before = best
        for precision_move, scale_move in moves:
            moved = float(np.clip(best.precision * precision_move, *limits))
            option = Choice(moved, best.scale * scale_move)
            if option in tried or monitor.over:
                continue
            tried[option] = validator.losses(option)
            monitor.tick("expert trial", f"scale {option.scale:g}", lambda: None)
            if is_significant(tried[best] - tried[option], omega):
                best = option
        if best is before:
            break
    return best if required or is_significant(validator.baseline() - tried[best], omega) else None


@dataclass(frozen=True)
class Solution:
    """One fitted expert."""

    number: int
    n_rows: int
    landmarks: Array
    whiten: Array
    weights: Array
    root: Array


@dataclass(frozen=True)
class ExpertState:
    """The experts fitted so far."""

    solutions: tuple[Solution, ...] = ()


@dataclass(frozen=True)
class ExpertFits(Inference):
    """Fits the experts of all regions, a few per step, by the engine's threads."""

    resumable: ClassVar[bool] = True

    model: Corrected
    regions: dict[int, Region]
    choice: Choice
    n_landmarks: int
    seed: int

    def init(self, model: Any = None, engine: Any = None) -> ExpertState:
        """No expert yet."""
        return ExpertState()

    def step(self, state: ExpertState, engine: Engine) -> tuple[ExpertState, Info]:
        """Fit the next experts. Each costs about four times rows x landmarks^2."""
        n_done = len(state.solutions)
        wanted = sorted(self.regions)[n_done : n_done + EXPERTS_PER_STEP]
        found = tuple(engine.each(lambda i: self._solve(wanted[i]), len(wanted)))
        state = ExpertState(state.solutions + found)
        return state, Info(converged=len(state.solutions) == len(self.regions))

    def _solve(self, number: int) -> Solution:
        region = self.regions[number]
        rng = np.random.default_rng([self.seed, 2, number])
        if region.n > MAX_REGION_ROWS:
            region = region.take(np.sort(rng.permutation(region.n)[:MAX_REGION_ROWS]))
        feature_map = expert_map(region.Z, self.choice.scale, self.n_landmarks, rng)[0]
        fitted = self.model.fit(region, feature_map, self.choice)
        single = [
            np.asarray(a, dtype=np.float32)
            for a in (feature_map.landmarks, feature_map.whiten, fitted.mean, fitted.roots[0])
        ]
        return Solution(number, region.n, *single)

    def posterior(self, state: ExpertState) -> Any:
        """The experts so far."""
        return state


@dataclass(frozen=True)
class Trial:
    """Result of the trial of experts: what they will be like, and their uncertainty."""

    tree: Tree
    choice: Choice | None
    uncertainty: Any = None


@dataclass(frozen=True)
class ExpertPlan:
    """How many experts are tried, from which prior precision on, and whether they are a must.

    The precision is that for a row of typical weight.
    """

    number: int
    precision: float
    required: bool
    seed: int


def fit_experts(
    engine: Engine, model: Corrected, sample: Matrix, plan: ExpertPlan, monitor: Monitor
) -> tuple[Experts, Any] | None:
    """Experts and what held-out rows say of the uncertainty; None where they do not pay.

    ``sample`` are random rows, from which the regions are made.
    """
    m = n_landmarks(plan.number)
    tree = monitor.stage("regions", lambda: grow_tree(model.scaled(sample), plan.number))
    regions = gather(engine, model, tree, plan.seed)

    def trial() -> Trial:
        validator = ExpertValidator(model, regions, m, plan.seed)
        if not validator.regions:
            return Trial(tree, None)
        choice = choose_experts(validator, plan.precision, plan.required, monitor)
        if choice is None:
            return Trial(tree, None)
        return Trial(tree, choice, model.calibrate(validator.held(choice)))

    tried = monitor.stage("expert trial", trial)
    if tried.choice is None:
        return None
    fits = ExpertFits(model, regions, tried.choice, m, plan.seed)
    n_steps = monitor.n_steps + len(regions)
    found = run(fits, fits.init(), engine, monitor, stage="experts", max_steps=n_steps)
    return _stacked(tree, found.state.solutions, model, tried.choice), tried.uncertainty


def _stacked(
    tree: Tree, solutions: tuple[Solution, ...], model: Corrected, choice: Choice
) -> Experts:
    """All experts; regions without a solution have none that adds anything."""
    n, m, d = tree.n_regions, n_landmarks(tree.n_regions), len(model.map.gamma)
    shapes = {"landmarks": (m, d), "whiten": (m, m), "weights": (m + 1, model.n_outputs),
              "root": (m + 1, m + 1)}  # fmt: skip
    parts = {name: np.zeros((n, *shape), np.float32) for name, shape in shapes.items()}
    counts = np.zeros(n, dtype=np.int64)
    for solution in solutions:
        counts[solution.number] = solution.n_rows
        for name, array in parts.items():
            array[solution.number] = getattr(solution, name)
    return Experts(
        model.map.centre, model.map.gamma, choice.scale, tree.directions, tree.cuts,
        parts["landmarks"], parts["whiten"], parts["weights"], parts["root"],
        counts, model.prior_variance(choice),
    )  # fmt: skip
