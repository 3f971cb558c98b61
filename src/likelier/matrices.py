"""Validation of matrices for compiled loops: all indices in range, no duplicate entries.

SciPy checks its sparse matrices only superficially, and their attributes can be set to anything.
Compiled loops have no bounds checks, so all input is validated before it reaches them.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix

COMPRESSED = ("csr", "csc", "bsr")


def checked_matrix(X: Any, name: str = "X") -> Any:
    """Return dense data unchanged, and sparse data as CSR with validated indices.

    Raises a ValueError that names the data (``name``) if an index is out of range, or a value is
    masked or complex, and a TypeError for a lazy frame. Cost: one pass over the indices. Data are
    copied only if the format or the index type has to be converted; ``X`` is never modified.
    """
    if type(X).__name__ == "LazyFrame":
        raise TypeError(f"{name} is a LazyFrame without data; pass {name}.collect()")
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        n_masked = int(np.ma.getmaskarray(X).sum())
        raise ValueError(
            f"{name} is a masked array with {n_masked} masked values, which are not supported; "
            f"fill them with {name}.filled(...), or remove these rows"
        )
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        _refuse_complex(name)
    matrix: Any = X
    if not sparse.issparse(X) or matrix.ndim != 2:
        return X
    if matrix.format == "coo":
        _check_coordinates(matrix, name)
    elif matrix.format in COMPRESSED:
        matrix = _checked_compressed(matrix, name)
    if matrix.format == "csr":
        return matrix
    try:
        converted = matrix.tocsr()
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{name} is an invalid sparse matrix: {error}") from error
    # LIL and DOK matrices may have indices out of range
    return converted if matrix.format in COMPRESSED else _checked_compressed(converted, name)


def refuse_complex(y: Array, name: str = "y") -> None:
    """Raise if numbers are complex, because their imaginary parts would be lost."""
    if y.dtype.kind == "c":
        _refuse_complex(name)


def _refuse_complex(name: str) -> None:
    raise ValueError(
        f"Complex data not supported: {name} contains complex numbers; pass real ones, such as "
        f"{name}.real"
    )


def checked_weight(sample_weight: Any, X: Matrix, **options: Any) -> Array:
    """Return nonnegative sample weights, validated by scikit-learn."""
    from sklearn.utils.validation import _check_sample_weight  # as in `validated_rows`

    options = {"dtype": np.float64, "ensure_non_negative": True} | options
    weight = checked_matrix(sample_weight, "sample_weight")
    return np.asarray(_check_sample_weight(weight, X, **options))


def validated_rows(estimator: Any, X: Any, reset: bool, **options: Any) -> Matrix:
    """Return rows as float32 or float64, dense or CSR, validated by scikit-learn."""
    # imported lazily, because it loads pandas, which reading files does not need
    from sklearn.utils import get_tags
    from sklearn.utils.validation import validate_data

    if isinstance(X, np.ma.MaskedArray) and get_tags(estimator).input_tags.allow_nan:
        X = np.ma.filled(X.astype(np.float64), np.nan)
    encoding = vars(estimator).get("encoding_")  # of the table that the model was fitted on
    if reset:
        vars(estimator).pop("encoding_", None)
    elif encoding is not None and not hasattr(X, "columns"):  # matrices cannot have its names
        estimator = copy(estimator)
        vars(estimator).pop("feature_names_in_", None)
    rows: Matrix = validate_data(
        estimator, checked_matrix(X), reset=reset, accept_sparse="csr",
        dtype=[np.float64, np.float32], **options,
    )  # fmt: skip
    return as_csr(rows)


def as_csr(X: Matrix) -> Matrix:
    """Return a matrix without duplicate entries; the caller's matrix is never modified."""
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _checked_compressed(X: Any, name: str) -> Any:
    """Validate the arrays of a CSR, CSC or BSR matrix, and drop unused entries."""
    data = np.asarray(X.data)
    indices, indptr = (
        _native_indices(X.indices, "indices", name),
        _native_indices(X.indptr, "indptr", name),
    )
    n_major, n_minor = X.shape
    if X.format == "bsr":
        block = data.shape[1:]
        if len(block) != 2 or not all(block) or n_major % block[0] or n_minor % block[1]:
            _raise_invalid(name, f"blocks of shape {block} do not fill shape {X.shape}")
        n_major, n_minor = n_major // block[0], n_minor // block[1]
    elif data.ndim != 1:
        _raise_invalid(name, f"data have {data.ndim} dimensions")
    if X.format == "csc":
        n_major, n_minor = n_minor, n_major
    if len(indptr) != n_major + 1:
        _raise_invalid(
            name, f"indptr has {len(indptr)} entries for shape {X.shape}, not {n_major + 1}"
        )
    if indptr[0] != 0:
        _raise_invalid(name, f"indptr begins with {indptr[0]}, not 0")
    if (indptr[1:] < indptr[:-1]).any():
        _raise_invalid(name, "indptr decreases")
    used = int(indptr[-1])
    if used > min(len(indices), len(data)):
        _raise_invalid(name, f"indptr ends with {used}; indices: {len(indices)}, data: {len(data)}")
    _check_range(indices[:used], n_minor, "indices", name)
    parts = (data[:used], indices[:used], indptr)
    if all(a is b or (len(a) == len(b) and a.dtype == b.dtype)  # nothing was converted
           for a, b in zip(parts, (X.data, X.indices, X.indptr), strict=True)):  # fmt: skip
        return X
    return type(X)(parts, shape=X.shape)


def _check_coordinates(X: Any, name: str) -> None:
    """Raise unless all coordinates of a COO matrix are in range."""
    for index, n, axis in zip(X.coords, X.shape, ("row", "col"), strict=True):
        if len(index) != len(X.data):
            _raise_invalid(name, f"{axis} has {len(index)} entries, data {len(X.data)}")
        _check_range(_native_indices(index, axis, name), n, axis, name)


def _native_indices(values: Any, what: str, name: str) -> Array:
    """Return indices as native int32 or int64."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        _raise_invalid(name, f"{what} must be a one-dimensional integer array")
    return array if array.dtype in (np.int32, np.int64) else array.astype(np.int64)


def _check_range(indices: Array, n: int, what: str, name: str) -> None:
    """Raise unless all indices are from 0 to n - 1; as unsigned numbers, negative ones are huge."""
    if len(indices) and int(indices.view(f"u{indices.itemsize}").max()) >= n:
        wrong = indices[(indices < 0) | (indices >= n)][0]
        _raise_invalid(name, f"{what} contain {wrong}, which is not from 0 to {n - 1}")


def _raise_invalid(name: str, why: str) -> None:
    raise ValueError(f"{name} is an invalid sparse matrix: {why}; rebuild it")
