"""Ends of the scale of `SVC` and `SVR`: ``C=inf``, huge ``C``, and no update at all."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn import svm as libsvm
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from likelier import SVC, SVR


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def without_warnings(model, *rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return model.fit(*rows)


# -- no error allowed ---------------------------------------------------------------------
@pytest.mark.parametrize("words", [{}, {"gamma": 1.0}, {"kernel": "poly"}])
@pytest.mark.parametrize("C", [1e15, np.inf])
@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_a_hard_margin_is_that_of_libsvm(iris, words, C, unit):
    X, y = iris
    X = unit * X[y != 1]
    y = y[y != 1]
    words = {**words, "C": C, "tol": 1e-6}
    if "gamma" in words:
        words["gamma"] /= unit**2
    mine, peer = without_warnings(SVC(**words), X, y), libsvm.SVC(**words).fit(X, y)
    assert mine.fit_status_ == 0
    np.testing.assert_allclose(mine.decision_function(X), peer.decision_function(X), atol=1e-5)


def test_a_hard_margin_of_three_classes(iris):
    X, y = iris
    words = {"C": np.inf, "gamma": 1.0, "tol": 1e-6}
    mine, peer = without_warnings(SVC(**words), X, y), libsvm.SVC(**words).fit(X, y)
    np.testing.assert_allclose(mine.intercept_, peer.intercept_, atol=1e-4)
    assert mine.score(X, y) == 1.0 and mine.C == np.inf
    probable = SVC(**words, probability=True, random_state=0).fit(X, y)
    np.testing.assert_array_equal(probable.predict_proba(X).argmax(axis=1), probable.predict(X))


def test_weights_do_not_matter_where_no_error_is_allowed(iris):
    X, y = iris
    X, y = X[y != 1], y[y != 1]
    weight = 10.0 ** np.random.default_rng(0).uniform(-6, 2, len(y))
    words = {"C": np.inf, "gamma": 0.1, "tol": 1e-6}
    plain, weighted = SVC(**words).fit(X, y), without_warnings(SVC(**words), X, y, weight)
    np.testing.assert_allclose(weighted.decision_function(X), plain.decision_function(X), atol=1e-5)
    absent = SVC(**words, class_weight={0: 0.0}).fit(X, y)  # of no weight: as for any C
    assert np.isfinite(absent.decision_function(X)).all()


def test_many_rows_apart():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 3))
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] += np.where(y, 1.0, -1.0)
    mine = without_warnings(SVC(C=np.inf, kernel="linear", tol=1e-6), X, y)
    peer = libsvm.SVC(C=np.inf, kernel="linear", tol=1e-6).fit(X, y)
    np.testing.assert_allclose(mine.coef_, peer.coef_, atol=1e-4)
    assert (np.where(y, 1, -1) * mine.decision_function(X)).min() > 1.0 - 1e-4


@pytest.mark.parametrize("n", [100, 1500])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_classes_that_overlap_end_with_a_warning(n, kernel):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(n // 2, 2)), 2, axis=0)
    y = np.arange(n) % 2  # every row is of both classes
    with pytest.warns(
        ConvergenceWarning, match="no solution without errors was found for C=inf|max_iter"
    ):
        model = SVC(C=np.inf, kernel=kernel, max_iter=200_000).fit(X, y)
    assert model.fit_status_ == 1 and np.isfinite(model.decision_function(X)).all()


def test_numbers_within_epsilon(iris):
    X = iris[0]
    words = {"C": np.inf, "gamma": 1.0, "tol": 1e-6}
    mine = without_warnings(SVR(**words), X, X[:, 0])
    peer = libsvm.SVR(**words).fit(X, X[:, 0])
    np.testing.assert_allclose(mine.predict(X), peer.predict(X), atol=1e-4)
    twice = np.repeat(X[:50], 2, axis=0)
    with pytest.warns(
        ConvergenceWarning, match="no solution without errors was found for C=inf|max_iter"
    ):
        model = SVR(C=np.inf, max_iter=200_000).fit(twice, np.arange(100) % 2)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("estimator", [SVC, SVR])
def test_a_path_may_end_at_infinity(iris, estimator):
    X, y = iris
    X, y = X[y != 1], y[y != 1]
    path = estimator(tol=1e-6).fit_path(X, y, [np.inf, 1.0, 1e9])
    assert [model.C for model in path] == [np.inf, 1.0, 1e9]
    for model in path:
        alone = estimator(tol=1e-6, C=model.C).fit(X, y)
        np.testing.assert_allclose(model.predict(X), alone.predict(X), atol=1e-5)


# -- no update ----------------------------------------------------------------------------
def test_no_update_is_a_constant_as_in_libsvm(iris):
    X, y = iris
    for rows in (slice(0, 150), slice(0, 100)):
        peer = libsvm.SVC(max_iter=0)
        with pytest.warns(ConvergenceWarning):
            peer.fit(X[rows], y[rows])
        with pytest.warns(ConvergenceWarning, match="max_iter=0"):
            mine = SVC(max_iter=0).fit(X[rows], y[rows])
        assert mine.support_.shape == (0,) and mine.fit_status_ == 1
        np.testing.assert_array_equal(mine.intercept_, peer.intercept_)
        np.testing.assert_array_equal(mine.n_iter_, peer.n_iter_)
        np.testing.assert_array_equal(mine.predict(X), peer.predict(X))
    target = np.random.default_rng(0).normal(size=150)
    with pytest.warns(ConvergenceWarning, match="max_iter=0"):
        mine = SVR(max_iter=0).fit(X, target)
    with pytest.warns(ConvergenceWarning):
        peer = libsvm.SVR(max_iter=0).fit(X, target)
    np.testing.assert_allclose(mine.predict(X), peer.predict(X), rtol=1e-12)
