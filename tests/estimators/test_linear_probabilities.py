"""Probabilities that agree with the prediction, intervals that cover, uncertainty that adds up."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.metrics import log_loss

from likelier import LinearClassifier, LinearRegressor
from likelier.calibration import ece
from likelier.fitting.probabilities import fit_calibration
from likelier.losses import LOSSES

CLASSIFICATION = [n for n, loss in LOSSES.items() if loss.task in ("binary", "multiclass")]
UNCALIBRATED = [n for n in CLASSIFICATION if not LOSSES[n].probabilistic]
ignore = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n=2000, n_classes=2, seed=0):
    X, y = make_classification(
        n, 10, n_informative=6, n_classes=n_classes, class_sep=1.5, flip_y=0.1, random_state=seed
    )
    return X, y


@ignore
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_probabilities_never_contradict_the_prediction(loss, n_classes):
    X, y = draw(400, n_classes)
    model = LinearClassifier(loss, random_state=0).fit(X, y)
    far = np.concatenate([X, 1e3 * X, 1e-9 * X, 1e6 * X, np.zeros((1, 10))])
    p = model.predict_proba(far)
    assert p.shape == (len(far), n_classes)
    assert (p >= 0.0).all() and (p <= 1.0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(far))
    logs = model.predict_log_proba(far)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(logs, np.log(p))


@ignore
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_probabilities_are_calibrated_on_new_rows(loss, n_classes):
    X, y = draw(5000, n_classes)
    model = LinearClassifier(loss, random_state=0).fit(X[:1500], y[:1500])
    p = model.predict_proba(X[1500:])
    # 0.02 is what 3,500 rows and 15 bins give a perfect forecast; one-vs-rest is not one
    assert ece(p, y[1500:]) < 0.08
    honest = LinearClassifier("softmax", random_state=0).fit(X[:1500], y[:1500])
    assert log_loss(y[1500:], p) < 1.1 * log_loss(y[1500:], honest.predict_proba(X[1500:]))


@ignore
def test_hinge_probabilities_on_real_data():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = rows[:300], rows[300:]
    model = LinearClassifier("hinge", random_state=0).fit(X[train], y[train])
    p = model.predict_proba(X[test])
    assert ece(p, y[test]) < 0.06
    assert log_loss(y[test], p) < 0.2
    X, y = load_digits(return_X_y=True)
    model = LinearClassifier("hinge", random_state=0).fit(X[:900], y[:900])
    assert log_loss(y[900:], model.predict_proba(X[900:])) < 0.6


@ignore
@pytest.mark.parametrize("loss", UNCALIBRATED)
def test_without_calibration_there_are_no_probabilities(loss):
    X, y = draw(200)
    model = LinearClassifier(loss, probability=False, random_state=0).fit(X, y)
    model.predict(X), model.decision_function(X)
    for method in ("predict_proba", "predict_log_proba", "predict_uncertainty"):
        with pytest.raises(AttributeError) as caught:
            getattr(model, method)
        assert "probability=False" in str(caught.value.__cause__)


def test_too_few_rows_to_calibrate():
    model = LinearClassifier("hinge").fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(AttributeError) as caught:
        model.predict_proba([[0.0]])
    assert "too few rows" in str(caught.value.__cause__)


def test_losses_with_a_likelihood_need_no_calibration():
    X, y = draw(200)
    for loss in ("log_loss", "softmax"):
        on = LinearClassifier(loss, random_state=0).fit(X, y)
        off = LinearClassifier(loss, random_state=0, probability=False).fit(X, y)
        np.testing.assert_array_equal(on.predict_proba(X), off.predict_proba(X))
        f = on.decision_function(X)
        np.testing.assert_allclose(on.predict_proba(X)[:, 1], 1.0 / (1.0 + np.exp(-f)))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("loss", ["log_loss", "softmax", "squared_hinge"])
def test_uncertainty_of_a_class_is_its_entropy(loss, n_classes):
    X, y = draw(300, n_classes)
    model = LinearClassifier(loss, random_state=0).fit(X, y)
    p = model.predict_proba(X)
    found = model.predict_uncertainty(X)
    np.testing.assert_allclose(found.total, -(p * np.log(p)).sum(axis=1))
    np.testing.assert_allclose(found.aleatoric, found.total)
    np.testing.assert_array_equal(found.epistemic, np.zeros(300))


def test_decision_function_decides():
    X, y = draw(300, 2)
    model = LinearClassifier(random_state=0).fit(X, y)
    f = model.decision_function(X)
    assert f.shape == (300,)
    np.testing.assert_allclose(f, X @ model.coef_[0] + model.intercept_[0])
    np.testing.assert_array_equal(model.predict(X), (f > 0).astype(int))
    X, y = draw(300, 4)
    model = LinearClassifier(random_state=0).fit(X, y)
    assert model.decision_function(X).shape == (300, 4)


# -- numbers ----------------------------------------------------------------------------------


def numbers(n, seed=0, noise=0.7):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, X @ [1.0, -1.0, 0.5, 0.0] + 2.0 + noise * rng.standard_normal(n)


@pytest.mark.parametrize("loss", ["squared_error", "squared"])
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_intervals_of_gaussian_targets_cover(loss, coverage):
    """Four standard errors: of the share of 4,000 new rows, and of the noise from 2,000."""
    X, y = numbers(2000)
    model = LinearRegressor(loss).fit(X, y)
    fresh, targets = numbers(4000, seed=1)
    interval = model.predict_interval(fresh, coverage=coverage)
    assert interval.shape == (4000, 2)
    inside = (interval[:, 0] <= targets) & (targets <= interval[:, 1])
    assert inside.mean() == pytest.approx(coverage, abs=0.04 if coverage < 0.9 else 0.02)


def test_intervals_are_wider_far_from_the_data_and_for_few_rows():
    X, y = numbers(30)
    model = LinearRegressor().fit(X, y)
    near, far = np.zeros((1, 4)), np.full((1, 4), 50.0)
    width = [np.diff(model.predict_interval(rows))[0, 0] for rows in (near, far)]
    assert width[1] > 2.0 * width[0]
    parts = model.predict_uncertainty(far)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic)
    assert parts.epistemic[0] > parts.aleatoric[0]
    assert model.predict_uncertainty(near).epistemic[0] < parts.epistemic[0]


def test_standard_deviation_of_a_prediction():
    X, y = numbers(2000)
    model = LinearRegressor().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, model.predict(X))
    np.testing.assert_allclose(std, 0.7, rtol=0.1)
    assert model.noise_ == pytest.approx(0.7, rel=0.05)
    quantiles = model.predict_quantiles(X, alpha=[0.1, 0.5, 0.9])
    assert quantiles.shape == (2000, 3)
    np.testing.assert_allclose(quantiles[:, 1], mean)
    assert (np.diff(quantiles, axis=1) > 0.0).all()


def test_noise_counts_weights_and_parameters():
    """The estimate is the residual variance over n - p, whatever the size of the weights."""
    X, y = numbers(100)
    model = LinearRegressor(alpha=0.0).fit(X, y)
    rest = y - model.predict(X)
    assert model.noise_ == pytest.approx(np.sqrt((rest**2).sum() / 95))
    heavy = LinearRegressor(alpha=0.0).fit(X, y, sample_weight=np.full(100, 8.0))
    assert heavy.noise_ == pytest.approx(model.noise_)


@pytest.mark.parametrize("loss", ["huber", "quantile", "epsilon_insensitive"])
def test_losses_without_a_distribution(loss):
    X, y = numbers(100)
    model = LinearRegressor(loss).fit(X, abs(y))
    for method in ("predict_interval", "predict_quantiles", "predict_uncertainty"):
        with pytest.raises(AttributeError) as caught:
            getattr(model, method)
        assert "does not define a distribution" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="does not define a distribution"):
        model.predict(X, return_std=True)


def counts(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    return X, rng.poisson(np.exp(1.0 + X @ [0.6, -0.4, 0.0])).astype(float)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_intervals_of_counts(dtype):
    """Fresh counts; six standard errors of 20,000 rows: failure rate below 1e-8 for a new seed."""
    X, y = counts(500)
    fresh, targets = counts(20_000, seed=1)
    fresh = fresh.astype(dtype)
    model = LinearRegressor("poisson").fit(X.astype(dtype), y)
    low, high = model.predict_interval(fresh, coverage=0.8).T
    np.testing.assert_array_equal(low, np.floor(low))
    assert np.mean((low <= targets) & (targets <= high)) > 0.8 - 6.0 * np.sqrt(0.16 / 20_000)
    # the part of a fit of 500 rows is small, and the next smaller intervals hold less
    assert np.mean((low < targets) & (targets < high)) < 0.8
    np.testing.assert_array_equal(
        model.predict_quantiles(fresh, [0.1, 0.9]), np.stack([low, high], axis=1)
    )
    mean, std = model.predict(fresh, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(fresh))
    rest = (targets - mean) / std
    assert np.mean(rest**2) == pytest.approx(1.0, abs=0.1)


def test_uncertainty_of_counts_by_draws_of_their_coefficients():
    """Six standard errors, 2 statistics of 5 rows: failure rate below 1e-7 for a new seed."""
    X, y = counts(60)
    model = LinearRegressor("poisson").fit(X, y)
    rng = np.random.default_rng(2)
    theta = np.append(model.coef_, model.intercept_)
    draws = rng.multivariate_normal(theta, model.covariance_[0], 200_000)
    found = model.predict_uncertainty(X[:5])
    rate = np.exp(draws @ np.column_stack([X[:5], np.ones(5)]).T)
    error = 6.0 / np.sqrt(len(rate))
    assert (abs(rate.mean(axis=0) - found.aleatoric) < error * rate.std(axis=0)).all()
    square = (rate - rate.mean(axis=0)) ** 2
    assert (abs(square.mean(axis=0) - found.epistemic) < error * square.std(axis=0)).all()
    np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic)


def test_counts_without_a_certificate_are_of_one_rate():
    X, y = counts(300)
    model = LinearRegressor("poisson").partial_fit(X, y)
    assert not model.covariance_.size
    found = model.predict_uncertainty(X)
    np.testing.assert_allclose(found.total, model.predict(X))
    np.testing.assert_array_equal(found.epistemic, 0.0)


def test_two_quantile_fits_make_an_interval():
    X, y = numbers(1500)
    low, high = (LinearRegressor("quantile").set_params(loss__tau=t).fit(X, y) for t in (0.1, 0.9))
    fresh, targets = numbers(4000, seed=1)
    inside = (low.predict(fresh) <= targets) & (targets <= high.predict(fresh))
    assert inside.mean() == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.5, np.nan])
def test_nonsense_coverage(coverage):
    X, y = numbers(50)
    with pytest.raises(ValueError, match="coverage"):
        LinearRegressor().fit(X, y).predict_interval(X, coverage=coverage)


@pytest.mark.parametrize(("share", "folds"), [(0.3, 1), (0.02, 5)], ids=["common", "rare"])
def test_rare_positives_are_scored_by_as_many_folds_as_it_takes(share, folds, monkeypatch):
    """Sixteen positives in a fifth of the rows are too few to estimate their probability."""
    seen = []

    def spy(scores, codes, weight):
        seen.append(codes)
        return fit_calibration(scores, codes, weight)

    monkeypatch.setattr("likelier.linear.classifier.fit_calibration", spy)
    rng = np.random.default_rng(0)
    y = (np.arange(4000) < share * 4000).astype(int)
    X = rng.standard_normal((4000, 3)) + y[:, None]
    LinearClassifier("hinge", random_state=0).fit(X, y)
    assert len(seen[0]) == pytest.approx(4000 * folds / 5, rel=0.1)
    if folds == 5:
        assert np.count_nonzero(seen[0]) == np.count_nonzero(y)
