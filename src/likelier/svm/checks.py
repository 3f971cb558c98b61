"""Validation of parameters and matrices of `SVC` and `SVR`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import assert_all_finite, column_or_1d

from likelier.base import Array, Matrix
from likelier.matrices import refuse_complex
from likelier.svm.fitted_kernel import dense


def checked_grid(Cs: Any) -> list[float]:
    """Validated values of C for a path, in their order."""
    wanted = "Cs must be a list of values of C such as [0.1, 1, 10]"
    try:
        grid = np.asarray(() if Cs is None else Cs, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {Cs!r}") from None
    if grid.ndim > 1 or not grid.size:
        raise ValueError(f"{wanted}, got {Cs!r}")
    values: list[float] = np.atleast_1d(grid).tolist()
    for C in values:
        if not C > 0.0:
            raise ValueError(f"Cs must be a list of numbers > 0, got {C!r}")
    return values


def kernel_values(K: Any, left: Any, right: Any) -> Array:
    """Validated kernel matrix that the user's kernel function has returned for two sets of rows."""
    values = np.asarray(dense(K), dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"kernel must return a matrix, got an array of shape {values.shape}")
    expected = length(left), length(right)
    if values.shape != expected:
        raise ValueError(
            "kernel must return a matrix with a row per row of its first argument and a column per "
            f"row of its second, of shape {expected}; got {values.shape}"
        )
    assert_all_finite(values, input_name="the matrix that kernel returned")
    return values


def as_vector(y: Any) -> Array:
    """Targets as a one-dimensional array.

    A one-dimensional NumPy array skips scikit-learn's checks, which take as long as a small fit.
    """
    column = type(y) is np.ndarray and y.ndim == 1
    values: Array = y if column else np.asarray(column_or_1d(y, warn=True))
    refuse_complex(values)
    return values


def check_finite(values: Array, name: str) -> None:
    """Raise, naming the argument, if a value is NaN or infinite."""
    if not np.isfinite(values).all():
        assert_all_finite(values, input_name=name)  # raises with a specific message


def as_input_format(table: Array, X: Any) -> Any:
    """Coefficients as CSR for sparse rows, as scikit-learn has them."""
    return sparse.csr_matrix(table) if sparse.issparse(X) else table


def length(X: Matrix | Any) -> int:
    """Number of rows of a matrix, a frame or a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
