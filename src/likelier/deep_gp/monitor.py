"""Training monitor: progress, callbacks, checkpoints and early stopping between compiled calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from likelier.fitting.time_budget import TimeBudget

VALIDATE_EVERY = 100  # minibatches


class TrainingMonitor:
    """Callable that runs after every call of the compiled loop.

    ``best`` is the best validation score so far with its state; ``n_not_improved`` counts the
    validations since. Both are saved in ``training_`` with every intermediate state, so that early
    stopping of a resumed training is the same as without interruption.
    """

    def __init__(
        self, estimator: Any, inference: Any, task: Any, budget: TimeBudget, first_step: int
    ) -> None:
        self.estimator, self.inference, self.task, self.budget = estimator, inference, task, budget
        self.latest: Any = None
        self.best: tuple[float, Any] | None = None
        self.energy = float("nan")
        self.n_not_improved = 0
        self.started = time.perf_counter()
        self.first_step = first_step  # of this fit; not zero if it resumes another
        self.after_first_call: tuple[float, int] | None = None  # time and step after the first call

    @property
    def should_stop(self) -> bool:
        """Whether a callback asked to stop, or the validation score has stopped improving."""
        return self.budget.stopped or self.n_not_improved >= int(self.estimator.n_iter_no_change)

    def __call__(self, state: Any, info: Any) -> None:
        """Process the state after a call of the loop."""
        before = self.first_step if self.latest is None else self.latest.step
        self.latest, self.energy = state, info.objective
        text = f"of {state.horizon}: energy per row {info.objective:.5g}{self._time_left(state)}"
        self.budget.n_iter = state.step - 1
        self._validate(state, before)
        checkpoint = self.task.checkpoint
        due = checkpoint is not None and checkpoint.due()
        if due or self._has_callbacks():
            self.save(state)
        if due:
            self.estimator._write_checkpoint(self.task)
        self.budget.tick("minibatch", text)

    def _time_left(self, state: Any) -> str:
        """Remaining time by the speed of this fit after its first call, which may compile."""
        now = time.perf_counter()
        since, step = self.after_first_call or (self.started, self.first_step)
        self.after_first_call = self.after_first_call or (now, state.step)
        seconds = (now - since) / max(1, state.step - step) * (state.horizon - state.step)
        if self.budget.left is not None:  # the schedule will be shortened to it
            seconds = min(seconds, self.budget.left)
        return f", {seconds:.0f} s left"

    def _has_callbacks(self) -> bool:
        return bool(getattr(self.estimator, "_skl_callbacks", None))

    # -- early stopping --------------------------------------------------------------------
    def _validate(self, state: Any, before: int) -> None:
        """Compare the validation score with the best one, every `VALIDATE_EVERY` minibatches.

        A resumed fit may start at any step and never reach an exact multiple.
        """
        due = state.step // VALIDATE_EVERY > before // VALIDATE_EVERY
        if self.task.held is None or not (due or state.step >= state.horizon):
            return
        value = self._validation_score(state)
        if self.best is None or value > self.best[0]:
            self.best, self.n_not_improved = (value, state), 0
        else:
            self.n_not_improved += 1

    def _validation_score(self, state: Any) -> float:
        held = self.task.held
        self.estimator._store(state, self.task)
        densities = self.estimator._log_density(held.X, held.y)
        return float(np.average(densities, weights=held.weight))

    # -- saved state -----------------------------------------------------------------------
    def save(self, state: Any) -> None:
        """Store an intermediate state and the best state so far as fitted attributes."""
        from likelier.deep_gp.adam import plain_state

        self.estimator._store(state, self.task)
        if self.best is not None:
            saved = {"n_not_improved": self.n_not_improved, "best": plain_state(self.best[1])}
            self.estimator.training_.update(saved)

    def finish(self, first: Any) -> None:
        """Store the best state, or the last one if no rows were held out."""
        chosen = self.best[1] if self.best is not None else self.latest or first
        self.estimator._store(chosen, self.task)
        if self.best is not None:
            self.estimator.training_["chosen"] = True

    def restore(self, state: Any, training: Mapping[str, Any]) -> None:
        """Restore the best state of an earlier run from ``training``.

        Its score is computed again, because the held-out rows may have changed.
        """
        from likelier.deep_gp.start import Start

        best = state
        if self.task.held is None or not ("best" in training or training.get("chosen", False)):
            return
        if "best" in training:
            saved, self.n_not_improved = training["best"], int(training["n_not_improved"])
            start = Start(saved["layers"], state.projections)
            best = self.inference.resume(
                state.model, start, saved["likelihood"], saved, self.task.engine
            )
        self.best = (-np.inf, best)  # not lost if validation is interrupted
        self.best = (self._validation_score(best), best)
