"""Gibbs sampling by data augmentation: hidden variables per row, then weights, then their scale.

One step is one pass over the rows for all chains together: each block draws its hidden variables
from its own stream, keyed on (seed, iteration, block), and returns additive sums; the weights are
then one Gaussian draw per chain. Any engine gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from likelier.base import Array, Engine, Inference, Info
from likelier.bayesian_linear.augmented import Augmented, augment
from likelier.bayesian_linear.model import BayesianLinear
from likelier.bayesian_linear.posterior import DrawsPosterior

Line = Callable[[Array], tuple[Array, Array]]

START_SPREAD = 0.5
MAX_PASSES = 1 << 40  # of one problem; the numbers of the next begin there
TRIES = 7
REACHES = (0.2, 1.0)  # of the tries, in units of eta: near and far


@dataclass
class ChainState:
    """Where the chains are, and every draw since the last time they were cleared.

    ``theta`` has shape (chains, parameters) and is in standard coordinates, ``eta`` (chains,) is
    the logarithm of the learned prior precision. Draws are lists of such arrays.
    """

    model: BayesianLinear
    theta: Array
    eta: Array
    iteration: int = 0
    thetas: list[Array] = field(default_factory=list)
    etas: list[Array] = field(default_factory=list)

    def keep(self, theta: Array, eta: Array) -> None:
        """Move the chains there, and remember it."""
        self.theta, self.eta = theta, eta
        self.thetas.append(theta)
        self.etas.append(eta)

    def clear(self) -> None:
        """Forget the draws so far: they were warm-up."""
        self.thetas, self.etas = [], []

    @property
    def n_draws(self) -> int:
        """Draws of each chain so far."""
        return len(self.thetas)


def pass_number(model: BayesianLinear, iteration: int, output: int = 0) -> int:
    """Number of a pass over the rows, by which its random numbers are known.

    Classes against the rest sample on one engine: were two of them given the same numbers, their
    draws would be correlated, though their posteriors are independent.
    """
    problem = (
        0 if model.joint else model.positive_class ^ 1
    )  # two classes are one problem, that of class 1
    return problem * MAX_PASSES + iteration * model.linear.n_outputs + output


def block_stream(engine: Engine, number: int, block: int) -> np.random.Generator:
    """Random numbers of one block in one pass."""
    return engine.stream(2 * number, block)


def chain_stream(engine: Engine, model: BayesianLinear, iteration: int) -> np.random.Generator:
    """Random numbers of an iteration that belong to no block."""
    return engine.stream(2 * pass_number(model, iteration) + 1, 0)


def posterior_of(state: ChainState) -> DrawsPosterior:
    """Draws kept so far, or where the chains are if there are none."""
    thetas = state.thetas or [state.theta]
    etas = state.etas or [state.eta]
    return DrawsPosterior(state.model, np.stack(thetas, axis=1), np.stack(etas, axis=1))


def log_posterior(model: BayesianLinear, engine: Engine, theta: Array, eta: Array) -> Array:
    """Log posterior of S points, up to a constant: one pass for all of them."""
    raw = model.raw(theta)
    total = engine.reduce(lambda batch: model.log_likelihoods(raw, batch), np.add)
    return np.asarray(total + model.prior.log_density(theta, eta))


def sweep(
    model: BayesianLinear, engine: Engine, theta: Array, eta: Array, iteration: int,
    stream: np.random.Generator,
) -> Array:  # fmt: skip
    """Hidden variables given the weights (chains, P), and new weights given those and ``eta``."""
    theta = theta.copy()
    for output in range(model.linear.n_outputs if model.joint else 1):
        # every output passes over the rows, each with numbers of its own
        number = pass_number(model, iteration, output)
        _draw_output(model, engine, theta, eta, (output, number), stream)
    return shifted(model, theta, eta, stream) if model.joint else theta


def shifted(model: BayesianLinear, theta: Array, eta: Array, stream: np.random.Generator) -> Array:
    """Weights (chains, P) of classes treated jointly, with what they have in common drawn anew.

    Adding the same to the weights of every class changes no probability, so that of the shift
    only the prior knows anything: it is Gaussian, with the classes' precisions added up. Class by
    class the chains would creep along it, each held by the others.
    """
    C, K = len(theta), model.linear.n_outputs
    precision = np.stack([model.prior.precision(float(value)) for value in eta])
    pull = (precision * (model.prior.mean - theta)).reshape(C, K, -1).sum(axis=1)
    total = precision.reshape(C, K, -1).sum(axis=1)
    shift = pull / total + stream.standard_normal(total.shape) / np.sqrt(total)
    return np.asarray(theta + np.tile(shift, K))


def _draw_output(
    model: BayesianLinear, engine: Engine, theta: Array, eta: Array, which: tuple[int, int],
    stream: np.random.Generator,
) -> None:  # fmt: skip
    """Replace the weights of one output in every chain, given everything else."""
    p = model.linear.n_rows_theta
    output, number = which
    raw, own = model.raw(theta), slice(output * p, (output + 1) * p)
    sums: Augmented = engine.reduce(
        lambda batch: augment(model, raw, batch, block_stream(engine, number, batch.index), output),
        Augmented.__add__,
    )
    noise = stream.standard_normal((len(theta), p))
    linear = model.coordinates.pull(sums.linear)
    for c in range(len(theta)):
        precision = model.prior.precision(float(eta[c]))[own]
        matrix = model.coordinates.pull_both(sums.gram[c]) + np.diag(precision)
        theta[c, own] = gaussian_draw(
            matrix, linear[c] + precision * model.prior.mean[own], noise[c]
        )


def draw_eta_along(
    model: BayesianLinear, engine: Engine, eta: Array, line: Line, stream: np.random.Generator
) -> tuple[Array, Array]:
    """New ``eta`` of every chain, the weights following along a line.

    ``line`` maps values (chains, T) to weights (chains, T, P) and the logarithm of the volume its
    map takes there. Given a centre drawn around the present ``eta``, that and `TRIES` others
    drawn around the same centre are exchangeable, so one of them is chosen in proportion to the
    posterior (Tjelmeland, 2004). All are evaluated in one pass over the rows.
    """
    C, reach = len(eta), stream.choice(REACHES, len(eta))
    centre = eta + reach * stream.standard_normal(C)
    tried = centre[:, None] + reach[:, None] * stream.standard_normal((C, TRIES))
    etas = np.column_stack([eta, tried])
    points, log_volume = line(etas)
    flat = points.reshape(-1, points.shape[2])
    value = log_posterior(model, engine, flat, etas.ravel()).reshape(C, -1) + log_volume
    chance = np.exp(value - value.max(axis=1, keepdims=True)).cumsum(axis=1)
    chosen = (chance < stream.random((C, 1)) * chance[:, -1:]).sum(axis=1)
    rows = np.arange(C)
    return points[rows, chosen], etas[rows, chosen]


def draw_scale(
    model: BayesianLinear, engine: Engine, theta: Array, eta: Array, stream: np.random.Generator
) -> tuple[Array, Array]:
    """New ``eta`` given the weights, then ``eta`` and the size of the weights together.

    The second move holds ``(w - mean) sqrt(tau)``: without it chains creep where the data say
    little about the size of the weights.
    """
    prior = model.prior
    now = prior.draw_eta(theta, stream)
    held = np.where(prior.scaled > 0.0, theta - prior.mean, 0.0)

    def line(etas: Array) -> tuple[Array, Array]:
        change = np.expm1(0.5 * (now[:, None] - etas))
        return theta[:, None] + change[:, :, None] * held[:, None], -0.5 * prior.n_scaled * etas

    return draw_eta_along(model, engine, now, line, stream)


@dataclass(frozen=True)
class Gibbs(Inference):
    """Polya-Gamma (log loss, softmax) or inverse-Gaussian (hinge) augmentation.

    Cost per step and chain: one hidden variable per row (about 0.15 microseconds), rows x
    features^2 for the sums, features^3 for the draw; for jointly treated classes, that for each.
    """

    n_chains: int = 4

    def init(self, model: BayesianLinear, engine: Engine) -> ChainState:
        """Chains near zero, apart from each other."""
        stream = chain_stream(engine, model, 0)
        P = model.n_parameters
        theta = START_SPREAD / np.sqrt(P) * stream.standard_normal((self.n_chains, P))
        theta += model.prior.mean
        eta = np.zeros(self.n_chains)
        if model.prior.learned:
            eta = np.full(self.n_chains, np.log(model.prior.shape / model.prior.rate))
        return ChainState(model, theta, eta, iteration=1)

    def step(self, state: ChainState, engine: Engine) -> tuple[ChainState, Info]:
        """One sweep of every chain."""
        stream = chain_stream(engine, state.model, state.iteration)
        theta = sweep(state.model, engine, state.theta, state.eta, state.iteration, stream)
        eta = state.eta
        if state.model.prior.learned:
            theta, eta = draw_scale(state.model, engine, theta, eta, stream)
        state.keep(theta, eta)
        state.iteration += 1
        return state, Info(passes=1.0, message="gibbs")

    def posterior(self, state: ChainState) -> DrawsPosterior:
        """Draws since the last time they were cleared."""
        return posterior_of(state)


def gaussian_draw(precision: Array, linear: Array, noise: Array) -> Array:
    """``N(A^-1 b, A^-1)`` from standard normal noise, by one Cholesky factor of A."""
    lower = cholesky(precision, lower=True, check_finite=False)
    half = solve_triangular(lower, linear, lower=True, check_finite=False)
    return np.asarray(
        solve_triangular(lower, half + noise, lower=True, trans=1, check_finite=False)
    )
