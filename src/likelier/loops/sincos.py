"""Vectorised sine and cosine of arrays, for random Fourier features.

Angles are reduced to ``[-pi/2, pi/2]`` by subtracting a multiple of ``pi`` in several parts with
exact products; sine and cosine are minimax polynomials there, and an odd multiple flips both signs.
The code is branch-free and vectorises, accurate to 1.5e-7 (float32) or 3e-16 for
angles up to `limit_of` their type. Larger angles, infinities and NaN are passed to the C library,
which is accurate for all numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from likelier.base import Array
from likelier.jit import njit

# Without "nnan" and "ninf": NaN and infinities keep IEEE semantics.
FLAGS = {"contract", "nsz"}

_compiled = njit(cache=True, nogil=True, fastmath=FLAGS)

# Coefficients on [-pi/2, pi/2], highest power first: odd powers for the sine, even for the cosine.
SINE = {
    np.dtype(np.float32): (
        2.6000244845731795e-6,
        -1.9806601596731225e-4,
        8.3330171046146257e-3,
        -1.6666657088936237e-1,
        1.0,
    ),
    np.dtype(np.float64): (
        -7.3645909249155275356e-13,
        1.6047296552573019903e-10,
        -2.5051851344130149609e-8,
        2.7557316074505444645e-6,
        -1.9841269820073129121e-4,
        8.333333333262794696e-3,
        -1.6666666666665810895e-1,
        1.0,
    ),
}
COSINE = {
    np.dtype(np.float32): (
        -2.6076816843377744e-7,
        2.4761870638828828e-5,
        -1.3888403220721682e-3,
        4.1666640707521800e-2,
        -4.9999999549110670e-1,
        1.0,
    ),
    np.dtype(np.float64): (
        4.610260900863446299e-14,
        -1.1463036321788346643e-11,
        2.0876567628430497255e-9,
        -2.7557316523083011466e-7,
        2.480158727912670408e-5,
        -1.3888888888785528947e-3,
        4.166666666666436606e-2,
        -4.9999999999999982496e-1,
        1.0,
    ),
}
_sine_single, _cosine_single = (
    tuple(np.float32(c) for c in table[np.dtype(np.float32)]) for table in (SINE, COSINE)
)
_sine_double, _cosine_double = (table[np.dtype(np.float64)] for table in (SINE, COSINE))


def limit_of(x):
    """Largest angle of this type that the fast functions take."""
    return 8192.0 if isinstance(x, np.float32) else 1e6


def fast_sincos(x, scale):
    """``scale sin(x)`` and ``scale cos(x)`` of one angle inside compiled code."""
    return scale * np.sin(x), scale * np.cos(x)


def careful_sincos(x):
    """Sine and cosine of any number at all, in double precision."""
    return (math.sin(x), math.cos(x)) if math.isfinite(x) else (math.nan, math.nan)


@overload(limit_of)
def _limit_of(x):
    limit = np.float32(8192.0) if x == types.float32 else 1e6
    return lambda x: limit


@overload(fast_sincos, jit_options={"fastmath": FLAGS})
def _fast_sincos(x, scale):
    return _sincos_single if x == types.float32 else _sincos_double


@overload(careful_sincos)
def _careful_sincos(x):
    def careful(x):
        angle = np.float64(x)
        if not math.isfinite(angle):
            return math.nan, math.nan
        return math.sin(angle), math.cos(angle)

    return careful


def _sincos_single(x, scale):
    shifted = x * np.float32(0.31830988618) + np.float32(12582912.0)  # 1.5 * 2^23 rounds
    k = shifted - np.float32(12582912.0)
    r = x - k * np.float32(3.140625)
    r = r - k * np.float32(9.677410125732421875e-4)
    r = r + k * np.float32(8.7422780003724857e-8)
    z = r * r
    a, c = _sine_single, _cosine_single
    sine = (((a[0] * z + a[1]) * z + a[2]) * z + a[3]) * (z * r) + r
    cosine = ((((c[0] * z + c[1]) * z + c[2]) * z + c[3]) * z + c[4]) * z + c[5]
    odd = np.float32(shifted).view(np.int32) << np.int32(31)  # the last bit of k as a sign
    scale = np.int32(np.float32(scale).view(np.int32) ^ odd).view(np.float32)
    return scale * sine, scale * cosine


def _sincos_double(x, scale):
    shifted = x * 0.3183098861837907 + 6755399441055744.0  # 1.5 * 2^52 rounds
    k = shifted - 6755399441055744.0
    r = x - k * 3.14159265346825122833252
    r = r - k * 1.215420101301238520295029e-10
    z = r * r
    a, c = _sine_double, _cosine_double
    p = (((a[0] * z + a[1]) * z + a[2]) * z + a[3]) * z + a[4]
    sine = ((p * z + a[5]) * z + a[6]) * (z * r) + r
    p = (((c[0] * z + c[1]) * z + c[2]) * z + c[3]) * z + c[4]
    cosine = (((p * z + c[5]) * z + c[6]) * z + c[7]) * z + c[8]
    odd = np.float64(shifted).view(np.int64) << np.int64(63)
    scale = np.int64(np.float64(scale).view(np.int64) ^ odd).view(np.float64)
    return scale * sine, scale * cosine


# The loops below use a single output array and unsigned positions, so that the compiler knows that
# the halves of a row do not alias, and does not check for negative indices. Either check would
# prevent vectorisation.


@_compiled
def _all_small(angles):
    """Whether all angles of a vector are within the fast range."""
    beyond = 0
    for j in range(len(angles)):
        beyond += 0 if abs(angles[j]) <= limit_of(angles[j]) else 1
    return beyond == 0


@_compiled
def _pair_row(angles, row, scale):
    """Write ``scale [cosines | sines]`` of the angles."""
    half = np.uintp(len(angles))
    for j in range(half):
        s, c = fast_sincos(angles[j], scale)
        row[j] = c
        row[j + half] = s
    if not _all_small(angles):
        for j in range(half):
            if not abs(angles[j]) <= limit_of(angles[j]):
                s, c = careful_sincos(angles[j])
                row[j] = scale * c
                row[j + half] = scale * s


@_compiled
def _phase_row(angles, phase, row, scale):
    """Write ``scale cos(angle + phase)``; the angles are overwritten."""
    count = np.uintp(len(angles))
    for j in range(count):
        angles[j] += phase[j]
    for j in range(count):
        _, c = fast_sincos(angles[j], scale)
        row[j] = c
    if not _all_small(angles):
        for j in range(count):
            if not abs(angles[j]) <= limit_of(angles[j]):
                _, c = careful_sincos(angles[j])
                row[j] = scale * c


@_compiled
def _fourier(angles, phase, out, scale):
    pairs = angles.shape[1] - len(phase)
    for i in range(out.shape[0]):
        _pair_row(angles[i, :pairs], out[i, : 2 * pairs], scale)
        _phase_row(angles[i, pairs:], phase, out[i, 2 * pairs :], scale)


def fourier_features(angles: Array, phase: Array, out: Array) -> None:
    """Write ``sqrt(2/M) [cos(a), sin(a), cos(b + phase)]`` to the ``M`` columns of ``out``.

    ``b`` are the last columns of the angles, as many as there are phases, ``a`` the others. All
    arrays must have the same type, be in C order, and not overlap; the angles may be overwritten.
    """
    _fourier(angles, phase, out, out.dtype.type((2.0 / max(out.shape[1], 1)) ** 0.5))


def sincos(angles: Array) -> tuple[Array, Array]:
    """Sine and cosine of an array of any shape, float32 or float64."""
    flat = np.ascontiguousarray(angles).reshape(1, -1)
    both = np.empty((1, 2 * flat.size), dtype=flat.dtype)
    _fourier(flat, flat[0, :0], both, flat.dtype.type(1))
    cosines, sines = both.reshape(2, *angles.shape)
    return sines, cosines
