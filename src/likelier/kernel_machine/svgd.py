"""Stein variational gradient descent: particles that ascend the log joint and repel each other.

Particle ``p`` moves along ``(1/P) sum_q [k(theta_q, theta_p) grad log p(theta_q) +
grad_{theta_q} k(theta_q, theta_p)]`` with ``k = exp(-|.|^2 / h)``. The first term ascends the
log joint, smoothed over the particles; the second repels them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.spatial.distance import pdist, squareform

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix, Posterior
from likelier.kernel_machine.adam import Moments, adam_change, rate_at
from likelier.kernel_machine.settings import KernelInference
from likelier.predictive import Predictive
from likelier.value import integer, number

Link = Callable[[Array], Array]


class ParticleModel(Protocol):
    """Interface of models for particle inference.

    Parameters are rows of a matrix ``theta``, one particle each.
    """

    @property
    def count(self) -> float | None:
        """Effective number of observations; None is the number of rows."""

    def start(self, n_particles: int, stream: np.random.Generator) -> Array:
        """Random initial particles."""

    def energy_gradient(self, theta: Array, batch: Batch, count: float) -> tuple[Array, Array]:
        """Minibatch estimate of the negative log joint of every particle, and its gradient.

        ``count`` is the effective number of observations.
        """

    def scores(self, theta: Array, X: Matrix) -> Array:
        """Scores of every particle."""

    def predictive(self, theta: Array, X: Matrix, link: Link | None = None) -> Predictive:
        """Mixture of the particles' predictions."""


@dataclass(frozen=True)
class ParticlePosterior(Posterior):
    """Equally weighted particles or draws: the rows of ``theta``."""

    model: Any
    theta: Array

    @property
    def gamma(self) -> Array:
        """Geometric mean of the kernel scales of the particles."""
        return mean_scales(self.model.machine, self.theta)

    def scores(self, X: Matrix) -> Array:
        """Scores of every particle, ``(particles, rows, outputs)``."""
        return np.asarray(self.model.scores(self.theta, X))

    def predictive(self, X: Matrix, link: Link | None = None) -> Predictive:
        """Mixture of the particles' predictions: averages probabilities, not scores.

        ``link`` maps scores (rows x classes) to probabilities; losses that are not likelihoods need
        a calibrated one.
        """
        predictive: Predictive = self.model.predictive(self.theta, X, link)
        return predictive


@dataclass(frozen=True)
class SVGDState:
    """Particles with the optimiser state; never changed in place."""

    model: Any
    theta: Array
    moments: Moments
    count: float
    n_updates: int = 0


@dataclass(frozen=True)
class SVGD(KernelInference, Inference):
    """Stein variational gradient descent with the median bandwidth and Adam steps.

    Cost per update of P particles with p parameters: P minibatch gradients, and ``3 P^2 p``
    products for the interaction, which is negligible as long as P is smaller than the minibatch.

    ``local_only``: every update needs the particles of the update before and a few random rows, so
    there is nothing to be done where the rows are.

    Parameters
    ----------
    temperature : float
        The data count as N / temperature observations.
    n_particles : int
        One particle is gradient ascent to a mode.
    n_updates : int
        Number of updates; the rate decays linearly over the second half of them.
    batch_size : int
        Rows of a minibatch.
    step_size : float
        Largest change of a parameter in one update.

    Notes
    -----
    In many dimensions the particles are not draws from the posterior. On ``N(0, I_d)``
    they converge to a variance of about ``log(P + 1) / d``: over thousands of weights this is an
    ensemble of nearly equal point estimates without effective repulsion. It is provided for
    comparison; `SteinGaussian` keeps the variance.

    References
    ----------
    Q. Liu and D. Wang, Stein variational gradient descent, 2016. J. Ba et al., Understanding
    the variance collapse of SVGD in high dimensions, 2022.
    """

    name: ClassVar[str] = "svgd"
    local_only: ClassVar[bool] = True
    resumable: ClassVar[bool] = True

    n_particles: int = integer(20, "[1, inf)")
    n_updates: int = integer(1000, "[1, inf)")
    batch_size: int = integer(256, "[1, inf)")
    step_size: float = number(0.05, "(0, inf)")

    def init(self, model: ParticleModel, engine: Engine, theta: Array | None = None) -> SVGDState:
        """Start at ``theta`` (one row per particle) or at random particles of the model."""
        if theta is None:
            theta = model.start(self.n_particles, engine.stream(0, 0))
        count = float((engine.n_rows or 1) if model.count is None else model.count)
        return SVGDState(model, np.array(theta), Moments.zeros(theta.shape), count)

    def step(self, state: SVGDState, engine: Engine) -> tuple[SVGDState, Info]:
        """One update on a random minibatch."""
        batch = engine.draw(self.batch_size, iteration=state.n_updates).compact()
        after, info = self.learn(state, batch)
        return after, replace(info, passes=batch.n_rows / (engine.n_rows or 1))

    def learn(self, state: SVGDState, batch: Batch) -> tuple[SVGDState, Info]:
        """Update all particles on one minibatch; the reported objective is their mean energy."""
        energy, gradient = state.model.energy_gradient(state.theta, batch, state.count)
        rate = rate_at(self.step_size, state.n_updates, self.n_updates)
        direction = stein_direction(state.theta, -gradient)
        moments, change = adam_change(state.moments, direction, rate)
        n_updates = state.n_updates + 1
        state = SVGDState(state.model, state.theta + change, moments, state.count, n_updates)
        return state, Info(float(np.mean(energy)), converged=n_updates >= self.n_updates)

    def posterior(self, state: SVGDState) -> ParticlePosterior:
        """Equally weighted particles."""
        return ParticlePosterior(state.model, state.theta)


def mean_scales(machine: Any, theta: Array) -> Array:
    """Geometric mean of the kernel scales; equal ones in the linear case."""
    if machine.frequencies is None:
        return np.full(machine.n_features, machine.n_features**-0.5)
    return np.asarray(np.exp(np.log(machine.split(theta).gamma).mean(axis=0)))


def median_bandwidth(theta: Array) -> float:
    """``h = med^2 / log(P + 1)``, med the median distance over distinct pairs.

    Each pair counts once, without self-pairs. Zero if there are no pairs or most of them coincide.
    """
    if len(theta) < 2:
        return 0.0
    return float(np.median(pdist(theta)) ** 2 / np.log(len(theta) + 1.0))


def stein_direction(theta: Array, gradient: Array, bandwidth: float | None = None) -> Array:
    """Update direction of every particle, from the gradients of the log joint.

    Parameters
    ----------
    theta, gradient : arrays of shape (P, p)
        Particles, and the gradient of the log joint at each.
    bandwidth : float, optional
        ``h`` of the kernel, by default `median_bandwidth`. Zero is the limit: only coinciding
        particles share their gradients, and there is no repulsion.

    Notes
    -----
    Costs ``3 P^2 p``.
    """
    P = len(theta)
    h = median_bandwidth(theta) if bandwidth is None else bandwidth
    squares = squareform(pdist(theta, "sqeuclidean")) if P > 1 else np.zeros((1, 1))
    if not h > 0.0:
        return np.asarray((squares == 0.0) @ gradient / P)
    kernel = np.exp(-squares / h)
    centred = theta - theta.mean(axis=0)  # centred to avoid cancellation
    repulsion = kernel.sum(axis=1, keepdims=True) * centred - kernel @ centred
    return np.asarray((kernel @ gradient + (2.0 / h) * repulsion) / P)
