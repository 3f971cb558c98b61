"""Folds of rows that are the same wherever the rows are: every block deals its rows to them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from likelier.base import Array, Batch, Engine
from likelier.engines.keys import Purpose, keyed_stream
from likelier.engines.samples import take


@dataclass(frozen=True)
class Deal:
    """How rows are dealt to folds: their number, and what keys the random numbers."""

    n_folds: int
    seed: int
    key: int

    def numbers(self, n_rows: int, index: int) -> Array:
        """Fold of every row of a block; about as many rows in each."""
        stream = keyed_stream(self.seed, Purpose.FOLD, self.key, index)
        first = int(stream.integers(self.n_folds))
        return np.asarray((stream.permutation(n_rows) + first) % self.n_folds)


@dataclass(frozen=True)
class FoldPart:
    """The map to the rows of a block that are in a fold, or to all others."""

    deal: Deal
    fold: int
    inside: bool

    def __call__(self, batch: Batch) -> Batch:
        numbers = self.deal.numbers(batch.n_rows, batch.index)
        return take(batch, np.flatnonzero((numbers == self.fold) == self.inside))


@dataclass(frozen=True)
class FoldSource:
    """A source of the rows of an engine that are in a fold, or of all others."""

    engine: Engine
    part: FoldPart

    @property
    def repeatable(self) -> bool:
        """Whether the engine can be passed over again."""
        return self.engine.repeatable

    @property
    def background(self) -> bool:
        """The engine has threads of its own."""
        return False

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.engine.n_features

    def __call__(self) -> Generator[Batch, None, None]:
        """Yield what is left of every block."""
        yield from self.engine.map_blocks(self.part)
