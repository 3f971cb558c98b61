"""A converged fit is within its tolerance, whatever the loss and the penalty."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.preprocessing import scale
from tests.reference.linear_objective import BINARY, COUPLED, NUMBERS, draw, minimum, objective

from likelier import LinearClassifier, LinearRegressor, losses

CASES = (
    [(loss, 2) for loss in BINARY + NUMBERS]
    + [(loss, 3) for loss in BINARY]
    + [(loss, 3) for loss in COUPLED]
)
every_case = pytest.mark.parametrize(
    ("loss", "n_classes"), CASES, ids=[f"{loss!r}-{K}" for loss, K in CASES]
)
SHARES = {"l2": 0.0, "l1": 1.0, "elasticnet": 0.6}
every_penalty = pytest.mark.parametrize("penalty", SHARES)
ROUNDING = 2e-7  # of the reference, where a quadratic programme is solved by SLSQP


def estimator(loss, penalty, **params):
    kind = LinearClassifier
    if loss.task in ("regression", "count"):
        kind = LinearRegressor
    else:
        params["probability"] = False
    return kind(loss, l1_ratio=SHARES[penalty], random_state=0, **params)


@functools.cache
def problem(loss, n_classes, penalty, alpha, fit_intercept):
    X, y, weight = draw(loss, n_classes, d=5)
    share = SHARES[penalty]
    strengths = (1.0 - share) * alpha, share * alpha
    found = minimum(loss, X, y, weight, strengths[0], fit_intercept, strengths[1])
    return X, y, weight, strengths, found


def distance(loss, model, data):
    """How far above the optimum the fitted coefficients are, relative to it."""
    X, y, weight, (l2, l1), (_, _, best) = data
    W, b = np.float64(np.atleast_2d(model.coef_)), np.float64(model.intercept_)
    return objective(loss, X, y, weight, W, b, l2, l1) / best - 1.0


@every_case
@every_penalty
@pytest.mark.parametrize("alpha", [0.003, 0.05])
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["origin", "intercept"])
def test_converged_means_within_the_tolerance(loss, n_classes, penalty, alpha, fit_intercept):
    data = problem(loss, n_classes, penalty, alpha, fit_intercept)
    X, y, weight, strengths, (W, _, _) = data
    for kind in (np.asarray, sparse.csr_array):
        for tol in (1e-2, 1e-3, 1e-6):
            params = {"alpha": alpha, "fit_intercept": fit_intercept, "tol": tol}
            model = estimator(loss, penalty, **params).fit(kind(X), y, sample_weight=weight)
            assert model.converged_  # and there was no warning, which would be an error
            assert -ROUNDING <= distance(loss, model, data) <= tol + ROUNDING
        if strengths[1]:
            clear = np.abs(W) > 1e-4
            np.testing.assert_array_equal(np.atleast_2d(model.coef_) != 0.0, clear)


def linear_program(X, y, alpha):
    """Smallest value, and coefficients, of an L1 penalty with the hinges of every class."""
    loss = losses.MulticlassHinge() if y.max() > 1 else losses.Hinge()
    W, _, best = minimum(loss, X, y, np.ones(len(y)), 0.0, True, alpha)
    return loss, W, best


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris], ids=["cancer", "iris"])
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_weights_are_zero_where_those_of_the_linear_program_are(load, tol):
    X, y = load(return_X_y=True)
    X, y = scale(X), y.astype(int)
    loss, W, best = linear_program(X, y, 1e-3)
    model = estimator(loss, "l1", alpha=1e-3, tol=tol).fit(X, y)
    assert model.converged_
    found = objective(loss, X, y, np.ones(len(y)), model.coef_, model.intercept_, 0.0, 1e-3)
    assert found <= best * (1.0 + tol)
    assert model.objective_ == pytest.approx(found, rel=1e-12)
    np.testing.assert_array_equal(model.coef_ != 0.0, np.abs(W) > 1e-9)
    np.testing.assert_allclose(model.coef_, W, atol=1e-5)


SMOOTH = [losses.LogLoss(), losses.SquaredHinge(), losses.ModifiedHuber(), losses.Softmax(),
          losses.SquaredError(), losses.Huber(delta=0.7)]  # fmt: skip


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
@every_penalty
@pytest.mark.parametrize("alpha", [1e-5, 1e-3, 0.05])
def test_one_row_far_from_all_others(loss, penalty, alpha):
    """Its curvature vanishes where its derivative does not, which a Newton decrement ignores."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(80, 6))
        X[0, seed % 3] = 98.0
        y = X @ np.array([2.0, 1.0, 0, 0, 0.5, 0]) + rng.logistic(size=80)
        if loss.task not in ("regression", "count"):
            y = (y > 0.0).astype(int)
            y[0] = seed % 2
        share, one = SHARES[penalty], np.ones(80)
        strengths = (1.0 - share) * alpha, share * alpha
        best = minimum(loss, X, y, one, strengths[0], True, strengths[1])
        for tol in (1e-2, 1e-3, 1e-5):
            model = estimator(loss, penalty, alpha=alpha, tol=tol).fit(X, y)
            W, b = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
            if loss.coupled:  # two classes are stored as a difference
                W, b = np.vstack([-0.5 * W, 0.5 * W]), np.array([-0.5, 0.5]) * b
            assert model.converged_
            value = objective(loss, X, y, one, W, b, *strengths)
            assert value <= best[2] * (1.0 + tol) + 1e-9


ROUTES = [
    (route, loss, penalty)
    for loss in [*BINARY, *NUMBERS]
    for route, penalty in [("dual", "l2"), ("lbfgs", "l2"), ("active_set", "l1"),
                           ("newton", "l2"), ("newton", "l1")]
    if loss.smooth or route in ("dual", "newton")
]  # fmt: skip


@pytest.mark.parametrize(("route", "loss", "penalty"), ROUTES, ids=str)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_route_claims_what_is_not_true(route, loss, penalty, monkeypatch):
    """Also routes that such a problem would not take, as larger ones and streams do."""
    monkeypatch.setattr("likelier.glm.route.choose_route", lambda *args: route)
    for alpha in (0.003, 0.05):
        data = problem(loss, 2, penalty, alpha, True)
        X, y, weight = data[:3]
        for tol in (1e-2, 1e-4):
            model = estimator(loss, penalty, alpha=alpha, tol=tol).fit(X, y, sample_weight=weight)
            assert not model.converged_ or distance(loss, model, data) <= tol + ROUNDING
