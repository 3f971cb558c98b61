"""Edge cases of resuming kernel fits."""

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
from likelier.kernel_machine.particle_training import Evaluation, ParticleTraining
from likelier.kernel_machine.resume import parameters_of

BOTH = [BayesianKernelClassifier, BayesianKernelRegressor]


@pytest.mark.parametrize("kind", BOTH)
def test_experts_out_of_time_before_their_stage_resume_before_it(kind):
    rows = data()
    whole = fit(make(kind, n_experts=2), *rows)
    model = fit(make(kind, n_experts=2, time_budget=1e-9), *rows)
    assert "parameters" in model.checkpoint_
    fit(model.set_params(time_budget=None), *rows)
    assert model.checkpoint_ == {}
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


def test_an_ample_budget_leaves_out_no_rows(monkeypatch):
    """Larger fits start from weights of the sample, at an extra cost."""
    monkeypatch.setattr(kernel_fit, "SAMPLE_ROWS", 100)
    X, y, t = data()
    parameters = {"features": "fourier", "warm_start": False}
    without = fit(make(BayesianKernelClassifier, **parameters), X, y, t)
    ample = fit(make(BayesianKernelClassifier, time_budget=1e9, **parameters), X, y, t)
    assert ample.checkpoint_ == {}
    np.testing.assert_array_equal(says(ample, X), says(without, X))


@pytest.mark.parametrize("other", ["fewer inputs", "other inputs", "weights"])
def test_other_inputs_and_weights_are_refused(other, monkeypatch):
    X, y, t = data()
    model = make(BayesianKernelClassifier)
    interrupted(monkeypatch, model, (X, y, t), kernel_search.ClassValidator, "losses", 1)
    left = model.checkpoint_
    weight = np.linspace(0.5, 2.0, len(y)) if other == "weights" else None
    given = {"fewer inputs": X[:, :1], "other inputs": X + 1.0, "weights": X}[other]
    with pytest.raises(ValueError, match="X or sample_weight has changed"):
        model.fit(given, y, sample_weight=weight)
    assert model.checkpoint_ is left
    model.fit(X, y)
    assert model.checkpoint_ == {}


def test_a_fit_that_fails_at_once_loses_nothing(monkeypatch):
    rows = data()
    model = make(BayesianKernelClassifier)
    interrupted(monkeypatch, model, rows, kernel_search.ClassValidator, "losses", 1)
    left = model.checkpoint_
    with pytest.raises(FileNotFoundError):
        model.fit("no-such-file.csv", "y")
    assert model.checkpoint_ is left
    interrupted(monkeypatch, model, rows, kernel_fit.Standard, "of", 1)
    assert model.checkpoint_ is left


def test_array_parameters_are_compared_in_full():
    gamma = np.linspace(0.1, 1.0, 1200)
    model = BayesianKernelClassifier(gamma=gamma)
    before = parameters_of(model)
    with np.printoptions(precision=2, threshold=3, linewidth=30):
        assert parameters_of(model) == before
    other = gamma.copy()
    other[600] *= 1.0 + 1e-12
    assert parameters_of(BayesianKernelClassifier(gamma=other)) != before


def test_changed_parameters_are_refused_with_experts_too(monkeypatch):
    rows = data()
    model = make(BayesianKernelClassifier, n_experts=4)
    interrupted(monkeypatch, model, rows, ExpertFit, "store", 2)
    for parameters in ({"alpha": 5.0}, {"n_experts": 8}):
        with pytest.raises(ValueError, match="constructor parameters have changed"):
            fit(model.set_params(**parameters), *rows)
        model.set_params(alpha="auto", n_experts=4)
    fit(model, *rows)
    assert model.checkpoint_ == {}


@pytest.mark.parametrize("kind", BOTH)
def test_weights_after_a_truncated_ascent_are_not_resumed(kind):
    """They belong to other scales, even if the penalty is the same."""
    rows = data()
    whole = fit(make(kind, alpha=0.05), *rows)
    model = fit(make(kind, alpha=0.05, time_budget=1e-9), *rows)
    assert "weights" not in model.checkpoint_
    fit(model.set_params(time_budget=None), *rows)
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


def out_of_time(monkeypatch, name, at):
    """Simulate a time budget that ends on request."""
    call = getattr(TimeBudget, name)

    def spy(self, stage, *args, **parameters):
        over = call(self, stage, *args, **parameters)
        if not at(stage, *args):
            return over
        self.cut = True
        return True

    monkeypatch.setattr(TimeBudget, name, spy)


def test_time_that_ends_with_the_last_step_truncates_nothing(monkeypatch):
    X, _, t = data()
    out_of_time(monkeypatch, "tick", lambda stage, *_: stage == "weights")
    assert make(BayesianKernelRegressor).fit(X, t).checkpoint_ == {}


@pytest.mark.parametrize("inference", KINDS)
def test_time_that_ends_with_the_last_update_truncates_nothing(inference, monkeypatch):
    X, y, _ = data()
    out_of_time(
        monkeypatch, "progress", lambda stage, share, *_: stage != "evidence" and share == 1.0
    )
    model = make(BayesianKernelClassifier, inference=inference, **PARTICLES).fit(X, y)
    assert model.checkpoint_ == {}
    assert model.converged_


@pytest.mark.parametrize("inference", KINDS)
def test_the_objective_of_particles_is_known_after_the_last_update(inference, monkeypatch):
    X, y, _ = data()
    parameters = {"inference": inference, **PARTICLES}
    whole = make(BayesianKernelClassifier, **parameters).fit(X, y)
    model, call = make(BayesianKernelClassifier, **parameters), TimeBudget.progress

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
        return ParticleTraining(Walk(), Number(0), 1e-3, held=SimpleNamespace(weight=None))

    monkeypatch.setattr(ParticleTraining, "log_likelihoods", likelihoods)
    whole, course = end(begun()), begun()
    with monkeypatch.context() as patch:
        interrupt_at(patch, ParticleTraining, "log_likelihoods", look)
        with pytest.raises(KeyboardInterrupt):
            end(course)
    assert not course.done
    end(course)
    assert course.state == whole.state
    assert (course.stale_steps, course.decaying, course.stopped) == (
        whole.stale_steps, whole.decaying, whole.stopped
    )  # fmt: skip


def test_few_heavy_rows_held_out_prove_little():
    """Two rows disagree: both the mean and its standard error are large."""
    weight, loss = np.ones(60), np.zeros(60)
    weight[:2], loss[:2] = 100.0, (1.0, -0.5)
    course = ParticleTraining(Walk(), Number(0), 1e-3, held=SimpleNamespace(weight=weight))
    course.best, course.latest = Evaluation(0.0, loss, None), Evaluation(0.0, 0.0 * loss, None)
    assert not course._is_worse()
    course.best = Evaluation(0.0, np.linspace(0.9, 1.1, 60), None)
    assert course._is_worse()
