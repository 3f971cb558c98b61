"""Large fits of kernel machines: bounded memory and time, and resuming."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import likelier
from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting.moments import SUM_ROWS
from likelier.fitting.standardize import Standard
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine import class_fit as kernel_class_fit
from likelier.kernel_machine import cost_model as cost_model
from likelier.kernel_machine import expert_fit as kernel_experts
from likelier.kernel_machine import expert_stream as kernel_expert_stream
from likelier.kernel_machine import regression_stream as regression_stream
from likelier.kernel_machine import regressor as kernel_regressor
from likelier.kernel_machine.cost_model import MIN_ROWS, TIMED_ROWS, affordable_rows

BOARD = 6


@pytest.fixture(scope="module", autouse=True)
def few_are_many():
    """Lower the thresholds so that a few thousand rows count as many."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (kernel_experts, kernel_expert_stream):
            patch.setattr(module, "MIN_EXPERT_ROWS", 2000)
        patch.setattr(kernel_experts, "ROWS_PER_EXPERT", 300)
        patch.setattr(kernel_experts, "MAX_LANDMARKS", 64)
        patch.setattr("likelier.kernel_machine.estimator.MIN_COMPONENTS", 64)
        patch.setattr("likelier.kernel_machine.estimator.MAX_COMPONENTS", 64)
        yield


@pytest.fixture(scope="module")
def rows():
    """A checkerboard."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, BOARD, (3600, 2)).astype(np.float32)
    y = np.where(np.floor(X).sum(axis=1).astype(int) % 2, "white", "black")
    return X[:2600], y[:2600], X[2600:], y[2600:]


@pytest.fixture(scope="module")
def whole(rows, few_are_many):
    return BayesianKernelClassifier(random_state=0).fit(rows[0], rows[1])


@pytest.fixture
def interrupted(rows, monkeypatch):
    """A model whose fit was interrupted at the fourth expert."""
    with monkeypatch.context() as patch:
        learn = kernel_experts.ExpertFit.store

        def keep(self, solution):
            if solution.expert == 3:
                raise KeyboardInterrupt
            learn(self, solution)

        patch.setattr(kernel_experts.ExpertFit, "store", keep)
        model = BayesianKernelClassifier(random_state=0, warm_start=True)
        with pytest.raises(KeyboardInterrupt):
            model.fit(rows[0], rows[1])
    return model


def same_bits(a, b, X):
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    for name in ("weights", "roots", "counts", "landmarks"):
        np.testing.assert_array_equal(a.experts_[0][name], b.experts_[0][name])


# -- resuming -------------------------------------------------------------------------------
def test_an_interrupted_fit_resumes_bit_identically(rows, whole, interrupted, tmp_path):
    X, y, X_test, _ = rows
    assert interrupted.checkpoint_ and not whole.checkpoint_
    assert 0 < interrupted.experts_[0]["counts"].sum() < len(y)
    likelier.save(interrupted, tmp_path / "part.likelier")
    saved = likelier.load(tmp_path / "part.likelier")
    for model in (interrupted, saved):  # also in another process
        model.fit(X, y)
        assert model.checkpoint_ == {}
        same_bits(model, whole, X_test)


def test_without_warm_start_a_fit_starts_anew(rows, whole, interrupted):
    X, y, X_test, _ = rows
    same_bits(interrupted.set_params(warm_start=False).fit(X, y), whole, X_test)


def test_an_interruption_while_experts_are_chosen_keeps_the_global_model(rows, monkeypatch):
    X, y, X_test, y_test = rows

    def interrupt(*_):
        raise KeyboardInterrupt

    model = BayesianKernelClassifier(random_state=0, warm_start=True)
    with monkeypatch.context() as patch:
        patch.setattr(kernel_experts, "choose_experts", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    before = model.score(X_test, y_test)
    assert model.experts_ == [{}]
    weights = model.weights_[0].copy()
    model.fit(X, y)
    np.testing.assert_array_equal(model.weights_[0], weights)
    assert model.checkpoint_ == {} and model.experts_[0]["counts"].sum() == len(y)
    assert model.score(X_test, y_test) > before


def test_a_fit_out_of_time_resumes_without_a_budget(rows):
    X, y, X_test, y_test = rows
    model = BayesianKernelClassifier(random_state=0, time_budget=1e-9, warm_start=True).fit(X, y)
    assert model.experts_ == [{}] and model.checkpoint_
    model.fit(X, y)  # still no time: no change
    assert model.experts_ == [{}] and model.checkpoint_
    before = model.score(X_test, y_test)
    model.set_params(time_budget=None).fit(X, y)
    assert model.checkpoint_ == {}
    assert model.score(X_test, y_test) > before + 0.1


def test_other_rows_are_refused(rows, interrupted):
    X, y, X_test, _ = rows
    before = interrupted.predict_proba(X_test)
    with pytest.raises(ValueError, match="resumes an interrupted fit and needs the same"):
        interrupted.fit(X[:-1], y[:-1])
    with pytest.raises(ValueError, match="resumes an interrupted fit and needs the same"):
        interrupted.fit(X, np.where(np.arange(len(y)) < 5, "grey", y))
    with pytest.raises(ValueError, match="X of the same kind, rows in memory"):
        interrupted.fit([(X, y)])
    np.testing.assert_array_equal(interrupted.predict_proba(X_test), before)


# -- memory ---------------------------------------------------------------------------------
def test_a_region_of_many_rows_is_learned_in_parts(rows, whole, monkeypatch):
    X, y, X_test, y_test = rows
    sizes = []
    absorb = kernel_experts.absorb_rows

    def spy(region, *rest):
        sizes.append(region.n)
        return absorb(region, *rest)

    monkeypatch.setattr(kernel_experts, "MAX_PART_ROWS", 150)
    monkeypatch.setattr(kernel_experts, "absorb_rows", spy)
    parts = BayesianKernelClassifier(random_state=0).fit(X, y)
    assert sizes and max(sizes) <= 150
    np.testing.assert_array_equal(parts.experts_[0]["counts"], whole.experts_[0]["counts"])
    assert abs(parts.score(X_test, y_test) - whole.score(X_test, y_test)) < 0.03
    assert np.abs(parts.predict_proba(X_test) - whole.predict_proba(X_test)).mean() < 0.05


def test_many_single_rows_are_not_copied_in_double():
    X = np.random.default_rng(0).normal(1e3, 1.0, (3 * SUM_ROWS + 17, 8)).astype(np.float32)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    tracemalloc.start()
    found = Standard.of(X, weight)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes  # a copy in double precision would be twice that
    mean = weight @ X.astype(np.float64) / weight.sum()
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13)
    spread = np.sqrt(weight @ (X - mean) ** 2 / weight.sum())
    np.testing.assert_allclose(found.spread(), spread, rtol=1e-9)


# -- time -----------------------------------------------------------------------------------
def test_rows_that_time_pays_for():
    clock = TimeBudget(SimpleNamespace(time_budget=None), (None, None))
    assert clock.left is None and affordable_rows(clock, 10**6, 1.0) == 10**6
    clock.estimator.time_budget = 100.0
    assert 99.0 < clock.left <= 100.0
    assert affordable_rows(clock, 10**6, 1e-3) == pytest.approx(80_000, rel=0.01)
    assert affordable_rows(clock, 10**6, 1e-3, 0.5) == pytest.approx(50_000, rel=0.01)
    assert affordable_rows(clock, 10**6, 1e-9) == 10**6
    assert affordable_rows(clock, 10**6, 10.0) == MIN_ROWS
    clock.estimator.time_budget = 1e-9
    assert clock.left == 0.0 and clock.over


@pytest.mark.parametrize("n_experts", [0, "auto"])
def test_a_slow_machine_learns_weights_from_fewer_rows(rows, monkeypatch, n_experts):
    X, y, X_test, _ = rows
    seen = []
    learn = kernel_class_fit.ClassFit._learn_weights

    def spy(self, engine, prepared, part, n_rows, clock):
        seen.append((engine.n_rows, n_rows))
        return learn(self, engine, prepared, part, n_rows, clock)

    monkeypatch.setattr(kernel_class_fit, "weights_cost", lambda *_: 1.0)
    monkeypatch.setattr(kernel_class_fit.ClassFit, "_learn_weights", spy)
    model = BayesianKernelClassifier(random_state=0, time_budget=600.0, n_experts=n_experts)
    model.fit(X, y)
    assert seen == [(MIN_ROWS, MIN_ROWS)]
    assert np.isfinite(model.predict_proba(X_test)).all()


def test_a_slow_machine_regresses_on_fewer_rows(rows, monkeypatch):
    X = rows[0]
    y = np.sin(X[:, 0].astype(np.float64))
    seen = []
    solve = kernel_regressor.solve_weights

    def spy(sums, ratio):
        seen.append(sums.weight)
        return solve(sums, ratio)

    monkeypatch.setattr(kernel_regressor, "solve_weights", spy)
    model = BayesianKernelRegressor(random_state=0, time_budget=600.0)
    with monkeypatch.context() as patch:
        patch.setattr(regression_stream, "sums_cost", lambda *_: 1.0)
        assert model.fit(X, y).score(X, y) > 0.9
    assert seen == [MIN_ROWS / 2]
    plenty = BayesianKernelRegressor(random_state=0, time_budget=600.0).fit(X, y)
    free = BayesianKernelRegressor(random_state=0).fit(X, y)
    np.testing.assert_array_equal(plenty.predict(X), free.predict(X))


def test_the_pace_is_measured(rows, monkeypatch):
    """Half the speed gives twice the seconds."""
    X, y = rows[0], (rows[1] == "white").astype(np.int64)
    sample = cost_model.Rows(X, y, None)
    model = BayesianKernelClassifier(random_state=0, n_experts=0, gamma=1.0).fit(X, y)
    made = model._fitted_posterior().machines[0].map
    now = 0.0

    def tick():
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr(cost_model.time, "perf_counter", tick)
    head = cost_model.weights_cost(made, sample, model._class_loss())
    assert head == pytest.approx((1 + 8 + 4) / TIMED_ROWS)
    # features, and the slower of adding rows to the sums and leaving them out
    assert cost_model.sums_cost(made, sample) == pytest.approx(2 / TIMED_ROWS)
