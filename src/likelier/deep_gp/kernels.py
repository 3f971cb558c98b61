"""Kernels of a deep Gaussian process, for NumPy and JAX alike.

Training differentiates them in JAX, prediction needs NumPy only; ``xp`` is either module.
"""

from __future__ import annotations

import math
from typing import Any

KERNELS = ("rbf", "matern32", "matern52")
# Both are relative to the amplitude and part of the model, so they are the same in both precisions
# and energies are comparable. With a much smaller jitter float32 cannot factorise K_zz.
JITTER = 1e-4  # added to the diagonal of K_zz
MIN_VARIANCE = 1e-6  # of a node
MAX_CAVITY_NORM = 0.9  # bound of |e S_c|, which is below one for every q


def root_shrinkage(xp: Any, T: Any, e: Any) -> Any:
    """Factor of ``T`` of every node that keeps ``e S_c = e T T^T`` below one.

    It is one unless there are very few rows or steps are huge: ``|T|_1 |T|_inf`` bounds ``|S_c|``.
    """
    size = abs(T)
    bound = size.sum(-1).max(-1) * size.sum(-2).max(-1)
    return xp.sqrt(MAX_CAVITY_NORM / xp.maximum(e * bound, MAX_CAVITY_NORM))[..., None, None]


def half_squares(xp: Any, Z: Any, X: Any) -> Any:
    """Half the squared distances of scaled points, ``(..., M, R)``; may round to below zero."""
    cross = Z @ xp.swapaxes(X, -1, -2)
    return 0.5 * ((Z * Z).sum(-1)[..., :, None] + (X * X).sum(-1)[..., None, :]) - cross


def correlation(xp: Any, kind: str, half_square: Any, log_amplitude: Any) -> Any:
    """Kernel as a function of half the squared distance in units of the length scales."""
    if kind == "rbf":
        return xp.exp(log_amplitude - half_square)
    # clipped because the square root has no derivative at zero
    tiny = float(xp.finfo(half_square.dtype).eps)
    if kind == "matern32":
        r = math.sqrt(3.0) * xp.sqrt(2.0 * xp.maximum(half_square, tiny))
        return (1.0 + r) * xp.exp(log_amplitude - r)
    if kind == "matern52":
        r = math.sqrt(5.0) * xp.sqrt(2.0 * xp.maximum(half_square, tiny))
        return (1.0 + r + r * r / 3.0) * xp.exp(log_amplitude - r)
    raise ValueError(f"kernel must be one of {list(KERNELS)}, got {kind!r}")
