"""Particles with covariance: a mixture of Gaussians that keeps its variance in high dimensions.

The posterior is approximated by ``q = (1/C) sum_c N(mean_c, diag(scale_c^2))``, by gradient descent
on ``KL(q, posterior)``. Each Gaussian has its own variance, so it need not come from repulsion
between particles, which fails in many dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix, Posterior
from likelier.kernel_machine.adam import Moments, adam_change, rate_at
from likelier.kernel_machine.settings import KernelInference
from likelier.kernel_machine.svgd import Link, ParticleModel, ParticlePosterior, mean_scales
from likelier.predictive import Predictive
from likelier.value import integer, number


@dataclass(frozen=True)
class SteinGaussianState:
    """Means and log scales of the Gaussians, with the optimiser state."""

    model: Any
    mean: Array
    log_scale: Array
    moments: Moments
    count: float
    n_updates: int = 0


@dataclass(frozen=True)
class GaussianMixturePosterior(Posterior):
    """Uniform mixture of Gaussians with diagonal covariances, one per row."""

    model: Any
    mean: Array
    scale: Array
    n_draws: int = 40
    seed: int = 0

    @property
    def gamma(self) -> Array:
        """Geometric mean of the kernel scales of the Gaussians."""
        return mean_scales(self.model.machine, self.mean)

    def draws(self, n: int, stream: np.random.Generator) -> Array:
        """``n`` draws of the parameters, evenly divided among the Gaussians."""
        part = np.arange(n) % len(self.mean)
        noise = stream.standard_normal((n, self.mean.shape[1]))
        return np.asarray(self.mean[part] + self.scale[part] * noise)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of every parameter under the mixture."""
        variance = np.mean(self.scale**2, axis=0) + np.var(self.mean, axis=0)
        return self.mean.mean(axis=0), variance

    def as_particles(self) -> ParticlePosterior:
        """The same `n_draws` draws at every call, at least one per Gaussian."""
        n = max(self.n_draws, len(self.mean))
        return ParticlePosterior(self.model, self.draws(n, np.random.default_rng(self.seed)))

    def scores(self, X: Matrix) -> Array:
        """Scores of every draw, ``(draws, rows, outputs)``."""
        return self.as_particles().scores(X)

    def predictive(self, X: Matrix, link: Link | None = None) -> Predictive:
        """Mixture of the draws' predictions: averages probabilities, not scores."""
        return self.as_particles().predictive(X, link)


@dataclass(frozen=True)
class SteinGaussian(KernelInference, Inference):
    """Mixture of diagonal Gaussians, by stochastic gradients of the KL divergence.

    Each Gaussian samples ``theta = mean + scale e`` with the gradient ``g`` of ``log p - log q``
    there. Its mean moves along ``E[g]`` and its log scale along ``scale E[g e]``, which by Stein's
    identity is ``1 - scale^2 E[curvature]`` for an isolated Gaussian: no second derivatives are
    needed, and losses with kinks work. The entropy of the mixture repels overlapping Gaussians.
    Since ``q`` is part of ``g``, the gradient noise vanishes as ``q`` approaches the posterior.
    Draws are antithetic pairs.

    Cost per update of C Gaussians over p parameters: 2 C minibatch gradients, and ``10 C^2 p``
    products for the mixture.

    ``local_only`` for the reason of `SVGD`.

    Parameters
    ----------
    temperature : float
        The data count as N / temperature observations.
    n_particles : int
        Number of Gaussians. They find several modes if initialised near them; one mode needs one.
    n_updates, batch_size, step_size
        As for `SVGD`; ``step_size`` also bounds the change of a log scale.
    start_scale : float
        Initial standard deviation of every parameter.

    Notes
    -----
    Means and marginal variances are exact for product posteriors; correlated parameters get their
    conditional variances, which are smaller.

    References
    ----------
    M. Lambert et al., Variational inference via Wasserstein gradient flows, 2022. O. Roenning
    et al., ELBOing Stein: variational Bayes with Stein mixture inference, 2025.
    """

    name: ClassVar[str] = "stein_gaussian"
    local_only: ClassVar[bool] = True
    resumable: ClassVar[bool] = True

    n_particles: int = integer(4, "[1, inf)")
    n_updates: int = integer(1000, "[1, inf)")
    batch_size: int = integer(256, "[1, inf)")
    step_size: float = number(0.05, "(0, inf)")
    start_scale: float = number(0.1, "(0, inf)")

    def init(
        self, model: ParticleModel, engine: Engine, theta: Array | None = None
    ) -> SteinGaussianState:
        """Start at ``theta`` (one row per Gaussian) or at random particles of the model."""
        if theta is None:
            theta = model.start(self.n_particles, engine.stream(0, 0))
        count = float((engine.n_rows or 1) if model.count is None else model.count)
        log_scale = np.full(theta.shape, np.log(self.start_scale))
        moments = Moments.zeros((2, *theta.shape))
        return SteinGaussianState(model, np.array(theta), log_scale, moments, count)

    def step(self, state: SteinGaussianState, engine: Engine) -> tuple[SteinGaussianState, Info]:
        """One update on a random minibatch."""
        batch = engine.draw(self.batch_size, iteration=state.n_updates).compact()
        after, info = self.learn(state, batch, engine.stream(state.n_updates, 1))
        return after, replace(info, passes=batch.n_rows / (engine.n_rows or 1))

    def learn(
        self, state: SteinGaussianState, batch: Batch, stream: np.random.Generator
    ) -> tuple[SteinGaussianState, Info]:
        """Update all Gaussians on one minibatch.

        The reported objective is an estimate of the KL divergence minus the log evidence.
        """
        mean, scale = state.mean, np.exp(state.log_scale)
        noise = stream.standard_normal(mean.shape)
        theta = np.concatenate([mean + scale * noise, mean - scale * noise])
        energy, gradient = state.model.energy_gradient(theta, batch, state.count)
        log_q, gradient_q = mixture_log_density(theta, mean, scale)
        plus, minus = np.split(-gradient - gradient_q, 2)
        direction = 0.5 * np.stack([plus + minus, scale * noise * (plus - minus)])
        rate = rate_at(self.step_size, state.n_updates, self.n_updates)
        moments, change = adam_change(state.moments, direction, rate)
        n_updates = state.n_updates + 1
        state = SteinGaussianState(
            state.model, mean + change[0], state.log_scale + change[1], moments, state.count,
            n_updates,
        )  # fmt: skip
        divergence = float(np.mean(energy + log_q))
        return state, Info(divergence, converged=n_updates >= self.n_updates)

    def posterior(self, state: SteinGaussianState) -> GaussianMixturePosterior:
        """The mixture of Gaussians."""
        scale = np.exp(state.log_scale)
        return GaussianMixturePosterior(state.model, state.mean, scale)


def mixture_log_density(theta: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
    """``log q`` of a uniform Gaussian mixture and its gradient, at the rows of ``theta``.

    Costs ``5 n C p`` for n rows and C Gaussians, by matrix products.
    """
    precision = scale**-2.0
    centre = mean.mean(axis=0)  # centred to avoid cancellation
    x, m = theta - centre, mean - centre
    weighted = precision * m
    squares = x**2 @ precision.T - 2.0 * x @ weighted.T + np.sum(m * weighted, axis=1)
    constant = 0.5 * mean.shape[1] * np.log(2.0 * np.pi) + np.log(len(mean))
    log_parts = -0.5 * squares - np.log(scale).sum(axis=1) - constant
    log_q = logsumexp(log_parts, axis=1)
    responsibility = np.exp(log_parts - log_q[:, None])
    return log_q, responsibility @ weighted - x * (responsibility @ precision)
