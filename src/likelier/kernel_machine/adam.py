"""Adam on minibatches: bounded steps in every coordinate, with a rate that ends near zero.

What stochastic inferences share: the moments of Adam as a value, the rate over a planned number
of updates, and how minibatches come out of an engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from likelier.base import Array, Batch, Engine

FIRST_DECAY, SECOND_DECAY = 0.9, 0.99
TINY = 1e-12
DECAY_FROM = 0.5  # part of the planned updates after which the rate falls linearly
FLOOR = 0.01  # of the rate: updates beyond the plan still learn a little


@dataclass(frozen=True)
class Moments:
    """Running means of a direction and of its square, and how many they have seen."""

    first: Array
    second: Array
    n_seen: int = 0

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Moments:
        """Moments that have seen nothing."""
        return cls(np.zeros(shape), np.zeros(shape))


def adam_change(moments: Moments, direction: Array, rate: float) -> tuple[Moments, Array]:
    """Moments after one more direction, and the change of the parameters along it.

    No coordinate moves by much more than ``rate``, whatever the size of ``direction``. Cost:
    a few operations per parameter.
    """
    first = FIRST_DECAY * moments.first + (1.0 - FIRST_DECAY) * direction
    second = SECOND_DECAY * moments.second + (1.0 - SECOND_DECAY) * direction**2
    n = moments.n_seen + 1
    size = np.sqrt(second / (1.0 - SECOND_DECAY**n))
    change = (rate / (1.0 - FIRST_DECAY**n)) * first / (size + TINY)
    return Moments(first, second, n), change


def rate_at(rate: float, update: int, n_updates: int) -> float:
    """Rate of one update: constant at first, then falling linearly towards zero.

    Averaging over the noise of minibatches needs small rates at the end; the last updates
    have `FLOOR` times the rate, and so has every one beyond the plan.
    """
    left = (n_updates - update) / max(1.0, (1.0 - DECAY_FROM) * n_updates)
    return rate * min(1.0, max(FLOOR, left))


def minibatches(engine: Engine, batch_size: int, update: int) -> Iterator[Batch]:
    """Yield the rows of the next updates, the first of them numbered ``update``.

    In memory that is one random minibatch, drawn without replacement. A stream cannot be
    addressed by row, so it is read once from end to end, in minibatches of its blocks.
    """
    if engine.in_memory:
        yield engine.draw(batch_size, iteration=update).compact()
        return
    for block in engine.blocks(update):
        rows = np.arange(block.n_rows) if block.rows is None else block.rows
        for first in range(0, len(rows), batch_size):
            part = rows[first : first + batch_size]
            yield Batch(block.X, block.y, block.weight, part, block.index, block.start).compact()


def count_rows(engine: Engine) -> int:
    """Number of rows of positive weight; a stream that nobody has read yet is read once."""
    if engine.n_rows is not None:
        return engine.n_rows
    if not engine.repeatable:
        raise ValueError(
            "the number of rows must be known, and the data can be read only once: give the "
            "temperature (how many observations the data count for) as a number"
        )
    total = engine.reduce(lambda batch: batch.n_rows, lambda a, b: a + b)
    return int(total)
