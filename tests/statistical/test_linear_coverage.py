"""Confidence intervals hold the true coefficient as often as they say.

Every test has a fixed seed, so it passes or fails for good; the failure rate stated with it is
the probability that a correct implementation fails for a seed drawn at random.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from likelier import LinearClassifier, LinearRegressor


def linear(rng, signal):
    # noise that grows with the signal: the usual formula would not cover, the sandwich does
    return signal + (0.5 + 0.5 * abs(signal)) * rng.standard_normal(len(signal))


def logistic(rng, signal):
    return (rng.random(len(signal)) < expit(signal)).astype(int)


def poisson(rng, signal):
    return rng.poisson(np.exp(0.5 * signal))


KINDS = {
    "linear": (lambda: LinearRegressor(random_state=0), linear, 1.0),
    "logistic": (lambda: LinearClassifier(random_state=0), logistic, 1.0),
    "poisson": (lambda: LinearRegressor("poisson", random_state=0), poisson, 0.5),
}


def hits(kind, n, d, n_replications, level=0.95, seed=0):
    """Which intervals held the truth: an array of (replications, features)."""
    make, respond, factor = KINDS[kind]
    rng = np.random.default_rng(seed)
    scale = 10.0 ** np.linspace(-4, 4, d)  # ill-scaled features included
    truth = np.linspace(0.6, -0.6, d) / np.sqrt(d / 5)
    inside = np.empty((n_replications, d), dtype=bool)
    for r in range(n_replications):
        X = rng.standard_normal((n, d))
        y = respond(rng, X @ truth + 0.3)
        interval = make().fit(X * scale, y).coef_interval(level).reshape(d, 2)
        target = factor * truth / scale
        inside[r] = (interval[:, 0] <= target) & (target <= interval[:, 1])
    return inside


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [5, 20])
def test_coverage(kind, d):
    """200 replications. A share of independent coefficients has a standard error of at most
    1.5 points (0.7 for five, 0.35 for twenty of them); HC1 costs up to a point at this size.
    The bounds are three standard errors of five coefficients away: failure rate 0.3 percent.
    """
    share = hits(kind, 100 * d if d == 5 else 1000, d, 200 if d == 5 else 60).mean()
    assert 0.925 <= share <= 0.972


@pytest.mark.parametrize("level", [0.5, 0.8])
def test_other_levels(level):
    """1,000 intervals: four standard errors, failure rate below 0.01 percent if independent."""
    share = hits("linear", 300, 5, 200, level).mean()
    assert abs(share - level) <= 4.0 * np.sqrt(level * (1.0 - level) / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [5, 20])
def test_coverage_over_a_thousand_replications(kind, d):
    """The share over all coefficients lies between 93 and 97 percent: with a standard error
    of at most 0.7 points, failure rate 0.4 percent.
    """
    assert 0.93 <= hits(kind, 100 * d, d, 1000, seed=1).mean() <= 0.97
