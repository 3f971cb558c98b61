"""Scores of the command line: scikit-learn's values, and standard errors that are true."""

import numpy as np
import pytest
from sklearn import metrics

from likelier.cli.scores import ClassificationScores, RegressionScores, RunningMoments


def by_name(scores):
    return {score.name: score for score in scores.scores()}


def probabilities(rng, n, k):
    p = rng.dirichlet(np.ones(k), size=n)
    y = np.array([rng.choice(k, p=row) for row in p])
    return y, p


@pytest.mark.parametrize("k", [2, 3])
def test_classification_values_are_scikit_learns(k):
    y, p = probabilities(np.random.default_rng(k), 500, k)
    scores = ClassificationScores(k)
    for part in np.array_split(np.arange(500), 7):
        scores.add(y[part], p[part].argmax(1), p[part])
    found = by_name(scores)
    brier = metrics.brier_score_loss(y, p[:, 1] if k == 2 else p, labels=np.arange(k))
    assert found["accuracy"].value == pytest.approx(metrics.accuracy_score(y, p.argmax(1)))
    assert found["log_loss"].value == pytest.approx(metrics.log_loss(y, p))
    assert found["brier_score"].value == pytest.approx(brier)
    assert scores.count == 500
    assert scores.unseen_labels == 0


def test_calibration_error_by_hand():
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    y = np.array([0, 1, 1, 1])
    scores = ClassificationScores(2)
    scores.add(y, p.argmax(1), p)
    # confidence 0.9: right half the time; confidence 0.6: always right
    assert by_name(scores)["calibration_error"].value == pytest.approx(0.5 * 0.4 + 0.5 * 0.4)


def test_labels_never_trained_on_count_as_wrong():
    scores = ClassificationScores(2)
    scores.add(np.array([0, -1]), np.array([0, 1]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    found = by_name(scores)
    assert scores.unseen_labels == 1
    assert found["accuracy"].value == 0.5
    assert np.isfinite(found["log_loss"].value)
    assert found["log_loss"].value > 15


def test_regression_values_are_scikit_learns():
    rng = np.random.default_rng(0)
    y = 1e6 + rng.standard_normal(400)  # a far origin must cost no digits
    prediction = y + rng.standard_normal(400)
    scores = RegressionScores()
    for part in np.array_split(np.arange(400), 6):
        interval = np.column_stack([prediction[part] - 1, prediction[part] + 1])
        scores.add(y[part], prediction[part], interval)
    found = by_name(scores)
    rmse = metrics.root_mean_squared_error(y, prediction)
    assert found["rmse"].value == pytest.approx(rmse, rel=1e-12)
    assert found["mae"].value == pytest.approx(metrics.mean_absolute_error(y, prediction))
    assert found["r2"].value == pytest.approx(metrics.r2_score(y, prediction), rel=1e-9)
    assert found["interval_coverage"].value == np.mean(np.abs(y - prediction) <= 1)
    assert found["interval_width"].value == pytest.approx(2.0)


def test_a_constant_target_has_no_r2():
    scores = RegressionScores()
    scores.add(np.ones(5), np.zeros(5))
    found = by_name(scores)
    assert np.isnan(found["r2"].value)
    assert found["rmse"].value == 1.0


def test_standard_errors_match_the_spread_over_replications():
    """400 data sets of 300 rows: a spread is known to about 4%, so 15% fails by chance < 1e-3."""
    rng = np.random.default_rng(0)
    values = {}
    errors = {}
    for _ in range(400):
        y, p = probabilities(rng, 300, 3)
        p = p**2 / (p**2).sum(axis=1, keepdims=True)  # overconfident: calibration error > 0
        classes = ClassificationScores(3)
        classes.add(y, p.argmax(1), p)
        target = rng.standard_normal(300)
        numbers = RegressionScores()
        numbers.add(target + 5, target + 5 + 0.7 * rng.standard_normal(300))
        for score in [*classes.scores(), *numbers.scores()]:
            values.setdefault(score.name, []).append(score.value)
            errors.setdefault(score.name, []).append(score.stderr)
    assert set(values) >= {"accuracy", "log_loss", "brier_score", "rmse", "mae", "r2"}
    for name in values:
        tolerance = 0.25 if name == "calibration_error" else 0.15
        assert np.mean(errors[name]) == pytest.approx(np.std(values[name]), rel=tolerance), name


def test_moments_do_not_depend_on_the_blocks():
    rows = np.random.default_rng(0).standard_normal((100, 2)) + 1e8
    whole, parts = RunningMoments(2), RunningMoments(2)
    whole.add(rows)
    for part in np.array_split(rows, 9):
        parts.add(part)
    parts.add(rows[:0])
    gradient = np.array([1.0, -2.0])
    assert parts.stderr(gradient) == pytest.approx(whole.stderr(gradient), rel=1e-6)
    expected = np.std(rows @ gradient, ddof=1) / 10
    assert whole.stderr(gradient) == pytest.approx(expected, rel=1e-6)
