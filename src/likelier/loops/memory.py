"""Allocation of arrays whose pages are touched by one thread before several write to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from likelier.base import Array

PAGE = 4096  # bytes


def touched(array: Array) -> Array:
    """Write zero to a byte of every page of a contiguous array, and return it.

    Pages are mapped on the first write. A thread that has freed pages reuses these; other threads
    get fresh memory, which takes ten times as long on a virtual machine, and blocks when several
    threads do so at once. The array must be zero or uninitialised.
    """
    array.reshape(-1, order="A").view(np.uint8)[::PAGE] = 0
    return array


def touched_empty(shape: int | tuple[int, ...], dtype: Any = np.float64) -> Array:
    """An uninitialised array to be written by several threads."""
    return touched(np.empty(shape, dtype))
