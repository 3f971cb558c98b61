"""Precomputed kernel values: a submatrix of a given matrix, or blocks of two classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.svm.loops.smo import CLASS_BLOCKS, MATRIX, gather_block, gather_shared

RowSource = tuple[int, Array, Array, Array, Array]  # kind, parameters, features, norms, indices


class KnownValues(ABC):
    """Known kernel matrix of the rows of a problem."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Number of rows of the problem."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Precision of the values."""

    @abstractmethod
    def diagonal(self) -> Array:
        """Diagonal of the kernel matrix."""

    @abstractmethod
    def gather(self, rows: Array, columns: Array, out: Array) -> Array:
        """Copy the values of some rows and columns to ``out``, and return it."""

    @abstractmethod
    def row_source(self, active: Array, dtype: np.dtype[Any]) -> RowSource:
        """Arguments with which the compiled loop copies a row over the active rows."""


@dataclass(frozen=True)
class SubmatrixValues(KnownValues):
    """Rows and columns ``indices`` of a matrix."""

    matrix: Array
    indices: Array

    @property
    def n_rows(self) -> int:
        return len(self.indices)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    def diagonal(self) -> Array:
        return np.asarray(self.matrix.diagonal()[self.indices])

    def gather(self, rows: Array, columns: Array, out: Array) -> Array:
        gather_block(self.matrix, self.indices[rows], self.indices[columns], out)
        return out

    def row_source(self, active: Array, dtype: np.dtype[Any]) -> RowSource:
        none = np.zeros(1, dtype=dtype)
        return MATRIX, none, self.matrix, none, self.indices[active]


@dataclass(frozen=True)
class PairValues(KnownValues):
    """Kernel matrix of two classes as blocks, which are copied on demand only.

    ``own`` begins with the square matrix of the first class and ends with that of the second;
    ``across`` has a row per row of the first class and a column per row of the second.
    """

    own: Array
    across: Array

    @property
    def n_rows(self) -> int:
        return sum(self.across.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.across.dtype

    def diagonal(self) -> Array:
        m, n = self.across.shape
        first, second = self.own[: m * m], self.own[len(self.own) - n * n :]
        return np.concatenate([first[:: m + 1], second[:: n + 1]])

    def gather(self, rows: Array, columns: Array, out: Array) -> Array:
        gather_shared(self.own, self.across, rows, columns, out)
        return out

    def row_source(self, active: Array, dtype: np.dtype[Any]) -> RowSource:
        return CLASS_BLOCKS, np.zeros(1, dtype=dtype), self.across, self.own, active
