"""SVC where single precision cannot tell rows apart: narrow kernels, columns far from zero."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn import svm
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from likelier import SVC, SVR


def violation(model, K, y, C=1.0):
    """Largest violation of the optimality conditions, from the coefficients alone."""
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    F = np.where(y > 0, 1.0, -1.0) - K @ beta
    upper = np.where(y > 0, C, 0.0)
    lower = upper - C
    return F[beta < upper].max() - F[beta > lower].min()


def raw_integers(n=300, unit=10_000.0):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 5, (n, 3)) * unit
    return X, (rng.random(n) < np.where(X.sum(axis=1) > 5.0 * unit, 0.8, 0.2)).astype(int)


@pytest.mark.parametrize("gamma", ["auto", 1.0, 1e-3])
def test_repeated_rows_of_large_numbers(gamma):
    X, y = raw_integers()
    theirs, ours = svm.SVC(gamma=gamma).fit(X, y), SVC(gamma=gamma).fit(X, y)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    thin = SVC(gamma=gamma).fit(sparse.csr_matrix(X), y)
    np.testing.assert_array_equal(thin.predict(X), theirs.predict(X))


@pytest.mark.parametrize("gamma", [1.0, 30.0, 1000.0])
def test_a_narrow_kernel_meets_its_tolerance(gamma):
    rng = np.random.default_rng(0)
    X = StandardScaler().fit_transform(rng.standard_normal((400, 20)))
    X[200:220] = X[:20]
    y = (X[:, 0] + rng.standard_normal(400) > 0.0).astype(int)
    square = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    model = SVC(gamma=gamma).fit(X, y)
    assert model.fit_status_ == 0
    assert violation(model, np.exp(-gamma * square), y) <= 1e-3


@pytest.mark.parametrize("offset", [200.0, 2000.0, 1e4])
@pytest.mark.parametrize("seed", [3, 4])
def test_a_linear_kernel_of_columns_far_from_zero(offset, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 4))
    y = (X[:, 0] + 0.5 * rng.normal(size=300) > 0.0).astype(int)
    near = SVC(kernel="linear").fit(X, y)
    far = SVC(kernel="linear").fit(X + offset, y)
    assert far.fit_status_ == 0
    assert np.mean(far.predict(X + offset) != near.predict(X)) < 0.01
    line = SVR(kernel="linear").fit(X + offset, X[:, 0])
    np.testing.assert_allclose(line.predict(X + offset), X[:, 0], atol=0.11)


def test_a_fit_that_is_stopped_tells_the_truth():
    """Intercept and violation belong to the coefficients that are left, also of rows put aside."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 5))
    y = (X[:, 0] + rng.standard_normal(600) > 0.0).astype(int)
    with pytest.warns(ConvergenceWarning):
        model = SVC(C=1e4, gamma=0.2, max_iter=3000).fit(X, y)
    K = np.exp(-0.2 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    beta = np.zeros(len(y))
    beta[model.support_] = model.dual_coef_[0]
    F = np.where(y > 0, 1.0, -1.0) - K @ beta
    free = (np.abs(beta) > 1e-9) & (np.abs(beta) < 1e4 * (1.0 - 1e-9))
    assert free.any()
    assert model.intercept_[0] == pytest.approx(F[free].mean(), rel=1e-3, abs=1e-3)
