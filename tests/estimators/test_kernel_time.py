"""Time budgets of kernel machines: what is left out for want of time, by made-up paces."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine import class_fit as kernel_class_fit
from likelier.kernel_machine import estimator as kernel_words
from likelier.kernel_machine import number_expert_fit as kernel_number_experts
from likelier.kernel_machine import recipe as kernel_fit
from likelier.kernel_machine import regressor as kernel_regressor
from likelier.kernel_machine.pace import PROBE_ROWS, components_in_time


@pytest.fixture
def few_features(monkeypatch):
    """Make 32 features the fewest, and 64 those of many rows, so that the tests are quick."""
    for module in (kernel_words, kernel_fit):
        monkeypatch.setattr(module, "MIN_COMPONENTS", 32)
    monkeypatch.setattr(kernel_words, "MAX_COMPONENTS", 160)


def data(n=3000):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, X[:, 0] + np.sin(X[:, 1])


def clock_with(budget):
    return TimeBudget(SimpleNamespace(time_budget=budget), (None, None))


def never():
    raise AssertionError("nothing is tried out where nothing is left out")


def test_features_that_time_pays_for():
    assert components_in_time(clock_with(None), 1536, 512, 10**5, never) == 1536
    assert components_in_time(clock_with(1e9), 400, 512, 1600, never) == 400
    over = clock_with(1e-9)
    assert components_in_time(over, 1536, 512, 10**5, never) == 512 and over.cut
    found = []
    for budget in (1e9, 100.0, 30.0, 1.0):
        clock = clock_with(budget)
        count = components_in_time(clock, 1536, 512, 10**5, lambda: (0.1, 1e-3))
        spent = 0.3 * (count / 512) ** 3 + 4e-3 * count * (count / 512) ** 2
        assert count == 512 or spent <= 0.8 * budget
        assert clock.cut is (count < 1536)
        found.append(count)
    assert found == sorted(found, reverse=True)
    assert found[0] == 1536 and found[-1] == 512 and len(set(found)) > 2


def test_the_clock_says_what_does_not_fit():
    assert clock_with(None).allows(1e9)
    clock = clock_with(100.0)
    assert clock.allows(50.0) and not clock.cut
    assert not clock.allows(200.0) and clock.cut


@pytest.mark.usefixtures("few_features")
def test_a_slow_classifier_makes_fewer_features(monkeypatch):
    X, t = data()
    y = (t > 0.0).astype(int)
    monkeypatch.setattr(kernel_class_fit, "head_pace", lambda *_: 1.0)
    model = BayesianKernelClassifier(random_state=0, time_budget=600.0, warm_start=True).fit(X, y)
    assert model.n_components_ == 32 and model.unfinished_
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

    monkeypatch.setattr(kernel_number_experts, "EXPERTS_FROM", 1000)
    monkeypatch.setattr(kernel_number_experts, "sums_pace", lambda *_: 1.0)
    monkeypatch.setattr(kernel_number_experts.NumberCommon, "told", never)
    monkeypatch.setattr(kernel_regressor, "left_out", spy)
    model = BayesianKernelRegressor(random_state=0, time_budget=600.0).fit(X, y)
    assert seen == [(PROBE_ROWS // 2, 33)]
    assert model.experts_ == [{}] and model.score(X, y) > 0.9


@pytest.mark.usefixtures("few_features")
def test_a_slow_tube_learns_from_fewer_rows(monkeypatch):
    X, y = data()
    seen = []
    features = BayesianKernelRegressor._features

    def spy(self, engine, made, n_rows):
        seen.append((engine.n_rows, n_rows))
        return features(self, engine, made, n_rows)

    monkeypatch.setattr(kernel_number_experts, "head_pace", lambda *_: 1.0)
    monkeypatch.setattr(BayesianKernelRegressor, "_features", spy)
    words = {"random_state": 0, "time_budget": 600.0, "n_components": 32}
    BayesianKernelRegressor("epsilon_insensitive", **words).fit(X, y)
    assert seen == [(PROBE_ROWS, PROBE_ROWS)]


def test_the_noise_with_experts_is_not_learned_anew_when_time_is_over(monkeypatch):
    monkeypatch.setattr(kernel_number_experts, "experts_law", lambda *_: never())
    common = kernel_number_experts.NumberCommon(None, None, 1.0, 1.0, 0)
    stage = SimpleNamespace(common=common, experts=object(), clock=clock_with(1e-9))
    known = object()
    assert kernel_number_experts.NumberExperts._law_in_time(stage, None, known) is known
