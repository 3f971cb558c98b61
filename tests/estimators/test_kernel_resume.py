"""Resuming interrupted and timed-out kernel fits, and early stopping."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import likelier
from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.base import Info
from likelier.fitting.rows import Rows
from likelier.kernel_machine import evidence
from likelier.kernel_machine import particle_training as particle_training
from likelier.kernel_machine import regression as kernel_regression
from likelier.kernel_machine import search as kernel_search
from likelier.kernel_machine import softmax_weights as softmax_weights
from likelier.kernel_machine.particle_training import PATIENCE, UPDATES_PER_STEP, ParticleTraining
from likelier.kernel_machine.stein_gaussian import SteinGaussian
from likelier.kernel_machine.svgd import SVGD

KINDS = ["svgd", "stein_gaussian"]
PARTICLES = {"n_components": 16, "n_particles": 3, "max_iter": 6}


def data(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1]
    y = np.where(f + 0.3 * rng.normal(size=n) > 0.0, "up", "down")
    return X, y, f + 0.3 * rng.normal(size=n)


def make(kind, **parameters):
    return kind(**({"random_state": 0, "warm_start": True, "n_components": 40} | parameters))


def fit(model, X, y, t):
    return model.fit(X, y if isinstance(model, BayesianKernelClassifier) else t)


def interrupt_at(monkeypatch, place, name, number):
    """Interrupt call ``number`` of a function; returns the list of calls."""
    calls, call = [], getattr(place, name)

    def spy(*args, **parameters):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return call(*args, **parameters)

    monkeypatch.setattr(place, name, spy)
    return calls


def interrupted(monkeypatch, model, rows, place, name, number):
    with monkeypatch.context() as patch:
        interrupt_at(patch, place, name, number)
        with pytest.raises(KeyboardInterrupt):
            fit(model, *rows)
    return model


def saved(model, folder):
    likelier.save(model, folder / "part.likelier")
    return likelier.load(folder / "part.likelier")


def says(model, X):
    if isinstance(model, BayesianKernelClassifier):
        return model.predict_proba(X)
    return np.column_stack([model.predict(X, return_std=True)])


# -- by the evidence ------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [BayesianKernelClassifier, BayesianKernelRegressor])
@pytest.mark.parametrize("step", [1, 7, 20])
def test_an_ascent_resumes_bit_identically(kind, step, monkeypatch, tmp_path):
    rows = data()
    whole = fit(make(kind), *rows)
    model = interrupted(monkeypatch, make(kind), rows, evidence, "ascent_step", step)
    assert not hasattr(model, "maps_")
    assert model.checkpoint_.get("evidence", {"step": 0})["step"] == step - 1
    for again in (saved(model, tmp_path), model):  # also in another process
        with monkeypatch.context() as patch:
            calls = interrupt_at(patch, evidence, "ascent_step", 0)
            fit(again, *rows)
        assert len(calls) == model._plan(240).n_steps - step + 1
        assert again.checkpoint_ == {}
        np.testing.assert_array_equal(says(again, rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize(
    ("kind", "judge"),
    [
        (BayesianKernelClassifier, kernel_search.ClassValidator),
        (BayesianKernelRegressor, kernel_regression.RegressionValidator),
    ],
)
def test_finished_ascent_steps_are_not_repeated(kind, judge, monkeypatch):
    rows = data()
    whole = fit(make(kind), *rows)
    model = interrupted(monkeypatch, make(kind), rows, judge, "losses", 2)
    calls = interrupt_at(monkeypatch, evidence, "ascent_step", 0)
    fit(model, *rows)
    assert not calls
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


def test_weights_resume_from_their_state(monkeypatch):
    rows, fit_output_weights, all_calls = data(), kernel_search.fit_output_weights, []
    with monkeypatch.context() as patch:
        calls = interrupt_at(patch, softmax_weights.WeightProblem, "value_gradient", 0)

        def counted(*args):
            calls.clear()  # those of the search before
            found = fit_output_weights(*args)
            all_calls.extend(calls)
            return found

        patch.setattr("likelier.kernel_machine.class_fit.fit_output_weights", counted)
        whole = fit(make(BayesianKernelClassifier, tol=1e-7), *rows)
    model = make(BayesianKernelClassifier, tol=1e-7)
    with monkeypatch.context() as patch:

        def last_fit(problem, W, tol, max_iter, watch):
            def look(state):
                if state.step == 4:
                    raise KeyboardInterrupt
                return watch(state)

            return fit_output_weights(problem, W, tol, max_iter, look)

        patch.setattr("likelier.kernel_machine.class_fit.fit_output_weights", last_fit)
        with pytest.raises(KeyboardInterrupt):
            fit(model, *rows)
    assert np.isfinite(model.predict_proba(rows[0])).all()  # what was learned is there
    calls = interrupt_at(monkeypatch, softmax_weights.WeightProblem, "value_gradient", 0)
    losses = interrupt_at(monkeypatch, kernel_search.ClassValidator, "losses", 0)
    fit(model, *rows)
    # neither the search again nor the first value and the three steps that were kept
    assert not losses and len(calls) <= len(all_calls) - 4
    assert model.checkpoint_ == {} and model.converged_
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))
    assert model.objective_ == whole.objective_


@pytest.mark.parametrize("kind", [BayesianKernelClassifier, BayesianKernelRegressor])
def test_a_fit_out_of_time_resumes_when_there_is_time(kind):
    rows = data()
    whole = fit(make(kind), *rows)
    model = fit(make(kind, time_budget=1e-9), *rows)
    for step in (1, 2, 3):  # every fit gets one step further, and is a model
        assert model.checkpoint_["evidence"]["step"] == step
        assert np.isfinite(says(model, rows[0])).all()
        fit(model, *rows)
    fit(model.set_params(time_budget=None), *rows)
    assert model.checkpoint_ == {}
    np.testing.assert_array_equal(says(model, rows[0]), says(whole, rows[0]))


def test_a_random_state_object_resumes_with_its_numbers(monkeypatch):
    rows = data()
    parameters = {"random_state": np.random.RandomState(3)}
    whole = fit(make(BayesianKernelClassifier, random_state=np.random.RandomState(3)), *rows)
    model = make(BayesianKernelClassifier, **parameters)
    interrupted(monkeypatch, model, rows, evidence, "ascent_step", 5)
    np.testing.assert_array_equal(says(fit(model, *rows), rows[0]), says(whole, rows[0]))


def test_without_warm_start_it_starts_anew(monkeypatch):
    rows = data()
    model = make(BayesianKernelClassifier, warm_start=False)
    interrupted(monkeypatch, model, rows, evidence, "ascent_step", 5)
    calls = interrupt_at(monkeypatch, evidence, "ascent_step", 0)
    fit(model, *rows)
    assert len(calls) >= 20


def test_other_rows_and_parameters_are_refused(monkeypatch):
    X, y, _ = rows = data()
    model = make(BayesianKernelClassifier)
    interrupted(monkeypatch, model, rows, evidence, "ascent_step", 5)
    left = model.checkpoint_
    for other in (X[:-1], y[:-1]), (X, np.where(np.arange(240) < 9, "level", y)):
        with pytest.raises(ValueError, match="warm_start resumes an interrupted fit and needs"):
            model.fit(*other)
    with pytest.raises(ValueError, match="constructor parameters have changed"):
        model.set_params(loss="hinge").fit(X, y)
    assert model.checkpoint_ is left
    model.set_params(loss="softmax").fit(X, y)


def test_a_path_resumes(monkeypatch, tmp_path):
    X, y, _ = data()
    path = tmp_path / "rows.csv"
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_csv(path, index=False)
    whole = make(BayesianKernelClassifier).fit(path, "y")
    model = make(BayesianKernelClassifier)
    with monkeypatch.context() as patch:
        interrupt_at(patch, evidence, "ascent_step", 5)
        with pytest.raises(KeyboardInterrupt):
            model.fit(path, "y")
    frame = pd.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(
        model.fit(path, "y").predict_proba(frame), whole.predict_proba(frame)
    )


# -- particles ------------------------------------------------------------------------------
@pytest.mark.parametrize("inference", KINDS)
@pytest.mark.parametrize(
    ("kind", "update"),
    [(BayesianKernelClassifier, update) for update in (1, 34, 40)]
    + [(BayesianKernelRegressor, update) for update in (1, 34, 40, 75, 115)],
)
def test_particles_resume_bit_identically(kind, inference, update, monkeypatch, tmp_path):
    """In a regression the first sixty updates estimate the noise."""
    rows, parameters = data(), PARTICLES | {"inference": inference}
    whole = fit(make(kind, **parameters), *rows)
    place = SVGD if inference == "svgd" else SteinGaussian
    model = interrupted(monkeypatch, make(kind, **parameters), rows, place, "learn", update)
    assert np.isfinite(says(model, rows[0])).all()
    for again in (saved(model, tmp_path), model):
        with monkeypatch.context() as patch:
            calls = interrupt_at(patch, place, "learn", 0)
            fit(again, *rows)
        assert len(calls) == (60 if kind is BayesianKernelClassifier else 120) - update + 1
        assert again.checkpoint_ == {} and again.converged_
        np.testing.assert_array_equal(again.particles_, whole.particles_)
        np.testing.assert_array_equal(says(again, rows[0]), says(whole, rows[0]))


@pytest.mark.parametrize("inference", KINDS)
@pytest.mark.parametrize("kind", [BayesianKernelClassifier, BayesianKernelRegressor])
def test_particles_out_of_time_resume(kind, inference):
    rows, parameters = data(), PARTICLES | {"inference": inference}
    whole = fit(make(kind, **parameters), *rows)
    model = fit(make(kind, time_budget=1e-9, **parameters), *rows)
    for _ in range(3):
        assert model.checkpoint_ and not model.converged_
        fit(model, *rows)
    fit(model.set_params(time_budget=None), *rows)
    assert model.checkpoint_ == {}
    np.testing.assert_array_equal(model.particles_, whole.particles_)


# -- early stopping -------------------------------------------------------------------------
@dataclass(frozen=True)
class Walk:
    """An inference with prescribed held-out values."""

    n_updates: int = 1000

    def step(self, state, engine):
        return state + 1, Info(0.0)

    def posterior(self, state):
        return state


class Number(int):
    @property
    def n_updates(self):
        return int(self)

    def __add__(self, other):
        return Number(int(self) + other)


def told(monkeypatch, values):
    """A training run with prescribed held-out log-likelihoods."""

    def likelihoods(self):
        return np.full(50, values[min(self.state // UPDATES_PER_STEP, len(values)) - 1])

    monkeypatch.setattr(ParticleTraining, "log_likelihoods", likelihoods)
    course = ParticleTraining(Walk(), Number(0), 1e-3, held=SimpleNamespace(weight=None))
    while not course.done:
        course.step(SimpleNamespace(in_memory=True))
    return course


def test_the_best_particles_count_where_later_ones_are_worse(monkeypatch):
    course = told(monkeypatch, [-3.0, -2.0, -1.0, -0.99999, -1.5])
    assert course.stopped
    assert course.state == UPDATES_PER_STEP * (3 + PATIENCE)  # a gain of 1e-5 is none
    assert course.posterior() == UPDATES_PER_STEP * 3


def test_where_nothing_is_gained_the_rate_falls(monkeypatch):
    """The latest particles stay unless they are worse."""
    course = told(monkeypatch, [-3.0, -2.0, -1.0])
    assert course.decaying and not course.stopped
    assert course.state == 2 * UPDATES_PER_STEP * (3 + PATIENCE)
    assert course.posterior() == course.state


def test_improvement_continues_training(monkeypatch):
    course = told(monkeypatch, [-100.0 / step for step in range(1, 101)])
    assert course.state == Walk.n_updates and not course.decaying


@pytest.mark.parametrize("inference", KINDS)
@pytest.mark.parametrize("kind", [BayesianKernelClassifier, BayesianKernelRegressor])
def test_training_stops_when_rows_held_out_gain_no_more(kind, inference, monkeypatch):
    """Random labels: learning can only make predictions worse."""
    rng = np.random.default_rng(0)
    X, t = rng.normal(size=(300, 20)), rng.normal(size=300)
    rows = (X, np.where(rng.random(300) < 0.5, "a", "b"), t)
    seen = []
    look = particle_training.ParticleTraining._evaluate

    def spy(self):
        look(self)
        seen.append(self)

    monkeypatch.setattr(particle_training.ParticleTraining, "_evaluate", spy)
    parameters = {"n_components": 64, "max_iter": 60, "n_particles": 3, "alpha": 0.05}
    model = fit(make(kind, inference=inference, early_stopping=True, **parameters), *rows)
    course = seen[-1]
    assert course.stopped and model.converged_ and course.state.n_updates < 600
    assert course.held.n == 30
    best = course.best.state
    found = best.theta if inference == "svgd" else best.mean
    np.testing.assert_array_equal(model.particles_, found)
    again = fit(make(kind, inference=inference, early_stopping=True, **parameters), *rows)
    np.testing.assert_array_equal(model.particles_, again.particles_)


def test_the_held_out_value_is_the_log_likelihood(monkeypatch):
    X, y, _ = data()
    seen = []
    look = particle_training.ParticleTraining._evaluate

    def spy(self):
        look(self)
        seen.append(self)

    monkeypatch.setattr(particle_training.ParticleTraining, "_evaluate", spy)
    make(BayesianKernelClassifier, inference="svgd", early_stopping=True, **PARTICLES).fit(X, y)
    course = seen[-1]
    held = course.held
    p = course.inference.posterior(course.state).predictive(held.X).probabilities()
    expected = np.log(p[np.arange(held.n), held.y.astype(int)])
    np.testing.assert_allclose(course.log_likelihoods(), expected, rtol=1e-10)
    course.held = Rows(held.X, held.y, np.where(np.arange(held.n) < 3, 1.0, 0.0))
    look(course)
    assert course.latest.value == pytest.approx(expected[:3].mean(), rel=1e-10)


def test_rows_held_out_of_a_path(tmp_path):
    X, y, _ = data(400)
    path = tmp_path / "rows.csv"
    pd.DataFrame(X, columns=list("abc")).assign(y=y).to_csv(path, index=False)
    parameters = PARTICLES | {"max_iter": 40, "inference": "svgd", "early_stopping": True}
    model = make(BayesianKernelClassifier, validation_fraction=0.25, **parameters).fit(path, "y")
    assert 270 < model.n_rows_seen_ < 330
    assert model.score(pd.DataFrame(X, columns=list("abc")), y) > 0.75


def test_early_stopping_resumes_too(monkeypatch):
    rows = data()
    parameters = PARTICLES | {"inference": "svgd", "early_stopping": True, "max_iter": 15}
    whole = fit(make(BayesianKernelClassifier, **parameters), *rows)
    model = make(BayesianKernelClassifier, **parameters)
    interrupted(monkeypatch, model, rows, SVGD, "learn", 47)
    assert "best" in model.checkpoint_["particles"]
    np.testing.assert_array_equal(fit(model, *rows).particles_, whole.particles_)


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"early_stopping": "yes"}, TypeError),
        ({"validation_fraction": 0.0}, ValueError),
        ({"validation_fraction": 1.0}, ValueError),
        ({"validation_fraction": "half"}, TypeError),
    ],
)
@pytest.mark.parametrize("kind", [BayesianKernelClassifier, BayesianKernelRegressor])
def test_parameters(kind, parameters, error):
    with pytest.raises(error, match=next(iter(parameters))):
        fit(make(kind, **parameters), *data(40))


def test_too_few_rows_to_hold_any_out():
    X, y, _ = data(6)
    model = make(BayesianKernelClassifier, inference="svgd", early_stopping=True, **PARTICLES)
    with pytest.raises(ValueError, match="validation_fraction"):
        model.set_params(validation_fraction=0.01).fit(X, y)
