"""Implicit steps that remember: replayed in plain Python, and what holds at any moment."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from tests.unit.glm.test_sgd_loops import ALL, direction, draw, value

from likelier.glm.loops.dual import dual_pass, duality_gap
from likelier.loops.rows import as_rows, row_norms

SHARE, INTERCEPT_RATE = 0.05, 0.02
LITTLE = 1e-3
every_loss = pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
every_kind = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])


def arrays(X, K):
    n, d = X.shape
    return np.zeros((n, K)), np.zeros((n, K)), np.zeros(d * K), np.zeros(K)


def run(loss, data, orders, kind, share=SHARE, rate=INTERCEPT_RATE):
    """Passes in the given orders; duals, points, weights, intercepts and what was still owed."""
    X, y, weight, K = data
    dual, points, W, b = arrays(X, K)
    classes = loss.task in ("binary", "multiclass")
    owed, active = 0.0, np.zeros(len(y), dtype=bool)
    for order in orders:
        owed = dual_pass(
            *as_rows(kind(X)), order, y, weight, row_norms(kind(X)), loss.code, loss.parameters,
            loss.coupled, classes, dual, points, W, b, share, rate, None, LITTLE, active,
        )  # fmt: skip
    return dual, points, W.reshape(-1, K), b, (owed, active)


@every_loss
@every_kind
def test_pass_is_the_formula_row_by_row(loss, kind):
    data = draw(loss)
    X, y, weight, K = data
    rng = np.random.default_rng(1)
    orders = [rng.permutation(len(y)) for _ in range(3)]
    dual, points, W, b, (owed, active) = run(loss, data, orders, kind)
    D, P, V, v = np.zeros_like(dual), np.zeros_like(points), np.zeros_like(W), np.zeros_like(b)
    for order in orders:
        parts = np.zeros((len(y), K))
        for i in order:
            x, omega = X[i], weight[i]
            c = omega * (x @ x * SHARE + INTERCEPT_RATE)
            m = x @ V + v - c * D[i]  # what the other rows say
            g = direction(loss, y[i], m, np.full(K, c), True)
            parts[i] = omega * np.abs((g - D[i]) * (m + c * D[i] - P[i]))
            V = V + omega * SHARE * np.outer(x, g - D[i])
            v = v + omega * INTERCEPT_RATE * (g - D[i])
            D[i], P[i] = g, m + c * g
    np.testing.assert_allclose(dual, D, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(points, P, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(W, V, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(b, v, rtol=1e-9, atol=1e-10)
    assert owed == pytest.approx(parts.sum())
    largest = parts.max(axis=1)
    clear = np.abs(largest - LITTLE) > 1e-9
    np.testing.assert_array_equal(active[clear], (largest > LITTLE)[clear])


@every_loss
def test_weights_are_the_sum_of_what_rows_gave(loss):
    data = draw(loss)
    X, y, weight, _ = data
    rng = np.random.default_rng(2)
    dual, _, W, b, _ = run(loss, data, [rng.permutation(len(y)) for _ in range(4)], np.asarray)
    np.testing.assert_allclose(W, SHARE * X.T @ (weight[:, None] * dual), atol=1e-10)
    np.testing.assert_allclose(b, INTERCEPT_RATE * weight @ dual, atol=1e-10)


@every_loss
def test_gap_bounds_the_distance_to_the_optimum_and_vanishes(loss):
    """Without an intercept it is the duality gap of ``sum omega loss + |w|^2 / (2 share)``."""
    data = draw(loss)
    X, y, weight, _ = data
    rng, active = np.random.default_rng(3), np.zeros(len(y), dtype=bool)
    orders = [rng.permutation(len(y)) for _ in range(600)]
    gaps, objectives = [], []
    for n_passes in (1, 3, 10, 600):
        dual, points, W, b, _ = run(loss, data, orders[:n_passes], np.asarray, rate=0.0)
        total, gap = duality_gap(
            *as_rows(X), np.arange(len(y)), y, weight, loss.code, loss.parameters, loss.coupled,
            loss.task in ("binary", "multiclass"), dual, points, W.ravel(), b, 0.0,
            active,
        )  # fmt: skip
        exact = sum(w * value(loss, t, f) for w, t, f in zip(weight, y, X @ W, strict=True))
        assert total == pytest.approx(exact)
        gaps.append(gap)
        objectives.append(total + 0.5 / SHARE * (W**2).sum())
    best = objectives[-1]
    for gap, objective in zip(gaps, objectives, strict=True):
        assert objective - best <= gap + 1e-9 * abs(best)
    assert 0.0 <= gaps[-1] <= 1e-3 * abs(best)


@every_loss
def test_no_row_of_weight_zero_moves_anything(loss):
    X, y, weight, K = draw(loss)
    absent = weight == 0.0
    assert absent.any()
    order = np.arange(len(y))
    _, _, W, b, _ = run(loss, (X, y, weight, K), [order, order], np.asarray)
    kept = order[~absent]
    _, _, V, v, _ = run(loss, (X, y, weight, K), [kept, kept], np.asarray)
    np.testing.assert_array_equal(W, V)
    np.testing.assert_array_equal(b, v)
