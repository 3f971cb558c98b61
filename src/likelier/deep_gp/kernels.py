"""Kernels of a deep Gaussian process, the same lines for NumPy and for JAX.

Training differentiates them in JAX, prediction needs NumPy only: ``xp`` is either module.
"""

from __future__ import annotations

import math
from typing import Any

KERNELS = ("rbf", "matern32", "matern52")
# Both are relative to the amplitude, and part of the model: the same in both precisions, so that
# their energies can be compared. Single precision factorises no K_zz with much less added.
JITTER = 1e-4  # added to the diagonal of K_zz
LEAST_VARIANCE = 1e-6  # of a node
WIDEST = 0.9  # of e S_c, which is below one for any q


def root_shrinkage(xp: Any, T: Any, e: Any) -> Any:
    """What ``T`` of every node is multiplied by so that ``e S_c = e T T^T`` stays below one.

    That is one but where rows are hardly any or steps are huge: ``|T|_1 |T|_inf`` bounds ``|S_c|``.
    """
    size = abs(T)
    bound = size.sum(-1).max(-1) * size.sum(-2).max(-1)
    return xp.sqrt(WIDEST / xp.maximum(e * bound, WIDEST))[..., None, None]


def half_squares(xp: Any, Z: Any, X: Any) -> Any:
    """Half the squared distances of scaled points, ``(..., M, R)``; rounding may leave -0."""
    cross = Z @ xp.swapaxes(X, -1, -2)
    return 0.5 * ((Z * Z).sum(-1)[..., :, None] + (X * X).sum(-1)[..., None, :]) - cross


def correlation(xp: Any, kind: str, half_square: Any, log_amplitude: Any) -> Any:
    """Kernel as a function of half the squared distance in units of the length scales."""
    if kind == "rbf":
        return xp.exp(log_amplitude - half_square)
    # the square root has no derivative at zero, and the kernel needs none there
    tiny = float(xp.finfo(half_square.dtype).eps)
    if kind == "matern32":
        r = math.sqrt(3.0) * xp.sqrt(2.0 * xp.maximum(half_square, tiny))
        return (1.0 + r) * xp.exp(log_amplitude - r)
    if kind == "matern52":
        r = math.sqrt(5.0) * xp.sqrt(2.0 * xp.maximum(half_square, tiny))
        return (1.0 + r + r * r / 3.0) * xp.exp(log_amplitude - r)
    raise ValueError(f"kernel must be one of {list(KERNELS)}, got {kind!r}")
