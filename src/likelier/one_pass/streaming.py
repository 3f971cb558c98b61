"""How streaming rows are cut into blocks.

Blocks end at fixed row numbers, whatever batches the rows come in; the first, the opening, is
larger than the others and learned to convergence. Rows after the last full block are kept, and
predictions are those of a model that has learned them too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array, Batch, Matrix
from likelier.engines.rows import slice_rows
from likelier.features.fourier import FourierFeatures
from likelier.one_pass.inference import (
    StreamState,
    block_size,
    learn_block,
    meet_classes,
    start_stream,
    stream_mixing,
    stream_outputs,
)
from likelier.one_pass.initial_batch import opening_size
from likelier.one_pass.model import Weights
from likelier.one_pass.pending import joined_rows, kept_rows
from likelier.one_pass.predictions import OnePassPredictions

MARK_BITS = 3  # leading ones of a number of rows: how scores compare is found where others are 0


class OnePassBlocks(OnePassPredictions):
    """Rows that come, block by block."""

    features: str | None
    n_components: int
    gamma: Any
    prior_precision: float | str
    half_life: float | None
    fit_intercept: bool
    n_features_in_: int
    rows_summed_: int  # those that are not waiting for their block to fill
    seed_: int
    stats_: dict[str, Any]
    pending_: dict[str, Any]
    mixing_: dict[str, Any]  # how scores compare, once that was asked for

    def _learn_blocks(self, X: Matrix, y: Array, weight: Array) -> None:
        """Learn all blocks that are full, and keep the rows after them."""
        done = 0
        while done < len(y):
            size, kept = self._next_block(), self.pending_
            stop = min(done + size - len(kept.get("y", ())), len(y))
            rows = slice_rows(X, done, stop)
            if isinstance(rows, np.ndarray):  # sums depend on the layout, in their last bits
                rows = np.ascontiguousarray(rows)
            batch = Batch(rows, y[done:stop], weight[done:stop])
            self._learn_or_keep(joined_rows(kept, batch), size)
            done = stop

    def _next_block(self) -> int:
        """Rows of the block that is being filled."""
        fourier = self.features == "fourier"
        remembered = int(min(self.rows_summed_, self.half_life or self.rows_summed_))
        rows = block_size(self.n_components if fourier else self.n_features_in_, remembered)
        if self.stats_:
            return rows
        return opening_size(max(self.n_features_in_, self.n_components * fourier), rows)

    def _room_for(self, other: Any) -> bool:
        """Whether the rows of another model fit in the opening, all of one age, with our own."""
        n_rows = len(self.pending_.get("y", ())) + len(other.pending_.get("y", ()))
        fading = self.half_life or other.half_life
        return not (self.stats_ or other.stats_ or fading) and n_rows < self._next_block()

    def _learn_or_keep(self, batch: Batch, size: int) -> None:
        full = batch.n_rows == size
        if not full or not self.stats_:  # an opening takes its time: interrupted, it is kept
            self.pending_ = kept_rows(batch)
        if full:
            state, self.map_ = self._after(batch)
            self.stats_, self.pending_ = state.to_arrays(), {}
            self.rows_summed_ += batch.n_rows

    def _after(self, batch: Batch) -> tuple[StreamState, dict[str, Array]]:
        """State after a block, and the map of its features, without changing the model."""
        fresh = self.features == "fourier" and not self.stats_
        made = self._draw_map(batch.X) if fresh else self.map_  # scale of the whole first block
        Phi = self._features(batch.X, made)
        y, weight = np.asarray(batch.y), np.asarray(batch.weight)
        if self.stats_:
            state = StreamState(**self.stats_)
            if self.half_life is not None:
                state = state.faded(self._fade(len(y)))
        else:
            state = start_stream(Phi, weight, y, self.fit_intercept)
        return learn_block(state, Phi, y, weight * self._ages(len(y)), self._precision()), made

    def _flushed(self) -> StreamState:
        """State as if the rows kept made a full block."""
        announced = getattr(self, "announced_", None)
        if self.pending_:
            state, self.map_ = self._after(Batch(**self.pending_))
        elif self.stats_:
            state = StreamState(**self.stats_)
        else:
            empty = np.zeros((1, self.n_features_in_))
            state = start_stream(empty, np.ones(1), np.zeros(0), self.fit_intercept)
        return state if announced is None else meet_classes(state, announced)

    def _mixing(self, state: StreamState, outputs: Weights) -> Array:
        """How scores are mixed after all rows: as at the last mark, if little has changed.

        Marks depend on the number of rows alone: what is kept here saves time, and changes nothing.
        """
        n_kept = len(self.pending_.get("y", ()))
        mark = last_mark(n_kept)
        at = [self.rows_summed_ + mark, self._precision(), self.half_life]
        found = vars(self).get("mixing_", {})
        if found.get("at") != at:
            then = state if mark == n_kept else self._until(mark)
            found = {"at": at, "class_weight": then.class_weight[then.known]}
        now, before = state.class_weight[state.known], found["class_weight"]
        if len(now) > len(before) or (now > 2.0 * before).any():
            return stream_mixing(state, outputs)
        if "mixing" not in found:
            if then is not state:
                outputs = stream_outputs(then, self._precision())
            self.mixing_ = found = {**found, "mixing": stream_mixing(then, outputs)}
        return np.asarray(found["mixing"])

    def _until(self, stop: int) -> StreamState:
        """State after the first few of the rows kept."""
        if not stop:
            return StreamState(**self.stats_)
        kept = self.pending_
        return self._after(Batch(kept["X"][:stop], kept["y"][:stop], kept["weight"][:stop]))[0]

    def _forget_mixing(self) -> None:
        self.__dict__.pop("mixing_", None)

    def _draw_map(self, X: Matrix) -> dict[str, Array]:
        """Frequencies for rows like these; only their scale matters."""
        words = FourierFeatures(n_components=self.n_components, gamma=self.gamma)
        return dict(words.init(np.random.default_rng([self.seed_, 0]), X))

    def _precision(self) -> float | None:
        """Prior precision, None where it is left to us."""
        return None if self.prior_precision == "auto" else float(self.prior_precision)

    def _ages(self, n: int) -> Array:
        """What is left of the weight of each of ``n`` rows when the last has been learned."""
        if self.half_life is None:
            return np.ones(n)
        return np.asarray(0.5 ** (np.arange(n - 1, -1, -1) / float(self.half_life)))

    def _fade(self, n: int) -> float:
        return 1.0 if self.half_life is None else float(0.5 ** (n / float(self.half_life)))


def last_mark(n: int) -> int:
    """The largest number up to ``n`` that has few leading bits only: no less than 4/5 of it."""
    spare = max(0, n.bit_length() - MARK_BITS)
    return n >> spare << spare
