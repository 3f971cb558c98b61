"""Stochastic routes: features far from zero, steps that are too long, few rows to hold out."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy import sparse

from likelier import SGD, LinearClassifier, LinearRegressor
from likelier.fitting.hold_out import held_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
every_kind = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])


def draw(n=3000):
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((n, 5))
    y = Z @ [1.0, 2.0, 3.0, 4.0, 5.0] + rng.standard_normal(n)
    return Z, y, (y > 0.0).astype(int)


@every_kind
@pytest.mark.parametrize("far", [3.0, 30.0, 1e4])
def test_batches_of_features_far_from_zero(kind, far):
    Z, y, labels = draw()
    X, line, classes = Z + far, LinearRegressor(), LinearClassifier()
    for first in range(0, len(X), 50):
        some = slice(first, first + 50)
        line.partial_fit(kind(X[some]), y[some])
        classes.partial_fit(kind(X[some]), labels[some])
    assert line.score(X, y) > 0.97
    assert classes.score(X, labels) > 0.94


@pytest.mark.parametrize(
    "params", [{"solver": SGD(early_stopping=True)}, {"solver": SGD("explicit")}], ids=str
)
@pytest.mark.parametrize("far", [30.0, 1e4])
def test_fits_of_features_far_from_zero(params, far):
    Z, y, labels = draw()
    assert LinearRegressor(random_state=0, **params).fit(Z + far, y).score(Z + far, y) > 0.97
    model = LinearClassifier(random_state=0, **params).fit(Z + far, labels)
    assert model.score(Z + far, labels) > 0.94
    assert model.route_ == "sgd"


@pytest.mark.parametrize("loss", ["softmax", "log_loss"])
def test_a_late_class_of_features_far_from_zero(loss):
    """A class that appears is as rare as one row: not as the raw intercepts, thousands apart."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 1500)
    X = 1000.0 + 3.0 * np.eye(3)[y] + rng.standard_normal((1500, 3))
    model = LinearClassifier(loss)
    early = y < 2
    for first in range(0, 600, 100):
        some = slice(first, first + 100)
        model.partial_fit(X[early][some], y[early][some])
    for first in range(600, 1500, 100):
        model.partial_fit(X[first : first + 100], y[first : first + 100])
    assert model.score(X, y) > 0.85


@pytest.mark.parametrize("rate", ["constant", "invscaling"])
def test_steps_that_are_too_long_say_so_and_change_nothing(rate):
    Z, y, labels = draw(400)
    params = {"solver": SGD("explicit", rate, 1e5)}
    for model, targets in (
        (LinearRegressor(**params), y),
        (LinearClassifier("squared_hinge", **params), labels),
    ):
        with pytest.raises(ValueError, match=r'eta0=100000.*update="implicit"'):
            model.partial_fit(Z, targets)
        assert not hasattr(model, "coef_") and not hasattr(model, "stream_")
        with pytest.raises(ValueError, match=rf'learning_rate="{rate}"'):
            model.fit(Z, targets)
        model.set_params(solver__eta0=1e-3).partial_fit(Z, targets)
        before = copy.deepcopy(vars(model))
        with pytest.raises(ValueError, match="diverged"):
            model.set_params(solver__eta0=1e5).partial_fit(Z, targets)
        for name in ("coef_", "intercept_", "n_iter_"):
            np.testing.assert_array_equal(getattr(model, name), before[name])
        for name, array in before["stream_"].items():
            np.testing.assert_array_equal(model.stream_[name], array)


def test_a_batch_that_fails_teaches_no_class():
    Z, _, labels = draw(400)
    model = LinearClassifier("squared_hinge", solver=SGD("explicit", "constant"))
    model.partial_fit(Z, labels)
    model.set_params(solver__eta0=1e5)
    with pytest.raises(ValueError, match="diverged"):
        model.partial_fit(Z, labels + 1)
    assert model.classes_.tolist() == [0, 1]
    assert model.arrival_.tolist() == [0, 1]
    model.set_params(solver__eta0=0.01).partial_fit(Z, labels)


@pytest.mark.parametrize("n", [5, 10, 20])
def test_early_stopping_of_few_rows_never_depends_on_the_seed(n):
    Z, y, labels = draw(n)
    labels[:2] = [0, 1]
    for seed in range(25):
        params = {"solver": SGD(early_stopping=True), "random_state": seed, "max_iter": 2}
        assert len(LinearClassifier(**params).fit(Z, labels).classes_) == 2
        LinearRegressor(**params).fit(Z, y)


def test_rows_held_out_are_a_share_of_every_class():
    labels = np.repeat([0, 1, 2], [600, 30, 1])
    chosen = held_rows(labels, 0.1, np.random.default_rng(0))
    assert [chosen[labels == k].sum() for k in range(3)] == [60, 3, 0]
    others = held_rows(labels, 0.1, np.random.default_rng(1))
    assert (chosen != others).any()
    many = np.repeat(np.arange(100), 3)
    assert held_rows(many, 0.1, np.random.default_rng(0)).sum() == 30
    greedy = held_rows(many, 0.99, np.random.default_rng(0))
    assert np.bincount(many[~greedy], minlength=100).tolist() == [1] * 100
    with pytest.raises(ValueError, match="validation_fraction"):
        held_rows(np.zeros(4), 0.1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="early_stopping"):
        held_rows(np.arange(5), 0.1, np.random.default_rng(0))
