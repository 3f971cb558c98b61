"""Rows of a fit, with their targets and weights, and what is known of them before the weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.engines.rows import take_rows
from likelier.inference.evidence import Scales, typical_weight
from likelier.models.kernel_machine import Standard, StandardRows

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


@dataclass(frozen=True)
class Prepared:
    """What is known before the weights: how inputs are scaled, and the learned scales."""

    standard: Standard
    scales: Scales
    standardised: StandardRows  # the sample
    sample: Rows
    centred: bool = False  # in all columns, also of sparse rows

    def centre(self) -> Array:
        """What to subtract from rows in their own units.

        Distances are the same whatever it is. A linear function is not: beside columns that are
        not centred its constant would have to make up for them, against its prior.
        """
        if self.centred:
            return self.standard.mean
        return self.standard.centre(bool(sparse.issparse(self.sample.X)))

    @property
    def unit(self) -> float:
        """Weight of a typical row: the scales were told of rows that weigh one."""
        return typical_weight(self.sample.weight)

    def judged(self) -> tuple[Matrix, Array, Array]:
        """Rows for small fits, with their centre and scales: standardised where they are dense."""
        Z = self.standardised
        if Z.standard is None:
            return Z.X, np.zeros(Z.shape[1]), self.scales.gamma
        return self.sample.X, self.centre(), self.gamma()

    def gamma(self, scale: float = 1.0) -> Array:
        """Scales in the units of the data."""
        return scale * self.scales.gamma * self.standard.inverse


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
