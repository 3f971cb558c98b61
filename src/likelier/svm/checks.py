"""Words and matrices of `SVC` and `SVR`, checked one by one."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import assert_all_finite, column_or_1d

from likelier.base import Array, Matrix, check_flag
from likelier.matrices import refuse_complex


def truth(name: str, value: Any) -> None:
    """Raise unless the value is True or False (or the same as a number)."""
    if not (isinstance(value, Integral) and value in (0, 1)):
        check_flag(name, value)


def number(
    name: str, value: Any, low: float, open_below: bool = False, infinite: bool = False
) -> None:
    """Raise unless the value is a number above the bound, and finite if it has to be."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    inside = float(value) > low if open_below else float(value) >= low
    if not inside or not (infinite or np.isfinite(float(value))):
        sign, kind = ">" if open_below else ">=", "number" if infinite else "finite number"
        raise ValueError(f"{name} must be a {kind} {sign} {low:g}, got {value!r}")


def whole_number(name: str, value: Any, low: int) -> None:
    """Raise unless the value is an integer, as a type, from the bound on."""
    number(name, value, low)
    if not isinstance(value, Integral):
        raise ValueError(f"{name} must be an integer >= {low}, got {value!r}")


def seed(name: str, value: Any) -> None:
    """Raise unless random numbers can come from the value."""
    if value is None or value is np.random or isinstance(value, np.random.RandomState):
        return
    if not (isinstance(value, Integral) and 0 <= int(value) < 2**32):
        raise ValueError(
            f"{name} must be None, a whole number from 0 to 2**32 - 1 or a RandomState, "
            f"got {value!r}"
        )


def checked_grid(Cs: Any) -> list[float]:
    """Values of C for a path, as given."""
    wanted = "Cs must be a list of values of C such as [0.1, 1, 10]"
    try:
        grid = np.asarray(() if Cs is None else Cs, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{wanted}, got {Cs!r}") from None
    if grid.ndim > 1 or not grid.size:
        raise ValueError(f"{wanted}, got {Cs!r}")
    values: list[float] = np.atleast_1d(grid).tolist()
    for C in values:
        number("Cs", C, 0.0, open_below=True, infinite=True)
    return values


def kernel_values(K: Any, left: Any, right: Any) -> Array:
    """What the user's kernel function has returned for two sets of rows, as numbers."""
    values = np.asarray(dense(K), dtype=np.float64)
    if values.ndim != 2:
        raise ValueError(f"kernel must return a matrix, got an array of shape {values.shape}")
    expected = length(left), length(right)
    if values.shape != expected:
        raise ValueError(
            "kernel must return a row for each row of its first argument and a column for each "
            f"of its second, a matrix of shape {expected}; got {values.shape}"
        )
    assert_all_finite(values, input_name="the matrix that kernel returned")
    return values


def one_column(y: Any) -> Array:
    """Targets as an array of one dimension.

    A plain array that is one already is not looked at: that would take as long as a small fit.
    """
    column = type(y) is np.ndarray and y.ndim == 1
    values: Array = y if column else np.asarray(column_or_1d(y, warn=True))
    refuse_complex(values)
    return values


def finite(values: Array, name: str) -> None:
    """Raise, naming the argument, where a number is NaN or infinite."""
    if not np.isfinite(values).all():
        assert_all_finite(values, input_name=name)  # it says which of the two


def dense(table: Any) -> Any:
    """A matrix as a plain array; anything else as it is."""
    to_array = getattr(table, "toarray", None)
    return table if to_array is None else to_array()


def like_input(table: Array, X: Any) -> Any:
    """Coefficients as CSR for sparse rows, as scikit-learn has them."""
    return sparse.csr_matrix(table) if sparse.issparse(X) else table


def length(X: Matrix | Any) -> int:
    """Number of rows of a matrix, a frame or a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)
