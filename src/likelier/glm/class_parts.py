"""Some classes of a one-vs-rest stochastic pass, as a State of their own for a thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from likelier.base import Array, Engine

if TYPE_CHECKING:
    from likelier.glm.sgd import AdaptiveState

LANES = ("weights", "average", "intercept", "average_intercept", "etas")  # one number per output
MOST_BYTES = 1 << 28  # of weights that parts may copy
PER_ROWS = ("sums", "squares", "counts", "seen", "elapsed", "clock")


def _lanes(values: Array, n_outputs: int) -> Array:
    """Outputs as a matrix with one column per output; a view."""
    return values.reshape(-1, n_outputs)


def some_classes(state: AdaptiveState, first: int, last: int) -> AdaptiveState:
    """A State of its own with some of the classes of a one-vs-rest problem."""
    K = state.model.n_outputs
    outputs: dict[str, Any] = {
        name: _lanes(getattr(state, name), K)[:, first:last].ravel() for name in LANES
    }
    own: dict[str, Any] = {name: getattr(state, name).copy() for name in (*PER_ROWS, "group_loss")}
    model = dataclasses.replace(state.model, n_outputs=last - first)
    return dataclasses.replace(state, model=model, **outputs, **own)


def join_classes(
    state: AdaptiveState, parts: list[AdaptiveState], ranges: list[tuple[int, int]]
) -> None:
    """Put back what the parts have learned; what depends on the rows alone is the same in all."""
    K = state.model.n_outputs
    for part, (first, last) in zip(parts, ranges, strict=True):
        for name in LANES:
            _lanes(getattr(state, name), K)[:, first:last] = _lanes(
                getattr(part, name), last - first
            )
        state.group_loss += part.group_loss
    for name in PER_ROWS:
        getattr(state, name)[:] = getattr(parts[0], name)


def over_classes(
    state: AdaptiveState, engine: Engine, n_jobs: int, learn: Callable[[AdaptiveState, int], int]
) -> int:
    """Learn with some of the classes in each of the engine's threads; returns what ``learn`` does.

    ``learn`` is given a State and the first class it has. Losses of the groups start at zero.
    """
    # two classes at least: a pass with a single output watches its loss less closely; and a
    # stream is read by the thread of its owner
    apart = engine.in_memory and not state.model.loss.coupled
    apart = apart and 2 * state.weights.nbytes <= MOST_BYTES  # of weights and their averages
    n_parts = min(n_jobs, state.model.n_outputs // 2) if apart else 1
    if n_parts <= 1:
        return learn(state, 0)
    borders = np.linspace(0, state.model.n_outputs, n_parts + 1).astype(int).tolist()
    ranges = list(pairwise(borders))
    parts = [some_classes(state, a, b) for a, b in ranges]
    n_rows = list(engine.each(lambda k: learn(parts[k], borders[k]), n_parts))
    join_classes(state, parts, ranges)
    return n_rows[0]
