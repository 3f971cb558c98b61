"""Primal-dual active sets: the optimum of the dual or nothing, in the memory of the rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from likelier import SVR
from likelier.kernels import Precomputed, Rbf, Sigmoid
from likelier.losses import EpsilonInsensitive, Hinge
from likelier.svm import active_set as smo_places
from likelier.svm import smo
from likelier.svm.active_set import PackedFactor, active_set_cost, solve_active_set
from likelier.svm.loops.smo import move_terms
from likelier.svm.model import KernelExpansion, Subset
from likelier.svm.smo import SMO

LOSSES = [Hinge(), EpsilonInsensitive(0.1), EpsilonInsensitive(0.0)]


def problem(loss, n=500, C=1e3, weighted=False):
    """Few rows on their bounds, a kernel of bad condition."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    y = np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal(n)
    y = np.sign(y) if loss.task == "binary" else y
    weight = None
    if weighted:
        weight = rng.uniform(0.5, 2.0, n)
        weight[::7] = 0.0
    kernel = Rbf(0.3)
    return KernelExpansion(kernel, loss, C), Subset(kernel.prepare(X)), y, weight


def violation(state, beta):
    box, n = state.box, len(beta)
    F = box.target - state.rows.square(np.arange(n)) @ beta
    up, down = move_terms(beta, box.lower, box.upper, box.eps)
    return (F + up).max() - (F + down).min()


@pytest.mark.parametrize("n", [2, 3, 10, 11, 700, 701])
def test_the_packed_factor_solves_with_a_given_sum(n):
    rng = np.random.default_rng(n)
    K = Rbf(0.5).matrix(rng.standard_normal((n + 3, 3))) + 0.1 * np.eye(n + 3)
    chosen = np.sort(rng.permutation(n + 3)[:n])
    rows, room = Subset(Precomputed().prepare(K)), np.empty(n * (n + 1) // 2 + 5)
    r = rng.standard_normal(n)
    d, level = PackedFactor.of(rows, chosen, room, 0.0).solve(r, 0.7)
    np.testing.assert_allclose(K[np.ix_(chosen, chosen)] @ d + level, r, atol=1e-8)
    assert d.sum() == pytest.approx(0.7)


def test_there_is_no_factor_without_room_or_of_an_indefinite_matrix():
    K = np.array([[1.0, 2.0], [2.0, 1.0]])
    both = np.arange(2)
    indefinite = Subset(Precomputed().prepare(K))
    assert PackedFactor.of(indefinite, both, np.empty(3), 0.0) is None
    assert PackedFactor.of(indefinite, both, np.empty(3), 1.5) is not None
    rows = Subset(Precomputed().prepare(np.eye(2)))
    assert PackedFactor.of(rows, both, np.empty(2), 0.0) is None
    assert PackedFactor.of(rows, both[:1], np.empty(3), 0.0) is None
    assert PackedFactor.of(rows, both, np.empty(3), 0.0) is not None


@pytest.mark.parametrize("loss", LOSSES, ids=["hinge", "tube", "absolute"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
@pytest.mark.parametrize("n_bursts", [2, 8])
def test_it_finds_the_optimum_that_pairs_find(loss, weighted, tol, n_bursts):
    model, rows, y, weight = problem(loss, weighted=weighted)
    pairs = SMO(1e-8).solve(SMO(1e-8).start(model, rows, y, weight))
    inference = SMO(tol)
    state = inference.start(model, rows, y, weight)
    for _ in range(n_bursts):
        inference._burst(state)
    assert solve_active_set(state)
    found = inference.posterior(state)
    assert found.objective == pytest.approx(pairs.objective, rel=1e-6 if tol > 1e-6 else 1e-9)
    assert violation(state, found.beta) <= tol
    assert abs(found.beta.sum()) <= 1e-9 * abs(found.beta).sum()
    assert (found.beta >= state.box.lower).all() and (found.beta <= state.box.upper).all()


def test_it_takes_the_place_of_slow_pairs(monkeypatch):
    """Rows are put aside when it begins, and a matrix may be held as a whole."""
    model, rows, y, _ = problem(EpsilonInsensitive(0.1), C=1e5)
    monkeypatch.setattr(smo, "MAX_FREE", 50)
    for whole in (False, True):
        inference = SMO(1e-6, max_iter=50_000)
        state = inference.start(model, rows, y)
        if whole:
            state.cache.store_whole_matrix()
        found = inference.solve(state)
        assert found.converged
        assert violation(state, found.beta) <= 1e-6


@pytest.mark.parametrize("limit", ["MAX_STEPS", "MAX_CHANGED_FRACTION"])
def test_in_vain_it_leaves_the_coefficients_and_pairs_go_on(monkeypatch, limit):
    model, rows, y, _ = problem(EpsilonInsensitive(0.1), C=30.0)
    inference = SMO()
    expected = inference.solve(inference.start(model, rows, y))
    monkeypatch.setattr(smo, "MAX_FREE", 50)
    monkeypatch.setattr(smo_places, limit, 0)
    state = inference.start(model, rows, y)
    inference._burst(state)
    before = state.coefficients()
    assert not solve_active_set(state)
    np.testing.assert_array_equal(state.coefficients(), before)
    np.testing.assert_allclose(state.F, y - rows.square(np.arange(len(y))) @ before, atol=1e-9)
    found = inference.solve(state)
    assert found.converged
    assert found.objective == pytest.approx(expected.objective, rel=1e-5)


def test_a_kernel_that_is_not_positive_definite_is_left_to_pairs():
    model, rows, y, _ = problem(EpsilonInsensitive(0.1))
    kernel = Sigmoid(1.0, 1.0)
    model, rows = dataclasses.replace(model, kernel=kernel), Subset(kernel.prepare(rows.exact.X))
    inference = SMO()
    state = inference.start(model, rows, y)
    inference._burst(state)
    assert not solve_active_set(state)


def test_without_room_for_the_factor_it_is_not_tried():
    model, rows, y, _ = problem(EpsilonInsensitive(0.1))
    state = SMO(cache_bytes=200_000).start(model, rows, y)
    assert active_set_cost(state, 100) < np.inf
    assert active_set_cost(state, 400) == np.inf
    assert active_set_cost(SMO().start(model, rows, y), 400) < np.inf


def test_a_watch_ends_it_with_what_was_learned():
    model, rows, y, _ = problem(EpsilonInsensitive(0.1))
    inference = SMO()
    state = inference.start(model, rows, y)
    inference._burst(state)
    assert not solve_active_set(state, lambda: True)
    assert inference.posterior(state).objective > 0.0


def test_thousands_of_free_coefficients_converge():
    """Pairs alone end at the limit with a violation fifty times the tolerance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3200, 8))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(len(X))
    model = SVR(C=1e4, epsilon=0.01, max_iter=800_000).fit(X, y)
    assert model.fit_status_ == 0
    assert len(model.support_) > 2600
