"""Kernel fits with too short a time budget, resumed until they are complete.

The budget is over before a fit begins, so each one ends after the first piece that it can keep:
however fast a machine is, no fit does more, and none may do less.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.estimators.test_kernel_resume import data, fit, interrupted, make, saved, says

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting import time_budget
from likelier.kernel_machine import evidence
from likelier.kernel_machine import partial_sums as partial_sums
from likelier.kernel_machine import recipe as kernel_fit
from likelier.kernel_machine import search as kernel_search
from likelier.kernel_machine.experts import ClassExpertValidator
from likelier.kernel_machine.regression_experts import RegressionExpertValidator
from likelier.kernel_machine.softmax_weights import fit_output_weights
from likelier.kernel_machine.weights_state import SolverState

BOTH = [BayesianKernelClassifier, BayesianKernelRegressor]
MOST = 200  # fits, far more than there are pieces


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Use blocks of a hundred rows, so that a pass has several checkpoints."""
    for module in (kernel_fit, partial_sums):
        monkeypatch.setattr(module, "FIT_BLOCK_ROWS", 100)


def repeated(model, rows, step=lambda model: model):
    """Number of fits until completion. ``rows`` end with two targets, or with a stream."""
    for number in range(1, MOST):
        if len(rows) == 3:
            fit(model, *rows)
        else:
            model.fit(rows[1])
        assert np.isfinite(says(model, rows[0])).all()  # a model all the time
        if not model.checkpoint_:
            return number
        model = step(model)
    raise AssertionError("the fits do not come to an end")


def pieces(monkeypatch):
    """Results of resumed fits."""
    seen, pause = [], time_budget.TimeBudget.pause

    def spy(self):
        seen.append(sorted(self.kept))
        pause(self)

    monkeypatch.setattr(time_budget.TimeBudget, "pause", spy)
    return seen


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_particles": 3},
        {"n_components": "auto"},
        {"features": "fourier"},
        {"alpha": 0.05, "gamma": 0.5},
        {"n_experts": 0, "temperature": 2.0},
        {"n_experts": 4},
        pytest.param({"n_experts": 4, "n_particles": 2}, marks=pytest.mark.slow),
    ],
)
def test_fits_out_of_time_come_to_the_same_bits(kind, parameters):
    rows = data()
    whole = fit(make(kind, **parameters), *rows)
    model = make(kind, time_budget=1e-9, **parameters)
    least = 1 if "gamma" in parameters else 4  # few rows by a closed form are one piece
    assert repeated(model, rows) >= least
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize(
    ("kind", "loss"),
    [(BayesianKernelClassifier, "hinge"), (BayesianKernelRegressor, "epsilon_insensitive")],
)
def test_losses_with_kinks_come_to_the_same_bits(kind, loss):
    rows = data()
    whole = fit(make(kind, loss=loss, tol=1e-2), *rows)
    model = make(kind, loss=loss, tol=1e-2, time_budget=1e-9)
    repeated(model, rows)
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize("kind", BOTH)
def test_rows_held_out_and_a_start_from_a_sample(kind, monkeypatch, tmp_path):
    """Saved and loaded after every fit, too."""
    monkeypatch.setattr(kernel_fit, "HOLD_OUT_FROM", 100)
    monkeypatch.setattr(kernel_fit, "SAMPLE_ROWS", 150)
    rows = data()
    whole = fit(make(kind), *rows)
    model, last = make(kind, time_budget=1e-9), []

    def step(model):
        last[:] = [saved(model, tmp_path)]
        return last[0]

    repeated(model, rows, step)
    np.testing.assert_array_equal(says(last[0], rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize("kind", BOTH)
def test_parts_that_learn_their_own_scales(kind):
    """Fewer rows than ten for each scale."""
    X, y, t = data(60)
    rows = (np.column_stack([X, np.random.default_rng(1).normal(size=(60, 5))]), y, t)
    whole = fit(make(kind), *rows)
    model = make(kind, time_budget=1e-9)
    repeated(model, rows)
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"n_experts": 4},
        pytest.param({"n_experts": 4, "n_particles": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_stream_comes_to_the_same_bits(kind, parameters):
    X, y, t = data()
    target = y if kind is BayesianKernelClassifier else t
    blocks = [(X[i : i + 60], target[i : i + 60]) for i in range(0, 240, 60)]
    whole = make(kind, **parameters).fit(blocks)
    model = make(kind, time_budget=1e-9, **parameters)
    repeated(model, (X, blocks))
    np.testing.assert_array_equal(says(model, X), says(whole, X))


@pytest.mark.parametrize("kind", BOTH)
def test_experts_are_tried_choice_by_choice(kind, monkeypatch):
    rows = data()
    whole = fit(make(kind, n_experts=4), *rows)
    tried = []
    for judge in (ClassExpertValidator, RegressionExpertValidator):
        losses = judge.losses

        def spy(self, choice, losses=losses):
            tried.append(choice)
            return losses(self, choice)

        monkeypatch.setattr(judge, "losses", spy)
    model = make(kind, n_experts=4, time_budget=1e-9)
    repeated(model, rows)
    assert len(tried) == len(set(tried)) > 4
    np.testing.assert_array_equal(model.experts_[0]["weights"], whole.experts_[0]["weights"])


@pytest.mark.parametrize("kind", BOTH)
def test_every_fit_does_one_piece_and_none_is_done_twice(kind, monkeypatch):
    rows = data()
    whole = fit(make(kind), *rows)
    n_steps = whole._plan(240).n_steps
    climbed, climb = [], evidence.ascent_step

    def spy(*args):
        climbed.append(1)
        return climb(*args)

    monkeypatch.setattr(evidence, "ascent_step", spy)
    seen = pieces(monkeypatch)
    n_fits = repeated(make(kind, time_budget=1e-9), rows)
    assert len(climbed) == n_steps
    assert n_fits <= len(seen) + 2  # the first fit takes a step as well, the last one ends


def test_an_interrupted_fit_that_resumes_keeps_its_model(monkeypatch):
    rows = data()
    model = fit(make(BayesianKernelClassifier, time_budget=1e-9), *rows)
    before = says(model, rows[0])
    interrupted(monkeypatch, model, rows, evidence, "ascent_step", 1)
    np.testing.assert_array_equal(says(model, rows[0]), before)
    whole = fit(make(BayesianKernelClassifier), *rows)
    repeated(model, rows)
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


def test_a_model_in_between_is_made_where_a_stage_is_finished():
    rows = data()
    model = make(BayesianKernelClassifier, time_budget=1e-9)
    found = []

    def step(model):
        found.append((tuple(sorted(model.checkpoint_)), says(model, rows[0]).tobytes()))
        return model

    repeated(model, rows, step)
    models = [found[0]] + [b for a, b in pairwise(found) if a[1] != b[1]]
    assert 2 <= len(models) <= 3  # of few rows the last may be no other
    assert "search" not in models[0][0] and "search" in models[1][0]


def test_work_that_is_done_again_is_not_counted(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time_budget.time, "perf_counter", lambda: now)
    clock = time_budget.TimeBudget(make(BayesianKernelClassifier, time_budget=10.0), (None, None))
    clock.begin, clock.before, clock.thorough = 0.0, {"weights": {}}, True
    with clock.aside("weights"):
        now = 20.0
    clock.pause()
    with clock.aside("sums"):
        now = 40.0
    with pytest.raises(time_budget.OutOfTime):
        clock.pause()
    assert not clock.over and clock.left is None and clock.allows(1e9)


@pytest.mark.parametrize("sure", [False, True])
def test_a_search_for_weights_resumes_bit_identically(sure):
    rng = np.random.default_rng(0)
    Phi, codes = rng.normal(size=(200, 12)), rng.integers(0, 3, 200)
    loss = kernel_search.ClassLoss(3)
    reduce = kernel_search.in_memory_reduction(Phi, codes)
    prior = kernel_search.Prior(kernel_search.ridge(12, 0.1))
    problem = kernel_search.WeightProblem(
        reduce, kernel_search.stored_features, loss, prior, certify=sure
    )
    states = []
    whole = fit_output_weights(problem, np.zeros((12, 3)), 1e-9, 60, states.append)
    assert len(states) > 3
    for state in states:
        again = fit_output_weights(problem, SolverState.from_plain(state.to_plain()), 1e-9, 60)
        np.testing.assert_array_equal(again.W, whole.W)
        assert (again.values, again.n_iter) == (whole.values, whole.n_iter)
