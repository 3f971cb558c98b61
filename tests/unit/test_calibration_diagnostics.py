"""Conformal quantiles and calibration diagnostics: by hand, scikit-learn, simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss
from sklearn.metrics import log_loss as sklearn_log_loss

from likelier.calibration import brier, conformal_quantile, ece, estimate_mean, log_loss

# -- conformal quantile -------------------------------------------------------------------------


def test_conformal_quantile_is_the_corrected_order_statistic():
    r = np.arange(1.0, 20.0)  # 19 residuals
    for coverage, place in ((0.55, 11), (0.9, 18), (0.95, 19), (0.05, 1), (0.051, 2)):
        assert conformal_quantile(r[::-1], coverage) == r[place - 1]
    assert conformal_quantile(r, 0.951) == math.inf
    assert conformal_quantile([3.0], 0.5) == 3.0


@pytest.mark.parametrize(("n", "coverage"), [(9, 0.9), (19, 0.8), (50, 0.9)])
def test_conformal_coverage_holds_at_any_sample_size(n, coverage):
    """At least the coverage, at most 1/(n+1) more; five standard errors of 10,000 trials."""
    rng = np.random.default_rng(4)
    draws = rng.standard_cauchy((10_000, n + 1))
    bounds = np.array([conformal_quantile(row[:n], coverage) for row in draws[:, :n]])
    share, slack = np.mean(draws[:, n] <= bounds), 5.0 * math.sqrt(0.25 / 10_000)
    assert coverage - slack <= share <= coverage + 1.0 / (n + 1) + slack


def test_conformal_weights():
    r = [1.0, 2.0, 3.0, 4.0]
    assert conformal_quantile(r, 0.6, [1, 1, 1, 1]) == conformal_quantile(r, 0.6)
    assert conformal_quantile(r, 0.6, [5, 5, 5, 5]) == conformal_quantile(r, 0.6)
    assert conformal_quantile([*r, 99.0], 0.6, [1, 1, 1, 1, 0]) == conformal_quantile(r, 0.6)
    assert conformal_quantile(r, 0.5, [10, 1, 1, 1]) == 3.0  # 11.5 of 13 + 10


def test_weighted_conformal_coverage_under_covariate_shift():
    """Scores grow with x, rows are seen with density 2(1-x) and wanted with density one.

    Weighted by 1/(2(1-x)) the coverage is kept; unweighted it falls short. Failure rate
    below 1e-6 by five standard errors of 4,000 trials.
    """
    rng = np.random.default_rng(5)
    plain, weighted, trials = 0, 0, 4000
    for _ in range(trials):
        x = 0.95 * (1.0 - np.sqrt(rng.uniform(size=200)))
        new = 0.95 * rng.uniform()
        r = (0.1 + x) * abs(rng.standard_normal(200))
        target = (0.1 + new) * abs(rng.standard_normal())
        plain += target <= conformal_quantile(r, 0.9)
        weighted += target <= conformal_quantile(r, 0.9, 1.0 / (0.95 - x + 1e-3))
    slack = 5.0 * math.sqrt(0.09 / trials)
    assert plain / trials < 0.9 - slack
    assert weighted / trials > 0.9 - slack


# -- diagnostics --------------------------------------------------------------------------------


def predictions(n=400, n_classes=3):
    rng = np.random.default_rng(6)
    p = rng.dirichlet(np.ones(n_classes), n)
    k = (rng.uniform(size=(n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, n_classes - 1)
    return p, k, rng.integers(0, 4, n).astype(float)


def test_log_loss_and_brier_are_those_of_scikit_learn():
    p, k, w = predictions()
    assert log_loss(p, k, w).value == pytest.approx(sklearn_log_loss(k, p, sample_weight=w))
    assert brier(p, k, w).value == pytest.approx(brier_score_loss(k, p, sample_weight=w))
    two, code, w = predictions(n_classes=2)
    assert brier(two, code, w).value == pytest.approx(
        brier_score_loss(code, two[:, 1], sample_weight=w)
    )
    assert log_loss(two[:, 1], code).value == pytest.approx(log_loss(two, code).value)


def test_standard_error_is_the_textbook_one_and_covers():
    rng = np.random.default_rng(7)
    v = rng.exponential(size=50)
    found = estimate_mean(v)
    assert found.value == pytest.approx(v.mean())
    assert found.stderr == pytest.approx(v.std(ddof=1) / math.sqrt(50))
    padded = estimate_mean([*v, 1e9], [*np.ones(50), 0.0])
    assert (padded.value, padded.stderr) == pytest.approx((found.value, found.stderr))
    assert math.isnan(estimate_mean([1.0]).stderr)
    # 95% intervals of weighted means; five standard errors of 2,000 trials
    hits = 0
    for _ in range(2000):
        w = rng.uniform(0.1, 2.0, 200)
        one = estimate_mean(rng.standard_normal(200), w)
        hits += abs(one.value) < 1.96 * one.stderr
    assert abs(hits / 2000 - 0.95) < 5.0 * math.sqrt(0.05 * 0.95 / 2000)


def test_ece_by_hand():
    p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
    assert ece(p, [0, 1, 1], n_bins=10) == pytest.approx((0.1 + 0.8 + 0.3) / 3.0)
    # in one bin the gaps may cancel
    assert ece(p, [0, 1, 1], n_bins=1) == pytest.approx(abs(0.8 - 2.0 / 3.0))
    assert ece([1.0, 0.0], [1, 0]) == 0.0
    assert ece(p, [0, 1, 1], n_bins=10, weight=[1, 0, 2]) == pytest.approx((0.1 + 0.6) / 3.0)


def test_ece_of_true_probabilities_is_small_and_of_exaggerated_ones_is_not():
    p, k, _ = predictions(n=20_000)
    assert ece(p, k) < 0.02
    sharp = p**3 / (p**3).sum(axis=1, keepdims=True)
    assert ece(sharp, k) > 0.1


def test_smallest_probability_does_not_make_the_loss_infinite():
    assert math.isfinite(log_loss([0.0], [1]).value)
