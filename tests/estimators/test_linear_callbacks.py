"""scikit-learn's callbacks, and a keyboard interrupt that keeps what was learned."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from likelier import SGD, LinearClassifier, LinearRegressor


def draw(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, (X[:, 0] + 0.5 * rng.standard_normal(n) > 0).astype(int)


class Recorder:
    """Records iterations, can stop a fit, and can raise in the middle of it."""

    def __init__(self, stop_after=None, error=None):
        self.stop_after, self.error = stop_after, error
        self.events, self.iterations, self.scores = [], 0, []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context, **data):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        if context.task_name != "iteration":
            return False
        self.iterations += 1
        if fitted_estimator is not None and X is not None:
            self.scores.append(fitted_estimator.score(X, y))
        if self.error is not None and self.iterations == 2:
            raise self.error
        return self.iterations == self.stop_after


SLOW = {"solver": SGD(learning_rate="constant"), "max_iter": 8, "tol": None, "random_state": 0}


def test_a_callback_sees_every_iteration_with_a_usable_estimator():
    X, y = draw()
    recorder = Recorder()
    model = LinearClassifier(**SLOW).set_callbacks(recorder).fit(X, y)
    assert recorder.iterations == model.n_iter_ == 8
    assert len(recorder.scores) == 8
    assert recorder.scores[-1] == model.score(X, y) > 0.8
    assert recorder.events[0] == "setup" and recorder.events[-1] == "teardown"
    assert recorder.events[1] == "begin fit" and recorder.events[-2] == "end fit"


@pytest.mark.parametrize(
    "model",
    [
        LinearClassifier(random_state=0),
        LinearClassifier("hinge", random_state=0),
        LinearClassifier("softmax", solver=SGD(early_stopping=True), random_state=0),
        LinearRegressor("poisson", random_state=0),
    ],
    ids=repr,
)
def test_every_route_calls_back(model):
    """Fits that only serve to calibrate are not reported."""
    X, y = draw()
    recorder = Recorder()
    model.set_callbacks(recorder).fit(X, y)
    assert recorder.iterations == model.n_iter_ >= 1


def test_a_callback_does_not_change_the_fit():
    X, y = draw()
    plain = LinearClassifier("hinge", random_state=0).fit(X, y)
    watched = LinearClassifier("hinge", random_state=0).set_callbacks(Recorder()).fit(X, y)
    np.testing.assert_array_equal(plain.coef_, watched.coef_)


@pytest.mark.parametrize("stop_after", [1, 3])
def test_a_callback_can_stop_a_fit(stop_after):
    X, y = draw()
    model = LinearClassifier(**SLOW).set_callbacks(Recorder(stop_after)).fit(X, y)
    assert model.n_iter_ == stop_after
    assert not model.converged_
    short = LinearClassifier(**{**SLOW, "max_iter": stop_after}).fit(X, y)
    np.testing.assert_array_equal(model.coef_, short.coef_)


def test_a_fit_that_was_stopped_does_not_complain():
    """Warnings are errors here: stopping on request is not a failure to converge."""
    X, y = draw()
    LinearClassifier("hinge", random_state=0).set_callbacks(Recorder(1)).fit(X, y)


def test_scoring_monitor_in_a_pipeline():
    X, y = draw()
    monitor = ScoringMonitor(scoring="accuracy")
    model = LinearClassifier(**SLOW).set_callbacks(monitor)
    make_pipeline(StandardScaler(), model).fit(X, y)
    data = monitor.get_logs().data_as_pandas
    assert len(data) == 8
    assert (data["accuracy"].to_numpy() > 0.7).all()


def test_progress_bar(capsys):
    X, y = draw()
    LinearClassifier(**SLOW).set_callbacks(ProgressBar()).fit(X, y)
    assert "LinearClassifier" in capsys.readouterr().out


def test_progress_bar_over_a_search(capsys):
    X, y = draw()
    search = GridSearchCV(LinearClassifier(**SLOW), {"solver__eta0": [0.01, 0.1]}, cv=2)
    search.set_callbacks(ProgressBar(max_propagation_depth=None)).fit(X, y)
    assert "GridSearchCV" in capsys.readouterr().out


def test_callbacks_while_reading_a_stream():
    X, y = draw()
    recorder = Recorder()
    model = LinearClassifier(random_state=0).set_callbacks(recorder)
    model.fit(lambda: iter([(X[:150], y[:150]), (X[150:], y[150:])]))
    assert recorder.iterations == model.n_iter_ >= 1


@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
def test_an_interrupt_keeps_what_was_learned(loss):
    X, y = draw()
    model = LinearClassifier(loss, **SLOW).set_callbacks(Recorder(error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    short = LinearClassifier(loss, **{**SLOW, "max_iter": 2}).fit(X, y)
    np.testing.assert_array_equal(model.coef_, short.coef_)
    assert model.n_iter_ == 2
    assert not model.converged_
    assert model.score(X, y) > 0.8
    if loss == "log_loss":
        np.testing.assert_array_equal(model.predict_proba(X), short.predict_proba(X))
    else:
        assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "coef_stderr_")


def test_an_interrupt_forgets_the_calibration_of_the_fit_before():
    X, y = draw()
    model = LinearClassifier("hinge", **SLOW).fit(X, y)
    model.predict_proba(X)
    model.set_callbacks(Recorder(error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, 1 - y)
    assert not hasattr(model, "predict_proba")


def test_an_interrupted_regressor_predicts_without_intervals():
    X, _ = draw()
    model = LinearRegressor(**SLOW).set_callbacks(Recorder(error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()
    with pytest.raises(AttributeError) as caught:
        model.predict_interval(X)
    assert "interrupted" in str(caught.value.__cause__)


def test_an_error_in_a_callback_is_an_error_of_the_fit():
    X, y = draw()
    recorder = Recorder(error=RuntimeError("no space left"))
    with pytest.raises(RuntimeError, match="no space left"):
        LinearClassifier(**SLOW).set_callbacks(recorder).fit(X, y)
    assert recorder.events[-1] == "teardown"
