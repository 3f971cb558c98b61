"""Moments of columns: exact far from zero, in any blocks, dense and sparse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier.fitting.moments import ColumnMoments
from likelier.fitting.standardize import FAR, Standard, StandardRows
from likelier.kernel_machine.features import scale_rows


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(500, 4)) * [1.0, 1e-3, 100.0, 1.0] + [0.0, 1e6, 1.7e9, 0.0]
    X[:, 3] *= rng.random(500) < 0.1
    return X, rng.uniform(0.5, 2.0, 500)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_add_up_to_the_whole(form, weighted):
    X, omega = rows()
    weight = omega if weighted else None
    total = None
    for part in np.array_split(np.arange(500), 7):
        found = ColumnMoments.of(form(X[part]), None if weight is None else weight[part])
        total = found if total is None else total + found
    mean = np.average(X, axis=0, weights=weight)
    variance = np.average((X - mean) ** 2, axis=0, weights=weight)
    for moments in (total, ColumnMoments.of(form(X), weight)):
        np.testing.assert_allclose(moments.mean, mean, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(moments.squares / moments.weight, variance, rtol=1e-6)


def test_one_pass_sums_would_lose_the_digits():
    X, _ = rows()
    naive = (X**2).mean(axis=0) - X.mean(axis=0) ** 2
    assert abs(naive[1] / X[:, 1].var() - 1.0) > 0.01
    exact = Standard.from_moments(ColumnMoments.of(X))
    np.testing.assert_allclose(exact.spread(), X.std(axis=0), rtol=1e-6)


def test_rows_without_weight_add_nothing():
    X, _ = rows()
    nothing = ColumnMoments.of(X[:5], np.zeros(5))
    whole = ColumnMoments.of(X)
    for total in (nothing + whole, whole + nothing):
        np.testing.assert_allclose(total.mean, whole.mean)
        np.testing.assert_allclose(total.squares, whole.squares)
    assert (nothing + nothing).weight == 0.0


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_a_constant_column_tells_nothing(form):
    X = np.column_stack([np.full(300, 0.1), np.full(300, -1e9 / 3.0), np.zeros(300)])
    parts = [ColumnMoments.of(form(X[i : i + 77])) for i in range(0, 300, 77)]
    merged = parts[0] + parts[1] + parts[2] + parts[3]
    for moments in (ColumnMoments.of(form(X)), merged):
        np.testing.assert_array_equal(Standard.from_moments(moments).inverse, 0.0)


def test_only_far_columns_of_sparse_rows_have_a_centre():
    X, _ = rows()
    standard = Standard.of(X)
    np.testing.assert_array_equal(standard.centre(of_sparse=False), standard.mean)
    far = np.abs(standard.mean) * standard.inverse > FAR
    np.testing.assert_array_equal(far, [False, True, True, False])
    np.testing.assert_array_equal(standard.centre(of_sparse=True) != 0.0, far)


@pytest.mark.parametrize("n_far", [0, 1, 8])  # sparse, sparse beside a full column, dense
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_are_scaled_as_dense_ones(n_far, dtype):
    rng = np.random.default_rng(1)
    X = sparse.random(700, 8, density=0.3, random_state=2, format="csr").toarray()
    centre = np.where(np.arange(8) < n_far, 1e4 * rng.random(8), 0.0)
    X += centre
    X[0, 0] = 0.0  # not stored, and far from the centre
    gamma = rng.random(8)
    expected = scale_rows(X, centre, gamma, dtype)
    found = scale_rows(sparse.csr_matrix(X), centre, gamma, dtype)
    assert found.dtype == dtype
    assert sparse.issparse(found) == (n_far < 8)
    dense = found.toarray() if sparse.issparse(found) else found
    np.testing.assert_allclose(dense, expected, rtol=1e-6, atol=1e-9)


def test_standard_rows_are_the_same_taken_late(monkeypatch):
    X, _ = rows()
    standard, chosen = Standard.of(X), np.array([3, 7, 7, 100])
    early = StandardRows.of(X, standard)
    monkeypatch.setattr("likelier.fitting.standardize.DENSE_VALUES", 10)
    late = StandardRows.of(sparse.csr_matrix(X), standard)
    assert late.standard is not None and late.shape == early.shape
    np.testing.assert_allclose(late[chosen], early[chosen], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(late.part(chosen)[np.arange(2)], early[chosen[:2]], atol=1e-9)
    columns = np.random.default_rng(0).normal(size=(500, 2))
    columns -= columns.mean(axis=0)
    # single precision, and raw values of 1e9 whose means cancel
    np.testing.assert_allclose(late.products(columns), early.products(columns), atol=1e-2)
