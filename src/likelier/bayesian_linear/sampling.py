"""From a model and an engine to draws: which sampler, how much warm-up, when it is done.

A `Sampling` advances in small steps, so that several problems (one class against the rest each)
can take turns, progress can be shown, and an interruption keeps every draw made so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Engine, Inference
from likelier.bayesian_linear.gibbs import ChainState, Gibbs
from likelier.bayesian_linear.importance import heaviest_tail
from likelier.bayesian_linear.model import BayesianLinear
from likelier.bayesian_linear.posterior import DrawsPosterior, r_hat
from likelier.bayesian_linear.transport_moves import Hamiltonian, Independent, MoveState

SAMPLERS = ("auto", "gibbs", "hamiltonian", "independent")
# Effective share of pilot proposals from which on independent moves are worth more than
# Hamiltonian ones, which cost about as much as ten of them.
GOOD_FIT = 0.2
WARM_UP = {"independent": 32, "hamiltonian": 150, "gibbs": 250}
AGREE, ENOUGH = (
    1.05,
    100,
)  # R-hat beyond which independent moves are given up, from so many draws on
# Effective share of a draw in the worst covered tail below which they are given up: below,
# single proposals hold a percent of all draws, and the ends of intervals are theirs.
WORST_TAIL = 0.3
JUDGEABLE = 400  # proposals of which tails can be judged
MAX_PARAMETERS = 3000


@dataclass(frozen=True)
class Settings:
    """What the user said about sampling."""

    sampler: str = "auto"
    n_chains: int = 4
    n_draws: int = 500
    n_warmup: int | None = None  # None: as many as the sampler needs
    thin: int = 1


class Sampling:
    """Draws from the posterior of one model, made step by step.

    Parameters
    ----------
    model, engine : BayesianLinear, Engine
        The posterior.
    settings : Settings
        Which sampler and how many draws.
    """

    def __init__(self, model: BayesianLinear, engine: Engine, settings: Settings) -> None:
        if model.n_parameters > MAX_PARAMETERS:
            raise ValueError(
                f"the posterior has {model.n_parameters} parameters jointly, and samplers hold "
                f"their covariance: at most {MAX_PARAMETERS}. Select or reduce features first "
                "(SelectKBest, TruncatedSVD), use multi_class='ovr', or LinearClassifier"
            )
        self.model, self.engine, self.settings = model, engine, settings
        self._inference: Inference | None = None
        self._state: Any = None
        self._warm = False
        self.route = ""

    @property
    def n_wanted(self) -> int:
        """Draws of each chain before thinning."""
        return self.settings.n_draws * self.settings.thin

    @property
    def n_warmup(self) -> int:
        """Warm-up draws of each chain."""
        given = self.settings.n_warmup
        return WARM_UP[self.route] if given is None else given

    @property
    def n_done(self) -> int:
        """Draws of each chain that count, so far."""
        return int(self._state.n_draws) if self._warm else 0

    @property
    def share_done(self) -> float:
        """Share of the work that is done, about."""
        if self._state is None:
            return 0.0
        before = self.n_warmup if self._warm else 0
        share = (before + int(self._state.n_draws)) / (self.n_warmup + self.n_wanted)
        return min(1.0, share)

    def advance(self) -> bool:
        """Do a small part of the work; return whether all of it is done."""
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
        return not self._gives_up()

    def _begin(self) -> None:
        """Choose the sampler, fit what it proposes from, and place the chains."""
        chosen, n_chains = self.settings.sampler, self.settings.n_chains
        if chosen == "gibbs":
            self._set(chosen, Gibbs(n_chains))
        elif chosen == "hamiltonian":
            self._set(chosen, Hamiltonian(n_chains))
        else:
            independent = Independent(n_chains)
            state = independent.init(self.model, self.engine)
            if chosen == "auto" and state.fitness < GOOD_FIT:
                self._follow_gradients(state)
            else:
                self._set("independent", independent, state)

    def _set(self, route: str, inference: Inference, state: ChainState | None = None) -> None:
        self.route, self._inference, self._warm = route, inference, False
        self._state = inference.init(self.model, self.engine) if state is None else state

    def _follow_gradients(self, state: MoveState) -> None:
        assert state.transport is not None
        moves = Hamiltonian(self.settings.n_chains)
        self._set("hamiltonian", moves, moves.start(self.model, self.engine, state.transport))

    def _gives_up(self) -> bool:
        """Whether independent moves turned out not to mix, so that others have to start."""
        if self.route != "independent" or self.settings.sampler != "auto":
            return False
        if not self.misses_tails and not self._disagrees():
            return False
        self._follow_gradients(self._state)
        return True

    @property
    def misses_tails(self) -> bool:
        """Whether independent proposals cover the tails of the posterior badly."""
        if self.route != "independent" or not self._warm or self._state.proposed < JUDGEABLE:
            return False
        state: MoveState = self._state
        if state.weight_tail > heaviest_tail(self.model.n_parameters):
            return True
        return state.worst_tail < WORST_TAIL

    def _disagrees(self) -> bool:
        if self.n_wanted < ENOUGH or self.settings.n_chains < 2:
            return False
        return float(np.max(r_hat(self.posterior().theta))) > AGREE

    @property
    def acceptance(self) -> float:
        """Share of proposals accepted since warm-up; one for Gibbs."""
        if not isinstance(self._state, MoveState) or not self._state.proposed:
            return 1.0
        return self._state.accepted / self._state.proposed

    def posterior(self) -> DrawsPosterior:
        """The draws so far, thinned, at most as many as were asked for."""
        assert self._inference is not None
        found: Any = self._inference.posterior(self._state)
        last, every = self.n_wanted, self.settings.thin
        rows = slice(min(every, found.theta.shape[1]) - 1, last, every)
        return DrawsPosterior(self.model, found.theta[:, rows], found.eta[:, rows])
