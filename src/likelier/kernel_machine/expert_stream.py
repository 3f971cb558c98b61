"""What both kernel machines do with experts: in one fit, going on with it, and batch by batch.

A fit learns a common machine first, and then experts for what it leaves over. Where rows come
batch by batch nobody knows how many there will be. As long as they fit into bounded memory all
rows are kept, and experts are made anew, more of them, whenever the rows have doubled: every row
is learned about twice. Then the rows are let go; regions stay as they are, and further rows wait
until there are enough of them for an expert. The common machine learns on until there are
experts; then it stays as it is, but for batches that hold classes the experts were not made for.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Matrix
from likelier.engines import LocalEngine, StreamEngine
from likelier.engines.rows import stack_rows
from likelier.engines.threads import one_blas_thread
from likelier.fitting.dataset import is_stream
from likelier.fitting.parameters import check_number_or_auto
from likelier.fitting.rows import Rows
from likelier.fitting.time_budget import OutOfTime, TimeBudget
from likelier.kernel_machine.expert_fit import (
    COMMON_SAMPLE,
    EXPERTS_FROM,
    MAX_INPUTS,
    CommonMachine,
    ExpertFit,
    common_rows,
    n_experts,
    power_of_two,
)
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.expert_rows import Waiting
from likelier.kernel_machine.features import LandmarkMap, restore_map
from likelier.kernel_machine.pace import SHARE
from likelier.kernel_machine.passes import StreamPasses
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.recipe import HEAD_BLOCK
from likelier.kernel_machine.resume import check_same_parameters, parameters_of, same_units
from likelier.kernel_machine.search import Choice

KEEP_VALUES = 1 << 25  # numbers in the rows that are kept
WAIT_ROWS = 128
COMMON_SHARE = 0.5  # of a time budget for the common machine; the rest is for the experts
GROWTH = 2.0


class ExpertStream(StreamPasses):
    """Experts of a classifier and of a regressor alike.

    ``_targets`` encodes targets in the units of the fit, which ``_target_units`` tells,
    ``_common`` and ``_common_now`` give the common machine of a particle and of the fitted
    model, and ``_with_verdict`` and ``_trust`` give them what the choice of the experts says
    about how far predictions are to be trusted.
    """

    experts_: list[dict[str, Any]]
    weights_: list[Array]
    roots_: list[Array]
    unfinished_: dict[str, Any]
    _expert_loss: str

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        check_number_or_auto("n_experts", self.n_experts, 0, integer=True)
        if self.n_experts not in ("auto", 0, 1) and not self._may_have_experts():
            raise ValueError(
                f'n_experts above one needs loss="{self._expert_loss}", inference="evidence", '
                'features="auto" or "nystroem", and temperature=1; leave it "auto", or 0 for none'
            )

    def _may_have_experts(self) -> bool:
        """Whether experts go together with the other words."""
        features = self.features in ("auto", "nystroem") and self.inference == "evidence"
        return bool(features and self.loss == self._expert_loss and float(self.temperature) == 1.0)

    def _has_experts(self, n_rows: int, made: Any) -> bool:
        """Whether there may be experts: by default for many rows, with nothing prescribed."""
        wide = self.n_features_in_ > MAX_INPUTS
        if wide or not (self._may_have_experts() and isinstance(made, LandmarkMap)):
            return False
        if self.n_experts != "auto":
            return bool(self.n_experts > 1)
        words = (self.gamma, self.alpha, self.n_components)
        return n_rows > self._experts_from() and all(isinstance(word, str) for word in words)

    def _experts_from(self) -> int:
        return EXPERTS_FROM

    def _must_have_experts(self) -> bool:
        return bool(self.n_experts != "auto")

    def _n_experts(self, n_rows: int) -> int:
        if self._must_have_experts():
            return power_of_two(int(self.n_experts))
        return n_experts(n_rows, self.n_features_in_)

    def _expert_stage(
        self, engine: Engine, common: CommonMachine, seed: int, budget: TimeBudget
    ) -> ExpertFit:
        n_rows = int(engine.n_rows or 0)
        number = self._n_experts(n_rows)
        return ExpertFit(engine, common, n_rows, number, seed, float(self.tol), self.n_jobs, budget)

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
        """A common machine from many rows, then experts for what it leaves over of all rows."""
        n_few = min(common_rows(self.n_features_in_), n_rows)
        share, trial = self._shared_time(prepared, part.map, n_few, n_rows, budget)
        n_few = min(n_few, self._rows_in_time(prepared, part.map, n_few, budget, share))
        few, batch = self._few(engine, n_few, n_rows)
        start, part = part, self._learn_weights(few, prepared, part, n_few, budget)
        if self._n_particles() == 1:
            budget.thorough = False  # this is a model, and experts are kept one by one
        early = budget.cut  # then a later fit goes on with what came before the experts
        seed, n_learned = int(rng.integers(2**31)), n_rows if n_few == n_rows else 0
        plan: dict[str, Any] = {"seed": seed, "n_rows": n_rows, "n_learned": n_learned}
        plan |= {
            "made_with": parameters_of(self),
            "drawn": budget.seed,
            "stream": not engine.in_memory,
        }
        part = replace(part, unfinished={} if early else plan)
        if not budget.allows(trial):
            return part
        try:
            stage = self._expert_stage(engine, self._common(part, n_learned), seed, budget)
            chosen = stage.choose(batch.X, part.choice.precision, self._must_have_experts())
            if chosen is None and budget.over:
                return part if early else replace(part, unfinished=plan | _trial(budget))
            if chosen is not None:
                choice, verdict = chosen
                plan = plan | {"precision": choice.precision, "scale": choice.scale}
                part = replace(part, experts=stage.experts, unfinished={} if early else plan)
                part = self._with_verdict(part, verdict)
                if self._n_particles() > 1 and not early:
                    part = self._taken_up(stage, part, budget)
                whole = stage.learn(choice)
                part = self._with_verdict(part, self._last_verdict(stage, verdict, prepared.sample))
                # a verdict by fewer rows than there is time for is not the last one
                return replace(part, unfinished={}) if whole and not budget.cut else part
        except KeyboardInterrupt:
            self._keep_interrupted(part, prepared, budget)
            raise
        # no experts: then the weights deserve all rows, if there is time
        budget.thorough = bool(budget.before)
        if n_few == n_rows or self._rows_in_time(prepared, part.map, n_rows, budget) < n_rows:
            return replace(part, unfinished={})
        return self._learn_weights(engine, prepared, start, n_rows, budget)

    @staticmethod
    def _taken_up(stage: ExpertFit, part: Any, budget: TimeBudget) -> Any:
        """Of several fits: the experts that this one had learned, kept as they learn."""
        if "experts" in budget.before:
            stage.experts = Experts(**budget.before["experts"])
        assert stage.experts is not None
        budget.kept["experts"] = stage.experts.to_arrays()  # which learning changes in place
        return replace(part, experts=stage.experts)

    def _stage(self, name: str, n_rows: int) -> str:
        """Name of a stage of the weights: after experts that are not wanted it is another one."""
        return name if n_rows <= common_rows(self.n_features_in_) else f"{name} of all"

    def _shared_time(
        self, prepared: Prepared, made: Any, n_few: int, n_rows: int, budget: TimeBudget
    ) -> tuple[float, float]:
        """Share of the time for the common machine, and seconds that experts take to be tried.

        Where there is no time for them, it is all for the common machine.
        """
        left = budget.left
        if left is None:
            return COMMON_SHARE, 0.0
        if left == 0.0:  # nothing is timed where there is no time for anything
            return SHARE, np.inf
        number = self._n_experts(n_rows)
        n_learned = n_rows if n_few == n_rows else 0
        trial = self._trial_seconds(made, prepared.sample, number, n_learned)
        return (COMMON_SHARE if trial <= (1.0 - COMMON_SHARE) * left else SHARE), trial

    @abstractmethod
    def _trial_seconds(self, made: Any, sample: Rows, n_experts: int, n_learned: int) -> float:
        """Seconds that experts take before the budget is asked.

        ``n_learned`` are all rows where the common machine learns them, else zero.
        """

    def _few(self, engine: Engine, n_few: int, n_rows: int) -> tuple[Engine, Batch]:
        """Random rows that the common machine is learned from, and an engine over them."""
        batch = engine.sample(n_few, COMMON_SAMPLE)
        if n_few == n_rows:
            return engine, batch
        few = LocalEngine(batch.X, batch.y, batch.weight, n_jobs=self.n_jobs, block_rows=HEAD_BLOCK)
        return few, batch

    def _last_verdict(self, stage: ExpertFit, verdict: Any, sample: Rows | None) -> Any:
        """The verdict after all experts have learned."""
        return verdict

    def _keep_interrupted(self, part: Any, prepared: Prepared, budget: TimeBudget) -> None:
        self._store([part], prepared.standard)
        self.n_iter_ = budget.n_iter

    # -- going on -----------------------------------------------------------------------
    def _goes_on(self, X: Any) -> bool:
        left = getattr(self, "unfinished_", {})
        unfinished = bool(self.warm_start and left and "words" not in left)
        if unfinished and left.get("stream", False) is not is_stream(X):
            known = "a stream" if left.get("stream", False) else "rows in memory"
            raise ValueError(
                "warm_start goes on with the rows of the unfinished fit as they were given, "
                f"{known}: give them so again, or fit with warm_start=False"
            )
        if unfinished:
            check_same_parameters(self, left["made_with"])
        return unfinished

    @one_blas_thread()
    def _go_on(self, X: Any, y: Any, weight: Any, seed: int, budget: TimeBudget) -> None:
        """Learn the experts that an interrupted fit, or one out of time, has left over.

        Everything else stays as it is: the same as if the fit had not ended, to the last bit,
        where experts had been chosen.
        """
        plan, units = self.unfinished_, self._target_units()
        seed = seed if plan.get("drawn") is None else int(plan["drawn"])
        engine, sample = self._rows_again(X, y, weight, seed)
        budget.before = {name: plan[name] for name in ("n_learned", "trial") if name in plan}
        budget.thorough = True
        with engine:
            if engine.n_rows != plan["n_rows"] or not same_units(units, self._target_units()):
                raise ValueError(
                    "warm_start goes on with the rows of the unfinished fit, "
                    f"{plan['n_rows']} of them and with the same targets, got {engine.n_rows} "
                    "rows; fit with warm_start=False"
                )
            common = self._common_now(int(plan["n_learned"]))
            with budget.aside("n_learned"):
                stage = self._expert_stage(engine, common, int(plan["seed"]), budget)
            n_few = min(common_rows(engine.n_features), int(engine.n_rows or 0))
            if self.experts_[0]:
                stage.experts = Experts(**self.experts_[0])
                if sample is not None:  # as the fit drew them
                    some = engine.sample(n_few, COMMON_SAMPLE)
                    stage.know(common.scaled(some.X), stage.experts.tree)
            elif self._chose_none(stage, engine.sample(n_few, COMMON_SAMPLE).X, budget):
                return
            choice = Choice(self.unfinished_["precision"], self.unfinished_["scale"])
            budget.thorough = False
            whole = stage.learn(choice)  # its arrays are those of the model
            budget.thorough = whole  # then the last verdict is by all of its rows
            self._trust(self._last_verdict(stage, None, sample))
            self.unfinished_ = {} if whole else self.unfinished_
        self.n_iter_ += budget.n_iter

    def _rows_again(
        self, X: Any, y: Any, weight: Any, seed: int
    ) -> tuple[LocalEngine | StreamEngine, Rows | None]:
        """The rows of an unfinished fit, and of a stream its sample."""
        if is_stream(X):
            encoded, n_rows, _ = self._open_encoded(self._open_stream(X, y, weight, True), seed)
            return self._stream_engine(encoded, n_rows, seed)
        present = Rows(*self._check_rows(X, y, weight, reset=False)).present()
        codes, omega = self._encode(present.y, present.weight)
        rows = self._merged(Rows(present.X, codes, omega).present())
        engine = LocalEngine(
            rows.X, rows.y, rows.weight, seed=seed, n_jobs=self.n_jobs, block_rows=HEAD_BLOCK
        )
        return engine, None

    def _chose_none(self, stage: ExpertFit, sample: Matrix, budget: TimeBudget) -> bool:
        """Choose experts where an earlier fit had no time to; True where there are none."""
        try:
            chosen = stage.choose(sample, float(self.alpha_[0]), self._must_have_experts())
        except OutOfTime:
            self.unfinished_ = self.unfinished_ | _trial(budget)
            return True
        if chosen is None or stage.experts is None:
            self.unfinished_ = {}
            return True
        choice, verdict = chosen
        self._trust(verdict)
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
        if not self.experts_[0]:  # the common machine learns until there are experts
            self.stream_["n_common"] = len(y)
        n_common = self.stream_.setdefault("n_common", len(self.stream_["kept"][0][1]))
        codes, budget = self._targets(y), TimeBudget(self, (None, None))
        with LocalEngine(
            X, codes, omega, seed=self.stream_["seed"], n_jobs=self.n_jobs, block_rows=HEAD_BLOCK
        ) as engine:
            common = self._common_now(n_common)
            stage = self._expert_stage(engine, common, self.stream_["seed"], budget)
            sample = engine.sample(min(common_rows(X.shape[1]), len(y)))
            chosen = stage.choose(sample.X, float(self.alpha_[0]), self._must_have_experts())
            if chosen is None or stage.experts is None:
                return
            choice, verdict = chosen
            stage.learn(choice)
            self._trust(self._last_verdict(stage, verdict, None))
        self.experts_ = [stage.experts.to_arrays()]
        self.stream_.update(waiting={}, late=[])

    @one_blas_thread()
    def _teach_experts(self, X: Matrix, y: Array, omega: Array, flush: bool = False) -> None:
        """Rows wait for their expert to have enough of them; ``flush`` lets none wait."""
        # copies: a batch that is not learned to its end must leave no trace
        arrays = {name: copy(value) for name, value in self.experts_[0].items()}
        self.experts_ = [arrays]
        experts, seed = Experts(**arrays), int(self.stream_["seed"])
        with LocalEngine(np.zeros((1, self.n_features_in_))) as nothing:
            stage = self._expert_stage(
                nothing, self._common_now(), seed, TimeBudget(self, (None, None))
            )
        stage.experts = experts
        choice = stage.common.choice(experts)
        waiting = Waiting.from_plain(1 if flush else WAIT_ROWS, self.stream_.get("waiting", {}))
        if len(y):
            rows = stage.common.region(Batch(X, self._targets(y), omega))
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
            self._teach_nothing()
        self.stream_["kept"] = None

    def _teach_nothing(self) -> None:
        """Let the experts learn what waits for them."""
        nothing = np.empty(0)
        self._teach_experts(np.empty((0, self.n_features_in_)), nothing, nothing, True)


def _trial(budget: TimeBudget) -> dict[str, Any]:
    """What a trial of experts has judged so far."""
    return {"trial": budget.kept["trial"]} if "trial" in budget.kept else {}
