"""Gibbs sampling by data augmentation: latent variables per row, then weights, then their scale.

One step is one pass over the rows for all chains together: each block draws its latent variables
from its own random stream, keyed on (seed, iteration, block), and returns additive sums; the
weights are then one Gaussian draw per chain. All engines give identical results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from likelier.base import Array, Engine, Inference, Info
from likelier.bayesian_linear.augmented import Augment, Augmented
from likelier.bayesian_linear.chains import ChainDraws, ChainState, chain_stream, pass_number
from likelier.bayesian_linear.model import BayesianLinear

Path = Callable[[Array], tuple[Array, Array]]

START_SCALE = 0.5
N_TRIES = 7
STEP_SCALES = (0.2, 1.0)  # small and large step scale of the proposals of eta


def log_posterior(model: BayesianLinear, engine: Engine, theta: Array, eta: Array) -> Array:
    """Log posterior of S points, up to a constant, in one pass."""
    total = engine.reduce(model.log_likelihoods, np.add, state=model.raw(theta))
    return np.asarray(total + model.prior.log_density(theta, eta))


def sweep(
    model: BayesianLinear, engine: Engine, theta: Array, eta: Array, iteration: int,
    stream: np.random.Generator,
) -> Array:  # fmt: skip
    """Draw latent variables given weights (chains, P), then weights given those and ``eta``."""
    theta = theta.copy()
    for output in range(model.linear.n_outputs if model.joint else 1):
        number = pass_number(model, iteration, output)
        _draw_output(model, engine, theta, eta, (output, number), stream)
    return draw_common_shift(model, theta, eta, stream) if model.joint else theta


def draw_common_shift(
    model: BayesianLinear, theta: Array, eta: Array, stream: np.random.Generator
) -> Array:
    """Weights (chains, P) of a multinomial model after a draw of their common shift.

    Adding the same vector to the weights of every class leaves the likelihood unchanged, so the
    conditional of the shift depends on the prior only: it is Gaussian, with the sum of the classes'
    precisions. Updates of one class at a time would mix slowly along the shift.
    """
    C, K = len(theta), model.linear.n_outputs
    precision = np.stack([model.prior.precision(float(value)) for value in eta])
    linear_term = (precision * (model.prior.mean - theta)).reshape(C, K, -1).sum(axis=1)
    total = precision.reshape(C, K, -1).sum(axis=1)
    shift = linear_term / total + stream.standard_normal(total.shape) / np.sqrt(total)
    return np.asarray(theta + np.tile(shift, K))


def _draw_output(
    model: BayesianLinear, engine: Engine, theta: Array, eta: Array,
    output_and_pass: tuple[int, int], stream: np.random.Generator,
) -> None:  # fmt: skip
    """Draw the weights of one output in every chain given everything else, in place."""
    p = model.linear.n_rows_theta
    output, number = output_and_pass
    own = slice(output * p, (output + 1) * p)
    augment = Augment(model, engine.streams(2 * number), output)
    sums: Augmented = engine.reduce(augment, Augmented.__add__, state=model.raw(theta))
    noise = stream.standard_normal((len(theta), p))
    linear = model.coordinates.standard_gradient(sums.linear)
    for c in range(len(theta)):
        precision = model.prior.precision(float(eta[c]))[own]
        matrix = model.coordinates.standard_hessian(sums.gram[c]) + np.diag(precision)
        theta[c, own] = gaussian_draw(
            matrix, linear[c] + precision * model.prior.mean[own], noise[c]
        )


def draw_eta_along(
    model: BayesianLinear, engine: Engine, eta: Array, path: Path, stream: np.random.Generator
) -> tuple[Array, Array]:
    """Multiple-try move of ``eta`` of every chain, with the weights a function of ``eta``.

    ``path`` maps values (chains, T) to weights (chains, T, P) and the log Jacobian of its map.
    Given a centre drawn around the current ``eta``, that and `N_TRIES` values drawn around the same
    centre are exchangeable, so one of them is chosen with probability proportional to the
    posterior (Tjelmeland, 2004). All are evaluated in one pass over the rows.
    """
    C, step_scale = len(eta), stream.choice(STEP_SCALES, len(eta))
    centre = eta + step_scale * stream.standard_normal(C)
    proposed = centre[:, None] + step_scale[:, None] * stream.standard_normal((C, N_TRIES))
    etas = np.column_stack([eta, proposed])
    points, log_volume = path(etas)
    flat = points.reshape(-1, points.shape[2])
    value = log_posterior(model, engine, flat, etas.ravel()).reshape(C, -1) + log_volume
    cumulative = np.exp(value - value.max(axis=1, keepdims=True)).cumsum(axis=1)
    chosen = (cumulative < stream.random((C, 1)) * cumulative[:, -1:]).sum(axis=1)
    rows = np.arange(C)
    return points[rows, chosen], etas[rows, chosen]


def draw_scale(
    model: BayesianLinear, engine: Engine, theta: Array, eta: Array, stream: np.random.Generator
) -> tuple[Array, Array]:
    """Draw ``eta`` given the weights, then ``eta`` jointly with the scale of the weights.

    The second move keeps ``(w - mean) sqrt(tau)`` constant. Without it, chains mix slowly if the
    scale of the weights is weakly identified by the data.
    """
    prior = model.prior
    conditional = prior.draw_eta(theta, stream)
    deviation = np.where(prior.scaled > 0.0, theta - prior.mean, 0.0)

    def path(etas: Array) -> tuple[Array, Array]:
        change = np.expm1(0.5 * (conditional[:, None] - etas))
        return theta[:, None] + change[:, :, None] * deviation[
            :, None
        ], -0.5 * prior.n_scaled * etas

    return draw_eta_along(model, engine, conditional, path, stream)


@dataclass(frozen=True)
class Gibbs(Inference):
    """Polya-Gamma (log loss, softmax) or inverse-Gaussian (hinge) augmentation.

    Cost per step and chain: one latent variable per row (about 0.15 microseconds), rows x
    features^2 for the sums, features^3 for the draw; for a multinomial model, all that per class.
    """

    resumable: ClassVar[bool] = True

    n_chains: int = 4

    def init(self, model: BayesianLinear, engine: Engine) -> ChainState:
        """Dispersed starting points around the prior mean."""
        stream = chain_stream(engine, model, 0)
        P = model.n_parameters
        theta = START_SCALE / np.sqrt(P) * stream.standard_normal((self.n_chains, P))
        theta += model.prior.mean
        eta = np.zeros(self.n_chains)
        if model.prior.learned:
            eta = np.full(self.n_chains, np.log(model.prior.shape / model.prior.rate))
        return ChainState(model, theta, eta)

    def step(self, state: ChainState, engine: Engine) -> tuple[ChainState, Info]:
        """One sweep of every chain."""
        model, eta = state.model, state.eta
        stream = chain_stream(engine, model, state.iteration)
        theta = sweep(model, engine, state.theta, eta, state.iteration, stream)
        if model.prior.learned:
            theta, eta = draw_scale(model, engine, theta, eta, stream)
        state = replace(state, theta=theta, eta=eta).recorded(theta[:, None], eta[:, None])
        return state, Info(passes=1.0)

    def posterior(self, state: ChainState) -> ChainDraws:
        """All draws, or those after the warm-up."""
        return state.draws()


def gaussian_draw(precision: Array, linear: Array, noise: Array) -> Array:
    """``N(A^-1 b, A^-1)`` from standard normal noise, by one Cholesky factor of A."""
    lower = cholesky(precision, lower=True, check_finite=False)
    half = solve_triangular(lower, linear, lower=True, check_finite=False)
    return np.asarray(
        solve_triangular(lower, half + noise, lower=True, trans=1, check_finite=False)
    )
