"""Random streams named by what they are for: counter based, so any one can be made alone.

A stream depends only on (seed, purpose, iteration, block). Two purposes never share numbers:
a model that draws from its block's stream does not disturb the order the rows come in.
"""

from __future__ import annotations

import operator
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream of random numbers is used for."""

    MODEL = 0
    SHUFFLE = 1
    SAMPLE = 2
    FOLD = 3


def keyed_stream(seed: int, purpose: Purpose, iteration: int, block: int) -> np.random.Generator:
    """Return the random numbers of one block in one iteration, for one purpose."""
    if iteration < 0 or block < 0:
        raise ValueError(
            f"iteration and block must not be negative, got iteration={iteration}, block={block}"
        )
    key = np.random.SeedSequence(seed, spawn_key=(int(purpose), int(iteration), int(block)))
    return np.random.Generator(np.random.Philox(key))


def check_seed(seed: int) -> int:
    """Return ``seed`` as a Python integer, or say why it cannot be one."""
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be an integer, got {seed!r}") from None
    if number < 0:
        raise ValueError(f"seed must not be negative, got {seed}")
    return number
