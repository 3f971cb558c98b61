"""Stochastic one-vs-rest passes with the classes split among threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from likelier.base import Array, Engine

if TYPE_CHECKING:
    from likelier.glm.sgd_state import AdaptiveState

PER_OUTPUT = ("weights", "average", "intercept", "average_intercept", "etas")
MAX_BYTES = 1 << 28  # of weights, which the parts copy
SHARED = ("sums", "squares", "counts", "seen", "elapsed", "counters")


def _by_output(values: Array, n_outputs: int) -> Array:
    """View as a matrix with one column per output."""
    return values.reshape(-1, n_outputs)


def some_classes(state: AdaptiveState, first: int, last: int) -> AdaptiveState:
    """A State with some of the classes of a one-vs-rest problem, as a copy."""
    K = state.model.n_outputs
    outputs: dict[str, Any] = {
        name: _by_output(getattr(state, name), K)[:, first:last].ravel() for name in PER_OUTPUT
    }
    own: dict[str, Any] = {name: getattr(state, name).copy() for name in (*SHARED, "group_loss")}
    model = dataclasses.replace(state.model, n_outputs=last - first)
    return dataclasses.replace(state, model=model, **outputs, **own)


def join_classes(
    state: AdaptiveState, parts: list[AdaptiveState], ranges: list[tuple[int, int]]
) -> None:
    """Merge the States of the parts; column statistics are the same in all of them."""
    K = state.model.n_outputs
    for part, (first, last) in zip(parts, ranges, strict=True):
        for name in PER_OUTPUT:
            _by_output(getattr(state, name), K)[:, first:last] = _by_output(
                getattr(part, name), last - first
            )
        state.group_loss += part.group_loss
    for name in SHARED:
        getattr(state, name)[:] = getattr(parts[0], name)


def over_classes(
    state: AdaptiveState, engine: Engine, n_jobs: int, learn: Callable[[AdaptiveState, int], int]
) -> int:
    """Run ``learn`` for parts of the classes in the engine's threads; returns its result.

    ``learn`` takes a State and the index of its first class. Group losses start at zero.
    """
    # at least two classes each: a pass with a single output evaluates its loss on fewer rows. A
    # stream is read by the thread of its owner.
    parallel = engine.is_local and not state.model.loss.coupled
    parallel = parallel and 2 * state.weights.nbytes <= MAX_BYTES  # weights and averages
    n_parts = min(n_jobs, state.model.n_outputs // 2) if parallel else 1
    if n_parts <= 1:
        return learn(state, 0)
    bounds = np.linspace(0, state.model.n_outputs, n_parts + 1).astype(int).tolist()
    ranges = list(pairwise(bounds))
    parts = [some_classes(state, a, b) for a, b in ranges]
    n_rows = list(engine.each(lambda k: learn(parts[k], bounds[k]), n_parts))
    join_classes(state, parts, ranges)
    return n_rows[0]
