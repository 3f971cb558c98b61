"""Recursive inversion of triangular matrices, mostly by matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from likelier.base import Array

LEAF = 64  # size below which LAPACK inverts; it is slow for hundreds of rows


def lower_inverse(factor: Array) -> Array:
    """Inverse of a lower triangular matrix, zero above the diagonal, in Fortran order.

    Entries of ``factor`` above its diagonal are ignored. Float32 or float64. Costs ``n^3 / 3``
    multiplications; three times as fast as LAPACK for a few hundred rows.
    """
    out = np.zeros(factor.shape, dtype=factor.dtype, order="F")
    single = factor.dtype == np.float32
    routines = (lapack.strtri, blas.strmm) if single else (lapack.dtrtri, blas.dtrmm)
    _fill(factor, out, *routines)
    return out


def _fill(factor: Array, out: Array, invert: Any, multiply: Any) -> None:
    """Write the inverse; that of ``[[A, 0], [B, C]]`` has ``-C^-1 B A^-1`` in place of B."""
    n = len(factor)
    if n <= LEAF:
        out[:] = np.tril(invert(factor, lower=1)[0])
        return
    half = n // 2
    first, second = slice(half), slice(half, n)
    _fill(factor[first, first], out[first, first], invert, multiply)
    _fill(factor[second, second], out[second, second], invert, multiply)
    right = multiply(-1.0, out[first, first], factor[second, first], side=1, lower=1)
    out[second, first] = multiply(1.0, out[second, second], right, lower=1, overwrite_b=1)
