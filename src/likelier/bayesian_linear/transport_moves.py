"""Corrected moves: draws that are nearly independent, because a good Gaussian proposes them.

`Independent` proposes many weights at once from the Gaussian of `gibbs_gaussian` and evaluates them
in one matrix product per block; Metropolis and Hastings decide. `Hamiltonian` follows the
gradient in the coordinates where that Gaussian is standard, for posteriors the Gaussian does not
fit. Both leave the posterior exactly invariant, whatever the Gaussian is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from likelier.base import Array, Engine, Inference, Info
from likelier.bayesian_linear.gibbs import (
    ChainState,
    chain_stream,
    draw_eta_along,
    draw_scale,
    log_posterior,
    posterior_of,
    sweep,
)
from likelier.bayesian_linear.importance import (
    CAUTIOUS,
    USUAL,
    Tails,
    effective_share,
    tail_shape,
    tail_share,
    usual_tails,
)
from likelier.bayesian_linear.model import BayesianLinear
from likelier.bayesian_linear.posterior import DrawsPosterior
from likelier.bayesian_linear.variational import (
    Held,
    Transport,
    fit_transport,
    transport_around,
)

GOOD = 0.5  # effective share of a pilot below which wider tails are tried
PILOT = 256
BURST = 128  # proposals in one pass over the rows
TRAJECTORY = 0.5 * np.pi  # in a standard Gaussian this far is independent of where one was
TARGET_ACCEPTANCE = 0.8
MAX_LEAPS = 16
REFITS = (40, 90)  # draws of warm-up after which the Gaussians move to where eta has been
MAX_TRIES = 8  # proposals for each draw, where few are accepted
JUDGED = 2048  # proposals that are remembered, to judge how well they cover the posterior's tails


def log_posterior_slopes(
    model: BayesianLinear, engine: Engine, theta: Array, eta: Array
) -> tuple[Array, Array]:
    """Log posterior of S points and its derivatives by the weights."""
    raw = model.raw(theta)
    total, gradient = engine.reduce(
        lambda batch: model.slopes(raw, batch), lambda a, b: (a[0] + b[0], a[1] + b[1])
    )
    value = total + model.prior.log_density(theta, eta)
    return np.asarray(value), model.pull(gradient) + model.prior.derivative(theta, eta)


@dataclass
class MoveState(ChainState):
    """Chains with their transport; ``value`` is what the last acceptance compared."""

    transport: Transport | None = None
    tails: Tails = USUAL
    value: Array = field(default_factory=lambda: np.empty(0))
    fitness: float = 1.0  # effective share of independent proposals, in a pilot run
    every: int = 1  # proposals for each draw that is kept
    xi: Array = field(default_factory=lambda: np.empty(0))
    slope: Array = field(default_factory=lambda: np.empty(0))
    length: float = 1.0  # of a leapfrog step
    adapting: bool = True
    accepted: float = 0.0
    proposed: float = 0.0
    log_weights: list[Array] = field(default_factory=list)  # of independent proposals
    points: list[Array] = field(default_factory=list)  # the first of them, eta last

    def clear(self) -> None:
        """Forget warm-up, and stop adapting to it."""
        super().clear()
        self.adapting, self.accepted, self.proposed = False, 0.0, 0.0
        self.log_weights, self.points = [], []

    def remember(self, found: Proposals) -> None:
        """Remember the weights of independent proposals, and of the first ones where they are."""
        self.log_weights.append(found.log_weight)
        if sum(map(len, self.points)) < JUDGED:
            self.points.append(np.column_stack([found.theta, found.eta]))

    @property
    def weight_tail(self) -> float:
        """Index of the tail of the weights of independent proposals."""
        return tail_shape(np.concatenate(self.log_weights))

    @property
    def worst_tail(self) -> float:
        """Effective share of a draw in the tail of the posterior that is covered worst."""
        points = np.concatenate(self.points)
        varies = np.ptp(points, axis=0) > 0.0  # eta is zero where there is none
        weights = np.concatenate(self.log_weights)[: len(points)]
        return self.every * tail_share(points[:, varies], weights)


@dataclass(frozen=True)
class Proposals:
    """Points, and the logarithm of posterior over proposal density."""

    theta: Array
    eta: Array
    xi: Array
    log_weight: Array


def propose(
    model: BayesianLinear, engine: Engine, transport: Transport, n: int,
    stream: np.random.Generator, tails: Tails = USUAL,
) -> Proposals:  # fmt: skip
    """Draw ``n`` points from the proposal and evaluate them in one pass over the rows."""
    xi = tails.draw(n, model.n_parameters, stream)
    log_proposal = tails.log_density(xi)
    eta = np.zeros(n)
    if transport.law is not None:
        law = transport.law.stretched(tails.stretch)
        eta = law.draw(n, stream)
        log_proposal += law.log_density(eta)
    theta, log_root = transport.forward(xi, eta)
    value = log_posterior(model, engine, theta, eta) + log_root - log_proposal
    return Proposals(theta, eta, xi, np.where(np.isnan(value), -np.inf, value))


@dataclass(frozen=True)
class Independent(Inference):
    """Metropolis-Hastings with independent proposals, many in one pass.

    A step is a burst of draws of every chain. Cost per draw: rows x nonzeros, one exponential
    per row, in products large enough to run at full speed.
    """

    n_chains: int = 4
    burst: int = BURST

    def init(self, model: BayesianLinear, engine: Engine) -> MoveState:
        """Fit the Gaussian, try it, and start the chains at weighted draws from it."""
        transport = fit_transport(model, engine)
        stream = chain_stream(engine, model, 0)
        tails = usual_tails(model.n_parameters)
        pilot = propose(model, engine, transport, PILOT, stream, tails)
        fitness = effective_share(pilot.log_weight)
        if fitness < GOOD:
            other = propose(model, engine, transport, PILOT, stream, CAUTIOUS)
            share = effective_share(other.log_weight)
            if share > fitness:
                tails, pilot, fitness = CAUTIOUS, other, share
        weight = np.exp(pilot.log_weight - pilot.log_weight.max())
        first = stream.choice(PILOT, self.n_chains, p=weight / weight.sum())
        return MoveState(
            model, pilot.theta[first], pilot.eta[first], iteration=1, transport=transport,
            tails=tails, value=pilot.log_weight[first], fitness=fitness,
            every=int(np.clip(np.rint(1.0 / fitness), 1, MAX_TRIES)),
        )  # fmt: skip

    def step(self, state: MoveState, engine: Engine) -> tuple[MoveState, Info]:
        """A burst of draws."""
        assert state.transport is not None
        C, every = self.n_chains, state.every
        each = max(1, self.burst // (C * every)) * every
        stream = chain_stream(engine, state.model, state.iteration)
        found = propose(state.model, engine, state.transport, each * C, stream, state.tails)
        luck = np.log(stream.random((each, C)))
        theta, eta = state.theta, state.eta
        for t in range(each):
            mine = slice(t * C, (t + 1) * C)
            take = luck[t] < found.log_weight[mine] - state.value
            state.value = np.where(take, found.log_weight[mine], state.value)
            theta = np.where(take[:, None], found.theta[mine], theta)
            eta = np.where(take, found.eta[mine], eta)
            state.accepted += float(take.sum())
            if (t + 1) % every == 0:
                state.keep(theta, eta)
        state.proposed += each * C
        state.remember(found)
        state.iteration += 1
        return state, Info(passes=1.0, message="independent")

    def posterior(self, state: MoveState) -> DrawsPosterior:
        """Draws since the last time they were cleared."""
        return posterior_of(state)


@dataclass(frozen=True)
class Hamiltonian(Inference):
    """Hamiltonian moves of the weights given ``eta``; ``eta`` by moves of its own.

    A step is one draw of every chain, all chains side by side: three to eight gradients, rows x
    nonzeros each. The length of leapfrog steps adapts during warm-up.
    """

    n_chains: int = 4

    def init(self, model: BayesianLinear, engine: Engine) -> MoveState:
        """Fit the Gaussian and start the chains at draws from it."""
        return self.start(model, engine, fit_transport(model, engine))

    def start(self, model: BayesianLinear, engine: Engine, transport: Transport) -> MoveState:
        """Start the chains at draws from a Gaussian that is already known."""
        stream = chain_stream(engine, model, 0)
        xi = stream.standard_normal((self.n_chains, model.n_parameters))
        eta = np.zeros(self.n_chains)
        if transport.law is not None:
            eta = transport.law.draw(self.n_chains, stream)
        theta, _ = transport.forward(xi, eta)
        length = 1.5 * model.n_parameters**-0.25
        return MoveState(model, theta, eta, iteration=1, transport=transport, xi=xi, length=length)

    def step(self, state: MoveState, engine: Engine) -> tuple[MoveState, Info]:
        """One draw of every chain."""
        model, transport = state.model, state.transport
        assert transport is not None
        stream = chain_stream(engine, state.model, state.iteration)
        rate = self._follow(state, engine, stream)
        if state.adapting:
            state.length *= float(np.exp((rate - TARGET_ACCEPTANCE) / np.sqrt(state.iteration)))
            state.length = min(state.length, 1.6)
        if model.hinge:  # trajectories stumble over kinks; hidden variables do not
            state.theta = sweep(model, engine, state.theta, state.eta, state.iteration, stream)
        if model.prior.learned:
            if state.adapting and state.n_draws in REFITS:
                transport = self._refit(state, engine)
            self._draw_eta(state, engine, stream)
        if model.hinge or model.prior.learned:
            state.xi = transport.held(state.eta).backward(state.theta)
            state.slope = np.empty(0)  # they have moved
        state.keep(state.theta, state.eta)
        state.accepted += rate * self.n_chains
        state.proposed += self.n_chains
        state.iteration += 1
        return state, Info(passes=1.0, message="hamiltonian")

    def _follow(self, state: MoveState, engine: Engine, stream: np.random.Generator) -> float:
        """One trajectory of every chain; returns the mean probability of acceptance."""
        transport, xi = state.transport, state.xi
        assert transport is not None
        here = transport.held(state.eta)
        if not len(state.slope):
            state.value, state.slope = self._slopes(state, engine, xi, here)
        value, slope = state.value, state.slope
        momentum = stream.standard_normal(xi.shape)
        energy = 0.5 * np.einsum("ij,ij->i", momentum, momentum) - value
        length = state.length * stream.uniform(0.8, 1.2)
        n_leaps = min(max(1, int(np.ceil(TRAJECTORY / length))), MAX_LEAPS)
        momentum = momentum + 0.5 * length * slope
        new, new_value, new_slope = xi, value, slope
        for leap in range(n_leaps):
            new = new + length * momentum
            new_value, new_slope = self._slopes(state, engine, new, here)
            momentum = momentum + (length if leap < n_leaps - 1 else 0.5 * length) * new_slope
        rise = 0.5 * np.einsum("ij,ij->i", momentum, momentum) - new_value - energy
        rise = np.where(np.isfinite(rise), rise, np.inf)
        take = np.log(stream.random(len(xi))) < -rise
        state.xi = np.where(take[:, None], new, xi)
        state.value = np.where(take, new_value, value)
        state.slope = np.where(take[:, None], new_slope, slope)
        state.theta = here.forward(state.xi)
        return float(np.exp(np.minimum(-rise, 0.0)).mean())

    def _refit(self, state: MoveState, engine: Engine) -> Transport:
        """Gaussians for the ``eta`` of the later half of the draws so far, also the state's.

        Where classes are separable, the evidence of Gaussians is largest far from where ``eta``
        turns out to be.
        """
        assert state.transport is not None
        etas = np.concatenate(state.etas[state.n_draws // 2 :])
        state.transport = transport_around(state.model, engine, etas, state.transport.law)
        return state.transport

    def _draw_eta(self, state: MoveState, engine: Engine, stream: np.random.Generator) -> None:
        """``eta`` with the weights held, then with their direction, then with ``xi`` held."""
        model, transport = state.model, state.transport
        assert transport is not None
        theta, eta = draw_scale(model, engine, state.theta, state.eta, stream)
        eta = model.prior.draw_eta(theta, stream)
        xi = transport.held(eta).backward(theta)

        def line(etas: Array) -> tuple[Array, Array]:
            each = np.repeat(xi, etas.shape[1], axis=0)
            points, log_root = transport.forward(each, etas.ravel())
            return points.reshape(*etas.shape, -1), log_root.reshape(etas.shape)

        state.theta, state.eta = draw_eta_along(model, engine, eta, line, stream)

    def _slopes(
        self, state: MoveState, engine: Engine, xi: Array, here: Held
    ) -> tuple[Array, Array]:
        """Log posterior and its derivatives by ``xi``, ``eta`` held."""
        value, slope = log_posterior_slopes(state.model, engine, here.forward(xi), state.eta)
        return value, here.pull(slope)

    def posterior(self, state: MoveState) -> DrawsPosterior:
        """Draws since the last time they were cleared."""
        return posterior_of(state)
