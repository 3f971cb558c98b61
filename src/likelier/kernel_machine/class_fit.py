"""How a kernel classifier is fitted: targets, weights, experts, and what is stored of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from likelier.base import Array, Engine, Loss
from likelier.fitting.probabilities import fit_calibration
from likelier.fitting.rows import Rows
from likelier.fitting.targets import (
    check_no_missing_label,
    class_codes,
    class_weights,
    combine_weights,
    require_two_classes,
)
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.class_predictions import ClassPredictions
from likelier.kernel_machine.evidence import Plan, Scales
from likelier.kernel_machine.expert_fit import N_TRIAL, Common, common_rows, n_landmarks
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import KernelMap, LandmarkMap
from likelier.kernel_machine.integrate import choose_spread
from likelier.kernel_machine.laplace import MAX_JOINT, HeadPosterior, head_posterior, mean_shift
from likelier.kernel_machine.pace import SHARE, affordable_rows, head_pace
from likelier.kernel_machine.particle_course import ParticleState
from likelier.kernel_machine.particles import Strength
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.recipe import HOLD_OUT_FROM
from likelier.kernel_machine.resume import KeptJudge, KeptWeights, PlainPart
from likelier.kernel_machine.search import (
    FEW_ROWS_RANGE,
    FEW_ROWS_ROUNDS,
    N_ROUNDS,
    SEARCH_RANGE,
    Choice,
    Judge,
    class_shares,
    head_prior,
    output_precision,
    search,
    start_choice,
)
from likelier.kernel_machine.softmax_weights import (
    HINGE_SHARPNESS,
    HeadLoss,
    HeadProblem,
    Prior,
    fit_head,
    ready_features,
    rows_in_memory,
)
from likelier.kernel_machine.weights_state import HeadState
from likelier.losses import MulticlassHinge, Softmax

# Few labels tell less about scales than as many numbers: longer climbs fit their accidents.
FEW_ROWS_PLAN = Plan(((12, 200), (8, 400)))
DEFAULT_SPREAD = 0.1  # where rows are too few to hold any out
HINGE_STEPS = 3  # of the hinge for one of a smooth loss: its kinks make them short


@dataclass(frozen=True)
class Particle(PlainPart):
    """One fitted set of hyperparameters and the weights that go with it."""

    records: ClassVar = {"posterior": HeadPosterior, "choice": Choice, "experts": Experts}

    map: KernelMap
    posterior: HeadPosterior | None
    choice: Choice
    calibration: dict[str, Any]
    value: float
    converged: bool
    far: Array = field(default_factory=lambda: np.zeros(1))  # scores where nothing is known
    experts: Experts | None = None
    unfinished: dict[str, Any] = field(default_factory=dict)


class ClassFit(ClassPredictions):
    """Fitting of `BayesianKernelClassifier`, whose words it finds on itself."""

    _particle_type = Particle

    # -- targets ------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_no_missing_label(y)
        check_classification_targets(y)
        return y

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Class numbers, and weights that include the classes'."""
        if hasattr(self, "stream_"):
            return super()._encode(y, weight)
        self._set_classes(np.unique(y))
        codes = class_codes(self.classes_, y)
        per_class = class_weights(self.class_weight, self.classes_, codes, weight)
        return codes, combine_weights(weight, per_class, codes)

    def _encoded(self, rows: Rows) -> Rows:
        codes, weight = self._encode(rows.y, rows.weight)  # a class may weigh nothing
        return Rows(rows.X, codes, weight)

    def _set_classes(self, classes: Array) -> None:
        self.classes_ = require_two_classes(classes)

    def _n_classes(self) -> int:
        return len(self.classes_)

    def _strata(self, y: Array) -> Array:
        return y

    def _evidence_targets(self, y: Array) -> Array:
        """One column ``+-1`` for two classes, else one column for each."""
        if self._n_classes() == 2:
            return np.where(y > 0.5, 1.0, -1.0)[:, None]
        return np.eye(self._n_classes())[y.astype(np.intp)]

    def _head_loss(self) -> HeadLoss:
        if self.loss == "hinge":
            return HeadLoss(self._n_classes(), 1.0, HINGE_SHARPNESS)
        return HeadLoss(self._n_classes())

    # -- particles ----------------------------------------------------------------------
    def _is_judged(self) -> bool:
        return bool(self.loss == "hinge")

    def _particle_loss(self) -> Loss:
        return MulticlassHinge() if self.loss == "hinge" else Softmax()

    def _particle_strength(self, scales: Scales) -> Strength:
        if self.alpha != "auto":
            return Strength(float(self.alpha))
        return Strength(start_choice(scales.noise, scales.amplitude).precision)

    def _judge(self, posterior: ParticleState, held: Rows, strength: Strength) -> Strength:
        scores = posterior.scores(held.X)
        omega = np.ones(held.n) if held.weight is None else held.weight
        weight = np.tile(omega / len(scores), len(scores))  # a row counts once for all particles
        codes, flat = np.tile(held.y, len(scores)), scores.reshape(-1, scores.shape[2])
        return replace(strength, calibration=self._calibrate(flat, codes, weight))

    def _store_particles(self, strength: Strength) -> None:
        self.calibration_ = [strength.calibration or {}]
        self.posterior_scale_ = np.ones(1)

    # -- weights ------------------------------------------------------------------------
    def _plan(self, n_rows: int) -> Plan:
        few = n_rows < HOLD_OUT_FROM and self.inference == "evidence"
        return FEW_ROWS_PLAN if few else super()._plan(n_rows)

    def _learn_particle(
        self,
        engine: Engine,
        prepared: Prepared,
        held: Array,
        n_rows: int,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> Particle:
        choice, calibration = self._chosen(prepared, held, rng, budget)
        made, _ = self._final_map(prepared, choice.scale, n_rows, rng, budget)
        part = Particle(made, None, choice, calibration, np.nan, False)
        if self._has_experts(n_rows, made):
            learned: Particle = self._learn_with_experts(
                engine, prepared, part, n_rows, rng, budget
            )
            return learned
        n_few = self._rows_in_time(prepared, made, n_rows, budget)
        if n_few < n_rows:
            if not engine.in_memory:
                n_few = min(n_few, common_rows(self.n_features_in_))
            engine, _ = self._few(engine, n_few, n_rows)
        return self._learn_weights(engine, prepared, part, n_few, budget)

    def _rows_in_time(
        self,
        prepared: Prepared,
        made: KernelMap,
        n_rows: int,
        budget: TimeBudget,
        share: float = SHARE,
    ) -> int:
        """How many rows the weights can be learned from; all where there is no time budget."""
        if budget.left is None:
            return n_rows
        pace = self._row_seconds(made, prepared.sample) if budget.left else np.inf
        n_sample = prepared.sample.n  # more rows than that start from weights of the sample,
        extra = n_sample if n_rows > n_sample else 0  # which have to be paid for too
        most = affordable_rows(budget, n_rows + extra, pace, share)
        if most >= n_rows + extra:
            return n_rows
        return most if most <= n_sample else max(most - n_sample, n_sample)

    def _row_seconds(self, made: KernelMap, sample: Rows) -> float:
        return head_pace(made, sample, self._head_loss())

    def _trial_seconds(
        self, made: KernelMap, sample: Rows, n_experts: int, n_learned: int
    ) -> float:
        """A first try of the experts, each with so many landmarks, before the budget is asked."""
        size = (n_landmarks(n_experts) / made.n_features) ** 2
        return N_TRIAL * self._row_seconds(made, sample) * size

    def _learn_weights(
        self, engine: Engine, prepared: Prepared, part: Particle, n_rows: int, budget: TimeBudget
    ) -> Particle:
        """Weights and their posterior from all rows of the engine."""
        loss, made, choice = self._head_loss(), part.map, part.choice
        precision = output_precision(choice, loss) * float(self.temperature)
        place = [choice.precision, choice.scale, n_rows]
        shares = class_shares(prepared.sample.y, prepared.sample.weight, loss.n_classes)
        latest = loss.start(made.n_features, shares)
        # the hinge itself starts without shares, but they are what is known far away
        part = replace(part, far=replace(loss, margin=0.0).start(1, shares)[-1])
        prior = head_prior(made, precision, latest)
        hinge = self.loss == "hinge"
        name = self._stage("weights", n_rows)
        kept = KeptWeights(budget, name, place)
        start = kept.start(latest)
        if start is latest and n_rows > prepared.sample.n:  # most of the way by a sample
            near = KeptWeights(budget, self._stage("start", n_rows), place)
            start = self._sample_weights(prepared, made, prior, near.start(latest), near)
            kept = KeptWeights(budget, name, place)  # not where the start was cut short
        latest = start.W if isinstance(start, HeadState) else start
        with budget.aside(name):
            rows, features = self._features(engine, made, n_rows)
        problem = HeadProblem(rows.reduce, features, loss, prior, sure=hinge)

        def watch(state: HeadState) -> bool:
            nonlocal latest
            latest = state.W
            return kept(state)

        try:
            most = HINGE_STEPS * int(self.max_iter) if hinge else int(self.max_iter)
            fit = fit_head(problem, start, float(self.tol), most, watch)
            posterior = self._posterior(problem, fit.W, precision)
        except KeyboardInterrupt:  # keep what has been learned so far
            root = np.diag(prior.precision**-0.5).astype(np.float32)
            posterior = HeadPosterior(latest, root[None], "shared", 1.0 / precision)
            self._keep_interrupted(replace(part, posterior=posterior), prepared, budget)
            raise
        if hinge and not (fit.converged or budget.cut):
            self._warn_not_converged()
        calibration = part.calibration
        if calibration == {} and hinge:
            calibration = self._calibrate(*self._own_scores(prepared, made, fit.W))
        return replace(
            part, posterior=posterior, calibration=calibration, value=fit.value,
            converged=fit.converged,
        )  # fmt: skip

    def _warn_not_converged(self) -> None:
        warnings.warn(
            f"the weights are not known to be within tol={self.tol:g} of the optimum with "
            f"max_iter={self.max_iter}; raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=5,
        )

    # -- experts ------------------------------------------------------------------------
    def _with_verdict(self, part: Particle, verdict: float) -> Particle:
        if self.posterior_scale != "auto":
            return part
        return replace(part, choice=replace(part.choice, spread=verdict))

    def _common(self, part: Particle, n_learned: int) -> Common:
        if part.posterior is None or not isinstance(part.map, LandmarkMap):
            raise TypeError("experts correct a fitted machine with landmarks")
        return Common(part.map, part.posterior, self._head_loss())

    def _sample_weights(
        self,
        prepared: Prepared,
        made: KernelMap,
        prior: Prior,
        start: Array | HeadState,
        watch: KeptWeights,
    ) -> Array:
        """Weights for the sample, its rows weighing as much as all rows do."""
        sample, n_rows = prepared.sample, watch.place[-1]
        weight = np.ones(sample.n) if sample.weight is None else sample.weight
        reduce = rows_in_memory(made(sample.X, np.float32), sample.y, weight * (n_rows / sample.n))
        near = HeadProblem(reduce, ready_features, self._head_loss(), prior)
        return fit_head(near, start, 10.0 * float(self.tol), int(self.max_iter), watch).W

    def _posterior(self, problem: HeadProblem, W: Array, precision: float) -> HeadPosterior:
        """Gaussian posterior; with a temperature the data count for less."""
        posterior = head_posterior(problem, W, 1.0 / precision)
        T = float(self.temperature)
        shift = np.zeros_like(W)
        if W.size <= MAX_JOINT and self.loss == "softmax":  # small: it costs little
            shift = T * mean_shift(problem, posterior)
        roots = posterior.roots * np.sqrt(T).astype(posterior.roots.dtype)
        outside = None if posterior.outside is None else T * posterior.outside
        return replace(
            posterior, roots=roots, prior_variance=T / precision, shift=shift, outside=outside
        )

    def _choose(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, budget: TimeBudget
    ) -> tuple[Choice, dict[str, Any]]:
        """Precision, scale and spread by held-out rows, as far as they are not given."""
        scales, loss, unit = prepared.scales, self._head_loss(), prepared.unit
        choice = start_choice(scales.noise, scales.amplitude)
        choice = replace(choice, precision=unit * choice.precision)
        if self.alpha != "auto":
            choice = replace(choice, precision=float(self.alpha))
        hinge, fixed = self.loss == "hinge", self.posterior_scale != "auto"
        spread = 0.0 if hinge else float(self.posterior_scale) if fixed else DEFAULT_SPREAD
        move_scale = bool(len(held)) and isinstance(self.gamma, str)
        if self.alpha != "auto" and not move_scale and (fixed and not hinge):
            return replace(choice, spread=spread), {}
        folds = self._folds(prepared, held, rng, budget)
        if not folds:
            return replace(choice, spread=spread), {}
        judge = Judge(folds, loss)
        kept = KeptJudge(judge, budget)
        limits, rounds = SEARCH_RANGE, N_ROUNDS
        if not len(held):
            limits, rounds = FEW_ROWS_RANGE, FEW_ROWS_ROUNDS
        limits = (unit * limits[0], unit * limits[1])
        choice = search(kept, choice, self.alpha == "auto", move_scale, kept.stop, rounds, limits)
        if hinge:
            seen = judge.held(choice)
            return choice, self._calibrate(seen.scores, seen.codes, seen.weight)
        if not fixed:
            seen = judge.held(choice)
            spread = choose_spread(seen.scores, seen.covariance, seen.codes, seen.weight)
        return replace(choice, spread=spread), {}

    def _calibrate(self, scores: Array, codes: Array, weight: Array | None) -> dict[str, Any]:
        return fit_calibration(scores, codes, weight)

    def _own_scores(
        self, prepared: Prepared, made: KernelMap, W: Array
    ) -> tuple[Array, Array, Array | None]:
        """Scores of the sample by the model itself, where rows are too few to hold out."""
        return made(prepared.sample.X) @ W, prepared.sample.y, prepared.sample.weight

    def _store(self, parts: list[Particle], standard: Any) -> None:
        """Fitted attributes: plain arrays."""
        posteriors = [part.posterior for part in parts if part.posterior is not None]
        self.maps_ = [part.map.to_arrays() for part in parts]
        self.experts_ = [part.experts.to_arrays() if part.experts else {} for part in parts]
        self.weights_ = [posterior.mean for posterior in posteriors]
        self.roots_ = [posterior.roots for posterior in posteriors]
        self.bases_ = [posterior.bases for posterior in posteriors]
        self.outside_ = [posterior.outside for posterior in posteriors]
        shifts = [posterior.shift for posterior in posteriors]
        self.mean_shift_ = [
            np.zeros_like(W) if shift is None else shift
            for W, shift in zip(self.weights_, shifts, strict=True)
        ]
        self.layout_ = posteriors[0].layout
        self.prior_variance_ = np.array([posterior.prior_variance for posterior in posteriors])
        self.calibration_ = [part.calibration for part in parts]
        self.alpha_ = np.array([part.choice.precision for part in parts])
        self.posterior_scale_ = np.array([part.choice.spread for part in parts])
        self.far_scores_, self.far_known_ = [part.far for part in parts], np.zeros(len(parts))
        self.gamma_ = np.asarray(self.maps_[0]["gamma"])
        self.input_spread_ = standard.spread()
        self.n_components_ = parts[0].map.n_features - 1
        self.objective_ = float(parts[0].value)
        self.converged_ = all(part.converged for part in parts)
        self.unfinished_ = parts[0].unfinished if self._n_particles() == 1 else {}
