"""Moments of the columns of a matrix: additive over blocks of rows, exact far from zero.

A sum of squares minus the square of a sum loses all digits where a mean is large beside its
spread (a column of times in seconds). Squares are therefore taken around the mean of each block,
and blocks are merged by the distance of their means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix

BLOCK_ROWS = 2048
SUM_ROWS = 1 << 16  # single rows are summed in double precision, so many at a time


@dataclass(frozen=True)
class ColumnMoments:
    """Weight of the rows, and of every column the mean and the summed squares around it."""

    weight: float
    mean: Array
    squares: Array

    @classmethod
    @np.errstate(over="ignore", invalid="ignore")
    def of(cls, X: Matrix, weight: Array | None = None) -> ColumnMoments:
        """Of a block of rows, dense or CSR without duplicates; two passes, no copy of them all.

        Squares that overflow are infinite, or not a number, without a warning.
        """
        omega = np.full(X.shape[0], 1.0) if weight is None else weight
        total = float(omega.sum())
        if not total > 0.0:
            zero = np.zeros(X.shape[1])
            return cls(0.0, zero, zero)
        mean = _column_sums(X, omega) / total
        if sparse.issparse(X):
            return cls(total, mean, _sparse_squares(X, omega, mean))
        squares = np.zeros(X.shape[1])
        for start in range(0, X.shape[0], BLOCK_ROWS):
            part = X[start : start + BLOCK_ROWS] - mean
            squares += omega[start : start + BLOCK_ROWS] @ (part * part)
        return cls(total, mean, squares)

    @np.errstate(over="ignore", invalid="ignore")
    def __add__(self, other: ColumnMoments) -> ColumnMoments:
        total = self.weight + other.weight
        if not total > 0.0:
            return self
        apart, share = other.mean - self.mean, other.weight / total
        squares = self.squares + other.squares + apart**2 * (self.weight * share)
        return ColumnMoments(total, self.mean + share * apart, squares)


def _column_sums(X: Matrix, omega: Array) -> Array:
    """Weighted sums of the columns in double precision, without a copy of many rows."""
    if sparse.issparse(X) or X.shape[0] <= SUM_ROWS:
        return np.asarray(X.T @ omega, dtype=np.float64)
    sums = np.zeros(X.shape[1])
    for start in range(0, X.shape[0], SUM_ROWS):
        part = slice(start, start + SUM_ROWS)
        sums += X[part].T @ omega[part]
    return sums


def _sparse_squares(X: Any, omega: Array, mean: Array) -> Array:
    """Squares around the mean: of what is stored, and of the zeros that are not."""
    d = X.shape[1]
    of_values = np.repeat(omega, np.diff(X.indptr))
    away = X.data.astype(np.float64) - mean[X.indices]
    stored = np.bincount(X.indices, of_values, d)
    full = np.bincount(X.indices, minlength=d) == X.shape[0]
    # where nothing is left out, rounding of the weights must not count as zeros far away
    left_out = np.where(full, 0.0, np.maximum(omega.sum() - stored, 0.0))
    inside = np.bincount(X.indices, of_values * away * away, d)
    return np.asarray(inside + left_out * mean**2)


def check_not_tiny(X: Matrix, columns: Array, least: float) -> None:
    """Raise where columns that seem constant hold different numbers, of squares that vanish."""
    if not len(columns):
        return
    if sparse.issparse(X):
        most, low = (found.toarray().ravel()[columns] for found in (X.max(axis=0), X.min(axis=0)))
    else:
        most, low = X[:, columns].max(axis=0), X[:, columns].min(axis=0)
    tiny = (most > low) & (np.maximum(most, -low) < least)
    if tiny.any():
        raise ValueError(
            f"input {int(columns[tiny][0])} of X holds numbers whose squares vanish, all within "
            f"{least:g}; give it in other units"
        )
