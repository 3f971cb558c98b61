"""Experts where rows come batch by batch and nobody knows how many there will be.

As long as they fit into bounded memory all rows are kept, and experts are made anew, more of
them, whenever the rows have doubled: every row is learned about twice. Then the rows are let go;
regions stay as they are, and further rows wait until there are enough of them for an expert.
The common machine learns on until there are experts; then it stays as it is, but for batches
that hold classes the experts were not made for.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Matrix
from likelier.engines import LocalEngine
from likelier.engines.rows import stack_rows
from likelier.engines.threads import one_blas_thread
from likelier.estimators.kernel_experts import (
    COMMON_SAMPLE,
    EXPERTS_FROM,
    MAX_INPUTS,
    Common,
    ExpertFit,
    Waiting,
    common_rows,
    n_experts,
    power_of_two,
)
from likelier.estimators.kernel_fit import HEAD_BLOCK, KernelFit, Rows
from likelier.estimators.kernel_words import Clock
from likelier.estimators.problem import is_stream
from likelier.estimators.targets import class_codes
from likelier.inference.kernel_search import Choice
from likelier.inference.laplace import HeadPosterior
from likelier.models.kernel_experts import Experts, with_classes
from likelier.models.kernel_machine import LandmarkMap, restore_map

KEEP_VALUES = 1 << 25  # numbers in the rows that are kept
WAIT_ROWS = 128
GROWTH = 2.0


class ExpertStream(KernelFit):
    """What a classifier does with experts, whole passes and batch by batch alike."""

    experts_: list[dict[str, Any]]
    weights_: list[Array]
    roots_: list[Array]
    classes_: Array
    unfinished_: dict[str, Any]

    def _may_have_experts(self) -> bool:
        """Whether experts go together with the other words."""
        features = self.features in ("auto", "nystroem") and self.inference == "evidence"
        return bool(features and self.loss == "softmax" and float(self.temperature) == 1.0)

    def _has_experts(self, n_rows: int, made: Any) -> bool:
        """Whether there may be experts: by default for many rows, with nothing prescribed."""
        wide = self.n_features_in_ > MAX_INPUTS
        if wide or not (self._may_have_experts() and isinstance(made, LandmarkMap)):
            return False
        if self.n_experts != "auto":
            return bool(self.n_experts > 1)
        words = (self.gamma, self.alpha, self.n_components)
        return n_rows > EXPERTS_FROM and all(isinstance(word, str) for word in words)

    def _expert_stage(self, engine: Engine, common: Common, seed: int, clock: Clock) -> ExpertFit:
        n_rows = int(engine.n_rows or 0)
        number = (
            power_of_two(int(self.n_experts))
            if self.n_experts != "auto"
            else n_experts(n_rows, self.n_features_in_)
        )
        return ExpertFit(engine, common, n_rows, number, seed, float(self.tol), self.n_jobs, clock)

    # -- going on -----------------------------------------------------------------------
    def _goes_on(self, X: Any) -> bool:
        unfinished = bool(self.warm_start and getattr(self, "unfinished_", None))
        if unfinished and is_stream(X):
            raise ValueError(
                "warm_start goes on with rows in memory only: give them as an array, or fit the "
                "stream anew with warm_start=False, or batch by batch with partial_fit"
            )
        return unfinished

    @one_blas_thread()
    def _go_on(self, X: Matrix, y: Array, weight: Array | None, seed: int, clock: Clock) -> None:
        """Learn the experts that an interrupted fit, or one out of time, has left over.

        Everything else stays as it is: the same as if the fit had not ended, to the last bit,
        where experts had been chosen.
        """
        plan, classes = self.unfinished_, self.classes_
        present = Rows(X, y, weight).present()
        codes, omega = self._encode(present.y, present.weight)
        rows = Rows(present.X, codes, omega).present()
        if rows.n != plan["n_rows"] or not np.array_equal(classes, self.classes_):
            self.classes_ = classes
            raise ValueError(
                f"warm_start goes on with the rows of the unfinished fit, {plan['n_rows']} of "
                f"{len(classes)} classes, got {rows.n} rows; fit with warm_start=False"
            )
        with LocalEngine(
            rows.X, rows.y, rows.weight, seed=seed, n_jobs=self.n_jobs, block_rows=HEAD_BLOCK
        ) as engine:
            stage = self._expert_stage(engine, self._common_now(), int(plan["seed"]), clock)
            if self.experts_[0]:
                stage.experts = Experts(**self.experts_[0])
            elif self._chose_none(stage, engine, clock):
                return
            choice = Choice(self.unfinished_["precision"], self.unfinished_["scale"])
            if stage.learn(choice):  # its arrays are those of the model
                self.unfinished_ = {}
        self.n_iter_ += clock.n_iter

    def _chose_none(self, stage: ExpertFit, engine: Engine, clock: Clock) -> bool:
        """Choose experts where an earlier fit had no time to; True where there are none."""
        n_few = min(common_rows(engine.n_features), int(engine.n_rows or 0))
        sample = engine.sample(n_few, COMMON_SAMPLE)  # as a fit with more time draws it
        chosen = stage.choose(sample.X, float(self.alpha_[0]), self.n_experts != "auto")
        if chosen is None or stage.experts is None:
            self.unfinished_ = self.unfinished_ if clock.over else {}
            return True
        choice, spread = chosen
        if self.posterior_scale == "auto":
            self.posterior_scale_ = np.array([spread])
        self.experts_ = [stage.experts.to_arrays()]
        self.unfinished_ |= {"precision": choice.precision, "scale": choice.scale}
        return False

    # -- batch by batch -----------------------------------------------------------------
    def _remember(self, X: Matrix, y: Array, omega: Array) -> None:
        """Keep rows for the experts, and make these anew where the rows have doubled."""
        kept = self.stream_.get("kept")
        if kept is None:
            return
        kept = [*kept, [X, y, omega]]
        self.stream_["kept"] = kept
        n_rows = sum(len(labels) for _, labels, _ in kept)
        tried, full = self.stream_.get("tried", 0), n_rows * self.n_features_in_ > KEEP_VALUES
        due = n_rows >= GROWTH * tried or (full and n_rows > tried)
        if due and self._has_experts(n_rows, self._landmarks()):
            self._make_experts()
        if full:
            self.stream_["kept"] = None

    def _landmarks(self) -> Any:
        return restore_map(self.maps_[0])

    @one_blas_thread()
    def _make_experts(self) -> None:
        """Regions, choice and experts from all rows that are kept."""
        X = stack_rows([rows for rows, _, _ in self.stream_["kept"]])
        y = np.concatenate([labels for _, labels, _ in self.stream_["kept"]])
        omega = np.concatenate([weight for _, _, weight in self.stream_["kept"]])
        self.stream_["tried"] = len(y)
        codes, clock = class_codes(self.classes_, y), Clock(self, (None, None))
        with LocalEngine(
            X, codes, omega, seed=self.stream_["seed"], n_jobs=self.n_jobs, block_rows=HEAD_BLOCK
        ) as engine:
            stage = self._expert_stage(engine, self._common_now(), self.stream_["seed"], clock)
            sample = engine.sample(min(common_rows(X.shape[1]), len(y)))
            chosen = stage.choose(sample.X, float(self.alpha_[0]), self.n_experts != "auto")
            if chosen is None or stage.experts is None:
                return
            choice, spread = chosen
            stage.learn(choice)
        if self.posterior_scale == "auto":
            self.posterior_scale_ = np.array([spread])
        self.experts_ = [stage.experts.to_arrays()]
        self.stream_.update(waiting={}, late=[])

    def _common_now(self) -> Common:
        variance = float(self.prior_variance_[0])
        posterior = HeadPosterior(self.weights_[0], self.roots_[0], self.layout_, variance)
        return Common(self._landmarks(), posterior, self._head_loss())

    @one_blas_thread()
    def _teach_experts(self, X: Matrix, y: Array, omega: Array, flush: bool = False) -> None:
        """Rows wait for their expert to have enough of them; ``flush`` lets none wait."""
        # copies: a batch that is not learned to its end must leave no trace
        arrays = {name: copy(value) for name, value in self.experts_[0].items()}
        self.experts_ = [arrays]
        experts, seed = Experts(**arrays), int(self.stream_["seed"])
        with LocalEngine(np.zeros((1, self.n_features_in_))) as nothing:
            stage = self._expert_stage(nothing, self._common_now(), seed, Clock(self, (None, None)))
        stage.experts = experts
        scores_per_class = 0.5 if stage.common.loss.n_outputs == 1 else 1.0
        choice = Choice(1.0 / (scores_per_class * experts.prior_variance), experts.scale)
        waiting = Waiting.from_plain(1 if flush else WAIT_ROWS, self.stream_.get("waiting", {}))
        if len(y):
            rows = stage.common.region(Batch(X, class_codes(self.classes_, y), omega))
            for expert, region in waiting.add(rows, experts.tree):
                stage.keep(stage.solve(expert, region, choice))
        if flush:
            for expert, region in waiting.rest():
                stage.keep(stage.solve(expert, region, choice))
        self.stream_["waiting"] = waiting.to_plain()

    def _end_experts(self) -> None:
        """The stream is over: nothing waits, and what was kept is let go."""
        kept = self.stream_.get("kept")
        n_kept = sum(len(labels) for _, labels, _ in kept) if kept else 0
        if n_kept > self.stream_.get("tried", 0) and self._has_experts(n_kept, self._landmarks()):
            self._make_experts()
        if self.experts_[0]:  # new ones have learned all rows, for older ones some may wait
            nothing = np.empty(0)
            self._teach_experts(np.empty((0, self.n_features_in_)), nothing, nothing, True)
        self.stream_["kept"] = None

    def _experts_meet_classes(self, n_before: int, places: Array, n_classes: int) -> None:
        """Make room for new classes in the experts, who know nothing about them."""
        nothing = np.empty(0)
        self._teach_experts(np.empty((0, self.n_features_in_)), nothing, nothing, True)
        grown = with_classes(Experts(**self.experts_[0]), n_before, places, n_classes)
        self.experts_ = [grown.to_arrays()]
