"""Sparse matrices as compiled loops need them: every index in range, no entry twice.

SciPy looks at little of what a matrix is made of, and its attributes can be set to anything.
Loops without bounds checks would read or write any memory, so data are checked where they come in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix

COMPRESSED = ("csr", "csc", "bsr")


def checked_matrix(X: Any, name: str = "X") -> Any:
    """Return data as they are, or CSR if they are sparse, after a look at all indices.

    Raises a ValueError that calls the data by ``name`` where an index is out of range, a value
    masked or complex, and a TypeError for a lazy frame. Cost: one reading of the indices. Nothing
    is copied unless the format, or the type of the indices, is another one; ``X`` is never changed.
    """
    if type(X).__name__ == "LazyFrame":
        raise TypeError(f"{name} is a LazyFrame, which holds no rows yet: pass {name}.collect()")
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        n_masked = int(np.ma.getmaskarray(X).sum())
        raise ValueError(
            f"{name} is a masked array with {n_masked} masked values, which would be read as if "
            f"they were there: fill them in, with {name}.filled(...), or leave such rows out"
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
        raise ValueError(f"{name} is a damaged sparse matrix: {error}") from error
    # lists of rows and dictionaries may name any column
    return converted if matrix.format in COMPRESSED else _checked_compressed(converted, name)


def refuse_complex(y: Array, name: str = "y") -> None:
    """Raise where numbers are complex, whose imaginary parts would be lost."""
    if y.dtype.kind == "c":
        _refuse_complex(name)


def _refuse_complex(name: str) -> None:
    raise ValueError(
        f"Complex data not supported: {name} holds complex numbers; pass real ones, such as "
        f"{name}.real"
    )


def checked_weight(sample_weight: Any, X: Matrix, **options: Any) -> Array:
    """Weights of the rows as numbers that are not negative, checked by scikit-learn."""
    from sklearn.utils.validation import _check_sample_weight  # as in `validated_rows`

    options = {"dtype": np.float64, "ensure_non_negative": True} | options
    weight = checked_matrix(sample_weight, "sample_weight")
    return np.asarray(_check_sample_weight(weight, X, **options))


def validated_rows(estimator: Any, X: Any, reset: bool, **options: Any) -> Matrix:
    """Rows as estimators take them: float32 or float64, dense or CSR, checked by scikit-learn."""
    # here: it loads pandas, which who only reads files does not need
    from sklearn.utils import get_tags
    from sklearn.utils.validation import validate_data

    if isinstance(X, np.ma.MaskedArray) and get_tags(estimator).input_tags.allow_nan:
        X = np.ma.filled(X.astype(np.float64), np.nan)
    rows: Matrix = validate_data(
        estimator, checked_matrix(X), reset=reset, accept_sparse="csr",
        dtype=[np.float64, np.float32], **options,
    )  # fmt: skip
    return as_csr(rows)


def as_csr(X: Matrix) -> Matrix:
    """A CSR matrix without duplicate entries; the caller's matrix is never changed."""
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _checked_compressed(X: Any, name: str) -> Any:
    """Return a CSR, CSC or BSR matrix whose arrays belong together, without unused entries."""
    data = np.asarray(X.data)
    indices, indptr = _whole(X.indices, "indices", name), _whole(X.indptr, "indptr", name)
    n_major, n_minor = X.shape
    if X.format == "bsr":
        block = data.shape[1:]
        if len(block) != 2 or not all(block) or n_major % block[0] or n_minor % block[1]:
            _refuse(name, f"blocks of shape {block} do not fill shape {X.shape}")
        n_major, n_minor = n_major // block[0], n_minor // block[1]
    elif data.ndim != 1:
        _refuse(name, f"data have {data.ndim} dimensions")
    if X.format == "csc":
        n_major, n_minor = n_minor, n_major
    if len(indptr) != n_major + 1:
        _refuse(name, f"indptr has {len(indptr)} entries for shape {X.shape}, not {n_major + 1}")
    if indptr[0] != 0:
        _refuse(name, f"indptr begins with {indptr[0]}, not 0")
    if (indptr[1:] < indptr[:-1]).any():
        _refuse(name, "indptr decreases")
    used = int(indptr[-1])
    if used > min(len(indices), len(data)):
        _refuse(name, f"indptr ends with {used}; indices: {len(indices)}, data: {len(data)}")
    _check_range(indices[:used], n_minor, "indices", name)
    parts = (data[:used], indices[:used], indptr)
    if all(a is b or (len(a) == len(b) and a.dtype == b.dtype)  # nothing had to be changed
           for a, b in zip(parts, (X.data, X.indices, X.indptr), strict=True)):  # fmt: skip
        return X
    return type(X)(parts, shape=X.shape)


def _check_coordinates(X: Any, name: str) -> None:
    """Raise unless all coordinates of a COO matrix are inside it."""
    for index, n, axis in zip(X.coords, X.shape, ("row", "col"), strict=True):
        if len(index) != len(X.data):
            _refuse(name, f"{axis} has {len(index)} entries, data {len(X.data)}")
        _check_range(_whole(index, axis, name), n, axis, name)


def _whole(values: Any, what: str, name: str) -> Array:
    """Return indices in the machine's own int32 or int64."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        _refuse(name, f"{what} must be whole numbers in one dimension")
    return array if array.dtype in (np.int32, np.int64) else array.astype(np.int64)


def _check_range(indices: Array, n: int, what: str, name: str) -> None:
    """Raise unless all indices are from 0 to n - 1, in one reading: negative ones look huge."""
    if len(indices) and int(indices.view(f"u{indices.itemsize}").max()) >= n:
        wrong = indices[(indices < 0) | (indices >= n)][0]
        _refuse(name, f"{what} hold {wrong}, which is not from 0 to {n - 1}")


def _refuse(name: str, why: str) -> None:
    raise ValueError(f"{name} is a damaged sparse matrix of SciPy: {why}; build it anew")
