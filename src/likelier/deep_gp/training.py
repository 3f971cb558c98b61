"""Training of a deep Gaussian process under a monitor: schedule, validation and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Engine
from likelier.deep_gp.adam import DeepAdam, DeepState
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows

STAGE = "training"
VALIDATE_EVERY = 100  # minibatches


@dataclass(frozen=True)
class Training:
    """How far a training has come; what a checkpoint keeps.

    Attributes
    ----------
    latest : DeepState
    energy : float
        Mean energy per row over the last minibatches.
    best : DeepState or None
        State of the best validation score, where rows are held out.
    best_score : float
    n_not_improved : int
        Validations since.
    """

    latest: DeepState
    energy: float = float("nan")
    best: DeepState | None = None
    best_score: float = float("-inf")
    n_not_improved: int = 0

    @property
    def chosen(self) -> DeepState:
        """The best state, or the latest one if there was no validation."""
        return self.latest if self.best is None else self.best

    def validated(self, score: float) -> Training:
        """After a validation of the latest state."""
        if self.best is not None and not score > self.best_score:
            return replace(self, n_not_improved=self.n_not_improved + 1)
        return replace(self, best=self.latest, best_score=score, n_not_improved=0)


@dataclass(frozen=True)
class Validation:
    """Early stopping by the log density of held-out rows.

    Attributes
    ----------
    held : Rows
        Targets are as training has them.
    posterior : callable
        From a state to the posterior that scores the rows.
    patience : int
        Validations without improvement after which training ends.
    """

    held: Rows
    posterior: Callable[[DeepState], Any]
    patience: int

    def after(self, training: Training, before: int) -> Training:
        """Validate every `VALIDATE_EVERY` minibatches, and at the end of the schedule."""
        state = training.latest
        due = state.step // VALIDATE_EVERY > before // VALIDATE_EVERY
        if not due and state.step < state.horizon:
            return training
        densities = self.posterior(state).validation_score(self.held.X, self.held.y)
        return training.validated(float(np.average(densities, weights=self.held.weight)))


class Pace:
    """Seconds per minibatch; the first call, which may compile, is forgotten after the second."""

    def __init__(self, step: int) -> None:
        self._since, self._step, self.n_calls = time.perf_counter(), step, 0

    def after_call(self, step: int) -> float:
        """Seconds per minibatch, after a call that led to a step."""
        now = time.perf_counter()
        seconds = (now - self._since) / max(1, step - self._step)
        if not self.n_calls:
            self._since, self._step = now, step
        self.n_calls += 1
        return seconds


def train(
    inference: DeepAdam,
    state: DeepState,
    engine: Engine,
    monitor: Monitor,
    validation: Validation | None = None,
) -> Training:
    """Train up to the end of the schedule, which a time budget shortens, or until it is stopped.

    At least one call of the compiled loop is made. What an earlier fit kept of the stage takes the
    place of ``state``.
    """
    kept: Training | None = monitor.state(STAGE)
    training = Training(state) if kept is None else kept
    pace, ends = Pace(training.latest.step), _is_overfitting(training, validation)
    while training.latest.step < training.latest.horizon and not ends:
        before = training.latest.step
        try:
            after, info = inference.step(training.latest, engine)
        except KeyboardInterrupt:
            monitor.keep(STAGE, training, now=True)
            raise
        training = replace(training, latest=after, energy=info.objective)
        if validation is not None:
            training = validation.after(training, before)
        seconds = pace.after_call(after.step)
        _report(training, seconds, monitor)
        training = _in_time(training, seconds if pace.n_calls > 1 else 0.0, monitor, inference)
        ends = monitor.stopped or _is_overfitting(training, validation)
        monitor.keep(STAGE, training)
    return training


def _is_overfitting(training: Training, validation: Validation | None) -> bool:
    return validation is not None and training.n_not_improved >= validation.patience


def _report(training: Training, seconds: float, monitor: Monitor) -> None:
    state = training.latest
    remaining = seconds * (state.horizon - state.step)
    if monitor.left is not None:  # the schedule will be shortened to it
        remaining = min(remaining, monitor.left)
    text = (
        f"{state.step} of {state.horizon} minibatches, energy per row {training.energy:.5g}, "
        f"{remaining:.0f} s left"
    )
    monitor.tick("step", text, lambda: monitor.attributes(state))


def _in_time(training: Training, seconds: float, monitor: Monitor, inference: DeepAdam) -> Training:
    """Shorten the schedule to the time budget, at ``seconds`` per minibatch (0 for unknown)."""
    left, state = monitor.left, training.latest
    if left is None:
        return training
    more = int(left / seconds) if seconds > 0.0 else state.horizon
    horizon = min(inference.max_iter, state.step + more) if left > 0.0 else state.step
    return replace(training, latest=replace(state, horizon=horizon))
