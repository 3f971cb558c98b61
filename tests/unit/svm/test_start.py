"""Starting at the bounds: the same solution, feasible, and no start where none helps."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from likelier import SVC, SVR
from likelier.fitting.monitor import Monitor
from likelier.kernels import Rbf
from likelier.losses import EpsilonInsensitive, Hinge
from likelier.svm import path as smo_path
from likelier.svm.model import Box, KernelExpansion, Subset
from likelier.svm.smo import SMO
from likelier.svm.start import feasible_start, rough_start


def noisy_rows(n=4200, d=30, seed=0):
    """Two classes that overlap, so that most support vectors are on their bounds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] + X[:, 1] + 1.5 * rng.normal(size=n) > 0.8, 1.0, -1.0)


def started(C, loss, y, X, weight=None):
    kernel = Rbf(gamma=1.0 / X.shape[1])
    model, inference = KernelExpansion(kernel, loss, C), SMO()
    rows = Subset(kernel.prepare(X))
    ladder, beta = rough_start(inference, model, rows, y, weight, inference.cache(rows))
    return model, ladder, beta


@pytest.mark.parametrize("loss", [Hinge(), EpsilonInsensitive(epsilon=0.2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_start_is_feasible_and_nearly_all_on_bounds(loss, weighted):
    X, y = noisy_rows()
    target = (
        y if isinstance(loss, Hinge) else X[:, 0] + np.random.default_rng(1).normal(size=len(X))
    )
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y)) if weighted else None
    model, ladder, beta = started(0.05, loss, target, X, weight)
    assert ladder == []
    box = model.box(target, weight)
    assert abs(beta.sum()) < 1e-9 * abs(beta).sum()
    assert (beta >= box.lower).all()
    assert (beta <= box.upper).all()
    between = (beta != 0.0) & (beta != box.lower) & (beta != box.upper)
    assert between.sum() <= 1


def test_where_few_end_on_their_bounds_a_smaller_C_comes_first_or_nothing():
    X, y = noisy_rows()
    _, ladder, beta = started(0.5, Hinge(), y, X)
    assert [round(m.C, 6) for m in ladder] == [0.05, round(0.05 * 10**0.5, 6)]
    assert beta is not None
    assert abs(beta).max() <= 0.05
    assert started(1e4, Hinge(), y, X)[1:] == ([], None)
    few = slice(0, 1000)
    assert started(0.05, Hinge(), y[few], X[few])[1:] == ([], None)


@pytest.mark.parametrize("C", [0.05, 0.5])
def test_the_solution_is_that_of_a_start_from_zero(C, monkeypatch):
    X, y = noisy_rows()
    fast = SVC(C=C, tol=1e-5).fit(X, y)
    monkeypatch.setattr(smo_path, "rough_start", lambda *parts: ([], None))
    plain = SVC(C=C, tol=1e-5).fit(X, y)
    assert fast.n_iter_[0] < plain.n_iter_[0]
    np.testing.assert_allclose(
        fast.decision_function(X[:200]), plain.decision_function(X[:200]), atol=2e-5
    )
    np.testing.assert_array_equal(fast.support_, plain.support_)


def test_paths_and_regression_go_on_from_the_start(monkeypatch):
    X, y = noisy_rows()
    target = X[:, 0] + y
    Cs = [0.05, 0.5]
    fast = SVR(tol=1e-5).fit_path(X, target, Cs)
    monkeypatch.setattr(smo_path, "rough_start", lambda *parts: ([], None))
    plain = SVR(tol=1e-5).fit_path(X, target, Cs)
    assert len(fast) == len(plain) == 2
    for one, other in zip(fast, plain, strict=True):
        np.testing.assert_allclose(one.predict(X[:200]), other.predict(X[:200]), atol=2e-5)


def test_whoever_has_too_much_gives_up_the_least_pulled():
    box = Box(np.zeros(5), -np.ones(5), np.ones(5), 0.1)
    beta = feasible_start(box, np.array([3.0, 0.5, 2.0, -0.2, 0.05]))
    np.testing.assert_allclose(beta, [1.0, 0.0, 0.0, -1.0, 0.0])
    beta = feasible_start(
        Box(np.zeros(3), -np.ones(3), np.ones(3) * 0.7, 0.0), np.array([2.0, 1.0, -3.0])
    )
    np.testing.assert_allclose(beta, [0.7, 0.3, -1.0])
    assert not feasible_start(box, np.full(5, 2.0)).any()


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_a_watch_ends_it_with_coefficients_of_the_whole_problem(steps, monkeypatch):
    X, y = noisy_rows()
    taken, step = [], SMO.step

    def counted(self, state, engine=None):
        taken.append(len(state.beta))
        return step(self, state, engine)

    monkeypatch.setattr(SMO, "step", counted)
    monkeypatch.setattr(Monitor, "over", property(lambda self: len(taken) >= steps))
    model = SVC(C=0.5).fit(X, y)
    assert taken[:1] == [1000]  # the sample comes first
    assert taken[-1] == 1000 or len(taken) == steps
    assert model.fit_status_ == 1
    assert abs(model.dual_coef_).max(initial=0.0) <= 0.5
    assert abs(model.dual_coef_.sum()) < 1e-9


def test_updates_of_easier_problems_count_and_are_limited():
    X, y = noisy_rows()
    few = 50
    with pytest.warns(ConvergenceWarning):
        model = SVC(C=0.5, max_iter=few).fit(X, y)
    assert model.n_iter_[0] == few
    with pytest.warns(ConvergenceWarning):
        model = SVC(C=0.5, max_iter=len(y), tol=1e-9).fit(X, y)
    assert model.n_iter_[0] == len(y)
