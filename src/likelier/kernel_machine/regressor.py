"""`BayesianKernelRegressor`: kernel regression with automatic relevance determination."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from likelier.base import Array, Engine
from likelier.engines.rows import slice_rows
from likelier.fitting.parameters import check_above
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import LARGEST, Standard
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.expert_fit import global_rows
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.extrapolation import target_std
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.noise import GAUSSIAN_SHAPE, NoiseShape, noise_shape
from likelier.kernel_machine.partial_sums import resumable_residuals, resumable_sums
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.recipe import HOLD_OUT_FROM
from likelier.kernel_machine.regression import (
    RATIO_RANGE,
    EpsilonLoss,
    RegressionValidator,
    Sums,
    Weights,
    fit_tube_weights,
    left_out,
    solve_weights,
)
from likelier.kernel_machine.regression_experts import MIN_NOISE_ROWS
from likelier.kernel_machine.regression_predictions import RegressionPredictions
from likelier.kernel_machine.resume import CachedValidator, SavedPart, WeightsCheckpoint
from likelier.kernel_machine.search import Choice, search

N_ROUNDS = 5  # the closed form is cheap, and the noise may be far below the evidence's floor


@dataclass(frozen=True)
class Particle(SavedPart):
    """One set of hyperparameters with its fitted weights."""

    records: ClassVar = {
        "choice": Choice, "weights": Weights, "sums": Sums, "shape": NoiseShape, "experts": Experts,
    }  # fmt: skip

    map: KernelMap
    landmarks: Array  # indices into the sample
    choice: Choice
    noise: float
    weights: Weights | None = None
    sums: Sums | None = None
    shape: NoiseShape = GAUSSIAN_SHAPE
    row: float = 1.0  # weight that counts as one row
    global_noise: float = 1.0  # of the global model alone
    global_scale: float = 1.0  # factor of the global model's variances with experts
    experts: Experts | None = None
    extrapolation_std: float = 0.0  # predictive standard deviation out of support
    checkpoint: dict[str, Any] = field(default_factory=dict)


class BayesianKernelRegressor(RegressorMixin, RegressionPredictions):
    """Kernel regression with automatic relevance determination and predictive intervals.

    ``y = phi(x)^T w + b + noise`` on Nystroem features of ``exp(-1/2 sum_j gamma_j^2 (x_j -
    x'_j)^2)``: a Gaussian process whose scales maximise the evidence on random subsets, whose ratio
    of noise to amplitude and common scale are validated on held-out rows, and whose weights have
    the exact posterior given those.

    Parameters
    ----------
    loss : {"gaussian", "epsilon_insensitive"}, default="gaussian"
        Likelihood. "epsilon_insensitive" is robust to outliers and has no weight posterior; its
        intervals come from held-out residuals.
    epsilon : float, default=0.1
        Half-width of the tube of "epsilon_insensitive", in standard deviations of the targets.
    inference : {"evidence", "svgd", "stein_gaussian"}, default="evidence"
        "evidence": optimised hyperparameters and a Gaussian posterior of the weights. "svgd": Stein
        variational gradient descent over weights and scales. "stein_gaussian": a mixture of
        Gaussians over them, which keeps its variance.
    features : {"auto", "nystroem", "fourier", "identity"}, default="auto"
        Feature map; "identity" is the linear case. "auto" is "nystroem" for the evidence, "fourier"
        for particles. Only "nystroem" reverts to the prior far from the data; extrapolations of the
        others and their uncertainty are meaningless.
    n_components : int or "auto", default="auto"
        Number of features. "auto": a quarter of the rows, between 512 and 1536; 256 for particles.
    gamma : "auto", float or array of shape (n_features,), default="auto"
        Inverse length scales in the units of the data; "auto" learns them.
    alpha : float or "auto", default="auto"
        Prior precision of the weights relative to that of the noise.
    temperature : float, default=1.0
        The data count as N / temperature observations.
    n_particles : int or "auto", default="auto"
        Ensemble members whose predictions are averaged (1), particles of "svgd" (20), or Gaussians
        of "stein_gaussian" (4).
    n_experts : int or "auto", default="auto"
        Number of local models that correct the global one, rounded down to a power of two (0
        disables them). "auto", from 8,192 rows on and with automatic gamma, alpha and n_components:
        one per 1,024 rows, at most 512, if this raises the leave-one-out log density.
    max_iter : int, default=100
        Maximum number of steps of a fit without closed form; a step of particles is ten
        minibatches.
    tol : float, default=1e-4
        Stop when a step is expected to decrease the objective by less than this fraction; all
        further steps may gain ten times that or more.
    early_stopping : bool, default=False
        Stop "svgd" and "stein_gaussian" on held-out rows; see the notes.
    validation_fraction : float, default=0.1
        Fraction of the rows held out for early stopping, at most 2,048 rows.
    time_budget : float or None, default=None
        Seconds for the fit, which is then limited to fewer features, rows and experts; see the
        notes.
    warm_start : bool, default=False
        Resume a fit that was interrupted or ended by its time budget. The result is identical to an
        uninterrupted fit. A completed fit starts anew.
    n_jobs : int or None, default=None
        Threads for passes over the rows.
    random_state : int, RandomState or None, default=None
        Seed of subsets and landmarks; the same seed gives bit-identical results.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    gamma_ : ndarray of shape (n_features,)
        Learned inverse length scales in the units of the data (of the first ensemble member;
        geometric mean of particles).
    feature_relevance_ : ndarray of shape (n_features,)
        Squared relative scales of the inputs, summing to one.
    noise_ : ndarray of shape (n_particles,)
        Standard deviation of the noise, in the units of the target.
    noise_centres_, noise_widths_, noise_weights_ : lists of ndarray
        The noise is a symmetric mixture of Gaussians: centres and widths as multiples of the
        standard deviation, and mixture weights, fitted to leave-one-out residuals.
    alpha_ : ndarray of shape (n_particles,)
        Selected ratio of noise to amplitude.
    experts_ : list of dict
        Local experts of every ensemble member, as arrays; empty if there are none.
    global_noise_, global_scale_ : ndarray of shape (n_particles,)
        Noise variance of the global model alone, for targets of unit variance, and the factor of
        its variances where experts correct it.
    extrapolation_std_ : ndarray of shape (n_particles,)
        Lower bound of the predictive standard deviation out of support, for targets of unit
        variance: that of a Gaussian whose 90% interval covers as many of them.
    extrapolation_trust_ : ndarray of shape (n_particles,)
        Trust in the intercept out of support: zero unless ``partial_fit`` has seen such rows.
    checkpoint_ : dict
        State for ``warm_start``; empty after a completed fit.

    Notes
    -----
    Cost: the scales as in `BayesianKernelClassifier`, then one pass of
    ``rows x components x (inputs + components)`` and ``components^3``. Trying experts costs about
    the same again: a second such pass leaves out up to 50,000 rows of the global model one by one,
    and all rows cost ``landmarks x (inputs + landmarks)`` with 256 to 512 landmarks. The global
    model learns at most 50,000 rows, and each further one costs ``components x inputs`` and its
    expert. Memory does not depend on the length of a stream. There are no experts for more than
    2,048 inputs, or if no region has four rows.

    "svgd" and "stein_gaussian" cost ``20 max_iter`` gradients of all particles on 256 rows: a first
    fit estimates the noise on held-out rows. They need automatic ``gamma`` and do not support
    ``partial_fit``, ``score_samples`` or one-pass iterators. In many dimensions the particles of
    "svgd" are an ensemble of nearly equal fits, not draws from the posterior.

    Early stopping compares the log-likelihood of held-out rows every step. Without improvement for
    twenty steps the rate starts to decay; once it is worse than the best by more than its standard
    error, the fit stops with the best particles. Evidence fits use held-out rows for the prior and
    do not stop early.

    Time budget: some rows are timed, and features and rows are limited accordingly. Experts are
    tried only if there is time; regions that were not reached are predicted by the global model
    alone. Any fit includes at least one step for the scales, one validation fit of 384 features,
    and 512 features (``n_components`` if given) on about 2,048 rows: some tenths of a second, by
    which a longer budget may also be exceeded.

    Warm start: the checkpoint survives saving and loading. With a time budget a resumed fit
    completes at least one more piece of work; features are recomputed, at no charge to the budget.
    Until the fit is complete, the previous model predicts. Streams are read again in the same
    order; iterators that can be read only once are rejected (use ``partial_fit``).

    Examples
    --------
    >>> import numpy as np
    >>> from likelier import BayesianKernelRegressor
    >>> X = np.linspace(0.0, 6.0, 80)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = BayesianKernelRegressor(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.99
    True
    >>> mean, std = model.predict([[3.0], [60.0]], return_std=True)
    >>> bool(std[1] > 10.0 * std[0])
    True
    """

    _losses = ("gaussian", "epsilon_insensitive")
    _particle_type = Particle

    def __init__(
        self,
        loss: str = "gaussian",
        *,
        epsilon: float = 0.1,
        inference: str = "evidence",
        features: str = "auto",
        n_components: int | str = "auto",
        gamma: Any = "auto",
        alpha: float | str = "auto",
        temperature: float = 1.0,
        n_particles: int | str = "auto",
        n_experts: int | str = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        time_budget: float | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.epsilon = epsilon
        self.inference = inference
        self.features = features
        self.n_components = n_components
        self.gamma = gamma
        self.alpha = alpha
        self.temperature = temperature
        self.n_particles = n_particles
        self.n_experts = n_experts
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.time_budget = time_budget
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _validate_parameters(self) -> None:
        super()._validate_parameters()
        if self.epsilon != 0.0:
            check_above("epsilon", self.epsilon, 0.0)

    # -- targets ------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        try:
            y = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                "y must be numeric for regression; for labels use BayesianKernelClassifier"
            ) from None
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity; drop those rows")
        if not np.abs(y).max(initial=0.0) < LARGEST:
            raise ValueError(
                f"y contains values whose squares overflow (above {LARGEST:g}); rescale y"
            )
        return y

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Targets of mean zero and unit variance."""
        omega = np.ones(len(y)) if weight is None else weight
        mean = float(omega @ y / omega.sum())
        std = float(np.sqrt(omega @ (y - mean) ** 2 / omega.sum()))
        if not std > 1.0 / LARGEST and np.ptp(y) > 0.0 and not np.ptp(y) > 1.0 / LARGEST:
            raise ValueError(
                f"y contains values whose squares vanish (below {1 / LARGEST:g}); rescale y"
            )
        self._set_target_scale(mean, std)
        return (y - self.target_mean_) / self.target_scale_, weight

    def _evidence_targets(self, y: Array) -> Array:
        return y[:, None]

    # -- weights ------------------------------------------------------------------------
    def _epsilon_loss(self) -> EpsilonLoss | None:
        return None if self.loss == "gaussian" else EpsilonLoss(float(self.epsilon))

    def _learn_particle(
        self,
        engine: Engine,
        prepared: Prepared,
        held: Array,
        n_rows: int,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> Particle:
        choice, noise = self._resumable_choice(prepared, held, rng, budget)
        feature_map, landmarks = self._final_map(prepared, choice.scale, n_rows, rng, budget)
        extrapolation_std = target_std(prepared.sample.y, prepared.sample.weight)
        part = Particle(feature_map, landmarks, choice, noise, extrapolation_std=extrapolation_std)
        if self._tries_experts(n_rows, feature_map):
            learned: Particle = self._learn_with_experts(
                engine, prepared, part, n_rows, rng, budget
            )
            return learned
        loss = self._epsilon_loss()
        if loss is not None:
            choice = replace(choice, precision=float(self.temperature) * choice.precision)
            n_few = self._affordable_rows(prepared, feature_map, n_rows, budget)
            if n_few < n_rows:
                n_few = n_few if engine.in_memory else min(n_few, global_rows(self.n_features_in_))
                engine, _ = self._subsample(engine, n_few, n_rows)
            with budget.aside("weights"):
                rows, features = self._features(engine, feature_map, n_few)
            limits = (float(self.tol), int(self.max_iter))
            monitor = WeightsCheckpoint(budget, "weights", [choice.precision, choice.scale, n_few])
            start = monitor.start(np.zeros((feature_map.n_features, 1)))
            weights = fit_tube_weights(rows.reduce, features, loss, choice, start, monitor, limits)
            return replace(part, choice=choice, weights=weights)
        engine, sample = self._affordable_data(engine, prepared.sample, feature_map, n_rows, budget)
        return self._solve(engine, sample, prepared.unit, part, budget)

    def _learn_weights(
        self, engine: Engine, prepared: Prepared, part: Particle, n_rows: int, budget: TimeBudget
    ) -> Particle:
        """Weights from all rows of the engine, the noise from at most as many."""
        sample = prepared.sample.take(np.arange(min(prepared.sample.n, n_rows)))
        return self._solve(engine, sample, prepared.unit, part, budget)

    def _solve(
        self, engine: Engine, sample: Rows, unit: float, part: Particle, budget: TimeBudget
    ) -> Particle:
        """Weights in closed form, and the noise from leave-one-out residuals of the sample."""
        feature_map, T = part.map, float(self.temperature)
        signature: list[Any] = [part.choice.precision, part.choice.scale, int(engine.n_rows or 0)]
        signature += [sample.n, feature_map.n_features]
        of_sums, of_rest = (self._stage(name, signature[2]) for name in ("sums", "residuals"))
        sums = resumable_sums(engine, feature_map, (of_sums, signature), budget)
        # at temperature T a row counts as 1/T of a row: for the mean, its covariance and the noise
        row = T * self._row_unit(unit)
        choice = replace(part.choice, precision=part.choice.precision * T / row)
        sums = Sums(sums.gram / row, sums.cross / row, sums.weight / row)
        with budget.aside(of_rest):
            weights = solve_weights(sums, choice.precision)
        omega = (np.ones(sample.n) if sample.weight is None else sample.weight) / row

        def leave_out_block(rows: slice) -> Array:
            Phi = feature_map(slice_rows(sample.X, rows.start, rows.stop), np.float64)
            return left_out(weights, Phi, sample.y[rows], omega[rows], feature_map.residual(Phi))

        rest = resumable_residuals(sample.n, leave_out_block, (of_rest, signature), budget)
        others = np.setdiff1d(np.arange(sample.n), part.landmarks)
        if len(others) >= MIN_NOISE_ROWS:  # like new rows, these are not landmarks
            rest, omega = rest[others], omega[others]
        noise = max(float(np.average(rest**2, weights=omega)), self._min_noise(sample))
        budget.tell("weights", f"noise {noise:.4g}")  # log only: the fit is complete
        shape = noise_shape(rest / np.sqrt(noise), omega)
        return replace(
            part, weights=weights, choice=choice, sums=sums, shape=shape, row=row,
            noise=noise * shape.variance, global_noise=noise * shape.variance,
        )  # fmt: skip

    def _choose(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, budget: TimeBudget
    ) -> tuple[Choice, float]:
        """Choose ratio and scale on held-out rows; also return the noise there."""
        scales = prepared.scales
        ratio = prepared.unit * float(np.clip(scales.noise / scales.amplitude, *RATIO_RANGE))
        limits = (prepared.unit * RATIO_RANGE[0], prepared.unit * RATIO_RANGE[1])
        if self.alpha != "auto":
            ratio = float(self.alpha)
        choice = Choice(ratio)  # applied before the temperature, which the search would undo
        folds = self._folds(prepared, held, rng, budget) if prepared.sample.n >= 6 else []
        if not folds:
            constant = np.ptp(prepared.sample.y) == 0.0  # constant targets are not rescaled
            return choice, self._min_noise(prepared.sample) if constant else scales.noise
        loss = self._epsilon_loss()
        validator = RegressionValidator(folds, loss)
        cached = CachedValidator(validator, budget)
        move_scale = prepared.sample.n >= HOLD_OUT_FROM and isinstance(self.gamma, str)
        automatic = self.alpha == "auto"
        choice = search(cached, choice, automatic, move_scale, cached.stop, N_ROUNDS, limits)
        if loss is None:
            return choice, scales.noise
        tempered = replace(choice, precision=float(self.temperature) * choice.precision)
        rest, _ = validator.residuals(tempered)
        return choice, float(validator.omega @ rest**2 / validator.omega.sum())

    def _store(self, parts: list[Particle], standard: Standard) -> None:
        """Set fitted attributes, as plain arrays."""
        weights = [part.weights for part in parts if part.weights is not None]
        self.maps_ = [part.map.to_arrays() for part in parts]
        self.experts_ = [part.experts.to_arrays() if part.experts else {} for part in parts]
        self.weights_ = [each.mean for each in weights]
        self.roots_ = [each.root for each in weights]
        self.ratio_ = np.array([each.ratio for each in weights])
        self.global_noise_ = np.array([part.global_noise for part in parts])
        self.global_scale_ = np.array([part.global_scale for part in parts])
        self.extrapolation_std_ = np.array([part.extrapolation_std for part in parts])
        self.extrapolation_trust_ = np.zeros(len(parts))
        self.alpha_ = np.array([part.choice.precision for part in parts])
        self.noise_ = np.sqrt([part.noise for part in parts]) * self.target_scale_
        self._store_shapes([part.shape for part in parts])
        self.gamma_ = np.asarray(self.maps_[0]["gamma"])
        self.input_scale_ = standard.spread()
        self.n_components_ = parts[0].map.n_features - 1
        sums = parts[0].sums
        self.sums_weight_, self.row_weight_ = 0.0 if sums is None else sums.weight, parts[0].row
        self.checkpoint_ = parts[0].checkpoint if self._n_particles() == 1 else {}
        if hasattr(self, "stream_") and sums is not None:
            self.stream_["sums"] = vars(sums).copy()
