"""The intercept where no support vector is free: the middle of all that are optimal."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import svm as libsvm
from sklearn.metrics.pairwise import rbf_kernel

from likelier import SVC, SVR
from likelier.svm import pairs as svm_pairs
from likelier.svm import path as smo_path

GAMMA = 0.5


def optimal_interval(lower, upper, slopes):
    """All ``b`` that minimise a sum of convex functions, each with two kinks at most.

    ``slopes`` are the weights of the rows: what a row costs falls by that much per unit below
    ``lower`` and rises by it above ``upper``; infinite kinks are none.
    """
    kinks = np.unique(np.concatenate([lower, upper]))
    kinks = kinks[np.isfinite(kinks)]
    rising = (slopes * (kinks[:, None] >= upper)).sum(axis=1)  # just above every kink
    falling = (slopes * (kinks[:, None] < lower)).sum(axis=1)
    flat = abs(rising - falling) <= 1e-9 * slopes.sum()
    first = int(np.argmax(flat | (rising > falling)))
    return (kinks[first], kinks[first + 1]) if flat[first] else (kinks[first], kinks[first])


def of_classes(model, X, y, weight):
    """Optimal intercepts of two classes, for the weights of the rows and coefficients as found."""
    g = model.decision_function(X) - model.intercept_[0]
    kink = np.where(y > 0, 1.0, -1.0) - g
    low, high = np.where(y > 0, kink, -np.inf), np.where(y > 0, np.inf, kink)
    return optimal_interval(low, high, weight)


def problem(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, 2)
    y = rng.permutation(np.repeat([0, 1], counts))
    X = np.round(rng.normal(size=(len(y), 2)) + y[:, None], 1)
    return X, y, len(y) / (2.0 * counts[y])


@pytest.fixture(params=["few", "steps"], autouse=True)
def solver(request, monkeypatch):
    """Both ways that few rows can be solved."""
    if request.param == "steps":
        monkeypatch.setattr(smo_path, "solve_whole", lambda *parts: None)
        monkeypatch.setattr(svm_pairs.SmallPairs, "among", classmethod(lambda *parts: None))


def test_not_every_row_is_of_one_class():
    X = [[-1.2, -0.7], [-0.4, -1.0], [0.6, 0.3], [0.6, -1.0], [1.5, 0.7]]
    model = SVC(C=0.01, gamma=GAMMA, class_weight="balanced").fit(X, [0, 1, 1, 1, 1])
    assert set(model.predict(X)) == {0, 1}


@pytest.mark.parametrize("C", [1e-6, 1e-3, 0.01, 0.05])
def test_it_is_in_the_middle_for_balanced_classes(C):
    for seed in range(40):
        X, y, weight = problem(seed)
        words = {"gamma": GAMMA, "class_weight": "balanced", "tol": 1e-8}
        model = SVC(C=C, **words).fit(X, y)
        along = SVC(**words).fit_path(X, y, [C / 3, C])[1]
        for found in (model, along):
            low, high = of_classes(found, X, y, weight)
            assert high - low > 0.1  # every row is on its bound
            assert found.intercept_[0] == pytest.approx(0.5 * (low + high), abs=1e-9)


@pytest.mark.parametrize("power", [4, 8, 16])
def test_labels_are_those_of_libsvm(power):
    """Where all bounds are powers of two LIBSVM's sums are exact, and so is its intercept."""
    rng, n_between = np.random.default_rng(power), 0
    for _ in range(40):
        n = 2 ** rng.integers(0, 4, 2)
        y = rng.permutation(np.repeat([0, 1], n))
        X = np.round(rng.normal(size=(len(y), 2)) + y[:, None], 1)
        weights = {0: float(n[1]), 1: float(n[0])}
        words = {"C": 2.0**-power, "gamma": GAMMA, "class_weight": weights, "tol": 1e-8}
        ours, theirs = SVC(**words).fit(X, y), libsvm.SVC(**words).fit(X, y)
        low, high = of_classes(ours, X, y, np.array([n[1], n[0]])[y])
        n_between += high > low
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-7)
        clear = abs(theirs.decision_function(X)) > 1e-6
        np.testing.assert_array_equal(ours.predict(X)[clear], theirs.predict(X)[clear])
    assert n_between > 20


def test_several_classes_and_probabilities():
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], [5, 10, 25])
    X = rng.normal(size=(40, 2)) + 2.0 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    words = {"C": 0.003, "gamma": GAMMA, "class_weight": "balanced", "tol": 1e-8}
    model = SVC(**words, probability=True).fit(X, y)
    scores = model.set_params(decision_function_shape="ovo").decision_function(X)
    pairs = [(0, 1), (0, 2), (1, 2)]
    for number, (first, second) in enumerate(pairs):
        inside = (y == first) | (y == second)
        g = scores[inside, number] - model.intercept_[number]
        own = y[inside] == first
        kink = np.where(own, 1.0, -1.0) - g
        low, high = optimal_interval(
            np.where(own, kink, -np.inf), np.where(own, np.inf, kink), 1 / np.bincount(y)[y[inside]]
        )
        assert high - low > 0.1
        assert model.intercept_[number] == pytest.approx(0.5 * (low + high), abs=1e-9)
    assert (model.predict_proba(X).argmax(axis=1) == y).mean() > 0.6


@pytest.mark.parametrize("C", [1e-6, 1e-3, 0.03])
def test_a_tube_without_free_support_vectors(C):
    n_between = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, eps = 2 * int(rng.integers(1, 6)), 0.3
        X, weight = rng.normal(size=(n, 2)), rng.integers(1, 4, n).astype(float)
        weight[n // 2 :] = weight[: n // 2]  # halves of equal weight above and below, often
        t = np.where(np.arange(n) < n // 2, 1.0, -1.0) * rng.uniform(1.0, 3.0, n)
        model = SVR(C=C, gamma=GAMMA, epsilon=eps, tol=1e-8).fit(X, t, weight / 3.0)
        beta = np.zeros(n)
        beta[model.support_] = model.dual_coef_[0]
        g = rbf_kernel(X, gamma=GAMMA) @ beta
        low, high = optimal_interval(t - g - eps, t - g + eps, weight)
        n_between += high > low
        assert model.intercept_[0] == pytest.approx(0.5 * (low + high), abs=1e-7)
    assert n_between > 20
