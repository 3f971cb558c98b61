"""Stochastic inferences: which rate wins, which others are kept, when a pass is enough."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conformance.test_inference import energy, problem

from likelier import LinearClassifier, losses
from likelier.engines.local import LocalEngine
from likelier.glm.joined import joined
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.sgd import RATE_FACTORS, AdaptiveSGD, ScheduledSGD


def passes(sgd, model, engine, n):
    state = sgd.init(model, engine)
    for _ in range(n):
        state, info = sgd.step(state, engine)
    return state, info


def test_eight_rates_run_side_by_side_as_if_alone():
    model, engine = problem(losses.Softmax(), alpha=0.0)
    together, _ = passes(AdaptiveSGD(), model, engine, 2)
    assert together.n_groups == len(RATE_FACTORS) == 8
    for group, factor in enumerate(RATE_FACTORS):
        alone, _ = passes(AdaptiveSGD(factors=np.array([factor])), model, engine, 2)
        np.testing.assert_allclose(together.theta(group), alone.theta(0), rtol=1e-9, atol=1e-12)
        assert together.group_loss[group] == pytest.approx(alone.group_loss[0])


def test_the_best_rate_is_the_one_with_the_smallest_progressive_loss():
    model, engine = problem(losses.LogLoss())
    state, info = passes(AdaptiveSGD(), model, engine, 1)
    assert state.best_group() == int(np.argmin(state.group_loss))
    np.testing.assert_array_equal(state.theta(), state.theta(state.best_group()))
    assert info.objective >= state.group_loss.min() / 200


def test_keeping_some_rates_keeps_their_weights():
    model, engine = problem(losses.Hinge())
    state, _ = passes(AdaptiveSGD(), model, engine, 1)
    best, thetas = state.best_group(), [state.theta(g) for g in range(8)]
    kept = AdaptiveSGD.keep_groups(state, 2)
    assert kept.n_groups == min(2, 8 - best)
    np.testing.assert_array_equal(kept.theta(0), thetas[best])
    np.testing.assert_array_equal(kept.etas[: model.n_outputs], RATE_FACTORS[best])
    one = AdaptiveSGD.keep_groups(kept, 1)
    assert one.n_groups == 1
    AdaptiveSGD().step(one, engine)


def test_a_tolerance_ends_the_passes():
    model, engine = problem(losses.LogLoss())
    for make in (lambda tol: AdaptiveSGD(True, tol), lambda tol: ScheduledSGD(0.05, 0.0, tol=tol)):
        sgd = make(1e-3)
        state = sgd.init(model, engine)
        losses_met = []
        for _ in range(100):
            state, info = sgd.step(state, engine)
            losses_met.append(info.objective)
            if info.converged:
                break
        assert 1 < len(losses_met) < 100
        assert losses_met[-1] > min(losses_met[:-1]) * (1.0 - 1e-3)


def test_longer_runs_come_nearer():
    model, engine = problem(losses.LogLoss())
    values = [
        energy(model, engine, passes(AdaptiveSGD(), model, engine, n)[0].theta())
        for n in (1, 5, 40)
    ]
    assert values[0] > values[1] > values[2]


def test_features_that_are_always_zero_stay_at_zero():
    model, engine = problem(losses.SquaredError())
    batch = next(iter(engine.blocks(0)))
    batch.X[:, 2] = 0.0
    for sgd in (AdaptiveSGD(), ScheduledSGD(0.1)):
        state, _ = passes(sgd, model, engine, 2)
        assert (state.theta()[2] == 0.0).all()


def test_averages_come_after_the_given_number_of_rows():
    model, engine = problem(losses.SquaredError())
    late, _ = passes(ScheduledSGD(0.05, average_from=150), model, engine, 1)
    never, _ = passes(ScheduledSGD(0.05), model, engine, 1)
    assert late.counters.tolist() == [200, 51]  # from the 150th on
    assert never.counters.tolist() == [200, 0]
    np.testing.assert_array_equal(late.weights, never.weights)
    np.testing.assert_array_equal(never.theta()[:4, 0], never.weights)
    assert (late.theta() != never.theta()).any()


@pytest.mark.parametrize("implicit", [True, False])
def test_rescaled_features_learn_alike(implicit):
    """Rates per coordinate make the path of the scores independent of feature scales."""
    model, engine = problem(losses.LogLoss(), alpha=0.0)
    batch = next(iter(engine.blocks(0)))
    plain, _ = passes(AdaptiveSGD(implicit), model, engine, 1)
    scale = 10.0 ** np.array([-6, 6, 3, 0])
    expected = plain.theta()
    batch.X[:] = batch.X * scale
    scaled, _ = passes(AdaptiveSGD(implicit), model, engine, 1)
    found = scaled.theta()
    found[:4] *= scale[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_threads_share_the_classes_and_change_nothing():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(3000, 6)), rng.integers(0, 5, 3000).astype(float)
    model = LinearModel(
        losses.LogLoss(), 6, 5, True, True, ElasticNet(np.full(7, 1e-3), np.zeros(7))
    )
    one, info = passes(AdaptiveSGD(), model, LocalEngine(X, y, seed=1, block_rows=700), 2)
    for n_jobs in (2, 3):
        with LocalEngine(X, y, seed=1, block_rows=700, n_jobs=n_jobs) as engine:
            many, other = passes(AdaptiveSGD(n_jobs=n_jobs), model, engine, 2)
        np.testing.assert_array_equal(many.theta(), one.theta())
        np.testing.assert_allclose(many.group_loss, one.group_loss, rtol=1e-12)
        assert other.objective == pytest.approx(info.objective, rel=1e-12)


def test_threads_share_the_classes_of_a_search_and_change_nothing():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(900, 6)), rng.integers(0, 5, 900).astype(float)
    l2 = np.append(np.full(6, 1e-3), 0.0)
    model = LinearModel(losses.LogLoss(), 6, 5, True, True, ElasticNet(l2, np.zeros(7)))
    states = {}
    for n_jobs in (1, 2, 3):
        with LocalEngine(X, y, seed=1, n_jobs=n_jobs) as engine:
            sgd = AdaptiveSGD(n_jobs=n_jobs)
            states[n_jobs] = sgd.start(model)
            sgd.begin(states[n_jobs], engine.sample(600), engine)
    one = states.pop(1)
    assert one.n_groups == 8 and one.group_loss.min() > 0.0
    for many in states.values():
        np.testing.assert_array_equal(many.average, one.average)
        np.testing.assert_array_equal(many.weights, one.weights)
        np.testing.assert_array_equal(many.sums, one.sums)
        np.testing.assert_allclose(many.group_loss, one.group_loss, rtol=1e-12)


def test_a_stream_is_read_by_one_thread():
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(600, 4)), rng.integers(0, 6, 600)
    blocks = [(X[i : i + 100], y[i : i + 100]) for i in range(0, 600, 100)]
    params = {"l1_ratio": 0.15, "random_state": 0, "max_iter": 3, "tol": None}
    one = LinearClassifier(n_jobs=1, **params).fit(blocks)
    for _ in range(3):
        two = LinearClassifier(n_jobs=2, **params).fit(blocks)
        np.testing.assert_array_equal(two.coef_, one.coef_)


def test_short_blocks_of_one_matrix_are_learned_together(monkeypatch):
    """The same rows in the same order: only the calls are fewer, and none is too long."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1000, 3)), rng.integers(0, 2, 1000).astype(float)
    monkeypatch.setattr("likelier.glm.joined.JOINED_ROWS", 300)
    engine = LocalEngine(X, y, seed=4, block_rows=64)
    given, fewer = list(engine.blocks(2)), list(joined(engine.blocks(2)))
    assert [batch.n_rows for batch in fewer] == [256, 256, 256, 232]
    rows = [np.concatenate([batch.rows for batch in some]) for some in (given, fewer)]
    np.testing.assert_array_equal(*rows)
    separate = list(engine.blocks())  # every one has rows of its own
    assert all(batch is own for batch, own in zip(joined(separate), separate, strict=True))
