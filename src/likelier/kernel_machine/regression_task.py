"""Continuous targets: weights in closed form, and the noise from leave-one-out residuals."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from likelier.base import Array, Loss
from likelier.engines.rows import slice_rows
from likelier.fitting.dataset import local_engine
from likelier.fitting.duplicates import settle_few, settle_many
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows
from likelier.kernel_machine.batches import State, absorb_numbers, regression_state
from likelier.kernel_machine.evidence import Plan, Scales
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.expert_noise import NoiseModel
from likelier.kernel_machine.extrapolation import target_std
from likelier.kernel_machine.features import BLOCK_ROWS, KernelMap, LandmarkMap
from likelier.kernel_machine.noise import GAUSSIAN_SHAPE, MIN_NOISE, noise_shape
from likelier.kernel_machine.regression import (
    RATIO_RANGE,
    EpsilonLoss,
    RegressionValidator,
    Sums,
    left_out,
    point_weights,
    regression_sums,
    solve_weights,
    sums_of_rows,
)
from likelier.kernel_machine.regression_experts import CorrectedNumbers
from likelier.kernel_machine.regression_posterior import RegressionPosterior, Weights
from likelier.kernel_machine.search import Choice, Fold, Search, search
from likelier.kernel_machine.task import Chosen, Problem, Task
from likelier.kernel_machine.weights import (
    FeatureRows,
    Prior,
    WeightProblem,
    WeightSolver,
    ridge,
    solve,
)
from likelier.losses import EpsilonInsensitive, SquaredError

MIN_NOISE_ROWS = 300  # non-landmark rows that suffice for the noise estimate
N_ROUNDS = 5  # the closed form is cheap, and the noise may be far below the evidence's floor
MIN_ROWS = 6  # to validate on
N_PASSES = 8  # typical of an optimisation


@dataclass(frozen=True)
class RegressionTask(Task):
    """A regression's side of a fit.

    Parameters
    ----------
    mean, scale : float
        Of the targets, which are standardised by them.
    loss : EpsilonLoss, optional
        None for Gaussian noise.
    alpha : float, optional
        Ratio of noise to amplitude; None to choose it.
    temperature, tol : float
    max_iter : int
    """

    min_expert_rows: ClassVar[int] = 8192  # closed forms are cheap; this fills the trial regions

    mean: float
    scale: float
    loss: EpsilonLoss | None = None
    alpha: float | None = None
    temperature: float = 1.0
    tol: float = 1e-4
    max_iter: int = 100
    n_classes: int = 0

    @property
    def particle_loss(self) -> Loss:
        return SquaredError() if self.loss is None else EpsilonInsensitive(self.loss.epsilon)

    def merged(self, rows: Rows) -> Rows:
        """Also among many rows: leave-one-out residuals would be predicted from duplicates."""
        few = settle_few(rows)
        return settle_many(rows) if few is rows else few

    def strata(self, y: Array) -> Array:
        return np.zeros(len(y))

    def columns(self, y: Array) -> Array:
        return y[:, None]

    def plan(self, n_rows: int) -> Plan:
        return Plan()

    # -- hyperparameters ----------------------------------------------------------------
    def choose(
        self, folds: list[Fold], scales: Scales, unit: float, move_scale: bool, monitor: Monitor
    ) -> Chosen:
        """Ratio and scale on held-out rows, and the noise there."""
        ratio = unit * float(np.clip(scales.noise / scales.amplitude, *RATIO_RANGE))
        # applied before the temperature, which the search would undo
        choice = Choice(ratio if self.alpha is None else self.alpha)
        if sum(fold.held.n for fold in folds) < MIN_ROWS:
            return Chosen(choice, scales.noise)
        validator = RegressionValidator(folds, self.loss, self._row(unit) / self.temperature)
        limits = (unit * RATIO_RANGE[0], unit * RATIO_RANGE[1])
        options = Search(self.alpha is None, move_scale and len(folds) == 1, N_ROUNDS, limits)
        choice = search(validator, choice, options, monitor)
        if self.loss is None:
            return Chosen(choice, scales.noise)
        tempered = replace(choice, precision=self.temperature * choice.precision)
        rest, _ = validator.residuals(tempered)
        return Chosen(choice, float(validator.omega @ rest**2 / validator.omega.sum()))

    # -- weights ------------------------------------------------------------------------
    def learn(self, problem: Problem, monitor: Monitor) -> RegressionPosterior:
        sample = problem.sample
        std = target_std(sample.y, sample.weight)
        if self.loss is None:
            return self._closed_form(problem, std, monitor)
        ratio = self.temperature * problem.chosen.choice.precision
        noise = self._min_noise(sample)
        if np.ptp(sample.y) > 0.0:
            noise = max(float(problem.chosen.uncertainty), noise)
        features = problem.engine.map_rows(FeatureRows(problem.map))
        D = problem.map.n_features
        rows = WeightProblem(problem.engine, features, self.loss, Prior(ridge(D, ratio)))
        solver = WeightSolver(rows, self.tol)
        fit = solve(solver, np.zeros((D, 1)), self.max_iter, problem.stage, monitor)
        weights = point_weights(fit.W, ratio)
        return RegressionPosterior(
            problem.map, weights, noise, GAUSSIAN_SHAPE, std, 0.0, None, noise, 1.0,
            self.mean, self.scale, temperature=self.temperature,
        )  # fmt: skip

    def _closed_form(self, problem: Problem, std: float, monitor: Monitor) -> RegressionPosterior:
        engine, sample, row = problem.engine, problem.sample, self._row(problem.unit)
        sums = monitor.stage(
            f"sums of {problem.stage}",
            lambda: engine.reduce(sums_of_rows, Sums.__add__, state=problem.map),
        )
        ratio = problem.chosen.choice.precision * self.temperature / row
        weights = solve_weights(sums.scaled(1.0 / row), ratio)
        name = f"residuals of {problem.stage}"
        rest = monitor.stage(name, lambda: self._left_out(problem, weights, row))
        omega = (np.ones(sample.n) if sample.weight is None else sample.weight) / row
        others = np.setdiff1d(np.arange(sample.n), problem.landmarks)
        if len(others) >= MIN_NOISE_ROWS:  # like new rows, these are not landmarks
            rest, omega = rest[others], omega[others]
        noise = max(float(np.average(rest**2, weights=omega)), self._min_noise(sample))
        shape = noise_shape(rest / np.sqrt(noise), omega)
        noise *= shape.variance
        return RegressionPosterior(
            problem.map, weights, noise, shape, std, 0.0, None, noise, 1.0, self.mean, self.scale,
            row, self.temperature,
        )  # fmt: skip

    def _row(self, unit: float) -> float:
        """Weight that counts as one row.

        Weights that sum to one are relative and carry no information about the sample size. With a
        given ``alpha`` they are taken at face value. At temperature T a row counts as 1/T of a row:
        for the mean, its covariance and the noise.
        """
        return self.temperature * (min(unit, 1.0) if self.alpha is None else 1.0)

    @staticmethod
    def _left_out(problem: Problem, weights: Weights, row: float) -> Array:
        """Leave-one-out residuals of the sample."""
        sample, parts = problem.sample, []
        omega = (np.ones(sample.n) if sample.weight is None else sample.weight) / row
        for start in range(0, sample.n, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, sample.n)
            Phi = problem.map(slice_rows(sample.X, start, stop), np.float64)
            y, residual = sample.y[start:stop], problem.map.residual(Phi)
            parts.append(left_out(weights, Phi, y, omega[start:stop], residual))
        return np.concatenate(parts)

    def _min_noise(self, sample: Rows) -> float:
        """Lower bound of the noise; a single constant target uses its own size."""
        n_rows = sample.n if sample.weight is None else max(sample.n, float(sample.weight.sum()))
        if n_rows < 2.0 and not sample.y.any():  # constant target, which is not rescaled
            return max(self.mean**2, 1.0)
        return MIN_NOISE

    def row_seconds(self, feature_map: KernelMap, rows: Rows) -> float:
        if self.loss is None:
            begin = time.perf_counter()
            Phi = feature_map(rows.X, np.float64)
            regression_sums(Phi, rows.y, rows.weight)
            return 2.0 * (time.perf_counter() - begin) / rows.n  # learned, then left out
        engine = local_engine(rows.X, rows.y, rows.weight, 0, 1, False)
        begin = time.perf_counter()
        features = engine.map_rows(FeatureRows(feature_map))
        D = feature_map.n_features
        problem = WeightProblem(engine, features, self.loss, Prior(ridge(D, 1.0)))
        problem.gram(np.zeros((D, 1)))
        return N_PASSES * (time.perf_counter() - begin) / rows.n

    # -- local experts ------------------------------------------------------------------
    @property
    def allows_experts(self) -> bool:
        return self.loss is None and self.temperature == 1.0

    def corrected(
        self, posterior: RegressionPosterior, problem: Problem, learned: bool
    ) -> CorrectedNumbers:
        assert isinstance(posterior.map, LandmarkMap)
        noise = posterior.global_noise
        return CorrectedNumbers(posterior.map, posterior.weights, noise, posterior.row, learned)

    def with_experts(
        self, posterior: RegressionPosterior, experts: Experts, uncertainty: NoiseModel
    ) -> RegressionPosterior:
        return replace(
            posterior, experts=experts, noise=uncertainty.noise, shape=uncertainty.shape,
            global_scale=uncertainty.global_scale,
        )  # fmt: skip

    # -- further rows -------------------------------------------------------------------
    def continued(self, posterior: RegressionPosterior) -> State:
        return regression_state(posterior)

    def absorb(
        self, posterior: RegressionPosterior, state: State, rows: Rows
    ) -> tuple[RegressionPosterior, State]:
        return absorb_numbers(posterior, state, rows)
