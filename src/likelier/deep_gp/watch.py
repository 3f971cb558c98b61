"""What happens between the calls of the compiled loop: progress, checkpoints, early stopping."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from likelier.fitting.time_budget import TimeBudget

VALIDATE_EVERY = 100  # minibatches


class Watch:
    """After every call of the loop: progress, callbacks, and the held-out log density.

    ``best`` is the held-out log density of the best state so far, and that state; ``waited``
    counts the evaluations since. Both go into ``training_`` with every unfinished state, so that
    a training that is taken up again chooses as if it had never stopped.
    """

    def __init__(
        self, estimator: Any, inference: Any, task: Any, budget: TimeBudget, first_step: int
    ) -> None:
        self.estimator, self.inference, self.task, self.budget = estimator, inference, task, budget
        self.latest: Any = None
        self.best: tuple[float, Any] | None = None
        self.energy = float("nan")
        self.waited = 0
        self.begin = time.perf_counter()
        self.first_step = first_step  # of this fit, which may go on from another
        self.warm: tuple[float, int] | None = None  # time and step after the first call

    @property
    def enough(self) -> bool:
        """Whether a callback asked to stop, or held-out rows have not gained for long."""
        return self.budget.stopped or self.waited >= int(self.estimator.n_iter_no_change)

    def __call__(self, state: Any, info: Any) -> None:
        """Look at the state that a call of the loop has led to."""
        before = self.first_step if self.latest is None else self.latest.step
        self.latest, self.energy = state, info.objective
        text = f"of {state.horizon}: energy per row {info.objective:.5g}{self._time_left(state)}"
        self.budget.n_iter = state.step - 1
        self._validate(state, before)
        checkpoint = self.task.checkpoint
        due = checkpoint is not None and checkpoint.due()
        if due or self._has_callbacks():
            self.store(state)
        if due:
            self.estimator._write_checkpoint(self.task)
        self.budget.tick("minibatch", text)

    def _time_left(self, state: Any) -> str:
        """By the pace of this fit after its first call, which may have compiled."""
        now = time.perf_counter()
        since, step = self.warm or (self.begin, self.first_step)
        self.warm = self.warm or (now, state.step)
        seconds = (now - since) / max(1, state.step - step) * (state.horizon - state.step)
        if self.budget.left is not None:  # by which the horizon will be shortened
            seconds = min(seconds, self.budget.left)
        return f", {seconds:.0f} s left"

    def _has_callbacks(self) -> bool:
        return bool(getattr(self.estimator, "_skl_callbacks", None))

    # -- early stopping --------------------------------------------------------------------
    def _validate(self, state: Any, before: int) -> None:
        """Compare the held-out log density with the best so far, where it is time.

        A fit that goes on may start at any step, and then never meets a multiple.
        """
        due = state.step // VALIDATE_EVERY > before // VALIDATE_EVERY
        if self.task.held is None or not (due or state.step >= state.horizon):
            return
        value = self._judge(state)
        if self.best is None or value > self.best[0]:
            self.best, self.waited = (value, state), 0
        else:
            self.waited += 1

    def _judge(self, state: Any) -> float:
        held = self.task.held
        self.estimator._store(state, self.task)
        densities = self.estimator._log_density(held.X, held.y)
        return float(np.average(densities, weights=held.weight))

    # -- what outlives a process -----------------------------------------------------------
    def store(self, state: Any) -> None:
        """Fitted attributes of an unfinished state, with the best one beside it."""
        from likelier.deep_gp.adam import plain_state

        self.estimator._store(state, self.task)
        if self.best is not None:
            kept = {"waited": self.waited, "best": plain_state(self.best[1])}
            self.estimator.training_.update(kept)

    def finish(self, first: Any) -> None:
        """Fitted attributes of the best state, or of the last where no rows were held out."""
        chosen = self.best[1] if self.best is not None else self.latest or first
        self.estimator._store(chosen, self.task)
        if self.best is not None:
            self.estimator.training_["chosen"] = True

    def recall(self, state: Any, training: Mapping[str, Any]) -> None:
        """Take up the best state that an earlier run left in ``training``.

        It is judged again: the rows that are held out now may be others.
        """
        from likelier.deep_gp.start import Start

        best = state
        if self.task.held is None or not ("best" in training or training.get("chosen", False)):
            return
        if "best" in training:
            kept, self.waited = training["best"], int(training["waited"])
            start = Start(kept["layers"], state.projections)
            best = self.inference.resume(
                state.model, start, kept["likelihood"], kept, self.task.engine
            )
        self.best = (-np.inf, best)  # not lost if judging is interrupted
        self.best = (self._judge(best), best)
