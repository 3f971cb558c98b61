"""`BayesianKernelClassifier`: a kernel classifier that tunes itself and knows what it knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite

from likelier.base import Array, Engine, Loss
from likelier.estimators.kernel_fit import HOLD_OUT_FROM, Prepared, Rows
from likelier.estimators.kernel_particles import ParticleState, Strength
from likelier.estimators.kernel_predict import ClassPredictions
from likelier.estimators.kernel_words import Clock, _number_or_auto
from likelier.estimators.probabilities import fit_calibration
from likelier.estimators.targets import class_codes, class_weights, combine_weights
from likelier.inference.evidence import Plan, Scales
from likelier.inference.kernel_search import (
    FEW_ROWS_RANGE,
    SEARCH_RANGE,
    Choice,
    Judge,
    class_shares,
    head_prior,
    output_precision,
    search,
    start_choice,
)
from likelier.inference.laplace import (
    MAX_JOINT,
    HeadPosterior,
    choose_spread,
    head_posterior,
    mean_shift,
)
from likelier.inference.softmax_head import (
    HINGE_SHARPNESS,
    HeadLoss,
    HeadProblem,
    fit_head,
    ready_features,
    rows_in_memory,
)
from likelier.losses import MulticlassHinge, Softmax
from likelier.models.kernel_machine import KernelMap

# Few labels tell less about scales than as many numbers: longer climbs fit their accidents.
FEW_ROWS_PLAN = Plan(((12, 200), (8, 400)))
DEFAULT_SPREAD = 0.1  # where rows are too few to hold any out


@dataclass(frozen=True)
class Particle:
    """One fitted set of hyperparameters and the weights that go with it."""

    map: KernelMap
    posterior: HeadPosterior
    choice: Choice
    calibration: dict[str, Any]
    value: float
    converged: bool


class BayesianKernelClassifier(ClassifierMixin, ClassPredictions):
    """Kernel classifier with learned scales, no tuning, and probabilities to be trusted.

    Scores are ``phi(x)^T W + b`` on Nystroem features of ``exp(-1/2 sum_j gamma_j^2 (x_j -
    x'_j)^2)``. The scales ``gamma_j`` climb the evidence of a Gaussian process on random
    subsets; prior precision and common scale are checked on held-out rows; the weights
    minimise ``sum_i omega_i loss_i + alpha/2 |W|^2`` on all rows and have a Gaussian posterior.

    Parameters
    ----------
    loss : {"softmax", "hinge"}, default="softmax"
        Likelihood. "hinge" (multiclass, its maximum rounded) has no likelihood of its own:
        its probabilities are calibrated on held-out rows, and its weights have no posterior.
    inference : {"evidence", "svgd", "stein_gaussian"}, default="evidence"
        "svgd" moves particles over weights and scales together (Stein variational gradient
        descent), "stein_gaussian" a mixture of Gaussians over them, which keeps its variance;
        see the notes.
    features : {"auto", "nystroem", "fourier", "identity"}, default="auto"
        Features of the kernel; "identity" is the linear case. "auto" is "nystroem" for the
        evidence, "fourier" for particles.
    n_components : int or "auto", default="auto"
        Number of features; "auto" is a quarter of the rows, between 512 and 1536, and 256 for
        particles.
    gamma : "auto", float or array of shape (n_features,), default="auto"
        Inverse length scales in the units of the data; "auto" learns them.
    alpha : float or "auto", default="auto"
        Prior precision of the weights of a class, for the sum of the losses: it is N times the
        ``alpha`` of the linear models.
    posterior_scale : float or "auto", default="auto"
        Factor of the posterior's covariance in predictions: 1 is the Gaussian posterior as it
        is; "auto" is what held-out rows like best, at least 0.01.
    temperature : float, default=1.0
        The data count for N / temperature observations.
    n_particles : int or "auto", default="auto"
        Fits with hyperparameters of their own, whose probabilities are averaged: 1 by default.
        Particles of "svgd" (20), Gaussians of "stein_gaussian" (4).
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.
    max_iter : int, default=100
        Largest number of steps for the weights; a step of particles is ten minibatches.
    tol : float, default=1e-3
        Stop when the expected decrease is this small relative to the objective.
    time_budget : float or None, default=None
        Seconds after which the fit ends with what it has.
    n_jobs : int or None, default=None
        Threads for passes over the rows.
    random_state : int, RandomState or None, default=None
        Seeds subsets and landmarks. The same seed gives the same bits.
    verbose : int, default=0
        Print every step.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    gamma_ : ndarray of shape (n_features,)
        Learned inverse length scales in the units of the data (of the first fit of an
        ensemble; geometric mean of particles).
    feature_relevance_ : ndarray of shape (n_features,)
        Share of every input in the scales.
    alpha_, posterior_scale_ : ndarray of shape (n_particles,)
        What was chosen.
    n_components_ : int
        Number of features, without the constant.
    n_iter_ : int

    Notes
    -----
    Cost: about 36 Cholesky factors of 300 to 640 rows for the scales whatever the number of
    rows, ten small fits for the hold-out, then ``rows x components x (inputs + components)``.
    Few rows (up to 2,000) give the same model in any order.

    "svgd" and "stein_gaussian" cost ``10 max_iter`` gradients of all particles on 256 rows, for
    "hinge" twice. They have no ``partial_fit``, no ``score_samples``, no iterators that can be
    read once only, and ``gamma`` and ``posterior_scale`` must be "auto". In many dimensions the
    particles of "svgd" are an ensemble of nearly equal fits, not draws from the posterior.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from likelier import BayesianKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BayesianKernelClassifier(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> far = model.predict_proba([[100.0, 100.0, 100.0, 100.0]])
    >>> bool(far.max() < 0.6)
    True
    """

    _losses = ("softmax", "hinge")

    def __init__(
        self,
        loss: str = "softmax",
        *,
        inference: str = "evidence",
        features: str = "auto",
        n_components: int | str = "auto",
        gamma: Any = "auto",
        alpha: float | str = "auto",
        posterior_scale: float | str = "auto",
        temperature: float = 1.0,
        n_particles: int | str = "auto",
        class_weight: Any = None,
        max_iter: int = 100,
        tol: float = 1e-3,
        time_budget: float | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.inference = inference
        self.features = features
        self.n_components = n_components
        self.gamma = gamma
        self.alpha = alpha
        self.posterior_scale = posterior_scale
        self.temperature = temperature
        self.n_particles = n_particles
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.tol = tol
        self.time_budget = time_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_words(self) -> None:
        super()._check_words()
        if self.posterior_scale != 0.0 or isinstance(self.posterior_scale, bool):
            _number_or_auto("posterior_scale", self.posterior_scale, 0.0)
        if self.inference != "evidence" and self.posterior_scale != "auto":
            raise ValueError(
                f'posterior_scale must be "auto" with inference={self.inference!r}: particles '
                "are averaged as they are"
            )

    # -- targets ------------------------------------------------------------------------
    def _check_y(self, y: Array) -> Array:
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        return y

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Class numbers, and weights that include the classes'."""
        if hasattr(self, "stream_"):
            return super()._encode(y, weight)
        self._set_classes(np.unique(y))
        codes = class_codes(self.classes_, y)
        if self.class_weight == "balanced" and weight is not None:
            # as many rows as the weights say, or equal rows would not be equal to a weight
            counts = np.bincount(codes.astype(np.intp), weight, len(self.classes_))
            per_class = counts.sum() / (len(counts) * counts)
        else:
            per_class = class_weights(self.class_weight, self.classes_, codes)
        return codes, combine_weights(weight, per_class, codes)

    def _set_classes(self, classes: Array) -> None:
        if len(classes) < 2:
            raise ValueError(
                f"y needs at least two classes to tell apart; the data hold {len(classes)} class"
            )
        self.classes_ = classes

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
        clock: Clock,
    ) -> Particle:
        loss = self._head_loss()
        choice, calibration = self._choose(prepared, held, rng, clock)
        made, _ = self._final_map(prepared, choice.scale, n_rows, rng)
        precision = output_precision(choice, loss) * float(self.temperature)
        rows, features = self._features(engine, made, n_rows)
        shares = class_shares(prepared.sample.y, prepared.sample.weight, loss.n_classes)
        latest = loss.start(made.n_features, shares)
        prior = head_prior(made, precision, latest)
        problem = HeadProblem(rows.reduce, features, loss, prior)

        def watch(W: Array, value: float, step: int) -> bool:
            nonlocal latest
            latest = W
            return clock.tick("weights", f"objective {value:.6g}")

        if n_rows > prepared.sample.n:  # most of the way by a sample, in few passes over all
            latest = self._sample_weights(prepared, made, problem, latest, n_rows)
        try:
            fit = fit_head(problem, latest, float(self.tol), int(self.max_iter), watch)
            posterior = self._posterior(problem, fit.W, precision)
        except KeyboardInterrupt:  # keep what has been learned so far
            root = np.diag(prior.precision**-0.5).astype(np.float32)
            posterior = HeadPosterior(latest, root[None], "shared", 1.0 / precision)
            part = Particle(made, posterior, choice, calibration, np.nan, False)
            self._store([part], prepared.standard)
            self.n_iter_ = clock.n_iter
            raise
        if calibration == {} and self.loss == "hinge":
            calibration = self._calibrate(*self._own_scores(prepared, made, fit.W))
        return Particle(made, posterior, choice, calibration, fit.value, fit.converged)

    def _sample_weights(
        self,
        prepared: Prepared,
        made: KernelMap,
        problem: HeadProblem,
        start: Array,
        n_rows: int,
    ) -> Array:
        """Weights for the sample, its rows weighing as much as all rows do."""
        sample = prepared.sample
        weight = np.ones(sample.n) if sample.weight is None else sample.weight
        reduce = rows_in_memory(made(sample.X, np.float32), sample.y, weight * (n_rows / sample.n))
        near = replace(problem, reduce=reduce, features=ready_features)
        return fit_head(near, start, 10.0 * float(self.tol), int(self.max_iter)).W

    def _posterior(self, problem: HeadProblem, W: Array, precision: float) -> HeadPosterior:
        """Gaussian posterior; with a temperature the data count for less."""
        posterior = head_posterior(problem, W, 1.0 / precision)
        T = float(self.temperature)
        shift = np.zeros_like(W)
        if W.size <= MAX_JOINT and self.loss == "softmax":  # small: it costs little
            shift = T * mean_shift(problem, posterior)
        roots = posterior.roots * np.sqrt(T).astype(posterior.roots.dtype)
        return replace(posterior, roots=roots, prior_variance=T / precision, shift=shift)

    def _choose(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, clock: Clock
    ) -> tuple[Choice, dict[str, Any]]:
        """Precision, scale and spread by held-out rows, as far as they are not given."""
        scales, loss = prepared.scales, self._head_loss()
        choice = start_choice(scales.noise, scales.amplitude)
        if self.alpha != "auto":
            choice = replace(choice, precision=float(self.alpha))
        hinge, fixed = self.loss == "hinge", self.posterior_scale != "auto"
        spread = 0.0 if hinge else float(self.posterior_scale) if fixed else DEFAULT_SPREAD
        move_scale = bool(len(held)) and isinstance(self.gamma, str)
        if self.alpha != "auto" and not move_scale and (fixed and not hinge):
            return replace(choice, spread=spread), {}
        folds = self._folds(prepared, held, rng)
        if not folds:
            return replace(choice, spread=spread), {}
        judge = Judge(folds, loss)
        limits = SEARCH_RANGE if len(held) else FEW_ROWS_RANGE
        choice = search(
            judge, choice, self.alpha == "auto", move_scale, lambda: clock.over, limits=limits
        )
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
        self.maps_ = [part.map.to_arrays() for part in parts]
        self.weights_ = [part.posterior.mean for part in parts]
        self.roots_ = [part.posterior.roots for part in parts]
        shifts = [part.posterior.shift for part in parts]
        self.mean_shift_ = [
            np.zeros_like(W) if shift is None else shift
            for W, shift in zip(self.weights_, shifts, strict=True)
        ]
        self.layout_ = parts[0].posterior.layout
        self.prior_variance_ = np.array([part.posterior.prior_variance for part in parts])
        self.calibration_ = [part.calibration for part in parts]
        self.alpha_ = np.array([part.choice.precision for part in parts])
        self.posterior_scale_ = np.array([part.choice.spread for part in parts])
        self.gamma_ = np.asarray(self.maps_[0]["gamma"])
        self.input_spread_ = standard.spread()
        self.n_components_ = parts[0].map.n_features - 1
        self.objective_ = float(parts[0].value)
        self.converged_ = all(part.converged for part in parts)
