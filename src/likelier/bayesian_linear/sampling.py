"""Sampling of one model: choice of the sampler, warm-up, and termination.

A `Sampling` advances in small steps, so that several one-vs-rest problems can be interleaved,
progress can be shown, and an interruption keeps all draws so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Engine, Inference
from likelier.bayesian_linear.gibbs import ChainState, Gibbs
from likelier.bayesian_linear.importance import max_tail_index
from likelier.bayesian_linear.model import BayesianLinear
from likelier.bayesian_linear.posterior import DrawsPosterior, r_hat
from likelier.bayesian_linear.transport_moves import Hamiltonian, Independent, MoveState

SAMPLERS = ("auto", "gibbs", "hamiltonian", "independent")
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


@dataclass(frozen=True)
class Settings:
    """The user's settings of sampling."""

    sampler: str = "auto"
    n_chains: int = 4
    n_draws: int = 500
    n_warmup: int | None = None  # None: the default of the sampler
    thin: int = 1


class Sampling:
    """Draws from the posterior of one model, made step by step.

    Parameters
    ----------
    model, engine : BayesianLinear, Engine
        The posterior.
    settings : Settings
        Sampler and numbers of draws.
    """

    def __init__(self, model: BayesianLinear, engine: Engine, settings: Settings) -> None:
        if model.n_parameters > MAX_PARAMETERS:
            raise ValueError(
                f"too many parameters to sample jointly: {model.n_parameters} (max "
                f"{MAX_PARAMETERS}, because samplers store their covariance). Reduce the features "
                "(SelectKBest, TruncatedSVD), use multi_class='ovr', or use LinearClassifier"
            )
        self.model, self.engine, self.settings = model, engine, settings
        self._inference: Inference | None = None
        self._state: Any = None
        self._warm = False
        self.route = ""

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
        return int(self._state.n_draws) if self._warm else 0

    @property
    def fraction_done(self) -> float:
        """Approximate fraction of the work that is done."""
        if self._state is None:
            return 0.0
        before = self.n_warmup if self._warm else 0
        fraction = (before + int(self._state.n_draws)) / (self.n_warmup + self.n_wanted)
        return min(1.0, fraction)

    def advance(self) -> bool:
        """Make one step; return whether sampling is complete."""
        if self._state is None:
            self._begin()
            return False
        assert self._inference is not None
        if not self._warm and self._state.n_draws >= self.n_warmup:
            self._state.clear()
            self._warm = True
        self._state, _ = self._inference.step(self._state, self.engine)
        if not self._warm or self._state.n_draws < self.n_wanted:
            return False
        return not self._switch_if_not_mixing()

    def _begin(self) -> None:
        """Choose and initialise the sampler."""
        chosen, n_chains = self.settings.sampler, self.settings.n_chains
        if chosen == "gibbs":
            self._set(chosen, Gibbs(n_chains))
        elif chosen == "hamiltonian":
            self._set(chosen, Hamiltonian(n_chains))
        else:
            independent = Independent(n_chains)
            state = independent.init(self.model, self.engine)
            if chosen == "auto" and state.pilot_efficiency < MIN_PILOT_EFFICIENCY:
                self._switch_to_hamiltonian(state)
            else:
                self._set("independent", independent, state)

    def _set(self, route: str, inference: Inference, state: ChainState | None = None) -> None:
        self.route, self._inference, self._warm = route, inference, False
        self._state = inference.init(self.model, self.engine) if state is None else state

    def _switch_to_hamiltonian(self, state: MoveState) -> None:
        assert state.transport is not None
        moves = Hamiltonian(self.settings.n_chains)
        self._set("hamiltonian", moves, moves.start(self.model, self.engine, state.transport))

    def _switch_if_not_mixing(self) -> bool:
        """Switch to Hamiltonian moves if independent ones do not mix; return whether."""
        if self.route != "independent" or self.settings.sampler != "auto":
            return False
        if not self.misses_tails and not self._chains_disagree():
            return False
        self._switch_to_hamiltonian(self._state)
        return True

    @property
    def misses_tails(self) -> bool:
        """Whether independent proposals cover the tails of the posterior poorly."""
        if self.route != "independent" or not self._warm or self._state.proposed < MIN_PROPOSALS:
            return False
        state: MoveState = self._state
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
        if not isinstance(self._state, MoveState) or not self._state.proposed:
            return 1.0
        return self._state.accepted / self._state.proposed

    def posterior(self) -> DrawsPosterior:
        """The thinned draws so far, at most ``n_draws`` per chain."""
        assert self._inference is not None
        found: Any = self._inference.posterior(self._state)
        last, every = self.n_wanted, self.settings.thin
        rows = slice(min(every, found.theta.shape[1]) - 1, last, every)
        return DrawsPosterior(self.model, found.theta[:, rows], found.eta[:, rows])
