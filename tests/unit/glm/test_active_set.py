"""L1 on many features: optimality conditions, the bound on the gap, dense and sparse alike."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import losses
from likelier.engines import LocalEngine
from likelier.glm import active_quadratic, active_set
from likelier.glm.active_set import ActiveSet
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet

SMOOTH = [cls() for cls in losses.LOSSES.values() if cls.smooth]
every_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
every_kind = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])


def wide(loss, kind=np.asarray, fit_intercept=True, l2=0.0, l1=0.05, far=0.0, seed=0):
    """More features than rows, some rows of weight zero."""
    rng = np.random.default_rng(seed)
    n, d = 120, 300
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3) + far
    signal = (X - far)[:, :4] @ [1.0, -1.0, 0.5, 2.0]
    K = 1
    if loss.task in ("binary", "multiclass"):
        K, y = 3, np.digitize(signal + rng.standard_normal(n), [-0.5, 0.7]).astype(float)
    elif loss.task == "count":
        y = rng.poisson(np.exp(0.3 * signal)).astype(float)
    else:
        y = signal + rng.standard_normal(n)
    pad = [0.0] * int(fit_intercept)
    penalty = ElasticNet(np.append(np.full(d, l2), pad), np.append(np.full(d, l1), pad))
    model = LinearModel(loss, d, K, K > 1, fit_intercept, penalty)
    weight = rng.uniform(0.5, 2.0, n) * (rng.random(n) < 0.9)
    return model, LocalEngine(kind(X), y, weight, seed=1, block_rows=50)


def run(model, engine, tol=1e-9, n_steps=300):
    inference = ActiveSet(tol)
    state = inference.init(model, engine)
    for _ in range(n_steps):
        state, info = inference.step(state, engine)
        if info.converged or info.message:
            break
    return inference.posterior(state).theta, info


def value(model, engine, theta):
    total = sum(model.stats(theta, batch).value.sum() for batch in engine.blocks())
    return total / engine.n_rows + model.penalty.value(theta).sum()


def violation(model, engine, theta):
    """Largest distance from the optimality conditions, computed on its own."""
    total = sum(model.stats(theta, batch, order=1).gradient for batch in engine.blocks())
    gradient = total / engine.n_rows + model.penalty.l2[:, None] * theta
    l1 = np.broadcast_to(model.penalty.l1[:, None], theta.shape)
    zero = theta == 0.0
    return max(
        np.maximum(np.abs(gradient) - l1, 0.0)[zero].max(initial=0.0),
        np.abs(gradient + l1 * np.sign(theta))[~zero].max(initial=0.0),
    )


@every_loss
@every_kind
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "origin"])
@pytest.mark.parametrize("gathered", [active_quadratic.MAX_GATHERED, 0], ids=["columns", "gram"])
def test_the_optimality_conditions_hold(loss, kind, fit_intercept, gathered, monkeypatch):
    monkeypatch.setattr(active_quadratic, "MAX_GATHERED", gathered)
    model, engine = wide(loss, kind, fit_intercept)
    theta, info = run(model, engine)
    assert info.converged
    assert violation(model, engine, theta) < 1e-8
    weights = theta[: model.n_features]
    assert 0 < np.count_nonzero(weights) < 0.5 * weights.size
    assert info.objective == pytest.approx(value(model, engine, theta), rel=1e-12)


@every_loss
def test_the_gap_is_an_upper_bound(loss):
    model, engine = wide(loss)
    best = value(model, engine, run(model, engine, 1e-11)[0])
    inference = ActiveSet(1e-9)
    state = inference.init(model, engine)
    for _ in range(6):
        before = value(model, engine, state.theta)
        state, info = inference.step(state, engine)
        if loss.task != "count":  # its loss has no known floor here
            assert before - best <= info.gap + 1e-12
        assert value(model, engine, state.theta) <= before + 1e-12


@pytest.mark.parametrize("l2", [0.01, 0.2])
def test_elastic_nets(l2):
    model, engine = wide(losses.LogLoss(), l2=l2)
    theta, info = run(model, engine)
    assert info.converged
    assert violation(model, engine, theta) < 1e-8


@every_kind
@pytest.mark.parametrize("gathered", [active_quadratic.MAX_GATHERED, 0], ids=["columns", "gram"])
def test_features_far_from_zero(kind, gathered, monkeypatch):
    """The intercept moves along with every weight."""
    monkeypatch.setattr(active_quadratic, "MAX_GATHERED", gathered)
    model, engine = wide(losses.SquaredError(), kind, far=1000.0)
    theta, info = run(model, engine)
    near, twin = wide(losses.SquaredError(), kind)
    expected, _ = run(near, twin)
    assert info.converged
    np.testing.assert_allclose(theta[:-1], expected[:-1], atol=1e-6)


def test_outputs_without_active_features(monkeypatch):
    monkeypatch.setattr(active_quadratic, "MAX_GATHERED", 0)
    model, engine = wide(losses.LogLoss(), l1=0.12)
    theta, info = run(model, engine)
    assert info.converged
    assert np.count_nonzero(theta[:-1], axis=0).min() == 0
    assert theta[:-1].any()
    assert violation(model, engine, theta) < 1e-8


def test_at_most_so_many_features_take_part(monkeypatch):
    """Steps on the worst of them come to the same optimum."""
    model, engine = wide(losses.LogLoss())
    expected, _ = run(model, engine)
    monkeypatch.setattr(active_set, "MAX_CELLS", 3 * 30**2)
    theta, info = run(model, engine)
    assert info.converged
    assert np.count_nonzero(theta[:-1], axis=0).max() > 10
    np.testing.assert_allclose(theta, expected, atol=1e-6)


def test_a_strong_penalty_leaves_the_intercept_alone():
    model, engine = wide(losses.SquaredError(), l1=1e3)
    theta, info = run(model, engine)
    assert info.converged
    assert not theta[:-1].any()
    batch = next(iter(engine.blocks(0)))
    assert theta[-1, 0] == pytest.approx(np.average(batch.y, weights=batch.weight))


def test_threads_change_nothing():
    model, engine = wide(losses.LogLoss(), sparse.csr_array)
    X, y, weight = engine._X, engine._y, engine._weight
    states = []
    for n_jobs in (1, 3):
        engine = LocalEngine(X, y, weight, seed=1, block_rows=50, n_jobs=n_jobs)
        inference = ActiveSet(1e-6)
        state = inference.init(model, engine)
        for _ in range(4):
            state, _ = inference.step(state, engine)
        states.append(state.theta)
    np.testing.assert_array_equal(states[0], states[1])
