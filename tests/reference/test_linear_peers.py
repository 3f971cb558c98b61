"""The same coefficients as scikit-learn's exact solvers, on the data sets it bundles."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    QuantileRegressor,
    Ridge,
)
from sklearn.preprocessing import scale
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from likelier import LinearClassifier, LinearRegressor
from likelier.losses import EpsilonInsensitive, Quantile


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return scale(X), y / 50.0


def weights(n):
    return np.random.default_rng(0).uniform(0.2, 2.0, n)


def close(model, peer, atol):
    np.testing.assert_allclose(np.ravel(model.coef_), np.ravel(peer.coef_), atol=atol)
    np.testing.assert_allclose(
        np.ravel(model.intercept_), np.ravel(peer.intercept_), atol=atol, rtol=0.0
    )


@pytest.mark.parametrize("alpha", [0.1, 1e-3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_logistic_regression(alpha, fit_intercept):
    X, y = cancer()
    omega = weights(len(y))
    model = LinearClassifier(alpha=alpha, fit_intercept=fit_intercept)
    model.fit(X, y, sample_weight=omega)
    peer = LogisticRegression(
        C=1.0 / (alpha * len(y)), fit_intercept=fit_intercept, tol=1e-10, max_iter=10_000
    ).fit(X, y, sample_weight=omega)
    close(model, peer, 1e-5)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-6)


def test_softmax():
    X, y = load_iris(return_X_y=True)
    model = LinearClassifier("softmax", alpha=1e-2).fit(X, y)
    peer = LogisticRegression(C=1.0 / (1e-2 * len(y)), tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-6)


def test_softmax_of_two_classes_has_twice_the_coefficients_at_half_the_penalty():
    """Two weight vectors share the penalty, so the difference pays half of it."""
    X, y = cancer()
    model = LinearClassifier("softmax", alpha=0.02).fit(X, y)
    twin = LinearClassifier("log_loss", alpha=0.01).fit(X, y)
    assert model.coef_.shape == twin.coef_.shape
    np.testing.assert_allclose(model.coef_, twin.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, twin.intercept_, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.1, 1e-3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_ridge(alpha, fit_intercept):
    X, y = diabetes()
    omega = weights(len(y))
    model = LinearRegressor(alpha=alpha, fit_intercept=fit_intercept)
    model.fit(X, y, sample_weight=omega)
    peer = Ridge(alpha=alpha * len(y), fit_intercept=fit_intercept)
    close(model, peer.fit(X, y, sample_weight=omega), 1e-8)
    # without the half, the same penalty weighs half as much
    double = LinearRegressor("squared", alpha=2.0 * alpha, fit_intercept=fit_intercept)
    close(double.fit(X, y, sample_weight=omega), peer, 1e-8)


def test_least_squares_without_penalty():
    X, y = diabetes()
    close(LinearRegressor(alpha=0.0).fit(X, y), LinearRegression().fit(X, y), 1e-7)


def test_poisson_regression():
    X, y = diabetes()
    counts = np.round(3.0 * y)
    omega = weights(len(y))
    model = LinearRegressor("poisson", alpha=0.05).fit(X, counts, sample_weight=omega)
    peer = PoissonRegressor(alpha=0.05 * len(y) / omega.sum(), tol=1e-8, max_iter=10_000)
    close(model, peer.fit(X, counts, sample_weight=omega), 1e-4)
    np.testing.assert_allclose(model.predict(X), peer.predict(X), rtol=1e-4)


def test_squared_hinge():
    X, y = cancer()
    alpha = 0.05
    model = LinearClassifier(
        "squared_hinge", alpha=alpha, fit_intercept=False, probability=False
    ).fit(X, y)
    # LIBLINEAR: |w|^2 / 2 + C sum of squared hinges
    peer = LinearSVC(C=1.0 / (alpha * len(y)), fit_intercept=False, tol=1e-10, max_iter=100_000)
    close(model, peer.fit(X, y), 1e-4)


def test_squared_epsilon_insensitive():
    X, y = diabetes()
    alpha = 0.05
    model = LinearRegressor("squared_epsilon_insensitive", alpha=alpha, fit_intercept=False)
    model.set_params(loss__epsilon=0.2).fit(X, y)
    peer = LinearSVR(
        C=1.0 / (alpha * len(y)), epsilon=0.2, fit_intercept=False, tol=1e-10,
        loss="squared_epsilon_insensitive", dual=True, max_iter=1_000_000,
    )  # fmt: skip
    close(model, peer.fit(X, y), 1e-4)


def mean_hinge(X, y, model, alpha):
    f = np.ravel(X @ np.ravel(model.coef_)) + model.intercept_[0]
    hinge = np.maximum(0.0, 1.0 - np.where(y == 1, f, -f)).mean()
    return hinge + 0.5 * alpha * np.sum(np.square(model.coef_))


@pytest.mark.parametrize("alpha", [0.1, 0.005])
def test_hinge(alpha):
    X, y = cancer()
    model = LinearClassifier("hinge", alpha=alpha, tol=1e-5, probability=False).fit(X, y)
    peer = SVC(kernel="linear", C=1.0 / (alpha * len(y)), tol=1e-9).fit(X, y)
    best = mean_hinge(X, y, peer, alpha)
    assert mean_hinge(X, y, model, alpha) == pytest.approx(best, rel=1e-3)


def test_epsilon_insensitive():
    X, y = diabetes()
    alpha = 0.05
    model = LinearRegressor(EpsilonInsensitive(0.3), alpha=alpha, tol=1e-5).fit(X, y)
    peer = SVR(kernel="linear", C=1.0 / (alpha * len(y)), epsilon=0.3, tol=1e-9).fit(X, y)

    def value(fitted):
        rest = abs(y - fitted.predict(X)) - 0.3
        return np.maximum(rest, 0.0).mean() + 0.5 * alpha * np.sum(np.square(fitted.coef_))

    assert value(model) == pytest.approx(value(peer), rel=1e-3)


def test_crammer_singer():
    X, y = load_digits(n_class=4, return_X_y=True)
    X = X[:200] / 16.0
    y, alpha = y[:200], 0.02
    model = LinearClassifier(
        "multiclass_hinge", alpha=alpha, fit_intercept=False, probability=False, tol=1e-5
    ).fit(X, y)
    peer = LinearSVC(
        multi_class="crammer_singer", C=1.0 / (alpha * 200), fit_intercept=False, tol=1e-9,
        max_iter=1_000_000,
    ).fit(X, y)  # fmt: skip

    def value(W):
        scores = X @ W.T
        own = scores[np.arange(200), y]
        rivals = scores + 1.0
        rivals[np.arange(200), y] -= 1.0
        return (rivals.max(axis=1) - own).mean() + 0.5 * alpha * (W**2).sum()

    assert value(model.coef_) == pytest.approx(value(peer.coef_), rel=1e-3)


# -- L1 and elastic net ------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.3, 0.02])
def test_lasso(alpha):
    X, y = diabetes()
    model = LinearRegressor(l1_ratio=1.0, alpha=alpha, tol=1e-10).fit(X, y)
    peer = Lasso(alpha=alpha, tol=1e-12, max_iter=100_000).fit(X, y)
    close(model, peer, 1e-5)
    np.testing.assert_array_equal(model.coef_ == 0.0, peer.coef_ == 0.0)


def test_elastic_net():
    X, y = diabetes()
    model = LinearRegressor(alpha=0.2, l1_ratio=0.4, tol=1e-10).fit(X, y)
    peer = ElasticNet(alpha=0.2, l1_ratio=0.4, tol=1e-12, max_iter=100_000).fit(X, y)
    close(model, peer, 1e-5)


def test_l1_logistic_regression():
    X, y = cancer()
    alpha = 0.02
    model = LinearClassifier(l1_ratio=1.0, alpha=alpha, tol=1e-9).fit(X, y)
    peer = LogisticRegression(
        l1_ratio=1.0, C=1.0 / (alpha * len(y)), solver="saga", tol=1e-10, max_iter=100_000
    ).fit(X, y)
    close(model, peer, 1e-3)
    assert (model.coef_ == 0.0).sum() == (abs(peer.coef_) < 1e-8).sum() > 10


def test_l1_quantile_regression():
    X, y = diabetes()
    alpha, tau = 0.02, 0.8
    model = LinearRegressor(Quantile(tau), l1_ratio=1.0, alpha=alpha, tol=1e-6).fit(X, y)
    peer = QuantileRegressor(quantile=tau, alpha=alpha, solver="highs").fit(X, y)

    def value(fitted):
        rest = y - fitted.predict(X)
        pinball = np.maximum(tau * rest, (tau - 1.0) * rest).mean()
        return pinball + alpha * np.abs(fitted.coef_).sum()

    assert value(model) == pytest.approx(value(peer), rel=1e-3)


def test_quantile_without_penalty():
    X, y = diabetes()
    model = LinearRegressor(Quantile(0.5), alpha=0.0, tol=1e-6).fit(X, y)
    peer = QuantileRegressor(quantile=0.5, alpha=0.0, solver="highs").fit(X, y)
    error = abs(y - peer.predict(X)).mean()
    assert abs(y - model.predict(X)).mean() == pytest.approx(error, rel=1e-3)
