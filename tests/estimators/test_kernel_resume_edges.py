"""Kernel fits that go on: what must be told apart, and what must not get lost."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.estimators.test_kernel_resume import (
    KINDS,
    PARTICLES,
    Number,
    Walk,
    data,
    fit,
    interrupt_at,
    interrupted,
    make,
    says,
)

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine import recipe as kernel_fit
from likelier.kernel_machine import search as kernel_search
from likelier.kernel_machine.expert_fit import ExpertFit
from likelier.kernel_machine.particle_course import Course, Looked
from likelier.kernel_machine.resume import parameters_of

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
    before = parameters_of(model)
    with np.printoptions(precision=2, threshold=3, linewidth=30):
        assert parameters_of(model) == before
    other = gamma.copy()
    other[600] *= 1.0 + 1e-12
    assert parameters_of(BayesianKernelClassifier(gamma=other)) != before


def test_other_words_are_refused_among_experts_too(monkeypatch):
    rows = data()
    model = make(BayesianKernelClassifier, n_experts=4)
    interrupted(monkeypatch, model, rows, ExpertFit, "keep", 2)
    for words in ({"alpha": 5.0}, {"n_experts": 8}):
        with pytest.raises(ValueError, match="words of the constructor"):
            fit(model.set_params(**words), *rows)
        model.set_params(alpha="auto", n_experts=4)
    fit(model, *rows)
    assert model.unfinished_ == {}


@pytest.mark.parametrize("kind", BOTH)
def test_weights_after_a_climb_that_was_cut_are_not_taken_up(kind):
    """They belong to other scales, also where the penalty is the same."""
    rows = data()
    whole = fit(make(kind, alpha=0.05), *rows)
    model = fit(make(kind, alpha=0.05, time_budget=1e-9), *rows)
    assert "weights" not in model.unfinished_
    fit(model.set_params(time_budget=None), *rows)
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


def out_of_time(monkeypatch, name, at):
    """Let the time be over when the clock is told so, and not before."""
    call = getattr(TimeBudget, name)

    def spy(self, stage, *args, **words):
        over = call(self, stage, *args, **words)
        if not at(stage, *args):
            return over
        self.cut = True
        return True

    monkeypatch.setattr(TimeBudget, name, spy)


def test_time_that_ends_with_the_last_thing_to_do_cuts_nothing(monkeypatch):
    X, _, t = data()
    out_of_time(monkeypatch, "tick", lambda stage, *_: stage == "weights")
    assert make(BayesianKernelRegressor).fit(X, t).unfinished_ == {}


@pytest.mark.parametrize("inference", KINDS)
def test_time_that_ends_with_the_last_update_cuts_nothing(inference, monkeypatch):
    X, y, _ = data()
    out_of_time(
        monkeypatch, "progress", lambda stage, share, *_: stage != "evidence" and share == 1.0
    )
    model = make(BayesianKernelClassifier, inference=inference, **PARTICLES).fit(X, y)
    assert model.unfinished_ == {}
    assert model.converged_


@pytest.mark.parametrize("inference", KINDS)
def test_the_objective_of_particles_is_known_after_the_last_update(inference, monkeypatch):
    X, y, _ = data()
    words = {"inference": inference, **PARTICLES}
    whole = make(BayesianKernelClassifier, **words).fit(X, y)
    model, call = make(BayesianKernelClassifier, **words), TimeBudget.progress

    def spy(self, stage, share, *args, **more):
        if share == 1.0 and stage not in ("evidence", "held out"):
            raise KeyboardInterrupt
        return call(self, stage, share, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(TimeBudget, "progress", spy)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    model.fit(X, y)
    assert model.objective_ == whole.objective_


@pytest.mark.parametrize("look", [1, 3, 10, 46])
def test_an_interrupted_look_at_rows_held_out_is_made_up(look, monkeypatch):
    def likelihoods(self):
        return np.full(50, [-3.0, -2.0, -1.0][min(self.state // 10, 3) - 1])

    def end(course):
        while not course.done:
            course.step(SimpleNamespace(in_memory=True))
        return course

    def begun():
        return Course(Walk(), Number(0), 1e-3, held=SimpleNamespace(weight=None))

    monkeypatch.setattr(Course, "log_likelihoods", likelihoods)
    whole, course = end(begun()), begun()
    with monkeypatch.context() as patch:
        interrupt_at(patch, Course, "log_likelihoods", look)
        with pytest.raises(KeyboardInterrupt):
            end(course)
    assert not course.done
    end(course)
    assert course.state == whole.state
    assert (course.waited, course.settling, course.stopped) == (
        whole.waited, whole.settling, whole.stopped
    )  # fmt: skip


def test_few_heavy_rows_held_out_prove_little():
    """Two of them disagree: the mean is far from zero, and so is its error."""
    weight, loss = np.ones(60), np.zeros(60)
    weight[:2], loss[:2] = 100.0, (1.0, -0.5)
    course = Course(Walk(), Number(0), 1e-3, held=SimpleNamespace(weight=weight))
    course.best, course.latest = Looked(0.0, loss, None), Looked(0.0, 0.0 * loss, None)
    assert not course._is_worse()
    course.best = Looked(0.0, np.linspace(0.9, 1.1, 60), None)
    assert course._is_worse()
