"""What happens around the steps of a fit: progress, callbacks, stages and checkpoints.

The only module that imports `sklearn.callback`, which scikit-learn has from version 1.9 on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from likelier.base import Info, RowValues
from likelier.files.journal import Journal

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # an older scikit-learn: fits take no callbacks

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """Leave a method as it is."""
        return method


__all__ = ["CallbackSupportMixin", "Callbacks", "Monitor", "with_callbacks"]

Result = TypeVar("Result")
Posterior = Callable[[], Any]  # makes the posterior of the state that has been reached

CHECKPOINT_SECONDS = 5.0  # between two states that are kept
WRITING_SHARE = 0.05  # of the time of a fit, at most, is spent on writing them


class Callbacks:
    """Callbacks of scikit-learn; the one part that knows the estimator, as they ask for it."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        self._estimator, self._data = estimator, (X, y)
        self.context: Any = None
        if isinstance(estimator, CallbackSupportMixin) and hasattr(
            estimator, "_init_callback_context"
        ):
            self.context = estimator._init_callback_context(max_subtasks=None)
            self.context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def after_step(
        self, attributes: Callable[[], dict[str, Any] | None], task: str = "iteration"
    ) -> bool:
        """Tell the callbacks of a step; True where one asks for an end."""
        if self.context is None or not getattr(self._estimator, "_skl_callbacks", None):
            return False
        X, y = self._data
        step = self.context.subcontext(task_name=task)
        step.call_on_fit_task_begin(estimator=self._estimator, X=X, y=y)
        return bool(
            step.call_on_fit_task_end(
                estimator=self._estimator, X=X, y=y,
                reconstruction_attributes=attributes(),
            )
        )  # fmt: skip

    def end(self) -> None:
        """Tell the callbacks that the fit is over."""
        if self.context is not None:
            X, y = self._data
            self.context.call_on_fit_task_end(estimator=self._estimator, X=X, y=y)


class Monitor:
    """Sees every step of a fit, and remembers the results of its stages.

    A fit is a chain of stages. With a journal, `stage` records the result of each, and `keep` the
    state of the one under way every few seconds: a fit that is run again replays what is recorded
    and goes on from the state, to the same bits.

    Parameters
    ----------
    verbose : bool
        Print every step.
    callbacks : Callbacks, optional
    journal : Journal, optional
        Where results are recorded; None for nowhere.
    time_budget : float, optional
        Seconds after which a fit should end with what it has.

    Attributes
    ----------
    attributes : callable
        From a posterior to the fitted attributes that callbacks may ask for, or None.
    stop : callable or None
        Called with the posterior after each step; True ends the fit (early stopping).
    n_steps : int
        Steps so far, those of an earlier fit included.
    info, posterior
        What the latest step said, and a way to get its posterior.
    """

    def __init__(
        self,
        *,
        verbose: bool = False,
        callbacks: Callbacks | None = None,
        journal: Journal | None = None,
        time_budget: float | None = None,
    ) -> None:
        self.verbose, self.callbacks, self.journal = verbose, callbacks, journal
        self._begin, self._time_budget = time.perf_counter(), time_budget
        self.attributes: Callable[[Any], dict[str, Any] | None] = lambda posterior: {}
        self.stop: Callable[[Any], bool] | None = None
        self.n_steps = 0
        self.info = Info()
        self.posterior: Posterior | None = None  # of the latest step
        self.stopped = False
        self._last_kept, self._pause = time.monotonic(), CHECKPOINT_SECONDS

    def silent(self) -> Monitor:
        """For a fit inside of a stage: the same checkpoint, but no reports and no time budget."""
        return Monitor(journal=self.journal)

    def stage(self, name: str, compute: Callable[[], Result]) -> Result:
        """The result of a stage: recorded by an earlier fit, or computed and recorded now."""
        if self.journal is None:
            return compute()
        if self.journal.has(name):
            found: tuple[int, Result] = self.journal.result(name)
            self.n_steps = found[0]
            return found[1]
        result = compute()
        self.journal.record(name, (self.n_steps, result))
        return result

    def step(self, info: Info, posterior: Posterior) -> bool:
        """A step of an inference is done; True asks for an end."""
        self.info, self.posterior = info, posterior
        text = f"objective {info.objective:.6g}, gap {info.gap:.2g}"
        self.tick("iteration", text, lambda: self.attributes(posterior()))
        if not self.stopped and self.stop is not None:
            self.stopped = self.stop(posterior())
        return self.over

    def tick(
        self,
        what: str,
        text: str = "",
        attributes: Callable[[], dict[str, Any] | None] = dict,
    ) -> bool:
        """A piece of work is done; True asks for an end.

        ``attributes`` gives what a callback may see of the model, or None where it could not
        predict yet.
        """
        self.n_steps += 1
        if self.verbose:
            print(f"{what} {self.n_steps}: {text}")
        if self.callbacks is not None:
            self.stopped = self.callbacks.after_step(attributes, what) or self.stopped
        return self.over

    @property
    def over(self) -> bool:
        """Whether the fit should end: asked to, or out of time."""
        left = self.left
        return self.stopped or (left is not None and left <= 0.0)

    @property
    def left(self) -> float | None:
        """Seconds of the time budget that are left; None where there is none."""
        if self._time_budget is None:
            return None
        return max(0.0, float(self._time_budget) - (time.perf_counter() - self._begin))

    def allows(self, seconds: float) -> bool:
        """Whether a piece of work that takes so long fits into the time budget."""
        return self.left is None or seconds < self.left

    def state(self, stage: str) -> Any:
        """The state of a stage as an earlier fit kept it, or None."""
        if self.journal is None:
            return None
        kept = self.journal.state(stage)
        if kept is None:
            return None
        self.n_steps, state = kept
        return state

    def keep(self, stage: str, state: Any, *, now: bool = False) -> None:
        """Keep the state of a stage, or that which a function gives: ``now``, or if it is time.

        The more time writing takes, the longer until the next time. A state that holds values per
        row is not kept; one of the next steps leads to one that holds none.
        """
        start = time.monotonic()
        if self.journal is None or (not now and start - self._last_kept < self._pause):
            return
        state = state() if callable(state) else state
        if _holds_row_values(state):
            return
        self.journal.keep(stage, (self.n_steps, state))
        self._last_kept = time.monotonic()
        self._pause = max(CHECKPOINT_SECONDS, (self._last_kept - start) / WRITING_SHARE)


def _holds_row_values(state: Any) -> bool:
    """Whether a state holds values of rows, which live where the rows are."""
    return any(isinstance(getattr(state, item.name), RowValues) for item in fields(state))
