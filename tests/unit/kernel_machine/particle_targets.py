"""Small densities with known moments, as models for particle inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class StandardNormal:
    """``N(0, I_d)``, independent of the data."""

    d: int
    spread: float = 1.0
    count: float | None = 1.0

    def start(self, n_particles, stream):
        return self.spread * stream.standard_normal((n_particles, self.d))

    def energy_gradient(self, theta, batch, count):
        return 0.5 * (theta**2).sum(axis=1), theta.copy()


@dataclass(frozen=True)
class TwoPeaks:
    """Equal mixture of ``N(-m, 1)`` and ``N(m, 1)`` in one dimension."""

    m: float = 4.0
    count: float | None = 1.0

    def start(self, n_particles, stream):
        # evenly on both sides: how much of the mixture finds a peak is decided by the start
        return np.linspace(2.0 * self.m, -2.0 * self.m, n_particles)[:, None]

    def energy_gradient(self, theta, batch, count):
        m = self.m
        energy = 0.5 * (theta**2 + m**2) - np.logaddexp(m * theta, -m * theta) + np.log(2.0)
        return energy[:, 0], theta - m * np.tanh(m * theta)


def run(inference, model, engine):
    """State after all planned updates, and the last Info."""
    state = inference.init(model, engine)
    while True:
        state, info = inference.step(state, engine)
        if info.converged:
            return state, info
