"""Kernel machines whose weights and scales are particles, or Gaussians that move like them.

The evidence of a Gaussian process still says how strong the prior and how large the noise are;
weights, intercepts and kernel scales are then random together, moved by `SVGD` or
`SteinGaussian` over a `FourierMachine`. Where a loss does not say how targets scatter, a first
fit is judged on rows that it has not seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Engine, Loss, Matrix
from likelier.calibration import restore
from likelier.engines import LocalEngine
from likelier.fitting.standardize import Standard
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.estimator import KernelEstimator
from likelier.kernel_machine.fourier_machine import (
    MEDIAN_ROWS,
    FourierMachine,
    ScaledMachine,
    draw_frequencies,
    start_scale,
)
from likelier.kernel_machine.particle_course import UPDATES, Course, ParticleState
from likelier.kernel_machine.stein_gaussian import GaussianMixturePosterior, SteinGaussian
from likelier.kernel_machine.svgd import SVGD, ParticlePosterior

N_FEATURES = 256
JUDGE_SHARE, JUDGE_FROM = 0.25, 20  # rows held out, where a loss needs them


@dataclass(frozen=True)
class Strength:
    """How strong the prior is and how much a target scatters, in the machine's units."""

    alpha: float
    dispersion: float = 1.0
    noise: float = 1.0
    calibration: dict[str, Any] | None = None


@dataclass(frozen=True)
class Learned:
    """Particles, what the objective was, and whether the fit came to its end."""

    posterior: ParticleState
    objective: float
    converged: bool
    interrupted: bool


class KernelParticles(KernelEstimator, ABC):
    """Fitting and reading particles; the two public classes say what their targets need.

    ``_particle_loss`` is the loss, ``_particle_strength`` takes what the evidence said to the
    strengths, ``_judge`` learns from held-out scores, ``_store_particles`` what is special.
    """

    def _fit_particles(
        self,
        engine: Engine,
        sample: Any,
        n_rows: int,
        standard: Standard,
        rng: np.random.Generator,
        budget: TimeBudget,
    ) -> None:
        """Strengths from the sample, particles from the engine."""
        nothing = np.empty(0, dtype=np.intp)
        prepared = self._prepare(sample, nothing, standard, rng, budget)
        strength = self._particle_strength(prepared.scales)
        model = self._particle_model(prepared, strength, n_rows, rng)
        outside = self._rows_to_judge(sample, rng)
        if len(outside):
            strength, model = self._learn_strength(model, sample, outside, strength, budget)
        learned = self._move(model, engine, budget, "particles")
        if self._is_judged() and not len(outside):
            strength = self._judge(learned.posterior, sample, strength)
        self._keep_particles(model, learned, strength)
        self.n_iter_ = budget.n_iter
        if learned.interrupted:
            raise KeyboardInterrupt

    def _stops_early(self) -> bool:
        """Whether rows are held out to stop by: only particles need it."""
        return bool(self.early_stopping and self.inference != "evidence")

    def _particle_model(
        self, prepared: Any, strength: Strength, n_rows: int, rng: np.random.Generator
    ) -> ScaledMachine:
        d = prepared.sample.X.shape[1]
        frequencies = None
        if self.features != "identity":
            wanted = N_FEATURES if self.n_components == "auto" else int(self.n_components)
            frequencies = draw_frequencies((wanted + 1) // 2, d, rng)
        standard = prepared.standard
        if sparse.issparse(prepared.sample.X):  # rows keep their zeros
            standard = Standard(standard.centre(of_sparse=True), standard.inverse)
        loss = self._particle_loss()
        chosen = rng.permutation(prepared.sample.n)[:MEDIAN_ROWS]
        machine = FourierMachine(
            loss,
            d,
            self._n_classes() if loss.coupled else 1,
            frequencies=frequencies,
            gamma0=start_scale(prepared.standardised[chosen]),
            temperature=n_rows / float(self.temperature),
        )
        return self._with_strength(ScaledMachine(machine, standard), strength)

    @staticmethod
    def _with_strength(model: ScaledMachine, strength: Strength) -> ScaledMachine:
        machine = model.machine
        # the inputs themselves have a squared length of their number, not of one
        factor = machine.n_features if machine.frequencies is None else 1
        alpha, dispersion = factor * strength.alpha, strength.dispersion
        return replace(model, machine=replace(machine, alpha=alpha, dispersion=dispersion))

    def _rows_to_judge(self, sample: Any, rng: np.random.Generator) -> Array:
        """Rows of the sample for `_judge`, some of every class; none where rows are few."""
        if not self._is_judged() or sample.n < JUDGE_FROM:
            return np.empty(0, dtype=np.intp)
        groups = self._strata(sample.y)
        parts = []
        for group in np.unique(groups):
            inside = rng.permutation(np.flatnonzero(groups == group))
            parts.append(inside[: int(JUDGE_SHARE * len(inside))])
        return np.sort(np.concatenate(parts))

    def _learn_strength(
        self,
        model: ScaledMachine,
        sample: Any,
        outside: Array,
        strength: Strength,
        budget: TimeBudget,
    ) -> tuple[Strength, ScaledMachine]:
        """What a fit to some rows says about the others, and the machine that believes it.

        Where that fit is interrupted, its particles are what has been learned.
        """
        known = budget.before.get("strength")
        if known is None:
            inside = sample.take(np.setdiff1d(np.arange(sample.n), outside))
            counts = inside.n / float(self.temperature)
            few = replace(model, machine=replace(model.machine, temperature=counts))
            with LocalEngine(inside.X, inside.y, inside.weight) as engine:
                learned = self._move(few, engine, budget, "held out")
            found = self._judge(learned.posterior, sample.take(outside), strength)
            if learned.interrupted:
                self._keep_particles(few, learned, found)
                self.n_iter_ = budget.n_iter
                raise KeyboardInterrupt
            known = asdict(found)
            if not budget.cut:
                budget.kept["strength"] = known
        strength = Strength(**known)
        return strength, self._with_strength(model, strength)

    def _move(
        self, model: ScaledMachine, engine: Engine, budget: TimeBudget, stage: str
    ) -> Learned:
        """Move particles until the planned updates are done, or there is an end to time.

        With rows held out, also until these are predicted no better; the best particles count.
        """
        n_updates = UPDATES * int(self.max_iter)
        kind: Any = SVGD if self.inference == "svgd" else SteinGaussian
        inference = kind(n_particles=self._n_particles(), n_updates=n_updates)
        course = Course(inference, inference.init(model, engine), float(self.tol), budget.held)
        course.restore(budget.before.get("particles", {}), stage)
        skipped = course.state.n_updates / n_updates
        whole = not budget.cut  # what comes after a stage that was cut short has to be done again
        try:
            while not course.done:
                course.step(engine)
                if whole:
                    budget.kept["particles"] = course.to_plain(stage)
                share = min(1.0, course.state.n_updates / n_updates)
                if budget.progress(stage, share, course.told(), skipped):
                    break
        except KeyboardInterrupt:  # keep what has been learned so far
            if whole:
                budget.kept["particles"] = course.to_plain(stage)
            return Learned(course.posterior(), np.nan, False, True)
        if whole and course.done:
            budget.cut = False  # time ended with the last step
        return Learned(course.posterior(), course.info.objective, course.done, False)

    # -- fitted attributes --------------------------------------------------------------
    def _keep_particles(self, model: ScaledMachine, learned: Learned, strength: Strength) -> None:
        machine, posterior = model.machine, learned.posterior
        if isinstance(posterior, GaussianMixturePosterior):
            self.particles_, self.particle_spread_ = posterior.mean, posterior.scale
        else:
            self.particles_ = posterior.theta
            self.particle_spread_ = np.zeros((0, machine.n_parameters))
        E = machine.frequencies
        self.frequencies_ = np.zeros((0, machine.n_features)) if E is None else E
        self.input_mean_, self.input_spread_ = model.standard.mean, model.standard.spread()
        gamma = np.full(machine.n_features, machine.n_features**-0.5)
        if E is not None:  # the mean of the logarithms: scales are positive
            log_gamma = np.log(machine.split(self.particles_).gamma)
            gamma = np.exp(log_gamma.mean(axis=0))
        self.gamma_ = gamma * model.standard.inverse
        self.alpha_ = np.array([strength.alpha * strength.dispersion])
        self.n_components_ = machine.n_components
        self.objective_, self.converged_ = float(learned.objective), learned.converged
        self.unfinished_: dict[str, Any] = {}
        self._store_particles(strength)

    def _particle_posterior(self) -> ParticleState:
        """The posterior, from the fitted arrays."""
        E = self.frequencies_ if len(self.frequencies_) else None
        loss, d = self._particle_loss(), len(self.input_spread_)
        machine = FourierMachine(loss, d, self._n_classes() if loss.coupled else 1, frequencies=E)
        told = self.input_spread_ > 0.0
        inverse = np.divide(1.0, self.input_spread_, out=np.zeros(d), where=told)
        model = ScaledMachine(machine, Standard(self.input_mean_, inverse))
        if len(self.particle_spread_):
            return GaussianMixturePosterior(model, self.particles_, self.particle_spread_)
        return ParticlePosterior(model, self.particles_)

    def _particle_draws(self, n_draws: int, rng: np.random.Generator) -> Array:
        """Weights of draws, the intercept last, ``(n_draws, n_components_ + 1, outputs)``."""
        posterior = self._particle_posterior()
        if isinstance(posterior, GaussianMixturePosterior):
            theta = posterior.draws(n_draws, rng)
        else:
            theta = posterior.theta[np.arange(n_draws) % len(posterior.theta)]
        parts = posterior.model.machine.split(theta)
        return np.concatenate([parts.weights, parts.intercept[:, None]], axis=1)

    def _particle_scores(self, X: Matrix) -> Array:
        return np.asarray(self._particle_posterior().scores(X))

    # -- what targets need --------------------------------------------------------------
    def _is_judged(self) -> bool:
        """Whether rows are held out to say how targets scatter around scores."""
        return True

    @abstractmethod
    def _particle_loss(self) -> Loss: ...

    @abstractmethod
    def _particle_strength(self, scales: Any) -> Strength: ...

    @abstractmethod
    def _judge(self, posterior: ParticleState, held: Any, strength: Strength) -> Strength: ...

    @abstractmethod
    def _store_particles(self, strength: Strength) -> None: ...


def calibrated_link(calibration: dict[str, Any]) -> Callable[[Array], Array] | None:
    """Scores of all classes to probabilities; None where the loss brings its own."""
    if not calibration:
        return None
    fitted = restore(calibration)

    def link(scores: Array) -> Array:
        if scores.shape[1] > 2:
            return fitted.probabilities(scores)
        positive = fitted.probabilities(scores[:, 1] - scores[:, 0])
        return np.stack([1.0 - positive, positive], axis=1)

    return link
