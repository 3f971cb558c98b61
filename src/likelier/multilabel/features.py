"""Rows to features in which the weights of all labels are found fast.

A `LabelMap` prepares columns (unit spread, or words weighted by rarity and rows of unit
length), may compare rows with landmarks by a Gaussian kernel, and turns the result into its
principal directions: centred, uncorrelated, of average squared length one. Labels play no part,
so rows without labels count as much as others.
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
MAX_CELLS = 3 << 27  # of a dense matrix of features; above it sparse rows stay as they are
LANDMARKS = 1000
ROUNDING = 4.0 * float(np.finfo(np.float64).eps)  # of a mean, by which a constant column may vary
SMALLEST = 1e-6  # share of the largest variance below which a direction is rounding


@dataclass(frozen=True)
class LabelMap:
    """A fitted map; everything is in plain arrays.

    ``column`` multiplies columns after ``centre``, in double precision, was taken off (dense
    rows only), ``unit`` scales rows to length one. With ``landmarks`` a row becomes its kernel
    values times ``rotation``; otherwise the row times ``rotation`` (nothing if that is empty).
    ``shift`` is taken off in the end.
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
        """Features of rows, of the type of the map."""
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
    def from_arrays(cls, plain: dict[str, Any]) -> LabelMap:
        """Return the map whose plain form this is."""
        return cls(**plain)


def fit_map(
    kind: str, X: Matrix, weight: Array, rng: np.random.Generator, scale: float = 1.0,
    dtype: Any = np.float64,
) -> LabelMap:  # fmt: skip
    """Learn a map from rows, labelled or not.

    Parameters
    ----------
    kind : {"linear", "weighted", "rbf"}
        Columns of unit spread; words weighted by rarity in rows of unit length (not for
        negative values); or a Gaussian kernel of either.
    X : matrix
        Rows.
    weight : array
        Their weights.
    rng : Generator
        Draws landmarks.
    scale : float
        Inverse squared width of the kernel: one is the average squared distance from the mean.
    dtype : type
        float32 or float64.

    Notes
    -----
    Cost: rows x columns^2 once, plus columns^3; of a kernel with at most 1,000 landmarks.
    """
    share = weight / weight.sum()
    words = kind == "weighted" or (kind == "rbf" and _is_counts(X))
    centre, column = _column_scales(X, share, words)
    base = _prepared(X, centre, column.astype(dtype), words)
    landmarks, gamma = np.zeros((0, 0), dtype=dtype), 0.0
    if kind == "rbf":
        rows = np.sort(rng.permutation(X.shape[0])[:LANDMARKS])
        landmarks = _dense(base[rows])
        gamma = scale / (2.0 * max(_total_variance(base, share), 1e-12))
        base = _kernel(base, landmarks, gamma)
    rotation, shift = _rotation(base, share, landmarks, gamma)
    return LabelMap(
        kind, centre, column.astype(dtype), words, landmarks, gamma,
        rotation.astype(dtype), shift.astype(dtype),
    )  # fmt: skip


def sharpened(part: LabelMap, Z: Array, weight: Array) -> tuple[LabelMap, Array]:
    """Map whose directions count by how far rows spread along them; and its features of rows.

    Inner products become those of the squared kernel, ``sum_j k(x, x_j) k(x_j, x')``: rows are
    alike if they are like the same other rows, so clusters draw together. It takes many rows,
    labelled or not, to know them.

    Parameters
    ----------
    part : LabelMap
        A map with principal directions.
    Z : array of shape (n, r)
        Its features of rows.
    weight : array of shape (n,)
        Weights of the rows.
    """
    spread, total = _spreads(Z, weight)
    factor = (spread / total).astype(Z.dtype)
    sharp = replace(part, rotation=part.rotation * factor, shift=part.shift * factor)
    return sharp, np.ascontiguousarray(Z * factor)


def sharpened_unseen(Z: Array, weight: Array) -> Array:
    """Sharpened features of rows, each as if it had not been there when spreads were measured.

    A row that helped to measure them finds itself among the rows it is like, ``x_j = x``, which
    makes its features longer than those of a new row: scores by which the future is judged need
    features without that term. For ``C = sum_j w_j z_j z_j^T`` with diagonal ``D^2`` features
    ``D z`` become ``D^-1 (C - w_i z_i z_i^T) z_i = D^-1 (D^2 - w_i |z_i|^2) z_i``.

    Parameters
    ----------
    Z : array of shape (n, r)
        Features of rows by a map with principal directions.
    weight : array of shape (n,)
        Weights of the rows.
    """
    spread, total = _spreads(Z, weight)
    own = np.einsum("ij,ij->i", Z, Z) * (weight / weight.sum())
    inverse = np.where(spread > 0.0, 1.0 / np.where(spread > 0.0, spread, 1.0), 0.0)
    taken = Z * (inverse / total).astype(Z.dtype)
    taken *= own.astype(Z.dtype)[:, None]
    return np.asarray(Z * (spread / total).astype(Z.dtype) - taken)


def _spreads(Z: Array, weight: Array) -> tuple[Array, float]:
    """How far rows spread along every direction, and what makes sharpened rows of unit length."""
    spread = np.sqrt(np.einsum("ij,ij,i->j", Z, Z, weight / weight.sum()))
    total = float(np.sqrt((spread**4).sum()))
    return spread, total if total > 0.0 else 1.0


def _is_counts(X: Matrix) -> bool:
    return not isinstance(X, np.ndarray) and not bool((X.data < 0).any())


def column_moments(X: Matrix, share: Array) -> tuple[Array, Array]:
    """Means and standard deviations of columns; exactly 0 where a column is constant.

    Parameters
    ----------
    X : array or CSR matrix
        Rows.
    share : array
        Their weights, which sum to one.

    Notes
    -----
    A mean far from zero is off by its rounding, which may be more than a column varies by. What
    it is off by is found from differences, in which little is lost, and the spread from those
    after it: columns count as constant only if they vary by no more than their numbers round.
    Cost: three passes over the rows.
    """
    mean = np.asarray(X.T @ share, dtype=np.float64).ravel()
    if isinstance(X, np.ndarray):
        mean += share @ (X - mean)
        variance = share @ (X - mean) ** 2
    else:
        rows = sparse.csr_array(X)
        at = np.repeat(share, np.diff(rows.indptr))

        def total(values: Array) -> Array:
            return np.bincount(rows.indices, values * at, minlength=X.shape[1])

        full = np.bincount(rows.indices, minlength=X.shape[1]) == X.shape[0]
        absent = np.where(full, 0.0, np.maximum(1.0 - total(np.ones(rows.nnz)), 0.0))
        mean += total(rows.data - mean[rows.indices]) - absent * mean
        variance = total((rows.data - mean[rows.indices]) ** 2) + absent * mean**2
    spread = np.sqrt(variance)
    return mean, np.where(spread > ROUNDING * abs(mean), spread, 0.0)


def _column_scales(X: Matrix, share: Array, words: bool) -> tuple[Array, Array]:
    """Means to take off (of dense columns) and factors to multiply columns by."""
    if isinstance(X, np.ndarray):
        mean, spread = column_moments(X, share)
        return mean, np.where(spread > 0.0, 1.0 / np.where(spread > 0.0, spread, 1.0), 0.0)
    there = sparse.csr_array((X.data != 0.0, X.indices, X.indptr), shape=X.shape)
    present = np.asarray(there.astype(np.float64).T @ share).ravel()
    square = np.asarray(X.multiply(X).astype(np.float64).T @ share).ravel()
    size = np.sqrt(square / np.where(present > 0.0, present, 1.0))
    factor = np.where(size > 0.0, 1.0 / np.where(size > 0.0, size, 1.0), 0.0)
    if words:  # how much rarer than every row a word is, smoothed by one row
        n = X.shape[0]
        factor = factor * (np.log((1.0 + n) / (1.0 + n * present)) + 1.0)
    return np.zeros(0), factor


def _prepared(X: Matrix, centre: Array, column: Array, unit: bool) -> Any:
    """Columns scaled, and rows too if asked for."""
    if isinstance(X, np.ndarray):
        if not len(centre):
            X = sparse.csr_array(X)
        else:
            # rows in double precision keep it here: means far from zero need all of it
            mean = centre.astype(np.result_type(X.dtype, column.dtype), copy=False)
            return ((X - mean) * column).astype(column.dtype, copy=False)
    elif len(centre):  # learned from dense rows
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


def _rotation(base: Any, share: Array, landmarks: Array, gamma: float) -> tuple[Array, Array]:
    """Directions and shift that make columns centred, uncorrelated, of unit total variance."""
    n, d = base.shape
    empty = np.zeros((0, 0))
    if d > MAX_ROTATED or (n * d > MAX_CELLS and not isinstance(base, np.ndarray)):
        return empty, np.zeros(0)
    first = None
    if len(landmarks):  # Nystroem: coordinates in which the kernel is an inner product
        values, vectors = np.linalg.eigh(_kernel(landmarks, landmarks, gamma).astype(np.float64))
        kept = values > SMALLEST * values[-1]
        first = vectors[:, kept] / np.sqrt(values[kept])
    mean = np.asarray(base.T @ share, dtype=np.float64).ravel()
    covariance = _second_moment(base, share) - np.outer(mean, mean)
    if first is not None:
        covariance = first.T @ covariance @ first
    values, vectors = np.linalg.eigh(covariance)
    kept = values > SMALLEST * max(float(values[-1]), 1e-300)
    if not kept.any():
        return np.zeros((d, 1)), np.zeros(1)
    rotation = vectors[:, kept] / np.sqrt(values[kept].sum())
    if first is not None:
        rotation = first @ rotation
    return rotation, mean @ rotation


def _second_moment(base: Any, share: Array) -> Array:
    """``sum_i share_i x_i x_i^T`` in double precision, from products in that of the rows."""
    root = np.sqrt(share).astype(base.dtype)
    if isinstance(base, np.ndarray):
        scaled = base * root[:, None]
        return np.asarray(scaled.T @ scaled, dtype=np.float64)
    scaled = sparse.csr_array(base.multiply(root[:, None]))
    return np.asarray((scaled.T @ scaled).toarray(), dtype=np.float64)


def _squared_lengths(base: Any) -> Array:
    if isinstance(base, np.ndarray):
        return np.asarray(np.einsum("ij,ij->i", base, base))
    return np.asarray(base.multiply(base).sum(axis=1)).ravel()


def _total_variance(base: Any, share: Array) -> float:
    mean = np.asarray(base.T @ share, dtype=np.float64).ravel()
    return float(share @ _squared_lengths(base) - mean @ mean)


def _dense(X: Any) -> Array:
    return np.ascontiguousarray(X if isinstance(X, np.ndarray) else X.toarray())
