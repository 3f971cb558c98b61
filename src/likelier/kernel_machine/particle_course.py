"""The course of particles: their updates, rows held out to stop them by, and going on later."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from likelier.base import Array, Engine, Info
from likelier.kernel_machine.adam import DECAY_FROM, Moments
from likelier.kernel_machine.stein_gaussian import GaussianMixturePosterior
from likelier.kernel_machine.svgd import ParticlePosterior

UPDATES = 10  # minibatches of one step
PATIENCE = 20  # steps without a better prediction of the rows held out
WORTH = 1.0  # standard errors by which particles are worse than others
DRAWS = 2  # of each Gaussian, to predict these rows by; the same ones every time

ParticleState = ParticlePosterior | GaussianMixturePosterior


@dataclass(frozen=True)
class Looked:
    """How particles predicted the rows held out: on average, each row, and their state then."""

    value: float
    each: Array
    state: Any


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
        self.best: Looked | None = None
        self.latest: Looked | None = None
        self.waited, self.settling, self.stopped = 0, False, False

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        updated = self.state.n_updates >= self.inference.n_updates
        return bool(self.stopped or (updated and not self._unseen))

    @property
    def _unseen(self) -> bool:
        """Whether the particles have moved since they were last compared."""
        seen = 0 if self.latest is None else self.latest.state.n_updates
        return bool(self.held is not None and self.state.n_updates > seen)

    def step(self, engine: Engine) -> None:
        """Some updates: the next ten minibatches, of a stream one pass.

        None where a look at the rows held out was interrupted: then only that.
        """
        between = engine.in_memory and self.state.n_updates % UPDATES
        first = between or not self._unseen
        while first or (engine.in_memory and self.state.n_updates % UPDATES):
            self.state, self.info = self.inference.step(self.state, engine)
            first = False
        if self.held is not None:
            self._look()

    def _look(self) -> None:
        """Compare with the best particles so far."""
        each = self.log_likelihoods()
        now = self.latest = Looked(self._mean(each), each, self.state)
        if self.best is None or now.value > self.best.value + self.tol * abs(self.best.value):
            self.best, self.waited = now, 0
            return
        self.waited += 1
        if self.waited < PATIENCE or self.settling:
            return
        if self._is_worse():
            self.stopped = True
        else:
            self._settle()

    def _is_worse(self) -> bool:
        """Whether the latest particles are worse than the best beyond what chance makes of it."""
        if self.best is None or self.latest is None:
            return False
        loss = self.best.each - self.latest.each
        weight = np.ones(len(loss)) if self.held.weight is None else self.held.weight
        mean = self._mean(loss)
        error = float(weight**2 @ (loss - mean) ** 2) ** 0.5 / float(weight.sum())
        return bool(mean > WORTH * error)

    def _mean(self, each: Array) -> float:
        return float(np.average(each, weights=self.held.weight))

    def _settle(self) -> None:
        """Let the rate fall from now on: at a constant one particles keep on moving about."""
        planned = int(min(self.inference.n_updates, self.state.n_updates / DECAY_FROM))
        self.inference = replace(self.inference, n_updates=planned)
        self.settling, self.waited = True, 0

    def log_likelihoods(self) -> Array:
        """Log of ``exp(-loss / dispersion)``, averaged over the particles, of each row held out.

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
        return np.asarray(logsumexp(-losses, axis=0) - np.log(P))

    def posterior(self) -> ParticleState:
        """The latest particles, or those that predicted the rows held out clearly better."""
        if self.best is not None and self._is_worse():
            return self._posterior(self.best.state)
        return self._posterior(self.state)

    def _posterior(self, state: Any) -> ParticleState:
        found: ParticleState = self.inference.posterior(state)
        return found

    def told(self) -> str:
        """How it goes, for people."""
        text = f"objective {self.info.objective:.6g}"
        if self.latest is None:
            return text
        return f"{text}, log-likelihood of rows held out {self.latest.value:.5g}"

    # -- going on later -----------------------------------------------------------------
    def to_plain(self, stage: str) -> dict[str, Any]:
        """Plain values to go on with."""
        plain = {name: getattr(self, name) for name in ("waited", "settling", "stopped")}
        plain |= {"stage": stage, "planned": self.inference.n_updates, "state": _plain(self.state)}
        plain["objective"] = np.array([self.info.objective])  # not a number before the first step
        for name in ("best", "latest"):
            seen: Looked | None = getattr(self, name)
            if seen is not None:
                plain[name] = vars(seen) | {"state": _plain(seen.state)}
        return plain

    def restore(self, plain: dict[str, Any], stage: str) -> None:
        """Go on from there, if it is of the same stage."""
        if plain.get("stage") != stage:
            return
        first = self.state
        self.waited, self.settling, self.stopped = (
            plain[name] for name in ("waited", "settling", "stopped")
        )
        self.inference = replace(self.inference, n_updates=plain["planned"])
        self.state, self.info = _restored(first, plain["state"]), Info(plain["objective"][0])
        for name in ("best", "latest"):
            if name in plain:
                seen = plain[name]
                setattr(self, name, Looked(**(seen | {"state": _restored(first, seen["state"])})))


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
