"""Rows that are kept apart to validate on: a share of every class, and never all of one."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch
from likelier.engines import StreamEngine
from likelier.engines.rows import take_rows
from likelier.fitting.dataset import NumberSource
from likelier.fitting.rows import Rows


def held_rows(groups: Array, fraction: float, rng: np.random.Generator) -> Array:
    """Choose about ``fraction`` of the rows, as nearly as possible the same share of every group.

    One row of every group is left; which groups of few rows give one is drawn. Returns a mask.
    Raises where the share of all rows is none of them, or all. Cost: a sort of the rows.

    Parameters
    ----------
    groups : array of shape (n_rows,)
        Classes, or all the same where there are none.
    """
    _, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(groups) == len(sizes):
        raise ValueError(
            "early_stopping=True needs rows to validate on besides one row of every class to "
            f"learn from, and {len(groups)} rows leave none; set early_stopping=False"
        )
    total = int(fraction * len(groups) + 0.5)
    if not 0 < total < len(groups):
        raise ValueError(
            f"validation_fraction={fraction} of {len(groups)} rows leaves no rows to validate on "
            "or to train on"
        )
    wanted = fraction * sizes
    shares = np.minimum(np.floor(wanted), sizes - 1).astype(np.intp)
    missing = total - int(shares.sum())
    # the largest remainders get one more, equal ones at random
    order = np.lexsort((rng.random(len(sizes)), shares - wanted))
    order = order[shares[order] < sizes[order] - 1][: max(0, missing)]
    shares[order] += 1
    # groups one after the other, each shuffled
    draws = np.lexsort((rng.random(len(groups)), codes))
    first = np.cumsum(sizes) - sizes
    place = np.arange(len(groups)) - first[codes[draws]]
    chosen = np.zeros(len(groups), dtype=bool)
    chosen[draws] = place < shares[codes[draws]]
    return chosen


@dataclass(frozen=True)
class StreamPart(NumberSource):
    """The rows of a stream that are held out, or all others.

    Each block draws for its rows from a stream of random numbers of its own, so every pass
    parts them alike. The first row is always held out and the second never is.
    """

    fraction: float
    seed: int
    held: bool

    def __call__(self) -> Generator[Batch, None, None]:
        """Yield what belongs to this part of every block."""
        n_before = 0
        for number, batch in enumerate(self.source()):
            whole = _present(batch.compact())
            draws = np.random.default_rng([self.seed, 3, number]).random(whole.n_rows)
            place = n_before + np.arange(whole.n_rows)
            out = np.where(place < 2, place == 0, draws < self.fraction)
            n_before += whole.n_rows
            rows = np.flatnonzero(out == self.held)
            yield _take(whole, rows)


def split_stream(
    source: Any, fraction: float, most: int, seed: int
) -> tuple[StreamPart, int, float, Rows]:
    """The part to learn from, its rows and their weight, and at most ``most`` rows held out.

    Two passes over the source.
    """
    batch = StreamEngine(StreamPart(source, fraction, seed, True), seed=seed).sample(most)
    held = Rows(batch.X, np.asarray(batch.y), batch.weight)
    part = StreamPart(source, fraction, seed, False)

    def count(block: Batch) -> Array:
        weight = block.n_rows if block.weight is None else block.weight.sum()
        return np.array([block.n_rows, weight], dtype=np.float64)

    n_rows, total = StreamEngine(part, seed=seed, shuffle=False).reduce(count, np.add)
    return part, int(n_rows), float(total), held


def _present(batch: Batch) -> Batch:
    """Rows of weight zero are absent."""
    return batch if batch.weight is None else _take(batch, np.flatnonzero(batch.weight))


def _take(batch: Batch, rows: Array) -> Batch:
    y = None if batch.y is None else batch.y[rows]
    weight = None if batch.weight is None else batch.weight[rows]
    return replace(batch, X=take_rows(batch.X, rows), y=y, weight=weight)
