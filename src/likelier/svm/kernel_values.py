"""Kernel values that are there already: those of a given matrix, or of two classes in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.svm.loops.smo import GIVEN, SHARED, gather_block, gather_shared

Recipe = tuple[int, Array, Array, Array, Array]  # kind, parameters, features, norms, places


class Given(ABC):
    """Kernel values of the rows of a problem among themselves."""

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
        """Value of each row with itself."""

    @abstractmethod
    def gather(self, rows: Array, columns: Array, out: Array) -> Array:
        """Copy the values of some rows with some others to ``out``, and return it."""

    @abstractmethod
    def recipe(self, active: Array, dtype: np.dtype[Any]) -> Recipe:
        """How the compiled loop copies the values of a row with the active rows."""


@dataclass(frozen=True)
class GivenMatrix(Given):
    """Rows and columns ``places`` of a matrix."""

    matrix: Array
    places: Array

    @property
    def n_rows(self) -> int:
        return len(self.places)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    def diagonal(self) -> Array:
        return np.asarray(self.matrix.diagonal()[self.places])

    def gather(self, rows: Array, columns: Array, out: Array) -> Array:
        gather_block(self.matrix, self.places[rows], self.places[columns], out)
        return out

    def recipe(self, active: Array, dtype: np.dtype[Any]) -> Recipe:
        none = np.zeros(1, dtype=dtype)
        return GIVEN, none, self.matrix, none, self.places[active]


@dataclass(frozen=True)
class PairValues(Given):
    """Values between two classes, and those of each: nothing is copied before it is used.

    ``own`` begins with the square matrix of the first class and ends with that of the second;
    ``across`` has a row for each row of the first and a column for each of the second.
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

    def recipe(self, active: Array, dtype: np.dtype[Any]) -> Recipe:
        return SHARED, np.zeros(1, dtype=dtype), self.across, self.own, active
