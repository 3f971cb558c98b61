"""Dual coordinate ascent: threads share classes, uneven penalties are scaled away, gaps hold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from tests.conformance.test_inference import ALL, energy, problem

from likelier import losses
from likelier.engines import LocalEngine
from likelier.glm.dual import Dual, _part_bounds
from likelier.glm.dual_rows import dual_rows
from likelier.glm.model import LinearModel
from likelier.glm.newton import Newton
from likelier.glm.penalty import ElasticNet


def run(dual, model, engine, n_passes=400):
    state = dual.init(model, engine)
    for _ in range(n_passes):
        state, info = dual.step(state, engine)
        if info.converged:
            break
    return state.theta(), info


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
def test_a_penalty_of_its_own_for_every_feature(loss):
    """As with one penalty for all, on columns scaled the other way round."""
    model, engine = problem(loss)
    strength = np.array([0.02, 0.1, 0.05, 0.3])
    batch = next(iter(engine.blocks(0)))
    uneven = LinearModel(
        loss, 4, model.n_outputs, model.classes, True,
        ElasticNet(np.append(strength, 0.0), np.zeros(5)),
    )  # fmt: skip
    even = LinearModel(
        loss, 4, model.n_outputs, model.classes, True,
        ElasticNet(np.append(np.ones(4), 0.0), np.zeros(5)),
    )  # fmt: skip
    theta, _ = run(Dual(1e-5), uneven, engine)
    scaled = LocalEngine(batch.X / np.sqrt(strength), batch.y, batch.weight, seed=1, block_rows=64)
    other, _ = run(Dual(1e-5), even, scaled)
    other[:4] /= np.sqrt(strength)[:, None]
    values = [energy(uneven, engine, point) for point in (theta, other)]
    assert values[0] == pytest.approx(values[1], rel=1e-3)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
@pytest.mark.parametrize("strength", [0.1, [0.02, 0.1, 0.05, 0.3]], ids=["even", "uneven"])
def test_objectives_are_those_of_the_parameters(loss, strength):
    model, engine = problem(loss)
    l2 = np.append(np.broadcast_to(strength, 4), 0.0)
    model = LinearModel(loss, 4, model.n_outputs, model.classes, True, ElasticNet(l2, np.zeros(5)))
    state = Dual(1e-5, n_jobs=2).init(model, engine)
    for _ in range(2):
        Dual(1e-5).step(state, engine)
    found = Dual.objectives(state)
    assert len(found) == (1 if loss.coupled else model.n_outputs)
    assert found.sum() == pytest.approx(energy(model, engine, state.theta()), rel=1e-12)


def test_uneven_penalties_leave_the_callers_rows_alone():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3))
    for kind in (np.asarray, sparse.csr_array):
        rows = kind(X.copy())
        penalty = ElasticNet(np.array([0.1, 0.2, 0.3]), np.zeros(3))
        model = LinearModel(losses.Hinge(), 3, 1, True, False, penalty)
        run(Dual(), model, LocalEngine(rows, rng.integers(0, 2, 50).astype(float)), 3)
        dense = rows.toarray() if sparse.issparse(rows) else rows
        np.testing.assert_array_equal(dense, X)


@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Hinge()], ids=repr)
def test_threads_share_the_classes_and_change_nothing(loss):
    """Not a bit: a class is computed the same way in whatever part of its group."""
    model, engine = problem(loss)
    rows = next(engine.blocks(0))
    alone, _ = run(Dual(1e-4, 1), model, LocalEngine(rows.X, rows.y, rows.weight), 20)
    for n_jobs in (2, 3, 8):
        engine = LocalEngine(rows.X, rows.y, rows.weight, n_jobs=n_jobs)
        together, _ = run(Dual(1e-4, n_jobs), model, engine, 20)
        np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(
    "loss", [loss for loss in ALL if loss.name != "multiclass_hinge"], ids=lambda loss: loss.name
)
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "origin"])
def test_the_gap_is_no_less_than_the_distance(loss, fit_intercept):
    model, engine = problem(loss, fit_intercept)
    newton = Newton(1e-9)
    state = newton.init(model, engine)
    for _ in range(300):
        state, info = newton.step(state, engine)
        if info.converged:
            break
    best = energy(model, engine, state.theta)
    dual = Dual(0.0)
    state = dual.init(model, engine)
    for _ in range(60):
        state, info = dual.step(state, engine)
        if np.isfinite(info.gap):
            distance = energy(model, engine, state.theta()) - best
            assert info.gap >= distance - 1e-6 * abs(best)
            assert info.objective == pytest.approx(best + distance, rel=1e-9)


def test_an_intercept_that_is_still_on_its_way_counts_as_a_gap():
    """Targets far from zero: the weights are found long before the intercept is."""
    model, engine = problem(losses.SquaredError(), alpha=1.0)
    batch = next(iter(engine.blocks(0)))
    batch.y[:] += 1000.0
    newton = Newton(1e-12)
    best, _ = newton.step(newton.init(model, engine), engine)
    lowest = energy(model, engine, best.theta)
    dual = Dual(1e-3)
    state, info = dual.init(model, engine), None
    while not (info and info.converged):
        state, info = dual.step(state, engine)
        if np.isfinite(info.gap):
            assert info.gap >= energy(model, engine, state.theta()) - lowest - 1e-6 * lowest
    assert energy(model, engine, state.theta()) <= 1.001 * lowest


def test_rows_without_entries():
    """Nothing but an intercept to learn."""
    y = (np.arange(40) < 10).astype(float)
    penalty = ElasticNet(np.array([0.1, 0.1, 0.0]), np.zeros(3))
    for loss in ALL:
        classes = loss.task in ("binary", "multiclass")
        model = LinearModel(loss, 2, 2 if classes else 1, classes, True, penalty)
        theta, _ = run(Dual(1e-4), model, LocalEngine(sparse.csr_array((40, 2)), y), 200)
        assert np.isfinite(theta).all()
        assert not theta[:2].any()


@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Hinge(), losses.Softmax()], ids=repr)
def test_a_start_at_the_optimum_stays_there(loss):
    """Slopes at the optimum are its duals where the loss is smooth; kinks start from zero."""
    model, engine = problem(loss)
    theta, _ = run(Dual(1e-8), model, engine, 2000)
    dual = Dual(1e-8)
    near, _ = dual.step(dual.init(model, engine, theta), engine)
    cold, _ = dual.step(dual.init(model, engine), engine)
    best = energy(model, engine, theta)
    if loss.smooth:
        assert energy(model, engine, near.theta()) == pytest.approx(best, rel=1e-5)
    else:
        np.testing.assert_array_equal(near.theta(), cold.theta())


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_penalties_of_their_own_copy_no_data(kind):
    model, engine = problem(losses.LogLoss(), kind=kind)
    l2 = np.append(np.linspace(0.02, 0.4, 4), 0.0)
    uneven = LinearModel(model.loss, 4, 3, True, True, ElasticNet(l2, 0.0 * l2))
    state = Dual().init(uneven, engine)
    X = next(iter(engine.blocks(0))).X
    assert np.shares_memory(state.data.rows.data, X.data if sparse.issparse(X) else X)


@pytest.mark.parametrize("loss", ALL, ids=lambda loss: loss.name)
def test_rows_left_out_are_visited_again_until_the_gap_of_all_is_small(loss):
    """A tolerance that a few passes over all rows do not reach, without anything to reach it by."""
    model, engine = problem(loss, alpha=0.02)
    dual = Dual(1e-3)
    state, left_out = dual.init(model, engine), 0
    for _ in range(3000):
        state, info = dual.step(state, engine)
        left_out = max(left_out, int(np.count_nonzero(~state.active)))
        if info.converged:
            break
    assert info.converged
    assert info.gap <= 1e-3 * abs(info.objective)
    assert info.objective == pytest.approx(energy(model, engine, state.theta()), rel=1e-9)
    if loss.name == "hinge":  # rows beyond their margin have nothing to give
        assert left_out > 0


@pytest.mark.parametrize("uneven", [False, True], ids=["one strength", "many"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_frequent_columns_first_changes_nothing_but_memory(uneven, warm, monkeypatch):
    X = sparse.random_array((300, 40), density=0.1, format="csr", rng=np.random.default_rng(0))
    y = (np.arange(300) % 3).astype(float)
    l2 = np.append(np.linspace(0.01, 0.1, 40) if uneven else np.full(40, 0.02), 0.0)
    model = LinearModel(losses.LogLoss(), 40, 3, True, True, ElasticNet(l2, 0.0 * l2))
    start = np.random.default_rng(1).standard_normal((41, 3)) if warm else None
    found = []
    for size in (1 << 18, 0):
        monkeypatch.setattr("likelier.glm.dual_rows.CACHED_BYTES", size)
        dual, engine = Dual(1e-6), LocalEngine(X, y, seed=0)
        state = dual.init(model, engine, start)
        assert (state.data.label is None) == (size > 0)
        for _ in range(5):
            state, _ = dual.step(state, engine)
        found.append(state.theta())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("uneven", [False, True], ids=["one strength", "many"])
@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Hinge()], ids=repr)
def test_groups_of_classes_find_what_each_class_finds_alone(loss, uneven, monkeypatch):
    """Eleven classes: one group in two tables, or cut into parts of one for several threads."""
    monkeypatch.setattr("likelier.glm.dual_rows.CACHED_BYTES", 0)
    X = sparse.random_array((400, 30), density=0.2, format="csr", rng=np.random.default_rng(0))
    y = (np.arange(400) % 11).astype(float)
    l2 = np.append(np.full(30, 0.02), 0.0)
    l2[3:9] *= 7.0 if uneven else 1.0
    penalty = ElasticNet(l2, 0.0 * l2)
    model = LinearModel(loss, 30, 11, True, True, penalty)
    found = [run(Dual(1e-4, n), model, LocalEngine(X, y, seed=0), 300)[0] for n in (1, 2, 5)]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    alone = LinearModel(loss, 30, 1, True, True, penalty)
    for k in (0, 9):
        one_class = LocalEngine(X, np.where(y == k, 0.0, 1.0), seed=0)  # output 0 is class 0
        theta, _ = run(Dual(1e-4), alone, one_class, 1000)
        both = [energy(alone, one_class, point) for point in (theta, found[0][:, k : k + 1])]
        assert both[1] == pytest.approx(both[0], rel=2e-3)  # eleven classes share a tolerance


@pytest.mark.parametrize("kind", [sparse.csr_array, np.asarray], ids=["csr", "dense"])
@pytest.mark.parametrize("loss", [losses.LogLoss(), losses.Softmax()], ids=repr)
def test_a_warm_start_of_many_classes_works_in_all_layouts(loss, kind, monkeypatch):
    """Eleven classes, whose weights are in two tables, and twelve that a loss couples, in none."""
    monkeypatch.setattr("likelier.glm.dual_rows.CACHED_BYTES", 0)
    K = 12 if loss.coupled else 11
    rng = np.random.default_rng(0)
    X = kind(rng.standard_normal((300, 20)) * (rng.random((300, 20)) < 0.4))
    l2 = np.append(np.full(20, 0.05), 0.0)
    model = LinearModel(loss, 20, K, True, True, ElasticNet(l2, 0.0 * l2))
    engine = LocalEngine(X, (np.arange(300) % K).astype(float), seed=0)
    found, _ = run(Dual(1e-7), model, engine, 500)
    starts = [Dual(1e-7, n).init(model, engine, found) for n in (1, 3)]
    for state in starts:
        np.testing.assert_allclose(state.theta(), found, atol=1e-3)
        objectives = Dual.objectives(state)
        assert objectives.sum() == pytest.approx(energy(model, engine, found), rel=1e-4)
    np.testing.assert_array_equal(starts[0].theta(), starts[1].theta())


def test_borders_of_parts_are_those_of_groups_and_threads():
    def borders(n_outputs, n_jobs, loss=None):
        loss = loss or losses.Hinge()
        return _part_bounds(LinearModel(loss, 1, n_outputs, True, False, None), n_jobs)

    assert borders(12, 1) == [0, 12]  # eight and a few more are one group
    assert borders(13, 1) == [0, 6, 13]
    assert borders(12, 2) == [0, 6, 12]
    assert borders(20, 1) == borders(20, 2) == [0, 10, 20]
    assert borders(20, 3) == borders(20, 4) == [0, 5, 10, 15, 20]
    assert borders(25, 2) == [0, 8, 16, 20, 25]  # the odd group is shared
    assert borders(24, 2) == [0, 8, 16, 20, 24]
    assert borders(40, 3) == [0, 8, 16, 24, 28, 32, 36, 40]
    assert borders(3, 8) == [0, 1, 2, 3]
    assert borders(1, 2) == [0, 1]
    assert borders(20, 4, losses.Softmax()) == [0, 20]


@pytest.fixture
def wide(monkeypatch):
    """Sparse rows some of which are absent, and a problem with the settings of a large one."""
    monkeypatch.setattr("likelier.glm.dual_rows.CACHED_BYTES", 0)
    monkeypatch.setattr("likelier.glm.dual_rows.FEW_ROWS", 0)
    rng = np.random.default_rng(0)
    X = sparse.random_array((203, 30), density=0.2, format="csr", rng=rng)
    y, weight = (np.arange(203) % 3).astype(float), rng.integers(0, 3, 203).astype(float)
    l2 = np.append(np.full(30, 0.02), 0.0)
    return X, y, weight, LinearModel(losses.LogLoss(), 30, 3, True, True, ElasticNet(l2, 0.0 * l2))


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_pass_over_a_copy_visits_every_present_row_once(wide, shuffle):
    X, y, weight, _ = wide
    engine = LocalEngine(X, y, weight, seed=0, shuffle=shuffle)
    data = dual_rows(engine, None, 3, 2)
    orders = [data.order(engine, k) for k in range(3)]
    for order in orders:
        rows = np.sort(data.source[order])
        np.testing.assert_array_equal(rows, np.flatnonzero(weight))
    assert np.array_equal(orders[0], orders[1]) != shuffle
    if not shuffle:  # rows come as the caller gave them
        np.testing.assert_array_equal(data.source[orders[0]], np.flatnonzero(weight))


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_a_copy_holds_the_same_rows_with_other_columns(wide, n_jobs):
    X, y, weight, _ = wide
    rates = np.where(np.arange(30) % 7, 1.0, 3.0)
    data = dual_rows(LocalEngine(X, y, weight, seed=0, n_jobs=n_jobs), rates, 3, n_jobs)
    dense = X.toarray()[data.source]
    rows = sparse.csr_array((data.rows.data, data.rows.indices, data.rows.indptr), dense.shape)
    np.testing.assert_array_equal(rows.toarray()[:, data.label], dense)
    np.testing.assert_allclose(data.norms, (dense**2) @ rates)
    np.testing.assert_array_equal(data.rates, np.full(5, 3.0))
    counts = np.empty(30)
    counts[data.label] = (X != 0).sum(axis=0)
    assert (np.diff(counts[:25]) <= 0).all()  # the most frequent first
    digits = np.array([int(column).bit_length() for column in data.rows.indices])
    for start, stop in pairwise(data.rows.indptr):  # within a row too, by binary digits
        assert (np.diff(digits[start:stop]) >= 0).all()
    assert (np.diff(counts[25:]) <= 0).all()  # and so among those of another rate
    np.testing.assert_array_equal(data.y, y[data.source])
    np.testing.assert_array_equal(data.weight, weight[data.source])


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_runs_of_neighbours_reach_the_same_optimum(wide, warm, monkeypatch):
    X, y, weight, model = wide
    engine = LocalEngine(X, y, weight, seed=0)
    start = np.random.default_rng(1).standard_normal((31, 3)) if warm else None
    found = []
    for few in (0, 1 << 60):
        monkeypatch.setattr("likelier.glm.dual_rows.FEW_ROWS", few)
        dual = Dual(1e-7)
        state, info = dual.init(model, engine, start), None
        while not (info and info.converged):
            state, info = dual.step(state, engine)
        found.append(state.theta())
        assert info.objective == pytest.approx(energy(model, engine, state.theta()), rel=1e-9)
    np.testing.assert_allclose(found[0], found[1], rtol=2e-2, atol=2e-3)
