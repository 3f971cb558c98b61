"""New memory whose pages one thread has touched before several write to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array

PAGE = 4096  # bytes


def touched(array: Array) -> Array:
    """The same array, a byte of every page written to: for arrays of zeros, or of anything.

    A page comes with the first write to it. The thread that freed pages of an earlier array gets
    these again; any other one is given memory that nobody has used for long, which takes ten
    times as long on a virtual machine, and threads that do so together wait for each other.
    ``array`` lies in one piece.
    """
    array.reshape(-1, order="A").view(np.uint8)[::PAGE] = 0
    return array


def touched_empty(shape: int | tuple[int, ...], dtype: Any = np.float64) -> Array:
    """An array to be written by several threads."""
    return touched(np.empty(shape, dtype))
