"""The course of particles: their updates, rows held out to stop them by, and going on later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from likelier.base import Array, Engine, Info
from likelier.inference.adam import Moments
from likelier.inference.stein_gaussian import GaussianMixturePosterior
from likelier.inference.svgd import ParticlePosterior

UPDATES = 10  # minibatches of one step
PATIENCE = 10  # steps without a better prediction of the rows held out
DRAWS = 2  # of each Gaussian, to predict these rows by; the same ones every time

ParticleState = ParticlePosterior | GaussianMixturePosterior


class Course:
    """Particles on their way, step by step.

    Parameters
    ----------
    inference : SVGD or SteinGaussian
    state : its first state
    tol : float
        Relative gain in log-likelihood that counts as one.
    held : Rows, optional
        Rows that are held out to stop by.
    """

    def __init__(self, inference: Any, state: Any, tol: float, held: Any = None) -> None:
        self.inference, self.state, self.tol, self.held = inference, state, tol, held
        self.info = Info()
        self.best: tuple[float, Any] | None = None  # log-likelihood of the rows held out, and state
        self.waited = 0

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        planned: int = self.inference.n_updates
        return bool(self.state.n_updates >= planned or self.waited >= PATIENCE)

    def step(self, engine: Engine) -> None:
        """Some updates: the next ten minibatches, of a stream one pass."""
        first = True
        while first or (engine.in_memory and self.state.n_updates % UPDATES):
            self.state, self.info = self.inference.step(self.state, engine)
            first = False
        if self.held is not None:
            self._look()

    def _look(self) -> None:
        """Compare with the best particles so far."""
        value = self.log_likelihood()
        if self.best is None or value > self.best[0] + self.tol * abs(self.best[0]):
            self.best, self.waited = (value, self.state), 0
        else:
            self.waited += 1

    def log_likelihood(self) -> float:
        """Mean log of ``exp(-loss / dispersion)``, averaged over the particles, of rows held out.

        Of a softmax and of squared error that is the likelihood, up to a constant; of a hinge
        and a tube it is what takes its place in the posterior.
        """
        posterior, held = self._posterior(self.state), self.held
        if isinstance(posterior, GaussianMixturePosterior):
            posterior = replace(posterior, n_draws=DRAWS * len(posterior.mean))
        scores = posterior.scores(held.X)
        (P, n, K), machine = scores.shape, self.state.model.machine
        flat = scores.reshape(P * n, K) if machine.loss.coupled else scores.reshape(P * n)
        losses = machine.loss.value(np.tile(held.y, P), flat).reshape(P, n) / machine.dispersion
        each: Array = logsumexp(-losses, axis=0) - np.log(P)
        return float(np.average(each, weights=held.weight))

    def posterior(self) -> ParticleState:
        """The particles: the latest, or those that predict the rows held out best."""
        return self._posterior(self.state if self.best is None else self.best[1])

    def _posterior(self, state: Any) -> ParticleState:
        found: ParticleState = self.inference.posterior(state)
        return found

    def told(self) -> str:
        """How it goes, for people."""
        text = f"objective {self.info.objective:.6g}"
        return text if self.best is None else f"{text}, best held-out value {self.best[0]:.5g}"

    # -- going on later -----------------------------------------------------------------
    def to_plain(self, stage: str) -> dict[str, Any]:
        """Plain values to go on with."""
        plain = {"stage": stage, "waited": self.waited, "state": _plain(self.state)}
        if self.best is not None:
            plain["best"] = {"value": self.best[0], "state": _plain(self.best[1])}
        return plain

    def restore(self, plain: dict[str, Any], stage: str) -> None:
        """Go on from there, if it is of the same stage."""
        if plain.get("stage") != stage:
            return
        first, self.waited = self.state, plain["waited"]
        self.state = _restored(first, plain["state"])
        if "best" in plain:
            self.best = (plain["best"]["value"], _restored(first, plain["best"]["state"]))


def _plain(state: Any) -> dict[str, Any]:
    """What changes from update to update."""
    moments = {f"moments.{name}": value for name, value in vars(state.moments).items()}
    names = [name for name in vars(state) if name not in ("model", "moments", "count")]
    return {name: getattr(state, name) for name in names} | moments


def _restored(state: Any, plain: dict[str, Any]) -> Any:
    """A state with those values."""
    moments = {name.removeprefix("moments."): v for name, v in plain.items() if "." in name}
    rest = {name: value for name, value in plain.items() if "." not in name}
    return replace(state, moments=Moments(**moments), **rest)
