"""Classes: softmax or hinge scores, a Gaussian posterior of the weights, held-out calibration."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from likelier.base import Array, Engine, Loss
from likelier.fitting.dataset import local_engine
from likelier.fitting.duplicates import settle_few
from likelier.fitting.monitor import Monitor
from likelier.fitting.probabilities import fit_calibration
from likelier.fitting.rows import Rows
from likelier.kernel_machine.batches import State, absorb_classes, class_state
from likelier.kernel_machine.class_experts import CorrectedClasses
from likelier.kernel_machine.class_posterior import ClassPosterior
from likelier.kernel_machine.evidence import Plan, Scales
from likelier.kernel_machine.expert_model import Experts
from likelier.kernel_machine.features import KernelMap, LandmarkMap
from likelier.kernel_machine.integrate import choose_posterior_scale
from likelier.kernel_machine.laplace import laplace_posterior
from likelier.kernel_machine.search import (
    BLOCK_ROWS,
    PRECISION_RANGE,
    Choice,
    ClassValidator,
    Fold,
    Search,
    class_frequencies,
    output_precision,
    search,
    start_precision,
    weight_prior,
)
from likelier.kernel_machine.task import Chosen, Problem, Task
from likelier.kernel_machine.weight_posterior import WeightPosterior
from likelier.kernel_machine.weights import (
    HINGE_SHARPNESS,
    ClassLoss,
    FeatureRows,
    Prior,
    SolverState,
    WeightProblem,
    WeightSolver,
    fit_weights,
    ridge,
    solve,
)
from likelier.losses import MulticlassHinge, Softmax

# Labels carry less information about scales than continuous targets; longer ascents overfit.
FEW_ROWS, FEW_ROWS_PLAN = 1000, Plan(((12, 200), (8, 400)))
# Few rows cannot distinguish weak priors, which would hurt on rows unlike them; but trials are
# cheap there, and the evidence can be far off.
SEARCH_RANGE, N_ROUNDS = (0.0015, 5.0), 2
FEW_ROWS_RANGE, FEW_ROWS_ROUNDS = (PRECISION_RANGE[0], SEARCH_RANGE[1]), 4
DEFAULT_POSTERIOR_SCALE = 0.1  # for samples too small to hold out rows
HINGE_STEPS = 3  # hinge steps per step of a smooth loss: kinks make them short
BUDGET_ROWS = 2048  # that any fit learns, however little time it has
START_TOL = 10.0  # of the start on a sample, relative to that of the fit
N_PASSES, N_GRAMS = 8, 3  # typical of an optimisation


@dataclass(frozen=True)
class Uncertainty:
    """Factor of the posterior covariance, or a calibration of the scores in its place."""

    posterior_scale: float
    calibration: dict[str, Any]


@dataclass(frozen=True)
class ClassTask(Task):
    """A classifier's side of a fit.

    Parameters
    ----------
    n_classes : int
    hinge : bool
    alpha, posterior_scale : float, optional
        None to choose them.
    temperature, tol : float
    max_iter : int
    """

    min_expert_rows: ClassVar[int] = 20_000

    n_classes: int
    hinge: bool = False
    alpha: float | None = None
    posterior_scale: float | None = None
    temperature: float = 1.0
    tol: float = 1e-3
    max_iter: int = 100

    @property
    def loss(self) -> ClassLoss:
        """Loss of the scores."""
        if self.hinge:
            return ClassLoss(self.n_classes, 1.0, HINGE_SHARPNESS)
        return ClassLoss(self.n_classes)

    @property
    def particle_loss(self) -> Loss:
        return MulticlassHinge() if self.hinge else Softmax()

    def merged(self, rows: Rows) -> Rows:
        return settle_few(rows)

    def strata(self, y: Array) -> Array:
        return y

    def columns(self, y: Array) -> Array:
        """One column of ``+-1`` for two classes, else one-hot columns."""
        if self.n_classes == 2:
            return np.where(y > 0.5, 1.0, -1.0)[:, None]
        return np.eye(self.n_classes)[y.astype(np.intp)]

    def plan(self, n_rows: int) -> Plan:
        return FEW_ROWS_PLAN if n_rows < FEW_ROWS else Plan()

    # -- hyperparameters ----------------------------------------------------------------
    def choose(
        self, folds: list[Fold], scales: Scales, unit: float, move_scale: bool, monitor: Monitor
    ) -> Chosen:
        precision = unit * start_precision(scales.noise, scales.amplitude)
        choice = Choice(precision if self.alpha is None else self.alpha)
        given = self.posterior_scale
        default = 0.0 if self.hinge else DEFAULT_POSTERIOR_SCALE if given is None else given
        nothing_open = self.alpha is not None and not move_scale and not self.hinge
        if not folds or (nothing_open and given is not None):
            return Chosen(choice, Uncertainty(default, {}))
        validator = ClassValidator(folds, self.loss)
        limits, n_rounds = SEARCH_RANGE, N_ROUNDS
        if len(folds) > 1:
            limits, n_rounds = FEW_ROWS_RANGE, FEW_ROWS_ROUNDS
        limits = (unit * limits[0], unit * limits[1])
        options = Search(self.alpha is None, move_scale and len(folds) == 1, n_rounds, limits)
        choice = search(validator, choice, options, monitor)
        if given is not None and not self.hinge:
            return Chosen(choice, Uncertainty(given, {}))
        held = validator.held(choice)
        if self.hinge:
            found = fit_calibration(held.scores, held.codes, held.weight)
            return Chosen(choice, Uncertainty(0.0, found))
        scale = choose_posterior_scale(held.scores, held.covariance, held.codes, held.weight)
        return Chosen(choice, Uncertainty(scale, {}))

    # -- weights ------------------------------------------------------------------------
    def learn(self, problem: Problem, monitor: Monitor) -> ClassPosterior:
        loss, sample, feature_map = self.loss, problem.sample, problem.map
        precision = output_precision(problem.chosen.choice.precision, loss) * self.temperature
        frequencies = class_frequencies(sample.y, sample.weight, loss.n_classes)
        start = loss.start(feature_map.n_features, frequencies)
        # the hinge starts at zero, but extrapolates to the class frequencies
        outside = replace(loss, margin=0.0).start(1, frequencies)[-1]
        rows = self._rows(problem.engine, problem, precision, start)
        fit = self._optimum(problem, rows, start, monitor)
        name = f"posterior of {problem.stage}"
        posterior = monitor.stage(name, lambda: self._posterior(rows, fit.W, precision))
        if self.hinge and not (fit.converged or monitor.over):
            warnings.warn(
                f"the weights did not converge to tol={self.tol:g} within max_iter="
                f"{self.max_iter}; increase max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        found: Uncertainty = problem.chosen.uncertainty
        calibration = found.calibration
        if self.hinge and not calibration:  # no rows were held out
            scores = feature_map(sample.X) @ fit.W
            calibration = fit_calibration(scores, sample.y, sample.weight)
        return ClassPosterior(
            feature_map, posterior, found.posterior_scale, outside, 0.0, calibration, None,
            loss.n_classes, float(fit.value), fit.converged,
        )  # fmt: skip

    def _rows(
        self, engine: Engine, problem: Problem, precision: float, start: Array
    ) -> WeightProblem:
        features = engine.map_rows(FeatureRows(problem.map))
        prior = weight_prior(problem.map, precision, start)
        return WeightProblem(engine, features, self.loss, prior, certify=self.hinge)

    def _optimum(
        self, problem: Problem, rows: WeightProblem, start: Array, monitor: Monitor
    ) -> SolverState:
        """Weights of all rows; the start are those of the sample where it is far smaller.

        With a time budget the start are those of few rows, which are there whatever time is left.
        """
        sample, n_rows = problem.sample, int(problem.engine.n_rows or 0)
        if monitor.left is not None:
            sample = sample.take(np.arange(min(sample.n, BUDGET_ROWS)))
        if n_rows > sample.n or monitor.left is not None:
            weight = sample.omega * (n_rows / sample.n)
            few = local_engine(sample.X, sample.y, weight, 0, problem.engine.n_jobs, False)
            with few:
                features = few.map_rows(FeatureRows(problem.map))
                on_sample = replace(rows, engine=few, features=features)
                tol, name = START_TOL * self.tol, f"start of {problem.stage}"
                start = monitor.stage(
                    name, lambda: fit_weights(on_sample, start, tol, self.max_iter).W
                )
        solver = WeightSolver(rows, self.tol)
        n_steps = self.max_iter * (HINGE_STEPS if self.hinge else 1)
        return solve(solver, start, n_steps, problem.stage, monitor)

    def _posterior(self, rows: WeightProblem, W: Array, precision: float) -> WeightPosterior:
        """Gaussian posterior, tempered by ``temperature``."""
        posterior, T = laplace_posterior(rows, W, 1.0 / precision), self.temperature
        roots = posterior.roots * np.sqrt(T).astype(posterior.roots.dtype)
        outside = None if posterior.outside is None else T * posterior.outside
        variance = T / precision
        return replace(posterior, roots=roots, prior_variance=variance, outside=outside)

    def row_seconds(self, feature_map: KernelMap, rows: Rows) -> float:
        engine = local_engine(rows.X, rows.y, rows.weight, 0, 1, False, BLOCK_ROWS)
        begin = time.perf_counter()
        Phi = engine.map_rows(FeatureRows(feature_map))
        W = np.zeros((feature_map.n_features, self.loss.n_outputs))
        problem = WeightProblem(engine, Phi, self.loss, Prior(ridge(len(W), 1.0)))
        problem.value_gradient(W)
        first = time.perf_counter()
        problem.value_gradient(W)
        second = time.perf_counter()
        problem.gram(W)
        gram = time.perf_counter() - second
        seconds = (first - begin) + N_PASSES * (second - first)
        return (seconds + (N_GRAMS + self.loss.n_outputs) * gram) / rows.n

    # -- local experts ------------------------------------------------------------------
    @property
    def allows_experts(self) -> bool:
        return not self.hinge and self.temperature == 1.0

    def corrected(
        self, posterior: ClassPosterior, problem: Problem, learned: bool
    ) -> CorrectedClasses:
        assert isinstance(posterior.map, LandmarkMap)
        return CorrectedClasses(posterior.map, posterior.weights, self.loss)

    def with_experts(
        self, posterior: ClassPosterior, experts: Experts, uncertainty: float
    ) -> ClassPosterior:
        scale = uncertainty if self.posterior_scale is None else self.posterior_scale
        return replace(posterior, experts=experts, posterior_scale=scale)

    # -- further rows -------------------------------------------------------------------
    def continued(self, posterior: ClassPosterior) -> State:
        return class_state(posterior)

    def absorb(
        self, posterior: ClassPosterior, state: State, rows: Rows
    ) -> tuple[ClassPosterior, State]:
        rows = replace(rows, weight=rows.omega / self.temperature)
        return absorb_classes(self.loss, (self.tol, self.max_iter), posterior, state, rows)
