"""Constructor parameters: validation by name, and changes of a tuned loss."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from likelier import SGD, LinearClassifier, LinearRegressor, losses
from likelier.base import Batch
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.posterior import LinearPosterior
from likelier.linear.early_stopping import EarlyStopping

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = (X[:, 0] + 0.5 * RNG.standard_normal(60) > 0).astype(int)


@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("alpha", -1.0, ValueError),
        ("alpha", "automatic", ValueError),
        ("alpha", np.nan, ValueError),
        ("alpha", np.inf, ValueError),
        ("alpha", None, TypeError),
        ("l1_ratio", 1.5, ValueError),
        ("tol", -1e-3, ValueError),
        ("tol", "small", TypeError),
        ("max_iter", 0, ValueError),
        ("max_iter", 10.0, TypeError),
        ("loss", "log", ValueError),
        ("loss", 3, TypeError),
        ("fit_intercept", "no", TypeError),
        ("random_state", "x", ValueError),
        ("solver", "newton", ValueError),
        ("solver", None, TypeError),
    ],
)
def test_an_invalid_parameter_is_named(estimator, method, name, value, error):
    model = estimator(**{name: value})
    with pytest.raises(error, match=name):
        getattr(model, method)(X, Y)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("update", "Implicit", ValueError),
        ("update", None, ValueError),
        ("learning_rate", "optimal", ValueError),
        ("eta0", 0.0, ValueError),
        ("eta0", "fast", TypeError),
        ("validation_fraction", 1.0, ValueError),
        ("validation_fraction", 0.0, ValueError),
        ("average", 0.5, TypeError),
        ("average", -3, ValueError),
        ("shuffle", 3, TypeError),
        ("early_stopping", "yes", TypeError),
    ],
)
def test_an_invalid_setting_of_sgd_is_named(name, value, error):
    with pytest.raises(error, match=rf"solver\.{name} must be"):
        SGD(**{name: value})


def test_the_cheapest_route_has_no_settings():
    with pytest.raises(ValueError, match='solver="auto" has no parameter .eta0.; set solver="sgd"'):
        LinearClassifier().set_params(solver__eta0=0.1)


@pytest.mark.parametrize("n_jobs", [0, 1.5, "two"])
def test_a_bad_number_of_threads_is_named(n_jobs):
    with pytest.raises((ValueError, TypeError), match="n_jobs"):
        LinearClassifier(n_jobs=n_jobs).fit(X, Y)


def test_an_unknown_loss_lists_the_choices():
    with pytest.raises(ValueError, match="loss='logistic' is not known") as caught:
        LinearClassifier("logistic").fit(X, Y)
    assert all(name in str(caught.value) for name in losses.LOSSES)


@pytest.mark.parametrize(
    ("estimator", "loss"),
    [
        (LinearClassifier, "squared_error"),
        (LinearClassifier, losses.Quantile(0.9)),
        (LinearClassifier, "poisson"),
        (LinearRegressor, "hinge"),
        (LinearRegressor, "softmax"),
    ],
)
def test_a_loss_for_other_targets(estimator, loss):
    with pytest.raises(ValueError, match=f"{estimator.__name__} needs a loss for"):
        estimator(loss).fit(X, Y)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_chosen_rate_needs_a_plain_penalty(method):
    model = LinearClassifier(l1_ratio=0.5, alpha=0.1, solver=SGD(learning_rate="constant"))
    with pytest.raises(ValueError, match=r'l1_ratio=0\.5 needs .*solver="auto"'):
        getattr(model, method)(X, Y)


def test_a_held_out_share_that_leaves_nothing():
    for fraction in (1e-9, 1.0 - 1e-9):
        model = LinearClassifier(solver=SGD(early_stopping=True, validation_fraction=fraction))
        with pytest.raises(ValueError, match="validation_fraction"):
            model.fit(X, Y)


def test_constructor_stores_what_it_is_given():
    loss = losses.Huber(2.0)
    model = LinearRegressor(loss, alpha=0.5, max_iter=7)
    assert model.loss is loss
    assert model.get_params()["loss__delta"] == 2.0
    assert model.get_params(deep=False)["loss"] is loss
    assert clone(model).get_params() == model.get_params()


# -- losses are values ------------------------------------------------------------------------


def test_setting_a_parameter_of_a_loss_replaces_the_loss():
    shared = losses.Quantile(0.5)
    one, two = LinearRegressor(shared), LinearRegressor(shared)
    one.set_params(loss__tau=0.9, alpha=0.1)
    assert one.loss == losses.Quantile(0.9)
    assert one.alpha == 0.1
    assert two.loss is shared
    assert shared.tau == 0.5
    one.fit(X, X[:, 0]), two.fit(X, X[:, 0])
    assert one.loss == losses.Quantile(0.9)  # fitting does not change constructor parameters


def test_a_loss_and_its_parameter_at_once():
    model = LinearRegressor("huber").set_params(loss="quantile", loss__tau=0.2)
    assert model.loss == losses.Quantile(0.2)
    model.set_params(loss__tau=0.3)
    assert model.get_params()["loss__tau"] == 0.3


def test_a_parameter_the_loss_does_not_have():
    with pytest.raises(ValueError, match="no parameter 'tau'"):
        LinearRegressor("huber").set_params(loss__tau=0.1)
    with pytest.raises(ValueError, match="Invalid parameter"):
        LinearRegressor().set_params(taw=0.1)
    with pytest.raises(ValueError, match="tau"):
        LinearRegressor("quantile").set_params(loss__tau=1.5)


def test_a_name_and_an_object_are_the_same_loss():
    for name, kind in losses.LOSSES.items():
        make = LinearRegressor if kind.task in ("regression", "count") else LinearClassifier
        target = abs(X[:, 0]) if make is LinearRegressor else Y
        one = make(name, random_state=0).fit(X, target)
        two = make(kind(), random_state=0).fit(X, target)
        np.testing.assert_array_equal(one.coef_, two.coef_)


def test_parameters_of_a_loss_matter():
    y = X[:, 0] + RNG.standard_normal(60) ** 3
    quantiles = [LinearRegressor(losses.Quantile(tau)).fit(X, y) for tau in (0.1, 0.5, 0.9)]
    below = [np.mean(y <= model.predict(X)) for model in quantiles]
    np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=0.06)
    robust = LinearRegressor(losses.Huber(0.1)).fit(X, y)
    mean = LinearRegressor(losses.Huber(1e6)).fit(X, y)
    np.testing.assert_allclose(mean.coef_, LinearRegressor().fit(X, y).coef_, atol=1e-6)
    assert not np.allclose(robust.coef_, mean.coef_, atol=1e-2)


# -- parameters that change a fit --------------------------------------------------------------


def test_rows_in_order_when_not_shuffled():
    params = {"solver": SGD(learning_rate="constant", shuffle=False), "max_iter": 2, "tol": None}
    one = LinearClassifier(random_state=0, **params).fit(X, Y)
    two = LinearClassifier(random_state=1, **params).fit(X, Y)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    params["solver"] = SGD(learning_rate="constant")
    three = LinearClassifier(random_state=0, **params).fit(X, Y)
    four = LinearClassifier(random_state=1, **params).fit(X, Y)
    assert (three.coef_ != four.coef_).any()
    assert (three.coef_ != one.coef_).any()


def test_averaging():
    params = {"max_iter": 3, "tol": None, "random_state": 0}
    plain, mean, late, never = (
        LinearClassifier(solver=SGD("implicit", "constant", 0.5, average), **params).fit(X, Y)
        for average in (False, True, 100, 10_000)
    )
    assert (mean.coef_ != plain.coef_).any() and (late.coef_ != mean.coef_).any()
    np.testing.assert_array_equal(never.coef_, plain.coef_)


def test_stopping_early_leaves_rows_out_and_ends():
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((400, 5))
    y = (Z[:, 0] + rng.standard_normal(400) > 0).astype(int)
    model = LinearClassifier(solver=SGD(early_stopping=True), random_state=0).fit(Z, y)
    assert model.route_ == "sgd"
    assert model.converged_
    assert 1 < model.n_iter_ < 100
    whole = LinearClassifier(random_state=0).fit(Z, y)
    assert model.score(Z, y) > whole.score(Z, y) - 0.02
    other = LinearClassifier(
        solver=SGD(early_stopping=True, validation_fraction=0.6), random_state=0
    )
    assert (other.fit(Z, y).coef_ != model.coef_).any()


def test_stopping_early_keeps_the_best_coefficients():
    """Five iterations without a better validation loss end it; the best one counts."""
    penalty = ElasticNet(np.zeros(1), np.zeros(1))
    model = LinearModel(losses.SquaredError(), 1, 1, False, False, penalty)
    stopping = EarlyStopping(model, Batch(np.ones((4, 1)), np.full(4, 3.0), np.ones(4)), tol=0.0)
    path = [0.0, 1.0, 2.5, 4.0, 5.0, 2.0, 6.0, 7.0]
    points = [LinearPosterior(model, np.array([[w]])) for w in path]
    assert [stopping.after_step(point) for point in points] == [False] * 7 + [True]
    assert stopping.best == 2.5


def test_probability_is_true_or_false():
    with pytest.raises(TypeError, match="probability"):
        LinearClassifier("hinge", probability="yes").fit(X, Y)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_later_passes_do_not_change_the_best_coefficients(fit_intercept, monkeypatch):
    seen = []

    def after_step(stopping, posterior, old=EarlyStopping.after_step):
        stop = old(stopping, posterior)
        seen.append((stopping.best_loss, stopping.best.copy()))
        return stop

    monkeypatch.setattr(EarlyStopping, "after_step", after_step)
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((400, 30))
    y = Z[:, 0] + 2.0 * rng.standard_normal(400) > 0.0
    params = {"solver": SGD(early_stopping=True), "alpha": 0.0, "tol": 0.0, "random_state": 0}
    model = LinearClassifier(fit_intercept=fit_intercept, **params).fit(Z, y)
    found = next(theta for loss, theta in seen if loss == seen[-1][0])
    np.testing.assert_array_equal(model.coef_[0], found[:30, 0])
