"""Rows with missing values are outliers by their known values, whatever the units."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import BernoulliNB, GaussianNB
from likelier.naive_bayes.distributions import LinearDistributions
from likelier.naive_bayes.gaussian_model import GaussianDistributions, StudentDistributions

SPREAD = np.array([1.0, 10.0, 0.1, 3.0, 1.0])


def rows(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 5)) * SPREAD + y[:, None], y


@pytest.mark.parametrize("bayesian", [False, True])
@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_shares_of_outliers_do_not_depend_on_units(unit, bayesian):
    """Asked for a tenth; a log density of fewer values met the threshold of complete rows: 0 or 1.

    The threshold rests on 1,000 rows, so a share is off by .03 once in a thousand seeds.
    """
    X, y = rows(2000, 0)
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    model = GaussianNB(bayesian=bayesian, random_state=0).fit(X * unit, y)
    Z, _ = rows(4000, 2)
    for n_missing in (0, 1, 2):
        Z[:, :n_missing] = np.nan
        assert model.is_outlier(Z * unit, 0.9).mean() == pytest.approx(0.1, abs=0.04)
        sparse_too = model.is_outlier(sparse.csr_array(Z * unit), 0.9)
        np.testing.assert_array_equal(sparse_too, model.is_outlier(Z * unit, 0.9))
    Z[:, :3] = np.nan
    assert model.is_outlier(Z * unit, 0.9).mean() < 0.15
    assert not model.is_outlier(np.full((1, 5), np.nan)).any()
    assert model.is_outlier(np.array([[np.nan, np.nan, np.nan, np.nan, 30.0]]) * unit).all()


def test_presences():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 8000)
    X = (rng.random((8000, 8)) < rng.uniform(0.05, 0.95, (2, 8))[y]).astype(float)
    model = BernoulliNB(random_state=0).fit(X[:3000], y[:3000])
    Z = X[3000:]
    Z[:, :3] = np.nan  # none was flagged
    assert 0.03 < model.is_outlier(Z, 0.9).mean() < 0.15


DISTRIBUTIONS = (
    GaussianDistributions(np.array([[0.0, 3.0]]), np.array([[1.0, 1e-4]])),
    StudentDistributions(np.array([[0.0, 3.0]]), np.array([[1.0, 1e-4]]), np.array([[4.0, 12.0]])),
    LinearDistributions(
        np.log([[0.25], [9.0]]), np.log([0.8 * 0.1]), log_present=lambda: np.log([[0.2], [0.9]])
    ),
)


@pytest.mark.parametrize(
    "distributions", DISTRIBUTIONS, ids=lambda distributions: type(distributions).__name__
)
def test_moments_of_the_score_of_a_feature_by_simulation(distributions):
    """Six standard errors of 200,000 draws are less than the bounds."""
    X = distributions.sample(np.zeros(200_000, dtype=np.intp), np.random.default_rng(0))
    mean, variance = distributions.feature_scores()
    for j in range(2):
        alone = np.full_like(X, np.nan)
        alone[:, j] = X[:, j]
        scores = distributions.log_density(alone)[:, 0]
        assert scores.mean() == pytest.approx(mean[0, j], abs=0.02)
        assert scores.var() == pytest.approx(variance[0, j], rel=0.05)
