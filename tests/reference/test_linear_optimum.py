"""Whatever the loss, the kind of matrix, the weights and the route: the optimum is reached."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import sparse
from tests.reference.linear_objective import (
    BINARY,
    COUPLED,
    NUMBERS,
    draw,
    minimum,
    objective,
)

from likelier import LinearClassifier, LinearRegressor

KINDS = {
    "dense64": lambda X: X,
    "dense32": lambda X: X.astype(np.float32),
    "csr": sparse.csr_array,
    "csr32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
}
CASES = (
    [(loss, 2) for loss in BINARY + NUMBERS]
    + [(loss, 3) for loss in (BINARY[0], BINARY[1])]
    + [(loss, 3) for loss in COUPLED]
)
every_case = pytest.mark.parametrize(
    ("loss", "n_classes"), CASES, ids=[f"{loss!r}-{K}" for loss, K in CASES]
)


def auto_alpha(loss, X, y, weight, fit_intercept):
    """``alpha="auto"``: as much as one row of data, in the units of each feature.

    A row beyond Huber's ``delta`` has no larger derivative, in standard deviations of the targets.
    """
    omega = weight / weight.sum()
    mean = omega @ X if fit_intercept else 0.0
    share = 1.0
    if loss.name == "huber":
        scale = np.sqrt(omega @ (y - (omega @ y if fit_intercept else 0.0)) ** 2)
        share = min(1.0, loss.delta / scale)
    return share * (omega @ (X - mean) ** 2) / len(X)


@functools.cache
def problem(loss, n_classes, weighted, alpha, fit_intercept):
    """Data and the independent optimum, once for all kinds of matrices and routes."""
    X, y, weight = draw(loss, n_classes)
    weight = weight if weighted else np.ones(len(y))
    strength = auto_alpha(loss, X, y, weight, fit_intercept) if alpha == "auto" else alpha
    return X, y, weight, strength, minimum(loss, X, y, weight, strength, fit_intercept)


def estimator(loss, **params):
    if loss.task in ("regression", "count"):
        return LinearRegressor(loss, random_state=0, **params)
    return LinearClassifier(loss, probability=False, random_state=0, **params)


def distance(loss, model, data):
    """How far above the optimum the fitted coefficients are, relative to it."""
    X, y, weight, strength, (_, _, best) = data
    W, b = np.float64(np.atleast_2d(model.coef_)), np.float64(model.intercept_)
    return objective(loss, X, y, weight, W, b, strength) / best - 1.0


@every_case
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.05, "auto"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["origin", "intercept"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_optimum_is_reached(loss, n_classes, kind, alpha, weighted, fit_intercept):
    data = problem(loss, n_classes, weighted, alpha, fit_intercept)
    X, y, weight = data[:3]
    model = estimator(loss, alpha=alpha, fit_intercept=fit_intercept)
    model.fit(KINDS[kind](X), y, sample_weight=weight if weighted else None)
    # losses with kinks are within 1e-3 of the optimum long before the duality gap shows it
    assert model.converged_ or not loss.smooth
    assert -1e-6 <= distance(loss, model, data) <= 1e-3
    if loss.smooth:
        W, b, _ = data[-1]
        np.testing.assert_allclose(np.atleast_2d(model.coef_), W, atol=1e-5)
        found = np.float64(model.intercept_)
        if loss.coupled:  # all intercepts may move together
            b, found = b - b.mean(), found - found.mean()
        np.testing.assert_allclose(found, b, atol=1e-5)


ROUTES = [
    (route, loss, K)
    for loss, K in CASES
    for route in ("newton", "lbfgs", "dual", "sgd")
    if not (route == "lbfgs" and not loss.smooth)
]
every_route = pytest.mark.parametrize(
    ("route", "loss", "n_classes"), ROUTES, ids=[f"{r}-{loss!r}-{K}" for r, loss, K in ROUTES]
)


@functools.cache
def many_rows(loss, n_classes):
    """More rows, and the optimum by the default route, which the test above has verified."""
    X, y, weight = draw(loss, n_classes, n=2000)
    tol = 1e-8 if loss.smooth else 1e-5
    model = estimator(loss, alpha=0.05, tol=tol, max_iter=3000).fit(X, y, sample_weight=weight)
    best = model.coef_, model.intercept_
    return X, y, weight, 0.05, (*best, objective(loss, X, y, weight, *best, 0.05))


@every_route
@pytest.mark.parametrize("kind", ["dense64", "csr"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_route_reaches_the_optimum(route, loss, n_classes, kind, monkeypatch):
    stochastic = route == "sgd"
    data = many_rows(loss, n_classes) if stochastic else problem(loss, n_classes, True, 0.05, True)
    monkeypatch.setattr("likelier.glm.route.choose_route", lambda *args: route)
    X, y, weight = data[:3]
    model = estimator(loss, alpha=0.05, tol=1e-5).fit(KINDS[kind](X), y, sample_weight=weight)
    assert model.route_ == route
    # an averaged stochastic pass is near the optimum, not at it
    assert -2e-5 <= distance(loss, model, data) <= (5e-3 if stochastic else 1e-3)


@pytest.mark.parametrize("route", ["lbfgs", "dual"])
@pytest.mark.parametrize("loss", [case for case in CASES if case[0].smooth], ids=repr)
def test_a_small_tolerance_gives_digits(route, loss, monkeypatch):
    loss, n_classes = loss
    monkeypatch.setattr("likelier.glm.route.choose_route", lambda *args: route)
    data = problem(loss, n_classes, True, 0.05, True)
    X, y, weight = data[:3]
    model = estimator(loss, alpha=0.05, tol=1e-12, max_iter=5000).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(np.atleast_2d(model.coef_), data[-1][0], atol=1e-5)
