"""Folds that depend on the content of rows, not on their order or on duplicates.

Equal rows of a class share a fold. So a row of weight two is equivalent to the row twice, and no
row is scored by a fit that was trained on a duplicate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array

FOLDS = 5


def row_hashes(X: Any, seed: int) -> Array:
    """A hash per row, equal for equal rows, dense or sparse. Cost: a pass over the entries.

    It is the sum, in wrapping integers, of the hashed bits of every entry times a random odd factor
    of its column: independent of the order of summation, and zero entries do not contribute.
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
    """Floats as hashed 64-bit integers; zero and minus zero are zero.

    The set bits of round numbers are all high bits, which a product would lose, so they are mixed
    by the finaliser of SplitMix64.
    """
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


def assign_folds(keys: Array, codes: Array, seed: int) -> Array:
    """Fold of every row; the distinct rows of each class are distributed evenly."""
    stream = np.random.default_rng([seed, 2])
    folds = np.empty(len(codes), dtype=np.intp)
    for k in np.unique(codes):
        rows = np.flatnonzero(codes == k)
        _, rank = np.unique(keys[rows], return_inverse=True)
        folds[rows] = (rank + stream.integers(FOLDS)) % FOLDS
    return folds
