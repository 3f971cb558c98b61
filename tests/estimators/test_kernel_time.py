"""Time budgets of kernel machines, with simulated costs."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting.monitor import Monitor
from likelier.fitting.rows import Rows
from likelier.kernel_machine import expert_fit, recipe, regression_task
from likelier.kernel_machine.budget import (
    MIN_ROWS,
    Size,
    affordable_rows,
    affordable_size,
)
from likelier.kernel_machine.class_task import ClassTask
from likelier.kernel_machine.regression_task import RegressionTask


@pytest.fixture
def few_features(monkeypatch):
    """Lower the limits of the number of features, for speed."""
    monkeypatch.setattr(recipe, "MIN_COMPONENTS", 32)
    monkeypatch.setattr(recipe, "MAX_COMPONENTS", 160)


def data(n=3000):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, X[:, 0] + np.sin(X[:, 1])


class Costs:
    """A task whose rows cost a millisecond each."""

    def row_seconds(self, feature_map, rows):
        return 1e-3


def never(*_):
    raise AssertionError("nothing is tried out where nothing is left out")


def size(budget, make_map=lambda n: (None, None), wanted=(1536, 512), n_rows=10**5):
    sample = Rows(np.zeros((600, 2)), np.zeros(600), None)
    monitor = Monitor(time_budget=budget)
    return affordable_size(sample, Costs(), make_map, wanted, n_rows, monitor, 1.0)


def test_features_and_rows_that_time_pays_for():
    assert size(None, never) == Size(1536, 10**5)
    assert size(1e9, wanted=(400, 400), n_rows=1600) == Size(400, 1600, pytest.approx(1e-3))
    assert size(1e-9) == Size(512, MIN_ROWS, pytest.approx(1e-3))
    found = []
    for budget in (1e9, 100.0, 30.0, 1.0):
        chosen = size(budget)
        count = chosen.n_components
        assert count == 512 or 4e-3 * count * (count / 512) ** 2 <= 0.8 * budget
        assert chosen.n_rows == MIN_ROWS or chosen.n_rows * chosen.row_seconds <= 0.8 * budget
        found.append(count)
    assert found == sorted(found, reverse=True)
    assert found[0] == 1536 and found[-1] == 512 and len(set(found)) > 2


def test_the_budget_rejects_what_does_not_fit():
    assert Monitor().allows(1e9)
    monitor = Monitor(time_budget=100.0)
    assert monitor.allows(50.0) and not monitor.allows(200.0)
    assert affordable_rows(Size(64, 10, 1.0), 10**4, monitor) == pytest.approx(80, abs=1)
    assert affordable_rows(Size(64, 10, 1.0), 10**4, Monitor()) == 10**4


@pytest.mark.usefixtures("few_features")
def test_a_slow_classifier_makes_fewer_features(monkeypatch):
    X, t = data()
    y = (t > 0.0).astype(int)
    monkeypatch.setattr(ClassTask, "row_seconds", lambda *_: 10.0)
    model = BayesianKernelClassifier(random_state=0, time_budget=600.0).fit(X, y)
    assert model.n_components_ == 32
    given = BayesianKernelClassifier(random_state=0, time_budget=600.0, n_components=40).fit(X, y)
    assert given.n_components_ == 40


@pytest.mark.usefixtures("few_features")
def test_a_slow_regression_learns_from_fewer_rows_and_tries_no_experts(monkeypatch):
    X, y = data()
    seen, learn = [], RegressionTask.learn

    def spy(self, problem, monitor):
        seen.append((problem.engine.n_rows, problem.map.n_features))
        return learn(self, problem, monitor)

    monkeypatch.setattr(RegressionTask, "min_expert_rows", 1000)
    monkeypatch.setattr(RegressionTask, "row_seconds", lambda *_: 10.0)
    monkeypatch.setattr(RegressionTask, "learn", spy)
    monkeypatch.setattr(expert_fit, "gather", never)
    model = BayesianKernelRegressor(random_state=0, time_budget=600.0).fit(X, y)
    assert seen == [(MIN_ROWS, 33)]
    assert model.n_experts_ == 0 and model.score(X, y) > 0.9


@pytest.mark.usefixtures("few_features")
def test_a_slow_tube_learns_from_fewer_rows(monkeypatch):
    X, y = data()
    seen, solver = [], regression_task.WeightSolver

    def spy(problem, tol):
        seen.append(problem.engine.n_rows)
        return solver(problem, tol)

    monkeypatch.setattr(RegressionTask, "row_seconds", lambda *_: 10.0)
    monkeypatch.setattr(regression_task, "WeightSolver", spy)
    parameters = {"random_state": 0, "time_budget": 600.0, "n_components": 32}
    BayesianKernelRegressor("epsilon_insensitive", **parameters).fit(X, y)
    assert seen == [MIN_ROWS]


@pytest.mark.parametrize("loss", ["gaussian", "epsilon_insensitive"])
def test_without_any_time_a_regression_still_depends_on_its_inputs(loss):
    X, y = data(600)
    model = BayesianKernelRegressor(loss, random_state=0, time_budget=1e-6).fit(X, y)
    assert model.score(X, y) > 0.8
