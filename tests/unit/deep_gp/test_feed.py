"""Minibatches of a fixed size, over any number of passes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier.deep_gp.feed import Feed
from likelier.engines import LocalEngine, StreamEngine
from likelier.fitting.standardize import Standard
from likelier.tables import block_source

N = 10
X = np.arange(2.0 * N).reshape(N, 2)
Y = np.arange(float(N))
W = np.arange(1.0, N + 1.0)
PLAIN = Standard(np.zeros(2), np.ones(2))


def feed(batch_rows, X=X, weight=W):
    return Feed(LocalEngine(X, Y, weight, seed=3), PLAIN, batch_rows, 3, "float64")


@pytest.mark.parametrize("batch_rows", [3, 4, 7])
def test_every_pass_holds_every_row_once(batch_rows):
    rows = feed(batch_rows).take(0, 30)
    assert rows.X.shape == (30, batch_rows, 3)
    flat = rows.y.ravel()
    for start in range(0, len(flat) - N, N):
        assert sorted(flat[start : start + N]) == list(Y)
    np.testing.assert_array_equal(rows.X[..., 0], 2.0 * rows.y)
    np.testing.assert_array_equal(rows.X[..., 2], 0.0)  # padding of the inputs
    np.testing.assert_allclose(rows.weight, (rows.y + 1.0) * N / batch_rows)


def test_a_later_start_gives_the_same_rows():
    whole, later = feed(4).take(0, 12), feed(4)
    np.testing.assert_array_equal(later.take(5, 4).y, whole.y[5:9])
    np.testing.assert_array_equal(later.take(9, 3).y, whole.y[9:])
    np.testing.assert_array_equal(later.take(0, 2).y, whole.y[:2])


def test_few_rows_are_padded_with_rows_of_no_weight():
    rows = feed(16).take(0, 2)
    np.testing.assert_array_equal(rows.y[0, :N], Y)
    np.testing.assert_array_equal(rows.weight[:, N:], 0.0)
    np.testing.assert_allclose(rows.weight.sum(axis=1), W.sum())


def test_sparse_rows_and_streams():
    dense = feed(4).take(0, 6)
    thin = feed(4, sparse.csr_array(X)).take(0, 6)
    np.testing.assert_array_equal(thin.X, dense.X)
    blocks = [(X[:6], Y[:6], W[:6]), (X[6:], Y[6:], W[6:])]
    engine = StreamEngine(block_source(lambda: iter(blocks)), seed=1)
    flow = Feed(engine, PLAIN, 4, 2, "float32")
    with pytest.raises(ValueError, match="must know its number of rows"):
        flow.take(0, 1)
    engine.know_rows(N)
    rows = flow.take(0, 5)
    assert rows.X.dtype == np.float32
    assert sorted(rows.y.ravel()[:N]) == list(Y)
