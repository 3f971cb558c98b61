"""The interior point method over classes against programs, LIBLINEAR, weights, scales, threads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.svm import LinearSVC
from tests.conformance.test_inference import energy, problem

from likelier import LinearClassifier, losses
from likelier.engines import LocalEngine
from likelier.glm.interior_classes import ClassInterior
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.route import choose_route

N, D, K = 90, 3, 4


def run(model, engine, tol=1e-9, theta=None, n=60):
    interior = ClassInterior(tol)
    state = interior.init(model, engine, theta)
    infos = []
    while len(infos) < n and not (infos and infos[-1].converged):
        state, info = interior.step(state, engine)
        infos.append(info)
    return interior.posterior(state).theta, infos[-1], len(infos)


def draw(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D))
    scores = X @ rng.standard_normal((D, K)) + rng.standard_normal((n, K))
    return X, scores.argmax(axis=1).astype(float), rng.uniform(0.5, 2.0, n)


def machine(l2, fit_intercept=True, d=D):
    strengths = np.append(np.full(d, l2), np.zeros(int(fit_intercept)))
    penalty = ElasticNet(strengths, 0.0 * strengths)
    return LinearModel(losses.MulticlassHinge(), d, K, True, fit_intercept, penalty)


def program(X, y, weight):
    """Optimal objective without a penalty: a linear program over weights and row losses."""
    n = len(y)
    Z = np.column_stack([X, np.ones(n)])
    cost = np.concatenate([np.zeros(K * (D + 1)), weight / n])
    above, right = [], []
    for i in range(n):
        for k in range(K):
            coefficients = np.zeros((K, D + 1))
            coefficients[k] += Z[i]
            coefficients[int(y[i])] -= Z[i]
            loss = np.zeros(n)
            loss[i] = -1.0
            above.append(np.concatenate([coefficients.ravel(), loss]))
            right.append(0.0 if k == y[i] else -1.0)
    bounds = [(None, None)] * (K * (D + 1)) + [(0, None)] * n
    return linprog(cost, A_ub=np.array(above), b_ub=np.array(right), bounds=bounds).fun


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_without_a_penalty_it_solves_the_linear_program(kind):
    X, y, weight = draw()
    model, engine = machine(0.0), LocalEngine(kind(X), y, weight, block_rows=40)
    theta, info, _ = run(model, engine)
    best = program(X, y, weight)
    assert info.converged and best > 0.05
    assert info.objective == pytest.approx(best, rel=1e-7)
    assert energy(model, engine, theta) == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
def test_it_agrees_with_liblinear(alpha):
    X, y, _ = draw()
    model, engine = machine(alpha, fit_intercept=False), LocalEngine(X, y)
    theta, info, _ = run(model, engine)
    peer = LinearSVC(
        multi_class="crammer_singer", C=1.0 / (alpha * N), fit_intercept=False, tol=1e-10,
        max_iter=10_000_000,
    ).fit(X, y)  # fmt: skip
    found = energy(model, engine, theta)
    assert info.converged
    assert found == pytest.approx(energy(model, engine, peer.coef_.T), rel=1e-7)
    np.testing.assert_allclose(theta, peer.coef_.T, atol=2e-3 * np.abs(peer.coef_).max())


@pytest.mark.parametrize("l2", [1e-4, 1e-2, 1.0])
def test_the_gap_bounds_the_distance_to_the_optimum(l2):
    X, y, weight = draw()
    model, engine = machine(l2, fit_intercept=False), LocalEngine(X, y, weight)
    best = energy(model, engine, run(model, engine, 1e-12)[0])
    interior = ClassInterior()
    state = interior.init(model, engine)
    for _ in range(12):
        state, info = interior.step(state, engine)
        assert info.objective == pytest.approx(energy(model, engine, state.theta))
        assert info.objective - best <= info.gap + 1e-12
    assert info.gap < 1e-3 * best


def test_a_row_with_its_own_unknowns_eliminated_moves_as_the_whole_system_would():
    """One Newton direction against all equations solved at once."""
    from likelier.glm import interior_classes as module

    X, y, weight = draw(n=6)
    model, engine = machine(0.1), LocalEngine(X, y, weight)
    state = ClassInterior().init(model, engine, np.ones((D + 1, K)) * np.arange(K) * 0.1)
    rng = np.random.default_rng(1)
    state.dual *= rng.uniform(0.5, 1.5, state.dual.shape)
    state.dual /= state.dual.sum(axis=1, keepdims=True)
    f = module.all_scores(model, engine, state.theta)
    balance = module._balance(state, engine)
    direction = module._Direction(state, engine, f, module._system(state, engine), balance)(
        0.01, None
    )

    np.testing.assert_allclose(
        state.slack * direction.dual + state.dual * direction.slack,
        0.01 - state.dual * state.slack, atol=1e-10,
    )  # fmt: skip
    np.testing.assert_allclose(direction.dual.sum(axis=1), 0.0, atol=1e-10)
    Z = np.column_stack([X, np.ones(6)])
    np.testing.assert_allclose(
        direction.slack, direction.top[:, None] - Z @ direction.theta, atol=1e-10
    )
    row_gradient = Z.T @ (weight[:, None] * direction.dual) / 6
    gradient = model.penalty.l2[:, None] * direction.theta
    np.testing.assert_allclose(row_gradient + gradient, balance, atol=1e-10)


def test_few_steps_whatever_the_scales():
    X, y, weight = draw()
    values = []
    for factor in (np.ones(D), np.array([1e-6, 1.0, 1e6])):
        model, engine = machine(0.0), LocalEngine(X * factor, y, weight)
        _, info, steps = run(model, engine, 1e-6)
        assert info.converged and steps < 25
        values.append(info.objective)
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_weight_zero_is_absence_and_threads_change_nothing():
    X, y, weight = draw(2000)
    weight[::3] = 0.0
    model, present = machine(0.01), weight > 0.0
    whole = run(model, LocalEngine(X, y, weight, block_rows=300))[0]
    rest = run(model, LocalEngine(X[present], y[present], weight[present], block_rows=300))[0]
    np.testing.assert_array_equal(whole, rest)
    with LocalEngine(X, y, weight, block_rows=300, n_jobs=2) as engine:
        np.testing.assert_array_equal(run(model, engine)[0], whole)


def test_a_whole_weight_is_a_repetition():
    X, y, _ = draw()
    times = np.random.default_rng(3).integers(1, 4, N)
    model = machine(0.01)
    weighted = machine(0.01 * times.sum() / N)  # the mean is over rows, not weights
    one = run(weighted, LocalEngine(X, y, times.astype(float)))[0]
    many = run(model, LocalEngine(np.repeat(X, times, axis=0), np.repeat(y, times)))[0]
    np.testing.assert_allclose(one, many, atol=1e-4)


def test_a_start_is_used_and_does_not_matter():
    model, engine = problem(losses.MulticlassHinge())
    theta, info, steps = run(model, engine)
    again, other, few = run(model, engine, theta=theta + 3.0)
    assert info.converged and other.converged and few <= steps + 5
    assert other.objective == pytest.approx(info.objective, rel=1e-8)
    np.testing.assert_allclose(again, theta, atol=1e-4)


def test_collinear_and_empty_columns_without_a_penalty():
    X, y, weight = draw()
    plain = run(machine(0.0), LocalEngine(X, y, weight))[1]
    wide = np.column_stack([X, X[:, 0] + X[:, 1], np.full(N, 5.0), np.zeros(N)])
    theta, info, _ = run(machine(0.0, d=D + 3), LocalEngine(wide, y, weight), 1e-7)
    assert info.converged and np.isfinite(theta).all()
    assert info.objective == pytest.approx(plain.objective, rel=1e-6)


def test_a_perfect_fit_without_a_penalty_ends():
    X, y, weight = draw()
    far = np.eye(K)[y.astype(int)] @ np.eye(K, D) * 50.0 + X
    _, info, steps = run(machine(0.0), LocalEngine(far, y, weight), 1e-3)
    assert info.converged and info.objective == 0.0 and steps < 20


def test_the_route():
    X, y, weight = draw()
    assert choose_route(machine(0.1), LocalEngine(X, y, weight), D) == "interior"
    wide = LocalEngine(np.ones((N, 1000)), y)
    assert choose_route(machine(1.0, d=1000), wide, 1000) == "dual"


@pytest.mark.parametrize(
    "load", [load_iris, load_wine, load_digits], ids=["iris", "wine", "digits"]
)
@pytest.mark.parametrize("alpha", ["auto", 0.01])
def test_it_converges_on_real_data(load, alpha):
    """A warning would be an error here."""
    X, y = load(return_X_y=True)
    params = {"alpha": alpha, "probability": load is load_wine, "random_state": 0}
    model = LinearClassifier("multiclass_hinge", **params).fit(X, y)
    assert model.converged_ and model.route_ == "interior" and model.n_iter_ <= 40
    assert model.score(X, y) > 0.95


def test_dense_sparse_and_single_precision_agree():
    X, y = load_wine(return_X_y=True)
    params = {"probability": False, "tol": 1e-7, "class_weight": "balanced"}
    found = [
        LinearClassifier("multiclass_hinge", **params).fit(rows, y).objective_
        for rows in (X, sparse.csr_array(X), X.astype(np.float32))
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0] == pytest.approx(found[2], rel=1e-4)
