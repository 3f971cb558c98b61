"""Progress of a kernel fit through scikit-learn's callbacks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting import time_budget
from likelier.fitting.time_budget import TimeBudget


class Recorder:
    """Counts finished tasks by name; may stop the fit."""

    def __init__(self, stop_after=None):
        self.names, self.stop_after = [], stop_after

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.names.append(context.task_name)
        return self.stop_after is not None and len(self.names) >= self.stop_after

    def teardown(self, estimator, context):
        pass


@pytest.mark.parametrize("kind", [BayesianKernelClassifier, BayesianKernelRegressor])
def test_every_step_is_reported(kind):
    X, y = load_iris(return_X_y=True)
    recorder = Recorder()
    model = kind(random_state=0).set_callbacks(recorder).fit(X, y)
    assert recorder.names.count("evidence") == model._plan(len(X)).n_steps
    assert recorder.names.count("weights") >= 1
    assert model.n_iter_ == len(recorder.names) - 1  # the last task is the fit itself


def test_a_callback_may_end_the_fit():
    X, y = load_iris(return_X_y=True)
    model = BayesianKernelClassifier(random_state=0).set_callbacks(Recorder(2)).fit(X, y)
    assert model.n_iter_ <= 4
    assert np.isfinite(model.predict_proba(X)).all()


def test_verbose_prints(capsys):
    X, y = load_iris(return_X_y=True)
    BayesianKernelClassifier(random_state=0, verbose=1).fit(X, y)
    assert "evidence 1:" in capsys.readouterr().out


def test_stages_say_how_long_they_will_take(monkeypatch, capsys):
    now = 100.0
    monkeypatch.setattr(time_budget.time, "perf_counter", lambda: now)
    clock = TimeBudget(BayesianKernelClassifier(verbose=1), (None, None), begin=now)
    for share, seconds in ((0.25, 5.0), (0.5, 5.0), (1.0, 10.0)):
        now += seconds
        assert not clock.progress("evidence", share)
    now += 3.0
    clock.tick("weights")
    now += 8.0
    clock.progress("evidence", 0.1, "of another fit")  # a second stage, after the weights
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("about ")[1] for line in lines if "about" in line] == [
        "15 s left", "10 s left", "0 s left", "72 s left, of another fit",
    ]  # fmt: skip


@pytest.mark.parametrize("inference", ["svgd", "stein_gaussian"])
def test_particles_say_how_long_they_will_take(inference, capsys):
    X, y = load_iris(return_X_y=True)
    parameters = {"n_components": 8, "n_particles": 2, "max_iter": 4, "random_state": 0}
    BayesianKernelClassifier(inference=inference, verbose=1, **parameters).fit(X, y)
    told = [line for line in capsys.readouterr().out.splitlines() if "particles" in line]
    assert len(told) == 4
    assert "25% of the steps, about" in told[0] and "s left, objective" in told[0]
    assert "100% of the steps, about 0 s left" in told[-1]
