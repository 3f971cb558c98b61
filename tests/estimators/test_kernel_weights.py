"""Weights of rows: what they change in a kernel machine, and what they must not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.inference.evidence import relative_weights


def bumps(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, f + 0.5 * rng.normal(size=n)


@pytest.mark.parametrize("n", [500, 1200])  # judged by parts in turn, and by rows held out
@pytest.mark.parametrize("factor", [0.2, 10.0])
def test_a_common_factor_changes_how_sure_not_what(n, factor):
    (X, f), (X_test, f_test) = bumps(n, 0), bumps(1500, 1)
    y, y_test = f > 0.0, f_test > 0.0
    plain = BayesianKernelClassifier(random_state=0).fit(X, y)
    weighted = BayesianKernelClassifier(random_state=0)
    weighted.fit(X, y, sample_weight=np.full(n, factor))
    np.testing.assert_allclose(weighted.gamma_, plain.gamma_, rtol=1e-6)
    np.testing.assert_allclose(weighted.alpha_, factor * plain.alpha_, rtol=1e-6)
    assert abs(weighted.score(X_test, y_test) - plain.score(X_test, y_test)) < 0.005
    # the covariance is the smaller by the factor, that of the prior too
    cover = [model.score_samples(X_test) for model in (plain, weighted)]
    np.testing.assert_allclose(cover[0], cover[1], atol=0.05)
    roots = [np.square(model.roots_[0], dtype=np.float64).sum() for model in (plain, weighted)]
    assert roots[0] / roots[1] == pytest.approx(factor, rel=0.01)


def test_a_common_factor_leaves_a_regression_as_it_is_but_for_its_sureness():
    X, y = bumps(300, 0)
    plain = BayesianKernelRegressor(random_state=0).fit(X, y)
    weighted = BayesianKernelRegressor(random_state=0).fit(X, y, sample_weight=np.full(300, 10.0))
    np.testing.assert_allclose(weighted.predict(X), plain.predict(X), rtol=0.01, atol=0.01)
    ratio = plain.predict_uncertainty(X).epistemic / weighted.predict_uncertainty(X).epistemic
    assert 7.0 < np.median(ratio) < 13.0


@pytest.mark.parametrize("n", [800, 1500])
def test_balanced_classes_are_ranked_as_well_as_plain_ones(n):
    (X, f), (X_test, f_test) = bumps(n, 0), bumps(3000, 1)
    y, y_test = f > 2.0, f_test > 2.0
    assert y.mean() < 0.1
    areas, hits = [], []
    for weight in (None, "balanced"):
        model = BayesianKernelClassifier(class_weight=weight, random_state=0).fit(X, y)
        areas.append(roc_auc_score(y_test, model.predict_proba(X_test)[:, 1]))
        hits.append(balanced_accuracy_score(y_test, model.predict(X_test)))
    assert areas[1] > areas[0] - 0.005
    assert hits[1] > hits[0] + 0.05


def test_repeated_rows_are_weights():
    X, y = load_iris(return_X_y=True)
    times = np.arange(150) % 4
    weighted = BayesianKernelClassifier(random_state=0).fit(X, y, sample_weight=times)
    repeated = BayesianKernelClassifier(random_state=0)
    repeated.fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-10)


def test_weights_of_the_evidence_are_shares_of_a_typical_row():
    assert relative_weights(None) is None
    assert relative_weights(np.full(7, 0.1)) is None
    assert relative_weights(np.full(7, 1e12)) is None
    one_heavy = relative_weights(np.append(np.ones(999), 1e9))
    np.testing.assert_allclose(one_heavy, 1.0, atol=0.03)  # one row cannot silence the others
    many_light = relative_weights(np.append(np.full(60, 1e-9), np.ones(40)))
    assert many_light[:60].max() < 1e-3
    np.testing.assert_array_equal(many_light[60:], 1.0)
    assert relative_weights(np.array([1e-300, 1.0])).min() > 0.0
