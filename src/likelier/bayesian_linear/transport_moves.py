"""Metropolis-Hastings moves based on a Gaussian approximation of the posterior.

`Independent` proposes many weights at once from the Gaussian of
`likelier.bayesian_linear.variational` and evaluates them in one matrix product per block.
`Hamiltonian` is Hamiltonian Monte Carlo in the coordinates where that Gaussian is standard, for
posteriors that are not nearly Gaussian. Both leave the posterior exactly invariant for every
Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from likelier.base import Array, Engine, Inference, Info
from likelier.bayesian_linear.chains import ChainDraws, ChainState, appended, chain_stream
from likelier.bayesian_linear.gibbs import draw_eta_along, draw_scale, log_posterior, sweep
from likelier.bayesian_linear.importance import (
    DEFAULT_TAILS,
    WIDE_TAILS,
    Tails,
    default_tails,
    sampling_efficiency,
    tail_efficiency,
    tail_index,
)
from likelier.bayesian_linear.model import BayesianLinear, add_pairs
from likelier.bayesian_linear.variational import (
    FixedEtaTransport,
    Transport,
    fit_transport,
    transport_around,
)

MIN_EFFICIENCY = 0.5  # pilot efficiency below which wider tails are tried
PILOT = 256
BURST = 128  # proposals per pass over the rows
TRAJECTORY = 0.5 * np.pi  # of a standard Gaussian, its end is independent of its start
TARGET_ACCEPTANCE = 0.8
MAX_LEAPFROG_STEPS, MAX_STEP_SIZE = 16, 1.6
REFITS = (40, 90)  # warm-up draws after which the Gaussians are refitted around the draws of eta
MAX_TRIES = 8  # proposals per draw if few are accepted
MAX_STORED_PROPOSALS = 2048  # proposals stored to assess the coverage of the posterior's tails


def log_posterior_gradient(
    model: BayesianLinear, engine: Engine, theta: Array, eta: Array
) -> tuple[Array, Array]:
    """Log posterior of S points and its gradients by the weights."""
    total, gradient = engine.reduce(model.gradients, add_pairs, state=model.raw(theta))
    value = total + model.prior.log_density(theta, eta)
    return np.asarray(value), model.standard_gradient(gradient) + model.prior.derivative(theta, eta)


@dataclass(frozen=True)
class MoveState(ChainState):
    """Chains with their transport; ``value`` is the log posterior or log weight of each chain."""

    transport: Transport | None = None
    tails: Tails = DEFAULT_TAILS
    value: Array = field(default_factory=lambda: np.empty(0))
    pilot_efficiency: float = 1.0  # efficiency of independent proposals in a pilot run
    proposals_per_draw: int = 1  # proposals per stored draw
    xi: Array = field(default_factory=lambda: np.empty(0))
    gradient: Array = field(default_factory=lambda: np.empty(0))
    step_size: float = 1.0  # leapfrog step size
    adapting: bool = True
    accepted: float = 0.0
    proposed: float = 0.0
    log_weights: tuple[Array, ...] = ()  # of independent proposals, in parts
    points: tuple[Array, ...] = ()  # the first proposals, eta last, in parts

    def warmed_up(self) -> Self:
        """Without the warm-up draws; the adaptation has ended."""
        state = super().warmed_up()
        return replace(state, adapting=False, accepted=0.0, proposed=0.0, log_weights=(), points=())

    def with_proposals(self, found: Proposals) -> Self:
        """With the weights of independent proposals, and the points of the first ones."""
        points = self.points
        if sum(map(len, points)) < MAX_STORED_PROPOSALS:
            points = appended(points, np.column_stack([found.theta, found.eta]), axis=0)
        weights = appended(self.log_weights, found.log_weight, axis=0)
        return replace(
            self, log_weights=weights, points=points, proposed=self.proposed + len(found.eta)
        )

    @property
    def weight_tail_index(self) -> float:
        """Tail index of the weights of independent proposals."""
        return tail_index(np.concatenate(self.log_weights))

    @property
    def worst_tail_efficiency(self) -> float:
        """Efficiency per draw in the worst covered tail of the posterior."""
        points = np.concatenate(self.points)
        varies = np.ptp(points, axis=0) > 0.0  # eta is constant if it is not learned
        weights = np.concatenate(self.log_weights)[: len(points)]
        return self.proposals_per_draw * tail_efficiency(points[:, varies], weights)


@dataclass(frozen=True)
class Proposals:
    """Proposed points and their log importance weights."""

    theta: Array
    eta: Array
    xi: Array
    log_weight: Array


def propose(
    model: BayesianLinear, engine: Engine, transport: Transport, n: int,
    stream: np.random.Generator, tails: Tails = DEFAULT_TAILS,
) -> Proposals:  # fmt: skip
    """Draw ``n`` points from the proposal and evaluate them in one pass over the rows."""
    xi = tails.draw(n, model.n_parameters, stream)
    log_proposal = tails.log_density(xi)
    eta = np.zeros(n)
    if transport.eta_proposal is not None:
        eta_proposal = transport.eta_proposal.stretched(tails.stretch)
        eta = eta_proposal.draw(n, stream)
        log_proposal += eta_proposal.log_density(eta)
    theta, log_root = transport.forward(xi, eta)
    value = log_posterior(model, engine, theta, eta) + log_root - log_proposal
    return Proposals(theta, eta, xi, np.where(np.isnan(value), -np.inf, value))


@dataclass(frozen=True)
class Independent(Inference):
    """Independence Metropolis-Hastings sampler, with many proposals per pass.

    A step makes several draws of every chain. Cost per draw: rows x nonzeros and one exponential
    per row, in large matrix products.
    """

    resumable: ClassVar[bool] = True

    n_chains: int = 4
    burst: int = BURST

    def init(self, model: BayesianLinear, engine: Engine) -> MoveState:
        """Fit the Gaussian, run a pilot, and start the chains at weighted draws from it."""
        transport = fit_transport(model, engine)
        stream = chain_stream(engine, model, 0)
        tails = default_tails(model.n_parameters)
        pilot = propose(model, engine, transport, PILOT, stream, tails)
        pilot_efficiency = sampling_efficiency(pilot.log_weight)
        if pilot_efficiency < MIN_EFFICIENCY:
            other = propose(model, engine, transport, PILOT, stream, WIDE_TAILS)
            efficiency = sampling_efficiency(other.log_weight)
            if efficiency > pilot_efficiency:
                tails, pilot, pilot_efficiency = WIDE_TAILS, other, efficiency
        weight = np.exp(pilot.log_weight - pilot.log_weight.max())
        first = stream.choice(PILOT, self.n_chains, p=weight / weight.sum())
        return MoveState(
            model, pilot.theta[first], pilot.eta[first], transport=transport,
            tails=tails, value=pilot.log_weight[first], pilot_efficiency=pilot_efficiency,
            proposals_per_draw=int(np.clip(np.rint(1.0 / pilot_efficiency), 1, MAX_TRIES)),
        )  # fmt: skip

    def step(self, state: MoveState, engine: Engine) -> tuple[MoveState, Info]:
        """Several draws of every chain."""
        C, proposals_per_draw = self.n_chains, state.proposals_per_draw
        n_each = max(1, self.burst // (C * proposals_per_draw)) * proposals_per_draw
        stream = chain_stream(engine, state.model, state.iteration)
        found = propose(state.model, engine, _transport(state), n_each * C, stream, state.tails)
        log_uniform = np.log(stream.random((n_each, C)))
        theta, eta, value, n_accepted = state.theta, state.eta, state.value, state.accepted
        thetas, etas = [], []
        for t in range(n_each):
            rows = slice(t * C, (t + 1) * C)
            accepted = log_uniform[t] < found.log_weight[rows] - value
            value = np.where(accepted, found.log_weight[rows], value)
            theta = np.where(accepted[:, None], found.theta[rows], theta)
            eta = np.where(accepted, found.eta[rows], eta)
            n_accepted += float(accepted.sum())
            if (t + 1) % proposals_per_draw == 0:
                thetas.append(theta)
                etas.append(eta)
        state = replace(state, theta=theta, eta=eta, value=value, accepted=n_accepted)
        state = state.recorded(np.stack(thetas, axis=1), np.stack(etas, axis=1))
        return state.with_proposals(found), Info(passes=1.0)

    def posterior(self, state: MoveState) -> ChainDraws:
        """All draws, or those after the warm-up."""
        return state.draws()


@dataclass(frozen=True)
class Hamiltonian(Inference):
    """Hamiltonian Monte Carlo for the weights given ``eta``, alternating with moves of ``eta``.

    A step is one draw of every chain, vectorised over chains: three to eight gradients, rows x
    nonzeros each. The leapfrog step size adapts during warm-up.
    """

    resumable: ClassVar[bool] = True

    n_chains: int = 4

    def init(self, model: BayesianLinear, engine: Engine) -> MoveState:
        """Fit the Gaussian and start the chains at draws from it."""
        return self.start(model, engine, fit_transport(model, engine))

    def start(self, model: BayesianLinear, engine: Engine, transport: Transport) -> MoveState:
        """Start the chains at draws from a given Gaussian."""
        stream = chain_stream(engine, model, 0)
        xi = stream.standard_normal((self.n_chains, model.n_parameters))
        eta = np.zeros(self.n_chains)
        if transport.eta_proposal is not None:
            eta = transport.eta_proposal.draw(self.n_chains, stream)
        theta, _ = transport.forward(xi, eta)
        step_size = 1.5 * model.n_parameters**-0.25
        return MoveState(model, theta, eta, transport=transport, xi=xi, step_size=step_size)

    def step(self, state: MoveState, engine: Engine) -> tuple[MoveState, Info]:
        """One draw of every chain."""
        model, learned = state.model, state.model.prior.learned
        stream = chain_stream(engine, model, state.iteration)
        state, rate = self._trajectory(state, engine, stream)
        if state.adapting:
            change = float(np.exp((rate - TARGET_ACCEPTANCE) / np.sqrt(state.iteration)))
            state = replace(state, step_size=min(state.step_size * change, MAX_STEP_SIZE))
        if model.hinge:  # Gibbs sweeps help where the hinge is not differentiable
            theta = sweep(model, engine, state.theta, state.eta, state.iteration, stream)
            state = replace(state, theta=theta)
        if learned:
            if state.adapting and state.n_draws in REFITS:
                state = self._refitted(state, engine)
            theta, eta = self._draw_eta(state, engine, stream)
            state = replace(state, theta=theta, eta=eta)
        if model.hinge or learned:
            xi = _transport(state).at(state.eta).backward(state.theta)
            state = replace(state, xi=xi, gradient=np.empty(0))  # the gradient is outdated
        state = replace(
            state, accepted=state.accepted + rate * self.n_chains,
            proposed=state.proposed + self.n_chains,
        )  # fmt: skip
        return state.recorded(state.theta[:, None], state.eta[:, None]), Info(passes=1.0)

    def _trajectory(
        self, state: MoveState, engine: Engine, stream: np.random.Generator
    ) -> tuple[MoveState, float]:
        """The ends of one trajectory of every chain, and the mean acceptance probability."""
        transport_at_eta, xi = _transport(state).at(state.eta), state.xi
        value, gradient = state.value, state.gradient
        if not len(gradient):
            value, gradient = self._gradient(state, engine, xi, transport_at_eta)
        momentum = stream.standard_normal(xi.shape)
        energy = 0.5 * np.einsum("ij,ij->i", momentum, momentum) - value
        step_size = state.step_size * stream.uniform(0.8, 1.2)
        n_leapfrog_steps = min(max(1, int(np.ceil(TRAJECTORY / step_size))), MAX_LEAPFROG_STEPS)
        momentum = momentum + 0.5 * step_size * gradient
        new, new_value, new_gradient = xi, value, gradient
        for leap in range(n_leapfrog_steps):
            new = new + step_size * momentum
            new_value, new_gradient = self._gradient(state, engine, new, transport_at_eta)
            momentum = (
                momentum
                + (step_size if leap < n_leapfrog_steps - 1 else 0.5 * step_size) * new_gradient
            )
        energy_change = 0.5 * np.einsum("ij,ij->i", momentum, momentum) - new_value - energy
        energy_change = np.where(np.isfinite(energy_change), energy_change, np.inf)
        accepted = np.log(stream.random(len(xi))) < -energy_change
        xi = np.where(accepted[:, None], new, xi)
        value = np.where(accepted, new_value, value)
        gradient = np.where(accepted[:, None], new_gradient, gradient)
        state = replace(
            state, xi=xi, value=value, gradient=gradient, theta=transport_at_eta.forward(xi)
        )
        return state, float(np.exp(np.minimum(-energy_change, 0.0)).mean())

    def _refitted(self, state: MoveState, engine: Engine) -> MoveState:
        """With Gaussians around ``eta`` of the later half of the draws.

        If classes are separable, the Gaussian evidence has its maximum far from typical ``eta``.
        """
        etas = state.draws().eta[:, state.n_draws // 2 :].T.ravel()
        proposal = _transport(state).eta_proposal
        transport = transport_around(state.model, engine, etas, proposal)
        return replace(state, transport=transport)

    def _draw_eta(
        self, state: MoveState, engine: Engine, stream: np.random.Generator
    ) -> tuple[Array, Array]:
        """Draw ``eta`` given the weights, then given their direction, then given ``xi``."""
        model, transport = state.model, _transport(state)
        theta, eta = draw_scale(model, engine, state.theta, state.eta, stream)
        eta = model.prior.draw_eta(theta, stream)
        xi = transport.at(eta).backward(theta)

        def path(etas: Array) -> tuple[Array, Array]:
            repeated = np.repeat(xi, etas.shape[1], axis=0)
            points, log_root = transport.forward(repeated, etas.ravel())
            return points.reshape(*etas.shape, -1), log_root.reshape(etas.shape)

        return draw_eta_along(model, engine, eta, path, stream)

    def _gradient(
        self, state: MoveState, engine: Engine, xi: Array, transport_at_eta: FixedEtaTransport
    ) -> tuple[Array, Array]:
        """Log posterior and its gradient by ``xi`` for fixed ``eta``."""
        value, gradient = log_posterior_gradient(
            state.model, engine, transport_at_eta.forward(xi), state.eta
        )
        return value, transport_at_eta.gradient(gradient)

    def posterior(self, state: MoveState) -> ChainDraws:
        """All draws, or those after the warm-up."""
        return state.draws()


def _transport(state: MoveState) -> Transport:
    """The transport of chains that have started."""
    assert state.transport is not None
    return state.transport
