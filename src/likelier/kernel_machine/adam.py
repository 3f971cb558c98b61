"""Adam on minibatches, with per-coordinate step bounds and a decaying rate.

Shared by the stochastic inferences: Adam moments as a value, and the rate schedule over a planned
number of updates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array

FIRST_DECAY, SECOND_DECAY = 0.9, 0.99
TINY = 1e-12
DECAY_FROM = 0.5  # fraction of the planned updates after which the rate decays
FLOOR = 0.01  # fraction of the initial rate


@dataclass(frozen=True)
class Moments:
    """Running means of a direction and its square, and the number of updates."""

    first: Array
    second: Array
    n_seen: int = 0

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> Moments:
        """Initial moments."""
        return cls(np.zeros(shape), np.zeros(shape))


def adam_change(moments: Moments, direction: Array, rate: float) -> tuple[Moments, Array]:
    """Update the moments with a direction; return them and the parameter change.

    No coordinate moves by much more than ``rate``, whatever the size of ``direction``. Costs a few
    operations per parameter.
    """
    first = FIRST_DECAY * moments.first + (1.0 - FIRST_DECAY) * direction
    second = SECOND_DECAY * moments.second + (1.0 - SECOND_DECAY) * direction**2
    n = moments.n_seen + 1
    size = np.sqrt(second / (1.0 - SECOND_DECAY**n))
    change = (rate / (1.0 - FIRST_DECAY**n)) * first / (size + TINY)
    return Moments(first, second, n), change


def rate_at(rate: float, update: int, n_updates: int) -> float:
    """Learning rate of one update: constant at first, then decaying linearly.

    Small final rates average out minibatch noise. The rate never falls below `FLOOR` times the
    initial one, including updates beyond the plan.
    """
    remaining = (n_updates - update) / max(1.0, (1.0 - DECAY_FROM) * n_updates)
    return rate * min(1.0, max(FLOOR, remaining))
