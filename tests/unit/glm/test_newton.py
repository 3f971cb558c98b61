"""Newton's method: never up, one step for a quadratic, envelopes that close on the loss."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from tests.conformance.test_inference import ALL, energy, problem

from likelier import losses
from likelier.base import Batch
from likelier.engines import LocalEngine
from likelier.glm.model import LinearModel, LinearStats
from likelier.glm.newton import (
    Newton,
    mean_gradient_and_hessian,
    quadratic_minimum,
    stacked_penalty,
    subset_sizes,
)
from likelier.glm.penalty import ElasticNet

SMOOTH = [loss for loss in ALL if loss.smooth]
KINKED = [loss for loss in ALL if not loss.smooth and not loss.coupled]


def steps(model, engine, theta=None, n=30, tol=1e-8):
    newton = Newton(tol)
    state = newton.init(model, engine, theta)
    for _ in range(n):
        state, info = newton.step(state, engine)
        yield state, info
        if info.converged:
            return


@pytest.mark.parametrize("loss", [losses.SquaredError(), losses.Squared()], ids=repr)
def test_one_step_solves_a_quadratic(loss):
    model, engine = problem(loss)
    state, _ = next(steps(model, engine))
    batch = Batch(*(next(iter(engine.blocks(0))).__getattribute__(n) for n in ("X", "y", "weight")))
    Z = np.column_stack([batch.X, np.ones(len(batch.y))])
    factor = 2.0 if loss.name == "squared" else 1.0
    H = factor * Z.T @ (batch.weight[:, None] * Z) / len(batch.y) + np.diag(model.penalty.l2)
    exact = np.linalg.solve(H, factor * Z.T @ (batch.weight * batch.y) / len(batch.y))
    np.testing.assert_allclose(state.theta[:, 0], exact, rtol=1e-9)


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
@pytest.mark.parametrize("far", [0.0, 3.0, 30.0])
def test_the_objective_never_rises_from_any_start(loss, far):
    """Also from where predictions are sure and wrong, where a full step would overshoot."""
    model, engine = problem(loss)
    theta = far * np.random.default_rng(0).standard_normal((5, model.n_outputs))
    if loss.name == "poisson":
        theta = 0.1 * theta
    values = [energy(model, engine, theta)]
    for state, _ in steps(model, engine, theta, n=100):
        values.append(energy(model, engine, state.theta))
    # a step taken on trust is taken back one step later
    best = np.minimum.accumulate(values)
    assert values[-1] == pytest.approx(best[-1], rel=1e-9)
    start = [state for state, _ in steps(model, engine, None, n=100)][-1]
    assert values[-1] == pytest.approx(energy(model, engine, start.theta), rel=1e-6)


@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Softmax(), losses.Poisson()], ids=repr)
def test_a_full_step_that_increases_the_objective_is_undone(loss, monkeypatch):
    """Trusting every full step, a far start would lead Newton's method away for good."""
    monkeypatch.setattr("likelier.glm.newton.FULL_STEP", 1e9)
    model, engine = problem(loss)
    start = 3.0 * np.random.default_rng(0).standard_normal((5, model.n_outputs))
    path = [model.zeros()] + [state.theta for state, _ in steps(model, engine, n=100)]
    far = [state.theta for state, _ in steps(model, engine, start, n=100)]
    values = [energy(model, engine, theta) for theta in (path[-1], far[-1])]
    assert values[1] == pytest.approx(values[0], rel=1e-6)


@pytest.mark.parametrize("loss", KINKED, ids=lambda loss: loss.name)
def test_the_envelope_narrows(loss):
    model, engine = problem(loss)
    widths = [state.width for state, _ in steps(model, engine, n=80, tol=1e-3)]
    assert widths[0] > 0.0
    assert (np.diff(widths) <= 0.0).all()
    assert widths[-1] < 0.1 * widths[0]


def test_smooth_losses_need_no_envelope():
    model, engine = problem(losses.LogLoss())
    assert all(state.width == 0.0 for state, _ in steps(model, engine))


@pytest.mark.parametrize("loss", SMOOTH, ids=lambda loss: loss.name)
def test_the_gap_is_the_distance_near_the_optimum(loss):
    model, engine = problem(loss)
    path = list(steps(model, engine, n=50, tol=1e-12))
    best = energy(model, engine, path[-1][0].theta)
    for (state, _), (_, following) in pairwise(path):
        distance = energy(model, engine, state.theta) - best
        if 1e-12 < distance < 1e-3 * abs(best):
            assert following.gap == pytest.approx(distance, rel=0.5)


def test_an_infinite_objective_raises():
    loss = losses.SquaredError()
    X, y = np.ones((4, 1)), np.full(4, 1e200)
    zeros = np.zeros(1)
    model = LinearModel(loss, 1, 1, False, False, ElasticNet(zeros, zeros))
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="rescale"):
        list(steps(model, LocalEngine(X, y), n=2))


def test_subsets_start_at_some_rows_per_parameter_and_stay_below_all():
    model, _ = problem(losses.LogLoss())
    for n_rows, sizes in ((200, []), (4000, [1000]), (100_000, [1000, 4000, 16_000])):
        assert subset_sizes(model, n_rows) == sizes


def test_subsets_lead_to_the_same_optimum():
    """Enough rows for three subsets; the last steps use every row."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((33_000, 3))
    y = (X[:, 0] + rng.logistic(size=33_000) < 0).astype(float)
    zeros = np.zeros(4)
    model = LinearModel(losses.LogLoss(), 3, 1, True, True, ElasticNet(zeros, zeros))
    engine = LocalEngine(X, y)
    assert len(subset_sizes(model, engine.n_rows)) == 3
    state, info = list(steps(model, engine, tol=1e-10))[-1]
    stats = engine.reduce(lambda b: model.stats(state.theta, b, order=1), LinearStats.__add__)
    assert info.converged
    assert abs(stats.gradient / 33_000).max() < 1e-8


@pytest.mark.parametrize("loss", [losses.Softmax(), losses.LogLoss()], ids=repr)
def test_the_quadratic_model_predicts_its_own_gain(loss):
    model, engine = problem(loss)
    theta = model.zeros()
    stats = engine.reduce(lambda b: model.stats(theta, b, order=2), LinearStats.__add__)
    target, gain = quadratic_minimum(model, theta, stats)
    gradients, hessians = mean_gradient_and_hessian(model, stats)
    penalty = stacked_penalty(model)
    change = (target - theta).T.reshape(gradients.shape)
    value = sum(
        s @ c + 0.5 * c @ h @ c + float(penalty.value(c))
        for s, h, c in zip(gradients, hessians, change, strict=True)
    )
    assert gain == pytest.approx(-value)
    damped, less = quadratic_minimum(model, theta, stats, np.eye(5))
    assert np.linalg.norm(damped) < np.linalg.norm(target)
    assert less < gain


def test_unpenalised_softmax_is_regular():
    """All classes moving together changes nothing; the step must not depend on it."""
    model, engine = problem(losses.Softmax(), alpha=0.0)
    state, info = list(steps(model, engine))[-1]
    assert info.converged
    assert np.isfinite(state.theta).all()
    assert abs(state.theta.sum(axis=1)).max() < 1e-6


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_l1_gives_exact_zeros(kind):
    model, engine = problem(losses.LogLoss(), kind=kind)
    l1 = np.append(np.full(4, 0.15), 0.0)
    model = LinearModel(model.loss, 4, 3, True, True, ElasticNet(np.zeros(5), l1))
    state, info = list(steps(model, engine, n=100))[-1]
    assert info.converged
    assert (state.theta[:4] == 0.0).any()
    assert (state.theta[4] != 0.0).all()
    stats = engine.reduce(lambda b: model.stats(state.theta, b, order=1), LinearStats.__add__)
    gradient = stats.gradient / engine.n_rows
    zero = state.theta == 0.0
    assert (abs(gradient[zero]) <= 0.15 + 1e-4).all()
    active = (state.theta != 0.0) & (l1[:, None] > 0.0)
    np.testing.assert_allclose(gradient[active], -0.15 * np.sign(state.theta[active]), atol=1e-3)


def test_a_perfect_fit_without_a_penalty_stops_early_with_a_reason():
    """Separable classes have no optimum: the objective falls for ever."""
    X = np.random.default_rng(0).standard_normal((200, 4))
    zeros = np.zeros(5)
    model = LinearModel(losses.LogLoss(), 4, 1, True, True, ElasticNet(zeros, zeros))
    path = list(steps(model, LocalEngine(X, (X[:, 0] < 0.0).astype(float)), n=100, tol=1e-4))
    said = [info.message for _, info in path]
    assert "separable" in next(message for message in said if message)
    assert said.index(next(filter(None, said))) < 50
    assert not any(info.converged for _, info in path)


def test_kinked_losses_report_the_loss_itself():
    for loss in KINKED:
        model, engine = problem(loss)
        for state, info in steps(model, engine, n=60, tol=1e-3):
            assert info.objective == pytest.approx(energy(model, engine, state.theta))
        best = energy(
            model, engine, [s for s, _ in steps(model, engine, n=300, tol=1e-7)][-1].theta
        )
        assert info.converged
        assert info.objective - best <= 1e-3 * info.objective


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_a_thinned_hessian_keeps_the_curvature_of_rare_features(kind):
    """The first step on all rows samples its Hessian; its diagonal is that of all rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    X[:, 2] = 0.0
    X[7, 2] = 1.0  # met once, in a row that is not sampled
    zeros = np.zeros(4)
    model = LinearModel(losses.LogLoss(), 3, 1, True, True, ElasticNet(zeros, zeros))
    batch = Batch(kind(X), (X[:, 0] < 0.0).astype(float))
    theta = 0.1 * rng.standard_normal((4, 1))
    full = model.stats(theta, batch, order=2)
    thin = model.stats(theta, batch, order=2, every=4)
    np.testing.assert_allclose(thin.gradient, full.gradient)
    assert (np.diagonal(thin.hessian[0]) >= np.diagonal(full.hessian[0]) * (1 - 1e-12)).all()
    assert np.linalg.eigvalsh(thin.hessian[0]).min() > 0.0
    assert abs(thin.hessian - full.hessian).max() < 0.5 * abs(full.hessian).max()


def small_blocks(monkeypatch):
    for name in ("MIN_DENSE_ROWS", "MAX_DENSE_ROWS", "MIN_SPARSE_ROWS", "MAX_SPARSE_ROWS"):
        monkeypatch.setattr(f"likelier.engines.blocks.{name}", 256)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Softmax()], ids=repr)
def test_threads_on_subsets_change_no_bit(loss, kind, monkeypatch):
    small_blocks(monkeypatch)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9000, 4))
    y = np.digitize(X @ np.ones(4) + rng.standard_normal(9000), [-1.0, 1.0]).astype(float)
    model = problem(loss)[0]
    weight = rng.uniform(0.5, 2.0, 9000)
    alone = LocalEngine(kind(X), y, weight)
    assert len(subset_sizes(model, alone.n_rows)) == 2
    theta = Newton().init(model, alone).theta
    for n_jobs in (2, 5):
        with LocalEngine(kind(X), y, weight, n_jobs=n_jobs) as engine:
            np.testing.assert_array_equal(Newton().init(model, engine).theta, theta)


def test_an_error_in_a_thread_on_a_subset_arrives(monkeypatch):
    small_blocks(monkeypatch)
    model = problem(losses.LogLoss())[0]
    X, y = np.ones((9000, 4)), np.zeros(9000)

    def fail(*args, **params):
        raise RuntimeError("broken row")

    monkeypatch.setattr(LinearModel, "stats", fail)
    with LocalEngine(X, y, n_jobs=2) as engine, pytest.raises(RuntimeError, match="broken row"):
        Newton().init(model, engine)
