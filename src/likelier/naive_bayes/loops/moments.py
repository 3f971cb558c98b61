"""Counts, means and squared deviations per class, and Gaussian log densities, row by row.

Deviations are taken from a row of the same class, never from zero: a feature that is constant
within a class has exactly no variance, whatever its size.
"""

from __future__ import annotations

import math

import numpy as np

from likelier.jit import njit
from likelier.loops.rows import row_start

# Sums along a row may be reordered, which is what lets them use the vector unit; NaN, which
# marks a missing value, keeps its meaning.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}
_LARGE = 1e150  # two factors below it do not overflow


@njit(cache=True, nogil=True, fastmath=_REORDER)
def dense_moments(data, n_columns, codes, weight, pivot, total, sums, squares):
    """Add rows to sums of ``x - pivot`` and of its square, one pivot row per class.

    ``pivot`` is the first row of each class. A missing value makes the sums of its column NaN.
    """
    met = np.zeros(len(total), dtype=np.bool_)
    weighted = len(weight) > 0
    for i in range(len(codes)):
        k = codes[i]
        row = data[i * n_columns : (i + 1) * n_columns]
        p, s, q = pivot[k], sums[k], squares[k]
        if not met[k]:
            met[k] = True
            for j in range(n_columns):
                p[j] = row[j]
        if weighted:
            w = weight[i]
            total[k] += w
            for j in range(n_columns):
                away = row[j] - p[j]
                s[j] += w * away
                q[j] += w * away * away
        else:
            total[k] += 1.0
            for j in range(n_columns):
                away = row[j] - p[j]
                s[j] += away
                q[j] += away * away


@njit(cache=True, nogil=True)
def dense_moments_missing(data, n_columns, codes, weight, pivot, total, sums, squares):
    """The same where values are missing: ``total`` counts every column of its own."""
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
            away = x - pivot[k, j]
            total[k, j] += w
            sums[k, j] += w * away
            squares[k, j] += w * away * away


@njit(cache=True, nogil=True)
def sparse_sums(data, indices, indptr, order, codes, weight, lost, hits, sums):
    """Add the stored entries of CSR rows to the sums of their class; ``hits`` is their weight.

    NaN counts as missing, with its weight in ``lost``; without such a table (length 0) it
    makes the sums NaN.
    """
    for r in range(len(order)):
        i = order[r]
        k = codes[i]
        w = weight[i] if len(weight) > 0 else 1.0
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            x, j = np.float64(data[p]), indices[p]
            if x != x and len(lost) > 0:
                lost[k, j] += w
                continue
            sums[k, j] += w * x
            hits[k, j] += w


@njit(cache=True, nogil=True)
def sparse_squares(data, indices, indptr, order, codes, weight, mean, squares):
    """Add the squared deviations of the stored entries of CSR rows from their class's mean."""
    for r in range(len(order)):
        i = order[r]
        k = codes[i]
        w = weight[i] if len(weight) > 0 else 1.0
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            x, j = np.float64(data[p]), indices[p]
            if x == x:
                away = x - mean[k, j]
                squares[k, j] += w * away * away


@njit(cache=True, nogil=True, fastmath=_REORDER)
def load_row(data, indices, indptr, n_columns, i, row):
    """Spell row ``i`` out as doubles and return whether a value is missing."""
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
        away = row[j] - mean[j]
        total += away * away * inverse[j]
    return total


@njit(cache=True, nogil=True)
def gaussian_log_density(data, indices, indptr, n_columns, mean, inverse, half_log, constant, out):
    """Log density of every row under every class of independent Gaussians.

    ``inverse`` holds one over the variances, ``half_log`` is ``log(2 pi var) / 2`` and
    ``constant`` minus its sum over features. Missing values are left out of both.
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
                    away = row[j] - mean[k, j]
                    total -= 0.5 * away * away * inverse[k, j] + half_log[k, j]
            out[i, k] = total


@njit(cache=True, nogil=True)
def student_log_density(data, indices, indptr, n_columns, loc, inverse, df, norm, out):
    """Log density of every row under every class of independent Student-t laws.

    ``inverse`` is one over ``df scale^2`` and ``norm`` the log density at the centre. Factors
    with the same degrees of freedom are multiplied before the logarithm is taken, which saves
    nearly all logarithms.
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
                away = x - loc[k, j]
                factor = 1.0 + away * away * inverse[k, j]
                total += norm[k, j]
                if df[k, j] != power or not (factor < _LARGE and product < _LARGE):
                    total -= 0.5 * (power + 1.0) * math.log(product)
                    product, power = 1.0, df[k, j]
                product *= factor
            out[i, k] = total - 0.5 * (power + 1.0) * math.log(product)
