"""Equal rows: copies of one observation, or observations of their own.

Copies made on purpose or by mistake say nothing new, and a row held out would find itself in its
copy: they become one row that weighs more. But where inputs take few values, equal rows are
observations of their own that answer differently, and each of them counts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.fitting.rows import Rows

MIX, SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)
MIXED = 0.25  # share of repeated rows that answer differently from which on they are no copies
FEW_KINDS, OFTEN = 50, 5  # as few different rows, each so often, are no copies either
MOST_EXPANDED = 20_000  # rows that counts become


def settle_few(rows: Rows) -> Rows:
    """Few rows in an order of their own, copies merged; many are left as they are.

    Weights that are whole numbers and differ are counts: where equal rows are observations,
    they become as many rows.
    """
    found = sorted_equals(rows)
    if found is None:
        return rows
    order, first = found
    merged = merge_sorted(rows, order, first)
    sizes = np.diff(np.append(first, rows.n)).astype(np.float64)
    counted = _are_counts(rows.weight)
    counts = merged.weight if counted and merged.weight is not None else sizes
    dense = merged.X.toarray() if sparse.issparse(merged.X) else merged.X
    kind = np.cumsum(np.append(True, (dense[1:] != dense[:-1]).any(axis=1))) - 1
    if not observed_again(kind, merged.y, counts):
        return merged
    if not counted:
        return rows.take(order)
    copies = np.ceil(counts / max(1.0, counts.sum() / MOST_EXPANDED)).astype(np.intp)
    source, weight = np.repeat(order[first], copies), np.repeat(counts / copies, copies)
    return replace(rows.take(source), weight=None if (weight == 1.0).all() else weight)


def settle_many(rows: Rows) -> Rows:
    """Copies among any number of rows as one row each that weighs as much."""
    first = first_equals(rows.X, rows.y)
    if first is None or sparse.issparse(rows.X):
        return rows
    omega = np.ones(rows.n) if rows.weight is None else rows.weight
    inputs = _hashed(np.asarray(rows.X), np.zeros(rows.n))
    kind = np.unique(inputs, return_inverse=True)[1]
    if observed_again(kind, rows.y, np.ones(rows.n)):
        return rows
    weight = np.bincount(first, omega, rows.n)
    kept = np.flatnonzero(first == np.arange(rows.n))
    return replace(rows.take(kept), weight=weight[kept])


def observed_again(kind: Array, y: Array, counts: Array) -> bool:
    """Whether rows of one ``kind``, with equal inputs, are several observations, not copies.

    They are if they often answer differently, or if there are so few kinds, each so often, that
    nothing else could be learned from. What is asked is asked of all rows together: a rule that
    looked at the answers of each kind would bias them.
    """
    total = np.bincount(kind, counts)
    low, high = np.full(len(total), np.inf), np.full(len(total), -np.inf)
    np.minimum.at(low, kind, y)
    np.maximum.at(high, kind, y)
    repeated = total[total >= 2.0].sum()
    mixed = total[(low < high) & (total >= 2.0)].sum()
    few = len(total) <= FEW_KINDS and total.sum() >= OFTEN * len(total)
    return bool(few or (repeated > 0.0 and mixed >= MIXED * repeated))


def _are_counts(weight: Array | None) -> bool:
    """Whether weights are whole numbers, and not all the same: then they are no common factor."""
    if weight is None or (weight == weight[0]).all():
        return False
    return bool((weight == np.floor(weight)).all() and np.isfinite(weight).all())


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


MERGE_ROWS, MERGE_VALUES = 2000, 2_000_000  # up to here equal rows become one that weighs more


def sorted_equals(rows: Rows) -> tuple[Array, Array] | None:
    """An order of few rows, and where in it each kind of equal row and target begins.

    So the model does not depend on the order of few rows. None for larger data.
    """
    if rows.n > MERGE_ROWS or rows.n * rows.X.shape[1] > MERGE_VALUES:
        return None
    dense = rows.X.toarray() if sparse.issparse(rows.X) else rows.X
    joined = np.column_stack([dense, rows.y])
    keys = joined if rows.weight is None else np.column_stack([joined, rows.weight])
    order = np.lexsort(keys.T[::-1])
    ordered = joined[order]
    first = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1)))
    return order, first


def merge_sorted(rows: Rows, order: Array, first: Array) -> Rows:
    """One row of each kind that weighs as much as all, by what `sorted_equals` found."""
    omega = np.ones(rows.n) if rows.weight is None else rows.weight
    weight = np.add.reduceat(omega[order], first)
    merged = rows.take(order[first])
    return Rows(merged.X, merged.y, None if (weight == 1.0).all() else weight)
