"""Linear models do not depend on units: of targets, of features, of losses' own lengths."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_diabetes

from likelier import LinearClassifier, LinearRegressor
from likelier.losses import Huber, Quantile, make_loss

REGRESSION = ("squared_error", "squared", "huber", "epsilon_insensitive",
              "squared_epsilon_insensitive", "quantile")  # fmt: skip


def prices(n=600, noise=0.6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 26_000.0 * (X @ [1.0, 0.5, 0.0, -0.5] + noise * rng.normal(size=n)) + 3e5


@pytest.mark.parametrize("name", REGRESSION)
def test_a_loss_has_the_degree_it_declares(name):
    loss, rng = make_loss(name), np.random.default_rng(0)
    y, f, unit = rng.normal(size=50), rng.normal(size=50), 37.0
    inner = loss.in_units(unit).value(y / unit, f / unit)
    np.testing.assert_allclose(unit**loss.degree * inner, loss.value(y, f), rtol=1e-12)


@pytest.mark.parametrize("name", REGRESSION)
def test_prices_are_fitted_whatever_the_loss(name):
    X, y = prices()
    model = LinearRegressor(name, random_state=0).fit(X, y)
    assert model.converged_
    assert model.score(X, y) > 0.75


@pytest.mark.parametrize("unit", [1e-6, 1e-2, 1e6])
@pytest.mark.parametrize("loss", ["squared_error", "quantile", Quantile(tau=0.9)])
def test_an_automatic_fit_moves_with_the_unit_of_the_targets(loss, unit):
    X, y = prices()
    one = LinearRegressor(loss, random_state=0).fit(X, y)
    other = LinearRegressor(loss, random_state=0).fit(X, unit * y)
    np.testing.assert_allclose(other.coef_, unit * one.coef_, rtol=1e-6)
    np.testing.assert_allclose(other.intercept_, unit * one.intercept_, rtol=1e-6)


def test_huber_reaches_its_optimum_from_where_it_is_straight():
    """At zero every residual is beyond delta: its own Hessian there is zero."""
    X, y = load_diabetes(return_X_y=True)
    scale = X.std(axis=0)
    for delta in (1.35, 20.0, 100.0):
        loss = Huber(delta)
        model = LinearRegressor(loss, alpha=0.0, tol=1e-4, random_state=0).fit(X, y)

        def objective(theta, loss=loss):
            return float(loss.value(y, X @ (theta[:-1] / scale) + theta[-1]).mean())

        found = np.append(model.coef_ * scale, model.intercept_)
        best = minimize(objective, found, method="Powell", options={"ftol": 1e-12}).fun
        assert objective(found) <= best * (1.0 + 1e-4)


def test_certified_steps_never_lead_away():
    """Undamped steps of a nearly straight loss end far off; what was given then stays."""
    X, y = load_diabetes(return_X_y=True)
    y = y - y.mean()
    model = LinearRegressor("huber", random_state=0).fit(X, y)
    loss = make_loss("huber")
    assert loss.value(y, model.predict(X)).mean() < loss.value(y, np.zeros(len(y))).mean()


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_a_given_penalty_is_in_the_callers_units(l1_ratio, alpha):
    X, y = prices()
    for name in ("huber", "squared_error"):
        loss = make_loss(name)
        # absolute strength in the units of y, so that both kinds matter
        strength = alpha if l1_ratio == 0.0 else alpha * 26_000.0
        model = LinearRegressor(loss, l1_ratio=l1_ratio, alpha=strength, tol=1e-6).fit(X, y)
        size = 0.5 * model.coef_ @ model.coef_ if l1_ratio == 0.0 else np.abs(model.coef_).sum()
        objective = loss.value(y, model.predict(X)).mean() + strength * size
        np.testing.assert_allclose(model.objective_, objective, rtol=1e-5)


@pytest.mark.parametrize("far", [1e3, 1e6, 1e8])
def test_where_a_clock_begins_changes_nothing(far):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    y = X @ [1.0, -1.0] + 0.2 * rng.normal(size=500)
    moved = X + np.array([far, 0.0])
    plain, shifted = LinearRegressor().fit(X, y), LinearRegressor().fit(moved, y)
    np.testing.assert_allclose(shifted.coef_, plain.coef_, rtol=1e-6)
    np.testing.assert_allclose(shifted.coef_stderr_, plain.coef_stderr_, rtol=1e-4)
    np.testing.assert_allclose(shifted.predict(moved), plain.predict(X), atol=1e-6)
    one = LinearClassifier().fit(X, y > 0)
    other = LinearClassifier().fit(moved, y > 0)
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-6)


@pytest.mark.parametrize("mean", [0.01, 1.0, 1e3, 1e5])
def test_counts_of_any_size(mean):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    y = rng.poisson(mean * np.exp(0.5 * X[:, 0])).astype(float)
    model = LinearRegressor("poisson").fit(X, y)
    assert model.converged_
    assert abs(model.coef_[0] - 0.5) < 4.0 * model.coef_stderr_[0] + 0.01


def test_noise_of_more_parameters_than_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 400))
    y = X[:, :5].sum(axis=1) + 0.5 * rng.normal(size=600)
    model = LinearRegressor(random_state=0).fit(X[:300], y[:300])
    low, high = model.predict_interval(X[300:], 0.9).T
    covered = np.mean((low <= y[300:]) & (y[300:] <= high))
    assert 0.84 <= covered <= 0.99  # it was 0.6 with residuals of the rows learned


@pytest.mark.parametrize("size", [1, 12, 500])
def test_noise_of_batches_of_any_size(size):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 10))
    y = X @ np.arange(1.0, 11.0) + rng.normal(size=3000)
    model = LinearRegressor(random_state=0)
    for first in range(0, 3000, size):
        model.partial_fit(X[first : first + size], y[first : first + size])
    assert 0.9 < model.noise_ < 1.2


def test_an_iterator_forgets_the_noise_of_an_earlier_fit():
    X, y = prices()
    model = LinearRegressor(random_state=0).fit(X, y)
    before = model.noise_
    model.fit(iter([(X, 1e-3 * y)]))
    assert model.noise_ < 1e-2 * before


def test_a_constant_column_has_no_standard_error_to_speak_of():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(200, 2)), np.full(200, 3.0), np.full(200, 1e6)])
    y = X[:, 0] + rng.normal(size=200)
    for errors in (
        LinearRegressor().fit(X, y).coef_stderr_,
        LinearClassifier().fit(X, y > 0).coef_stderr_[0],
    ):
        assert np.isfinite(errors).all()
        assert (errors[2:] < 1e-3 * errors[0]).all()


@pytest.mark.parametrize("form", ["csr", "blocks", "csr blocks"])
def test_a_clock_in_sparse_rows_and_in_streams(form):
    rng = np.random.default_rng(0)
    X = np.column_stack([1.7e9 + 1e3 * rng.normal(size=500), rng.normal(size=(500, 2))])
    y = 1e-3 * (X[:, 0] - 1.7e9) + X[:, 1] + 3.0 * X[:, 2] + 0.5 * rng.normal(size=500)
    dense = LinearRegressor().fit(X, y)
    rows = sparse.csr_matrix(X) if "csr" in form else X
    data = [(rows[:200], y[:200]), (rows[200:], y[200:])] if "blocks" in form else rows
    model = LinearRegressor().fit(data, None if "blocks" in form else y)
    np.testing.assert_allclose(model.coef_, dense.coef_, rtol=1e-5)
    np.testing.assert_allclose(model.predict(rows), dense.predict(X), atol=1e-4)
    np.testing.assert_allclose(model.noise_, dense.noise_, rtol=1e-3)
    two = [(part, t > 0.0) for part, t in data] if "blocks" in form else rows
    classes = LinearClassifier().fit(two, None if "blocks" in form else y > 0.0)
    assert classes.score(rows, y > 0.0) > 0.85


def test_a_refused_fit_leaves_the_earlier_one_as_it_was():
    X, y = prices()
    model = LinearRegressor().fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X[:, :2], np.full(len(y), np.nan))
    assert vars(model).keys() == before.keys()
    np.testing.assert_array_equal(model.predict(X), X @ before["coef_"] + before["intercept_"])


def test_an_interrupted_fit_keeps_no_noise_of_an_earlier_one(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 60)), rng.normal(size=40)
    model = LinearRegressor().fit(X, 1e3 * y)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(LinearRegressor, "_out_of_fold", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    with pytest.raises(AttributeError) as caught:
        model.predict_interval(X)
    assert "interrupted" in str(caught.value.__cause__)


def test_absent_rows_do_not_change_a_bit_of_the_noise():
    X, y = prices(200)
    weight = np.random.default_rng(1).integers(0, 3, 200).astype(float)
    some = weight > 0
    one = LinearRegressor().fit(X, y, sample_weight=weight)
    other = LinearRegressor().fit(X[some], y[some], sample_weight=weight[some])
    assert one.noise_ == other.noise_


def test_one_row_makes_nothing_certain():
    X, y = prices(5)
    assert LinearRegressor().partial_fit(X[:1], y[:1]).noise_ > 0.0
