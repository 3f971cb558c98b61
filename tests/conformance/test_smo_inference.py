"""SMO held to what every inference must do, over the kernel expansion instead of a linear model."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from likelier.base import Info, Posterior
from likelier.engines import LocalEngine
from likelier.kernels import Precomputed, Rbf
from likelier.losses import EpsilonInsensitive, Hinge
from likelier.svm import kernel_cache as smo_cache
from likelier.svm.kernel_cache import MAX_IDLE_BYTES, ROWS, WHOLE, BufferPool, reusable_buffers
from likelier.svm.loops.smo import move_terms
from likelier.svm.model import KernelExpansion, Subset, dual_objective
from likelier.svm.path import solve_path
from likelier.svm.smo import SMO
from likelier.svm.state import (
    FLOAT32_ERROR,
    ROUNDING_FRACTION,
    moved_length,
    residuals,
    rounding_matters,
)

N, D = 400, 3
LOSSES = [Hinge(), EpsilonInsensitive(0.1)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


def problem(loss, block_rows=64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    y = np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal(N)
    y = np.sign(y) if loss.task == "binary" else y
    weight = rng.uniform(0.5, 2.0, N)
    weight[::7] = 0.0
    model = KernelExpansion(Rbf(0.5), loss, 3.0)
    return model, LocalEngine(X, y, weight, seed=1, block_rows=block_rows)


def run(inference, model, engine, n_steps=1000):
    state, infos = inference.init(model, engine), []
    for _ in range(n_steps):
        state, info = inference.step(state, engine)
        infos.append(info)
        if info.converged:
            break
    return inference.posterior(state), infos


def test_it_is_a_frozen_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMO().tol = 1
    assert not SMO.__subclasses__()


@every_loss
def test_init_step_posterior(loss):
    model, engine = problem(loss)
    state = SMO().init(model, engine)
    start = SMO().posterior(state)
    assert isinstance(start, Posterior)
    n = engine.n_rows
    assert start.theta.shape == (n + 1, 1)
    state, info = SMO().step(state, engine)
    assert isinstance(info, Info) and isinstance(info.converged, bool)
    assert info.passes >= 0.0
    posterior = SMO().posterior(state)
    assert posterior.scores(np.zeros((5, D))).shape == (5, 1)
    with pytest.raises(ValueError, match="no distribution"):
        posterior.predictive(np.zeros((5, D)))


@every_loss
def test_steps_lead_to_the_optimum_and_the_gap_bounds_the_distance(loss):
    model, engine = problem(loss)
    posterior, infos = run(SMO(1e-5), model, engine)
    assert infos[-1].converged and infos[-1].gap <= 1e-5
    rows = engine.present
    X, y, weight = engine._X[rows], engine._y[rows], engine._weight[rows]
    box = model.box(y, weight)
    F = y - model.kernel.matrix(X) @ posterior.beta
    primal = model.energy(posterior.beta, F, posterior.intercept, box)
    assert primal == pytest.approx(posterior.objective, rel=1e-4)  # no duality gap
    assert primal >= posterior.objective - 1e-9
    scores = posterior.scores(X)[:, 0]
    np.testing.assert_allclose(scores, y - F + posterior.intercept, atol=1e-6)


@every_loss
def test_the_same_start_gives_the_same_bits_and_blocks_do_not_matter(loss):
    one, _ = run(SMO(), *problem(loss))
    two, _ = run(SMO(), *problem(loss, block_rows=1000))
    np.testing.assert_array_equal(one.theta, two.theta)


@every_loss
def test_a_copied_state_goes_on_alike(loss):
    model, engine = problem(loss)
    inference = SMO(1e-6)
    state, _ = inference.step(inference.init(model, engine), engine)
    twin = copy.deepcopy(state)
    ends = [inference.solve(s).theta for s in (state, twin)]
    np.testing.assert_array_equal(*ends)


@every_loss
def test_a_start_is_a_start(loss):
    model, engine = problem(loss)
    optimum, _ = run(SMO(1e-5), model, engine)
    state = SMO(1e-3).init(model, engine, optimum.theta)
    state, info = SMO(1e-3).step(state, engine)
    assert info.converged
    np.testing.assert_array_equal(SMO().posterior(state).beta, optimum.beta)


@every_loss
@pytest.mark.parametrize("cache_bytes", [200 << 20, 1 << 19], ids=["whole", "rows"])
def test_a_path_is_as_good_as_fresh_starts(loss, cache_bytes):
    """Where the kernel matrix is held as a whole, and where there is room for some rows only."""
    model, engine = problem(loss)
    X, y = engine._X, engine._y
    rows = Subset(model.kernel.prepare(X))
    models = [dataclasses.replace(model, C=C) for C in (0.01, 0.1, 1.0, 10.0, 100.0)]
    inference = SMO(cache_bytes=cache_bytes)
    path = solve_path(inference, models, rows, y)
    K = model.kernel.matrix(X)
    updates = 0
    for one, found in zip(models, path, strict=True):
        alone = inference.solve(inference.start(one, rows, y))
        assert found.converged
        assert found.objective >= alone.objective - 1e-6 * abs(alone.objective)
        box, F = one.box(y), y - K @ found.beta
        assert found.objective == pytest.approx(dual_objective(box, found.beta, F), rel=1e-7)
        up, down = move_terms(found.beta, box.lower, box.upper, box.eps)
        assert (F + up).max() - (F + down).min() <= inference.tol  # in float64
        assert abs(found.beta.sum()) < 1e-9 * one.C * N
        updates += alone.n_iter
    assert sum(found.n_iter for found in path) < updates


def test_memory_of_one_path_serves_the_next():
    model, engine = problem(LOSSES[0])
    memory, models = BufferPool(), [model, dataclasses.replace(model, C=30.0)]
    for count in (300, 400, 350):  # 300 before 400: the memory has to grow
        rows = Subset(model.kernel.prepare(engine._X[:count]))
        again = solve_path(SMO(), models, rows, engine._y[:count], None, memory)
        fresh = solve_path(SMO(), models, rows, engine._y[:count])
        for one, two in zip(again, fresh, strict=True):
            np.testing.assert_array_equal(one.theta, two.theta)


@pytest.mark.parametrize(("n_features", "held"), [(3, False), (100, True)], ids=["cheap", "dear"])
def test_a_path_holds_the_whole_matrix_where_rows_are_dear(monkeypatch, n_features, held):
    asked = []

    class Spied(smo_cache.RowCache):
        def store_whole_matrix(self, given=None):
            super().store_whole_matrix(given)
            asked.append(self.whole is not None)

    monkeypatch.setattr("likelier.svm.smo.RowCache", Spied)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((1100, n_features))
    y = np.sign(X[:, 0] + 0.5 * rng.standard_normal(len(X)))
    kernel = Rbf(0.5 / n_features)
    models = [KernelExpansion(kernel, Hinge(), C) for C in (0.1, 1.0)]
    path = solve_path(SMO(1e-6), models, Subset(kernel.prepare(X)), y)
    assert asked == [True] * held
    for model, found in zip(models, path, strict=True):
        alone = SMO(1e-6).solve(SMO(1e-6).start(model, Subset(kernel.prepare(X)), y))
        assert found.converged and found.objective == pytest.approx(alone.objective, rel=1e-9)


def test_a_path_does_not_write_to_a_precomputed_matrix():
    X, y = problem(LOSSES[0])[1]._X[:100], problem(LOSSES[0])[1]._y[:100]
    kernel = Precomputed()
    K = Rbf(0.5).matrix(X)
    K.flags.writeable = False
    models = [KernelExpansion(kernel, Hinge(), C) for C in (1.0, 10.0)]
    given = solve_path(SMO(1e-6), models, Subset(kernel.prepare(K)), y)
    models = [KernelExpansion(Rbf(0.5), Hinge(), C) for C in (1.0, 10.0)]
    made = solve_path(SMO(1e-6), models, Subset(Rbf(0.5).prepare(X)), y)
    for one, two in zip(given, made, strict=True):
        assert one.objective == pytest.approx(two.objective, rel=1e-7)


@pytest.mark.parametrize("far", [False, True], ids=["one cloud", "two clouds far apart"])
def test_the_error_of_float32_rows_is_measured_where_it_could_matter(far):
    """Distances inside a cloud that is far from the centre lose digits."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(N) < 0.5, 1.0, -1.0)
    X = 0.3 * rng.standard_normal((N, 40)) + (5.0 * y[:, None] if far else 0.0)
    model = KernelExpansion(Rbf(0.1), Hinge(), 1e6)
    state = SMO().start(model, Subset(model.kernel.prepare(X)), y)
    length = 10.0 * ROUNDING_FRACTION * state.tol / FLOAT32_ERROR
    state.part.beta[:] = length / np.sqrt(N) * rng.permutation(y)
    assert rounding_matters(state) == far
    assert moved_length(state) == pytest.approx(length)
    single = residuals(state, state.part.beta, exact=False)
    error = abs(single - residuals(state, state.part.beta)).max()
    assert error <= state.cache.error * length  # what was measured bounds what happens
    state.part.beta[:] = 0.0
    assert not rounding_matters(state)


def test_little_memory_is_kept_for_the_next_fit_and_never_shared(monkeypatch):
    monkeypatch.setattr(smo_cache, "_idle", [])
    with reusable_buffers() as first, reusable_buffers() as other:
        assert other is not first
    with reusable_buffers() as again:
        assert again is other  # one is enough
    with reusable_buffers() as first:
        first.take(ROWS, 100, np.dtype(np.float32))
        first.take(WHOLE, MAX_IDLE_BYTES, np.dtype(np.float32))
        small = first.take(ROWS, 100, np.dtype(np.float32))
    with reusable_buffers() as again:
        assert again is first
        assert np.shares_memory(again.take(ROWS, 50, np.dtype(np.float32)), small)
        assert sum(map(len, again._held)) == small.nbytes  # the large piece is given up


def test_memory_of_threads_is_kept_with_that_of_the_fit(monkeypatch):
    monkeypatch.setattr(smo_cache, "_idle", [])
    kind = np.dtype(np.float32)
    with reusable_buffers() as first:
        own, other = first.for_threads(2)
        assert own is first
        small = other.take(ROWS, 100, kind)
        own.take(WHOLE, MAX_IDLE_BYTES // 8, kind)  # a half, and two thirds: too much together
        other.take(WHOLE, MAX_IDLE_BYTES // 6, kind)
    with reusable_buffers() as again:
        assert again.for_threads(3)[:2] == [own, other] and again.for_threads(1) == [own]
        assert np.shares_memory(other.take(ROWS, 50, kind), small)
        assert sum(map(len, own._held)) == MAX_IDLE_BYTES // 2
        assert sum(map(len, other._held)) == small.nbytes


def test_memory_that_was_used_before_does_not_change_a_bit():
    model, engine = problem(Hinge())
    rows = Subset(model.kernel.prepare(engine._X))
    fresh = solve_path(SMO(), [model], rows, engine._y)[0]
    memory = BufferPool()
    memory.take(ROWS, N * N, np.dtype(np.float32))[:] = np.nan
    memory.take(WHOLE, N * N, np.dtype(np.float32))[:] = np.nan
    used = solve_path(SMO(), [model], rows, engine._y, None, memory)[0]
    np.testing.assert_array_equal(fresh.beta, used.beta)
