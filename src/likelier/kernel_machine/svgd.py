"""Stein variational gradient descent: particles that climb together and keep apart.

Particle ``p`` moves along ``(1/P) sum_q [k(theta_q, theta_p) grad log p(theta_q) +
grad_{theta_q} k(theta_q, theta_p)]`` with ``k = exp(-|.|^2 / h)``. The first part climbs the
log joint, smoothed over the particles; the second pushes them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.spatial.distance import pdist, squareform

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix, Posterior
from likelier.kernel_machine.adam import Moments, adam_change, count_rows, minibatches, rate_at
from likelier.predictive import Predictive

Link = Callable[[Array], Array]


class ParticleModel(Protocol):
    """What a model must offer so that particles can be moved over its parameters.

    Parameters are rows of a matrix ``theta``, one particle each.
    """

    @property
    def temperature(self) -> float | None:
        """How many observations the data count for; None is as many as there are rows."""

    def start(self, n_particles: int, stream: np.random.Generator) -> Array:
        """Random first particles."""

    def energy_gradient(self, theta: Array, batch: Batch, count: float) -> tuple[Array, Array]:
        """Negative log joint of every particle and its gradient, by one minibatch.

        ``count`` is how many observations all the data count for.
        """

    def scores(self, theta: Array, X: Matrix) -> Array:
        """Scores by every particle."""

    def predictive(self, theta: Array, X: Matrix, link: Link | None = None) -> Predictive:
        """Mixture of what the particles predict."""


@dataclass(frozen=True)
class ParticlePosterior(Posterior):
    """Particles, or draws, with equal weights: ``theta`` has one row for each."""

    model: Any
    theta: Array

    def scores(self, X: Matrix) -> Array:
        """Scores by every particle, ``(particles, rows, outputs)``."""
        return np.asarray(self.model.scores(self.theta, X))

    def predictive(self, X: Matrix, link: Link | None = None) -> Predictive:
        """Average of the particles' probabilities, never of their scores.

        ``link`` turns scores (rows x classes) into probabilities; losses that are no
        likelihood have none of their own and need a calibrated one.
        """
        predictive: Predictive = self.model.predictive(self.theta, X, link)
        return predictive


@dataclass(frozen=True)
class SVGDState:
    """Particles, and what the next update needs; never changed in place."""

    model: Any
    theta: Array
    moments: Moments
    count: float
    n_updates: int = 0


@dataclass(frozen=True)
class SVGD(Inference):
    """Stein variational gradient descent with the median bandwidth and Adam steps.

    Cost per update, of P particles with p parameters: P gradients of a minibatch, and
    ``3 P^2 p`` products for the interaction, which are small beside the gradients as long as
    P is smaller than the minibatch. On a stream a step is one pass, many updates.

    Parameters
    ----------
    n_particles : int
        With one particle there is nothing to keep away from, and this is gradient ascent
        to a mode.
    n_updates : int
        Planned number of updates; the rate falls linearly over the second half of them.
    batch_size : int
        Rows of a minibatch.
    rate : float
        Largest change of a parameter in one update.

    Notes
    -----
    In many dimensions the particles are not draws from the posterior. On ``N(0, I_d)`` they come
    to rest with a variance of about ``log(P + 1) / d``: over thousands of weights this is an
    ensemble of nearly equal point estimates whose repulsion is inert. It is here to be studied and
    compared; `likelier.kernel_machine.stein_gaussian.SteinGaussian` keeps the variance.

    References
    ----------
    Q. Liu and D. Wang, Stein variational gradient descent, 2016. J. Ba et al., Understanding
    the variance collapse of SVGD in high dimensions, 2022.
    """

    n_particles: int = 20
    n_updates: int = 1000
    batch_size: int = 256
    rate: float = 0.05

    def init(self, model: ParticleModel, engine: Engine, theta: Array | None = None) -> SVGDState:
        """Start from ``theta`` (one row per particle) or from the model's random particles."""
        if theta is None:
            theta = model.start(self.n_particles, engine.stream(0, 0))
        count = model.temperature
        count = float(count_rows(engine) if count is None else count)
        return SVGDState(model, np.array(theta), Moments.zeros(theta.shape), count)

    def step(self, state: SVGDState, engine: Engine) -> tuple[SVGDState, Info]:
        """One update by a random minibatch; on a stream, one pass of updates."""
        info, n_rows = Info(), 0
        for batch in minibatches(engine, self.batch_size, state.n_updates):
            n_rows += batch.n_rows
            state, info = self.learn(state, batch)
        passes = n_rows / engine.n_rows if engine.n_rows else 1.0
        return state, Info(info.objective, passes=passes, converged=info.converged)

    def learn(self, state: SVGDState, batch: Batch) -> tuple[SVGDState, Info]:
        """Move all particles by one minibatch; the objective told is their mean energy."""
        energy, slope = state.model.energy_gradient(state.theta, batch, state.count)
        rate = rate_at(self.rate, state.n_updates, self.n_updates)
        direction = stein_direction(state.theta, -slope)
        moments, change = adam_change(state.moments, direction, rate)
        n_updates = state.n_updates + 1
        state = SVGDState(state.model, state.theta + change, moments, state.count, n_updates)
        return state, Info(float(np.mean(energy)), converged=n_updates >= self.n_updates)

    def posterior(self, state: SVGDState) -> ParticlePosterior:
        """Particles with equal weights."""
        return ParticlePosterior(state.model, state.theta)


def median_bandwidth(theta: Array) -> float:
    """Return ``h = med^2 / log(P + 1)``, med the median distance over distinct pairs.

    Each pair counts once and no particle is paired with itself. Zero if there are no pairs or
    most of them coincide.
    """
    if len(theta) < 2:
        return 0.0
    return float(np.median(pdist(theta)) ** 2 / np.log(len(theta) + 1.0))


def stein_direction(theta: Array, slope: Array, bandwidth: float | None = None) -> Array:
    """Direction of every particle, from the particles and the gradients of the log joint.

    Parameters
    ----------
    theta, slope : arrays of shape (P, p)
        Particles, and the gradient of the log joint at each.
    bandwidth : float, optional
        ``h`` of the kernel, by default `median_bandwidth`. Zero is the limit: only particles
        that coincide share their gradients, and nothing pushes them apart.

    Notes
    -----
    Cost ``3 P^2 p``.
    """
    P = len(theta)
    h = median_bandwidth(theta) if bandwidth is None else bandwidth
    squares = squareform(pdist(theta, "sqeuclidean")) if P > 1 else np.zeros((1, 1))
    if not h > 0.0:
        return np.asarray((squares == 0.0) @ slope / P)
    kernel = np.exp(-squares / h)
    centred = theta - theta.mean(axis=0)  # what is common would only cancel
    repulsion = kernel.sum(axis=1, keepdims=True) * centred - kernel @ centred
    return np.asarray((kernel @ slope + (2.0 / h) * repulsion) / P)
