"""Rows that are kept apart to validate on: a share of every class, and never all of one."""

from __future__ import annotations

import numpy as np

from likelier.base import Array


def held_rows(groups: Array, fraction: float, rng: np.random.Generator) -> Array:
    """Choose about ``fraction`` of the rows, as nearly as possible the same share of every group.

    One row of every group is left; which groups of few rows give one is drawn. Returns a mask.
    Raises where the share of all rows is none of them, or all. Cost: a sort of the rows.

    Parameters
    ----------
    groups : array of shape (n_rows,)
        Classes, or all the same where there are none.
    """
    _, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(groups) == len(sizes):
        raise ValueError(
            "early_stopping=True needs rows to validate on besides one row of every class to "
            f"learn from, and {len(groups)} rows leave none; set early_stopping=False"
        )
    total = int(fraction * len(groups) + 0.5)
    if not 0 < total < len(groups):
        raise ValueError(
            f"validation_fraction={fraction} of {len(groups)} rows leaves no rows to validate on "
            "or to train on"
        )
    wanted = fraction * sizes
    shares = np.minimum(np.floor(wanted), sizes - 1).astype(np.intp)
    missing = total - int(shares.sum())
    # the largest remainders get one more, equal ones at random
    order = np.lexsort((rng.random(len(sizes)), shares - wanted))
    order = order[shares[order] < sizes[order] - 1][: max(0, missing)]
    shares[order] += 1
    # groups one after the other, each shuffled
    draws = np.lexsort((rng.random(len(groups)), codes))
    first = np.cumsum(sizes) - sizes
    place = np.arange(len(groups)) - first[codes[draws]]
    chosen = np.zeros(len(groups), dtype=bool)
    chosen[draws] = place < shares[codes[draws]]
    return chosen
