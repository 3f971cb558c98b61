"""Rows of a fit in memory, with their encoded targets and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array, Matrix
from likelier.engines.rows import take_rows

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

    @property
    def omega(self) -> Array:
        """Weights, one by default."""
        if self.weight is None:
            return np.ones(self.n)
        return np.asarray(self.weight, dtype=np.float64)

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
