"""Time budgets of kernel machines, with simulated costs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine import class_fit as kernel_class_fit
from likelier.kernel_machine import estimator as kernel_estimator
from likelier.kernel_machine import recipe as kernel_fit
from likelier.kernel_machine import regression_expert_fit as regression_expert_fit
from likelier.kernel_machine import regressor as kernel_regressor
from likelier.kernel_machine.cost_model import MIN_ROWS, affordable_components


@pytest.fixture
def few_features(monkeypatch):
    """Lower the limits of the number of features, for speed."""
    for module in (kernel_estimator, kernel_fit):
        monkeypatch.setattr(module, "MIN_COMPONENTS", 32)
    monkeypatch.setattr(kernel_estimator, "MAX_COMPONENTS", 160)


def data(n=3000):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, X[:, 0] + np.sin(X[:, 1])


def clock_with(budget):
    return TimeBudget(SimpleNamespace(time_budget=budget), (None, None))


def never():
    raise AssertionError("nothing is tried out where nothing is left out")


def test_features_that_time_pays_for():
    assert affordable_components(clock_with(None), 1536, 512, 10**5, never) == 1536
    assert affordable_components(clock_with(1e9), 400, 512, 1600, never) == 400
    over = clock_with(1e-9)
    assert affordable_components(over, 1536, 512, 10**5, never) == 512 and over.cut
    found = []
    for budget in (1e9, 100.0, 30.0, 1.0):
        clock = clock_with(budget)
        count = affordable_components(clock, 1536, 512, 10**5, lambda: (0.1, 1e-3))
        spent = 0.3 * (count / 512) ** 3 + 4e-3 * count * (count / 512) ** 2
        assert count == 512 or spent <= 0.8 * budget
        assert clock.cut is (count < 1536)
        found.append(count)
    assert found == sorted(found, reverse=True)
    assert found[0] == 1536 and found[-1] == 512 and len(set(found)) > 2


def test_the_budget_rejects_what_does_not_fit():
    assert clock_with(None).allows(1e9)
    clock = clock_with(100.0)
    assert clock.allows(50.0) and not clock.cut
    assert not clock.allows(200.0) and clock.cut


@pytest.mark.usefixtures("few_features")
def test_a_slow_classifier_makes_fewer_features(monkeypatch):
    X, t = data()
    y = (t > 0.0).astype(int)
    monkeypatch.setattr(kernel_class_fit, "weights_cost", lambda *_: 1.0)
    model = BayesianKernelClassifier(random_state=0, time_budget=600.0, warm_start=True).fit(X, y)
    assert model.n_components_ == 32 and model.checkpoint_
    given = BayesianKernelClassifier(random_state=0, time_budget=600.0, n_components=40).fit(X, y)
    assert given.n_components_ == 40


@pytest.mark.usefixtures("few_features")
def test_a_slow_regression_tries_no_experts_and_leaves_few_rows_out(monkeypatch):
    X, y = data()
    seen = []
    left_out = kernel_regressor.left_out

    def spy(weights, Phi, *rest):
        seen.append(Phi.shape)
        return left_out(weights, Phi, *rest)

    monkeypatch.setattr(regression_expert_fit, "MIN_EXPERT_ROWS", 1000)
    monkeypatch.setattr(regression_expert_fit, "sums_cost", lambda *_: 1.0)
    monkeypatch.setattr(regression_expert_fit.GlobalRegression, "loo_columns", never)
    monkeypatch.setattr(kernel_regressor, "left_out", spy)
    model = BayesianKernelRegressor(random_state=0, time_budget=600.0).fit(X, y)
    assert seen == [(MIN_ROWS // 2, 33)]
    assert model.experts_ == [{}] and model.score(X, y) > 0.9


@pytest.mark.usefixtures("few_features")
def test_a_slow_tube_learns_from_fewer_rows(monkeypatch):
    X, y = data()
    seen = []
    features = BayesianKernelRegressor._features

    def spy(self, engine, made, n_rows):
        seen.append((engine.n_rows, n_rows))
        return features(self, engine, made, n_rows)

    monkeypatch.setattr(regression_expert_fit, "weights_cost", lambda *_: 1.0)
    monkeypatch.setattr(BayesianKernelRegressor, "_features", spy)
    parameters = {"random_state": 0, "time_budget": 600.0, "n_components": 32}
    BayesianKernelRegressor("epsilon_insensitive", **parameters).fit(X, y)
    assert seen == [(MIN_ROWS, MIN_ROWS)]


def test_the_noise_with_experts_is_not_relearned_when_time_is_over(monkeypatch):
    monkeypatch.setattr(regression_expert_fit, "expert_noise", lambda *_: never())
    common = regression_expert_fit.GlobalRegression(None, None, 1.0, 1.0, 0)
    stage = SimpleNamespace(global_model=common, experts=object(), budget=clock_with(1e-9))
    known = object()
    assert regression_expert_fit.RegressionExperts._noise_in_time(stage, None, known) is known
