"""Standard errors against the sandwich written out by hand, and when there are none."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from likelier import SGD, LinearClassifier, LinearRegressor
from likelier.linear.estimator import UncertifiedError


def draw(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** np.linspace(-2, 2, d)
    signal = X @ (np.linspace(1.0, -0.5, d) / 10.0 ** np.linspace(-2, 2, d)) + 0.3
    return X, signal, rng


def sandwich(X, derivative, curvature, ridge=0.0, fit_intercept=True):
    """``H^-1 J H^-1 / (n - p)``: for least squares, White's HC1."""
    Z = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    n, p = Z.shape
    H = Z.T @ (curvature[:, None] * Z) / n + ridge * np.diag(np.arange(p) < X.shape[1])
    J = Z.T @ (derivative[:, None] ** 2 * Z) / n
    inverse = np.linalg.inv(H)
    return np.sqrt(np.diag(inverse @ J @ inverse / (n - p)))[: X.shape[1]]


@pytest.mark.parametrize("kind", [np.asarray, np.float32, sparse.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_least_squares_has_hc1_errors(kind, fit_intercept):
    X, signal, rng = draw()
    X = X.astype(np.float32).astype(float)
    y = signal + rng.standard_normal(300) * (1.0 + abs(signal))  # not of one variance
    model = LinearRegressor(alpha=0.0, fit_intercept=fit_intercept).fit(kind(X), y)
    Z = np.column_stack([X, np.ones(300)]) if fit_intercept else X
    rest = y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]
    bread = np.linalg.inv(Z.T @ Z)
    p = Z.shape[1]
    hc1 = 300 / (300 - p) * bread @ (Z.T @ (rest[:, None] ** 2 * Z)) @ bread
    np.testing.assert_allclose(model.coef_stderr_, np.sqrt(np.diag(hc1))[:4], rtol=1e-5)
    assert model.coef_stderr_.shape == model.coef_.shape


@pytest.mark.parametrize("alpha", [0.0, 0.02])
def test_logistic_regression(alpha):
    X, signal, rng = draw()
    y = np.where(rng.random(300) < expit(signal), "yes", "no")
    omega = rng.uniform(0.5, 2.0, 300)
    model = LinearClassifier(alpha=alpha).fit(X, y, sample_weight=omega)
    p = expit(model.decision_function(X))
    errors = sandwich(X, omega * (p - (y == "yes")), omega * p * (1 - p), alpha)
    np.testing.assert_allclose(model.coef_stderr_, errors[None], rtol=1e-3)


def test_poisson_regression():
    X, signal, rng = draw()
    y = rng.poisson(np.exp(0.5 * signal))
    model = LinearRegressor("poisson", alpha=0.0).fit(X, y)
    mean = model.predict(X)
    np.testing.assert_allclose(model.coef_stderr_, sandwich(X, mean - y, mean), rtol=1e-3)


def test_alpha_auto_enters_the_bread():
    X, signal, rng = draw(n=60)
    y = signal + rng.standard_normal(60)
    model = LinearRegressor().fit(X, y)
    rest = model.predict(X) - y
    Z = np.column_stack([X, np.ones(60)])
    H = Z.T @ Z / 60 + np.diag(np.append(X.var(axis=0) / 60, 0.0))
    J = Z.T @ (rest[:, None] ** 2 * Z) / 60
    covariance = np.linalg.inv(H) @ J @ np.linalg.inv(H) / (60 - 5)
    np.testing.assert_allclose(model.coef_stderr_, np.sqrt(np.diag(covariance))[:4], rtol=1e-6)


def test_one_vs_rest_has_errors_for_every_class():
    X, signal, rng = draw()
    y = np.digitize(signal + rng.standard_normal(300), [-0.5, 0.8])
    model = LinearClassifier(alpha=0.01).fit(X, y)
    assert model.coef_stderr_.shape == (3, 4)
    for k in range(3):
        one = LinearClassifier(alpha=0.01).fit(X, y == k)
        np.testing.assert_allclose(model.coef_stderr_[k], one.coef_stderr_[0], rtol=1e-3)


def test_softmax_with_three_classes():
    X, signal, rng = draw()
    y = np.digitize(signal + rng.standard_normal(300), [-0.5, 0.8])
    alpha = 0.02
    model = LinearClassifier("softmax", alpha=alpha).fit(X, y)
    Z = np.column_stack([X, np.ones(300)])
    P = model.predict_proba(X)
    H, scores = np.zeros((15, 15)), np.zeros((300, 15))
    for i in range(300):
        H += np.kron(np.diag(P[i]) - np.outer(P[i], P[i]), np.outer(Z[i], Z[i])) / 300
        scores[i] = np.kron(P[i] - np.eye(3)[y[i]], Z[i])
    H += np.diag(np.tile([alpha] * 4 + [0.0], 3))
    bread = np.linalg.pinv(H, rcond=1e-12)
    covariance = bread @ (scores.T @ scores / 300) @ bread / (300 - 5)
    errors = np.sqrt(np.diag(covariance)).reshape(3, 5)[:, :4]
    np.testing.assert_allclose(model.coef_stderr_, errors, rtol=1e-4)


def test_two_classes_of_softmax_have_the_errors_of_logistic_regression():
    X, signal, rng = draw()
    y = (rng.random(300) < expit(signal)).astype(int)
    model = LinearClassifier("softmax", alpha=0.02).fit(X, y)
    twin = LinearClassifier("log_loss", alpha=0.01).fit(X, y)
    np.testing.assert_allclose(model.coef_stderr_, twin.coef_stderr_, rtol=1e-4)


def test_interval_is_student_around_the_coefficient():
    X, signal, rng = draw(n=30)
    model = LinearRegressor().fit(X, signal + rng.standard_normal(30))
    interval = model.coef_interval(0.9)
    reach = stats.t.ppf(0.95, 30 - 5) * model.coef_stderr_
    np.testing.assert_allclose(interval, np.stack([model.coef_ - reach, model.coef_ + reach], -1))
    wide = model.coef_interval(0.99)
    assert (wide[:, 0] < interval[:, 0]).all() and (wide[:, 1] > interval[:, 1]).all()
    for level in (0.0, 1.0, 1.5, -0.1, np.nan):
        with pytest.raises(ValueError, match="level"):
            model.coef_interval(level)
    with pytest.raises(TypeError, match="level"):
        model.coef_interval("high")


def test_errors_shrink_and_stretch_with_the_features():
    X, signal, rng = draw()
    y = signal + rng.standard_normal(300)
    scale = np.array([1e-6, 1.0, 1e3, 1e6])
    plain, scaled = LinearRegressor().fit(X, y), LinearRegressor().fit(X * scale, y)
    np.testing.assert_allclose(scaled.coef_stderr_ * scale, plain.coef_stderr_, rtol=1e-6)


# -- refusals --------------------------------------------------------------------------------------


def refuse(model, reason):
    """No standard error, with a reason and what would help."""
    assert not hasattr(model, "coef_stderr_")
    with pytest.raises(UncertifiedError, match=reason) as caught:
        model.coef_interval()
    assert "They need" in str(caught.value)


def labelled(n=300, d=4):
    X, signal, rng = draw(n, d)
    return X, (signal + rng.logistic(size=n) > 0).astype(int), signal + rng.standard_normal(n)


def test_hinge_is_refused():
    X, y, _ = labelled()
    refuse(LinearClassifier("hinge", probability=False).fit(X, y), "convergence|derivative")


@pytest.mark.parametrize("l1_ratio", [1.0, 0.15])
def test_a_penalty_with_a_kink_is_refused(l1_ratio):
    X, _, t = labelled()
    refuse(LinearRegressor(l1_ratio=l1_ratio, alpha=0.05).fit(X, t), "L1 penalty")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_too_few_iterations_are_refused():
    X, y, _ = labelled()
    refuse(LinearClassifier(max_iter=1).fit(X, y), "tolerance")


def test_a_loose_tolerance_is_refused():
    X, y, _ = labelled()
    refuse(LinearClassifier(tol=0.1).fit(X, y), "tolerance")


@pytest.mark.parametrize(
    "params", [{"solver": SGD(learning_rate="constant")}, {"solver": SGD(early_stopping=True)}]
)
def test_stochastic_fits_are_refused(params):
    X, y, _ = labelled()
    refuse(LinearClassifier(**params).fit(X, y), "does not certify")


def test_batches_are_refused():
    X, y, _ = labelled()
    refuse(LinearClassifier().fit(X, y).partial_fit(X, y), "partial_fit")


@pytest.mark.parametrize("twin", ["copy", "constant", "zero"])
def test_collinear_columns_are_refused(twin):
    X, _, t = labelled()
    column = {"copy": X[:, 0], "constant": np.full(300, 7.0), "zero": np.zeros(300)}[twin]
    refuse(LinearRegressor(alpha=0.0).fit(np.column_stack([X, column]), t), "linear combinations")


def test_more_parameters_than_rows_are_refused():
    X, _, t = labelled(n=5)
    refuse(LinearRegressor(alpha=0.1).fit(X, t), "5 rows do not identify 5 parameters")


def test_before_fitting_there_is_nothing():
    model = LinearRegressor()
    assert not hasattr(model, "coef_stderr_")
    with pytest.raises(NotFittedError):
        model.coef_interval()
