"""Splitting of a stream of rows into blocks.

Blocks end at fixed row numbers, independent of the batches in which the rows arrive; the first, the
initial batch, is larger than the others and fitted to convergence. Rows after the last full block
are buffered, and predictions are those of a model that has learned them too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Matrix
from likelier.engines.rows import slice_rows
from likelier.one_pass.inference import (
    StreamState,
    add_classes,
    block_size,
    init_stream,
    learn_block,
    stream_mixing,
    stream_outputs,
    stream_weights,
)
from likelier.one_pass.initial_batch import initial_batch_size
from likelier.one_pass.model import Weights
from likelier.one_pass.row_buffer import append_rows, copy_rows
from likelier.one_pass.settings import Settings, apply_features

REFRESH_BITS = 3  # leading bits of the row counts at which the mixing of scores is recomputed


@dataclass(frozen=True)
class Learned:
    """What a model has learned so far.

    Attributes
    ----------
    stats : dict
        Arrays of a `StreamState`, or of `FrozenSums` and their classes; empty before the first.
    pending : dict
        Rows, labels and weights after the last full block, if there are any.
    frequencies : dict
        Of the Fourier features, if there are any.
    n_summed : int
        Rows in ``stats``.
    dtype : str
        Of the first rows; streams convert others to it.
    announced : ndarray or None
        Classes that may have no rows.
    """

    stats: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, Any] = field(default_factory=dict)
    frequencies: dict[str, Array] = field(default_factory=dict)
    n_summed: int = 0
    dtype: str = ""
    announced: Array | None = None

    @classmethod
    def of(cls, fitted: Any) -> Learned:
        """What an estimator or a model file holds."""
        return cls(fitted.stats_, fitted.pending_, fitted.map_, fitted.rows_summed_,
                   fitted.row_dtype_, getattr(fitted, "announced_", None))  # fmt: skip

    @property
    def n_pending(self) -> int:
        """Number of buffered rows."""
        return len(self.pending.get("y", ()))

    @property
    def n_rows(self) -> int:
        """Number of rows of positive weight."""
        return self.n_summed + self.n_pending


@dataclass(frozen=True)
class Finished:
    """Weights of a model: of all rows so far, and of the classes seen or announced."""

    classes: Array
    weights: Weights
    factor: float  # of the scores
    frequencies: dict[str, Array]
    mixing: dict[str, Any] = field(default_factory=dict)  # cached, see `_mixing`


def learn_rows(learned: Learned, batch: Batch, settings: Settings) -> Learned:
    """Learn all full blocks and buffer the remaining rows; all rows have positive weight."""
    learned = replace(learned, dtype=learned.dtype or np.dtype(batch.X.dtype).str)
    X: Matrix = batch.X.astype(learned.dtype, copy=False)  # type: ignore[assignment]
    y, weight, done = np.asarray(batch.y), np.asarray(batch.weight), 0
    while done < len(y):
        size = next_block(learned, settings)
        stop = min(done + size - learned.n_pending, len(y))
        rows = slice_rows(X, done, stop)
        if isinstance(rows, np.ndarray):  # the last bits of sums depend on the layout
            rows = np.ascontiguousarray(rows)
        block = append_rows(learned.pending, Batch(rows, y[done:stop], weight[done:stop]))
        if block.n_rows < size:
            return replace(learned, pending=copy_rows(block))
        state, frequencies = _state_after(learned, block, settings)
        learned = replace(
            learned, stats=state.to_arrays(), pending={}, frequencies=frequencies,
            n_summed=learned.n_summed + block.n_rows,
        )  # fmt: skip
        done = stop
    return learned


def next_block(learned: Learned, settings: Settings) -> int:
    """Size of the block that is being filled."""
    effective_rows = int(min(learned.n_summed, settings.half_life or learned.n_summed))
    rows = block_size(settings.width, effective_rows)
    if learned.stats:
        return rows
    return initial_batch_size(max(settings.n_features, settings.width), rows)


def flushed_state(learned: Learned, settings: Settings) -> tuple[StreamState, dict[str, Array]]:
    """State as if the buffered rows were a full block, and its Fourier frequencies."""
    frequencies = learned.frequencies
    if learned.pending:
        state, frequencies = _state_after(learned, Batch(**learned.pending), settings)
    elif learned.stats:
        state = StreamState(**learned.stats)
    else:
        empty = np.zeros((1, settings.n_features))
        state = init_stream(empty, np.ones(1), np.zeros(0), settings.fit_intercept)
    announced = learned.announced
    return state if announced is None else add_classes(state, announced), frequencies


def finish_stream(learned: Learned, settings: Settings, cached: dict[str, Any]) -> Finished:
    """Weights after all rows; ``cached`` is the mixing of scores that an earlier call found."""
    state, frequencies = flushed_state(learned, settings)
    found = dict(cached)

    def mixing(state: StreamState, outputs: Weights) -> Array:
        matrix, kept = _mixing(learned, settings, (state, outputs), found)
        found.update(kept)
        return matrix

    weights = stream_weights(state, settings.prior, mixing)
    factor = float(np.exp(state.calibration[0]))
    return Finished(state.classes, weights, factor, frequencies, found)


def _state_after(
    learned: Learned, batch: Batch, settings: Settings
) -> tuple[StreamState, dict[str, Array]]:
    """State after a block, and its Fourier frequencies."""
    frequencies = learned.frequencies if learned.stats else settings.draw_features(batch.X)
    Phi = apply_features(frequencies, batch.X)
    y, weight = np.asarray(batch.y), np.asarray(batch.weight)
    if not learned.stats:
        state = init_stream(Phi, weight, y, settings.fit_intercept)
    else:
        state = StreamState(**learned.stats)
        if settings.half_life is not None:
            state = state.discounted(settings.decay_factor(len(y)))
    weight = weight * settings.age_weights(len(y))
    return learn_block(state, Phi, y, weight, settings.prior), frequencies


def _mixing(
    learned: Learned, settings: Settings, now: tuple[StreamState, Weights], cached: dict[str, Any]
) -> tuple[Array, dict[str, Any]]:
    """Mixing of scores after all rows, and what is to be cached of it.

    It is the cached one, unless class weights changed much. Refreshes depend on the number of rows
    alone, so the cache saves time and never affects results.
    """
    state, outputs = now
    refresh = last_refresh(learned.n_pending)
    key = [learned.n_summed + refresh, settings.prior or 0.0, settings.half_life or 0.0]
    then = state
    if cached.get("key") != key:
        if refresh != learned.n_pending:
            then = _state_at(learned, refresh, settings)
        cached = {"key": key, "class_weight": then.class_weight[then.known]}
    weight, before = state.class_weight[state.known], cached["class_weight"]
    if len(weight) > len(before) or (weight > 2.0 * before).any():
        return stream_mixing(state, outputs), {}
    if "mixing" not in cached:
        if then is not state:
            outputs = stream_outputs(then, settings.prior)
        cached = {**cached, "mixing": stream_mixing(then, outputs)}
    return np.asarray(cached["mixing"]), cached


def _state_at(learned: Learned, stop: int, settings: Settings) -> StreamState:
    """State after the first ``stop`` of the buffered rows."""
    if not stop:
        return StreamState(**learned.stats)
    rows = learned.pending
    part = Batch(rows["X"][:stop], rows["y"][:stop], rows["weight"][:stop])
    return _state_after(learned, part, settings)[0]


def last_refresh(n: int) -> int:
    """The largest number up to ``n`` with few significant leading bits: at least 4/5 of ``n``."""
    shift = max(0, n.bit_length() - REFRESH_BITS)
    return n >> shift << shift
