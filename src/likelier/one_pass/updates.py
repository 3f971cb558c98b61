"""The two ways to learn in one pass: sums that add up in any order, and sites block by block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info
from likelier.engines.rows import slice_rows, take_rows
from likelier.fitting.dataset import require_targets
from likelier.fitting.labels import encode_labels, join_classes
from likelier.fitting.targets import union_classes
from likelier.one_pass.model import FrozenModel, FrozenSums, frozen_weights
from likelier.one_pass.posterior import OnePassPosterior
from likelier.one_pass.settings import Settings, apply_features
from likelier.one_pass.streaming import Finished, Learned, finish_stream, learn_rows

CHUNK_VALUES, MIN_CHUNK = 1 << 19, 256  # features of the rows that are summed at a time

LabelWeights = Mapping[Any, float] | None


@dataclass(frozen=True)
class StreamingUpdate(Inference):
    """Block by block, in the order of the rows, each learned with the weights after the one before.

    `local_only`: what a row adds depends on all rows before it, so no two blocks can be learned
    apart. Parts of the data that live elsewhere are learned as models of their own and merged.
    """

    local_only: ClassVar[bool] = True
    resumable: ClassVar[bool] = True

    settings: Settings
    per_label: LabelWeights = None

    def init(self, model: Any = None, engine: Engine | None = None) -> Learned:
        """Return a state that has seen nothing."""
        return Learned()

    def step(self, state: Learned, engine: Engine) -> tuple[Learned, Info]:
        """Learn all rows of the engine in their order."""
        for batch in engine.blocks():
            state = self.after(state, batch)
        return state, Info(passes=1.0, converged=True)

    def after(self, state: Learned, batch: Batch) -> Learned:
        """State after some rows."""
        rows, weightless = weighted_rows(batch, self.per_label)
        state = announce(state, weightless)
        return learn_rows(state, rows, self.settings) if rows.n_rows else state

    def finish(self, state: Learned, cached: dict[str, Any]) -> Finished | None:
        """Weights of the classes seen or announced, if there are any."""
        if not state.n_rows and state.announced is None:
            return None
        return finish_stream(state, self.settings, cached)

    def posterior(self, state: Learned) -> OnePassPosterior:
        """Weights after all rows."""
        return OnePassPosterior.of(finish_stream(state, self.settings, {}), True)


@dataclass(frozen=True)
class FrozenUpdate(Inference):
    """Sums over all rows in one pass, and the weights in closed form.

    Cost: rows x features^2; the weights take features^3 / 3.
    """

    local_only: ClassVar[bool] = False
    resumable: ClassVar[bool] = True

    settings: Settings
    per_label: LabelWeights = None

    def init(self, model: Any = None, engine: Engine | None = None) -> Learned:
        """Return a state that has seen nothing."""
        return Learned()

    def step(self, state: Learned, engine: Engine) -> tuple[Learned, Info]:
        """Add the sums of all rows of the engine."""
        frequencies = state.frequencies  # those that are drawn depend on nothing but the seed
        if not frequencies:
            frequencies = self.settings.draw_features(np.zeros((1, self.settings.n_features)))
        work, merge = SumBlock(self.settings, self.per_label), JoinSums(self.settings)
        found = engine.reduce(work, merge, state=frequencies)
        n_rows, dtype = state.n_summed + found.n_rows, state.dtype or found.dtype
        if state.stats:
            found = merge(ClassSums.of(state), found)
        stats = {"classes": found.classes, **found.sums.to_arrays()}
        after = replace(state, stats=stats, frequencies=frequencies, n_summed=n_rows, dtype=dtype)
        return after, Info(passes=1.0, converged=True)

    def finish(self, state: Learned, cached: dict[str, Any]) -> Finished | None:
        """Weights of the classes seen or announced, if there are any rows."""
        if not state.stats:
            return None
        known = state.stats["classes"]
        classes = join_classes(known, state.announced, known)
        sums, settings = ClassSums.of(state).among(classes), self.settings
        weights = frozen_weights(sums, settings.prior, settings.fit_intercept)
        return Finished(classes, weights, 1.0, state.frequencies)

    def posterior(self, state: Learned) -> OnePassPosterior:
        """Weights after all rows."""
        found = self.finish(state, {})
        if found is None:
            raise ValueError("no rows have been seen yet: take a step first")
        return OnePassPosterior.of(found, False)


@dataclass(frozen=True)
class ClassSums:
    """Sums of some rows among the classes that occur in them."""

    classes: Array
    sums: FrozenSums
    n_rows: int = 0
    dtype: str = ""

    @classmethod
    def of(cls, learned: Learned) -> ClassSums:
        """Sums of all rows so far."""
        own = dict(learned.stats)
        return cls(own.pop("classes"), FrozenSums(**own))

    def among(self, classes: Array) -> FrozenSums:
        """The sums among more classes."""
        positions = np.searchsorted(classes, self.classes)
        return self.sums.expand_classes(positions, len(classes))


@dataclass(frozen=True)
class SumBlock:
    """The map of the pass: sums of a block of labelled rows, aged as when its last one is seen."""

    settings: Settings
    per_label: LabelWeights

    def __call__(self, batch: Batch, frequencies: dict[str, Array]) -> ClassSums:
        rows, weightless = weighted_rows(batch, self.per_label)
        labels, codes = encode_labels(np.asarray(rows.y))
        classes = np.union1d(labels, weightless)
        codes = np.searchsorted(classes, labels)[codes]
        n, width = rows.n_rows, self.settings.width
        weight = np.asarray(rows.weight) * self.settings.age_weights(n)
        total: FrozenSums | None = None
        model, size = FrozenModel(len(classes)), max(MIN_CHUNK, CHUNK_VALUES // width)
        for start in range(0, n, size):
            part = slice(start, min(start + size, n))
            if weight[part].any():  # it may have decayed to zero
                Phi = apply_features(frequencies, slice_rows(rows.X, part.start, part.stop))
                sums = model.stats(Batch(Phi, codes[part], weight[part]))
                total = sums if total is None else total + sums
        if total is None:
            total = _no_sums(len(classes), width)
        return ClassSums(classes, total, n, np.dtype(batch.X.dtype).str)


@dataclass(frozen=True)
class JoinSums:
    """The merge of the pass: sums of two runs of rows, the first of them the older."""

    settings: Settings

    def __call__(self, old: ClassSums, new: ClassSums) -> ClassSums:
        classes = union_classes(old.classes, new.classes)
        earlier = old.among(classes)
        if self.settings.half_life is not None:
            earlier = earlier.discounted(self.settings.decay_factor(new.n_rows))
        return ClassSums(classes, earlier + new.among(classes), old.n_rows + new.n_rows, old.dtype)


def weighted_rows(batch: Batch, per_label: LabelWeights) -> tuple[Batch, Array]:
    """Rows of positive weight, that of their class included, and labels of which none has any."""
    batch, y = batch.compact(), require_targets(batch)
    weight = np.ones(len(y)) if batch.weight is None else np.asarray(batch.weight)
    if per_label is not None:
        labels, codes = encode_labels(y)
        weight = weight * np.array([float(per_label.get(c, 1.0)) for c in labels.tolist()])[codes]
    if weight.all():
        return Batch(batch.X, y, weight), y[:0]
    kept, labels = np.flatnonzero(weight), np.unique(y)
    weightless = labels[~np.isin(labels, y[kept])]
    return Batch(take_rows(batch.X, kept), y[kept], weight[kept]), weightless


def announce(learned: Learned, labels: Array) -> Learned:
    """Add classes that have no rows yet."""
    if not len(labels):
        return learned
    known = labels if learned.announced is None else learned.announced
    return replace(learned, announced=union_classes(known, labels))


def _no_sums(n_classes: int, width: int) -> FrozenSums:
    return FrozenSums(
        0.0, np.zeros(width), np.zeros((width, width)), np.zeros(n_classes),
        np.zeros((n_classes, width)),
    )  # fmt: skip
