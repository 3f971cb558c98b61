"""Compiled moments and log densities, against plain NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse, stats

from likelier.loops.rows import as_rows
from likelier.naive_bayes.gaussian_model import Moments, class_moments
from likelier.naive_bayes.loops.moments import gaussian_log_density, load_row, student_log_density

RNG = np.random.default_rng(0)
N, D, K = 200, 7, 3
X = RNG.normal(size=(N, D)) * 10.0 ** np.arange(-3, 4) + 1e5 * (np.arange(D) == 2)
X[RNG.random((N, D)) < 0.3] = 0.0
CODES = RNG.integers(0, K, N)
W = RNG.uniform(0.5, 2.0, N)
every_matrix = pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array, sparse.csr_matrix])


def plain(rows, codes, weight):
    count, mean, ssd = np.zeros((3, K, rows.shape[1]))
    for k in range(K):
        for j in range(rows.shape[1]):
            mine = (codes == k) & ~np.isnan(rows[:, j])
            if mine.any():
                count[k, j] = weight[mine].sum()
                mean[k, j] = np.average(rows[mine, j], weights=weight[mine])
                ssd[k, j] = weight[mine] @ (rows[mine, j] - mean[k, j]) ** 2
    return count, mean, ssd


@every_matrix
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_class_moments(matrix, weighted, holes, dtype):
    rows = X.astype(dtype).astype(float)
    if holes:
        rows[np.random.default_rng(3).random(rows.shape) < 0.2] = np.nan
    total, found = class_moments(
        matrix(rows.astype(dtype)), CODES, W if weighted else np.empty(0), K
    )
    count, mean, ssd = plain(rows, CODES, W if weighted else np.ones(N))
    np.testing.assert_allclose(total, np.bincount(CODES, W if weighted else None))
    np.testing.assert_allclose(np.broadcast_to(found.count, mean.shape), count, rtol=1e-12)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-11, atol=1e-15 * np.nanmax(abs(rows)))
    np.testing.assert_allclose(found.ssd, ssd, rtol=1e-10)


@every_matrix
def test_a_constant_has_exactly_no_variance(matrix):
    rows = np.full((50, 2), np.pi * 1e8)
    _, found = class_moments(matrix(rows), np.arange(50) % K, np.empty(0), K)
    assert (found.ssd <= 1e-30 * 50 * (np.pi * 1e8) ** 2).all()
    if matrix is np.asarray:
        assert not found.ssd.any()
        assert not found.pooled().ssd.any()


def test_a_sum_of_squares_would_have_lost_everything():
    """Far from zero the textbook formula has no correct digit; ours has nearly all."""
    rows = 1e9 + RNG.normal(size=(1000, 1))
    _, found = class_moments(rows, np.zeros(1000, dtype=np.intp), np.empty(0), 1)
    exact = ((rows.astype(np.longdouble) - rows.astype(np.longdouble).mean()) ** 2).sum()
    assert abs(found.ssd[0, 0] / exact - 1) < 1e-12
    textbook = (rows**2).sum() - rows.sum() ** 2 / 1000
    assert abs(textbook / exact - 1) > 1e-2


def test_pooling_and_merging_agree():
    _, groups = class_moments(X, CODES, np.empty(0), K)
    _, whole = class_moments(X, np.zeros(N, dtype=np.intp), np.empty(0), 1)
    pooled = groups.pooled()
    np.testing.assert_allclose(pooled.mean, whole.mean, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(pooled.ssd, whole.ssd, rtol=1e-11)
    empty = Moments(np.zeros((K, 1)), np.zeros((K, D)), np.zeros((K, D)))
    for sum_ in (groups + empty, empty + groups):
        np.testing.assert_array_equal(sum_.mean, groups.mean)
        np.testing.assert_array_equal(sum_.ssd, groups.ssd)
    gone = groups - groups
    assert not gone.count.any()
    assert not gone.ssd.any()


@every_matrix
def test_rows_are_spelled_out(matrix):
    row = np.full(D, np.nan)
    rows = as_rows(matrix(X.astype(np.float32)))
    assert not load_row(*rows, 3, row)
    np.testing.assert_array_equal(row, X[3].astype(np.float32))
    holes = X.copy()
    holes[3, 1] = np.nan
    assert load_row(*as_rows(matrix(holes)), 3, row)


@every_matrix
@pytest.mark.parametrize("df", [1.0, 7.0, 1e6])
def test_log_densities(matrix, df):
    holes = X.copy()
    holes[::5, 2] = np.nan
    mean, var = RNG.normal(size=(K, D)), RNG.uniform(0.1, 2.0, (K, D)) * 10.0 ** np.arange(-6, 8, 2)
    seen = ~np.isnan(holes)
    filled = np.where(seen, holes, 0.0)[:, None]
    out = np.empty((N, K))
    half = 0.5 * np.log(2 * np.pi * var)
    gaussian_log_density(*as_rows(matrix(holes)), mean, 1 / var, half, -half.sum(axis=1), out)
    each = stats.norm.logpdf(filled, mean, np.sqrt(var))
    np.testing.assert_allclose(out, (each * seen[:, None]).sum(axis=2), rtol=1e-11)
    powers = np.where(np.arange(D) % 2, df, df + 3.0) * np.ones((K, 1))
    norm = stats.t.logpdf(0.0, powers, scale=np.sqrt(var))
    student_log_density(*as_rows(matrix(holes)), mean, 1 / (powers * var), powers, norm, out)
    each = stats.t.logpdf(filled, powers, mean, np.sqrt(var))
    np.testing.assert_allclose(out, (each * seen[:, None]).sum(axis=2), rtol=1e-9)
