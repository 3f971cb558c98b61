"""Memory pool for large outputs.

The C library returns freed blocks above 32 MB to the system, so every large output would fault
in and clear all its pages again, which takes longer than computing the features. This pool keeps
some of those blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array

MIN_BYTES = 32 << 20  # bytes; the C library pools smaller blocks itself
MAX_POOL_BYTES = 128 << 20  # bytes of idle blocks

# Idle blocks by id, oldest first. No lock: the garbage collector may return a block in the middle
# of any line here, and every single dict operation is atomic.
_idle_blocks: dict[int, Array] = {}


class _PooledMemory:
    """Owner of a block; returns it to the pool when the last array that views it is gone."""

    __slots__ = ("__array_interface__", "_block")

    def __init__(self, block: Array) -> None:
        self._block = block
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        _idle_blocks[id(self._block)] = self._block
        blocks = _idle_blocks.copy()
        excess = sum(block.nbytes for block in blocks.values()) - MAX_POOL_BYTES
        for key, block in blocks.items():
            if excess <= 0:
                break
            _idle_blocks.pop(key, None)
            excess -= block.nbytes


def new_output(shape: tuple[int, int], dtype: Any) -> Array:
    """An uninitialised array; large ones come from the pool.

    Pooled arrays do not own their memory, so ``resize`` refuses them.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if not MIN_BYTES < size <= MAX_POOL_BYTES:
        return np.empty(shape, dtype=dtype)
    owned: Array = np.asarray(_PooledMemory(_take(size)))
    output: Array = owned[:size].view(dtype).reshape(shape)
    return output


def _take(size: int) -> Array:
    """An idle block that is large enough but less than twice the size, or a new one."""
    for key, block in _idle_blocks.copy().items():
        # another thread may have taken it meanwhile
        if size <= block.nbytes < 2 * size and _idle_blocks.pop(key, None) is not None:
            return block
    return np.empty(size, dtype=np.uint8)
