"""How a kernel machine is fitted by particles: the stages of a fit, in their order.

The evidence of a Gaussian process sets the prior strength and the noise; weights, intercepts and
kernel scales then move jointly, by `SVGD` or `SteinGaussian` on a `FourierMachine`. If the loss has
no noise distribution, a first fit estimates the noise on held-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Array, Engine, Loss
from likelier.fitting.dataset import local_engine
from likelier.fitting.monitor import Monitor
from likelier.fitting.probabilities import fit_calibration
from likelier.fitting.rows import Rows
from likelier.fitting.run import run
from likelier.fitting.standardize import Standard
from likelier.kernel_machine.data import Data
from likelier.kernel_machine.evidence import Scales
from likelier.kernel_machine.fourier_machine import (
    MEDIAN_ROWS,
    FourierMachine,
    ScaledMachine,
    draw_frequencies,
    start_scale,
)
from likelier.kernel_machine.noise import MIN_NOISE
from likelier.kernel_machine.particle_posterior import (
    ParticleClasses,
    ParticleNumbers,
    ParticleState,
)
from likelier.kernel_machine.recipe import Settings, learn_scales
from likelier.kernel_machine.search import start_precision
from likelier.kernel_machine.task import Task

N_FEATURES = 256
PARTICLE_ROWS = 100_000  # random rows that minibatches are drawn from, if there are more
# held-out rows for the noise, and the sample size from which on there are any
HOLD_OUT_FRACTION, HOLD_OUT_MIN_ROWS = 0.25, 20


@dataclass(frozen=True)
class Strength:
    """Prior precision and noise, in the units of the machine, and a calibration of scores."""

    alpha: float
    dispersion: float = 1.0
    noise: float = 1.0
    calibration: dict[str, Any] | None = None


@dataclass(frozen=True)
class ParticleFit:
    """A fit by particles.

    Parameters
    ----------
    task : Task
    inference : SVGD or SteinGaussian
    """

    task: Task
    inference: Any

    @property
    def loss(self) -> Loss:
        """Loss of the particles."""
        return self.task.particle_loss

    def fit(
        self, data: Data, settings: Settings, monitor: Monitor
    ) -> ParticleClasses | ParticleNumbers:
        """Strengths from the sample, then the particles from all rows."""
        every = np.arange(data.sample.n)
        scales = learn_scales(data, self.task, settings, every, "scales", monitor)
        strength = self._start_strength(scales)
        model = self._model(data, settings)
        held = self._held(data)
        if len(held):
            strength = self._held_out_strength(data, model, strength, held, monitor)
        engine = _at_hand(data)
        particles = self._train(self._with(model, strength), engine, "particles", monitor)
        if self.task.n_classes:
            calibration = strength.calibration or {}
            if self._calibrates and not len(held):
                calibration = self._calibration(particles, data.sample)
            return ParticleClasses(particles, calibration)
        units: Any = self.task
        noise = float(np.sqrt(strength.noise)) * units.scale
        return ParticleNumbers(particles, noise, units.mean, units.scale)

    @property
    def _calibrates(self) -> bool:
        return bool(self.task.n_classes) and not self.loss.probabilistic

    def _model(self, data: Data, settings: Settings) -> ScaledMachine:
        d, frequencies = data.sample.X.shape[1], None
        if settings.features != "identity":
            wanted = settings.n_components or N_FEATURES
            frequencies = draw_frequencies((wanted + 1) // 2, d, data.rng(1))
        standard = data.standard
        if data.is_sparse:  # keeps sparse rows sparse
            standard = Standard(standard.centre(of_sparse=True), standard.inverse)
        chosen = data.rng(2).permutation(data.sample.n)[:MEDIAN_ROWS]
        gamma0 = start_scale(data.standardised[chosen])
        count = data.n_rows / (self.inference.temperature * min(data.unit, 1.0))
        machine = FourierMachine(
            self.loss, d, max(1, self.task.n_classes), frequencies=frequencies, gamma0=gamma0,
            count=count,
        )  # fmt: skip
        return ScaledMachine(machine, standard)

    @staticmethod
    def _with(model: ScaledMachine, strength: Strength) -> ScaledMachine:
        machine = model.machine
        # squared norms: n_features for the inputs themselves, one for Fourier features
        factor = machine.n_features if machine.frequencies is None else 1
        alpha, dispersion = factor * strength.alpha, strength.dispersion
        return replace(model, machine=replace(machine, alpha=alpha, dispersion=dispersion))

    # -- strengths ----------------------------------------------------------------------
    def _start_strength(self, scales: Scales) -> Strength:
        if self.task.n_classes:
            alpha = start_precision(scales.noise, scales.amplitude)
            return Strength(alpha if self.task.alpha is None else self.task.alpha)
        return self._of_noise(scales.noise, 1.0 / scales.amplitude)

    def _of_noise(self, noise: float, precision: float) -> Strength:
        """The epsilon-insensitive loss is linear, so its dispersion is a standard deviation."""
        dispersion = noise if self.loss.name == "squared_error" else float(np.sqrt(noise))
        alpha = precision if self.task.alpha is None else self.task.alpha / dispersion
        return Strength(alpha, dispersion, noise)

    def _held(self, data: Data) -> Array:
        """Held-out rows of the sample, balanced over classes; none for small samples."""
        needed = self._calibrates or not self.task.n_classes
        if not needed or data.sample.n < HOLD_OUT_MIN_ROWS:
            return np.empty(0, dtype=np.intp)
        groups, rng, parts = self.task.strata(data.sample.y), data.rng(4), []
        for group in np.unique(groups):
            inside = rng.permutation(np.flatnonzero(groups == group))
            parts.append(inside[: int(HOLD_OUT_FRACTION * len(inside))])
        return np.sort(np.concatenate(parts))

    def _held_out_strength(
        self, data: Data, model: ScaledMachine, start: Strength, held: Array, monitor: Monitor
    ) -> Strength:
        """Fit to some rows of the sample, and see what the others say of noise or calibration."""

        def compute() -> Strength:
            inside = data.sample.take(np.setdiff1d(np.arange(data.sample.n), held))
            count = inside.n / (self.inference.temperature * min(data.unit, 1.0))
            few = self._with(model, start)
            few = replace(few, machine=replace(few.machine, count=count))
            with local_engine(inside.X, inside.y, inside.weight, data.seed, 1, True) as engine:
                particles = self._train(few, engine, "held-out particles", monitor)
            rows = data.sample.take(held)
            if self._calibrates:
                return replace(start, calibration=self._calibration(particles, rows))
            # It includes the uncertainty of the function, so intervals are conservative: particles
            # are not draws and may underestimate that uncertainty.
            mean = particles.scores(rows.X)[..., 0].mean(axis=0)
            noise = float(np.average((rows.y - mean) ** 2, weights=rows.weight))
            return self._of_noise(max(noise, MIN_NOISE), start.alpha)

        return monitor.stage("strength", compute)

    @staticmethod
    def _calibration(particles: ParticleState, rows: Rows) -> dict[str, Any]:
        scores = particles.scores(rows.X)
        omega = np.ones(rows.n) if rows.weight is None else rows.weight
        # each row counts once, not once per particle
        weight = np.tile(omega / len(scores), len(scores))
        flat = scores.reshape(-1, scores.shape[2])
        return fit_calibration(flat, np.tile(rows.y, len(scores)), weight)

    def _train(
        self, model: ScaledMachine, engine: Engine, stage: str, monitor: Monitor
    ) -> ParticleState:
        state = self.inference.init(model, engine)
        n_steps = monitor.n_steps + self.inference.n_updates
        found = run(self.inference, state, engine, monitor, stage=stage, max_steps=n_steps)
        particles: ParticleState = self.inference.posterior(found.state)
        return particles


def _at_hand(data: Data) -> Engine:
    """Rows of this process that minibatches are drawn from."""
    if data.n_rows <= data.sample.n:
        return data.engine
    batch = data.engine.sample(PARTICLE_ROWS, iteration=2)
    return local_engine(batch.X, batch.y, batch.weight, data.seed, 1, True)
