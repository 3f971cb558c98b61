"""Class probabilities from moments of scores, by compiled quadrature in blocks of one size."""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.inference.deep_compile import compiled_program, own_settings
from likelier.models.deep_gp_data import largest_score


def largest_scores(mean: Array, variance: Array, block: int) -> Array:
    """Chance of every class to have the largest score; all arrays are ``(..., K)``.

    Blocks are padded to one size, so that one program serves whatever number of rows.
    """
    shape = mean.shape
    flat = [np.ascontiguousarray(a, dtype=np.float64).reshape(-1, shape[-1])
            for a in (mean, variance)]  # fmt: skip
    out = np.empty_like(flat[0])
    with own_settings():
        for start in range(0, len(out), block):
            parts = [_padded(a[start : start + block], block) for a in flat]
            program = compiled_program(lambda: largest_score, tuple(parts), ("largest",))
            n = len(out[start : start + block])
            out[start : start + n] = np.asarray(program(*parts)[0])[:n]
    return out.reshape(shape)


def _padded(values: Array, size: int) -> Array:
    """Ones after the rows there are: scores of no meaning, but of positive variance."""
    whole = np.ones((size, values.shape[1]))
    whole[: len(values)] = values
    return whole
