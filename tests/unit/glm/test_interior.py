"""The interior point method against linear programs, weights, scales and other routes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from tests.conformance.test_inference import energy, problem

from likelier import losses
from likelier.engines import LocalEngine
from likelier.glm.dual import Dual
from likelier.glm.interior import Interior
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet

LOSSES = [
    losses.Hinge(),
    losses.Quantile(0.3),
    losses.Quantile(0.9),
    losses.EpsilonInsensitive(0.2),
]


def run(model, engine, tol=1e-9, n=60, theta=None):
    interior = Interior(tol)
    state = interior.init(model, engine, theta)
    for _ in range(n):
        state, info = interior.step(state, engine)
        if info.converged:
            break
    return interior.posterior(state).theta, info


def draw(loss, n=120, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(n)
    return X, (y < 0).astype(float) if loss.task == "binary" else y, rng.uniform(0.5, 2.0, n)


def ridge(loss, d, l2):
    strengths = np.append(np.full(d, l2), 0.0)
    return LinearModel(
        loss, d, 1, loss.task == "binary", True, ElasticNet(strengths, np.zeros(d + 1))
    )


def program(loss, X, y, weight):
    """Optimal objective without a penalty, as a linear program over weights and both parts of u."""
    n, d = X.shape
    Z = np.column_stack([X, np.ones(n)])
    if loss.name == "hinge":
        sign, target, up, down = np.where(y == 0, 1.0, -1.0), np.ones(n), 1.0, 0.0
    elif loss.name == "quantile":
        sign, target, up, down = np.ones(n), y, loss.tau, 1.0 - loss.tau
    else:
        cost = np.concatenate([np.zeros(d + 1), weight / n])
        above = np.hstack([-Z, -np.eye(n)])
        below = np.hstack([Z, -np.eye(n)])
        bounds = [(None, None)] * (d + 1) + [(0, None)] * n
        right = np.concatenate([-y + loss.epsilon, y + loss.epsilon])
        return linprog(cost, A_ub=np.vstack([above, below]), b_ub=right, bounds=bounds).fun
    cost = np.concatenate([np.zeros(d + 1), up * weight / n, down * weight / n])
    equal = np.hstack([sign[:, None] * Z, np.eye(n), -np.eye(n)])
    bounds = [(None, None)] * (d + 1) + [(0, None)] * (2 * n)
    return linprog(cost, A_eq=equal, b_eq=target, bounds=bounds).fun


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_without_a_penalty_it_solves_the_linear_program(loss, kind):
    X, y, weight = draw(loss)
    model, engine = ridge(loss, 4, 0.0), LocalEngine(kind(X), y, weight)
    theta, info = run(model, engine)
    best = program(loss, X, y, weight)
    assert info.converged
    assert energy(model, engine, theta) == pytest.approx(best, rel=1e-7)
    assert info.objective == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("l2", [1e-3, 1.0])
def test_with_a_penalty_it_agrees_with_the_dual(loss, l2):
    X, y, weight = draw(loss)
    model, engine = ridge(loss, 4, l2), LocalEngine(X, y, weight)
    theta, _ = run(model, engine)
    dual = Dual(1e-6)
    state = dual.init(model, engine)
    for _ in range(3000):
        state, other = dual.step(state, engine)
        if other.converged:
            break
    found, peer = energy(model, engine, theta), energy(model, engine, state.theta())
    assert found <= peer * (1.0 + 1e-9)
    assert found == pytest.approx(peer, rel=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_gap_bounds_the_distance_to_the_optimum(loss):
    X, y, weight = draw(loss)
    strengths = np.full(4, 0.01)
    penalty = ElasticNet(strengths, np.zeros(4))
    model = LinearModel(loss, 4, 1, loss.task == "binary", False, penalty)
    engine = LocalEngine(X, y, weight)
    best = energy(model, engine, run(model, engine, 1e-12)[0])
    interior = Interior(1e-10)
    state = interior.init(model, engine)
    for _ in range(15):
        state, info = interior.step(state, engine)
        assert info.objective - best <= info.gap + 1e-12
        assert info.objective == pytest.approx(energy(model, engine, state.theta))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_few_steps_whatever_the_scales(loss):
    X, y, weight = draw(loss)
    scale = np.array([1e-6, 1.0, 1e3, 1e6])
    values = []
    for factor in (np.ones(4), scale):
        model, engine = ridge(loss, 4, 0.0), LocalEngine(X * factor, y, weight)
        interior = Interior(1e-6)
        state = interior.init(model, engine)
        infos = []
        while not (infos and infos[-1].converged) and len(infos) < 40:
            state, info = interior.step(state, engine)
            infos.append(info)
        assert len(infos) < 25
        values.append(info.objective)
    assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_weight_zero_is_absence_and_threads_change_nothing():
    loss = losses.Hinge()
    X, y, weight = draw(loss, n=3000)
    weight[::3] = 0.0
    model = ridge(loss, 4, 0.01)
    kept = weight > 0.0
    whole = run(model, LocalEngine(X, y, weight, block_rows=500))[0]
    rest = run(model, LocalEngine(X[kept], y[kept], weight[kept], block_rows=500))[0]
    np.testing.assert_array_equal(whole, rest)
    with LocalEngine(X, y, weight, block_rows=500, n_jobs=2) as engine:
        np.testing.assert_array_equal(run(model, engine)[0], whole)


def test_one_against_the_rest():
    model, engine = problem(losses.Hinge())
    theta, info = run(model, engine)
    assert model.n_outputs == 3 and info.converged
    for k in range(3):
        moved = theta.copy()
        moved[:, k] *= 1.001
        assert energy(model, engine, moved) >= energy(model, engine, theta) - 1e-12
