"""How a kernel machine is fitted by the evidence: the stages of a fit, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Array, Matrix, Posterior
from likelier.engines.rows import take_rows
from likelier.fitting.dataset import local_engine
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows
from likelier.fitting.run import run
from likelier.kernel_machine.budget import affordable_rows, affordable_size
from likelier.kernel_machine.data import SAMPLE_ROWS, Data
from likelier.kernel_machine.evidence import (
    EvidenceAscent,
    Scales,
    input_groups,
    relative_weights,
)
from likelier.kernel_machine.expert_fit import (
    MAX_INPUTS,
    ExpertPlan,
    fit_experts,
    global_rows,
    n_experts,
    power_of_two,
)
from likelier.kernel_machine.features import (
    IdentityMap,
    KernelMap,
    LandmarkMap,
    fourier_map,
    landmark_map,
)
from likelier.kernel_machine.search import Fold
from likelier.kernel_machine.task import Chosen, Problem, Task

MIN_COMPONENTS, MAX_COMPONENTS, ROWS_PER_COMPONENT = 512, 1536, 4
SEARCH_ROWS, SEARCH_COMPONENTS, N_FOLDS = 2500, 384, 3
MIN_ROWS_PER_SCALE = 10  # rows per scale above which folds share the scales of all rows
GLOBAL_SAMPLE = 1  # number of the random sample that the global model learns
GLOBAL_SHARE = 0.5  # of the time, where experts follow


@dataclass(frozen=True)
class Settings:
    """What a fit is asked for beside its targets; None stands for "auto".

    Attributes
    ----------
    features : {"nystroem", "fourier", "identity"}
    n_components : int, optional
    gamma : array, optional
        Inverse length scales in the units of the data.
    n_experts : int, optional
    """

    features: str = "nystroem"
    n_components: int | None = None
    gamma: Array | None = None
    n_experts: int | None = None
    automatic: bool = True  # precision, too


def fit(data: Data, task: Task, settings: Settings, monitor: Monitor) -> Posterior:
    """Scales on a sample, prior and width on held-out rows, weights on all rows, then experts."""
    held = data.held_out(task.strata(data.sample.y))
    inside = np.setdiff1d(np.arange(data.sample.n), held)
    scales = learn_scales(data, task, settings, inside, "scales", monitor)
    features = Features(data, settings, scales)
    chosen = monitor.stage("search", lambda: validate(features, task, held, monitor))
    tries = _tries_experts(data, task, settings)
    n_rows = min(data.n_rows, global_rows(data.engine.n_features)) if tries else data.n_rows
    make_map = features.final(chosen)
    size = monitor.stage("size", lambda: affordable_size(
        data.sample, task, make_map, _wanted(data, settings), n_rows, monitor,
        GLOBAL_SHARE if tries else 1.0,
    ))  # fmt: skip
    feature_map, landmarks = make_map(size.n_components)
    whole = Problem(data.engine, data.sample, data.unit, feature_map, landmarks, chosen)
    problem = whole if size.n_rows >= data.n_rows else _some_rows(whole, size.n_rows, data.seed)
    posterior = task.learn(problem, monitor)
    if not tries or not isinstance(feature_map, LandmarkMap):
        return posterior
    corrected = task.corrected(posterior, problem, learned=size.n_rows == data.n_rows)
    found = None
    if monitor.allows(size.row_seconds * data.n_rows):
        sample = problem.engine.sample(size.n_rows).X
        plan = _expert_plan(data, settings, chosen)
        found = fit_experts(data.engine, corrected, sample, plan, monitor)
    if found is not None:
        return task.with_experts(posterior, *found)
    if size.n_rows == data.n_rows or affordable_rows(size, data.n_rows, monitor) < data.n_rows:
        return posterior
    return task.learn(replace(whole, stage="weights of all"), monitor)


def learn_scales(
    data: Data, task: Task, settings: Settings, inside: Array, stage: str, monitor: Monitor
) -> Scales:
    """Length scales of standardised inputs, from some rows of the sample."""
    if settings.gamma is not None:  # given in the units of the data
        return Scales(settings.gamma * data.standard.spread(), 0.1, 1.0)
    Z, y = data.standardised, data.sample.y[inside]
    if settings.features == "identity":
        return Scales(np.full(Z.shape[1], max(1, Z.shape[1]) ** -0.5), 0.1, 1.0)
    weight = data.sample.weight
    omega = relative_weights(None if weight is None else weight[inside])
    groups = input_groups(Z.part(inside), task.columns(y))
    ascent = EvidenceAscent(task.columns, task.plan(data.sample.n), groups, data.dense)

    def ascend() -> Scales:
        engine = local_engine(Z.part(inside).X, y, omega, data.seed, 1, False)
        found: Scales = ascent.posterior(
            run(
                ascent, ascent.init(None, engine), engine, monitor, stage=stage,
                max_steps=monitor.n_steps + ascent.plan.n_steps,
            ).state
        )  # fmt: skip
        return found

    return monitor.stage(stage, ascend)


@dataclass(frozen=True)
class Features:
    """Feature maps of these scales, for validation fits and for the final one."""

    data: Data
    settings: Settings
    scales: Scales

    def make(self, landmarks: Matrix, centre: Array, gamma: Array, n: int, key: int) -> KernelMap:
        """A map of rows in the units of ``centre`` and ``gamma``."""
        if self.settings.features == "identity":
            return IdentityMap(centre, gamma)
        if self.settings.features == "fourier":
            return fourier_map(n, centre, gamma, self.data.rng(1, key))
        return landmark_map(landmarks, centre, gamma)

    def fold(self, inside: Array, outside: Array, key: int) -> Fold:
        """Rows to learn from and to validate on, standardised once if that keeps them dense."""
        Z, rows = self.data.standardised, self.data.sample
        X, centre, gamma = rows.X, self._centre(), self._gamma(1.0)
        if Z.standard is None:
            X, centre, gamma = Z.X, np.zeros(Z.shape[1]), self.scales.gamma
        whole = Rows(X, rows.y, rows.weight)
        landmarks = take_rows(X, inside[:SEARCH_COMPONENTS])

        def make_map(scale: float) -> KernelMap:
            return self.make(landmarks, centre, scale * gamma, SEARCH_COMPONENTS, key)

        return Fold(make_map, whole.take(inside), whole.take(outside))

    def final(self, chosen: Chosen) -> Any:
        """A function from a number of features to the map of rows in the units of the data."""
        sample = self.data.sample
        order = self.data.rng(2).permutation(sample.n)

        def make_map(n: int) -> tuple[KernelMap, Array]:
            rows = np.sort(order[:n])
            gamma = self._gamma(chosen.choice.scale)
            return self.make(take_rows(sample.X, rows), self._centre(), gamma, n, N_FOLDS), rows

        return make_map

    def _centre(self) -> Array:
        """Centre to subtract from rows in their own units.

        Distances do not depend on it. A linear function does: with uncentred columns its intercept
        would have to compensate against its prior.
        """
        if self.settings.features == "identity":
            return self.data.standard.mean
        return self.data.standard.centre(self.data.is_sparse)

    def _gamma(self, scale: float) -> Array:
        return scale * self.scales.gamma * self.data.standard.inverse


def validate(features: Features, task: Task, held: Array, monitor: Monitor) -> Chosen:
    """Prior precision, common scale and uncertainty, on one hold-out or three folds."""
    folds = list(_folds(features, task, held, monitor))
    if any(fold is None for fold in folds):
        folds = []
    move_scale = bool(len(held)) and features.settings.gamma is None
    found: Any = folds
    return task.choose(found, features.scales, features.data.unit, move_scale, monitor)


def _folds(features: Features, task: Task, held: Array, monitor: Monitor) -> Iterator[Fold | None]:
    """Training and validation rows; None where a fold has nothing to learn.

    Scales learned from all rows have seen the validation fold. With many rows per scale this is
    negligible, and the scales are shared; with few, validation would favour too weak a prior,
    so every fold learns its own scales.
    """
    data, settings = features.data, features.settings
    n, d = data.standardised.shape
    rng = data.rng(3)
    if len(held):
        inside = rng.permutation(np.setdiff1d(np.arange(n), held))[:SEARCH_ROWS]
        yield features.fold(inside, held, 0)
        return
    part = rng.permutation(n) % N_FOLDS
    own = n < MIN_ROWS_PER_SCALE * d and settings.gamma is None and settings.features != "identity"
    for number in range(N_FOLDS):
        inside, outside = np.flatnonzero(part != number), np.flatnonzero(part == number)
        if not len(outside) or len(np.unique(data.sample.y[inside])) < 2:
            yield None
            return
        fold_features = features
        if own:
            stage = f"scales of fold {number}"
            scales = learn_scales(data, task, settings, inside, stage, monitor)
            fold_features = replace(features, scales=scales)
        yield fold_features.fold(rng.permutation(inside), outside, number)


def _wanted(data: Data, settings: Settings) -> tuple[int, int]:
    """Number of features, and the least of them that a time budget leaves."""
    if settings.n_components is not None:
        return settings.n_components, settings.n_components
    share = data.n_rows // ROWS_PER_COMPONENT
    return int(np.clip(share, MIN_COMPONENTS, MAX_COMPONENTS)), MIN_COMPONENTS


def _some_rows(whole: Problem, n_rows: int, seed: int) -> Problem:
    """The same problem on a random sample of the rows."""
    batch = whole.engine.sample(n_rows, GLOBAL_SAMPLE)
    some = Rows(batch.X, np.asarray(batch.y), batch.weight)
    engine = local_engine(some.X, some.y, some.weight, seed, whole.engine.n_jobs, False)
    few = some.take(np.arange(min(n_rows, SAMPLE_ROWS)))
    return replace(whole, engine=engine, sample=few, landmarks=np.empty(0, dtype=np.intp))


def _tries_experts(data: Data, task: Task, settings: Settings) -> bool:
    """Whether to try experts; by default for many rows and automatic hyperparameters."""
    possible = task.allows_experts and settings.features == "nystroem"
    if not possible or data.engine.n_features > MAX_INPUTS:
        return False
    if settings.n_experts is not None:
        return settings.n_experts > 1
    automatic = settings.automatic and settings.gamma is None and settings.n_components is None
    return automatic and data.n_rows > task.min_expert_rows


def _expert_plan(data: Data, settings: Settings, chosen: Chosen) -> ExpertPlan:
    required = settings.n_experts is not None
    number = n_experts(data.n_rows, data.engine.n_features)
    if settings.n_experts is not None:
        number = power_of_two(settings.n_experts)
    return ExpertPlan(number, chosen.choice.precision / data.unit, required, data.seed)
