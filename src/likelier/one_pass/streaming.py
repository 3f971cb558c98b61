"""Splitting of a stream of rows into blocks.

Blocks end at fixed row numbers, independent of the batches in which the rows arrive; the first, the
initial batch, is larger than the others and fitted to convergence. Rows after the last full block
are buffered, and predictions are those of a model that has learned them too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array, Batch, Matrix
from likelier.engines.rows import slice_rows
from likelier.features.fourier import RandomFourier
from likelier.one_pass.inference import (
    StreamState,
    add_classes,
    block_size,
    init_stream,
    learn_block,
    stream_mixing,
    stream_outputs,
)
from likelier.one_pass.initial_batch import initial_batch_size
from likelier.one_pass.model import Weights
from likelier.one_pass.predictions import OnePassPredictions
from likelier.one_pass.row_buffer import append_rows, copy_rows

REFRESH_BITS = 3  # leading bits of the row counts at which the mixing of scores is recomputed


class OnePassBlocks(OnePassPredictions):
    """State of a stream and the learning of its blocks."""

    features: str | None
    n_components: int
    gamma: Any
    prior_precision: float | str
    half_life: float | None
    fit_intercept: bool
    n_features_in_: int
    rows_summed_: int  # rows that are not buffered
    seed_: int
    stats_: dict[str, Any]
    pending_: dict[str, Any]
    mixing_: dict[str, Any]  # cached mixing of scores

    def _learn_blocks(self, X: Matrix, y: Array, weight: Array) -> None:
        """Learn all full blocks and buffer the remaining rows."""
        done = 0
        while done < len(y):
            size, buffered = self._next_block(), self.pending_
            stop = min(done + size - len(buffered.get("y", ())), len(y))
            rows = slice_rows(X, done, stop)
            if isinstance(rows, np.ndarray):  # the last bits of sums depend on the layout
                rows = np.ascontiguousarray(rows)
            batch = Batch(rows, y[done:stop], weight[done:stop])
            self._learn_or_buffer(append_rows(buffered, batch), size)
            done = stop

    def _next_block(self) -> int:
        """Size of the block that is being filled."""
        fourier = self.features == "fourier"
        effective_rows = int(min(self.rows_summed_, self.half_life or self.rows_summed_))
        rows = block_size(self.n_components if fourier else self.n_features_in_, effective_rows)
        if self.stats_:
            return rows
        return initial_batch_size(max(self.n_features_in_, self.n_components * fourier), rows)

    def _fits_initial_batch(self, other: Any) -> bool:
        """Whether our rows and another model's fit in one initial batch, without a half-life."""
        n_rows = len(self.pending_.get("y", ())) + len(other.pending_.get("y", ()))
        decaying = self.half_life or other.half_life
        return not (self.stats_ or other.stats_ or decaying) and n_rows < self._next_block()

    def _learn_or_buffer(self, batch: Batch, size: int) -> None:
        full = batch.n_rows == size
        if not full or not self.stats_:  # an interrupted fit of the initial batch keeps its rows
            self.pending_ = copy_rows(batch)
        if full:
            state, self.map_ = self._state_after(batch)
            self.stats_, self.pending_ = state.to_arrays(), {}
            self.rows_summed_ += batch.n_rows

    def _state_after(self, batch: Batch) -> tuple[StreamState, dict[str, Array]]:
        """State after a block, and its Fourier frequencies; the model is not changed."""
        is_first = self.features == "fourier" and not self.stats_
        frequencies = self._draw_features(batch.X) if is_first else self.map_
        Phi = self._features(batch.X, frequencies)
        y, weight = np.asarray(batch.y), np.asarray(batch.weight)
        if self.stats_:
            state = StreamState(**self.stats_)
            if self.half_life is not None:
                state = state.discounted(self._decay_factor(len(y)))
        else:
            state = init_stream(Phi, weight, y, self.fit_intercept)
        state = learn_block(state, Phi, y, weight * self._age_weights(len(y)), self._precision())
        return state, frequencies

    def _flushed_state(self) -> StreamState:
        """State as if the buffered rows were a full block."""
        announced = getattr(self, "announced_", None)
        if self.pending_:
            state, self.map_ = self._state_after(Batch(**self.pending_))
        elif self.stats_:
            state = StreamState(**self.stats_)
        else:
            empty = np.zeros((1, self.n_features_in_))
            state = init_stream(empty, np.ones(1), np.zeros(0), self.fit_intercept)
        return state if announced is None else add_classes(state, announced)

    def _mixing(self, state: StreamState, outputs: Weights) -> Array:
        """Mixing of scores after all rows: the cached one, unless class weights changed much.

        Refreshes depend on the number of rows alone, so the cache saves time and never affects
        results.
        """
        n_buffered = len(self.pending_.get("y", ()))
        refresh = last_refresh(n_buffered)
        key = [self.rows_summed_ + refresh, self._precision(), self.half_life]
        cached = vars(self).get("mixing_", {})
        if cached.get("key") != key:
            then = state if refresh == n_buffered else self._state_at(refresh)
            cached = {"key": key, "class_weight": then.class_weight[then.known]}
        now, before = state.class_weight[state.known], cached["class_weight"]
        if len(now) > len(before) or (now > 2.0 * before).any():
            return stream_mixing(state, outputs)
        if "mixing" not in cached:
            if then is not state:
                outputs = stream_outputs(then, self._precision())
            self.mixing_ = cached = {**cached, "mixing": stream_mixing(then, outputs)}
        return np.asarray(cached["mixing"])

    def _state_at(self, stop: int) -> StreamState:
        """State after the first ``stop`` of the buffered rows."""
        if not stop:
            return StreamState(**self.stats_)
        rows = self.pending_
        return self._state_after(Batch(rows["X"][:stop], rows["y"][:stop], rows["weight"][:stop]))[
            0
        ]

    def _clear_mixing(self) -> None:
        self.__dict__.pop("mixing_", None)

    def _draw_features(self, X: Matrix) -> dict[str, Array]:
        """Random Fourier frequencies; of the rows, only the scale is used."""
        fourier = RandomFourier(n_components=self.n_components, gamma=self.gamma)
        return dict(fourier.init(np.random.default_rng([self.seed_, 0]), X))

    def _precision(self) -> float | None:
        """Prior precision; None for "auto"."""
        return None if self.prior_precision == "auto" else float(self.prior_precision)

    def _age_weights(self, n: int) -> Array:
        """Decayed weights of ``n`` rows at the time the last one is learned."""
        if self.half_life is None:
            return np.ones(n)
        return np.asarray(0.5 ** (np.arange(n - 1, -1, -1) / float(self.half_life)))

    def _decay_factor(self, n: int) -> float:
        return 1.0 if self.half_life is None else float(0.5 ** (n / float(self.half_life)))


def last_refresh(n: int) -> int:
    """The largest number up to ``n`` with few significant leading bits: at least 4/5 of ``n``."""
    shift = max(0, n.bit_length() - REFRESH_BITS)
    return n >> shift << shift
