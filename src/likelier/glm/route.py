"""Fitting of a linear model: selection of the algorithm (route), and its iterations.

``solver="auto"`` takes the cheapest route that reaches the optimum; stochastic passes find
their rate by a search on a sample:

==========  ====================================================================
newton      few features: Newton's method by sums over rows
interior    few features, a loss with kinks, local rows: interior point method
lbfgs       a medium number of features, smooth loss: preconditioned L-BFGS
dual        many features, L2 penalty, local rows: dual coordinate ascent
active_set  many features, L1 penalty, smooth loss: proximal Newton steps on an
            active set
sgd         all other cases: averaged SGD with the selected rate; convergence is
            not verified
==========  ====================================================================

Rows are local where they are in the memory of this process; an inference that is ``local_only`` is
taken nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info
from likelier.fitting.monitor import Monitor
from likelier.fitting.run import run
from likelier.glm.active_set import ActiveSet
from likelier.glm.certificate import Certificate, certify
from likelier.glm.dual import Dual
from likelier.glm.gap import gap_at
from likelier.glm.interior import Interior
from likelier.glm.interior_classes import ClassInterior
from likelier.glm.lbfgs import LBFGS
from likelier.glm.metric import FEATURES as METRIC_FEATURES
from likelier.glm.metric import metric_rows
from likelier.glm.model import LinearModel
from likelier.glm.newton import Newton, NewtonState, subsets
from likelier.glm.sgd import NEVER, RATE_FACTORS, AdaptiveSGD, ScheduledSGD
from likelier.glm.sgd_state import AdaptiveState

MAX_NEWTON = 1500  # parameters of one solve
PAIRS_PER_ENTRY = 256  # below, second-order sums cost less than many first-order passes
SMALL_WORK = 4e9  # multiplications: a few seconds at most
START_WORK = 2e8
START_DIVISOR, START_FACTOR, START_STEPS = 3, 6, 8  # initial L-BFGS steps on a subset
MAX_CONDITION = 1e4  # mean |x|^2 / (lambda N) above which the dual converges too slowly
CERTIFIED_TOL = 1e-3
VALIDATION_ROWS = 10_000
NOT_VERIFIED = (
    "with certainty: the last passes improved less, but stochastic passes cannot verify the "
    "distance to the optimum; fit rows in memory, or validate the model on held-out rows"
)


@dataclass(frozen=True)
class Settings:
    """Solver parameters, named as in the estimators."""

    update: str = "implicit"
    learning_rate: str = "auto"
    eta0: float = 0.01
    average: bool | int = True
    max_iter: int = 100
    tol: float | None = 1e-4
    n_jobs: int = 1
    stochastic: bool = False  # force the stochastic route (early stopping)


@dataclass(frozen=True)
class Solution:
    """Parameters and convergence information."""

    theta: Array
    n_iter: int
    objective: float
    gap: float
    converged: bool
    route: str
    certificate: Certificate | None = None
    message: str = ""  # why it did not converge, if known


def choose_route(model: LinearModel, engine: Engine, n_nonzeros: float) -> str:
    """The cheapest route that reaches the optimum; see the module docstring.

    ``n_nonzeros`` is the mean number of nonzeros of a row.
    """
    n_rows = engine.n_rows
    coupled = model.loss.coupled
    parameters = model.n_rows_theta * (model.n_outputs if coupled else 1)
    times = model.n_outputs**2 if coupled else model.n_outputs
    pairs = n_nonzeros**2 * times
    if not engine.repeatable or n_rows is None:
        return "sgd"
    if parameters <= MAX_NEWTON:
        light = n_nonzeros * times / model.n_outputs <= PAIRS_PER_ENTRY
        affordable = light or n_rows * pairs <= SMALL_WORK
        if affordable:  # plain Newton steps are slow for losses with kinks
            kinked = not model.loss.smooth and _possible(_interior(model), engine)
            return "interior" if kinked else "newton"
    if model.penalty.sparse:
        return "active_set" if model.loss.smooth else "sgd"
    if model.loss.smooth and model.n_features <= METRIC_FEATURES:
        return "lbfgs"
    if not _possible(Dual, engine):
        return "sgd"  # fewer passes than L-BFGS without a good metric
    if _has_dual(model, engine):
        return "dual"
    return "lbfgs" if model.loss.smooth else "sgd"


def _possible(inference: type[Inference], engine: Engine) -> bool:
    """Whether the rows are where an inference needs them."""
    return engine.is_local or not inference.local_only


def _interior(model: LinearModel) -> type[Interior | ClassInterior]:
    """The interior point method of a loss."""
    return ClassInterior if model.loss.coupled else Interior


def _has_dual(model: LinearModel, engine: Engine) -> bool:
    """Whether dual coordinate ascent applies and converges in reasonable time."""
    l2 = model.penalty.l2[: model.n_features]
    if not (l2 > 0.0).all():
        return False
    batch = engine.sample(200)
    X = batch.X
    squares = X.multiply(X) if not isinstance(X, np.ndarray) else X * X
    c = float((squares @ (1.0 / l2)).mean()) / float(engine.n_rows or 1)
    return c <= MAX_CONDITION


def solve(
    model: LinearModel,
    engine: Engine,
    settings: Settings,
    n_nonzeros: float,
    theta: Array | None = None,
    monitor: Monitor | None = None,
) -> Solution:
    """Find the parameters; the monitor is called at every iteration and may stop it."""
    fit = _Fit(model, engine, settings, monitor or Monitor())
    if settings.learning_rate != "auto":
        return fit.scheduled(theta)
    route = choose_route(model, engine, n_nonzeros)
    if settings.stochastic or settings.update == "explicit":
        route = "sgd"
    return fit.auto(route, theta, n_nonzeros)


def interrupted(monitor: Monitor) -> Solution:
    """Solution at the last step of the monitor."""
    assert monitor.posterior is not None
    info = monitor.info
    theta = np.asarray(monitor.posterior().theta)
    return Solution(theta, monitor.n_steps, info.objective, info.gap, False, "interrupted")


class _Fit:
    """One call of `solve`."""

    def __init__(self, model: LinearModel, engine: Engine, settings: Settings, monitor: Monitor):
        self.model, self.engine, self.settings, self.monitor = model, engine, settings, monitor
        self.tol = 0.0 if settings.tol is None else settings.tol

    def scheduled(self, theta: Array | None) -> Solution:
        """SGD with given learning rates."""
        s = self.settings
        start = NEVER if s.average is False else (0 if s.average is True else int(s.average))
        power = 0.0 if s.learning_rate == "constant" else 0.5
        inference: Any = ScheduledSGD(s.eta0, power, s.update == "implicit", start, self.tol)
        if self.model.penalty.sparse or np.ptp(self.model.penalty.l2[: self.model.n_features]):
            raise ValueError(
                f"learning_rate={s.learning_rate!r} needs the same L2 penalty for all features; "
                'use solver="auto" for an L1 penalty or alpha="auto"'
            )
        state = inference.init(self.model, self.engine, theta)
        return self._iterate(inference, state, s.learning_rate)

    def auto(self, route: str, theta: Array | None, n_nonzeros: float) -> Solution:
        """Run the given route."""
        if route == "dual":
            dual = Dual(self.tol, self.settings.n_jobs)
            return self._iterate(dual, dual.init(self.model, self.engine, theta), route)
        if route == "newton":
            return self._newton(theta, n_nonzeros)
        if route == "interior":
            interior = _interior(self.model)(self.tol)
            return self._iterate(interior, interior.init(self.model, self.engine, theta), route)
        if route == "active_set":
            active = ActiveSet(self.tol)
            return self._iterate(active, active.init(self.model, self.engine, theta), route)
        if route == "sgd":
            return self._stochastic(theta, n_nonzeros)
        lbfgs = LBFGS(self.tol)
        theta = self.monitor.stage("start", lambda: self._from_subset(lbfgs, theta))
        return self._iterate(lbfgs, lbfgs.init(self.model, self.engine, theta), route)

    def _search(self, theta: Array | None, n_nonzeros: float) -> AdaptiveState:
        """Try all global rates on a sample."""
        outputs = max(1.0, n_nonzeros) * self.model.n_outputs * len(RATE_FACTORS)
        few = (self.engine.n_rows or 0) // 50  # the search must not outweigh a pass
        n = int(np.clip(START_WORK / outputs, 200, np.clip(few, 800, 1500)))
        sgd = AdaptiveSGD(self.settings.update == "implicit", n_jobs=self.settings.n_jobs)
        state = sgd.start(self.model, theta)
        sgd.begin(state, self.engine.sample(n), self.engine)
        return state

    def _newton(self, theta: Array | None, n_nonzeros: float) -> Solution:
        """Second-order steps on growing subsets, then on all rows.

        Each subset counts as an iteration. Losses with kinks start from the result of SGD.
        """
        model = self.model
        tight = self.settings.tol is not None and self.tol <= CERTIFIED_TOL
        certified = tight and model.loss.smooth
        newton = Newton(self.tol, unverified=certified and not model.penalty.sparse)
        state = self.monitor.stage("start", lambda: self._from_subsets(newton, theta, n_nonzeros))
        solution = self._iterate(newton, state, "newton")
        if not (certified and solution.converged):
            return solution
        return self.monitor.stage("certificate", lambda: self._certified(solution))

    def _from_subsets(self, newton: Newton, theta: Array | None, n_nonzeros: float) -> NewtonState:
        """Initial State of the steps on all rows, from growing subsets."""
        model = self.model
        if theta is None:
            theta = model.zeros() if model.loss.smooth else self._search(None, n_nonzeros).theta()
        state = newton.start(model, self.engine, theta)
        for subset in subsets(model, self.engine):
            if self.monitor.stopped or self.monitor.n_steps >= self.settings.max_iter:
                break
            state = newton.on_subset(state, self.engine, subset)
            self.monitor.step(Info(passes=0.0), partial(newton.posterior, state))
        return state

    def _from_subset(self, lbfgs: LBFGS, theta: Array | None) -> Array | None:
        """Initial parameters of L-BFGS, from a subset if that is far smaller than all rows."""
        model, n_rows = self.model, self.engine.n_rows
        size = metric_rows(model) // START_DIVISOR
        if n_rows is None or n_rows < START_FACTOR * size:
            return theta
        (subset,) = self.engine.subsets([size], iteration=1)
        state = lbfgs.init(model, subset, theta)
        for _ in range(START_STEPS):
            state, info = lbfgs.step(state, subset)
            if info.converged or info.gap <= model.n_rows_theta / (2.0 * size):
                break
        subset.close()
        self.monitor.step(Info(passes=0.0), partial(lbfgs.posterior, state))
        return state.theta

    def _certified(self, solution: Solution) -> Solution:
        """Add the certificate; continue if the Newton decrement underestimated the gap."""
        model, engine, newton = self.model, self.engine, Newton(self.tol)
        theta, certificate = certify(model, engine, solution.theta)
        if model.penalty.sparse:  # no certificate, but the bound is verified
            return replace(solution, certificate=certificate)
        value, gap = gap_at(model, engine, theta)
        by_gap = solution.gap <= self.tol * abs(
            solution.objective - model.floor
        )  # or a perfect fit
        if by_gap and gap > self.tol * abs(value - model.floor):
            state = newton.start(model, engine, theta)
            solution = self._iterate(newton, state, "newton", "newton again")
            if not solution.converged:
                return solution
            theta, certificate = certify(model, engine, solution.theta)
        return replace(solution, theta=theta, certificate=certificate)

    def _stochastic(self, theta: Array | None, n_nonzeros: float) -> Solution:
        """The best rates for one pass, then the best of them."""
        sgd = AdaptiveSGD(self.settings.update == "implicit", self.tol, n_jobs=self.settings.n_jobs)

        def first_pass() -> AdaptiveState:
            state, info = sgd.step(sgd.keep_groups(self._search(theta, n_nonzeros), 3), self.engine)
            self._compare_averages(state)
            state = sgd.keep_groups(state, 1)
            self.monitor.step(info, partial(sgd.posterior, state))
            return state

        return self._iterate(sgd, self.monitor.stage("rate", first_pass), "sgd")

    def _compare_averages(self, state: AdaptiveState) -> None:
        """Compare the rates by the loss of their averages on a sample."""
        model, groups = self.model, range(state.n_groups)
        if state.n_groups == 1:
            return
        batch = self.engine.sample(VALIDATION_ROWS, iteration=3)
        points = [state.theta(group) for group in groups]
        sums = model.values_at(points, batch).sum(axis=1) / batch.n_rows
        penalties = np.array([model.penalty.value(point).sum() for point in points])
        state.group_loss[:] = sums + penalties

    def _iterate(self, inference: Inference, state: Any, route: str, stage: str = "") -> Solution:
        """Iterate until convergence, or until the monitor or max_iter stops."""
        found = run(
            inference, state, self.engine, self.monitor, stage=stage or route,
            max_steps=self.settings.max_iter, until_converged=self.settings.tol is not None,
        )  # fmt: skip
        state, info, message = found.state, found.info, found.info.message
        converged = info.converged and self.settings.tol is not None
        requested = self.settings.stochastic or self.settings.update == "explicit"
        verified = converged and route != "sgd"
        if converged and not (verified or requested):
            converged, message = False, NOT_VERIFIED
        solution = Solution(
            _theta(inference, state), found.n_steps, info.objective, info.gap, converged, route,
            message=message,
        )  # fmt: skip
        auto = self.settings.learning_rate == "auto" and self.engine.repeatable
        if verified or not auto:
            return solution
        own = inference.objectives(state) if isinstance(inference, Dual | LBFGS) else None
        return self._no_worse_than_zero(solution, own)

    def _no_worse_than_zero(self, solution: Solution, known: Array | None = None) -> Solution:
        """Replace a fit that did not converge by zero where that is better, per output.

        Cost: a first-order pass at most; none if the objectives are known.
        """
        model, engine = self.model, self.engine
        n_rows = engine.n_rows or 1
        if known is not None:
            zero = engine.reduce(model.values_at_zero, np.add) / n_rows
        else:
            theta = np.ascontiguousarray(solution.theta)
            found, zero = engine.reduce(_ValuesAndZero(model), np.add, state=theta) / n_rows
            penalty = model.penalty.value(theta)
            known = found + (penalty.sum(keepdims=True) if model.loss.coupled else penalty)
        worse = ~(known <= zero)
        best = np.where(worse, 0.0, solution.theta) if worse.any() else solution.theta
        objective = float(np.sum(np.where(worse, zero, known)))
        return replace(solution, theta=best, objective=objective)


@dataclass(frozen=True)
class _ValuesAndZero:
    """Summed loss per output at parameters, and at zero."""

    model: LinearModel

    def __call__(self, batch: Batch, theta: Array) -> Array:
        model = self.model
        return np.stack([model.values_at([theta], batch)[0], model.values_at_zero(batch)])


def _theta(inference: Inference, state: Any) -> Array:
    posterior: Any = inference.posterior(state)
    return np.asarray(posterior.theta)
