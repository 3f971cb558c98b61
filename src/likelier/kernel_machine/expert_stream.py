"""Local experts of both kernel estimators: in one fit, resumed, and batch by batch.

A fit learns a global model first, then experts for its residual. In `partial_fit` the total
number of rows is unknown: as long as they fit into bounded memory all rows are buffered, and the
experts are refitted, with more of them, whenever the rows have doubled, so each row is learned
about twice. After that the buffer is released, regions are fixed, and rows wait until there are
enough of them to update an expert. The global model learns until there are experts; then it is
fixed, except for batches with classes that the experts do not know.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import closing
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Matrix
from likelier.engines.rows import stack_rows
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import is_stream, local_engine
from likelier.fitting.parameters import check_number_or_auto
from likelier.fitting.rows import Rows
from likelier.fitting.time_budget import OutOfTime, TimeBudget
from likelier.kernel_machine.cost_model import TIME_FRACTION
from likelier.kernel_machine.expert_fit import (
    GLOBAL_SAMPLE,
    MAX_INPUTS,
    MIN_EXPERT_ROWS,
    ExpertFit,
    GlobalModel,
    global_rows,
    n_experts,
    power_of_two,
)
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.expert_rows import RegionBuffers
from likelier.kernel_machine.features import LandmarkMap, restore_map
from likelier.kernel_machine.passes import StreamPasses
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.recipe import FIT_BLOCK_ROWS
from likelier.kernel_machine.resume import check_same_parameters, parameters_of, same_encoding
from likelier.kernel_machine.search import Choice

BUFFERED_VALUES = 1 << 25  # values in the buffered rows
WAIT_ROWS = 128
GLOBAL_TIME_FRACTION = 0.5  # fraction of a time budget for the global model
GROWTH = 2.0


class ExpertStream(StreamPasses):
    """Experts of a classifier and of a regressor alike.

    Subclasses define ``_targets`` and ``_target_encoding`` (encoding of the targets),
    ``_global_model`` and ``_fitted_global_model`` (global model of a particle and of the fitted
    estimator), and ``_with_uncertainty`` and ``_set_uncertainty`` (store the posterior scale or
    noise model).
    """

    experts_: list[dict[str, Any]]
    weights_: list[Array]
    roots_: list[Array]
    checkpoint_: dict[str, Any]
    _expert_loss: str

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        check_number_or_auto("n_experts", self.n_experts, 0, integer=True)
        if self.n_experts not in ("auto", 0, 1) and not self._experts_allowed():
            raise ValueError(
                f'n_experts above one needs loss="{self._expert_loss}", inference="evidence", '
                'features="auto" or "nystroem", and temperature=1; use "auto" or 0 otherwise'
            )

    def _experts_allowed(self) -> bool:
        """Whether the other parameters are compatible with experts."""
        features = self.features in ("auto", "nystroem") and self.inference == "evidence"
        return bool(features and self.loss == self._expert_loss and float(self.temperature) == 1.0)

    def _tries_experts(self, n_rows: int, feature_map: Any) -> bool:
        """Whether to try experts; by default for many rows and automatic hyperparameters."""
        wide = self.n_features_in_ > MAX_INPUTS
        if wide or not (self._experts_allowed() and isinstance(feature_map, LandmarkMap)):
            return False
        if self.n_experts != "auto":
            return bool(self.n_experts > 1)
        hyperparameters = (self.gamma, self.alpha, self.n_components)
        return n_rows > self._min_expert_rows() and all(
            isinstance(value, str) for value in hyperparameters
        )

    def _min_expert_rows(self) -> int:
        return MIN_EXPERT_ROWS

    def _experts_required(self) -> bool:
        return bool(self.n_experts != "auto")

    def _n_experts(self, n_rows: int) -> int:
        if self._experts_required():
            return power_of_two(int(self.n_experts))
        return n_experts(n_rows, self.n_features_in_)

    def _expert_stage(
        self, engine: Engine, global_model: GlobalModel, seed: int, budget: TimeBudget
    ) -> ExpertFit:
        n_rows = int(engine.n_rows or 0)
        number = self._n_experts(n_rows)
        return ExpertFit(
            engine, global_model, n_rows, number, seed, float(self.tol), self.n_jobs, budget
        )

    # -- in one fit ---------------------------------------------------------------------
    def _learn_with_experts(
        self,
        engine: Engine,
        prepared: Prepared,
        part: Any,
        n_rows: int,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> Any:
        """Global model from a subsample, then experts for its residual on all rows."""
        n_few = min(global_rows(self.n_features_in_), n_rows)
        fraction, trial = self._split_time(prepared, part.map, n_few, n_rows, budget)
        n_few = min(n_few, self._affordable_rows(prepared, part.map, n_few, budget, fraction))
        few, batch = self._subsample(engine, n_few, n_rows)
        start, part = part, self._learn_weights(few, prepared, part, n_few, budget)
        if self._n_particles() == 1:
            # the model can predict now, and experts are checkpointed one by one
            budget.thorough = False
        truncated = budget.cut  # then a resumed fit starts before the experts
        seed, n_learned = int(rng.integers(2**31)), n_rows if n_few == n_rows else 0
        plan: dict[str, Any] = {"seed": seed, "n_rows": n_rows, "n_learned": n_learned}
        plan |= {
            "expert_parameters": parameters_of(self),
            "sample_seed": budget.seed,
            "stream": not engine.in_memory,
        }
        part = replace(part, checkpoint={} if truncated else plan)
        if not budget.allows(trial):
            return part
        try:
            stage = self._expert_stage(engine, self._global_model(part, n_learned), seed, budget)
            chosen = stage.choose(batch.X, part.choice.precision, self._experts_required())
            if chosen is None and budget.over:
                return part if truncated else replace(part, checkpoint=plan | _trial(budget))
            if chosen is not None:
                choice, uncertainty = chosen
                plan = plan | {"precision": choice.precision, "scale": choice.scale}
                part = replace(part, experts=stage.experts, checkpoint={} if truncated else plan)
                part = self._with_uncertainty(part, uncertainty)
                if self._n_particles() > 1 and not truncated:
                    part = self._with_saved_experts(stage, part, budget)
                whole = stage.learn(choice)
                part = self._with_uncertainty(
                    part, self._final_uncertainty(stage, uncertainty, prepared.sample)
                )
                # not finished if time limited the rows of the final estimate
                return replace(part, checkpoint={}) if whole and not budget.cut else part
        except KeyboardInterrupt:
            self._store_interrupted(part, prepared, budget)
            raise
        # no experts: fit the weights to all rows, if there is time
        budget.thorough = bool(budget.before)
        if n_few == n_rows or self._affordable_rows(prepared, part.map, n_rows, budget) < n_rows:
            return replace(part, checkpoint={})
        return self._learn_weights(engine, prepared, start, n_rows, budget)

    @staticmethod
    def _with_saved_experts(stage: ExpertFit, part: Any, budget: TimeBudget) -> Any:
        """Restore the learned experts of one ensemble member, and checkpoint them as they learn."""
        if "experts" in budget.before:
            stage.experts = Experts(**budget.before["experts"])
        assert stage.experts is not None
        budget.kept["experts"] = stage.experts.to_arrays()  # arrays that learning updates in place
        return replace(part, experts=stage.experts)

    def _stage(self, name: str, n_rows: int) -> str:
        """Checkpoint key of a weight stage; distinct for the refit after experts were rejected."""
        return name if n_rows <= global_rows(self.n_features_in_) else f"{name} of all"

    def _split_time(
        self, prepared: Prepared, feature_map: Any, n_few: int, n_rows: int, budget: TimeBudget
    ) -> tuple[float, float]:
        """Fraction of the time for the global model, and seconds of the expert trial.

        If there is no time for experts, the global model gets all of it.
        """
        seconds = budget.left
        if seconds is None:
            return GLOBAL_TIME_FRACTION, 0.0
        if seconds == 0.0:  # no time for measurements
            return TIME_FRACTION, np.inf
        number = self._n_experts(n_rows)
        n_learned = n_rows if n_few == n_rows else 0
        trial = self._trial_seconds(feature_map, prepared.sample, number, n_learned)
        return (
            GLOBAL_TIME_FRACTION
            if trial <= (1.0 - GLOBAL_TIME_FRACTION) * seconds
            else TIME_FRACTION
        ), trial

    @abstractmethod
    def _trial_seconds(
        self, feature_map: Any, sample: Rows, n_experts: int, n_learned: int
    ) -> float:
        """Cost of the first trial of the experts, before the budget is checked.

        ``n_learned`` is the number of rows if the global model learns all of them, else zero.
        """

    def _subsample(self, engine: Engine, n_few: int, n_rows: int) -> tuple[Engine, Batch]:
        """Random rows for the global model, and an engine over them."""
        batch = engine.sample(n_few, GLOBAL_SAMPLE)
        if n_few == n_rows:
            return engine, batch
        few = local_engine(batch.X, batch.y, batch.weight, 0, self.n_jobs, True, FIT_BLOCK_ROWS)
        return few, batch

    def _final_uncertainty(self, stage: ExpertFit, uncertainty: Any, sample: Rows | None) -> Any:
        """Posterior scale or noise model after all experts have learned."""
        return uncertainty

    def _store_interrupted(self, part: Any, prepared: Prepared, budget: TimeBudget) -> None:
        self._store([part], prepared.standard)
        self.n_iter_ = budget.n_iter

    # -- resuming -----------------------------------------------------------------------
    def _resumes_experts(self, X: Any) -> bool:
        saved = getattr(self, "checkpoint_", {})
        resumable = bool(self.warm_start and saved and "parameters" not in saved)
        if resumable and saved.get("stream", False) is not is_stream(X):
            known = "a stream" if saved.get("stream", False) else "rows in memory"
            raise ValueError(
                "warm_start resumes an interrupted fit and needs X of the same kind, "
                f"{known}; pass it again, or set warm_start=False"
            )
        if resumable:
            check_same_parameters(self, saved["expert_parameters"])
        return resumable

    @one_blas_thread()
    def _resume_experts(self, X: Any, y: Any, weight: Any, seed: int, budget: TimeBudget) -> None:
        """Learn the experts that an interrupted or timed-out fit has not learned.

        Everything else is unchanged. If the expert hyperparameters had been chosen, the result is
        bit-identical to an uninterrupted fit.
        """
        plan, encoding = self.checkpoint_, self._target_encoding()
        seed = seed if plan.get("sample_seed") is None else int(plan["sample_seed"])
        engine, sample = self._reload_rows(X, y, weight, seed)
        budget.before = {name: plan[name] for name in ("n_learned", "trial") if name in plan}
        budget.thorough = True
        with closing(engine):
            if engine.n_rows != plan["n_rows"] or not same_encoding(
                encoding, self._target_encoding()
            ):
                raise ValueError(
                    "warm_start resumes an interrupted fit and needs the same "
                    f"{plan['n_rows']} rows and targets, got {engine.n_rows} rows; pass them "
                    "again, or set warm_start=False"
                )
            global_model = self._fitted_global_model(int(plan["n_learned"]))
            with budget.aside("n_learned"):
                stage = self._expert_stage(engine, global_model, int(plan["seed"]), budget)
            n_few = min(global_rows(engine.n_features), int(engine.n_rows or 0))
            if self.experts_[0]:
                stage.experts = Experts(**self.experts_[0])
                if sample is not None:  # the same sample as in the interrupted fit
                    some = engine.sample(n_few, GLOBAL_SAMPLE)
                    stage.set_landmark_rows(global_model.scaled(some.X), stage.experts.tree)
            elif self._chose_no_experts(stage, engine.sample(n_few, GLOBAL_SAMPLE).X, budget):
                return
            choice = Choice(self.checkpoint_["precision"], self.checkpoint_["scale"])
            budget.thorough = False
            whole = stage.learn(choice)  # updates the fitted arrays in place
            budget.thorough = whole  # then the final estimate uses all of its rows
            self._set_uncertainty(self._final_uncertainty(stage, None, sample))
            self.checkpoint_ = {} if whole else self.checkpoint_
        self.n_iter_ += budget.n_iter

    def _reload_rows(self, X: Any, y: Any, weight: Any, seed: int) -> tuple[Engine, Rows | None]:
        """Engine over the rows of the interrupted fit and, for a stream, its sample."""
        if is_stream(X):
            encoded, n_rows, _ = self._open_encoded(self._open_stream(X, y, weight, True), seed)
            return self._stream_engine(encoded, n_rows, seed)
        present = Rows(*self._check_rows(X, y, weight, reset=False)).present()
        codes, omega = self._encode(present.y, present.weight)
        rows = self._merged(Rows(present.X, codes, omega).present())
        engine = local_engine(rows.X, rows.y, rows.weight, seed, self.n_jobs, True, FIT_BLOCK_ROWS)
        return engine, None

    def _chose_no_experts(self, stage: ExpertFit, sample: Matrix, budget: TimeBudget) -> bool:
        """Choose expert hyperparameters in a resumed fit; True if there are no experts."""
        try:
            chosen = stage.choose(sample, float(self.alpha_[0]), self._experts_required())
        except OutOfTime:
            self.checkpoint_ = self.checkpoint_ | _trial(budget)
            return True
        if chosen is None or stage.experts is None:
            self.checkpoint_ = {}
            return True
        choice, uncertainty = chosen
        self._set_uncertainty(uncertainty)
        self.experts_ = [stage.experts.to_arrays()]
        self.checkpoint_ |= {"precision": choice.precision, "scale": choice.scale}
        return False

    # -- batch by batch -----------------------------------------------------------------
    def _buffer_for_experts(self, X: Matrix, y: Array, omega: Array) -> None:
        """Buffer rows for the experts, and refit these whenever the rows have doubled."""
        buffered = self.stream_.get("expert_rows")
        if buffered is None:
            return
        buffered = [*buffered, [X, y, omega]]
        self.stream_["expert_rows"] = buffered
        n_rows = sum(len(labels) for _, labels, _ in buffered)
        tried, full = self.stream_.get("tried", 0), n_rows * self.n_features_in_ > BUFFERED_VALUES
        due = n_rows >= GROWTH * tried or (full and n_rows > tried)
        if due and self._tries_experts(n_rows, self._landmarks()):
            self._make_experts()
        if full:
            self.stream_["expert_rows"] = None

    def _landmarks(self) -> Any:
        return restore_map(self.maps_[0])

    @one_blas_thread()
    def _make_experts(self) -> None:
        """Fit regions, hyperparameters and experts to all buffered rows."""
        X = stack_rows([rows for rows, _, _ in self.stream_["expert_rows"]])
        y = np.concatenate([labels for _, labels, _ in self.stream_["expert_rows"]])
        omega = np.concatenate([weight for _, _, weight in self.stream_["expert_rows"]])
        self.stream_["tried"] = len(y)
        if not self.experts_[0]:  # the global model learns until there are experts
            self.stream_["n_global"] = len(y)
        n_global = self.stream_.setdefault("n_global", len(self.stream_["expert_rows"][0][1]))
        codes, budget = self._targets(y), TimeBudget(self, (None, None))
        seed = self.stream_["seed"]
        engine = local_engine(X, codes, omega, seed, self.n_jobs, True, FIT_BLOCK_ROWS)
        with closing(engine):
            global_model = self._fitted_global_model(n_global)
            stage = self._expert_stage(engine, global_model, seed, budget)
            sample = engine.sample(min(global_rows(X.shape[1]), len(y)))
            chosen = stage.choose(sample.X, float(self.alpha_[0]), self._experts_required())
            if chosen is None or stage.experts is None:
                return
            choice, uncertainty = chosen
            stage.learn(choice)
            self._set_uncertainty(self._final_uncertainty(stage, uncertainty, None))
        self.experts_ = [stage.experts.to_arrays()]
        self.stream_.update(waiting={}, late=[])

    @one_blas_thread()
    def _update_experts(self, X: Matrix, y: Array, omega: Array, flush: bool = False) -> None:
        """Buffer rows by region and update experts with full buffers; ``flush`` updates all."""
        # copies, so that an interrupted batch leaves no trace
        arrays = {name: copy(value) for name, value in self.experts_[0].items()}
        self.experts_ = [arrays]
        experts, seed = Experts(**arrays), int(self.stream_["seed"])
        no_rows = np.zeros((1, self.n_features_in_))
        with local_engine(no_rows, None, None, 0, 1, True) as empty:
            stage = self._expert_stage(
                empty, self._fitted_global_model(), seed, TimeBudget(self, (None, None))
            )
        stage.experts = experts
        choice = stage.global_model.choice(experts)
        waiting = RegionBuffers.from_plain(
            1 if flush else WAIT_ROWS, self.stream_.get("waiting", {})
        )
        if len(y):
            rows = stage.global_model.region(Batch(X, self._targets(y), omega))
            for expert, region in waiting.add(rows, experts.tree):
                stage.store(stage.solve(expert, region, choice))
        if flush:
            for expert, region in waiting.flush():
                stage.store(stage.solve(expert, region, choice))
        self.stream_["waiting"] = waiting.to_plain()

    def _finish_experts(self) -> None:
        """End of the stream: learn the waiting rows and release the buffers."""
        buffered = self.stream_.get("expert_rows")
        n_buffered = sum(len(labels) for _, labels, _ in buffered) if buffered else 0
        if n_buffered > self.stream_.get("tried", 0) and self._tries_experts(
            n_buffered, self._landmarks()
        ):
            self._make_experts()
        if self.experts_[0]:  # rows may be waiting for older experts
            self._flush_experts()
        self.stream_["expert_rows"] = None

    def _flush_experts(self) -> None:
        """Update the experts with all waiting rows."""
        empty = np.empty(0)
        self._update_experts(np.empty((0, self.n_features_in_)), empty, empty, True)


def _trial(budget: TimeBudget) -> dict[str, Any]:
    """Validation results of the expert trial so far, for the checkpoint."""
    return {"trial": budget.kept["trial"]} if "trial" in budget.kept else {}
