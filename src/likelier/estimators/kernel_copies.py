"""Rows that are exact copies of others, found by a hash of their bits."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix

MIX, SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


def first_equals(X: Matrix, y: Array) -> Array | None:
    """Number of the first row that each row and its target equal; None where all differ.

    Sparse rows are not looked at. Costs a few operations per number, and a sort of the rows.
    """
    if sparse.issparse(X):
        return None
    code = _hashed(X, y)
    order = np.argsort(code, kind="stable")
    alike = np.flatnonzero(code[order[1:]] == code[order[:-1]])
    if not len(alike):
        return None
    place = np.arange(len(order))
    place[alike + 1] = 0
    start = np.maximum.accumulate(place)  # where the rows of the same code begin
    first, row = order[start[alike + 1]], order[alike + 1]
    # other rows of the same code, one in 2^64, stay by themselves
    equal = (X[row] == X[first]).all(axis=1) & (y[row] == y[first])
    found = np.arange(len(order))
    found[row[equal]] = first[equal]
    return found if equal.any() else None


def _hashed(X: Array, y: Array) -> Array:
    """A number of 64 bits for every row; equal rows have equal ones."""
    code = np.zeros(len(y), dtype=np.uint64)
    for column in (*X.T, y):
        # plus zero: there are two zeros, which are equal
        code ^= (column + 0.0).astype(np.float64).view(np.uint64)
        code *= MIX  # wraps around
        code ^= code >> SHIFT
    return code
