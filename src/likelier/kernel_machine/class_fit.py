"""Fitting of kernel classifiers: targets, weights, local experts and fitted attributes."""

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
from likelier.kernel_machine.cost_model import TIME_FRACTION, affordable_rows, weights_cost
from likelier.kernel_machine.evidence import Plan, Scales
from likelier.kernel_machine.expert_fit import N_TRIAL, GlobalClassifier, global_rows, n_landmarks
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import KernelMap, LandmarkMap
from likelier.kernel_machine.integrate import choose_posterior_scale
from likelier.kernel_machine.laplace import (
    MAX_JOINT,
    WeightPosterior,
    laplace_posterior,
    mean_shift,
)
from likelier.kernel_machine.particle_posterior import ParticleState, class_loss
from likelier.kernel_machine.particles import Strength
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.recipe import HOLD_OUT_FROM
from likelier.kernel_machine.resume import CachedValidator, SavedPart, WeightsCheckpoint
from likelier.kernel_machine.search import (
    FEW_ROWS_RANGE,
    FEW_ROWS_ROUNDS,
    N_ROUNDS,
    SEARCH_RANGE,
    Choice,
    ClassValidator,
    class_frequencies,
    output_precision,
    search,
    start_choice,
    weight_prior,
)
from likelier.kernel_machine.softmax_weights import (
    HINGE_SHARPNESS,
    ClassLoss,
    Prior,
    WeightProblem,
    fit_output_weights,
    in_memory_reduction,
    stored_features,
)
from likelier.kernel_machine.weights_state import SolverState

# Labels carry less information about scales than continuous targets; longer ascents overfit.
FEW_ROWS_PLAN = Plan(((12, 200), (8, 400)))
DEFAULT_POSTERIOR_SCALE = 0.1  # for samples too small to hold out rows
HINGE_STEPS = 3  # hinge steps per step of a smooth loss: kinks make them short


@dataclass(frozen=True)
class Particle(SavedPart):
    """One set of hyperparameters with its fitted weights."""

    records: ClassVar = {"posterior": WeightPosterior, "choice": Choice, "experts": Experts}

    map: KernelMap
    posterior: WeightPosterior | None
    choice: Choice
    calibration: dict[str, Any]
    value: float
    converged: bool
    # scores without information from the data
    extrapolation_scores: Array = field(default_factory=lambda: np.zeros(1))
    experts: Experts | None = None
    checkpoint: dict[str, Any] = field(default_factory=dict)


class ClassFit(ClassPredictions):
    """Fitting of `BayesianKernelClassifier`."""

    _particle_type = Particle

    # -- targets ------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_no_missing_label(y)
        check_classification_targets(y)
        return y

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Class codes, and weights that include the class weights."""
        if hasattr(self, "stream_"):
            return super()._encode(y, weight)
        self._set_classes(np.unique(y))
        codes = class_codes(self.classes_, y)
        per_class = class_weights(self.class_weight, self.classes_, codes, weight)
        return codes, combine_weights(weight, per_class, codes)

    def _encoded(self, rows: Rows) -> Rows:
        codes, weight = self._encode(rows.y, rows.weight)  # classes may have weight zero
        return Rows(rows.X, codes, weight)

    def _set_classes(self, classes: Array) -> None:
        self.classes_ = require_two_classes(classes)

    def _n_classes(self) -> int:
        return len(self.classes_)

    def _strata(self, y: Array) -> Array:
        return y

    def _evidence_targets(self, y: Array) -> Array:
        """One column of ``+-1`` for two classes, else one-hot columns."""
        if self._n_classes() == 2:
            return np.where(y > 0.5, 1.0, -1.0)[:, None]
        return np.eye(self._n_classes())[y.astype(np.intp)]

    def _class_loss(self) -> ClassLoss:
        if self.loss == "hinge":
            return ClassLoss(self._n_classes(), 1.0, HINGE_SHARPNESS)
        return ClassLoss(self._n_classes())

    # -- particles ----------------------------------------------------------------------
    def _needs_hold_out(self) -> bool:
        return bool(self.loss == "hinge")

    def _particle_loss(self) -> Loss:
        return class_loss(self)

    def _particle_strength(self, scales: Scales) -> Strength:
        if self.alpha != "auto":
            return Strength(float(self.alpha))
        return Strength(start_choice(scales.noise, scales.amplitude).precision)

    def _calibrated_strength(
        self, posterior: ParticleState, held: Rows, strength: Strength
    ) -> Strength:
        scores = posterior.scores(held.X)
        omega = np.ones(held.n) if held.weight is None else held.weight
        # each row counts once, not once per particle
        weight = np.tile(omega / len(scores), len(scores))
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
        choice, calibration = self._resumable_choice(prepared, held, rng, budget)
        feature_map, _ = self._final_map(prepared, choice.scale, n_rows, rng, budget)
        part = Particle(feature_map, None, choice, calibration, np.nan, False)
        if self._tries_experts(n_rows, feature_map):
            learned: Particle = self._learn_with_experts(
                engine, prepared, part, n_rows, rng, budget
            )
            return learned
        n_few = self._affordable_rows(prepared, feature_map, n_rows, budget)
        if n_few < n_rows:
            if not engine.in_memory:
                n_few = min(n_few, global_rows(self.n_features_in_))
            engine, _ = self._subsample(engine, n_few, n_rows)
        return self._learn_weights(engine, prepared, part, n_few, budget)

    def _affordable_rows(
        self,
        prepared: Prepared,
        feature_map: KernelMap,
        n_rows: int,
        budget: TimeBudget,
        fraction: float = TIME_FRACTION,
    ) -> int:
        """Number of rows to learn the weights from; all without a time budget."""
        if budget.left is None:
            return n_rows
        row_cost = self._row_seconds(feature_map, prepared.sample) if budget.left else np.inf
        n_sample = prepared.sample.n
        # larger fits start from weights of the sample, which cost time too
        extra = n_sample if n_rows > n_sample else 0
        most = affordable_rows(budget, n_rows + extra, row_cost, fraction)
        if most >= n_rows + extra:
            return n_rows
        return most if most <= n_sample else max(most - n_sample, n_sample)

    def _row_seconds(self, feature_map: KernelMap, sample: Rows) -> float:
        return weights_cost(feature_map, sample, self._class_loss())

    def _trial_seconds(
        self, feature_map: KernelMap, sample: Rows, n_experts: int, n_learned: int
    ) -> float:
        """Cost of the first trial of the experts, before the budget is checked."""
        size = (n_landmarks(n_experts) / feature_map.n_features) ** 2
        return N_TRIAL * self._row_seconds(feature_map, sample) * size

    def _learn_weights(
        self, engine: Engine, prepared: Prepared, part: Particle, n_rows: int, budget: TimeBudget
    ) -> Particle:
        """Weights and their posterior from all rows of the engine."""
        loss, feature_map, choice = self._class_loss(), part.map, part.choice
        precision = output_precision(choice, loss) * float(self.temperature)
        signature = [choice.precision, choice.scale, n_rows]
        frequencies = class_frequencies(prepared.sample.y, prepared.sample.weight, loss.n_classes)
        weights = loss.start(feature_map.n_features, frequencies)
        # the hinge starts at zero, but extrapolates to the class frequencies
        part = replace(
            part, extrapolation_scores=replace(loss, margin=0.0).start(1, frequencies)[-1]
        )
        prior = weight_prior(feature_map, precision, weights)
        hinge = self.loss == "hinge"
        name = self._stage("weights", n_rows)
        checkpoint = WeightsCheckpoint(budget, name, signature)
        start = checkpoint.start(weights)
        if start is weights and n_rows > prepared.sample.n:  # warm start from the sample
            sample_checkpoint = WeightsCheckpoint(budget, self._stage("start", n_rows), signature)
            start = self._sample_weights(
                prepared, feature_map, prior, sample_checkpoint.start(weights), sample_checkpoint
            )
            # no checkpoint if the warm start was cut short
            checkpoint = WeightsCheckpoint(budget, name, signature)
        weights = start.W if isinstance(start, SolverState) else start
        with budget.aside(name):
            rows, features = self._features(engine, feature_map, n_rows)
        problem = WeightProblem(rows.reduce, features, loss, prior, certify=hinge)

        def monitor(state: SolverState) -> bool:
            nonlocal weights
            weights = state.W
            return checkpoint(state)

        try:
            most = HINGE_STEPS * int(self.max_iter) if hinge else int(self.max_iter)
            fit = fit_output_weights(problem, start, float(self.tol), most, monitor)
            posterior = self._posterior(problem, fit.W, precision)
        except KeyboardInterrupt:  # keep the current weights
            root = np.diag(prior.precision**-0.5).astype(np.float32)
            posterior = WeightPosterior(weights, root[None], "shared", 1.0 / precision)
            self._store_interrupted(replace(part, posterior=posterior), prepared, budget)
            raise
        if hinge and not (fit.converged or budget.cut):
            self._warn_not_converged()
        calibration = part.calibration
        if calibration == {} and hinge:
            calibration = self._calibrate(*self._own_scores(prepared, feature_map, fit.W))
        return replace(
            part, posterior=posterior, calibration=calibration, value=fit.value,
            converged=fit.converged,
        )  # fmt: skip

    def _warn_not_converged(self) -> None:
        warnings.warn(
            f"the weights did not converge to tol={self.tol:g} within max_iter={self.max_iter}; "
            "increase max_iter or tol",
            ConvergenceWarning,
            stacklevel=5,
        )

    # -- local experts ------------------------------------------------------------------
    def _with_uncertainty(self, part: Particle, uncertainty: float) -> Particle:
        if self.posterior_scale != "auto":
            return part
        return replace(part, choice=replace(part.choice, posterior_scale=uncertainty))

    def _global_model(self, part: Particle, n_learned: int) -> GlobalClassifier:
        if part.posterior is None or not isinstance(part.map, LandmarkMap):
            raise TypeError("local experts need a fitted global model with Nystroem features")
        return GlobalClassifier(part.map, part.posterior, self._class_loss())

    def _sample_weights(
        self,
        prepared: Prepared,
        feature_map: KernelMap,
        prior: Prior,
        start: Array | SolverState,
        monitor: WeightsCheckpoint,
    ) -> Array:
        """Weights fitted to the sample, reweighted to the size of all rows."""
        sample, n_rows = prepared.sample, monitor.signature[-1]
        weight = np.ones(sample.n) if sample.weight is None else sample.weight
        reduce = in_memory_reduction(
            feature_map(sample.X, np.float32), sample.y, weight * (n_rows / sample.n)
        )
        sample_problem = WeightProblem(reduce, stored_features, self._class_loss(), prior)
        return fit_output_weights(
            sample_problem, start, 10.0 * float(self.tol), int(self.max_iter), monitor
        ).W

    def _posterior(self, problem: WeightProblem, W: Array, precision: float) -> WeightPosterior:
        """Gaussian posterior, tempered by ``temperature``."""
        posterior = laplace_posterior(problem, W, 1.0 / precision)
        T = float(self.temperature)
        shift = np.zeros_like(W)
        if W.size <= MAX_JOINT and self.loss == "softmax":  # cheap for small problems
            shift = T * mean_shift(problem, posterior)
        roots = posterior.roots * np.sqrt(T).astype(posterior.roots.dtype)
        outside = None if posterior.outside is None else T * posterior.outside
        return replace(
            posterior, roots=roots, prior_variance=T / precision, shift=shift, outside=outside
        )

    def _choose(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, budget: TimeBudget
    ) -> tuple[Choice, dict[str, Any]]:
        """Choose precision, scale and posterior scale on held-out rows, unless given."""
        scales, loss, unit = prepared.scales, self._class_loss(), prepared.unit
        choice = start_choice(scales.noise, scales.amplitude)
        choice = replace(choice, precision=unit * choice.precision)
        if self.alpha != "auto":
            choice = replace(choice, precision=float(self.alpha))
        hinge, fixed = self.loss == "hinge", self.posterior_scale != "auto"
        posterior_scale = (
            0.0 if hinge else float(self.posterior_scale) if fixed else DEFAULT_POSTERIOR_SCALE
        )
        move_scale = bool(len(held)) and isinstance(self.gamma, str)
        if self.alpha != "auto" and not move_scale and (fixed and not hinge):
            return replace(choice, posterior_scale=posterior_scale), {}
        folds = self._folds(prepared, held, rng, budget)
        if not folds:
            return replace(choice, posterior_scale=posterior_scale), {}
        validator = ClassValidator(folds, loss)
        cached = CachedValidator(validator, budget)
        limits, rounds = SEARCH_RANGE, N_ROUNDS
        if not len(held):
            limits, rounds = FEW_ROWS_RANGE, FEW_ROWS_ROUNDS
        limits = (unit * limits[0], unit * limits[1])
        choice = search(
            cached, choice, self.alpha == "auto", move_scale, cached.stop, rounds, limits
        )
        if hinge:
            seen = validator.held(choice)
            return choice, self._calibrate(seen.scores, seen.codes, seen.weight)
        if not fixed:
            seen = validator.held(choice)
            posterior_scale = choose_posterior_scale(
                seen.scores, seen.covariance, seen.codes, seen.weight
            )
        return replace(choice, posterior_scale=posterior_scale), {}

    def _calibrate(self, scores: Array, codes: Array, weight: Array | None) -> dict[str, Any]:
        return fit_calibration(scores, codes, weight)

    def _own_scores(
        self, prepared: Prepared, feature_map: KernelMap, W: Array
    ) -> tuple[Array, Array, Array | None]:
        """In-sample scores, for samples too small to hold out rows."""
        return feature_map(prepared.sample.X) @ W, prepared.sample.y, prepared.sample.weight

    def _store(self, parts: list[Particle], standard: Any) -> None:
        """Set fitted attributes, as plain arrays."""
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
        self.posterior_scale_ = np.array([part.choice.posterior_scale for part in parts])
        self.extrapolation_scores_ = [part.extrapolation_scores for part in parts]
        self.extrapolation_trust_ = np.zeros(len(parts))
        self.gamma_ = np.asarray(self.maps_[0]["gamma"])
        self.input_scale_ = standard.spread()
        self.n_components_ = parts[0].map.n_features - 1
        self.objective_ = float(parts[0].value)
        self.converged_ = all(part.converged for part in parts)
        self.checkpoint_ = parts[0].checkpoint if self._n_particles() == 1 else {}
