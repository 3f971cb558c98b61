"""Shapes of outputs, and a memory pool for large ones.

The C library returns freed blocks above 32 MB to the system, so every large output would fault
in and clear all its pages again, which takes longer than computing the features. This pool keeps
some of those blocks.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from likelier.base import Array, Matrix

MIN_BYTES = 32 << 20  # bytes; the C library pools smaller blocks itself
MAX_POOL_BYTES = 128 << 20  # bytes of idle blocks
# Intermediate values per block, which should fit the L2 cache of a core.
BLOCK_VALUES = 1 << 17

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


def resolve_count(n_components: Any, automatic: int) -> int:
    """Validated number of features; ``automatic`` for "auto"."""
    if isinstance(n_components, str):
        if n_components != "auto":
            raise ValueError(
                f"n_components must be a positive integer or 'auto', got {n_components!r}"
            )
        return automatic
    try:
        if isinstance(n_components, bool):
            raise TypeError
        count = operator.index(n_components)
    except TypeError:
        raise TypeError(
            f"n_components must be a positive integer or 'auto', got {n_components!r}"
        ) from None
    if count < 1:
        raise ValueError(f"n_components must be at least 1, got {count}")
    return count


def block_rows(width: int) -> int:
    """Number of rows per block for this many intermediate values per row."""
    return min(max(BLOCK_VALUES // max(width, 1), 32), 1024)


def output_for(X: Matrix, width: int, out: Array | None) -> Array:
    """Validated ``out``, or a new array."""
    shape = (X.shape[0], width)
    if out is None:
        return np.empty(shape, dtype=X.dtype)
    if out.shape != shape or out.dtype != X.dtype or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be a C-contiguous {X.dtype} array of shape {shape}, "
            f"got {out.dtype} of shape {out.shape}"
        )
    return out
