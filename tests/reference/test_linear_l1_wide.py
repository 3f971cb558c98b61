"""L1 beyond the features a Newton solve can take, against scikit-learn's own solvers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Lasso, LogisticRegression

from likelier import LinearClassifier, LinearRegressor

N, D = 250, 1800


def draw(kind, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D)) * rng.uniform(0.5, 2.0, D)
    if kind == "csr":
        X *= rng.random((N, D)) < 0.1
    y = X[:, :8].sum(axis=1) + rng.standard_normal(N)
    return (sparse.csr_array(X) if kind == "csr" else X), X, y


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_lasso(kind, dtype):
    rows, X, y = draw(kind)
    rows, X = rows.astype(dtype), X.astype(dtype).astype(float)
    alpha = 0.1
    model = LinearRegressor(l1_ratio=1.0, alpha=alpha).fit(rows, y)
    peer = Lasso(alpha=alpha, tol=1e-8, max_iter=10_000).fit(X, y)

    def objective(w, b):
        return 0.5 * np.mean((y - X @ w - b) ** 2) + alpha * np.abs(w).sum()

    best = objective(peer.coef_, peer.intercept_)
    found = objective(model.coef_.astype(float), float(model.intercept_[0]))
    assert model.route_ == "active_set" and model.converged_
    assert found <= best * (1.0 + 1e-6)
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    np.testing.assert_array_equal(model.coef_ == 0.0, peer.coef_ == 0.0)


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_l1_logistic_regression(kind):
    rows, X, y = draw(kind)
    labels = np.where(y > np.median(y), "high", "low")
    sign, alpha = np.where(labels == "low", 1.0, -1.0), 0.02
    params = {"fit_intercept": False}  # liblinear would penalise it
    model = LinearClassifier(l1_ratio=1.0, alpha=alpha, tol=1e-5, **params).fit(rows, labels)
    peer = LogisticRegression(
        l1_ratio=1.0, C=1.0 / (alpha * N), solver="liblinear", tol=1e-6, max_iter=1000,
        random_state=0, **params,
    ).fit(rows, labels)  # fmt: skip

    def objective(w):
        return np.logaddexp(0.0, -sign * (X @ w)).mean() + alpha * np.abs(w).sum()

    assert model.converged_ and (model.coef_ == 0.0).sum() > 0.9 * D
    assert objective(model.coef_[0]) == pytest.approx(objective(peer.coef_[0]), rel=1e-6)
