"""Class probabilities from moments of scores, by compiled quadrature in blocks of one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.deep_gp.compile import compiled_program, program_settings
from likelier.deep_gp.targets import class_probabilities_and_sum, log_class_probability_and_sum


def class_probabilities(mean: Array, variance: Array, block: int) -> Array:
    """Probability that each class has the largest score; all arrays are ``(..., K)``."""
    out = _in_blocks(class_probabilities_and_sum, _rows_of(mean, variance), block, "largest")
    return out.reshape(mean.shape)


def log_class_probability(codes: Array, mean: Array, variance: Array, block: int) -> Array:
    """Log probability that class ``codes`` has the largest score.

    ``codes`` broadcast to ``(...)``, moments are ``(..., K)``. The error of `class_probabilities`
    is 1e-9 in absolute terms; here it is relative, also for tiny probabilities.
    """
    classes = np.broadcast_to(codes, mean.shape[:-1]).reshape(-1).astype(np.int32)
    rows = [classes, *_rows_of(mean, variance)]
    out = _in_blocks(log_class_probability_and_sum, rows, block, "log largest")
    return out.reshape(mean.shape[:-1])


def _rows_of(*moments: Array) -> list[Array]:
    return [np.ascontiguousarray(m, dtype=np.float64).reshape(-1, m.shape[-1]) for m in moments]


def _in_blocks(function: Callable[..., Any], rows: Sequence[Array], block: int, name: str) -> Array:
    """``function`` of all rows, in blocks of one size so that a single program is compiled."""
    out = []
    with program_settings():
        for start in range(0, len(rows[0]), block):
            parts = [_padded(a[start : start + block], block) for a in rows]
            program = compiled_program(lambda: function, tuple(parts), (name,))
            n = len(rows[0][start : start + block])
            out.append(np.asarray(program(*parts)[0])[:n])
    return np.concatenate(out)


def _padded(values: Array, size: int) -> Array:
    """Pad rows with ones, which are valid as class index, score and variance."""
    whole = np.ones((size, *values.shape[1:]), dtype=values.dtype)
    whole[: len(values)] = values
    return whole
