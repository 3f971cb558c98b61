"""Rows of a fit, with their targets and weights; few equal ones become one that weighs more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.engines.rows import take_rows

MERGE_ROWS, MERGE_VALUES = 2000, 2_000_000  # up to here equal rows become one that weighs more
NO_WEIGHT = "the weights of rows and classes leave no row to learn from"


@dataclass(frozen=True)
class Rows:
    """Rows, encoded targets (class numbers or numbers) and weights."""

    X: Matrix
    y: Array
    weight: Array | None

    @property
    def n(self) -> int:
        """How many rows."""
        return int(self.X.shape[0])

    def take(self, rows: Array) -> Rows:
        """Some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Rows(take_rows(self.X, rows), self.y[rows], weight)

    def present(self) -> Rows:
        """The rows that weigh anything."""
        if self.weight is None or self.weight.all():
            return self
        if not self.weight.any():
            raise ValueError(NO_WEIGHT)
        return self.take(np.flatnonzero(self.weight))


def merge_equal(rows: Rows) -> Rows:
    """Equal rows with equal targets as one row that weighs as much, in sorted order.

    So the model does not depend on the order of few rows, and a weight means exactly as many
    rows. Larger data are left as they are.
    """
    if rows.n > MERGE_ROWS or rows.n * rows.X.shape[1] > MERGE_VALUES:
        return rows
    dense = rows.X.toarray() if sparse.issparse(rows.X) else rows.X
    joined = np.column_stack([dense, rows.y])
    order = np.lexsort(joined.T[::-1])
    ordered = joined[order]
    first = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1)))
    omega = np.ones(rows.n) if rows.weight is None else rows.weight
    weight = np.add.reduceat(omega[order], first)
    merged = rows.take(order[first])
    one = bool((weight == 1.0).all())
    return Rows(merged.X, merged.y, None if one else weight)
