"""The loop that steps one inference under a monitor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from likelier.base import Engine, Inference, Info
from likelier.fitting.monitor import Monitor


@dataclass(frozen=True)
class Result:
    """The last State of a run, what its last step said, and the number of steps of the fit."""

    state: Any
    info: Info
    n_steps: int


def run(
    inference: Inference,
    state: Any,
    engine: Engine,
    monitor: Monitor,
    *,
    stage: str,
    max_steps: int,
    until_converged: bool = True,
) -> Result:
    """Step an inference until it has converged or gives up, or the monitor or its limit ends it.

    ``max_steps`` counts all steps that the monitor has seen. A state that an earlier fit kept of
    this ``stage`` takes the place of ``state``.
    """
    kept = monitor.state(stage) if inference.resumable else None
    state, info = state if kept is None else kept, monitor.info
    while monitor.n_steps < max_steps and not monitor.over:
        try:
            state, info = inference.step(state, engine)
        except (KeyboardInterrupt, SystemExit):  # the command line exits on SIGTERM
            if inference.resumable:
                monitor.keep(stage, state, now=True)
            raise
        stop = monitor.step(info, partial(inference.posterior, state))
        done = until_converged and (info.converged or info.message)
        if done or stop:
            break
        if inference.resumable and monitor.n_steps < max_steps:  # or the last Info would be lost
            monitor.keep(stage, state)
    return Result(state, info, monitor.n_steps)
