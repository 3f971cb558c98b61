"""Sample weights of kernel machines."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.kernel_machine.evidence import relative_weights, typical_weight


def bumps(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, f + 0.5 * rng.normal(size=n)


@pytest.mark.parametrize("n", [500, 1200])  # judged by parts in turn, and by rows held out
@pytest.mark.parametrize("factor", [0.2, 10.0])
def test_a_common_weight_factor_changes_confidence_only(n, factor):
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
    roots = [
        np.square(model.posterior_["weights"]["roots"], dtype=np.float64).sum()
        for model in (plain, weighted)
    ]
    assert roots[0] / roots[1] == pytest.approx(factor, rel=0.01)


def test_a_common_weight_factor_changes_regression_confidence_only():
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


def test_evidence_weights_are_relative_to_a_typical_row():
    assert relative_weights(None) is None
    assert relative_weights(np.full(7, 0.1)) is None
    assert relative_weights(np.full(7, 1e12)) is None
    one_heavy = relative_weights(np.append(np.ones(999), 1e9))
    np.testing.assert_allclose(one_heavy, 1.0, atol=0.03)  # one row cannot silence the others
    many_light = relative_weights(np.append(np.full(60, 1e-9), np.ones(40)))
    assert many_light[:60].max() < 1e-3
    np.testing.assert_array_equal(many_light[60:], 1.0)
    assert relative_weights(np.array([1e-300, 1.0])).min() > 0.0


def test_rows_of_negligible_weight_have_no_effect():
    weight = np.append(np.full(270, 1e-9), np.ones(30))
    assert typical_weight(weight) == 1.0
    assert typical_weight(np.append(np.ones(999), 1e9)) < 1.05  # nor does one that is huge
    assert typical_weight(np.array([1.0, 2.0, 4.0])) == pytest.approx(2.0)
    (X, f), (X_test, f_test) = bumps(300, 0), bumps(1000, 1)
    few = X[270:], f[270:]
    error = [
        np.sqrt(np.mean((model.predict(X_test) - f_test) ** 2))
        for model in (
            BayesianKernelRegressor(random_state=0).fit(X, f, sample_weight=weight),
            BayesianKernelRegressor(random_state=0).fit(*few),
        )
    ]
    assert error[0] < 1.1 * error[1]
    losses = [
        log_loss(f_test > 0.0, model.predict_proba(X_test))
        for model in (
            BayesianKernelClassifier(random_state=0).fit(X, f > 0.0, sample_weight=weight),
            BayesianKernelClassifier(random_state=0).fit(few[0], few[1] > 0.0),
        )
    ]
    assert losses[0] < 1.1 * losses[1]


@pytest.mark.parametrize("factor", [1e-9, 1.0 / 600])
def test_weights_that_sum_to_one_leave_predictions_calibrated(factor):
    """A common factor far below one changes neither noise nor class frequencies."""
    (X, f), (X_test, f_test) = bumps(600, 0), bumps(2000, 1)
    weight = np.full(600, factor)
    plain = BayesianKernelRegressor(random_state=0).fit(X, f)
    light = BayesianKernelRegressor(random_state=0).fit(X, f, sample_weight=weight)
    assert light.noise_ == pytest.approx(plain.noise_, rel=0.1)
    low, high = light.predict_interval(X_test).T
    assert 0.87 < np.mean((low < f_test) & (f_test < high)) < 0.93
    assert light.score(X_test, f_test) == pytest.approx(plain.score(X_test, f_test), abs=0.01)
    rare, rare_test = f > 2.0, f_test > 2.0
    losses = [
        log_loss(rare_test, model.predict_proba(X_test))
        for model in (
            BayesianKernelClassifier(random_state=0).fit(X, rare),
            BayesianKernelClassifier(random_state=0).fit(X, rare, sample_weight=weight),
        )
    ]
    assert losses[1] < 1.1 * losses[0]


def test_normalised_weights_batch_by_batch(monkeypatch):
    """Rows that come later count as the first ones do."""
    monkeypatch.setattr("likelier.kernel_machine.estimator.START_ROWS", 300)
    X, f = bumps(600, 0)
    models = []
    for factor in (1.0, 1e-3):
        model = BayesianKernelRegressor(gamma=0.7, random_state=0)
        for i in (0, 300):
            part = slice(i, i + 300)
            model.partial_fit(X[part], f[part], sample_weight=np.full(300, factor))
        assert "X" not in model.stream_
        models.append(model)
    assert models[1].noise_ == pytest.approx(models[0].noise_, rel=0.1)
    assert models[1].stream_["weight"] == pytest.approx(600.0)


def test_light_rows_of_one_target_say_what_it_is():
    X, _ = bumps(100, 0)
    model = BayesianKernelRegressor(random_state=0)
    model.fit(X, np.full(100, 3.0), sample_weight=np.full(100, 2.0**-10))
    assert np.ptp(model.predict_interval(X), axis=1).max() < 1e-3


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_labels_are_reported(missing):
    y = np.array(["a", "b", "a", missing, "b"], dtype=object)
    with pytest.raises(ValueError, match="1 missing labels .* row 3"):
        BayesianKernelClassifier().fit(np.arange(5.0)[:, None], y)


@pytest.mark.parametrize("size", [1e-100, 1e-200, 1e100, 1e200])
@pytest.mark.parametrize("machine", [BayesianKernelClassifier, BayesianKernelRegressor])
def test_weights_without_digits_are_refused_by_name(machine, size):
    X, f = bumps(60, 0)
    with pytest.raises(ValueError, match="sample_weight has the maximum .* divide it by its mean"):
        machine(random_state=0).fit(X, (f > 0.0).astype(float), sample_weight=np.full(60, size))


@pytest.mark.parametrize("weight", [1e-2, 1e-6, 1e-13])
def test_a_common_factor_below_one_changes_no_regression(weight):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.05 * rng.standard_normal(300)
    alone = BayesianKernelRegressor(random_state=0).fit(X, y, np.ones(300))
    weighted = BayesianKernelRegressor(random_state=0).fit(X, y, np.full(300, weight))
    np.testing.assert_allclose(weighted.predict(X), alone.predict(X), atol=1e-4)
    assert abs(weighted.noise_ / alone.noise_ - 1.0) < 1e-3
