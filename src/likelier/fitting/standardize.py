"""Standardisation: the mean and the scale of every input, from additive moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.fitting.moments import ColumnMoments, check_not_tiny

LARGEST = 1e150  # size of an input whose squares and their sums can still be told
CONSTANT = 1e-24  # share of a squared mean below which a variance is rounding
# A sparse column whose mean is so many spreads from zero has hardly any zeros (at most a tenth of
# its rows): centring costs no memory, and saves the digits of distances.
FAR = 3.0
DENSE_VALUES = 1 << 24  # sparse rows up to this size are standardised once, not as they are used


@dataclass(frozen=True)
class Standard:
    """Mean and inverse spread of every input, by additive sums over the rows.

    A constant input has the inverse spread zero: it cannot tell anything.
    """

    mean: Array
    inverse: Array

    @classmethod
    def of(cls, X: Matrix, weight: Array | None = None) -> Standard:
        """Of rows in memory; two passes, so that a large mean costs no digits."""
        standard = cls.from_moments(ColumnMoments.of(X, weight))
        check_not_tiny(X, np.flatnonzero(standard.inverse == 0.0), 1.0 / LARGEST)
        return standard

    @classmethod
    def from_moments(cls, moments: ColumnMoments) -> Standard:
        """From merged moments of any blocks of rows; raises where their squares overflow."""
        mean, variance = moments.mean, moments.squares / moments.weight
        huge = ~(np.isfinite(variance) & (np.abs(mean) < LARGEST))
        if huge.any():
            raise ValueError(
                f"input {int(np.flatnonzero(huge)[0])} holds numbers whose squares overflow, "
                f"beyond {LARGEST:g}; give it in other units"
            )
        told = variance > CONSTANT * mean**2 + 1e-300
        inverse = np.where(told, 1.0 / np.sqrt(np.where(told, variance, 1.0)), 0.0)
        return cls(mean, inverse)

    def centre(self, of_sparse: bool) -> Array:
        """What to subtract: the means; of sparse rows only those that are far from zero."""
        if not of_sparse:
            return self.mean
        return np.where(np.abs(self.mean) * self.inverse > FAR, self.mean, 0.0)

    def spread(self) -> Array:
        """Standard deviation of every input; zero where it is constant."""
        told = self.inverse > 0.0
        return np.divide(1.0, self.inverse, out=np.zeros_like(self.mean), where=told)

    def apply(self, X: Matrix, dtype: Any) -> Array:
        """Standardised dense rows."""
        dense = X.toarray() if sparse.issparse(X) else X
        return np.asarray((dense - self.mean) * self.inverse, dtype=dtype)


@dataclass(frozen=True)
class StandardRows:
    """Standardised rows in single precision; many sparse ones are made dense as they are taken.

    Attributes
    ----------
    X : array, standardised already, or CSR matrix in its own units
    standard : Standard, or None where the rows are standardised
    """

    X: Matrix
    standard: Standard | None

    @classmethod
    def of(cls, X: Matrix, standard: Standard) -> StandardRows:
        """Rows in the units of the data."""
        if sparse.issparse(X) and X.shape[0] * X.shape[1] > DENSE_VALUES:
            return cls(X, standard)
        return cls(standard.apply(X, np.float32), None)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and inputs."""
        return int(self.X.shape[0]), int(self.X.shape[1])

    def __getitem__(self, rows: Array) -> Array:
        """Some rows, dense."""
        if self.standard is None:
            return np.asarray(self.X[rows])
        return self.standard.apply(self.X[rows], np.float32)

    def part(self, rows: Array) -> StandardRows:
        """Some rows, as they are kept."""
        return StandardRows(self.X[rows], self.standard)

    def products(self, columns: Array) -> Array:
        """Products ``Z^T columns`` of columns whose sums are zero, so that no mean matters."""
        if self.standard is None:
            return np.asarray(self.X.T @ columns.astype(np.float32))
        return np.asarray(self.X.T @ columns) * self.standard.inverse[:, None]
