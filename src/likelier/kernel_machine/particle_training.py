"""Training loop of particles: updates, early stopping on held-out rows, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from likelier.base import Array, Engine, Info
from likelier.kernel_machine.adam import DECAY_FROM, Moments
from likelier.kernel_machine.particle_posterior import ParticleState
from likelier.kernel_machine.stein_gaussian import GaussianMixturePosterior

UPDATES_PER_STEP = 10  # minibatches per step
PATIENCE = 20  # steps without improvement on the held-out rows
SIGNIFICANCE = 1.0  # standard errors of a significant difference
DRAWS_PER_GAUSSIAN = 2  # draws per Gaussian for evaluations, the same every time


@dataclass(frozen=True)
class Evaluation:
    """Held-out log-likelihoods (mean and per row), and the state they belong to."""

    value: float
    each: Array
    state: Any


class ParticleTraining:
    """Training of particles, step by step.

    Parameters
    ----------
    inference : SVGD or SteinGaussian
    state : initial state
    tol : float
        Smallest relative gain in log-likelihood.
    held : Rows, optional
        Held-out rows for early stopping.
    """

    def __init__(self, inference: Any, state: Any, tol: float, held: Any = None) -> None:
        self.inference, self.state, self.tol, self.held = inference, state, tol, held
        self.info = Info()
        self.best: Evaluation | None = None
        self.latest: Evaluation | None = None
        self.stale_steps, self.decaying, self.stopped = 0, False, False

    @property
    def done(self) -> bool:
        """Whether training is complete."""
        updated = self.state.n_updates >= self.inference.n_updates
        return bool(self.stopped or (updated and not self._unevaluated))

    @property
    def _unevaluated(self) -> bool:
        """Whether the particles have moved since the last evaluation."""
        seen = 0 if self.latest is None else self.latest.state.n_updates
        return bool(self.held is not None and self.state.n_updates > seen)

    def step(self, engine: Engine) -> None:
        """Run the next ten minibatches (one pass of a stream), then evaluate.

        After an interruption within the evaluation only that is repeated.
        """
        between = engine.in_memory and self.state.n_updates % UPDATES_PER_STEP
        first = between or not self._unevaluated
        while first or (engine.in_memory and self.state.n_updates % UPDATES_PER_STEP):
            self.state, self.info = self.inference.step(self.state, engine)
            first = False
        if self.held is not None:
            self._evaluate()

    def _evaluate(self) -> None:
        """Evaluate, and compare with the best particles so far."""
        each = self.log_likelihoods()
        now = self.latest = Evaluation(self._mean(each), each, self.state)
        if self.best is None or now.value > self.best.value + self.tol * abs(self.best.value):
            self.best, self.stale_steps = now, 0
            return
        self.stale_steps += 1
        if self.stale_steps < PATIENCE or self.decaying:
            return
        if self._is_worse():
            self.stopped = True
        else:
            self._decay_rate()

    def _is_worse(self) -> bool:
        """Whether the latest particles are significantly worse than the best."""
        if self.best is None or self.latest is None:
            return False
        loss = self.best.each - self.latest.each
        weight = np.ones(len(loss)) if self.held.weight is None else self.held.weight
        mean = self._mean(loss)
        error = float(weight**2 @ (loss - mean) ** 2) ** 0.5 / float(weight.sum())
        return bool(mean > SIGNIFICANCE * error)

    def _mean(self, each: Array) -> float:
        return float(np.average(each, weights=self.held.weight))

    def _decay_rate(self) -> None:
        """Start to decay the rate: at a constant rate particles keep fluctuating."""
        planned = int(min(self.inference.n_updates, self.state.n_updates / DECAY_FROM))
        self.inference = replace(self.inference, n_updates=planned)
        self.decaying, self.stale_steps = True, 0

    def log_likelihoods(self) -> Array:
        """Log of ``exp(-loss / dispersion)``, averaged over the particles, of each held-out row.

        The likelihood up to a constant for softmax and squared error, and the pseudo-likelihood for
        the hinge and epsilon-insensitive losses.
        """
        posterior, held = self._posterior(self.state), self.held
        if isinstance(posterior, GaussianMixturePosterior):
            posterior = replace(posterior, n_draws=DRAWS_PER_GAUSSIAN * len(posterior.mean))
        scores = posterior.scores(held.X)
        (P, n, K), machine = scores.shape, self.state.model.machine
        flat = scores.reshape(P * n, K) if machine.loss.coupled else scores.reshape(P * n)
        losses = machine.loss.value(np.tile(held.y, P), flat).reshape(P, n) / machine.dispersion
        return np.asarray(logsumexp(-losses, axis=0) - np.log(P))

    def posterior(self) -> ParticleState:
        """The latest particles, or the best ones if these are significantly better."""
        if self.best is not None and self._is_worse():
            return self._posterior(self.best.state)
        return self._posterior(self.state)

    def _posterior(self, state: Any) -> ParticleState:
        found: ParticleState = self.inference.posterior(state)
        return found

    def progress_text(self) -> str:
        """Progress message."""
        text = f"objective {self.info.objective:.6g}"
        if self.latest is None:
            return text
        return f"{text}, held-out log-likelihood {self.latest.value:.5g}"

    # -- checkpoints --------------------------------------------------------------------
    def to_plain(self, stage: str) -> dict[str, Any]:
        """Checkpoint as plain values."""
        plain = {name: getattr(self, name) for name in ("stale_steps", "decaying", "stopped")}
        plain |= {"stage": stage, "planned": self.inference.n_updates, "state": _plain(self.state)}
        plain["objective"] = np.array([self.info.objective])  # NaN before the first step
        for name in ("best", "latest"):
            seen: Evaluation | None = getattr(self, name)
            if seen is not None:
                plain[name] = vars(seen) | {"state": _plain(seen.state)}
        return plain

    def restore(self, plain: dict[str, Any], stage: str) -> None:
        """Resume from a checkpoint of the same stage."""
        if plain.get("stage") != stage:
            return
        first = self.state
        self.stale_steps, self.decaying, self.stopped = (
            plain[name] for name in ("stale_steps", "decaying", "stopped")
        )
        self.inference = replace(self.inference, n_updates=plain["planned"])
        self.state, self.info = _restored(first, plain["state"]), Info(plain["objective"][0])
        for name in ("best", "latest"):
            if name in plain:
                seen = plain[name]
                setattr(
                    self, name, Evaluation(**(seen | {"state": _restored(first, seen["state"])}))
                )


def _plain(state: Any) -> dict[str, Any]:
    """The parts of a state that updates change."""
    moments = {f"moments.{name}": value for name, value in vars(state.moments).items()}
    names = [name for name in vars(state) if name not in ("model", "moments", "count")]
    return {name: getattr(state, name) for name in names} | moments


def _restored(state: Any, plain: dict[str, Any]) -> Any:
    """State with these values."""
    moments = {name.removeprefix("moments."): v for name, v in plain.items() if "." in name}
    rest = {name: value for name, value in plain.items() if "." not in name}
    return replace(state, moments=Moments(**moments), **rest)
