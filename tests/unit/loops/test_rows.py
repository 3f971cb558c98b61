"""One way to walk along rows: dense and sparse give what NumPy gives, and nothing is copied."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier.loops.rows import (
    all_rows,
    as_rows,
    column_counts,
    column_squares,
    nonzeros_per_row,
    row_add,
    row_add_rates,
    row_norms,
    row_scores,
    row_start,
    table_add,
    table_scores,
)

KINDS = {
    "dense64": np.asarray,
    "dense32": lambda X: X.astype(np.float32),
    "csr64": sparse.csr_array,
    "csr32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
    "long_index": lambda X: long_index(sparse.csr_array(X)),
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))


def long_index(X):
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def draw(n=7, d=4):
    rng = np.random.default_rng(0)
    X = np.round(rng.standard_normal((n, d)), 2) * (rng.random((n, d)) < 0.6)
    X[2] = 0.0
    return X.astype(np.float32).astype(float)


@every_kind
@pytest.mark.parametrize("n_lanes", [1, 3, 4, 8])
def test_scores_and_updates(kind, n_lanes):
    X = draw()
    W = np.random.default_rng(1).standard_normal((4, n_lanes))
    data, indices, indptr, n_columns = as_rows(kind(X))
    for i in range(len(X)):
        start, stop = (np.uintp(row_start(indptr, n_columns, r)) for r in (i, i + 1))
        out = np.empty(n_lanes)
        row_scores(data, indices, start, stop, W.ravel(), out)
        np.testing.assert_allclose(out, X[i] @ W, rtol=1e-12, atol=1e-15)
        V, step = W.copy(), np.arange(1.0, n_lanes + 1.0)
        row_add(data, indices, start, stop, V.reshape(-1), step)
        np.testing.assert_allclose(V, W + np.outer(X[i], step), rtol=1e-12, atol=1e-15)
        V, rates = W.copy(), np.array([0.5, 2.0, 3.0, 0.1])
        row_add_rates(data, indices, start, stop, V.reshape(-1), step, rates)
        np.testing.assert_allclose(V, W + np.outer(rates * X[i], step), rtol=1e-12, atol=1e-15)
        V, rates[:2] = W.copy(), 1.0  # which need not be given
        row_add_rates(data, indices, start, stop, V.reshape(-1), step, rates[2:])
        np.testing.assert_allclose(V, W + np.outer(rates * X[i], step), rtol=1e-12, atol=1e-15)


@every_kind
@pytest.mark.parametrize("split", [True, False])
def test_twelve_lanes_in_two_tables_or_in_one(kind, split):
    X, W, step = draw(), np.random.default_rng(1).standard_normal((4, 12)), np.arange(1.0, 13.0)
    data, indices, indptr, n_columns = as_rows(kind(X))

    def stored(W):
        return np.concatenate([W[:, :8].ravel(), W[:, 8:].ravel()]) if split else W.ravel()

    rates = np.array([1.0, 1.0, 3.0, 0.1])
    given = {"none": (None, np.ones(4)), "all": (rates, rates), "last": (rates[2:], rates)}
    for i in range(len(X)):
        row = (data, indices, *(np.uintp(row_start(indptr, n_columns, r)) for r in (i, i + 1)))
        out = np.empty(12)
        table_scores(*row, stored(W), out, split)
        np.testing.assert_allclose(out, X[i] @ W, rtol=1e-12, atol=1e-15)
        for told, every in given.values():
            weights = stored(W).copy()
            table_add(*row, weights, step, told, split)
            moved = stored(W + np.outer(every * X[i], step))
            np.testing.assert_allclose(weights, moved, rtol=1e-12, atol=1e-15)


@every_kind
def test_sums_of_squares_and_counts(kind):
    X = draw()
    weight = np.arange(7.0)
    M = kind(X)
    np.testing.assert_allclose(row_norms(M), (X**2).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(column_squares(M), (X**2).sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(column_squares(M, weight), weight @ X**2, rtol=1e-6)
    np.testing.assert_array_equal(column_counts(M), (X != 0.0).sum(axis=0))
    assert column_squares(M).dtype == np.float64


def test_stored_zeros_do_not_count_as_nonzeros():
    X = sparse.csr_array((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    np.testing.assert_array_equal(column_counts(X), [1, 0, 0])


@every_kind
def test_nothing_is_copied(kind):
    X = kind(draw())
    rows = as_rows(X)
    stored = X.data if sparse.issparse(X) else X
    assert np.shares_memory(rows.data, stored)
    if sparse.issparse(X):
        assert np.shares_memory(rows.indices, X.indices)
        assert np.shares_memory(rows.indptr, X.indptr)
    assert rows.n_columns == 4


def test_dense_rows_not_in_c_order_are_put_in_order():
    X = np.asfortranarray(draw())
    np.testing.assert_array_equal(as_rows(X).data.reshape(X.shape), X)


def test_nonzeros_of_the_listed_rows_only():
    X = sparse.csr_array(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 0.0, 0.0]]))
    assert nonzeros_per_row(X, np.array([0])) == 3
    assert nonzeros_per_row(X, np.array([0, 2])) == 2
    assert nonzeros_per_row(X, np.array([1])) == 1  # never zero: it divides
    assert nonzeros_per_row(X.toarray(), np.array([1])) == 3


def test_rows_spelled_out():
    X = draw()
    np.testing.assert_array_equal(all_rows(X, None), np.arange(7))
    np.testing.assert_array_equal(all_rows(X, np.array([3, 1])), [3, 1])
