"""Hamiltonian Monte Carlo in plain NumPy: many chains side by side, the reference for posteriors.

Positions are whitened by a rough covariance, which only changes how fast the chains mix: the
accept step makes the draws exact whatever it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Draws:
    """Draws of shape (chains, iterations, parameters), and how often moves were accepted."""

    theta: np.ndarray
    acceptance: float

    def flat(self):
        """All draws in one matrix."""
        return self.theta.reshape(-1, self.theta.shape[2])

    def r_hat(self):
        """Split potential scale reduction of every parameter; near one when chains agree."""
        half = self.theta.shape[1] // 2
        parts = np.concatenate([self.theta[:, :half], self.theta[:, half : 2 * half]])
        within = parts.var(axis=1, ddof=1).mean(axis=0)
        between = parts.mean(axis=1).var(axis=0, ddof=1)
        return np.sqrt((half - 1) / half + between / within)

    def mean_error(self):
        """Standard error of the means, by the independence of the chains."""
        return self.theta.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(len(self.theta))


def hmc(value_of, slope_of, centre, covariance, *, n_chains=32, n_draws=300, n_warm=50, seed=0):
    """Draws from the law with this log density and gradient.

    ``value_of`` and ``slope_of`` take (chains, parameters). The number of steps and their length
    vary from move to move, so that no period can be met.
    """
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(covariance)

    def value_at(z):
        return value_of(centre + z @ root.T)

    def slope_at(z):
        return slope_of(centre + z @ root.T) @ root

    z = 1.5 * rng.standard_normal((n_chains, len(centre)))
    value, slope = value_at(z), slope_at(z)
    kept, accepted = [], 0.0
    for iteration in range(n_warm + n_draws):
        momentum = rng.standard_normal(z.shape)
        energy = 0.5 * (momentum**2).sum(axis=1) - value
        length, n_leaps = rng.uniform(0.3, 0.6), rng.integers(3, 5)
        new, new_slope = z, slope
        momentum = momentum + 0.5 * length * new_slope
        for leap in range(n_leaps):
            new = new + length * momentum
            new_slope = slope_at(new)
            momentum = momentum + (1.0 if leap < n_leaps - 1 else 0.5) * length * new_slope
        new_value = value_at(new)
        rise = 0.5 * (momentum**2).sum(axis=1) - new_value - energy
        take = np.log(rng.random(n_chains)) < -rise
        z = np.where(take[:, None], new, z)
        value, slope = np.where(take, new_value, value), np.where(take[:, None], new_slope, slope)
        if iteration >= n_warm:
            kept.append(centre + z @ root.T)
            accepted += take.mean() / n_draws
    return Draws(np.stack(kept, axis=1), float(accepted))
