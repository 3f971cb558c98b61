"""Some classes of a one-vs-rest stochastic pass, as a State of their own for a thread."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from likelier.base import Array

if TYPE_CHECKING:
    from likelier.inference.sgd import AdaptiveState

LANES = ("weights", "average", "intercept", "average_intercept", "etas")  # one number per lane
PER_ROWS = ("sums", "squares", "counts", "seen", "elapsed", "clock")


def _lanes(values: Array, n_outputs: int) -> Array:
    """Lanes as a matrix with one column per output; a view."""
    return values.reshape(-1, n_outputs)


def some_classes(state: AdaptiveState, first: int, last: int) -> AdaptiveState:
    """A State of its own with some of the classes of a one-vs-rest problem."""
    K = state.model.n_outputs
    lanes: dict[str, Any] = {
        name: _lanes(getattr(state, name), K)[:, first:last].ravel() for name in LANES
    }
    own: dict[str, Any] = {name: getattr(state, name).copy() for name in (*PER_ROWS, "group_loss")}
    model = dataclasses.replace(state.model, n_outputs=last - first)
    return dataclasses.replace(state, model=model, **lanes, **own)


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
