"""Random samples of rows that are the same wherever the rows are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch
from likelier.engines.keys import Purpose, keyed_stream
from likelier.engines.rows import slice_rows, stack_rows, take_rows

DEVIATIONS = 6.0  # beyond which a random number is too large for the sample, but once in 1e9


def row_keys(n_rows: int, index: int, before: int, wanted: Draw) -> Array:
    """Random numbers of the rows of a block; infinite where a row cannot be in the sample.

    A row whose number is not among the smallest of so many rows as come ``before`` the block is
    left out at once: a pass holds few candidates.
    """
    keys = keyed_stream(wanted.seed, Purpose.SAMPLE, wanted.iteration, index).random(n_rows)
    if before:
        most = (wanted.n + DEVIATIONS * np.sqrt(wanted.n) + DEVIATIONS**2) / before
        keys[keys > most] = np.inf
    return keys


@dataclass(frozen=True)
class Draw:
    """A sample that is asked for: its size, and what keys its random numbers."""

    n: int
    seed: int
    iteration: int

    def __call__(self, batch: Batch) -> Sample:
        """The candidates of a block."""
        keys = row_keys(batch.n_rows, batch.index, batch.start, self)
        chosen = smallest(keys, self.n)
        return Sample(self.n, keys[chosen], take(batch, chosen))


@dataclass(frozen=True)
class Sample:
    """The rows of the smallest random numbers so far, in the order of these."""

    n: int
    keys: Array
    batch: Batch

    def __add__(self, other: Sample) -> Sample:
        keys = np.concatenate([self.keys, other.keys])
        chosen = smallest(keys, self.n)
        return Sample(self.n, keys[chosen], take(joined(self.batch, other.batch), chosen))


def smallest(keys: Array, n: int) -> Array:
    """Numbers of the ``n`` smallest finite keys, in their order."""
    some = np.flatnonzero(np.isfinite(keys))
    if n < len(some):
        some = some[np.argpartition(keys[some], n)[:n]]
    return np.asarray(some[np.argsort(keys[some], kind="stable")])


def take(batch: Batch, rows: Array) -> Batch:
    """The listed rows of a batch in arrays of their own."""
    return Batch(
        take_rows(batch.X, rows),
        None if batch.y is None else batch.y[rows],
        None if batch.weight is None else batch.weight[rows],
    )


def first_rows(batch: Batch, n: int) -> Batch:
    """The first rows of a batch, as views."""
    return Batch(
        slice_rows(batch.X, 0, min(n, batch.n_rows)),
        None if batch.y is None else batch.y[:n],
        None if batch.weight is None else batch.weight[:n],
    )


def joined(one: Batch, other: Batch) -> Batch:
    """The rows of two batches, the first one's first."""
    return replace(
        one,
        X=stack_rows([one.X, other.X]),
        y=_both(one.y, other.y),
        weight=_both(one.weight, other.weight),
    )


def _both(one: Any, other: Any) -> Any:
    if one is None and other is None:
        return None
    if one is None or other is None:
        raise ValueError(
            "some blocks of the data have targets or weights and some have none; "
            "give them in every block or in none"
        )
    return np.concatenate([one, other])
