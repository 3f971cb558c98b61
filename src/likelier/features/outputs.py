"""Memory of large outputs that nobody refers to any more, used again for the next ones.

The C library keeps freed pieces of memory of up to 32 MB for the next request and gives larger
ones back to the system, which then finds and clears every page anew: that takes longer than the
features that are written there. So some larger pieces are kept here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array

SMALLEST = 32 << 20  # bytes; what is smaller the C library keeps by itself
KEPT = 128 << 20  # bytes at most that are kept while nobody uses them

# Pieces by their identity, the oldest first. There is no lock, because the collector of garbage
# may give a piece back in the midst of any line here. Every single operation is whole by itself.
_idle: dict[int, Array] = {}


class _Loan:
    """The owner of a piece of memory: gone with the last array that shows any part of it."""

    __slots__ = ("__array_interface__", "_piece")

    def __init__(self, piece: Array) -> None:
        self._piece = piece
        self.__array_interface__ = piece.__array_interface__

    def __del__(self) -> None:
        _idle[id(self._piece)] = self._piece
        pieces = _idle.copy()
        excess = sum(piece.nbytes for piece in pieces.values()) - KEPT
        for key, piece in pieces.items():
            if excess <= 0:
                break
            _idle.pop(key, None)
            excess -= piece.nbytes


def new_output(shape: tuple[int, int], dtype: Any) -> Array:
    """An array to be filled; where it is large, in memory that an earlier one has left.

    Such an array does not own its memory (``resize`` refuses it) and is like any other otherwise.
    """
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    if not SMALLEST < size <= KEPT:
        return np.empty(shape, dtype=dtype)
    owned: Array = np.asarray(_Loan(_take(size)))
    output: Array = owned[:size].view(dtype).reshape(shape)
    return output


def _take(size: int) -> Array:
    """An idle piece that is large enough and less than twice as large, or a new one."""
    for key, piece in _idle.copy().items():
        # another thread may have taken it meanwhile
        if size <= piece.nbytes < 2 * size and _idle.pop(key, None) is not None:
            return piece
    return np.empty(size, dtype=np.uint8)
