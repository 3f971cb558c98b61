"""Folds that depend on what rows hold, not on where they stand or how often they are repeated.

Equal rows of a class share a fold. So a row of weight two and the same row twice leave out the
same, and no row is predicted by a fit that has seen its twin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array

FOLDS = 5


def row_keys(X: Any, seed: int) -> Array:
    """A number per row, the same for equal rows, dense or sparse. Cost: a pass over the entries.

    The bits of every entry times a random odd number of its column, added in integers that wrap
    around: exact, whatever the order, and an entry of zero adds nothing.
    """
    stream = np.random.default_rng([seed, 3])
    factors = stream.integers(0, 2**63, X.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    stored: bool = sparse.issparse(X)
    if stored:
        terms = _bits(X.data) * factors[X.indices]
        sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])
        return np.asarray(sums[X.indptr[1:]] - sums[X.indptr[:-1]])
    return np.asarray((_bits(X) * factors).sum(axis=1, dtype=np.uint64))


def _bits(values: Array) -> Array:
    """Floats as integers made of their bits, all of which count; zero and minus zero as zero.

    The bits of round numbers are all at one end, where a product would lose them: they are
    stirred first (the finaliser of SplitMix64).
    """
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


def spread_folds(keys: Array, codes: Array, seed: int) -> Array:
    """Fold of every row, the different rows of each class spread evenly over the folds."""
    stream = np.random.default_rng([seed, 2])
    folds = np.empty(len(codes), dtype=np.intp)
    for k in np.unique(codes):
        rows = np.flatnonzero(codes == k)
        _, rank = np.unique(keys[rows], return_inverse=True)
        folds[rows] = (rank + stream.integers(FOLDS)) % FOLDS
    return folds
