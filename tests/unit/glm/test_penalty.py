"""The elastic net: value, proximal step, penalised quadratics, and badly scaled solves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from likelier.glm.penalty import ElasticNet, solve_positive


def net(l2, l1):
    return ElasticNet(np.atleast_1d(np.float64(l2)), np.atleast_1d(np.float64(l1)))


def test_value_of_every_column():
    penalty = net([2.0, 4.0, 0.0], [1.0, 0.0, 0.0])
    w = np.array([[1.0, -2.0], [0.5, 0.0], [9.0, -9.0]])
    np.testing.assert_allclose(penalty.value(w), [1.0 + 1.0 + 0.5, 2.0 + 4.0])


def test_sparse_penalties_have_a_kink():
    assert net([1.0, 0.0], [0.0, 1e-9]).sparse
    assert not net([1.0, 0.0], [0.0, 0.0]).sparse


@pytest.mark.parametrize("seed", range(20))
def test_prox_is_the_argmin(seed):
    rng = np.random.default_rng(seed)
    l2, l1, step = rng.uniform(0, 2, 4), rng.uniform(0, 2, 4), float(10.0 ** rng.uniform(-2, 2))
    w = 3.0 * rng.standard_normal((4, 2))
    found = net(l2, l1).prox(w, step)
    for j in range(4):
        for k in range(2):
            start = w[j, k]

            def value(v, j=j, start=start):
                return l1[j] * abs(v) + 0.5 * l2[j] * v * v + (v - start) ** 2 / (2.0 * step)

            best = minimize_scalar(
                value, bounds=(-abs(start) - 1, abs(start) + 1), method="bounded"
            )
            assert value(found[j, k]) <= best.fun + 1e-9


@pytest.mark.parametrize("l1", [0.0, 0.4])
def test_minimum_of_a_penalised_quadratic(l1):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((20, 5))
    hessian, gradient, w = A.T @ A / 20, rng.standard_normal(5), rng.standard_normal(5)
    penalty = net(np.full(5, 0.3), np.full(5, l1))
    v = penalty.minimise(hessian, gradient, w)

    def value(u):
        return gradient @ (u - w) + 0.5 * (u - w) @ hessian @ (u - w) + float(penalty.value(u))

    for _ in range(300):
        step = 10.0 ** rng.uniform(-4, 0) * rng.standard_normal(5)
        assert value(v) <= value(v + step) + 1e-12
    assert not np.shares_memory(v, w)


@pytest.mark.parametrize("power", [0, 3, 6, 12])
def test_solve_does_not_care_about_the_scale_of_columns(power):
    rng = np.random.default_rng(1)
    scale = 10.0 ** np.linspace(-power, power, 6)
    A = rng.standard_normal((50, 6))
    matrix, right = A.T @ A, rng.standard_normal(6)
    exact = np.linalg.solve(matrix, right)
    found = solve_positive(matrix * scale[:, None] * scale, right * scale)
    np.testing.assert_allclose(found * scale, exact, rtol=1e-9)


def test_directions_that_nothing_is_known_about_get_nothing():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((50, 4))
    A[:, 3] = A[:, 2]  # twins
    A = np.column_stack([A, np.zeros(50)])  # and a column of zeros
    right = A.T @ rng.standard_normal(50)
    found = solve_positive(A.T @ A, right)
    np.testing.assert_allclose(A.T @ A @ found, right, atol=1e-8)
    assert found[4] == 0.0
    assert abs(found[2] - found[3]) < 1e-6
