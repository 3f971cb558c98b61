"""`SVC` and `SVR` against LIBSVM, as scikit-learn ships it, and the errata of the SVR notes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn import svm as libsvm
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler

from likelier import SVC, SVR


def dual(model, K, y, eps, C):
    """Objective and largest violation of the optimality conditions, in double precision."""
    beta = np.zeros(len(y))
    coef = model.dual_coef_.toarray() if sparse.issparse(model.dual_coef_) else model.dual_coef_
    beta[model.support_] = coef[0]
    F = y - K @ beta
    lower, upper = (-C, C) if eps else (np.where(y > 0, 0, -C), np.where(y > 0, C, 0))
    beta = np.where(abs(beta) > C * (1 - 1e-12), np.sign(beta) * C, beta)
    gain = np.where(beta < upper, F - np.where(beta >= 0, eps, -eps), -np.inf).max()
    cost = np.where(beta > lower, F - np.where(beta > 0, eps, -eps), np.inf).min()
    return y @ beta - eps * abs(beta).sum() - 0.5 * beta @ K @ beta, gain - cost


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(X), (y - y.mean()) / y.std()


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("kind", ["c", "r"])
def test_the_dual_is_solved_as_well_as_by_libsvm(cancer, diabetes, kind, C):
    X, y = cancer if kind == "c" else diabetes
    gamma, eps = 1.0 / X.shape[1], 0.0 if kind == "c" else 0.1
    ours, theirs = (SVC, libsvm.SVC) if kind == "c" else (SVR, libsvm.SVR)
    K, t = rbf_kernel(X, gamma=gamma), np.where(y > 0, 1.0, -1.0) if kind == "c" else y
    found, gap = dual(ours(C=C, gamma=gamma).fit(X, y), K, t, eps, C)
    reference, _ = dual(theirs(C=C, gamma=gamma).fit(X, y), K, t, eps, C)
    assert found >= reference - 1e-6 * abs(reference)
    assert gap <= 1e-3
    fine, gap = dual(ours(C=C, gamma=gamma, tol=1e-6).fit(X, y), K, t, eps, C)
    reference, _ = dual(theirs(C=C, gamma=gamma, tol=1e-6).fit(X, y), K, t, eps, C)
    assert fine == pytest.approx(reference, rel=1e-6)
    assert gap <= 1e-6


KERNELS = [
    {"kernel": "rbf"},
    {"kernel": "linear"},
    {"kernel": "poly", "coef0": 1.0},
    {"kernel": "sigmoid", "gamma": 0.01},
    {"C": 50.0, "class_weight": "balanced"},
    {"class_weight": {0: 3.0, 2: 0.5}},
    {"shrinking": False, "decision_function_shape": "ovo"},
    {"break_ties": True},
]


@pytest.mark.parametrize("words", KERNELS, ids=str)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "csr"])
def test_three_classes(words, kind):
    X, y = load_iris(return_X_y=True)
    rows = np.sort(np.unique(X, axis=0, return_index=True)[1])  # which of two equal rows supports
    X, y = StandardScaler().fit_transform(X[rows]), y[rows]  # the boundary is nobody's business
    ours = SVC(tol=1e-6, **words).fit(kind(X), y)
    theirs = libsvm.SVC(tol=1e-6, **words).fit(kind(X), y)
    scores = ours.decision_function(kind(X))
    np.testing.assert_allclose(scores, theirs.decision_function(kind(X)), atol=1e-3)
    np.testing.assert_array_equal(ours.predict(kind(X)), theirs.predict(kind(X)))
    np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-3)
    np.testing.assert_allclose(ours.class_weight_, theirs.class_weight_)
    dense = [m.dual_coef_.toarray() if sparse.issparse(m.dual_coef_) else m.dual_coef_
             for m in (ours, theirs)]  # fmt: skip
    np.testing.assert_allclose(*dense, atol=2e-3 * max(1.0, abs(dense[0]).max()))
    if words.get("kernel") == "linear":
        assert sparse.issparse(ours.coef_) == sparse.issparse(theirs.coef_)
        coefs = [m.coef_.toarray() if sparse.issparse(m.coef_) else m.coef_ for m in (ours, theirs)]
        np.testing.assert_allclose(*coefs, atol=1e-3)


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_ten_classes(C):
    X, y = load_digits(return_X_y=True)
    names = np.array([f"digit {k}" for k in range(10)])[y]
    train, test = slice(0, 1200), slice(1200, None)
    words = {"C": C, "decision_function_shape": "ovo"}  # a vote jumps where a score is nearly 0
    ours = SVC(**words).fit(X[train], names[train])
    theirs = libsvm.SVC(**words).fit(X[train], names[train])
    np.testing.assert_allclose(
        ours.decision_function(X[test]), theirs.decision_function(X[test]), atol=2e-3
    )
    agree = ours.predict(X[test]) == theirs.predict(X[test])
    assert (~agree).sum() <= 1


@pytest.mark.parametrize("words", [{}, {"kernel": "linear"}, {"C": 100.0, "epsilon": 0.5},
                                   {"kernel": "poly", "degree": 2}], ids=str)  # fmt: skip
def test_regression(diabetes, words):
    X, y = diabetes
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    gamma = 0.05  # a word would count rows by their weights
    ours = SVR(tol=1e-6, gamma=gamma, **words).fit(X, y, weight)
    theirs = libsvm.SVR(tol=1e-6, gamma=gamma, **words).fit(X, y, weight)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-3)
    assert ours.dual_coef_.shape == theirs.dual_coef_.shape


def test_precomputed_and_callable_kernels(cancer):
    X, y = cancer
    train, test = slice(0, 400), slice(400, None)
    K, Kt = rbf_kernel(X[train], gamma=0.03), rbf_kernel(X[test], X[train], gamma=0.03)
    plain = SVC(gamma=0.03, tol=1e-5).fit(X[train], y[train]).decision_function(X[test])
    given = SVC(kernel="precomputed", tol=1e-5).fit(K, y[train])
    np.testing.assert_allclose(given.decision_function(Kt), plain, atol=1e-4)

    def function(A, B):
        return rbf_kernel(A, B, gamma=0.03)

    called = SVC(kernel=function, tol=1e-5).fit(X[train], y[train])
    np.testing.assert_allclose(called.decision_function(X[test]), plain, atol=1e-4)
    reference = libsvm.SVC(kernel="precomputed", tol=1e-5).fit(K, y[train])
    assert given.support_vectors_.shape == reference.support_vectors_.shape
    np.testing.assert_allclose(reference.decision_function(Kt), plain, atol=1e-4)


# -- the errata of the notes on SVR --------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(30)
    return X, y, rbf_kernel(X, gamma=0.5)


def primal(theta, y, K, C, eps):
    beta, b = theta[:-1], theta[-1]
    errors = np.maximum(abs(K @ beta + b - y) - eps, 0.0)
    return C * errors.sum() + 0.5 * beta @ K @ beta


def test_the_problem_called_dual_is_the_primal_and_the_dual_is_maximised(small):
    """Strong duality: max of the dual is min of the primal; minimising the dual has no meaning."""
    X, y, K = small
    C, eps = 2.0, 0.1
    model = SVR(C=C, epsilon=eps, gamma=0.5, tol=1e-8).fit(X, y)
    beta = np.zeros(30)
    beta[model.support_] = model.dual_coef_[0]
    value = y @ beta - eps * abs(beta).sum() - 0.5 * beta @ K @ beta
    at_optimum = primal(np.append(beta, model.intercept_), y, K, C, eps)
    assert at_optimum == pytest.approx(value, rel=1e-6)  # no gap
    # the primal is what an independent minimiser finds, and is not below the dual anywhere
    start = np.append(beta, model.intercept_) + 0.01
    found = minimize(primal, start, (y, K, C, eps), "Powell", options={"maxiter": 20000})
    assert found.fun >= value - 1e-9
    # with the sign left out (minimise), coefficients at the bounds would be preferred
    wrong = np.where(np.arange(30) % 2, C, -C)
    assert y @ wrong - eps * abs(wrong).sum() - 0.5 * wrong @ K @ wrong < value


def test_slacks_pair_with_the_multipliers_of_their_own_side(small):
    """Complementary slackness: beta > 0 where the target lies above the tube, < 0 below."""
    X, y, _ = small
    C, eps = 0.5, 0.1
    model = SVR(C=C, epsilon=eps, gamma=0.5, tol=1e-8).fit(X, y)
    beta = np.zeros(30)
    beta[model.support_] = model.dual_coef_[0]
    error = y - model.predict(X)
    above, below = error > eps + 1e-6, error < -eps - 1e-6
    assert above.any() and below.any()
    np.testing.assert_allclose(beta[above], C)
    np.testing.assert_allclose(beta[below], -C)
    assert not (beta[above] < 0).any()  # what the cross-paired signs would say
    inside = abs(error) < eps - 1e-6
    np.testing.assert_array_equal(beta[inside], 0.0)


def test_the_intercept_is_that_of_the_free_support_vectors(small):
    X, y, K = small
    eps = 0.1
    model = SVR(C=2.0, epsilon=eps, gamma=0.5, tol=1e-8).fit(X, y)
    beta = np.zeros(30)
    beta[model.support_] = model.dual_coef_[0]
    F = y - K @ beta
    up, down = (beta > 0) & (beta < 2.0), (beta < 0) & (beta > -2.0)
    np.testing.assert_allclose(F[up] - eps, model.intercept_[0], atol=1e-6)
    np.testing.assert_allclose(F[down] + eps, model.intercept_[0], atol=1e-6)
