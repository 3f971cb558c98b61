"""Counts, means and squared deviations per class, and Gaussian log densities, row by row.

Deviations are relative to a row of the same class, so that a feature that is constant within a
class has variance zero exactly, whatever its value.
"""

from __future__ import annotations

import math

import numpy as np

from likelier.jit import njit
from likelier.loops.rows import row_start

# Sums along a row may be reordered, which enables vectorisation; NaN, which marks missing values,
# keeps IEEE semantics.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}
_LARGE = 1e150  # products of two smaller factors do not overflow


@njit(cache=True, nogil=True, fastmath=_REORDER)
def dense_moments(data, n_columns, codes, weight, pivot, total, sums, squares):
    """Add rows to sums of ``x - pivot`` and of its square, one pivot row per class.

    ``pivot`` is the first row of each class. A missing value makes the sums of its column NaN.
    """
    seen = np.zeros(len(total), dtype=np.bool_)
    weighted = len(weight) > 0
    for i in range(len(codes)):
        k = codes[i]
        row = data[i * n_columns : (i + 1) * n_columns]
        p, s, q = pivot[k], sums[k], squares[k]
        if not seen[k]:
            seen[k] = True
            for j in range(n_columns):
                p[j] = row[j]
        if weighted:
            w = weight[i]
            total[k] += w
            for j in range(n_columns):
                deviation = row[j] - p[j]
                s[j] += w * deviation
                q[j] += w * deviation * deviation
        else:
            total[k] += 1.0
            for j in range(n_columns):
                deviation = row[j] - p[j]
                s[j] += deviation
                q[j] += deviation * deviation


@njit(cache=True, nogil=True)
def dense_moments_missing(data, n_columns, codes, weight, pivot, total, sums, squares):
    """`dense_moments` with missing values: ``total`` has a count per column."""
    pivot[:] = np.nan
    for i in range(len(codes)):
        k = codes[i]
        w = weight[i] if len(weight) > 0 else 1.0
        for j in range(n_columns):
            x = np.float64(data[i * n_columns + j])
            if x != x:
                continue
            if pivot[k, j] != pivot[k, j]:
                pivot[k, j] = x
            deviation = x - pivot[k, j]
            total[k, j] += w
            sums[k, j] += w * deviation
            squares[k, j] += w * deviation * deviation


@njit(cache=True, nogil=True)
def sparse_sums(data, indices, indptr, order, codes, weight, missing_weight, hits, sums):
    """Add the stored entries of CSR rows to the sums of their class; ``hits`` is their weight.

    The weight of missing values (NaN) is added to ``missing_weight``; if that is empty, they make
    the sums NaN.
    """
    for r in range(len(order)):
        i = order[r]
        k = codes[i]
        w = weight[i] if len(weight) > 0 else 1.0
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            x, j = np.float64(data[p]), indices[p]
            if x != x and len(missing_weight) > 0:
                missing_weight[k, j] += w
                continue
            sums[k, j] += w * x
            hits[k, j] += w


@njit(cache=True, nogil=True)
def sparse_squares(data, indices, indptr, order, codes, weight, mean, squares):
    """Add squared deviations of the stored entries of CSR rows from the class mean."""
    for r in range(len(order)):
        i = order[r]
        k = codes[i]
        w = weight[i] if len(weight) > 0 else 1.0
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            x, j = np.float64(data[p]), indices[p]
            if x == x:
                deviation = x - mean[k, j]
                squares[k, j] += w * deviation * deviation


@njit(cache=True, nogil=True, fastmath=_REORDER)
def load_row(data, indices, indptr, n_columns, i, row):
    """Write row ``i`` as dense doubles; return whether a value is missing."""
    start, stop = row_start(indptr, n_columns, i), row_start(indptr, n_columns, i + 1)
    total = 0.0
    if indices is None:
        for j in range(n_columns):
            x = np.float64(data[start + np.uintp(j)])
            row[j] = x
            total += x
    else:
        row[:] = 0.0
        for p in range(start, stop):
            row[indices[p]] = data[p]
            total += data[p]
    return total != total


@njit(cache=True, nogil=True, fastmath=_REORDER)
def squared_distance(row, mean, inverse):
    """``sum_j (x_j - mean_j)^2 inverse_j``."""
    total = 0.0
    for j in range(len(row)):
        deviation = row[j] - mean[j]
        total += deviation * deviation * inverse[j]
    return total


@njit(cache=True, nogil=True)
def gaussian_log_density(data, indices, indptr, n_columns, mean, inverse, half_log, constant, out):
    """Log density of every row under every class of independent Gaussians.

    ``inverse`` holds inverse variances, ``half_log`` is ``log(2 pi var) / 2`` and ``constant``
    minus its sum over features. Missing values are left out.
    """
    row = np.empty(n_columns)
    for i in range(out.shape[0]):
        missing = load_row(data, indices, indptr, n_columns, i, row)
        for k in range(out.shape[1]):
            if not missing:
                out[i, k] = constant[k] - 0.5 * squared_distance(row, mean[k], inverse[k])
                continue
            total = 0.0
            for j in range(n_columns):
                if row[j] == row[j]:
                    deviation = row[j] - mean[k, j]
                    total -= 0.5 * deviation * deviation * inverse[k, j] + half_log[k, j]
            out[i, k] = total


@njit(cache=True, nogil=True)
def student_log_density(data, indices, indptr, n_columns, loc, inverse, df, norm, out):
    """Log density of every row under every class of independent Student-t distributions.

    ``inverse`` is ``1 / (df scale^2)`` and ``norm`` the log density at the centre. Factors with
    equal degrees of freedom are multiplied before taking the logarithm, which saves nearly all
    logarithms.
    """
    row = np.empty(n_columns)
    for i in range(out.shape[0]):
        load_row(data, indices, indptr, n_columns, i, row)
        for k in range(out.shape[1]):
            total, product, power = 0.0, 1.0, df[k, 0]
            for j in range(n_columns):
                x = row[j]
                if x != x:
                    continue
                deviation = x - loc[k, j]
                factor = 1.0 + deviation * deviation * inverse[k, j]
                total += norm[k, j]
                if df[k, j] != power or not (factor < _LARGE and product < _LARGE):
                    total -= 0.5 * (power + 1.0) * math.log(product)
                    product, power = 1.0, df[k, j]
                product *= factor
            out[i, k] = total - 0.5 * (power + 1.0) * math.log(product)
