"""Vectorised exponential function, and the kernels that are computed from it.

The exponentials use neither tables nor branches, so loops around them are vectorised, and a single
pass turns inner products into kernel values. NaN stays NaN; subnormal results become 0.

``exp(x) = 2^n exp(r)``, ``n = round(x / log 2)``, ``|r| <= log(2)/2``, with a polynomial for
``exp(r)``. Rounding is done by adding a large constant, after which the low bits of the sum are
``n``, ready to be shifted into the exponent.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from likelier.jit import njit

# Without "nnan" and "ninf": NaN and infinities keep IEEE semantics.
FLAGS = {"contract", "nsz"}

_compiled = njit(cache=True, nogil=True, fastmath=FLAGS)


def fast_exp(x):
    """``exp(x)`` for ``x <= 0`` inside compiled code, relative error 1e-7 or 3e-16."""
    return np.exp(x)


@overload(fast_exp, jit_options={"fastmath": FLAGS})
def _fast_exp(x):
    if x == types.float32:
        return _exp_single
    return _exp_double


def _exp_single(x):
    low = np.float32(-87.0)
    held = low if x < low else x
    shifted = held * np.float32(1.44269504) + np.float32(12582912.0)  # 1.5 * 2^23
    n = shifted - np.float32(12582912.0)
    r = (held - n * np.float32(0.693359375)) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * (r * r) + r + np.float32(1.0)
    bits = np.float32(p).view(np.int32) + (np.float32(shifted).view(np.int32) << np.int32(23))
    result = np.int32(bits).view(np.float32)
    return np.float32(0.0) if x < low else result


def _exp_double(x):
    held = -708.0 if x < -708.0 else x
    shifted = held * 1.4426950408889634 + 6755399441055744.0  # 1.5 * 2^52
    n = shifted - 6755399441055744.0
    r = (held - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10
    p = 1.0 / 6227020800.0  # the Taylor series: at |r| < 0.35 the next term is 5e-18
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * (r * r) + r + 1.0
    bits = np.float64(p).view(np.int64) + (np.float64(shifted).view(np.int64) << np.int64(52))
    result = np.int64(bits).view(np.float64)
    return 0.0 if x < -708.0 else result


# Each function overwrites inner products ``G`` with kernel values, given the squared norms of the
# rows on both sides. Squared distances that are negative due to rounding are set to 0.


@_compiled
def rbf_values(G, left, right, scale):
    """``exp(-scale |x - y|^2)`` in place."""
    zero, two = left.dtype.type(0), left.dtype.type(2)
    for i in range(G.shape[0]):
        row, a = G[i], left[i]
        for j in range(len(right)):
            square = (a + right[j]) - two * row[j]
            square = zero if square <= zero else square
            row[j] = fast_exp(-scale * square)


@_compiled
def matern32_values(G, left, right, scale):
    """``(1 + s) exp(-s)``, ``s = sqrt(scale) |x - y|``, in place."""
    zero, one, two = left.dtype.type(0), left.dtype.type(1), left.dtype.type(2)
    for i in range(G.shape[0]):
        row, a = G[i], left[i]
        for j in range(len(right)):
            square = (a + right[j]) - two * row[j]
            square = zero if square <= zero else square
            s = np.sqrt(scale * square)
            row[j] = (one + s) * fast_exp(-s)


@_compiled
def matern52_values(G, left, right, scale):
    """``(1 + s + s^2/3) exp(-s)``, ``s = sqrt(scale) |x - y|``, in place."""
    zero, one, two = left.dtype.type(0), left.dtype.type(1), left.dtype.type(2)
    third = left.dtype.type(1.0 / 3.0)
    for i in range(G.shape[0]):
        row, a = G[i], left[i]
        for j in range(len(right)):
            square = (a + right[j]) - two * row[j]
            square = zero if square <= zero else square
            square = scale * square
            s = np.sqrt(square)
            row[j] = (one + s + third * square) * fast_exp(-s)


@_compiled
def exp_values(G, scale):
    """``exp(-scale G)`` in place, ``G >= 0``."""
    for i in range(G.shape[0]):
        row = G[i]
        for j in range(len(row)):
            row[j] = fast_exp(-scale * row[j])


@_compiled
def power_values(G, gamma, coef0, degree):
    """``(gamma G + coef0)^degree`` in place, for an integer ``degree``."""
    for i in range(G.shape[0]):
        row = G[i]
        for j in range(len(row)):
            row[j] = gamma * row[j] + coef0
        if degree == 2:
            for j in range(len(row)):
                row[j] = row[j] * row[j]
        elif degree == 3:
            for j in range(len(row)):
                row[j] = row[j] * row[j] * row[j]
        elif degree != 1:
            for j in range(len(row)):
                value = row[j]
                power = value
                for _ in range(degree - 1):
                    power = power * value
                row[j] = power
