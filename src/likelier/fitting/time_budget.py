"""The time budget of a fit: what is left of it, progress, and what callbacks say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


class OutOfTime(Exception):  # noqa: N818 - no error: what was done is kept
    """The time of a fit that goes on with an earlier one is over, after a piece that is kept."""


@dataclass
class TimeBudget:
    """Time that is left, progress, what callbacks say, and what is needed to go on later.

    Attributes
    ----------
    seed : int, optional
        Of the random numbers of the fit; None where it cannot go on later.
    before, kept : dict
        What an unfinished fit has left, and what this one would leave, as plain values.
    model : dict
        What the unfinished fit predicts by: its fitted attributes.
    held : Rows, optional
        Rows held out to stop in time.
    cut : bool
        Whether anything was left out for want of time.
    thorough : bool
        Nothing is left out, as if there were no budget: when time is over the fit ends by
        `OutOfTime`, but only where a piece has just been done and kept. So every fit that goes
        on gets further, however short its time is.
    """

    estimator: Any
    data: tuple[Any, Any]
    begin: float = field(default_factory=time.perf_counter)
    stopped: bool = False
    n_iter: int = 0
    stage: tuple[str, float] = ("", 0.0)  # the latest one, and how much of it was done
    since: float = 0.0  # when it began
    latest: float = 0.0  # when the latest step was done
    seed: int | None = None
    before: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    held: Any = None
    cut: bool = False
    thorough: bool = False

    def __post_init__(self) -> None:
        self.latest = self.begin

    @property
    def over(self) -> bool:
        """Whether the time budget is used up, or a callback asked to stop."""
        if self.thorough:
            return False
        self.cut = self.cut or self._is_late()  # whoever asks ends what they do
        return self._is_late()

    def _is_late(self) -> bool:
        budget = self.estimator.time_budget
        return self.stopped or (budget is not None and time.perf_counter() - self.begin > budget)

    def pause(self) -> None:
        """A piece of work is done and kept: here a thorough fit may end."""
        if self.thorough and self._is_late():
            raise OutOfTime

    @contextmanager
    def aside(self, *stages: str) -> Iterator[None]:
        """Work that is not counted where an unfinished fit had come to one of these stages.

        It had been done then, and was lost when that fit ended. Were it counted, a budget that
        it fills would leave nothing to get further by.
        """
        begin = time.perf_counter()
        yield
        if self.thorough and not self.before.keys().isdisjoint(stages):
            self.begin += time.perf_counter() - begin

    @property
    def left(self) -> float | None:
        """Seconds that are left, None where there is no budget."""
        budget = self.estimator.time_budget
        if budget is None or self.thorough:
            return None
        return max(0.0, float(budget) - (time.perf_counter() - self.begin))

    def allows(self, seconds: float) -> bool:
        """Whether so many seconds are left for a piece of work; else it is to be left out."""
        left = self.left
        fits = left is None or seconds < left
        self.cut = self.cut or not fits
        return fits

    def progress(self, stage: str, share: float, text: str = "", skipped: float = 0.0) -> bool:
        """As `tick`, for a stage whose length is known: says how long it will still take.

        ``skipped`` is the share that an unfinished fit had done before.
        """
        if stage != self.stage[0] or share <= self.stage[1]:  # it begins, maybe anew
            self.since = self.latest
        self.stage = (stage, share)
        left = (time.perf_counter() - self.since) * (1.0 - share) / (share - skipped)
        done = f"{share:.0%} of the steps, about {left:.0f} s left"
        return self.tick(stage, f"{done}, {text}" if text else done)

    def tick(self, stage: str, text: str = "", **fitted: Any) -> bool:
        """One step of a stage is done, and kept where it may be; True asks for an end."""
        self.tell(stage, text, **fitted)
        self.pause()
        return self.over

    def say(self, text: str) -> None:
        """Print what is being done, where that is asked for."""
        if self.estimator.verbose:
            print(text)

    def tell(self, stage: str, text: str = "", **fitted: Any) -> None:
        """Say that one step of a stage is done."""
        self.n_iter += 1
        self.latest = time.perf_counter()
        self.say(f"{stage} {self.n_iter}: {text}")
        context = getattr(self.estimator, "_callback_fit_ctx", None)
        if context is not None and getattr(self.estimator, "_skl_callbacks", None):
            X, y = self.data
            sub = context.subcontext(task_name=stage)
            sub.call_on_fit_task_begin(estimator=self.estimator, X=X, y=y)
            stop = sub.call_on_fit_task_end(
                estimator=self.estimator, X=X, y=y, reconstruction_attributes=fitted or None
            )
            self.stopped = self.stopped or bool(stop)
