"""Validation of parameters and matrices of `SVC` and `SVR`."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import assert_all_finite, column_or_1d

from likelier.base import Array, Matrix, check_flag
from likelier.matrices import refuse_complex
from likelier.svm.fitted_kernel import dense


def check_boolean(name: str, value: Any) -> None:
    """Raise unless the value is True, False, 1 or 0."""
    if not (isinstance(value, Integral) and value in (0, 1)):
        check_flag(name, value)


def check_number(
    name: str, value: Any, low: float, open_below: bool = False, infinite: bool = False
) -> None:
    """Raise unless the value is a number above the bound, and finite unless ``infinite``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    inside = float(value) > low if open_below else float(value) >= low
    if not inside or not (infinite or np.isfinite(float(value))):
        sign, kind = ">" if open_below else ">=", "number" if infinite else "finite number"
        raise ValueError(f"{name} must be a {kind} {sign} {low:g}, got {value!r}")


def check_integer(name: str, value: Any, low: int) -> None:
    """Raise unless the value is of an integer type and at least ``low``."""
    check_number(name, value, low)
    if not isinstance(value, Integral):
        raise ValueError(f"{name} must be an integer >= {low}, got {value!r}")


def check_seed(name: str, value: Any) -> None:
    """Raise unless the value is a valid ``random_state``."""
    if value is None or value is np.random or isinstance(value, np.random.RandomState):
        return
    if not (isinstance(value, Integral) and 0 <= int(value) < 2**32):
        raise ValueError(
            f"{name} must be None, an integer from 0 to 2**32 - 1 or a RandomState, got {value!r}"
        )


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
        check_number("Cs", C, 0.0, open_below=True, infinite=True)
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
