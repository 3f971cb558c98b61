"""Kernel fits that go on: what must be told apart, and what must not get lost."""

from __future__ import annotations

import numpy as np
import pytest
from tests.estimators.test_kernel_resume import data, fit, interrupted, make, says

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.estimators import kernel_fit
from likelier.estimators.kernel_resume import words_of
from likelier.inference import kernel_search

BOTH = [BayesianKernelClassifier, BayesianKernelRegressor]


@pytest.mark.parametrize("kind", BOTH)
def test_experts_out_of_time_before_their_stage_begin_with_what_came_before(kind):
    rows = data()
    whole = fit(make(kind, n_experts=2), *rows)
    model = fit(make(kind, n_experts=2, time_budget=1e-9), *rows)
    assert "words" in model.unfinished_
    fit(model.set_params(time_budget=None), *rows)
    assert model.unfinished_ == {}
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


def test_an_ample_budget_leaves_out_no_rows(monkeypatch):
    """More rows than the sample start from its weights, which are paid for beside them."""
    monkeypatch.setattr(kernel_fit, "SAMPLE_ROWS", 100)
    X, y, t = data()
    words = {"features": "fourier", "warm_start": False}
    without = fit(make(BayesianKernelClassifier, **words), X, y, t)
    ample = fit(make(BayesianKernelClassifier, time_budget=1e9, **words), X, y, t)
    assert ample.unfinished_ == {}
    np.testing.assert_array_equal(says(ample, X), says(without, X))


@pytest.mark.parametrize("other", ["fewer inputs", "other inputs", "weights"])
def test_other_inputs_and_weights_are_refused(other, monkeypatch):
    X, y, t = data()
    model = make(BayesianKernelClassifier)
    interrupted(monkeypatch, model, (X, y, t), kernel_search.Judge, "losses", 1)
    left = model.unfinished_
    weight = np.linspace(0.5, 2.0, len(y)) if other == "weights" else None
    given = {"fewer inputs": X[:, :1], "other inputs": X + 1.0, "weights": X}[other]
    with pytest.raises(ValueError, match="X or sample_weight is another"):
        model.fit(given, y, sample_weight=weight)
    assert model.unfinished_ is left
    model.fit(X, y)
    assert model.unfinished_ == {}


def test_a_fit_that_fails_at_once_loses_nothing(monkeypatch):
    rows = data()
    model = make(BayesianKernelClassifier)
    interrupted(monkeypatch, model, rows, kernel_search.Judge, "losses", 1)
    left = model.unfinished_
    with pytest.raises(FileNotFoundError):
        model.fit("no-such-file.csv", "y")
    assert model.unfinished_ is left
    interrupted(monkeypatch, model, rows, kernel_fit.Standard, "of", 1)
    assert model.unfinished_ is left


def test_words_of_arrays_are_whole_whatever_is_printed():
    gamma = np.linspace(0.1, 1.0, 1200)
    model = BayesianKernelClassifier(gamma=gamma)
    before = words_of(model)
    with np.printoptions(precision=2, threshold=3, linewidth=30):
        assert words_of(model) == before
    other = gamma.copy()
    other[600] *= 1.0 + 1e-12
    assert words_of(BayesianKernelClassifier(gamma=other)) != before
