"""The compiled loops of SMO against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.kernels import Linear, Rbf
from likelier.svm.loops.simd import HUGE, STRIDE, TINY_CURVATURE, find_partner, move_and_find_top
from likelier.svm.loops.smo import may_move, middle, on_bounds, part_of
from likelier.svm.model import PANEL, Subset, fill_panel

SIZES = [1, STRIDE - 1, STRIDE, STRIDE + 1, 3 * STRIDE + 5, 200]
every_size = pytest.mark.parametrize("n", SIZES)
every_type = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def draw(n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    slots = rng.uniform(0.0, 0.9, (4, n)).astype(dtype)
    up = np.where(rng.random(n) < 0.3, -HUGE, rng.choice([-0.1, 0.1], n))
    down = np.where(rng.random(n) < 0.3, HUGE, rng.choice([-0.1, 0.1], n))
    return rng.standard_normal(n), up, down, slots


@every_size
@every_type
def test_a_move_and_the_row_at_the_top(n, dtype):
    for seed in range(20):
        F, up, _, slots = draw(n, dtype, seed)
        expected = F - (0.3 * slots[2].astype(float) - 0.7 * slots[1].astype(float))
        where, best = move_and_find_top(F, up, slots, 2, 1, 0.3, -0.7)
        np.testing.assert_allclose(F, expected, rtol=0, atol=1e-14)
        assert where == (F + up).argmax()
        assert best == (F + up).max()


@every_size
@every_type
def test_the_partner_gains_most(n, dtype):
    for seed in range(20):
        F, _, down, slots = draw(n, dtype, seed)
        diagonal = np.linspace(0.9, 1.5, n).astype(dtype)
        top = 0.5
        where, lowest = find_partner(F, down, slots, 3, diagonal, diagonal[0], top)
        cost = F + down
        distance = np.maximum(top - cost, 0.0)
        curvature = np.maximum(
            diagonal[0] + diagonal - 2.0 * slots[3].astype(float), TINY_CURVATURE
        )
        gains = distance**2 / curvature
        assert lowest == cost.min()
        assert gains[where] >= gains.max() * (1 - 1e-5)


@every_type
@pytest.mark.parametrize("n", [5 * STRIDE, 5 * STRIDE + 1, 6 * STRIDE - 1])
def test_of_equal_rows_the_first_is_taken(n, dtype):
    slots = np.full((2, n), 0.5, dtype=dtype)
    zero, ones = np.zeros(n), np.ones(n, dtype=dtype)
    for place in (0, 3, STRIDE - 1, STRIDE + 9, n - STRIDE - 1, n - STRIDE + 1, n - 1):
        F = np.zeros(n)
        F[place:] = 1.0
        assert move_and_find_top(F, zero, slots, 0, 1, 0.0, 0.0)[0] == place
        assert find_partner(-F, zero, slots, 0, ones, dtype(1.0), 0.5)[0] == place


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_rows_that_may_move_and_the_middle(eps):
    rng = np.random.default_rng(1)
    n = 300
    lower, upper = -np.ones(n), np.ones(n)
    beta = np.clip(rng.normal(size=n) * (rng.random(n) < 0.7), lower, upper)
    F = rng.standard_normal(n)
    up = np.where(beta >= upper, -HUGE, np.where(beta >= 0, -eps, eps))
    down = np.where(beta <= lower, HUGE, np.where(beta > 0, -eps, eps))
    free = (beta > lower) & (beta < upper) & ((beta != 0) | (eps == 0))
    gains, costs = F + up, F + down
    movable, found = may_move(F, up, down, beta, lower, upper, eps > 0)
    np.testing.assert_array_equal(found, free)
    np.testing.assert_array_equal(movable, free | (gains > costs.min()) | (costs < gains.max()))
    mean, count, top, low = middle(F, beta, lower, upper, eps)
    assert count == free.sum()
    assert mean == pytest.approx(np.mean((F - eps * np.sign(beta))[free]))
    assert (top, low) == (gains.max(), costs.min())


@pytest.mark.parametrize("kernel", [Rbf(0.3), Linear()], ids=["rbf", "linear"])
def test_panels_make_the_whole_matrix(kernel):
    X = np.random.default_rng(0).normal(size=(2 * PANEL + 17, 3))
    rows = kernel.prepare(X)
    whole = np.full((len(X), len(X)), np.nan)
    for start in range(0, len(X), PANEL):
        fill_panel(rows, whole, start)
    np.testing.assert_allclose(whole, kernel.matrix(X), atol=1e-12)
    np.testing.assert_array_equal(whole, whole.T)
    some = np.array([3, 1, 500, 20])
    held = Subset(rows).hold()
    np.testing.assert_array_equal(held.square(some), held.held[np.ix_(some, some)])
    np.testing.assert_allclose(held.block(some, some[:2]), Subset(rows).block(some, some[:2]))
    np.testing.assert_allclose(held.square(some), Subset(rows).square(some), atol=1e-12)


def test_values_near_a_bound_are_on_it():
    lower, upper = np.array([-2.0, -2.0, 0.0, -1.0, -1.0]), np.array([0.0, 2.0, 3.0, 1.0, 1.0])
    values = np.array([1e-15, 2.0 + 1e-9, 3.0 - 1e-14, 1e-15, 0.5])
    np.testing.assert_array_equal(on_bounds(values, lower, upper), [0.0, 2.0, 3.0, 0.0, 0.5])


def test_a_part_of_a_matrix_has_other_columns_than_rows():
    matrix = np.random.default_rng(4).normal(size=(6, 9)).astype(np.float32)
    rows, columns = np.array([4, 0, 4]), np.array([8, 2])
    found = part_of(matrix, rows, columns)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, matrix[np.ix_(rows, columns)])
