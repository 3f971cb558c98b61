"""The dual of few rows in one compiled call, against SMO step by step and against LAPACK."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.svm.loops.small import small_newton_move, solve_small, start_from
from likelier.svm.loops.smo import move_terms
from likelier.svm.newton import newton_move


def dual(n=60, eps=0.0, C=2.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    t = np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal(n)
    if eps == 0.0:
        t = np.where(t > 0, 1.0, -1.0)
        return K, t, np.where(t > 0, 0.0, -C), np.where(t > 0, C, 0.0)
    return K, t, np.full(n, -C), np.full(n, C)


def given(K):
    none = np.empty((0, 0))
    return (K, np.arange(len(K)), none, none, np.int64(0), none)


def solved(K, t, lower, upper, eps, source, tol=1e-3, most=10_000):
    F, beta = t.copy(), np.zeros(len(t))
    room = np.full(K.shape, np.nan)  # what nobody asks for is never made
    ended = solve_small(room, np.full(len(t), -1), source, F, beta, lower, upper, eps, tol, most)
    return beta, F, ended


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("C", [0.1, 2.0, 1e4])
def test_the_optimum_is_reached_and_residuals_are_right(eps, C):
    K, t, lower, upper = dual(eps=eps, C=C)
    beta, F, (count, gap, converged) = solved(K, t, lower, upper, eps, given(K))
    assert converged and gap <= 1e-3 and count > 0
    assert abs(beta.sum()) < 1e-10 * C * len(t)
    assert (beta >= lower).all() and (beta <= upper).all()
    np.testing.assert_allclose(F, t - K @ beta, atol=1e-9 * C)
    up, down = move_terms(beta, lower, upper, eps)
    exact = t - K @ beta
    assert (exact + up).max() - (exact + down).min() <= 1e-3 + 1e-9 * C


def test_rows_may_come_from_the_matrices_of_two_groups():
    K, t, lower, upper = dual()
    other = np.concatenate([[np.pi], np.zeros(3)])  # columns of other groups beside these
    across = np.hstack([np.tile(other, (25, 1)), K[:25, 25:]])
    parts = (
        np.empty((0, 0)),
        np.arange(0),
        K[:25, :25].copy(),
        across,
        np.int64(4),
        K[25:, 25:].copy(),
    )
    one = solved(K, t, lower, upper, 0.0, given(K))
    two = solved(K, t, lower, upper, 0.0, parts)
    np.testing.assert_array_equal(one[0], two[0])
    shuffled = np.random.default_rng(1).permutation(80)[:60]
    large = np.full((80, 80), np.nan)
    large[np.ix_(shuffled, shuffled)] = K
    none = np.empty((0, 0))
    three = solved(K, t, lower, upper, 0.0, (large, shuffled, none, none, np.int64(0), none))
    np.testing.assert_array_equal(one[0], three[0])


def test_it_stops_where_it_is_told_to():
    K, t, lower, upper = dual(C=1e4)
    beta, _, (count, gap, converged) = solved(K, t, lower, upper, 0.0, given(K), 1e-9, 5)
    assert (count, converged) == (5, False)
    assert gap > 1e-9
    assert abs(beta.sum()) < 1e-9


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("width", [0.02, 0.5, 50.0])
def test_newton_moves_stay_inside_and_are_those_of_lapack_where_no_bound_is_met(seed, width):
    K, t, _, _ = dual(20, 0.1, seed=seed)
    rng = np.random.default_rng(seed)
    low, high = -width * rng.random(20), width * rng.random(20)
    move, found = small_newton_move(K, t, low, high)
    assert found and t @ move - 0.5 * move @ K @ move > 0.0
    assert (move >= low).all() and (move <= high).all() and abs(move.sum()) < 1e-9
    far = np.full(20, 1e6)
    np.testing.assert_allclose(
        small_newton_move(K, t, -far, far)[0], newton_move(K, t, -far, far)[0], rtol=1e-7
    )
    indefinite = K - 2.0 * np.eye(20)
    assert not small_newton_move(indefinite, t, low, high)[1]


def test_a_warm_start_follows_the_bounds_or_stays():
    t = np.array([1.0, 1.0, -1.0, -1.0])
    lower, upper = np.where(t > 0, 0.0, -4.0), np.where(t > 0, 4.0, 0.0)
    beta, F = np.array([2.0, 2.0, -2.0, -2.0]), t - np.array([0.5, 0.4, 0.3, 0.2])
    start_from(F, beta, t, lower, upper, np.full(4, 2.0), 2.0)
    np.testing.assert_allclose(beta, [4.0, 4.0, -4.0, -4.0])
    np.testing.assert_allclose(F, t - np.array([1.0, 0.8, 0.6, 0.4]))
    beta, F = np.array([0.5, 1.5, -0.5, -1.5]), t - np.array([0.5, 0.4, 0.3, 0.2])
    start_from(F, beta, t, lower, upper, np.full(4, 2.0), 2.0)
    np.testing.assert_allclose(beta, [0.5, 1.5, -0.5, -1.5])
