"""Local experts of a kernel regression, in closed form.

Experts learn the residual of the global model and are added to the same model. Its in-sample
residuals are too small, so noise estimates use leave-one-out residuals of both the global model and
the expert.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine
from likelier.fitting.dataset import local_engine
from likelier.fitting.rows import Rows
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.cost_model import (
    TIME_FRACTION,
    TIMED_ROWS,
    affordable_rows,
    sums_cost,
    timed,
    weights_cost,
)
from likelier.kernel_machine.expert_fit import N_TRIAL, ExpertFit, GlobalModel, n_landmarks
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.expert_rows import take
from likelier.kernel_machine.expert_stream import ExpertStream
from likelier.kernel_machine.experts import Region
from likelier.kernel_machine.features import KernelMap, LandmarkMap
from likelier.kernel_machine.laplace import WeightPosterior
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.recipe import FIT_BLOCK_ROWS
from likelier.kernel_machine.regression import EpsilonLoss, Weights, leave_out
from likelier.kernel_machine.regression_experts import (
    NoiseModel,
    RegressionExpertValidator,
    absorb_regression_rows,
    expert_noise,
    fit_regression_expert,
)
from likelier.kernel_machine.search import Choice

MIN_EXPERT_ROWS = 8192  # closed forms are cheap, and this fills the validation regions
NOISE_ROWS, NOISE_SAMPLE = 16_384, 2  # rows for the noise estimate, and index of that sample


@dataclass(frozen=True)
class GlobalRegression(GlobalModel):
    """Global model of a regression.

    Attributes
    ----------
    weights : Weights
    noise : float
        Noise variance of this model alone.
    row : float
        Weight that counts as one row.
    n_learned : int
        Number of (leading) rows of the engine that it has learned.
    """

    weights: Weights
    noise: float
    row: float
    n_learned: int

    @property
    def n_outputs(self) -> int:
        """The target itself."""
        return 1

    def region(self, batch: Batch) -> Region:
        """Rows with means of the global model."""
        y = np.asarray(batch.y, dtype=np.float64)
        if y.ndim == 2 or self.n_learned:
            return self.with_variances(batch)
        mean = self.map.scores(batch.X, self.weights.mean[:, None], np.float64)
        return Region(self.scaled(batch.X), y, self._omega(batch), mean)

    def with_variances(self, batch: Batch) -> Region:
        """Rows with means and variances."""
        y = np.asarray(batch.y, dtype=np.float64)
        loo_columns = y if y.ndim == 2 else self.loo_columns(batch)
        region = Region(
            self.scaled(batch.X), loo_columns[:, 0], self._omega(batch), loo_columns[:, 1:2]
        )
        return replace(region, variance=loo_columns[:, 2:])

    def loo_columns(self, batch: Batch) -> Array:
        """Columns ``(n, 5)``: target, mean, two leave-one-out variances and the residual ratio.

        The last column is the ratio of the in-sample to the leave-one-out residual.
        """
        y, n = np.asarray(batch.y, dtype=np.float64), batch.n_rows
        Phi = self.map(batch.X, np.float64)
        weight = self._omega(batch)
        omega = np.ones(n) if weight is None else weight
        learned = batch.start + np.arange(n) < self.n_learned
        omega = np.where(learned, omega, 0.0)
        _, inside = leave_out(self.weights, Phi, y, omega)
        outside = self.map.residual(Phi) / self.weights.ratio
        keep = 1.0 / (1.0 + omega * inside)
        return np.stack([y, Phi @ self.weights.mean, inside, outside, keep], axis=1)

    def _omega(self, batch: Batch) -> Array | None:
        return None if batch.weight is None else batch.weight / self.row

    def validator(
        self, regions: list[Batch], n_landmarks: int, seed: int
    ) -> RegressionExpertValidator:
        """Leave-one-out validator."""
        return RegressionExpertValidator(
            [self.with_variances(rows) for rows in regions], self.noise, n_landmarks, seed
        )

    def uncertainty(self, validator: RegressionExpertValidator, choice: Choice) -> NoiseModel:
        """Noise model."""
        return validator.noise_model(choice)

    def prior_variance(self, choice: Choice) -> float:
        """In units of the noise variance."""
        return 1.0 / choice.precision

    def choice(self, experts: Experts) -> Choice:
        """Ratio of noise to amplitude, and scale."""
        return Choice(1.0 / experts.prior_variance, experts.scale)

    def fit(
        self, region: Region, feature_map: LandmarkMap, choice: Choice, tol: float
    ) -> WeightPosterior:
        """Closed form."""
        return fit_regression_expert(region, feature_map, choice)

    def absorb(
        self, region: Region, feature_map: LandmarkMap, before: WeightPosterior, tol: float
    ) -> WeightPosterior:
        """Closed form; independent of how the rows are split into parts."""
        return absorb_regression_rows(region, feature_map, before)


class RegressionExperts(ExpertStream):
    """Experts of a regression."""

    _expert_loss = "gaussian"

    target_mean_: float
    target_scale_: float
    ratio_: Array
    noise_: Array
    global_noise_: Array
    global_scale_: Array
    row_weight_: float

    def _min_expert_rows(self) -> int:
        return MIN_EXPERT_ROWS

    def _targets(self, y: Array) -> Array:
        return (y - self.target_mean_) / self.target_scale_

    def _target_encoding(self) -> Array:
        return np.array([self.target_mean_, self.target_scale_])

    def _affordable_rows(
        self,
        prepared: Prepared,
        feature_map: KernelMap,
        n_rows: int,
        budget: TimeBudget,
        fraction: float = TIME_FRACTION,
    ) -> int:
        """Number of rows for the sums; all without a time budget."""
        if budget.left is None:
            return n_rows
        row_cost = self._row_seconds(feature_map, prepared.sample) if budget.left else np.inf
        n_sample = prepared.sample.n
        if self.loss != "gaussian":
            return affordable_rows(budget, n_rows, row_cost, fraction)
        # rows of the sample are used twice, also for the noise
        most = affordable_rows(budget, n_rows + min(n_rows, n_sample), 0.5 * row_cost, fraction)
        if most >= n_rows + min(n_rows, n_sample):
            return n_rows
        return max(most - n_sample, most // 2)

    def _row_seconds(self, feature_map: KernelMap, sample: Rows) -> float:
        """Cost of a row that is learned and then left out."""
        if self.loss == "gaussian":
            return 2.0 * sums_cost(feature_map, sample)
        return weights_cost(feature_map, sample, EpsilonLoss(float(self.epsilon)))  # type: ignore[arg-type]

    def _trial_seconds(
        self, feature_map: KernelMap, sample: Rows, n_experts: int, n_learned: int
    ) -> float:
        """Cost of the expert trial, including the leave-one-out pass of the global model."""
        rows = n_learned or N_TRIAL
        size = (n_landmarks(n_experts) / feature_map.n_features) ** 2
        return (rows + 2.0 * N_TRIAL * size) * sums_cost(feature_map, sample)

    def _expert_stage(
        self, engine: Engine, global_model: GlobalModel, seed: int, budget: TimeBudget
    ) -> ExpertFit:
        """Precompute the global model's outputs for rows in memory, if they are expensive."""
        assert isinstance(global_model, GlobalRegression)
        if engine.in_memory and global_model.n_learned:
            loo_columns = np.concatenate(list(engine.map_blocks(global_model.loo_columns)))
            whole = engine.draw(1)  # a batch whose X holds all rows
            engine = local_engine(
                whole.X, loo_columns, whole.weight, seed, self.n_jobs, True, FIT_BLOCK_ROWS
            )
        return super()._expert_stage(engine, global_model, seed, budget)

    def _global_model(self, part: Any, n_learned: int) -> GlobalRegression:
        return GlobalRegression(part.map, part.weights, part.global_noise, part.row, n_learned)

    def _fitted_global_model(self, n_learned: int = 0) -> GlobalRegression:
        weights = Weights(self.weights_[0], self.roots_[0], float(self.ratio_[0]))
        noise, row = float(self.global_noise_[0]), float(self.row_weight_)
        return GlobalRegression(self._landmarks(), weights, noise, row, n_learned)

    def _with_uncertainty(self, part: Any, uncertainty: NoiseModel) -> Any:
        scale = uncertainty.global_scale
        return replace(part, noise=uncertainty.noise, shape=uncertainty.shape, global_scale=scale)

    def _final_uncertainty(
        self, stage: ExpertFit, uncertainty: NoiseModel | None, sample: Rows | None
    ) -> NoiseModel | None:
        """Noise model from rows of all regions."""
        global_model, experts = stage.global_model, stage.experts
        assert isinstance(global_model, GlobalRegression) and experts is not None
        if stage.engine.in_memory:
            batch = stage.engine.sample(NOISE_ROWS, NOISE_SAMPLE)
        else:
            assert sample is not None
            some = sample.take(np.arange(min(sample.n, NOISE_ROWS)))
            batch = Batch(some.X, some.y, some.weight)
        return self._noise_in_time(stage, batch, uncertainty)

    @staticmethod
    def _noise_in_time(
        stage: ExpertFit, batch: Batch, uncertainty: NoiseModel | None
    ) -> NoiseModel | None:
        """Noise model from as many rows as time allows, else the previous one."""
        global_model, experts, budget = stage.global_model, stage.experts, stage.budget
        assert isinstance(global_model, GlobalRegression) and experts is not None

        def noise_model(some: Batch) -> NoiseModel | None:
            return expert_noise(experts, global_model.with_variances(some), global_model.noise)

        if budget.left is not None:
            if budget.over:
                return uncertainty
            few = take(batch, np.arange(min(TIMED_ROWS, batch.n_rows)))
            row_cost = timed(lambda: noise_model(few))[0] / few.n_rows
            n_rows = affordable_rows(budget, batch.n_rows, row_cost)
            batch = take(batch, np.arange(n_rows)) if n_rows < batch.n_rows else batch
        return noise_model(batch) or uncertainty

    def _set_uncertainty(self, uncertainty: NoiseModel | None) -> None:
        if uncertainty is None:
            return
        self.noise_ = np.sqrt([uncertainty.noise]) * self.target_scale_
        self.global_scale_ = np.array([uncertainty.global_scale])
        self._store_shapes([uncertainty.shape])
