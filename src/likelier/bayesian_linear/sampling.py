"""Sampling of one or several models: choice of the sampler, warm-up, rounds, and termination.

A `Sampling` is a value that holds all draws so far, and `advanced` gives the next one: several
one-vs-rest problems take turns in `Rounds`, progress can be shown, and all of it can be kept in a
checkpoint and gone on with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from likelier.base import Array, Engine
from likelier.bayesian_linear.chains import ChainDraws, ChainState
from likelier.bayesian_linear.diagnostics import effective_size, r_hat
from likelier.bayesian_linear.gibbs import Gibbs
from likelier.bayesian_linear.importance import max_tail_index
from likelier.bayesian_linear.model import BayesianLinear
from likelier.bayesian_linear.settings import MCMC
from likelier.bayesian_linear.transport_moves import Hamiltonian, Independent, MoveState
from likelier.fitting.monitor import Monitor

KINDS: dict[str, Any] = {"gibbs": Gibbs, "hamiltonian": Hamiltonian, "independent": Independent}
# Sampling efficiency of pilot proposals above which independent moves beat Hamiltonian ones, which
# cost about ten times as much.
MIN_PILOT_EFFICIENCY = 0.2
WARM_UP = {"independent": 32, "hamiltonian": 150, "gibbs": 250}
# "auto" switches from independent moves to Hamiltonian ones above this R-hat, with enough draws.
MAX_R_HAT, MIN_R_HAT_DRAWS = 1.05, 100
# It also switches below this efficiency in the worst covered tail: single proposals then take a
# percent of all draws and dominate the ends of intervals.
MIN_TAIL_EFFICIENCY = 0.3
MIN_PROPOSALS = 400  # proposals needed to estimate tail efficiencies
MAX_PARAMETERS = 3000
MIN_DRAWS = 4  # draws below which callbacks see no model and cannot end a fit


@dataclass(frozen=True)
class Sampling:
    """Draws from the posterior of one model, as far as they have been made.

    Attributes
    ----------
    model : BayesianLinear
    settings : MCMC
        Sampler and numbers of draws.
    route : str
        The sampler that was chosen; empty before the first step.
    state : ChainState or None
        State of the sampler.
    is_warm : bool
        Whether the draws in the state are those after the warm-up.
    is_complete : bool
        Whether all draws have been made.
    """

    model: BayesianLinear
    settings: MCMC
    route: str = ""
    state: ChainState | None = None
    is_warm: bool = False
    is_complete: bool = False

    @property
    def n_wanted(self) -> int:
        """Draws per chain before thinning."""
        return self.settings.n_draws * self.settings.thin

    @property
    def n_warmup(self) -> int:
        """Warm-up draws per chain."""
        given = self.settings.n_warmup
        return WARM_UP[self.route] if given is None else given

    @property
    def n_done(self) -> int:
        """Draws per chain since warm-up."""
        return self.state.n_draws if self.is_warm and self.state is not None else 0

    @property
    def fraction_done(self) -> float:
        """Approximate fraction of the work that is done."""
        if self.state is None:
            return 0.0
        before = self.n_warmup if self.is_warm else 0
        fraction = (before + self.state.n_draws) / (self.n_warmup + self.n_wanted)
        return min(1.0, fraction)

    def advanced(self, engine: Engine) -> Sampling:
        """After one more step."""
        if self.state is None:
            return self._begun(engine)
        state, is_warm = self.state, self.is_warm
        if not is_warm and state.n_draws >= self.n_warmup:
            state, is_warm = state.warmed_up(), True
        state, _ = self._sampler().step(state, engine)
        following = replace(self, state=state, is_warm=is_warm)
        if not is_warm or state.n_draws < self.n_wanted:
            return following
        if following._should_switch():
            return following._on_hamiltonian(state, engine)
        return replace(following, is_complete=True)

    def _sampler(self) -> Any:
        return KINDS[self.route](self.settings.n_chains)

    def _begun(self, engine: Engine) -> Sampling:
        """With the sampler chosen and initialised."""
        chosen = self.settings.sampler
        following = replace(self, route="independent" if chosen == "auto" else chosen)
        state = following._sampler().init(self.model, engine)
        if chosen == "auto" and state.pilot_efficiency < MIN_PILOT_EFFICIENCY:
            return self._on_hamiltonian(state, engine)
        return replace(following, state=state)

    def _on_hamiltonian(self, state: MoveState, engine: Engine) -> Sampling:
        """Begun anew with Hamiltonian moves."""
        assert state.transport is not None
        moves = Hamiltonian(self.settings.n_chains)
        start = moves.start(self.model, engine, state.transport)
        return replace(self, route="hamiltonian", state=start, is_warm=False)

    def _should_switch(self) -> bool:
        """Whether independent moves do not mix, so that Hamiltonian ones should take over."""
        if self.route != "independent" or self.settings.sampler != "auto":
            return False
        return self.misses_tails or self._chains_disagree()

    @property
    def misses_tails(self) -> bool:
        """Whether independent proposals cover the tails of the posterior poorly."""
        state = self.state
        if self.route != "independent" or not self.is_warm or not isinstance(state, MoveState):
            return False
        if state.proposed < MIN_PROPOSALS:
            return False
        if state.weight_tail_index > max_tail_index(self.model.n_parameters):
            return True
        return state.worst_tail_efficiency < MIN_TAIL_EFFICIENCY

    def _chains_disagree(self) -> bool:
        if self.n_wanted < MIN_R_HAT_DRAWS or self.settings.n_chains < 2:
            return False
        return float(np.max(r_hat(self.posterior().theta))) > MAX_R_HAT

    @property
    def acceptance(self) -> float:
        """Acceptance rate since warm-up; one for Gibbs."""
        if not isinstance(self.state, MoveState) or not self.state.proposed:
            return 1.0
        return self.state.accepted / self.state.proposed

    def posterior(self) -> ChainDraws:
        """The thinned draws so far, at most ``n_draws`` per chain."""
        assert self.state is not None
        found = self.state.draws()
        last, every = self.n_wanted, self.settings.thin
        rows = slice(min(every, found.theta.shape[1]) - 1, last, every)
        return ChainDraws(self.model, found.theta[:, rows], found.eta[:, rows])


@dataclass(frozen=True)
class Draws:
    """Draws of a fit, arrays of shape (chains, draws, ...), and diagnostics."""

    theta: Array  # (..., outputs, parameters per output), units of the data
    precision: Array  # (..., problems): learned prior precision; no problems if it is given
    max_r_hat: float
    min_ess: float
    acceptance: float
    route: str
    n_rounds: int
    misses_tails: bool


@dataclass(frozen=True)
class Rounds:
    """Several problems that advance in turn.

    Attributes
    ----------
    problems : tuple of Sampling
    turn : int
        Which problem may advance next.
    n_rounds : int
        Rounds that are over.
    """

    problems: tuple[Sampling, ...]
    turn: int = 0
    n_rounds: int = 0

    def advanced(self, engine: Engine) -> Rounds:
        """After a step of the problem whose turn it is; at its end a round is over."""
        problems = list(self.problems)
        problems[self.turn] = problems[self.turn].advanced(engine)
        waiting = [k for k, problem in enumerate(problems) if not problem.is_complete]
        later = [k for k in waiting if k > self.turn]
        turn = (later or waiting or [0])[0]
        return Rounds(tuple(problems), turn, self.n_rounds + int(not later))

    @property
    def is_complete(self) -> bool:
        """Whether all problems have their draws."""
        return all(problem.is_complete for problem in self.problems)

    @property
    def fraction_done(self) -> float:
        """Approximate fraction of the work that is done."""
        return float(np.mean([problem.fraction_done for problem in self.problems]))

    @property
    def n_draws(self) -> int:
        """Draws per chain that all problems have."""
        settings = self.problems[0].settings
        done = min(problem.n_done for problem in self.problems)
        return min(done // settings.thin, settings.n_draws)

    def draws(self) -> Draws:
        """The draws that all problems have, with diagnostics."""
        n = self.n_draws
        found = [problem.posterior() for problem in self.problems]
        standard = [posterior.theta[:, :n] for posterior in found]
        etas = [posterior.eta[:, :n] for posterior in found]
        learned = self.problems[0].model.prior.learned
        precision = np.exp(np.stack(etas, axis=2)) if learned else np.empty((*etas[0].shape, 0))
        return Draws(
            np.concatenate([posterior.in_data_units()[:, :n] for posterior in found], axis=2),
            precision,
            max(float(np.max(r_hat(theta))) for theta in standard),
            min(float(np.min(effective_size(theta))) for theta in standard),
            float(np.mean([problem.acceptance for problem in self.problems])),
            "+".join(sorted({problem.route for problem in self.problems})),
            self.n_rounds,
            any(problem.misses_tails for problem in self.problems),
        )


def start_of(models: list[BayesianLinear], settings: MCMC) -> Rounds:
    """Problems of which none has begun."""
    for model in models:
        if model.n_parameters > MAX_PARAMETERS:
            raise ValueError(
                f"too many parameters to sample jointly: {model.n_parameters} (max "
                f"{MAX_PARAMETERS}, because samplers store their covariance). Reduce the features "
                "(SelectKBest, TruncatedSVD), use loss='log_loss', or use LinearClassifier"
            )
    return Rounds(tuple(Sampling(model, settings) for model in models))


def draw(
    start: Callable[[], Rounds], engine: Engine, monitor: Monitor, stage: str,
    attributes: Callable[[Draws], dict[str, Any]] | None = None,
) -> Draws:  # fmt: skip
    """Let the problems take turns until all have their draws or the monitor asks for an end.

    ``attributes`` makes of the draws what callbacks may see of the model; without it nobody is
    told of the rounds. What an earlier fit kept of the ``stage`` takes the place of ``start()``.
    """
    kept = monitor.state(stage)
    rounds: Rounds = start() if kept is None else kept
    while not rounds.is_complete:
        before = rounds.n_rounds
        try:
            rounds = rounds.advanced(engine)
        except KeyboardInterrupt:
            monitor.keep(stage, rounds, now=True)
            raise
        if attributes is not None and rounds.n_rounds > before:
            enough = rounds.n_draws >= MIN_DRAWS
            text = f"{rounds.fraction_done:.0%} done, {rounds.n_draws} draws per chain"
            if monitor.tick("round", text, partial(_seen, rounds, attributes)) and enough:
                break
        monitor.keep(stage, rounds)
    return rounds.draws()


def _seen(rounds: Rounds, attributes: Callable[[Draws], dict[str, Any]]) -> dict[str, Any] | None:
    """What callbacks may see, once there are draws."""
    return attributes(rounds.draws()) if rounds.n_draws >= MIN_DRAWS else None
