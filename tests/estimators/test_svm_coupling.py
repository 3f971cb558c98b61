"""Probabilities of `SVC` with several classes: pairs are coupled, then calibrated together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logit
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from likelier import SVC
from likelier.calibration import ece, log_loss
from likelier.svm import coupling
from likelier.svm.coupling import class_pairs, couple_probabilities


def plain(r):
    """Scores and sigmoids that give the pairs these probabilities of their first class."""
    return logit(r), -np.ones(r.shape[1]), np.zeros(r.shape[1])


def test_pairs_that_agree_give_back_the_probabilities():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(5, 0.5), size=50).clip(1e-6)
    first, second = np.array(class_pairs(5)).T
    found = np.exp(couple_probabilities(*plain(p[:, first] / (p[:, first] + p[:, second])), 5))
    np.testing.assert_allclose(found, p / p.sum(axis=1, keepdims=True), rtol=1e-6)


def test_pairs_that_disagree_are_coupled_as_by_brute_force():
    rng = np.random.default_rng(1)
    r = rng.uniform(0.02, 0.98, (6, 6))
    found = np.exp(couple_probabilities(*plain(r), 4))
    for row, p in zip(r, found, strict=True):

        def mismatch(q, row=row):
            pairs = zip(class_pairs(4), row, strict=True)
            return sum(((1 - share) * q[k] - share * q[j]) ** 2 for (k, j), share in pairs)

        whole = {"type": "eq", "fun": lambda q: q.sum() - 1.0}
        best = minimize(
            mismatch, np.full(4, 0.25), constraints=whole, bounds=[(0, 1)] * 4, tol=1e-14
        ).x
        np.testing.assert_allclose(p, best, atol=1e-5)
        assert p.sum() == pytest.approx(1.0)


def test_blocks_of_rows_and_sure_pairs(monkeypatch):
    rng = np.random.default_rng(2)
    scores = 200.0 * rng.standard_normal((40, 10))
    whole = couple_probabilities(scores, np.full(10, -1.0), np.zeros(10), 5)
    assert np.isfinite(whole).all()
    monkeypatch.setattr(coupling, "SYSTEM_VALUES", 3 * 36)
    np.testing.assert_array_equal(
        couple_probabilities(scores, np.full(10, -1.0), np.zeros(10), 5), whole
    )


@pytest.mark.parametrize(
    ("load", "loss", "error"), [(load_digits, 0.06, 0.03), (load_wine, 0.12, 0.08)]
)
def test_several_classes_are_calibrated(load, loss, error):
    """Votes alone, softened for every class, gave digits a log loss of 0.37, and 0.28 as error."""
    X, y = load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, random_state=0, stratify=y)
    scaler = StandardScaler().fit(X) if load is load_wine else None
    if scaler is not None:
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    model = SVC(probability=True, random_state=0).fit(X, y)
    p = model.predict_proba(X_test)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X_test))
    assert log_loss(p, y_test).value < loss
    assert ece(p, y_test) < error
