"""Numbers of features, rows of a block, and arrays for the results."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from likelier.base import Array, Matrix

# Intermediate values per block, which should fit the L2 cache of a core.
BLOCK_VALUES = 1 << 17


def resolve_count(n_components: Any, automatic: int) -> int:
    """Validated number of features; ``automatic`` for "auto"."""
    if isinstance(n_components, str):
        if n_components != "auto":
            raise ValueError(
                f"n_components must be a positive integer or 'auto', got {n_components!r}"
            )
        return automatic
    try:
        if isinstance(n_components, bool):
            raise TypeError
        count = operator.index(n_components)
    except TypeError:
        raise TypeError(
            f"n_components must be a positive integer or 'auto', got {n_components!r}"
        ) from None
    if count < 1:
        raise ValueError(f"n_components must be at least 1, got {count}")
    return count


def block_rows(width: int) -> int:
    """Number of rows per block for this many intermediate values per row."""
    return min(max(BLOCK_VALUES // max(width, 1), 32), 1024)


def output_for(X: Matrix, width: int, out: Array | None) -> Array:
    """Validated ``out``, or a new array."""
    shape = (X.shape[0], width)
    if out is None:
        return np.empty(shape, dtype=X.dtype)
    if out.shape != shape or out.dtype != X.dtype or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be a C-contiguous {X.dtype} array of shape {shape}, "
            f"got {out.dtype} of shape {out.shape}"
        )
    return out
