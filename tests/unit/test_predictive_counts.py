"""Predictive of counts against scipy.stats, sums over integers and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from likelier.predictive import Counts

LEVELS = [1e-6, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999]
INTEGERS = np.arange(2000.0)


def mixture(n=30, n_components=4, seed=0):
    rng = np.random.default_rng(seed)
    rate = np.exp(rng.uniform(-4.0, 5.0, (n, n_components)))
    return Counts(rate, weights=rng.dirichlet(np.ones(n_components), n))


def probabilities(p, row):
    """Of all integers, by scipy."""
    return p.weights[row] @ stats.poisson.pmf(INTEGERS, p.rate[row][:, None])


def test_probabilities_and_distribution_function_are_those_of_scipy():
    p = mixture()
    y = np.random.default_rng(1).poisson(p.mean()).astype(float)
    for row in range(p.n_rows):
        brute = probabilities(p, row)
        assert np.exp(p.log_density(y))[row] == pytest.approx(brute[int(y[row])], rel=1e-10)
        assert p.cdf(y)[row] == pytest.approx(brute[: int(y[row]) + 1].sum(), rel=1e-10)
        assert p.cdf(y + 0.7)[row] == p.cdf(y)[row]


@pytest.mark.parametrize("rate", [0.3, 20.0, 63.0, 65.0, 5e3, 1e9])
def test_probabilities_sum_to_one(rate):
    spread = 12.0 * np.sqrt(rate) + 30.0
    k = np.arange(max(0.0, np.floor(rate - spread)), np.ceil(rate + spread))
    total = np.exp(Counts(np.full(len(k), rate)).log_density(k)).sum()
    assert total == pytest.approx(1.0, abs=1e-10)


def test_moments_by_sums_over_integers():
    p = mixture()
    split = p.uncertainty()
    for row in range(p.n_rows):
        brute = probabilities(p, row)
        mean = brute @ INTEGERS
        variance = brute @ (INTEGERS - mean) ** 2
        assert p.mean()[row] == pytest.approx(mean, rel=1e-9)
        assert p.std()[row] == pytest.approx(np.sqrt(variance), rel=1e-9)
        assert split.aleatoric[row] == pytest.approx(mean, rel=1e-9)  # of every Poisson law
        assert split.epistemic[row] == pytest.approx(variance - mean, rel=1e-8)


def test_quantiles_are_the_smallest_integer_that_is_enough():
    p = mixture()
    found = p.quantiles(LEVELS)
    assert p.quantiles(0.5).shape == (p.n_rows,)
    for row in range(p.n_rows):
        brute = np.cumsum(probabilities(p, row))
        np.testing.assert_array_equal(found[row], np.searchsorted(brute, LEVELS))


@pytest.mark.parametrize("rate", [0.0, 1e-310, 1e-5, 1.0, 37.0, 1e4, 1e8, 1e15, 1e18, 1e61, 1e150])
@pytest.mark.parametrize("level", [1e-12, 0.05, 0.5, 0.95, 1.0 - 1e-12])
def test_quantiles_of_one_component_by_the_definition(rate, level):
    p = Counts([rate])
    found = p.quantiles(level)
    assert p.cdf(found)[0] >= level
    assert found == np.floor(found)
    assert p.cdf(np.minimum(found - 1.0, np.nextafter(found, -np.inf)))[0] < level


def test_interval_of_simulated_counts():
    """Six standard errors and 3 rows: failure rate below 1e-8 for a new seed."""
    p, n = mixture(n=3, seed=5), 200_000
    rng = np.random.default_rng(6)
    interval = p.interval(0.8)
    for row in range(p.n_rows):
        draws = rng.poisson(p.rate[row][rng.choice(4, n, p=p.weights[row])])
        low, high = interval[row]
        for share, level in ((np.mean(draws < low), 0.1), (np.mean(draws > high), 0.1)):
            assert share < level + 6.0 * np.sqrt(level * (1.0 - level) / n)
        assert np.mean(draws <= low) > 0.1 - 6.0 * np.sqrt(0.09 / n)
        assert abs(draws.mean() - p.mean()[row]) < 6.0 * p.std()[row] / np.sqrt(n)


def test_what_is_no_count_is_impossible():
    p = Counts(np.full(4, 3.0))
    np.testing.assert_array_equal(p.log_density([0.5, -1.0, np.inf, 1e308]), -np.inf)
    np.testing.assert_array_equal(p.cdf([-0.5, -1e9, np.inf, 1e308]), [0.0, 0.0, 1.0, 1.0])
    assert Counts([0.0]).log_density([0.0])[0] == 0.0
    assert Counts([0.0]).log_density([1.0])[0] == -np.inf
    assert Counts([1e-310]).log_density([1.0])[0] == pytest.approx(np.log(1e-310))


@pytest.mark.parametrize(
    ("rate", "match"),
    [([-1.0], "rate must lie between"), ([1e151], "rate must lie"), ([np.nan], "rate must be fin")],
)
def test_bad_rates_are_named(rate, match):
    with pytest.raises(ValueError, match=match):
        Counts(rate)


def test_no_rows():
    assert Counts(np.empty((0, 3))).quantiles([0.1, 0.9]).shape == (0, 2)


def test_quantiles_on_both_sides_of_the_largest_exact_count():
    p = Counts([[3.0, 1e17]])
    np.testing.assert_array_equal(p.quantiles([0.1, 0.4]), Counts([3.0]).quantiles([0.2, 0.8]))
    np.testing.assert_allclose(p.quantiles(0.9), Counts([1e17]).quantiles(0.8), rtol=1e-15)
