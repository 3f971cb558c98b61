"""Feature maps in which the weights of all labels are optimised fast.

A `FeatureMap` prepares columns (unit variance, or TF-IDF with rows of unit length), optionally
compares rows with landmarks by a Gaussian kernel, and rotates the result to its principal
directions: centred, uncorrelated, of average squared length one. Labels are not used, so rows
without labels count as much as others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.loops.exponential import rbf_values

KINDS = ("linear", "weighted", "rbf")
MAX_ROTATED = 2500  # columns up to which principal directions are computed
MAX_CELLS = 3 << 27  # of a dense feature matrix; larger sparse matrices are not rotated
LANDMARKS = 1000
ROUNDING_TOL = 4.0 * float(np.finfo(np.float64).eps)  # relative to the mean; for constant columns
MIN_VARIANCE_RATIO = 1e-6  # relative to the largest; smaller variances are rounding errors


@dataclass(frozen=True)
class FeatureMap:
    """A fitted map, stored as plain arrays.

    Columns are centred by ``centre`` in double precision (dense rows only) and multiplied by
    ``column``; ``unit`` scales rows to length one. With ``landmarks``, a row is replaced by its
    kernel values. The result is multiplied by ``rotation`` (unless that is empty), and ``shift``
    is subtracted.
    """

    kind: str
    centre: Array
    column: Array
    unit: bool
    landmarks: Array
    gamma: float
    rotation: Array
    shift: Array

    def apply(self, X: Matrix) -> Any:
        """Features of rows, in the dtype of the map."""
        base = _prepared(X, self.centre, self.column, self.unit)
        if len(self.landmarks):
            base = _kernel(base, self.landmarks, self.gamma)
        if not self.rotation.size:
            return base
        out = base @ self.rotation
        out -= self.shift
        return np.ascontiguousarray(out)

    def to_arrays(self) -> dict[str, Any]:
        """Plain form, for saving."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, plain: dict[str, Any]) -> FeatureMap:
        """Inverse of `to_arrays`."""
        return cls(**plain)


def fit_map(
    kind: str, X: Matrix, weight: Array, rng: np.random.Generator, scale: float = 1.0,
    dtype: Any = np.float64,
) -> FeatureMap:  # fmt: skip
    """Fit a map to rows, labelled or not.

    Parameters
    ----------
    kind : {"linear", "weighted", "rbf"}
        Columns of unit variance; TF-IDF with rows of unit length (non-negative values only); or a
        Gaussian kernel of either.
    X : matrix
        Rows.
    weight : array
        Their weights.
    rng : Generator
        Draws landmarks.
    scale : float
        Inverse squared width of the kernel, relative to the average squared distance from the mean.
    dtype : type
        float32 or float64.

    Notes
    -----
    Cost: rows x columns^2 once, plus columns^3; for a kernel with at most 1,000 landmarks.
    """
    fraction = weight / weight.sum()
    tfidf = kind == "weighted" or (kind == "rbf" and _is_counts(X))
    centre, column = _column_scales(X, fraction, tfidf)
    base = _prepared(X, centre, column.astype(dtype), tfidf)
    landmarks, gamma = np.zeros((0, 0), dtype=dtype), 0.0
    if kind == "rbf":
        rows = np.sort(rng.permutation(X.shape[0])[:LANDMARKS])
        landmarks = _dense(base[rows])
        gamma = scale / (2.0 * max(_total_variance(base, fraction), 1e-12))
        base = _kernel(base, landmarks, gamma)
    rotation, shift = _rotation(base, fraction, landmarks, gamma)
    return FeatureMap(
        kind, centre, column.astype(dtype), tfidf, landmarks, gamma,
        rotation.astype(dtype), shift.astype(dtype),
    )  # fmt: skip


def square_kernel(part: FeatureMap, Z: Array, weight: Array) -> tuple[FeatureMap, Array]:
    """Map whose inner products are those of the squared kernel, and its features of rows.

    Directions are multiplied by their standard deviations, which turns inner products into
    ``sum_j k(x, x_j) k(x_j, x')``: rows are similar if they are similar to the same other rows, so
    clusters become more compact. Estimating this takes many rows, labelled or not.

    Parameters
    ----------
    part : FeatureMap
        A map with principal directions.
    Z : array of shape (n, r)
        Its features of rows.
    weight : array of shape (n,)
        Weights of the rows.
    """
    std, total = _direction_scales(Z, weight)
    factor = (std / total).astype(Z.dtype)
    squared = replace(part, rotation=part.rotation * factor, shift=part.shift * factor)
    return squared, np.ascontiguousarray(Z * factor)


def square_kernel_held_out(Z: Array, weight: Array) -> Array:
    """Features of the squared kernel for every row, leaving the row out of the standard deviations.

    A row that was used to estimate them is one of the ``x_j``, which makes its features longer than
    those of a new row; out-of-fold scores need features without that term. For
    ``C = sum_j w_j z_j z_j^T`` with diagonal ``D^2``, features ``D z`` become
    ``D^-1 (C - w_i z_i z_i^T) z_i = D^-1 (D^2 - w_i |z_i|^2) z_i``.

    Parameters
    ----------
    Z : array of shape (n, r)
        Features of rows by a map with principal directions.
    weight : array of shape (n,)
        Weights of the rows.
    """
    std, total = _direction_scales(Z, weight)
    own = np.einsum("ij,ij->i", Z, Z) * (weight / weight.sum())
    inverse = np.where(std > 0.0, 1.0 / np.where(std > 0.0, std, 1.0), 0.0)
    self_term = Z * (inverse / total).astype(Z.dtype)
    self_term *= own.astype(Z.dtype)[:, None]
    return np.asarray(Z * (std / total).astype(Z.dtype) - self_term)


def _direction_scales(Z: Array, weight: Array) -> tuple[Array, float]:
    """Standard deviation of every direction, and the normalisation of squared-kernel features."""
    std = np.sqrt(np.einsum("ij,ij,i->j", Z, Z, weight / weight.sum()))
    total = float(np.sqrt((std**4).sum()))
    return std, total if total > 0.0 else 1.0


def _is_counts(X: Matrix) -> bool:
    return not isinstance(X, np.ndarray) and not bool((X.data < 0).any())


def column_moments(X: Matrix, fraction: Array) -> tuple[Array, Array]:
    """Means and standard deviations of columns; exactly 0 where a column is constant.

    Parameters
    ----------
    X : array or CSR matrix
        Rows.
    fraction : array
        Their weights, which sum to one.

    Notes
    -----
    The mean of a column far from zero has a rounding error that may exceed the column's variation.
    It is corrected by the mean of the differences, which are accurate, and the variance is computed
    after that. A column counts as constant only if it varies by no more than the rounding of its
    values. Cost: three passes over the rows.
    """
    mean = np.asarray(X.T @ fraction, dtype=np.float64).ravel()
    if isinstance(X, np.ndarray):
        mean += fraction @ (X - mean)
        variance = fraction @ (X - mean) ** 2
    else:
        rows = sparse.csr_array(X)
        at = np.repeat(fraction, np.diff(rows.indptr))

        def total(values: Array) -> Array:
            return np.bincount(rows.indices, values * at, minlength=X.shape[1])

        full = np.bincount(rows.indices, minlength=X.shape[1]) == X.shape[0]
        missing = np.where(full, 0.0, np.maximum(1.0 - total(np.ones(rows.nnz)), 0.0))
        mean += total(rows.data - mean[rows.indices]) - missing * mean
        variance = total((rows.data - mean[rows.indices]) ** 2) + missing * mean**2
    std = np.sqrt(variance)
    return mean, np.where(std > ROUNDING_TOL * abs(mean), std, 0.0)


def _column_scales(X: Matrix, fraction: Array, tfidf: bool) -> tuple[Array, Array]:
    """Means of dense columns, and factors to multiply columns by."""
    if isinstance(X, np.ndarray):
        mean, std = column_moments(X, fraction)
        return mean, np.where(std > 0.0, 1.0 / np.where(std > 0.0, std, 1.0), 0.0)
    nonzero = sparse.csr_array((X.data != 0.0, X.indices, X.indptr), shape=X.shape)
    present = np.asarray(nonzero.astype(np.float64).T @ fraction).ravel()
    square = np.asarray(X.multiply(X).astype(np.float64).T @ fraction).ravel()
    size = np.sqrt(square / np.where(present > 0.0, present, 1.0))
    factor = np.where(size > 0.0, 1.0 / np.where(size > 0.0, size, 1.0), 0.0)
    if tfidf:  # inverse document frequency, smoothed by one row
        n = X.shape[0]
        factor = factor * (np.log((1.0 + n) / (1.0 + n * present)) + 1.0)
    return np.zeros(0), factor


def _prepared(X: Matrix, centre: Array, column: Array, unit: bool) -> Any:
    """Scaled columns, and rows of unit length if ``unit``."""
    if isinstance(X, np.ndarray):
        if not len(centre):
            X = sparse.csr_array(X)
        else:
            # centring needs double precision where means are far from zero
            mean = centre.astype(np.result_type(X.dtype, column.dtype), copy=False)
            return ((X - mean) * column).astype(column.dtype, copy=False)
    elif len(centre):  # fitted on dense rows
        return _prepared(np.asarray(X.toarray()), centre, column, unit)
    out = sparse.csr_array(X.multiply(column[None])).astype(column.dtype)
    if unit:
        length = np.sqrt(np.asarray(out.multiply(out).sum(axis=1))).ravel()
        factor = 1.0 / np.where(length > 0.0, length, 1.0)
        out = sparse.csr_array(out.multiply(factor[:, None])).astype(column.dtype)
    return out


def _kernel(base: Any, landmarks: Array, gamma: float) -> Array:
    """``exp(-gamma |x - l|^2)`` of rows and landmarks."""
    G = np.ascontiguousarray(base @ landmarks.T)
    rows = _squared_lengths(base).astype(G.dtype)
    rbf_values(G, rows, (landmarks * landmarks).sum(axis=1), G.dtype.type(gamma))
    return G


def _rotation(base: Any, fraction: Array, landmarks: Array, gamma: float) -> tuple[Array, Array]:
    """Rotation and shift that make columns centred, uncorrelated, of unit total variance."""
    n, d = base.shape
    empty = np.zeros((0, 0))
    if d > MAX_ROTATED or (n * d > MAX_CELLS and not isinstance(base, np.ndarray)):
        return empty, np.zeros(0)
    first = None
    if len(landmarks):  # Nystroem features
        values, vectors = np.linalg.eigh(_kernel(landmarks, landmarks, gamma).astype(np.float64))
        kept = values > MIN_VARIANCE_RATIO * values[-1]
        first = vectors[:, kept] / np.sqrt(values[kept])
    mean = np.asarray(base.T @ fraction, dtype=np.float64).ravel()
    covariance = _second_moment(base, fraction) - np.outer(mean, mean)
    if first is not None:
        covariance = first.T @ covariance @ first
    values, vectors = np.linalg.eigh(covariance)
    kept = values > MIN_VARIANCE_RATIO * max(float(values[-1]), 1e-300)
    if not kept.any():
        return np.zeros((d, 1)), np.zeros(1)
    rotation = vectors[:, kept] / np.sqrt(values[kept].sum())
    if first is not None:
        rotation = first @ rotation
    return rotation, mean @ rotation


def _second_moment(base: Any, fraction: Array) -> Array:
    """``sum_i fraction_i x_i x_i^T`` in double precision, from products in the rows' dtype."""
    root = np.sqrt(fraction).astype(base.dtype)
    if isinstance(base, np.ndarray):
        scaled = base * root[:, None]
        return np.asarray(scaled.T @ scaled, dtype=np.float64)
    scaled = sparse.csr_array(base.multiply(root[:, None]))
    return np.asarray((scaled.T @ scaled).toarray(), dtype=np.float64)


def _squared_lengths(base: Any) -> Array:
    if isinstance(base, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", base, base))
    return np.asarray(base.multiply(base).sum(axis=1)).ravel()


def _total_variance(base: Any, fraction: Array) -> float:
    mean = np.asarray(base.T @ fraction, dtype=np.float64).ravel()
    return float(fraction @ _squared_lengths(base) - mean @ mean)


def _dense(X: Any) -> Array:
    return np.ascontiguousarray(X if isinstance(X, np.ndarray) else X.toarray())
