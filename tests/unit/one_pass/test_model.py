"""Frozen statistics of the one-pass classifier against the formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier.base import Batch
from likelier.one_pass.model import (
    INTERCEPT_PRECISION,
    FrozenModel,
    FrozenSums,
    frozen_weights,
    solve_posterior,
)


def problem(n=200, d=4, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * [1.0, 10.0, 0.1, 3.0][:d] + [0.0, 5.0, -1.0, 100.0][:d]
    return X, rng.integers(0, K, n), rng.uniform(0.5, 2.0, n)


def written_out(X, y, weight, K, precision, fit_intercept=True):
    """``P^-1 Q`` of standardised rows with a column of ones, row by row."""
    W = weight.sum()
    mean = weight @ X / W if fit_intercept else np.zeros(X.shape[1])
    sd = np.sqrt(weight @ (X - mean) ** 2 / W)
    Z = (X - mean) / sd
    prior = np.full(X.shape[1], precision)
    if fit_intercept:
        Z, prior = np.hstack([Z, np.ones((len(Z), 1))]), np.append(prior, INTERCEPT_PRECISION)
    P, Q = np.diag(prior), np.zeros((len(prior), K))
    for z, label, w in zip(Z, y, weight, strict=True):
        P = P + 0.25 * w * np.outer(z, z)
        for k in range(K):
            Q[:, k] += w * ((label == k) - 0.5) * z
    return np.linalg.solve(P, Q), P, mean, sd


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_weights_are_those_of_the_formula(fit_intercept):
    X, y, weight = problem()
    sums = FrozenModel(3).stats(Batch(X, y, weight))
    found = frozen_weights(sums, 2.0, fit_intercept)
    w, P, mean, sd = written_out(X, y, weight, 3, 2.0, fit_intercept)
    np.testing.assert_allclose(found.mean, w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.scale, sd, rtol=1e-12)
    precision = found.root @ found.root.T / np.outer(found.scaling, found.scaling)
    np.testing.assert_allclose(precision, P, rtol=1e-9, atol=1e-9)
    coef, intercept = found.raw()
    scores = X @ coef.T + intercept
    Z = (X - mean) / sd
    expected = Z @ w[:4] + (w[4] if fit_intercept else 0.0)
    np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-9)


def test_sums_add_in_any_order_and_any_blocks():
    X, y, weight = problem()
    model = FrozenModel(3)
    whole = model.stats(Batch(X, y, weight))
    rng = np.random.default_rng(1)
    order = rng.permutation(len(y))
    parts = [model.stats(Batch(X[r], y[r], weight[r])) for r in np.array_split(order, 7)]
    left = parts[0]
    for part in parts[1:]:
        left = left + part
    right = parts[-1]
    for part in parts[-2::-1]:
        right = part + right
    for found in (left, right):
        for name, value in whole.to_arrays().items():
            np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-10)


def test_columns_far_from_zero_keep_their_digits():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    X += np.array([1e8, 0.0])
    y = (X[:, 0] > 1e8).astype(int)
    model = FrozenModel(2)
    sums = model.stats(Batch(X[:200], y[:200])) + model.stats(Batch(X[200:], y[200:]))
    exact = np.cov((X - [1e8, 0.0]).T, bias=True) * 500
    np.testing.assert_allclose(sums.scatter, exact, rtol=1e-6)
    naive = X.T @ X - 500 * np.outer(X.mean(axis=0), X.mean(axis=0))
    assert abs(naive[0, 0] / exact[0, 0] - 1.0) > 1e-3  # which the obvious sums do not


def test_sparse_rows_and_batches_with_rows():
    X, y, weight = problem()
    model, rows = FrozenModel(3), np.array([5, 3, 100])
    one = model.stats(Batch(X, y, weight, rows=rows))
    two = model.stats(Batch(sparse.csr_array(X[rows]), y[rows], weight[rows]))
    np.testing.assert_allclose(one.scatter, two.scatter)
    np.testing.assert_allclose(one.class_mean, two.class_mean)


def test_faded_sums_are_those_of_smaller_weights():
    X, y, weight = problem()
    model = FrozenModel(3)
    one, two = (
        model.stats(Batch(X, y, weight)).discounted(0.3),
        model.stats(Batch(X, y, 0.3 * weight)),
    )
    for name, value in two.to_arrays().items():
        np.testing.assert_allclose(getattr(one, name), value, rtol=1e-12, atol=1e-12)


def test_nothing_plus_rows_is_rows():
    X, y, weight = problem()
    sums = FrozenModel(3).stats(Batch(X, y, weight))
    empty = FrozenSums(0.0, np.zeros(4), np.zeros((4, 4)), np.zeros(3), np.zeros((3, 4)))
    for name, value in (empty + sums).to_arrays().items():
        np.testing.assert_allclose(value, getattr(sums, name))
    assert (empty + empty).weight == 0.0


def test_a_matrix_that_rounding_made_indefinite_is_solved():
    P = np.array([[1.0, 1.0], [1.0, 1.0]]) - 1e-8 * np.eye(2)
    mean, root, _ = solve_posterior(P, np.array([[1.0], [1.0]]), np.full(2, 1e-12))
    assert np.isfinite(mean).all() and np.isfinite(root).all()
    np.testing.assert_allclose(mean.sum(), 1.0, rtol=1e-3)
