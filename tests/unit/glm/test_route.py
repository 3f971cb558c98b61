"""Which route is taken, when it ends, and who is asked after every iteration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from tests.conformance.test_inference import energy, problem

from likelier import losses
from likelier.engines import LocalEngine, StreamEngine
from likelier.fitting.monitor import Monitor
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.route import Settings, Solution, _Fit, choose_route, solve
from likelier.tables import block_source


def shaped(loss, n, d, K=1, alpha=1e-3, l1=0.0, nonzeros=None):
    """A model and an engine of a given shape; the entries do not matter."""
    rng = np.random.default_rng(0)
    if nonzeros is None:
        X = rng.standard_normal((n, d))
    else:
        columns = rng.integers(0, d, n * nonzeros).reshape(n, -1)
        X = sparse.csr_array(
            (np.ones(n * nonzeros), columns.ravel(), np.arange(0, n * nonzeros + 1, nonzeros)),
            shape=(n, d),
        )
    penalty = ElasticNet(np.append(np.full(d, alpha), 0.0), np.append(np.full(d, l1), 0.0))
    classes = loss.task in ("binary", "multiclass")
    model = LinearModel(loss, d, K, classes, True, penalty)
    return model, LocalEngine(X, np.zeros(n)), float(nonzeros or d)


LOG, HINGE = losses.LogLoss(), losses.Hinge()


@pytest.mark.parametrize(
    ("shape", "route"),
    [
        ((LOG, 500, 10), "newton"),
        ((LOG, 500, 10, 5), "newton"),
        ((losses.Softmax(), 500, 10, 5), "newton"),
        ((LOG, 500, 10, 1, 0.0), "newton"),
        ((LOG, 500, 10, 1, 1e-3, 0.1), "newton"),
        ((LOG, 200, 2000), "lbfgs"),
        ((LOG, 200, 20_000, 1, 1e-3, 0.0, 5), "dual"),
        ((LOG, 200, 20_000, 1, 0.0, 0.0, 5), "lbfgs"),
        ((LOG, 200, 20_000, 1, 1e-3, 0.1, 5), "active_set"),
        ((losses.Softmax(), 200, 20_000, 3, 0.0, 0.1, 5), "active_set"),
        ((HINGE, 200, 20_000, 1, 1e-3, 0.1, 5), "sgd"),
        ((HINGE, 200, 20_000, 1, 1e-3, 0.0, 5), "dual"),
        ((HINGE, 200, 20_000, 1, 0.0, 0.0, 5), "sgd"),
        ((HINGE, 500, 10, 1, 0.0), "interior"),
        ((HINGE, 500, 10), "interior"),
        ((HINGE, 500, 10, 1, 1e-3, 0.1), "interior"),
        ((losses.MulticlassHinge(), 500, 10, 3), "interior"),
        ((losses.MulticlassHinge(), 500, 10, 3, 0.0), "interior"),
        ((losses.MulticlassHinge(), 200, 20_000, 3, 1e-3, 0.0, 5), "dual"),
        ((losses.MulticlassHinge(), 200, 20_000, 3, 0.0, 0.0, 5), "sgd"),
        ((losses.MulticlassHinge(), 500, 10, 3, 1e-3, 0.1), "interior"),
    ],
    ids=str,
)
def test_routes(shape, route):
    assert choose_route(*shaped(*shape)) == route


def stream_of(engine):
    blocks = [(b.X, b.y, b.weight) for b in engine.blocks()]
    stream = StreamEngine(block_source(lambda: iter(blocks)))
    list(stream.blocks())
    return stream


@pytest.mark.parametrize(
    ("shape", "route"),
    [
        ((LOG, 500, 10), "newton"),
        ((HINGE, 500, 10), "newton"),
        ((losses.MulticlassHinge(), 500, 10, 3), "newton"),
        ((LOG, 200, 2000), "lbfgs"),
        ((LOG, 200, 20_000, 1, 1e-3, 0.0, 5), "sgd"),
    ],
    ids=str,
)
def test_routes_of_streams(shape, route):
    model, engine, nonzeros = shaped(*shape)
    assert choose_route(model, stream_of(engine), nonzeros) == route


def test_explicit_updates_and_early_stopping_stay_stochastic():
    model, engine = problem(LOG)
    for settings in (Settings(update="explicit"), Settings(stochastic=True)):
        assert solve(model, engine, settings, 4.0).route == "sgd"
    assert solve(model, engine, Settings(), 4.0).route == "newton"


@pytest.mark.parametrize("rate", ["constant", "invscaling"])
def test_chosen_rates_are_a_route_of_their_own(rate):
    model, engine = problem(LOG)
    solution = solve(model, engine, Settings(learning_rate=rate, max_iter=3, tol=None), 4.0)
    assert solution.route == rate
    assert solution.n_iter == 3
    assert not solution.converged
    assert solution.certificate is None


@pytest.mark.parametrize("route", ["newton", "interior", "lbfgs", "dual", "active_set", "sgd"])
@pytest.mark.parametrize("max_iter", [1, 2, 5])
def test_the_number_of_iterations_is_respected(route, max_iter, monkeypatch):
    monkeypatch.setattr("likelier.glm.route.choose_route", lambda *args: route)
    model, engine = problem(HINGE if route == "interior" else LOG)
    seen, monitor = [], Monitor()
    monitor.stop = lambda posterior: seen.append(posterior.theta.copy())
    solution = solve(model, engine, Settings(tol=None, max_iter=max_iter), 4.0, None, monitor)
    assert solution.n_iter == len(seen) == max_iter
    assert not solution.converged
    np.testing.assert_array_equal(seen[-1], solution.theta)


@pytest.mark.parametrize("route", ["newton", "interior", "lbfgs", "dual", "active_set", "sgd"])
def test_the_monitor_may_stop(route, monkeypatch):
    monkeypatch.setattr("likelier.glm.route.choose_route", lambda *args: route)
    model, engine = problem(HINGE if route in ("dual", "interior") else LOG)
    monitor = Monitor()
    monitor.stop = lambda posterior: monitor.n_steps == 2
    solution = solve(model, engine, Settings(tol=1e-14), 4.0, None, monitor)
    assert solution.n_iter == 2
    assert not solution.converged


def test_a_certificate_comes_with_a_tight_tolerance_only():
    model, engine = problem(LOG)
    tight = solve(model, engine, Settings(tol=1e-4), 4.0)
    assert tight.certificate is not None and tight.certificate.covariance.size
    assert solve(model, engine, Settings(tol=0.1), 4.0).certificate is None
    assert solve(model, engine, Settings(tol=None, max_iter=20), 4.0).certificate is None
    kinked = solve(problem(HINGE, alpha=0.0)[0], engine, Settings(tol=1e-3), 4.0)
    assert kinked.certificate is None


def test_a_start_saves_iterations():
    model, engine = problem(LOG)
    first = solve(model, engine, Settings(), 4.0)
    second = solve(model, engine, Settings(), 4.0, first.theta)
    assert second.n_iter < first.n_iter
    np.testing.assert_allclose(second.theta, first.theta, atol=1e-6)


@pytest.mark.parametrize("loss", [LOG, losses.Poisson(), losses.Softmax()], ids=repr)
def test_every_objective_is_below_the_one_of_zero(loss):
    model, engine = problem(loss)
    for settings in (Settings(), Settings(stochastic=True), Settings(max_iter=1)):
        theta = solve(model, engine, settings, 4.0).theta
        assert energy(model, engine, theta) < energy(model, engine, model.zeros())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_outputs_worse_than_nothing_are_dropped(order, n_jobs):
    """What is kept stays as it is, in its order."""
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.standard_normal((300, 9)))
    y = rng.integers(0, 3, 300).astype(float)
    l2 = np.append(np.full(9, 0.02), 0.0)
    model = LinearModel(LOG, 9, 3, True, True, ElasticNet(l2, 0.0 * l2))
    theta = np.asarray(0.01 * rng.standard_normal((10, 3)), order=order)
    theta[-1] = -0.7
    theta[:, 1] = 5.0
    with LocalEngine(X, y, n_jobs=n_jobs) as engine:
        fit = _Fit(model, engine, Settings(), Monitor())
        given = Solution(theta, 1, np.nan, np.nan, False, "dual")
        found = fit._no_worse_than_zero(given)
        np.testing.assert_array_equal(found.theta[:, 1], 0.0)
        np.testing.assert_array_equal(found.theta[:, [0, 2]], theta[:, [0, 2]])
        assert found.objective == pytest.approx(energy(model, engine, found.theta), rel=1e-12)
        theta[:, 1] = theta[:, 0]
        kept = fit._no_worse_than_zero(given)
        assert kept.objective == pytest.approx(energy(model, engine, theta), rel=1e-12)
    assert kept.theta is theta


def test_uneven_penalties_need_rates_of_their_own():
    _, engine = problem(LOG)
    uneven = LinearModel(
        LOG, 4, 3, True, True, ElasticNet(np.append(np.arange(4.0), 0.0), np.zeros(5))
    )
    with pytest.raises(ValueError, match="learning_rate"):
        solve(uneven, engine, Settings(learning_rate="constant"), 4.0)
