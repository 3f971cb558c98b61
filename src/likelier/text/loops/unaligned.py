"""Loads of four or eight bytes from a byte array as little-endian integers.

Text is hashed and compared several bytes at a time. There are no bounds checks: an array must have
`PADDING` extra bytes at its end. The compiler turns each function into one load.
"""

from __future__ import annotations

import numpy as np

from likelier.jit import njit

PADDING = 8


@njit(cache=True, nogil=True)
def load32(data, index):
    """Bytes ``index`` to ``index + 3``."""
    at = np.uintp(index)
    total = np.uint32(0)
    for k in range(4):
        total |= np.uint32(data[at + np.uintp(k)]) << np.uint32(8 * k)
    return np.uint32(total)


@njit(cache=True, nogil=True)
def load64(data, index):
    """Bytes ``index`` to ``index + 7``."""
    at = np.uintp(index)
    total = np.uint64(0)
    for k in range(8):
        total |= np.uint64(data[at + np.uintp(k)]) << np.uint64(8 * k)
    return total
