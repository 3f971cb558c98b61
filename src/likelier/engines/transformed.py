"""Rows after a transform of each block: encoded, standardised, or as features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Output, RowValues, Statistics
from likelier.engines.blocks import BlockEngine, Then
from likelier.engines.samples import Sample


class TransformedEngine(Engine):
    """The rows of another engine, each block transformed anew in every pass.

    The transform keeps the number and the order of rows, and travels to where they live.
    """

    def __init__(self, inner: BlockEngine, transform: Callable[[Batch], Batch]) -> None:
        self._inner, self._transform = inner, transform
        self._n_features: int | None = None

    @property
    def n_rows(self) -> int | None:
        """Number of rows."""
        return self._inner.n_rows

    @property
    def n_features(self) -> int:
        """Number of columns after the transform."""
        if self._n_features is None:
            few = self._transform(self._inner.head())
            self._n_features = int(few.X.shape[1])
        return self._n_features

    @property
    def repeatable(self) -> bool:
        """Whether the data can be passed over more than once."""
        return self._inner.repeatable

    @property
    def is_local(self) -> bool:
        """Transformed rows are not held."""
        return False

    @property
    def n_jobs(self) -> int:
        """Threads of the other engine."""
        return self._inner.n_jobs

    def blocks(self, iteration: int | None = None) -> Iterator[Batch]:
        """Yield the blocks one after another, each transformed."""
        for batch in self._inner.blocks(iteration):
            yield self._transform(batch.compact())

    def map_rows(self, map: Callable[..., Array], *rows: RowValues, state: Any = None) -> RowValues:
        """Values per row, made from transformed blocks."""
        return self._inner.map_rows(Then(self._transform, map), *rows, state=state)

    def reduce(
        self,
        map: Callable[..., Statistics],
        merge: Callable[[Statistics, Statistics], Statistics],
        *rows: RowValues,
        state: Any = None,
    ) -> Statistics:
        """Map every transformed block to statistics, and merge them."""
        then: Callable[..., Statistics] = Then(self._transform, map)
        return self._inner.reduce(then, merge, *rows, state=state)

    def map_blocks(
        self, map: Callable[..., Output], *rows: RowValues, state: Any = None
    ) -> Iterator[Output]:
        """Map every transformed block; results come in block order."""
        return self._inner.map_blocks(Then(self._transform, map), *rows, state=state)

    def transformed(self, transform: Callable[[Batch], Batch]) -> Engine:
        """The same rows after one more transform."""
        return TransformedEngine(self._inner, Then(self._transform, transform))

    def each(self, work: Callable[[int], Output], count: int) -> Iterator[Output]:
        """Work that is not over blocks of rows, by the threads of the other engine."""
        return self._inner.each(work, count)

    def close(self) -> None:
        """Close the other engine."""
        self._inner.close()

    def sampler(self, n: int, iteration: int = 0) -> Callable[[Batch], Sample]:
        """The map of `sample`, to be part of another pass."""
        return self._inner.sampler(n, iteration)

    def sample(self, n: int, iteration: int = 0) -> Batch:
        """The rows that the other engine draws, transformed."""
        return self._transform(self._inner.sample(n, iteration))

    def subsets(self, sizes: Sequence[int], iteration: int = 0) -> list[Engine]:
        """Samples of growing size as engines of their own, transformed."""
        few = self._inner.subsets(sizes, iteration)
        return [engine.transformed(self._transform) for engine in few]

    def folds(self, n_folds: int, key: int = 0) -> Iterator[tuple[Engine, Engine]]:
        """The folds of the other engine, transformed."""
        for rest, held in self._inner.folds(n_folds, key):
            yield rest.transformed(self._transform), held.transformed(self._transform)

    def stream(self, iteration: int, block: int) -> np.random.Generator:
        """Random numbers keyed on (seed, iteration, block)."""
        found: np.random.Generator = self._inner.stream(iteration, block)
        return found

    def streams(self, iteration: int) -> Callable[[int], np.random.Generator]:
        """`stream` of one iteration, as a function of the block."""
        return self._inner.streams(iteration)
