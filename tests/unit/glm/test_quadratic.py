"""Coordinate descent ends where the optimality conditions hold."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.glm.loops.quadratic import coordinate_descent


def draw(d, seed, rank=None):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((rank or 3 * d, d))
    return A.T @ A / len(A), rng.standard_normal(d), rng.standard_normal(d), rng


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_subgradient_is_zero(seed, l2):
    hessian, gradient, w, rng = draw(8, seed)
    l1, l2 = rng.uniform(0.0, 1.0, 8), np.full(8, l2)
    l1[0] = l2[0] = 0.0  # an intercept
    v = w.copy()
    coordinate_descent(hessian, gradient, w, l2, l1, v)
    residual = -(gradient + hessian @ (v - w) + l2 * v)
    np.testing.assert_allclose(residual[v != 0.0], (l1 * np.sign(v))[v != 0.0], atol=1e-4)
    assert (abs(residual[v == 0.0]) <= l1[v == 0.0] + 1e-4).all()


def test_ridge_is_one_solve():
    hessian, gradient, w, _ = draw(5, 0)
    l2, v = np.full(5, 0.5), w.copy()
    coordinate_descent(hessian, gradient, w, l2, np.zeros(5), v)
    exact = np.linalg.solve(hessian + np.diag(l2), hessian @ w - gradient)
    np.testing.assert_allclose(v, exact, atol=1e-5)


def test_a_coordinate_without_curvature_stays():
    hessian, gradient, w, _ = draw(4, 1)
    hessian[2], hessian[:, 2] = 0.0, 0.0
    v = w.copy()
    coordinate_descent(hessian, gradient, w, np.zeros(4), np.zeros(4), v)
    assert v[2] == w[2]
    assert np.isfinite(v).all()


def test_strong_penalty_gives_exact_zeros():
    hessian, gradient, w, _ = draw(6, 2)
    v = w.copy()
    coordinate_descent(hessian, gradient, w, np.zeros(6), np.full(6, 100.0), v)
    assert (v == 0.0).all()
