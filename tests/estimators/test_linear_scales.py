"""No learning rate to tune: any feature scale, any rate, and never worse than the zero model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes

from likelier import SGD, LinearClassifier, LinearRegressor
from likelier.losses import LOSSES, make_loss

CLASSIFICATION = [n for n, loss in LOSSES.items() if loss.task in ("binary", "multiclass")]
REGRESSION = [n for n, loss in LOSSES.items() if loss.task in ("regression", "count")]
SCALES = 10.0 ** np.array([-6, 6, 3, -3, 0])
ignore = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n=400, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    signal = X @ np.linspace(1.0, -1.0, d) + 0.5
    y = (signal + rng.logistic(size=n) > 0).astype(int)
    return X, y, rng.poisson(np.exp(0.5 * signal)).astype(float)


def mean_loss(model, X, y):
    """Mean training loss of the fitted scores."""
    loss = make_loss(model.loss)
    if isinstance(model, LinearRegressor):
        return loss.value(y, X @ model.coef_ + model.intercept_[0]).mean()
    f = model.decision_function(X)
    if loss.name == "softmax":
        return np.log1p(np.exp(-np.where(y == 1, f, -f))).mean()
    if loss.name == "multiclass_hinge":
        return np.maximum(0.0, 1.0 - np.where(y == 1, f, -f)).mean()
    return loss.value(np.where(y == 1, 1.0, -1.0), f).mean()


def zero_loss(loss, y):
    loss = make_loss(loss)
    if loss.coupled:
        return float(loss.value(0, np.zeros((1, 2)))[0])
    sign = np.where(y > 0, 1.0, -1.0) if loss.task == "binary" else y
    return float(loss.value(sign, np.zeros(len(y))).mean())


@ignore
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_rescaled_features_hardly_change_a_classifier(loss, kind):
    X, y, _ = draw()
    plain = LinearClassifier(loss, random_state=0).fit(kind(X), y)
    scaled = LinearClassifier(loss, random_state=0).fit(kind(X * SCALES), y)
    one, two = plain.predict_proba(X), scaled.predict_proba(X * SCALES)
    smooth = make_loss(loss).smooth
    np.testing.assert_allclose(one, two, atol=1e-6 if smooth else 0.02)
    np.testing.assert_allclose(scaled.coef_ * SCALES, plain.coef_, atol=1e-5 if smooth else 0.05)


@ignore
@pytest.mark.parametrize("loss", REGRESSION)
def test_rescaled_features_hardly_change_a_regressor(loss):
    X, _, t = draw()
    plain = LinearRegressor(loss, random_state=0).fit(X, t)
    scaled = LinearRegressor(loss, random_state=0).fit(X * SCALES, t)
    atol = 1e-5 if make_loss(loss).smooth else 0.03
    np.testing.assert_allclose(scaled.predict(X * SCALES), plain.predict(X), atol=atol)


@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
@pytest.mark.parametrize("offset", [1e2, 1e4])
def test_shifted_features_hardly_change_anything(estimator, offset):
    """Years, temperatures in kelvin: a feature informs by its variance, not its mean."""
    X, y, t = draw()
    target = y if estimator is LinearClassifier else t
    plain = estimator(random_state=0).fit(X, target)
    shifted = estimator(random_state=0).fit(X + offset, target)
    np.testing.assert_allclose(shifted.coef_, plain.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        shifted.predict(X + offset).astype(float), plain.predict(X).astype(float), atol=1e-5
    )


def test_shifted_features_in_batches():
    """The same penalty grows with the batches; it must know the mean as well."""
    X, y, _ = draw(n=4000)
    strengths = []
    for offset in (0.0, 300.0):
        model = LinearClassifier()
        for part in np.array_split(np.arange(4000), 8):
            model.partial_fit(X[part] + offset, y[part])
        stream = model.stream_
        mean = stream["sums"] / stream["counters"][0]
        strengths.append(stream["squares"] / stream["counters"][0] - mean**2)
    np.testing.assert_allclose(strengths[0], strengths[1], rtol=1e-6)


@ignore
@pytest.mark.parametrize("power", [-6, -3, 0, 3, 6])
@pytest.mark.parametrize("loss", [*CLASSIFICATION, *REGRESSION])
@pytest.mark.parametrize(
    "params", [{}, {"solver": SGD("explicit")}, {"max_iter": 1}, {"alpha": 1e-4}]
)
def test_never_worse_than_the_zero_model(loss, power, params):
    X, y, t = draw()
    target = y if loss in CLASSIFICATION else t
    make = LinearClassifier if loss in CLASSIFICATION else LinearRegressor
    if "max_iter" in params and not make_loss(loss).smooth:
        params = {"max_iter": 20}  # duals need some passes before their weights mean anything
    params = {"probability": False, **params} if loss in CLASSIFICATION else params
    X = X * 10.0 ** (power * np.array([1, 0, 0, 1, 0]))
    model = make(loss, random_state=0, **params).fit(X, target)
    assert mean_loss(model, X, target) <= zero_loss(loss, target) * (1.0 + 1e-9)


@ignore
@pytest.mark.parametrize("exponent", range(-6, 4))
@pytest.mark.parametrize("unscaled", [False, True])
@pytest.mark.parametrize("schedule", ["constant", "invscaling"])
def test_implicit_steps_are_finite_at_every_rate(exponent, unscaled, schedule):
    """Nine decades of ``eta0``, on standardised and on raw data."""
    X, y = load_breast_cancer(return_X_y=True)
    if not unscaled:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    solver = SGD(learning_rate=schedule, eta0=10.0**exponent)
    params = {"solver": solver, "max_iter": 3, "random_state": 0}
    for loss in CLASSIFICATION:
        model = LinearClassifier(loss, probability=False, **params).fit(X, y)
        assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    X, t = load_diabetes(return_X_y=True, scaled=not unscaled)
    for loss in REGRESSION:
        model = LinearRegressor(loss, **params).fit(X, t / 100.0)
        assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()


@ignore
def test_explicit_steps_do_diverge_where_implicit_ones_do_not():
    """The reason for implicit steps, on raw features."""
    X, t = load_diabetes(return_X_y=True, scaled=False)
    params = {"solver": SGD(learning_rate="constant", eta0=0.1), "max_iter": 2, "random_state": 0}
    implicit = LinearRegressor(**params).fit(X, t)
    assert np.isfinite(implicit.coef_).all()
    with pytest.raises(ValueError, match=r'diverged.*update="implicit"'):
        LinearRegressor(**params).set_params(solver__update="explicit").fit(X, t)


@ignore
@pytest.mark.parametrize("alpha", [1e2, 1e6, 1e12])
@pytest.mark.parametrize("estimator", [LinearClassifier, LinearRegressor])
def test_a_huge_penalty_leaves_the_intercept(estimator, alpha):
    X, y, t = draw()
    target = y if estimator is LinearClassifier else t
    for params in ({}, {"solver": SGD(learning_rate="constant", eta0=1e3)}):
        model = estimator(alpha=alpha, random_state=0, **params).fit(X, target)
        assert (abs(model.coef_) < 0.05).all()
        assert np.isfinite(model.intercept_).all()


def test_mixed_scales_on_real_data():
    """Within one percent of the best over six decades of feature scales."""
    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(4):
        Z = X * 10.0 ** rng.uniform(-6, 6, X.shape[1])
        model = LinearClassifier(random_state=0).fit(Z, y)
        found.append(mean_loss(model, Z, y))
    assert max(found) <= 1.01 * min(found)
