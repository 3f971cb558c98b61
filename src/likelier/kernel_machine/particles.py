"""Particle inference over weights and kernel scales: SVGD, or mixtures of Gaussians.

The Gaussian process evidence sets the prior strength and the noise; weights, intercepts and kernel
scales are then sampled jointly by `SVGD` or `SteinGaussian` on a `FourierMachine`. If the loss has
no noise distribution, a first fit estimates the noise on held-out rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Engine, Loss
from likelier.fitting.dataset import local_engine
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
from likelier.kernel_machine.particle_posterior import ParticleState
from likelier.kernel_machine.particle_training import (
    UPDATES_PER_STEP,
    ParticleTraining,
)
from likelier.kernel_machine.stein_gaussian import GaussianMixturePosterior, SteinGaussian
from likelier.kernel_machine.svgd import SVGD

N_FEATURES = 256
# held-out rows for the noise, and the sample size from which on there are any
HOLD_OUT_FRACTION, HOLD_OUT_MIN_ROWS = (0.25, 20)


@dataclass(frozen=True)
class Strength:
    """Prior precision and noise, in the units of the machine."""

    alpha: float
    dispersion: float = 1.0
    noise: float = 1.0
    calibration: dict[str, Any] | None = None


@dataclass(frozen=True)
class TrainedParticles:
    """Result of training: particles, objective, and how it ended."""

    posterior: ParticleState
    objective: float
    converged: bool
    interrupted: bool


class KernelParticles(KernelEstimator, ABC):
    """Particle inference; subclasses handle their targets.

    ``_particle_loss`` is the loss, ``_particle_strength`` derives the strengths from the evidence,
    ``_calibrated_strength`` updates them from held-out scores, ``_store_particles`` sets
    target-specific attributes.
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
        no_rows = np.empty(0, dtype=np.intp)
        prepared = self._prepare(sample, no_rows, standard, rng, budget)
        strength = self._particle_strength(prepared.scales)
        model = self._particle_model(prepared, strength, n_rows, rng)
        held = self._hold_out_rows(sample, rng)
        if len(held):
            strength, model = self._learn_strength(model, sample, held, strength, budget)
        learned = self._train(model, engine, budget, "particles")
        if self._needs_hold_out() and not len(held):
            strength = self._calibrated_strength(learned.posterior, sample, strength)
        self._store_particle_fit(model, learned, strength)
        self.n_iter_ = budget.n_iter
        if learned.interrupted:
            raise KeyboardInterrupt

    def _stops_early(self) -> bool:
        """Whether rows are held out for early stopping, which only particles need."""
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
        if sparse.issparse(prepared.sample.X):  # keeps sparse rows sparse
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
        # squared norms: n_features for the inputs themselves, one for Fourier features
        factor = machine.n_features if machine.frequencies is None else 1
        alpha, dispersion = factor * strength.alpha, strength.dispersion
        return replace(model, machine=replace(machine, alpha=alpha, dispersion=dispersion))

    def _hold_out_rows(self, sample: Any, rng: np.random.Generator) -> Array:
        """Held-out rows of the sample, stratified by class; none for small samples."""
        if not self._needs_hold_out() or sample.n < HOLD_OUT_MIN_ROWS:
            return np.empty(0, dtype=np.intp)
        groups = self._strata(sample.y)
        parts = []
        for group in np.unique(groups):
            inside = rng.permutation(np.flatnonzero(groups == group))
            parts.append(inside[: int(HOLD_OUT_FRACTION * len(inside))])
        return np.sort(np.concatenate(parts))

    def _learn_strength(
        self,
        model: ScaledMachine,
        sample: Any,
        held: Array,
        strength: Strength,
        budget: TimeBudget,
    ) -> tuple[Strength, ScaledMachine]:
        """Fit to some rows, estimate the strength on the others; return it and the updated model.

        If this fit is interrupted, its particles become the fitted ones.
        """
        known = budget.before.get("strength")
        if known is None:
            inside = sample.take(np.setdiff1d(np.arange(sample.n), held))
            counts = inside.n / float(self.temperature)
            few = replace(model, machine=replace(model.machine, temperature=counts))
            with local_engine(inside.X, inside.y, inside.weight, 0, 1, True) as engine:
                learned = self._train(few, engine, budget, "held out")
            found = self._calibrated_strength(learned.posterior, sample.take(held), strength)
            if learned.interrupted:
                self._store_particle_fit(few, learned, found)
                self.n_iter_ = budget.n_iter
                raise KeyboardInterrupt
            known = asdict(found)
            if not budget.cut:
                budget.kept["strength"] = known
        strength = Strength(**known)
        return strength, self._with_strength(model, strength)

    def _train(
        self, model: ScaledMachine, engine: Engine, budget: TimeBudget, stage: str
    ) -> TrainedParticles:
        """Train particles until the planned updates are done or the time is over.

        With held-out rows, also until these are predicted no better; the best particles are kept.
        """
        n_updates = UPDATES_PER_STEP * int(self.max_iter)
        kind: Any = SVGD if self.inference == "svgd" else SteinGaussian
        inference = kind(n_particles=self._n_particles(), n_updates=n_updates)
        training = ParticleTraining(
            inference, inference.init(model, engine), float(self.tol), budget.held
        )
        training.restore(budget.before.get("particles", {}), stage)
        skipped = training.state.n_updates / n_updates
        whole = not budget.cut  # stages after a truncated one are not checkpointed
        try:
            while not training.done:
                training.step(engine)
                if whole:
                    budget.kept["particles"] = training.to_plain(stage)
                fraction = min(1.0, training.state.n_updates / n_updates)
                if budget.progress(stage, fraction, training.progress_text(), skipped):
                    break
        except KeyboardInterrupt:  # keep the current particles
            if whole:
                budget.kept["particles"] = training.to_plain(stage)
            return TrainedParticles(training.posterior(), np.nan, False, True)
        if whole and training.done:
            budget.cut = False  # the time was over just after the last step
        return TrainedParticles(training.posterior(), training.info.objective, training.done, False)

    # -- fitted attributes --------------------------------------------------------------
    def _store_particle_fit(
        self, model: ScaledMachine, learned: TrainedParticles, strength: Strength
    ) -> None:
        machine, posterior = model.machine, learned.posterior
        if isinstance(posterior, GaussianMixturePosterior):
            self.particles_, self.particle_scale_ = posterior.mean, posterior.scale
        else:
            self.particles_ = posterior.theta
            self.particle_scale_ = np.zeros((0, machine.n_parameters))
        E = machine.frequencies
        self.frequencies_ = np.zeros((0, machine.n_features)) if E is None else E
        self.input_mean_, self.input_scale_ = model.standard.mean, model.standard.spread()
        gamma = np.full(machine.n_features, machine.n_features**-0.5)
        if E is not None:  # geometric mean
            log_gamma = np.log(machine.split(self.particles_).gamma)
            gamma = np.exp(log_gamma.mean(axis=0))
        self.gamma_ = gamma * model.standard.inverse
        self.alpha_ = np.array([strength.alpha * strength.dispersion])
        self.n_components_ = machine.n_components
        self.objective_, self.converged_ = float(learned.objective), learned.converged
        self.checkpoint_: dict[str, Any] = {}
        self._store_particles(strength)

    # -- implemented by subclasses ------------------------------------------------------
    def _needs_hold_out(self) -> bool:
        """Whether the noise is estimated on held-out rows."""
        return True

    @abstractmethod
    def _particle_loss(self) -> Loss: ...

    @abstractmethod
    def _particle_strength(self, scales: Any) -> Strength: ...

    @abstractmethod
    def _calibrated_strength(
        self, posterior: ParticleState, held: Any, strength: Strength
    ) -> Strength: ...

    @abstractmethod
    def _store_particles(self, strength: Strength) -> None: ...
