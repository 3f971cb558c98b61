"""MurmurHash3 (32 bits) of a span of bytes, as scikit-learn's hashing uses it.

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
    """Hash of some bytes, behind which there are at least eight more, as a signed number."""
    whole = length >> 2
    # Words have from one to eleven bytes, in no order a processor could foresee: their blocks
    # are computed in any case and chosen, which is cheaper than a wrong guess at a branch.
    h = np.uint32(0)
    once = _stirred(h, load32(data, start))
    twice = _stirred(once, load32(data, start + 4))
    h = once if whole > 0 else h
    h = twice if whole > 1 else h
    for i in range(2, whole):
        h = _stirred(h, load32(data, start + 4 * i))
    # With no byte left this mixes in zero, which changes nothing.
    rest = load32(data, start + 4 * whole) & ~np.uint32(_FULL << np.uint32(8 * (length & 3)))
    h = np.uint32(h ^ _scrambled(rest))
    h = np.uint32(h ^ np.uint32(length))
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(16))) * _M1)
    h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * _M2)
    return np.int32(h ^ (h >> np.uint32(16)))
