"""What happens around the steps of dual problems: progress, an early end, and checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from likelier.base import Info
from likelier.fitting.monitor import Monitor


class Watch:
    """Between the problems of one stage of a fit and its monitor; for all threads of the stage.

    Parameters
    ----------
    monitor : Monitor
    stage : str
        Name of the stage, under which states are kept.
    single : bool
        Whether the stage is one problem, whose steps are reported and whose state is kept. Of
        several problems the ends are reported, and the results so far are kept.
    """

    def __init__(self, monitor: Monitor, stage: str, single: bool) -> None:
        self.single = single
        self._monitor, self._stage = monitor, stage
        self._end, self._lock = threading.Event(), threading.Lock()

    def stopped(self) -> bool:
        """Whether problems should end with what they have."""
        return self._end.is_set() or self._monitor.over

    def stop(self) -> None:
        """End all problems of the stage."""
        self._end.set()

    def saved(self) -> Any:
        """The state that an earlier fit has kept of the stage, or None."""
        return self._monitor.state(self._stage)

    def keep(self, make: Callable[[], Any], now: bool = False) -> None:
        """Keep the state that ``make`` gives, ``now`` or if it is time."""
        self._monitor.keep(self._stage, make, now=now)

    def step(self, info: Info) -> None:
        """A step of a problem is done."""
        if self.single:
            self._monitor.tick("step", f"gap {info.gap:.2g}", lambda: None)

    def solved(self, n_iter: int, gap: float, make: Callable[[], Any] | None = None) -> None:
        """A problem is solved; ``make`` gives the results so far."""
        with self._lock:
            self._monitor.tick("problem", f"pair updates {n_iter}, gap {gap:.3g}", lambda: None)
            if make is not None and not self.single:
                self.keep(make)
