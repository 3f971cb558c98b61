"""L-BFGS in a metric: down at every step, scores kept in step with the weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from tests.conformance.test_inference import ALL, energy, problem

from likelier import losses
from likelier.engines import LocalEngine
from likelier.glm import lbfgs, metric
from likelier.glm.lbfgs import LBFGS
from likelier.glm.metric import Metric
from likelier.glm.model import LinearModel
from likelier.glm.newton import Newton
from likelier.glm.penalty import ElasticNet

SMOOTH = [loss for loss in ALL if loss.smooth]
every_loss = pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)


def exact(model, engine):
    newton = Newton(1e-12)
    state = newton.init(model, engine)
    for _ in range(50):
        state, info = newton.step(state, engine)
        if info.converged:
            break
    return state.theta


@every_loss
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("far", [0.0, 5.0])
def test_every_step_goes_down_and_ends_at_the_optimum(loss, kind, far):
    model, engine = problem(loss, kind=kind)
    start = far * np.random.default_rng(1).standard_normal((5, model.n_outputs))
    start = 0.1 * start if loss.name == "poisson" else start
    inference = LBFGS(1e-13)
    state = inference.init(model, engine, start)
    values = [energy(model, engine, start)]
    for _ in range(100):
        state, info = inference.step(state, engine)
        values.append(energy(model, engine, state.theta))
        assert info.objective == pytest.approx(values[-1], rel=1e-9)
        if info.converged:
            break
    assert (np.diff(values) <= 1e-12 * abs(values[0])).all()
    theta, best = state.theta.copy(), exact(model, engine)
    if loss.coupled:
        theta[4], best[4] = theta[4] - theta[4].mean(), best[4] - best[4].mean()
    np.testing.assert_allclose(theta, best, atol=1e-4)


def test_scores_move_with_the_parameters():
    """A step moves the scores of the rows by products that are not made again."""
    model, engine = problem(losses.Softmax())
    inference = LBFGS(0.0)
    state = inference.init(model, engine)
    for _ in range(5):
        state, _ = inference.step(state, engine)
    given = engine.map_blocks(lambda batch, scores: (batch.X, scores), state.scores)
    for X, scores in given:
        np.testing.assert_allclose(scores, model.scores(state.theta, X), atol=1e-10)


def test_a_state_without_its_row_values_goes_on_alike():
    """Row values are left out of checkpoints; new ones come from the parameters."""
    model, engine = problem(losses.LogLoss())
    inference = LBFGS(0.0)
    state = inference.init(model, engine)
    for _ in range(lbfgs.REFRESH):
        state, _ = inference.step(state, engine)
    assert state.scores is None  # made anew after so many steps, on every engine
    bare = replace(state, metric=None)
    for _ in range(3):
        state, _ = inference.step(state, engine)
        bare, _ = inference.step(bare, engine)
    np.testing.assert_array_equal(bare.theta, state.theta)


def test_rows_of_weight_zero_change_no_bit():
    model, engine = problem(losses.LogLoss())
    batch = next(iter(engine.blocks(0)))
    X, y = np.asarray(batch.X), np.asarray(batch.y)
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    found = []
    for some in (slice(None), weight > 0.0):
        inference = LBFGS(0.0)
        part = LocalEngine(X[some], y[some], weight[some], seed=1, block_rows=30)
        state = inference.init(model, part)
        for _ in range(4):
            state, _ = inference.step(state, part)
        found.append(state.theta)
    np.testing.assert_array_equal(*found)


def test_independent_outputs_do_not_disturb_each_other():
    """One-vs-rest outputs have their own step lengths: together as well as alone."""
    model, engine = problem(losses.LogLoss())
    together = LBFGS(0.0)
    state = together.init(model, engine)
    for _ in range(30):
        state, _ = together.step(state, engine)
    np.testing.assert_allclose(state.theta, exact(model, engine), atol=1e-6)


@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Softmax()], ids=repr)
def test_threads_change_no_bit(loss):
    """A metric per output is shared by the threads; every output is solved for by one of them."""
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((2500, 6)), rng.integers(0, 4, 2500).astype(float)
    l2 = np.append(np.full(6, 1e-3), 0.0)
    model = LinearModel(loss, 6, 4, True, True, ElasticNet(l2, 0.0 * l2))
    thetas = []
    for n_jobs in (1, 2, 3):
        with LocalEngine(X, y, block_rows=300, n_jobs=n_jobs) as engine:
            inference = LBFGS(0.0)
            state = inference.init(model, engine)
            for _ in range(4):
                state, _ = inference.step(state, engine)
            thetas.append(state.theta)
    np.testing.assert_array_equal(thetas[1], thetas[0])
    np.testing.assert_array_equal(thetas[2], thetas[0])


def test_a_metric_solves_for_blocks_side_by_side():
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((2000, 5)), rng.integers(0, 3, 2000).astype(float)
    l2 = np.append(np.full(5, 1e-2), 0.0)
    model = LinearModel(losses.LogLoss(), 5, 3, True, True, ElasticNet(l2, 0.0 * l2))
    engine = LocalEngine(X, y)
    made = metric.make_metric(model, engine, rng.standard_normal((6, 3)))
    one, two = rng.standard_normal((2, 6, 3))

    def solve(vectors):
        return made.solve(vectors, engine)

    both = solve(np.hstack([one, two]))
    np.testing.assert_allclose(both, np.hstack([solve(one), solve(two)]), rtol=1e-9)
    assert not np.allclose(solve(one)[:, 0], solve(one[:, [1, 0, 2]])[:, 1])  # of their own


def test_scales_of_features_do_not_matter():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4))
    y = (X[:, 0] + rng.logistic(size=500) < 0).astype(float)
    scale = 10.0 ** np.array([-6, 6, 0, 3])
    l2 = np.append(np.full(4, 1e-3), 0.0)
    found = []
    for s in (np.ones(4), scale):
        penalty = ElasticNet(l2 * np.append(s, 1.0) ** 2, 0.0 * l2)
        model = LinearModel(losses.LogLoss(), 4, 1, True, True, penalty)
        inference, engine = LBFGS(1e-12), LocalEngine(X * s, y)
        state = inference.init(model, engine)
        n_steps, info = 0, None
        while n_steps < 100 and not (info and info.converged):
            state, info = inference.step(state, engine)
            n_steps += 1
        found.append((state.theta[:4, 0] * s, n_steps))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-3)
    assert abs(found[0][1] - found[1][1]) <= 10


def test_many_features_get_a_diagonal_metric(monkeypatch):
    """With hardly any features allowed in a full metric, the optimum is the same."""
    model, engine = problem(losses.LogLoss(), kind=sparse.csr_array)
    monkeypatch.setattr(metric, "FEATURES", 2)
    inference = LBFGS(1e-12)
    state = inference.init(model, engine)
    for _ in range(200):
        state, info = inference.step(state, engine)
        if info.converged:
            break
    np.testing.assert_allclose(state.theta, exact(model, engine), atol=1e-4)


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.9])
def test_gains_that_shrink_slowly_are_not_the_end(rate):
    """A step that gains little is near the optimum only if the next ones gain far less."""
    gains = [50.0, *(rate**k for k in range(6))]
    expected = rate**5 / (1.0 - rate)  # the last one and all that follow
    assert lbfgs._remaining_gain(gains[-5:]) == pytest.approx(expected)
    assert lbfgs._remaining_gain(gains[:4]) == pytest.approx(rate**2 / (1.0 - rate))
    assert lbfgs._remaining_gain([1.0]) == lbfgs._remaining_gain([1.0, 0.0]) == 0.0
    assert lbfgs._remaining_gain([1.0, 1.0]) < 20.1  # not without end


def test_the_tolerance_holds_with_a_useless_metric(monkeypatch):
    """Steps are then slow, and the gain that the metric expects is far below what is missing."""
    rng = np.random.default_rng(0)
    size = np.geomspace(1.0, 0.1, 40)
    X = rng.standard_normal((2000, 40)) * size
    noise = 4.0 * rng.standard_normal(2000)
    y = (X @ (rng.standard_normal(40) / size) + noise > 0.0).astype(float)
    l2 = np.full(40, 1e-6)
    model = LinearModel(losses.LogLoss(), 40, 1, True, False, ElasticNet(l2, 0.0 * l2))
    engine = LocalEngine(X, y)
    best = energy(model, engine, exact(model, engine))
    monkeypatch.setattr(lbfgs, "make_metric", lambda *given: Metric((), np.full(40, 0.05)))
    inference = LBFGS(0.01)
    state = inference.init(model, engine)
    for _ in range(100):
        state, info = inference.step(state, engine)
        if info.converged:
            break
    assert info.converged
    assert energy(model, engine, state.theta) <= 1.01 * best


def test_a_metric_that_single_precision_cannot_factor_is_made_in_double(monkeypatch):
    model, engine = problem(losses.LogLoss())
    tried, factor = [], metric._scaled_factor

    def fails_at_first(model, X, row, exact):
        tried.append(exact)
        if not exact:
            raise np.linalg.LinAlgError
        return factor(model, X, row, exact)

    monkeypatch.setattr(metric, "_scaled_factor", fails_at_first)
    metric.make_metric(model, engine, model.zeros())
    assert set(tried) == {False, True}
