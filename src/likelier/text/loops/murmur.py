"""32-bit MurmurHash3 of a span of bytes, as used by scikit-learn's hashing.

A. Appleby, "MurmurHash3", 2011 (public domain). The seed is 0.
"""

import numpy as np

from likelier.jit import njit
from likelier.text.loops.unaligned import load32

_helper = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_M1, _M2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_FIVE, _ADD = np.uint32(5), np.uint32(0xE6546B64)
_FULL = np.uint32(0xFFFFFFFF)


@_helper
def _rotated(x, bits):
    return np.uint32(x << np.uint32(bits)) | np.uint32(x >> np.uint32(32 - bits))


@_helper
def _scrambled(k):
    return np.uint32(_rotated(np.uint32(k * _C1), 15) * _C2)


@_helper
def _stirred(h, k):
    return np.uint32(np.uint32(_rotated(np.uint32(h ^ _scrambled(k)), 13) * _FIVE) + _ADD)


@_helper
def murmur3(data, start, length):
    """Signed hash of some bytes, which must be followed by at least eight more."""
    whole = length >> 2
    # Most words have one to eleven bytes, so branches on the length are unpredictable: the first
    # two blocks are always computed, and selected afterwards.
    h = np.uint32(0)
    once = _stirred(h, load32(data, start))
    twice = _stirred(once, load32(data, start + 4))
    h = once if whole > 0 else h
    h = twice if whole > 1 else h
    for i in range(2, whole):
        h = _stirred(h, load32(data, start + 4 * i))
    # Without remaining bytes this mixes in zero, which has no effect.
    rest = load32(data, start + 4 * whole) & ~np.uint32(_FULL << np.uint32(8 * (length & 3)))
    h = np.uint32(h ^ _scrambled(rest))
    h = np.uint32(h ^ np.uint32(length))
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * _M1)
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * _M2)
    return np.int32(h ^ (h >> np.uint32(16)))
