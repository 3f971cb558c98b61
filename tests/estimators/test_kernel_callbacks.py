"""Progress of a kernel fit through scikit-learn's callbacks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from likelier import BayesianKernelClassifier, BayesianKernelRegressor


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
    assert recorder.names.count("iteration") >= model._task().plan(len(X)).n_steps
    assert model.n_iter_ == len(recorder.names) - 1  # the last task is the fit itself


def test_a_callback_may_end_the_fit():
    X, y = load_iris(return_X_y=True)
    model = BayesianKernelClassifier(random_state=0).set_callbacks(Recorder(2)).fit(X, y)
    assert model.n_iter_ <= 4
    assert np.isfinite(model.predict_proba(X)).all()


def test_verbose_prints(capsys):
    X, y = load_iris(return_X_y=True)
    BayesianKernelClassifier(random_state=0, verbose=1).fit(X, y)
    assert "iteration 1: objective" in capsys.readouterr().out
