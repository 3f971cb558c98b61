"""The `Kernel` base class, and rows prepared for a kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.matrices import as_csr, checked_matrix
from likelier.value import Value

Rows = slice | Array


@dataclass(frozen=True)
class Prepared:
    """Rows preprocessed for a kernel by `Kernel.prepare`.

    ``X`` holds the shifted and scaled rows, ``norms`` their squared norms (or None), ``shift`` the
    vector subtracted from every row (or None).
    """

    kernel: Kernel
    X: Matrix
    norms: Array | None = None
    shift: Array | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the kernel matrix of these rows."""
        return self.X.dtype

    def rows(self, index: Rows, out: Array | None = None) -> Array:
        """Rows ``K[index, :]`` of the kernel matrix.

        Parameters
        ----------
        index : slice or array of row numbers
        out : ndarray of shape (len(index), n_rows), optional
            C-contiguous, of the kernel's type; written to and returned.
        """
        return self.take(index).block(self, out)

    def against(self, Z: Matrix, out: Array | None = None) -> Array:
        """Kernel values of new rows ``Z`` against these, of shape (len(Z), n_rows)."""
        return self.kernel._preprocess(Z, self.shift, self).block(self, out)

    def block(self, other: Prepared, out: Array | None = None) -> Array:
        """Kernel values of these rows against those of ``other`` (same kernel and shift)."""
        if self.kernel.precomputed:
            return copied(self.X, out)
        if self.X.shape[1] != other.X.shape[1]:
            raise ValueError(
                f"the rows have {self.X.shape[1]} features, but those the kernel was prepared "
                f"with have {other.X.shape[1]}"
            )
        out = checked_out(out, (self.n_rows, other.n_rows), np.result_type(self.X, other.X))
        self.kernel._fill(self, other, out)
        return out

    def take(self, index: Rows) -> Prepared:
        """Subset of the rows, with their cached values."""
        norms = None if self.norms is None else self.norms[index]
        if isinstance(index, np.ndarray) and isinstance(self.X, np.ndarray):
            X: Matrix = self.X.take(index, axis=0) if index.dtype != bool else self.X[index]
        else:
            X = self.X[index]
        return Prepared(self.kernel, X, norms, self.shift)

    def diagonal(self) -> Array:
        """Diagonal of the kernel matrix."""
        return self.kernel._diagonal(self)


@dataclass(frozen=True)
class Kernel(Value, ABC):
    """A kernel function: a frozen value with parameters, equality and a JSON form.

    Class attributes:

    ``stationary``   depends on ``x - y`` only; the diagonal is 1 and ``gamma`` may hold one
                     value per feature.
    ``precomputed``  rows are rows of the kernel matrix.
    ``positive``     positive semi-definite for all parameters.
    """

    kind: ClassVar[str] = "kernel"
    stationary: ClassVar[bool] = False
    precomputed: ClassVar[bool] = False
    positive: ClassVar[bool] = True

    def matrix(self, X: Matrix, Y: Matrix | None = None, out: Array | None = None) -> Array:
        """Kernel matrix between the rows of ``X`` and ``Y`` (``X`` if None).

        Parameters
        ----------
        X, Y : ndarray or CSR matrix
        out : ndarray of shape (len(X), len(Y)), optional
            C-contiguous, of the type of the result; written to and returned.
        """
        if Y is None:
            prepared = self.prepare(X)
            return prepared.block(prepared, out)
        return self.prepare(Y).against(X, out)

    def diagonal(self, X: Matrix) -> Array:
        """Kernel value of each row with itself."""
        return self.prepare(X).diagonal()

    def prepare(self, X: Matrix) -> Prepared:
        """Cache per-row work; O(nnz(X))."""
        return self._preprocess(X, None, None)

    def _preprocess(self, X: Matrix, shift: Array | None, like: Prepared | None) -> Prepared:
        """Preprocess rows; ``like`` holds the rows they will be compared with."""
        return Prepared(self, floating(X))

    @abstractmethod
    def _fill(self, left: Prepared, right: Prepared, out: Array) -> None:
        """Write the kernel values of all pairs to ``out``."""

    @abstractmethod
    def _diagonal(self, rows: Prepared) -> Array:
        """Kernel value of each row with itself."""


def floating(X: Matrix) -> Matrix:
    """Rows as float32 or float64, dense or CSR without duplicates; copied only if necessary."""
    X = checked_matrix(X)
    X = as_csr(X) if sparse.issparse(X) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be a 2-D matrix of rows, got an array of shape {X.shape}")
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def copied(X: Matrix, out: Array | None) -> Array:
    """Dense copy of ``X``, written to ``out`` if given."""
    if out is None:
        return X.toarray() if sparse.issparse(X) else np.array(X)
    out = checked_out(out, X.shape, out.dtype)
    out[:] = X.toarray() if sparse.issparse(X) else X
    return out


def checked_out(out: Array | None, shape: tuple[int, ...], dtype: Any) -> Array:
    """Validated ``out``, or a new array."""
    if out is None:
        return np.empty(shape, dtype=dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be a C-contiguous {np.dtype(dtype)} array of shape {shape}, "
            f"got {out.dtype} of shape {out.shape}"
        )
    return out
