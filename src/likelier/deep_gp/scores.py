"""Class probabilities from moments of scores, by compiled quadrature in blocks of one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.deep_gp.compile import compiled_program, own_settings
from likelier.deep_gp.targets import largest_score, log_score_is_largest


def largest_scores(mean: Array, variance: Array, block: int) -> Array:
    """Chance of every class to have the largest score; all arrays are ``(..., K)``."""
    out = _in_blocks(largest_score, _rows_of(mean, variance), block, "largest")
    return out.reshape(mean.shape)


def log_largest_score(codes: Array, mean: Array, variance: Array, block: int) -> Array:
    """Logarithm of the chance of class ``codes`` to have the largest score.

    ``codes`` broadcast to ``(...)``, moments are ``(..., K)``. The logarithm of `largest_scores`
    is right to 1e-9 of a chance of one; this one is as right for chances of any size.
    """
    classes = np.broadcast_to(codes, mean.shape[:-1]).reshape(-1).astype(np.int32)
    rows = [classes, *_rows_of(mean, variance)]
    out = _in_blocks(log_score_is_largest, rows, block, "log largest")
    return out.reshape(mean.shape[:-1])


def _rows_of(*moments: Array) -> list[Array]:
    return [np.ascontiguousarray(m, dtype=np.float64).reshape(-1, m.shape[-1]) for m in moments]


def _in_blocks(function: Callable[..., Any], rows: Sequence[Array], block: int, name: str) -> Array:
    """``function`` of all rows, in blocks of one size, so that one program serves any number."""
    out = []
    with own_settings():
        for start in range(0, len(rows[0]), block):
            parts = [_padded(a[start : start + block], block) for a in rows]
            program = compiled_program(lambda: function, tuple(parts), (name,))
            n = len(rows[0][start : start + block])
            out.append(np.asarray(program(*parts)[0])[:n])
    return np.concatenate(out)


def _padded(values: Array, size: int) -> Array:
    """Ones after the rows there are: a class and scores of no meaning, but positive variance."""
    whole = np.ones((size, *values.shape[1:]), dtype=values.dtype)
    whole[: len(values)] = values
    return whole
