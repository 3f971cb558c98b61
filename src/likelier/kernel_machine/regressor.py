"""`BayesianKernelRegressor`: kernel regression that tunes itself, with honest intervals."""

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
from likelier.kernel_machine.expert_fit import common_rows
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.extrapolation import far_spread
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.noise import GAUSSIAN_SHAPE, NoiseShape, noise_shape
from likelier.kernel_machine.number_experts import MANY_OTHERS
from likelier.kernel_machine.number_predictions import NumberPredictions
from likelier.kernel_machine.pieces import kept_rest, kept_sums
from likelier.kernel_machine.prepared import Prepared
from likelier.kernel_machine.recipe import HOLD_OUT_FROM
from likelier.kernel_machine.regression import (
    RATIO_RANGE,
    EpsilonLoss,
    RegressionJudge,
    Sums,
    Weights,
    fit_weights,
    left_out,
    solve_weights,
)
from likelier.kernel_machine.resume import KeptJudge, KeptWeights, PlainPart
from likelier.kernel_machine.search import Choice, search

N_ROUNDS = 5  # a closed form is cheap to try, and noise may be far below the evidence's floor


@dataclass(frozen=True)
class Particle(PlainPart):
    """One fitted set of hyperparameters and the weights that go with it."""

    records: ClassVar = {
        "choice": Choice, "weights": Weights, "sums": Sums, "shape": NoiseShape, "experts": Experts,
    }  # fmt: skip

    map: KernelMap
    landmarks: Array  # rows of the sample
    choice: Choice
    noise: float
    weights: Weights | None = None
    sums: Sums | None = None
    shape: NoiseShape = GAUSSIAN_SHAPE
    row: float = 1.0  # weight that counts as one row
    common_noise: float = 1.0  # of the machine without experts
    common_scale: float = 1.0  # what variances of the machine itself count for, beside experts
    experts: Experts | None = None
    far: float = 0.0  # spread of the target where nothing is known
    unfinished: dict[str, Any] = field(default_factory=dict)


class BayesianKernelRegressor(RegressorMixin, NumberPredictions):
    """Kernel regression with learned scales and noise: mean, intervals and quantiles.

    ``y = phi(x)^T w + b + noise`` on Nystroem features of ``exp(-1/2 sum_j gamma_j^2 (x_j -
    x'_j)^2)``: a Gaussian process whose scales climb the evidence on random subsets, whose ratio
    of noise to amplitude and common scale are checked on held-out rows, and whose weights have
    the exact posterior given those.

    Parameters
    ----------
    loss : {"gaussian", "epsilon_insensitive"}, default="gaussian"
        Likelihood. The second is robust to outliers and has no posterior of the weights: its
        intervals come from residuals of held-out rows.
    epsilon : float, default=0.1
        Half the width of the tube of "epsilon_insensitive", in units of the targets' spread.
    inference : {"evidence", "svgd", "stein_gaussian"}, default="evidence"
        "svgd" moves particles over weights and scales together (Stein variational gradient
        descent), "stein_gaussian" a mixture of Gaussians over them, which keeps its variance;
        see the notes.
    features : {"auto", "nystroem", "fourier", "identity"}, default="auto"
        Features of the kernel; "identity" is the linear case. "auto" is "nystroem" for the
        evidence, "fourier" for particles. Only those of "nystroem" vanish far from all data, so
        that predictions go back to the prior there. "fourier" waves on and "identity" goes on in
        a straight line: what they say far away, and how sure they are of it, means nothing.
    n_components : int or "auto", default="auto"
        Number of features; "auto" is a quarter of the rows, between 512 and 1536, and 256 for
        particles.
    gamma : "auto", float or array of shape (n_features,), default="auto"
        Inverse length scales in the units of the data; "auto" learns them.
    alpha : float or "auto", default="auto"
        Prior precision of the weights relative to that of the noise.
    temperature : float, default=1.0
        The data count for N / temperature observations.
    n_particles : int or "auto", default="auto"
        Fits with hyperparameters of their own, whose predictions are averaged: 1 by default.
        Particles of "svgd" (20), Gaussians of "stein_gaussian" (4).
    n_experts : int or "auto", default="auto"
        Local experts that correct the common machine, rounded down to a power of two; 0 for
        none. "auto", from 8,192 rows on and where gamma, alpha and n_components are "auto": one
        for every 1,024 rows, at most 512, if the log density of rows left out in some regions
        is the better for it. There are none, whatever the number, for more than 2,048 inputs,
        where no region holds four rows, and where the time is over before they are chosen.
    max_iter : int, default=100
        Largest number of steps of a fit that has no closed form; a step of particles is ten
        minibatches.
    tol : float, default=1e-4
        It stops when the next step is expected to decrease the objective by less than this share
        of it; all further steps together may gain more, some ten times that or above.
    early_stopping : bool, default=False
        Of "svgd" and "stein_gaussian": hold out rows. When their log-likelihood has not risen
        for twenty steps, the rate begins to fall; where it has fallen by more than its standard
        error, the fit stops, and the particles that were best count. By the evidence, rows held
        out choose the prior, and there is nothing to stop.
    validation_fraction : float, default=0.1
        Part of the rows that early stopping holds out, at most 2,048 of them.
    time_budget : float or None, default=None
        Seconds after which the fit ends with what it has. Some rows are timed, and no more
        features are made and rows learned than the time allows; experts are tried only if there
        is time for it, and where one has not been reached, the common machine predicts alone.
        However short it is, one step for the scales, one small fit of 384 features to judge by,
        and 512 features (as many as ``n_components``, where that is a number) of some 2,048 rows
        come first: a few tenths of a second of the processor, and about as much may a longer
        budget be exceeded.
    warm_start : bool, default=False
        Go on with a fit of the same rows that was interrupted, or ended by its time budget: the
        same as if it had not ended, to the last bit, also from a file in another process. With a
        budget, such a fit does what is left to do until time is over, at least one piece of it;
        what the pieces need and no fit can keep (features of all rows) is made again and not
        counted. Until it is finished, the model is an earlier one of fewer rows. A stream is read
        again, its rows in the same order; one that can be read once only is refused
        (``partial_fit`` goes on with those). A fit that was finished is done anew.
    n_jobs : int or None, default=None
        Threads for passes over the rows.
    random_state : int, RandomState or None, default=None
        Seeds subsets and landmarks. The same seed gives the same bits.
    verbose : int, default=0
        Print every step.

    Attributes
    ----------
    gamma_ : ndarray of shape (n_features,)
        Learned inverse length scales in the units of the data (of the first fit of an
        ensemble; geometric mean of particles).
    feature_relevance_ : ndarray of shape (n_features,)
        Share of every input in the scales.
    noise_ : ndarray of shape (n_particles,)
        Standard deviation of the noise, in the units of the target.
    noise_centres_, noise_widths_, noise_shares_ : lists of ndarray
        The noise is a symmetric mixture of Gaussians: their centres and widths, as multiples of
        the standard deviation, and their shares, learned from residuals of rows left out.
    alpha_ : ndarray of shape (n_particles,)
        Ratio of noise to amplitude that was chosen.
    experts_ : list of dict
        Local experts of every particle, as arrays; empty where there are none.
    common_noise_, common_scale_ : ndarray of shape (n_particles,)
        Variance of the noise of the common machine alone, for targets of unit variance, and the
        factor of its own variances beside experts.
    far_spread_ : ndarray of shape (n_particles,)
        Least standard deviation of the target far from all landmarks, for targets of unit
        variance: that of a Gaussian whose interval of 90% covers as many of them.
    far_known_ : ndarray of shape (n_particles,)
        How much the constant is believed there all the same: zero unless ``partial_fit`` has met
        rows far from all landmarks.
    unfinished_ : dict
        What ``warm_start`` needs to go on; empty where the fit was finished.

    Notes
    -----
    Cost: the scales as in `BayesianKernelClassifier`, then one pass of ``rows x components x
    (inputs + components)`` and ``components^3``. Experts are tried at about the same cost again:
    up to 50,000 rows are left out of the common machine one by one in a second such pass, and
    all rows cost ``landmarks x (inputs + landmarks)``, landmarks being 256 to 512. Of more rows
    the common machine learns 50,000, and each further one costs ``components x inputs`` and its
    expert. Memory does not depend on the number of rows of a stream.

    "svgd" and "stein_gaussian" cost ``20 max_iter`` gradients of all particles on 256 rows: a
    first fit tells the noise by rows held out. They have no ``partial_fit``, no
    ``score_samples``, no iterators that can be read once only, and ``gamma`` must be "auto". In
    many dimensions the particles of "svgd" are an ensemble of nearly equal fits, not draws.

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
                "y must hold numbers for regression; for labels use BayesianKernelClassifier"
            ) from None
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity; leave those rows out")
        if not np.abs(y).max(initial=0.0) < LARGEST:
            raise ValueError(
                f"y holds numbers whose squares overflow, beyond {LARGEST:g}; rescale y"
            )
        return y

    def _encode(self, y: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """Targets of mean zero and unit variance."""
        omega = np.ones(len(y)) if weight is None else weight
        mean = float(omega @ y / omega.sum())
        spread = float(np.sqrt(omega @ (y - mean) ** 2 / omega.sum()))
        if not spread > 1.0 / LARGEST and np.ptp(y) > 0.0 and not np.ptp(y) > 1.0 / LARGEST:
            raise ValueError(
                f"y holds numbers whose squares vanish, within {1 / LARGEST:g}; rescale y"
            )
        self._set_units(mean, spread)
        return (y - self.target_mean_) / self.target_spread_, weight

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
        choice, noise = self._chosen(prepared, held, rng, budget)
        made, landmarks = self._final_map(prepared, choice.scale, n_rows, rng, budget)
        far = far_spread(prepared.sample.y, prepared.sample.weight)
        part = Particle(made, landmarks, choice, noise, far=far)
        if self._has_experts(n_rows, made):
            learned: Particle = self._learn_with_experts(
                engine, prepared, part, n_rows, rng, budget
            )
            return learned
        loss = self._epsilon_loss()
        if loss is not None:
            choice = replace(choice, precision=float(self.temperature) * choice.precision)
            n_few = self._rows_in_time(prepared, made, n_rows, budget)
            if n_few < n_rows:
                n_few = n_few if engine.in_memory else min(n_few, common_rows(self.n_features_in_))
                engine, _ = self._few(engine, n_few, n_rows)
            with budget.aside("weights"):
                rows, features = self._features(engine, made, n_few)
            limits = (float(self.tol), int(self.max_iter))
            watch = KeptWeights(budget, "weights", [choice.precision, choice.scale, n_few])
            start = watch.start(np.zeros((made.n_features, 1)))
            weights = fit_weights(rows.reduce, features, loss, choice, start, watch, limits)
            return replace(part, choice=choice, weights=weights)
        engine, sample = self._in_time(engine, prepared.sample, made, n_rows, budget)
        return self._solve(engine, sample, prepared.unit, part, budget)

    def _learn_weights(
        self, engine: Engine, prepared: Prepared, part: Particle, n_rows: int, budget: TimeBudget
    ) -> Particle:
        """Weights from all rows of the engine, the noise from no more than as many."""
        sample = prepared.sample.take(np.arange(min(prepared.sample.n, n_rows)))
        return self._solve(engine, sample, prepared.unit, part, budget)

    def _solve(
        self, engine: Engine, sample: Rows, unit: float, part: Particle, budget: TimeBudget
    ) -> Particle:
        """Weights in closed form, and the noise by rows of the sample left out one by one."""
        made, T = part.map, float(self.temperature)
        place: list[Any] = [part.choice.precision, part.choice.scale, int(engine.n_rows or 0)]
        place += [sample.n, made.n_features]
        of_sums, of_rest = (self._stage(name, place[2]) for name in ("sums", "left out"))
        sums = kept_sums(engine, made, (of_sums, place), budget)
        # a row at temperature T is a T-th of a row: for the mean, its covariance and the noise
        row = T * self._light_row(unit)
        choice = replace(part.choice, precision=part.choice.precision * T / row)
        sums = Sums(sums.gram / row, sums.cross / row, sums.weight / row)
        with budget.aside(of_rest):
            weights = solve_weights(sums, choice.precision)
        omega = (np.ones(sample.n) if sample.weight is None else sample.weight) / row

        def leave(rows: slice) -> Array:
            Phi = made(slice_rows(sample.X, rows.start, rows.stop), np.float64)
            return left_out(weights, Phi, sample.y[rows], omega[rows], made.residual(Phi))

        rest = kept_rest(sample.n, leave, (of_rest, place), budget)
        others = np.setdiff1d(np.arange(sample.n), part.landmarks)
        if len(others) >= MANY_OTHERS:  # the features were not made for them, nor for new rows
            rest, omega = rest[others], omega[others]
        noise = max(float(np.average(rest**2, weights=omega)), self._least_noise(sample))
        budget.tell("weights", f"noise {noise:.4g}")  # all is done: too late to be out of time
        shape = noise_shape(rest / np.sqrt(noise), omega)
        return replace(
            part, weights=weights, choice=choice, sums=sums, shape=shape, row=row,
            noise=noise * shape.variance, common_noise=noise * shape.variance,
        )  # fmt: skip

    def _choose(
        self, prepared: Prepared, held: Array, rng: np.random.Generator, budget: TimeBudget
    ) -> tuple[Choice, float]:
        """Ratio and scale by held-out rows, and the noise there."""
        scales = prepared.scales
        ratio = prepared.unit * float(np.clip(scales.noise / scales.amplitude, *RATIO_RANGE))
        limits = (prepared.unit * RATIO_RANGE[0], prepared.unit * RATIO_RANGE[1])
        if self.alpha != "auto":
            ratio = float(self.alpha)
        choice = Choice(ratio)  # the temperature comes after: a search would undo it
        folds = self._folds(prepared, held, rng, budget) if prepared.sample.n >= 6 else []
        if not folds:
            constant = np.ptp(prepared.sample.y) == 0.0  # such targets are in their own units
            return choice, self._least_noise(prepared.sample) if constant else scales.noise
        loss = self._epsilon_loss()
        judge = RegressionJudge(folds, loss)
        kept = KeptJudge(judge, budget)
        move_scale = prepared.sample.n >= HOLD_OUT_FROM and isinstance(self.gamma, str)
        automatic = self.alpha == "auto"
        choice = search(kept, choice, automatic, move_scale, kept.stop, N_ROUNDS, limits)
        if loss is None:
            return choice, scales.noise
        tempered = replace(choice, precision=float(self.temperature) * choice.precision)
        rest, _ = judge.residuals(tempered)
        return choice, float(judge.omega @ rest**2 / judge.omega.sum())

    def _store(self, parts: list[Particle], standard: Standard) -> None:
        """Fitted attributes: plain arrays."""
        weights = [part.weights for part in parts if part.weights is not None]
        self.maps_ = [part.map.to_arrays() for part in parts]
        self.experts_ = [part.experts.to_arrays() if part.experts else {} for part in parts]
        self.weights_ = [each.mean for each in weights]
        self.roots_ = [each.root for each in weights]
        self.ratio_ = np.array([each.ratio for each in weights])
        self.common_noise_ = np.array([part.common_noise for part in parts])
        self.common_scale_ = np.array([part.common_scale for part in parts])
        self.far_spread_ = np.array([part.far for part in parts])
        self.far_known_ = np.zeros(len(parts))
        self.alpha_ = np.array([part.choice.precision for part in parts])
        self.noise_ = np.sqrt([part.noise for part in parts]) * self.target_spread_
        self._store_shapes([part.shape for part in parts])
        self.gamma_ = np.asarray(self.maps_[0]["gamma"])
        self.input_spread_ = standard.spread()
        self.n_components_ = parts[0].map.n_features - 1
        sums = parts[0].sums
        self.sums_weight_, self.row_weight_ = 0.0 if sums is None else sums.weight, parts[0].row
        self.unfinished_ = parts[0].unfinished if self._n_particles() == 1 else {}
        if hasattr(self, "stream_") and sums is not None:
            self.stream_["sums"] = vars(sums).copy()
