"""How a kernel regression gets local experts: as a classifier does, with closed forms.

Experts learn what the common machine leaves over, and they are added to that very machine. Of its
own rows it leaves over too little, so whoever asks about the noise leaves each row out for itself:
from both, the machine and the expert.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine
from likelier.engines import LocalEngine
from likelier.fitting.rows import Rows
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.expert_fit import N_TRIAL, CommonMachine, ExpertFit, n_landmarks
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.expert_rows import take
from likelier.kernel_machine.expert_stream import ExpertStream
from likelier.kernel_machine.experts import Region
from likelier.kernel_machine.features import KernelMap, LandmarkMap
from likelier.kernel_machine.laplace import HeadPosterior
from likelier.kernel_machine.number_experts import (
    NoiseLaw,
    NumberJudge,
    absorb_numbers,
    experts_law,
    fit_number_expert,
)
from likelier.kernel_machine.pace import (
    SHARE,
    TIMED_ROWS,
    affordable_rows,
    head_pace,
    sums_pace,
    timed,
)
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.recipe import HEAD_BLOCK
from likelier.kernel_machine.regression import EpsilonLoss, Weights, leave_out
from likelier.kernel_machine.search import Choice

EXPERTS_FROM = 8192  # rows: closed forms are cheap, and as many regions as are judged have enough
NOISE_ROWS, NOISE_SAMPLE = 16_384, 2  # rows the noise is learned from, number of that sample


@dataclass(frozen=True)
class NumberCommon(CommonMachine):
    """The common machine of a regression.

    Attributes
    ----------
    weights : Weights
    noise : float
        Variance of the noise of this machine alone.
    row : float
        Weight that counts as one row.
    n_learned : int
        How many rows of the engine it has learned, the first ones.
    """

    weights: Weights
    noise: float
    row: float
    n_learned: int

    @property
    def n_outputs(self) -> int:
        """The number itself."""
        return 1

    def region(self, batch: Batch) -> Region:
        """Rows with means of the common machine."""
        y = np.asarray(batch.y, dtype=np.float64)
        if y.ndim == 2 or self.n_learned:
            return self.whole(batch)
        mean = self.map.scores(batch.X, self.weights.mean[:, None], np.float64)
        return Region(self.scaled(batch.X), y, self._omega(batch), mean)

    def whole(self, batch: Batch) -> Region:
        """Rows with means and variances."""
        y = np.asarray(batch.y, dtype=np.float64)
        told = y if y.ndim == 2 else self.told(batch)
        region = Region(self.scaled(batch.X), told[:, 0], self._omega(batch), told[:, 1:2])
        return replace(region, variance=told[:, 2:])

    def told(self, batch: Batch) -> Array:
        """Targets, means, and as if the row were not learned two variances, ``(n, 5)``.

        The last column is the share of a residual that learning the row has left of it.
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

    def judge(self, regions: list[Batch], n_landmarks: int, seed: int) -> NumberJudge:
        """Rows are left out one by one."""
        return NumberJudge([self.whole(rows) for rows in regions], self.noise, n_landmarks, seed)

    def verdict(self, judge: NumberJudge, choice: Choice) -> NoiseLaw:
        """The noise."""
        return judge.law(choice)

    def prior_variance(self, choice: Choice) -> float:
        """In units of the noise."""
        return 1.0 / choice.precision

    def choice(self, experts: Experts) -> Choice:
        """Ratio of noise to amplitude, and scale."""
        return Choice(1.0 / experts.prior_variance, experts.scale)

    def fit(self, region: Region, made: LandmarkMap, choice: Choice, tol: float) -> HeadPosterior:
        """A closed form."""
        return fit_number_expert(region, made, choice)

    def absorb(
        self, region: Region, made: LandmarkMap, before: HeadPosterior, tol: float
    ) -> HeadPosterior:
        """A closed form, the same in whatever parts the rows come."""
        return absorb_numbers(region, made, before)


class NumberExperts(ExpertStream):
    """Experts of a regression."""

    _expert_loss = "gaussian"

    target_mean_: float
    target_spread_: float
    ratio_: Array
    noise_: Array
    common_noise_: Array
    common_scale_: Array
    row_weight_: float

    def _experts_from(self) -> int:
        return EXPERTS_FROM

    def _targets(self, y: Array) -> Array:
        return (y - self.target_mean_) / self.target_spread_

    def _target_units(self) -> Array:
        return np.array([self.target_mean_, self.target_spread_])

    def _rows_in_time(
        self,
        prepared: Prepared,
        made: KernelMap,
        n_rows: int,
        budget: TimeBudget,
        share: float = SHARE,
    ) -> int:
        """How many rows the sums can be made of; all where there is no time budget."""
        if budget.left is None:
            return n_rows
        pace = self._row_seconds(made, prepared.sample) if budget.left else np.inf
        n_sample = prepared.sample.n
        if self.loss != "gaussian":
            return affordable_rows(budget, n_rows, pace, share)
        # rows of the sample pass twice: the noise is learned from them
        most = affordable_rows(budget, n_rows + min(n_rows, n_sample), 0.5 * pace, share)
        if most >= n_rows + min(n_rows, n_sample):
            return n_rows
        return max(most - n_sample, most // 2)

    def _row_seconds(self, made: KernelMap, sample: Rows) -> float:
        """Of a row that is learned and left out again."""
        if self.loss == "gaussian":
            return 2.0 * sums_pace(made, sample)
        return head_pace(made, sample, EpsilonLoss(float(self.epsilon)))  # type: ignore[arg-type]

    def _trial_seconds(
        self, made: KernelMap, sample: Rows, n_experts: int, n_learned: int
    ) -> float:
        """Rows are left out of the common machine first, all of them where it has learned them."""
        rows = n_learned or N_TRIAL
        size = (n_landmarks(n_experts) / made.n_features) ** 2
        return (rows + 2.0 * N_TRIAL * size) * sums_pace(made, sample)

    def _expert_stage(
        self, engine: Engine, common: CommonMachine, seed: int, budget: TimeBudget
    ) -> ExpertFit:
        """What the common machine says of rows in memory is found once, where it is not cheap."""
        assert isinstance(common, NumberCommon)
        if engine.in_memory and common.n_learned:
            told = np.concatenate(list(engine.map_blocks(common.told)))
            whole = engine.draw(1)  # shares all rows
            engine = LocalEngine(
                whole.X, told, whole.weight, seed=seed, n_jobs=self.n_jobs, block_rows=HEAD_BLOCK
            )
        return super()._expert_stage(engine, common, seed, budget)

    def _common(self, part: Any, n_learned: int) -> NumberCommon:
        return NumberCommon(part.map, part.weights, part.common_noise, part.row, n_learned)

    def _common_now(self, n_learned: int = 0) -> NumberCommon:
        weights = Weights(self.weights_[0], self.roots_[0], float(self.ratio_[0]))
        noise, row = float(self.common_noise_[0]), float(self.row_weight_)
        return NumberCommon(self._landmarks(), weights, noise, row, n_learned)

    def _with_verdict(self, part: Any, verdict: NoiseLaw) -> Any:
        scale = verdict.common_scale
        return replace(part, noise=verdict.noise, shape=verdict.shape, common_scale=scale)

    def _last_verdict(
        self, stage: ExpertFit, verdict: NoiseLaw | None, sample: Rows | None
    ) -> NoiseLaw | None:
        """The noise by rows of all regions."""
        common, experts = stage.common, stage.experts
        assert isinstance(common, NumberCommon) and experts is not None
        if stage.engine.in_memory:
            batch = stage.engine.sample(NOISE_ROWS, NOISE_SAMPLE)
        else:
            assert sample is not None
            some = sample.take(np.arange(min(sample.n, NOISE_ROWS)))
            batch = Batch(some.X, some.y, some.weight)
        return self._law_in_time(stage, batch, verdict)

    @staticmethod
    def _law_in_time(stage: ExpertFit, batch: Batch, verdict: NoiseLaw | None) -> NoiseLaw | None:
        """The noise by these rows, by as many of them as time allows, or as it was known before."""
        common, experts, budget = stage.common, stage.experts, stage.budget
        assert isinstance(common, NumberCommon) and experts is not None

        def law(some: Batch) -> NoiseLaw | None:
            return experts_law(experts, common.whole(some), common.noise)

        if budget.left is not None:
            if budget.over:
                return verdict
            few = take(batch, np.arange(min(TIMED_ROWS, batch.n_rows)))
            pace = timed(lambda: law(few))[0] / few.n_rows
            n_rows = affordable_rows(budget, batch.n_rows, pace)
            batch = take(batch, np.arange(n_rows)) if n_rows < batch.n_rows else batch
        return law(batch) or verdict

    def _trust(self, verdict: NoiseLaw | None) -> None:
        if verdict is None:
            return
        self.noise_ = np.sqrt([verdict.noise]) * self.target_spread_
        self.common_scale_ = np.array([verdict.common_scale])
        self._store_shapes([verdict.shape])
