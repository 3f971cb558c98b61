"""Stochastic passes over columns far from zero: seen around their means, put back exactly."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import losses
from likelier.base import Batch
from likelier.glm import centring
from likelier.glm.centring import centred_chunks, column_rates, large_means, limit_rates
from likelier.glm.loops.centring import column_moments
from likelier.glm.loops.sgd import adaptive_pass
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.sgd import AdaptiveSGD
from likelier.loops.rows import as_rows

every_kind = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])


def moments(X):
    return X.sum(axis=0), (X * X).sum(axis=0), np.count_nonzero(X, axis=0).astype(float)


def rows_far_away(n=200, seed=0):
    """Columns: around zero, far, far but half of it missing, rare, constant."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    X[:, 1] += 50.0
    X[:, 2] = (X[:, 2] + 9.0) * (rng.random(n) < 0.9)
    X[:, 3] = (X[:, 3] + 9.0) * (rng.random(n) < 0.1)
    X[:, 4] = 7.0
    return X


def line(d, K=1, l2=0.0):
    penalty = ElasticNet(np.append(np.full(d, l2), 0.0), np.zeros(d + 1))
    return LinearModel(losses.SquaredError(), d, K, False, True, penalty)


@every_kind
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_columns(kind, dtype):
    X = rows_far_away().astype(dtype)
    rows = np.array([5, 3, 3, 80])
    found = [np.ones(5) for _ in range(3)]
    column_moments(*as_rows(kind(X)), rows, *found)
    for one, other in zip(found, moments(X[rows].astype(float)), strict=True):
        np.testing.assert_allclose(one, 1.0 + other, rtol=1e-12)


def test_only_common_columns_that_vary_far_from_zero_are_shifted():
    X = rows_far_away()
    shift = large_means(*moments(X), len(X))
    np.testing.assert_array_equal(np.flatnonzero(shift), [1, 2])
    np.testing.assert_allclose(shift[1:3], X[:, 1:3].mean(axis=0))
    assert large_means(*moments(X[:8]), 8) is None  # too few rows to know a mean
    assert large_means(*moments(X[:, [0, 3, 4]]), len(X)) is None


@every_kind
def test_chunks_are_the_rows_around_the_shift(kind, monkeypatch):
    monkeypatch.setattr(centring, "CHUNK", 64)
    X = rows_far_away()
    shift = np.array([0.0, 50.0, 8.0, 0.0, 0.0])
    rows = np.random.default_rng(1).permutation(200)[:77]
    seen = []
    for view, some, largest in centred_chunks(as_rows(kind(X)), rows, shift):
        piece = view.data.reshape(len(some), -1) if view.indptr is None else None
        if piece is None:
            piece = sparse.csr_array(
                (view.data, view.indices.astype(int), view.indptr), shape=(len(some), 5)
            ).toarray()[:, :]
        np.testing.assert_allclose(piece, X[some] - shift, rtol=1e-14)
        np.testing.assert_allclose(largest[1:3], np.abs(piece[:, 1:3]).max(axis=0))
        seen.append(some)
    assert len(seen) > 3
    np.testing.assert_array_equal(np.concatenate(seen), rows)


def test_a_column_that_is_nearly_constant_takes_no_long_steps():
    """One row in a thousand differs: its variance is unreliable, its rate would be enormous."""
    X = np.ones((1000, 1))
    X[7] = 0.0
    rates, unit, shift = column_rates(*moments(X), 1000, True)
    deviation = np.abs(X - shift).max(axis=0)
    assert (rates * deviation**2)[0] > 20.0 * unit
    np.testing.assert_allclose(limit_rates(rates, unit, shift, deviation) * deviation**2, unit)
    calm = np.full(1, 1e-3)  # rows without the odd one are not held back
    np.testing.assert_array_equal(limit_rates(rates, unit, shift, calm), rates)


@every_kind
def test_a_shifted_pass_is_the_pass_over_shifted_rows(kind):
    X = rows_far_away(16)[:, :3]
    X[:, 2] += 1.0
    y, weight = X @ [1.0, 2.0, -1.0], np.linspace(0.5, 2.0, 16)
    model, sgd = line(3), AdaptiveSGD(factors=np.array([0.5, 2.0]))
    state = sgd.start(model, np.array([[0.3], [-0.2], [0.1], [4.0]]))
    sgd.learn(state, Batch(kind(X), y, weight))
    rates, unit, shift = column_rates(*moments(X), 16, True)
    assert np.count_nonzero(shift) == 2
    moved = X - shift
    rates = limit_rates(rates, unit, shift, np.abs(moved).max(axis=0))
    W, b = np.repeat([0.3, -0.2, 0.1], 2), np.full(2, 4.0 + shift @ [0.3, -0.2, 0.1])
    loss = model.loss
    adaptive_pass(
        *as_rows(moved), np.arange(16), y, weight, loss.code, loss.parameters, None, True, False,
        1, W, b, sgd.factors, rates, np.zeros(3), np.zeros(1), np.zeros(3), np.zeros(3), False,
        0.0, unit / 4.0, np.zeros(2, dtype=np.int64), np.zeros(2),
    )  # fmt: skip
    np.testing.assert_allclose(state.weights, W, rtol=1e-10)
    np.testing.assert_allclose(state.intercept, b - shift @ W.reshape(3, 2), rtol=1e-10)


@every_kind
@pytest.mark.parametrize("l2", [0.0, 0.3], ids=["free", "penalised"])
@pytest.mark.parametrize("implicit", [True, False], ids=["implicit", "explicit"])
def test_moved_features_learn_alike(kind, l2, implicit):
    """Where a feature begins does not matter to its weight."""
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((400, 3))
    y = Z @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(400)
    found = []
    for far in (10.0, 1000.0):
        sgd = AdaptiveSGD(implicit)
        state = sgd.start(line(3, l2=l2))
        sgd.learn(state, Batch(kind(Z + far), y))
        theta = state.theta()
        found.append(np.append(theta[:3], theta[3] + far * theta[:3].sum()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-8)


def test_without_an_intercept_nothing_is_shifted():
    X = rows_far_away()
    assert column_rates(*moments(X), 200, False)[2] is None
