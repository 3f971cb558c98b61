"""Fits that say they have converged have: wide rows, weak penalties, where curvature hides."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from likelier import LinearClassifier


def wide_problem():
    rng = np.random.default_rng(5)
    X = sparse.random(500, 3000, density=0.02, random_state=0, format="csr")
    w = rng.normal(size=3000) * (rng.random(3000) < 0.05) * 3.0
    return X, (X @ w + 0.3 * rng.logistic(size=500) > 0.0).astype(int)


def objective(X, sign, loss, alpha):
    def value(w):
        margin = sign * (X @ w)
        if loss == "log_loss":
            each, derivative = np.logaddexp(0.0, -margin), -1.0 / (1.0 + np.exp(margin))
        else:
            short = np.maximum(1.0 - margin, 0.0)
            each, derivative = short**2, -2.0 * short
        n = len(sign)
        return each.mean() + 0.5 * alpha * w @ w, X.T @ (sign * derivative) / n + alpha * w

    return value


@pytest.mark.parametrize(
    ("loss", "alpha", "tol"),
    [("log_loss", 1e-6, 1e-3), ("log_loss", 1e-7, 1e-4), ("squared_hinge", 1e-4, 1e-3)],
)
def test_a_claim_of_convergence_is_nearly_true(loss, alpha, tol):
    """Within twice the tolerance; it was up to 126 times as far before the curvature was asked."""
    X, y = wide_problem()
    model = LinearClassifier(
        loss=loss, alpha=alpha, tol=tol, fit_intercept=False, probability=False, random_state=0
    ).fit(X, y)
    assert model.converged_
    value = objective(X, np.where(y > 0, 1.0, -1.0), loss, alpha)
    best = minimize(value, model.coef_[0], jac=True, method="L-BFGS-B",
                    options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-12,
                             "maxcor": 50})  # fmt: skip
    assert value(model.coef_[0])[0] <= (1.0 + 2.0 * tol) * best.fun
