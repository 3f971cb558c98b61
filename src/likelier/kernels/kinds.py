"""Kernel classes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.kernels.base import Kernel, Prepared, copied, floating
from likelier.kernels.loops import l1_distances, sparse_products
from likelier.loops.exponential import (
    exp_values,
    matern32_values,
    matern52_values,
    power_values,
    rbf_values,
)
from likelier.loops.rows import row_norms

Gamma = float | tuple[float, ...]


# -- stationary kernels -----------------------------------------------------------------


@dataclass(frozen=True)
class _Stationary(Kernel):
    """A function of a distance; ``gamma`` is a scalar or one value per feature."""

    gamma: Gamma = 1.0

    stationary: ClassVar[bool] = True
    root: ClassVar[float]  # features are multiplied by gamma to this power

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", _checked_gamma(self.gamma, self.name))

    def gamma_for(self, n_features: int) -> Array:
        """``gamma`` as an array with one entry, or one per feature."""
        if isinstance(self.gamma, tuple) and len(self.gamma) != n_features:
            raise ValueError(
                f"gamma has {len(self.gamma)} entries, one per feature, "
                f"but the rows have {n_features} features"
            )
        return np.atleast_1d(np.asarray(self.gamma, dtype=np.float64))

    def _preprocess(self, X: Matrix, shift: Array | None, like: Prepared | None) -> Prepared:
        X = floating(X)
        gamma = self.gamma_for(X.shape[1])
        if like is None:
            shift = self._shift(X)
        if shift is not None:  # sparse rows become dense if the rows they are compared with are
            X = (X if isinstance(X, np.ndarray) else X.toarray()) - shift.astype(X.dtype)
        if isinstance(self.gamma, tuple):
            X = _scaled(X, gamma**self.root)
        return Prepared(self, X, self._norms(X), shift)

    def _shift(self, X: Matrix) -> Array | None:
        """Shift applied to all rows to avoid cancellation, or None."""
        return None

    def _norms(self, X: Matrix) -> Array | None:
        """Squared norms, if the distance is computed from them."""
        return None

    def _diagonal(self, rows: Prepared) -> Array:
        return np.ones(rows.n_rows, dtype=rows.dtype)

    def _scale(self, kind: Any) -> Any:
        """Factor of the distance as a scalar of this type; 1 if features are already scaled."""
        if isinstance(self.gamma, tuple):
            return kind(1.0)
        if self.gamma > float(np.finfo(kind).max):
            raise ValueError(
                f"gamma={self.gamma:.3g} is too large for rows in {np.dtype(kind)}; give X in "
                "larger units, or as float64"
            )
        return kind(self.gamma)


@dataclass(frozen=True)
class _Euclidean(_Stationary):
    """A function of the Euclidean distance, computed from inner products and squared norms."""

    root: ClassVar[float] = 0.5

    def _shift(self, X: Matrix) -> Array | None:
        return _mean_shift(X) if isinstance(X, np.ndarray) else None

    def _norms(self, X: Matrix) -> Array | None:
        return row_norms(X).astype(X.dtype)

    def _fill(self, left: Prepared, right: Prepared, out: Array) -> None:
        products(left.X, right.X, out)
        left_norms, right_norms = (
            np.asarray(side.norms, dtype=out.dtype) for side in (left, right)
        )
        self._values(out, left_norms, right_norms, self._scale(out.dtype.type))
        if left is right:
            np.fill_diagonal(out, 1.0)

    @abstractmethod
    def _values(self, G: Array, left: Array, right: Array, scale: Any) -> None:
        """Turn inner products into kernel values, in place."""


@dataclass(frozen=True)
class Rbf(_Euclidean):
    """``exp(-sum_j gamma_j (x_j - y_j)^2)``."""

    name: ClassVar[str] = "rbf"

    def _values(self, G: Array, left: Array, right: Array, scale: Any) -> None:
        rbf_values(G, left, right, scale)


@dataclass(frozen=True)
class Matern(_Euclidean):
    """Matern kernel with ``nu`` 1.5 or 2.5; ``gamma = 1 / (2 length^2)``."""

    nu: float = 2.5

    name: ClassVar[str] = "matern"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (1.5, 2.5):
            raise ValueError(f"nu of kernel 'matern' must be 1.5 or 2.5, got {self.nu!r}")

    def _values(self, G: Array, left: Array, right: Array, scale: Any) -> None:
        values = matern32_values if self.nu == 1.5 else matern52_values
        values(G, left, right, G.dtype.type(4.0 * self.nu) * scale)


@dataclass(frozen=True)
class Laplacian(_Stationary):
    """``exp(-sum_j gamma_j |x_j - y_j|)``."""

    name: ClassVar[str] = "laplacian"
    root: ClassVar[float] = 1.0

    def _fill(self, left: Prepared, right: Prepared, out: Array) -> None:
        l1_distances(left.X, right.X, out)
        exp_values(out, self._scale(out.dtype.type))


# -- kernels of the inner product ---------------------------------------------------------


@dataclass(frozen=True)
class Linear(Kernel):
    """``<x, y>``."""

    name: ClassVar[str] = "linear"

    def _fill(self, left: Prepared, right: Prepared, out: Array) -> None:
        products(left.X, right.X, out)
        self._values(out)

    def _diagonal(self, rows: Prepared) -> Array:
        squares = row_norms(rows.X).astype(rows.dtype)
        self._values(squares[:, None])
        return squares

    def _values(self, G: Array) -> None:
        """Turn inner products into kernel values, in place."""


@dataclass(frozen=True)
class Poly(Linear):
    """``(gamma <x, y> + coef0)^degree``."""

    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    name: ClassVar[str] = "poly"

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "gamma", _checked_number(self.gamma, "gamma", self.name, positive=True)
        )
        object.__setattr__(self, "coef0", _checked_number(self.coef0, "coef0", self.name))
        if self.degree != int(self.degree) or self.degree < 1:
            raise ValueError(
                f"degree of kernel 'poly' must be a positive integer, got {self.degree!r}"
            )

    def _values(self, G: Array) -> None:
        kind = G.dtype.type
        power_values(G, kind(self.gamma), kind(self.coef0), int(self.degree))


@dataclass(frozen=True)
class Sigmoid(Linear):
    """``tanh(gamma <x, y> + coef0)``; not positive semi-definite."""

    gamma: float = 1.0
    coef0: float = 0.0

    name: ClassVar[str] = "sigmoid"
    positive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "gamma", _checked_number(self.gamma, "gamma", self.name, positive=True)
        )
        object.__setattr__(self, "coef0", _checked_number(self.coef0, "coef0", self.name))

    def _values(self, G: Array) -> None:
        kind = G.dtype.type
        G *= kind(self.gamma)
        G += kind(self.coef0)
        np.tanh(G, out=G)


# -- user-supplied ------------------------------------------------------------------------


@dataclass(frozen=True)
class Precomputed(Kernel):
    """Rows are rows of the kernel matrix: square in fit, (new rows, training rows) later."""

    name: ClassVar[str] = "precomputed"
    precomputed: ClassVar[bool] = True
    positive: ClassVar[bool] = False

    def _preprocess(self, X: Matrix, shift: Array | None, like: Prepared | None) -> Prepared:
        X = floating(X)
        expected = X.shape[0] if like is None else like.n_rows
        if X.shape[1] != expected:
            raise ValueError(
                f"with kernel='precomputed' X must have one column per fitted row ({expected}), "
                f"got {X.shape[1]} columns"
            )
        return Prepared(self, X)

    def _fill(self, left: Prepared, right: Prepared, out: Array) -> None:
        copied(left.X, out)

    def _diagonal(self, rows: Prepared) -> Array:
        return np.array(rows.X.diagonal())


@dataclass(frozen=True)
class Custom(Kernel):
    """A function ``function(X, Y)`` that returns the matrix of kernel values."""

    function: Callable[[Any, Any], Any] | None = None

    name: ClassVar[str] = "custom"
    positive: ClassVar[bool] = False

    def _fill(self, left: Prepared, right: Prepared, out: Array) -> None:
        if self.function is None:
            raise ValueError("kernel 'custom' needs a function of two matrices")
        given: Any = self.function(left.X, right.X)
        stored: bool = sparse.issparse(given)
        values = np.asarray(given.toarray() if stored else given)
        if values.shape != out.shape:
            raise ValueError(
                f"the kernel function must return an array of shape {out.shape}, one value for "
                f"each pair of rows; it returned {values.shape}"
            )
        out[:] = values

    def _diagonal(self, rows: Prepared) -> Array:
        pairs = (rows.take(slice(i, i + 1)) for i in range(rows.n_rows))
        return np.array([pair.block(pair)[0, 0] for pair in pairs], dtype=rows.dtype)

    def to_json(self) -> dict[str, Any]:
        raise TypeError("a custom kernel function cannot be serialised to JSON")


# -- helpers --------------------------------------------------------------------------------


def _mean_shift(X: Array) -> Array | None:
    """The mean row, if its norm exceeds the standard deviation of the rows around it.

    Squared distances are differences of squared norms and cancel for data far from the origin;
    shifting the rows avoids that.
    """
    if X.shape[0] == 0:
        return None
    mean = X.mean(axis=0, dtype=np.float64)
    size = float(np.vdot(X, X)) / len(X) if X.flags.forc else float((X * X).sum()) / len(X)
    return mean if 2.0 * float(mean @ mean) > size else None


def _scaled(X: Matrix, factor: Array) -> Matrix:
    """Multiply every feature by its factor."""
    factor = factor.astype(X.dtype)
    if not sparse.issparse(X):
        return X * factor
    return type(X)((X.data * factor[X.indices], X.indices, X.indptr), shape=X.shape)


def products(X: Matrix, Y: Matrix, out: Array) -> None:
    """Inner products of all pairs of rows."""
    if isinstance(X, np.ndarray) and isinstance(Y, np.ndarray):
        np.matmul(X, Y.T, out=out)
    elif sparse.issparse(X) and sparse.issparse(Y):
        sparse_products(X, Y, out)
    elif sparse.issparse(Y):
        out[:] = (Y @ X.T).T
    else:
        out[:] = X @ Y.T


def _checked_number(value: Any, name: str, kernel: str, positive: bool = False) -> float:
    """The value as a float; a float is returned as the same object."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} of kernel {kernel!r} must be a number, got {value!r}")
    if not np.isfinite(value) or (positive and value <= 0):
        rule = "a finite number greater than 0" if positive else "a finite number"
        raise ValueError(f"{name} of kernel {kernel!r} must be {rule}, got {value!r}")
    return value if type(value) is float else float(value)


def _checked_gamma(gamma: Any, kernel: str) -> Gamma:
    """A positive number, or a tuple of one non-negative number per feature."""
    if isinstance(gamma, tuple) and all(type(value) is float for value in gamma):
        each = gamma
    elif isinstance(gamma, (tuple, list)) or (isinstance(gamma, np.ndarray) and gamma.ndim == 1):
        each = tuple(_checked_number(value, "gamma", kernel) for value in gamma)
    else:
        return _checked_number(gamma, "gamma", kernel, positive=True)
    if not each or not np.isfinite(each).all() or min(each) < 0:
        raise ValueError(
            f"gamma of kernel {kernel!r} must hold one finite number per feature, none negative"
        )
    return each
