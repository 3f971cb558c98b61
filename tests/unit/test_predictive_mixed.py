"""Mixtures of predictives of other kinds, against flat mixtures, scipy.stats and simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from likelier.base import Posterior, Uncertainty
from likelier.predictive import (
    Bernoulli,
    Categorical,
    Counts,
    Gaussian,
    LabelSets,
    MixedClasses,
    MixedNumbers,
    MixedPosterior,
    StudentT,
)

LEVELS = [1e-6, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999]


def gaussians(n=20, seed=0, mean=3.0):
    rng = np.random.default_rng(seed)
    loc, scale = mean + rng.standard_normal((n, 2)), np.exp(rng.standard_normal((n, 2)))
    return Gaussian(loc, scale, weights=rng.dirichlet(np.ones(2), n))


def three_kinds(n=20, seed=0):
    rng = np.random.default_rng(seed)
    student = StudentT(4.0 * rng.standard_normal(n), np.exp(rng.standard_normal(n)), df=5.0)
    parts = [gaussians(n, seed), student, Counts(np.exp(rng.uniform(-2.0, 3.0, n)))]
    return MixedNumbers(parts, weights=rng.dirichlet(np.ones(3), n))


def scipy_cdf(p, y):
    """Of `three_kinds`, one number per row."""
    normal, student, counts = p.parts
    each = [
        (normal.weights * stats.norm.cdf(y[:, None], normal.loc, normal.scale)).sum(axis=1),
        stats.t.cdf(y, 5.0, student.loc[:, 0], student.scale[:, 0]),
        stats.poisson.cdf(y, counts.rate[:, 0]),
    ]
    return (p.weights * np.stack(each, axis=1)).sum(axis=1)


# -- numbers ----------------------------------------------------------------------------------


def test_a_mixture_of_mixtures_is_the_flat_mixture():
    a, b = gaussians(seed=1), gaussians(seed=2, mean=0.0)
    mixed = MixedNumbers([a, b], weights=[3.0, 1.0])
    flat = Gaussian(
        np.hstack([a.loc, b.loc]),
        np.hstack([a.scale, b.scale]),
        weights=np.hstack([0.75 * a.weights, 0.25 * b.weights]),
    )
    y = np.linspace(-3.0, 8.0, 20)
    np.testing.assert_allclose(mixed.log_density(y), flat.log_density(y), rtol=1e-12)
    np.testing.assert_allclose(mixed.cdf(y), flat.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(mixed.mean(), flat.mean(), rtol=1e-12)
    np.testing.assert_allclose(mixed.std(), flat.std(), rtol=1e-12)
    for part in ("total", "aleatoric", "epistemic"):
        np.testing.assert_allclose(
            getattr(mixed.uncertainty(), part), getattr(flat.uncertainty(), part), rtol=1e-11
        )
    np.testing.assert_allclose(mixed.quantiles(LEVELS), flat.quantiles(LEVELS), rtol=1e-10)
    np.testing.assert_allclose(mixed.interval(0.8), flat.interval(0.8), rtol=1e-10)


def test_distribution_function_and_quantiles_of_three_kinds():
    p = three_kinds()
    y = np.linspace(-5.0, 9.0, 20)
    np.testing.assert_allclose(p.cdf(y), scipy_cdf(p, y), rtol=1e-10, atol=1e-14)
    found = p.quantiles(LEVELS)
    assert found.shape == (20, len(LEVELS))
    for column, level in enumerate(LEVELS):
        q = found[:, column]
        assert (p.cdf(q) >= level).all()
        assert (p.cdf(np.nextafter(q, -np.inf)) < level).all()  # no smaller number will do
        np.testing.assert_array_equal(p.quantiles(level), q)


def test_quantiles_at_a_jump_are_the_jump():
    p = MixedNumbers([Counts([2.0]), Gaussian([9.0], [1.0]), Gaussian([0.0], [0.0])])
    np.testing.assert_array_equal(p.quantiles([0.1, 0.3, 0.37, 0.5])[0], [0.0, 0.0, 0.0, 2.0])
    below = MixedNumbers([Counts([0.1]), Gaussian([-5.0], [1.0])])
    assert below.quantiles(0.6)[0] == 0.0


def test_simulated_targets_agree():
    """Six standard errors, 3 rows, 3 statistics: failure rate below 1e-7 for a new seed."""
    p, n = three_kinds(n=3, seed=4), 200_000
    rng = np.random.default_rng(6)
    normal, student, counts = p.parts
    for row in range(3):
        which = rng.choice(3, n, p=p.weights[row])
        inner = rng.choice(2, n, p=normal.weights[row])
        draws = np.choose(
            which,
            [
                normal.loc[row][inner] + normal.scale[row][inner] * rng.standard_normal(n),
                student.loc[row, 0] + student.scale[row, 0] * rng.standard_t(5.0, n),
                rng.poisson(counts.rate[row, 0], n).astype(float),
            ],
        )
        assert abs(draws.mean() - p.mean()[row]) < 6.0 * p.std()[row] / np.sqrt(n)
        spread = (draws - draws.mean()) ** 2
        assert abs(spread.mean() - p.std()[row] ** 2) < 6.0 * spread.std() / np.sqrt(n)
        low, high = p.interval(0.8)[row]
        assert np.mean((draws >= low) & (draws <= high)) > 0.8 - 6.0 * np.sqrt(0.16 / n)
        assert np.mean(draws < low) < 0.1 + 6.0 * np.sqrt(0.09 / n)
        assert np.mean(draws > high) < 0.1 + 6.0 * np.sqrt(0.09 / n)


def test_counts_mix_with_counts_but_have_no_density_with_other_numbers():
    two = MixedNumbers([Counts([1.0]), Counts([5.0])])
    assert two.discrete
    assert two.log_density([3.0]) == pytest.approx(Counts([[1.0, 5.0]]).log_density([3.0]))
    with pytest.raises(ValueError, match="no density"):
        three_kinds(n=1).log_density([2.0])
    with pytest.raises(ValueError, match="no density"):
        MixedNumbers([two, Gaussian([0.0], [1.0])]).log_density([2.0])


def test_members_without_weight_do_not_count():
    p = MixedNumbers([Gaussian([0.0], [1.0]), StudentT([1e9], [1.0], df=1.0)], weights=[1.0, 0.0])
    assert p.mean() == [0.0]
    assert p.std() == [1.0]
    np.testing.assert_allclose(p.quantiles([0.1, 0.9])[0], stats.norm.ppf([0.1, 0.9]), rtol=1e-9)


# -- classes ----------------------------------------------------------------------------------


def test_classes_average_probabilities_and_split_the_entropy():
    rng = np.random.default_rng(0)
    a = Categorical(rng.dirichlet(np.ones(2), (9, 4)))
    b = Bernoulli(rng.uniform(size=(9, 3)))
    mixed = MixedClasses([a, b], weights=[1.0, 3.0])
    brute = 0.25 * a.probabilities() + 0.75 * b.probabilities()
    np.testing.assert_allclose(mixed.probabilities(), brute, rtol=1e-12)
    y = np.arange(9) % 2
    np.testing.assert_allclose(mixed.log_density(y), np.log(brute[np.arange(9), y]), rtol=1e-12)
    np.testing.assert_array_equal(mixed.point(), brute.argmax(axis=1))
    split = mixed.uncertainty()
    aleatoric = 0.25 * a.uncertainty().aleatoric + 0.75 * b.uncertainty().aleatoric
    np.testing.assert_allclose(split.total, stats.entropy(brute, axis=1), rtol=1e-10)
    np.testing.assert_allclose(split.aleatoric, aleatoric, rtol=1e-10)
    np.testing.assert_allclose(split.epistemic, split.total - aleatoric, rtol=1e-8)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: MixedNumbers([]), ValueError, "at least one component"),
        (lambda: MixedNumbers([gaussians(3), gaussians(4)]), ValueError, "same rows"),
        (lambda: MixedNumbers([Bernoulli([0.5])]), TypeError, "NumberPredictive"),
        (lambda: MixedClasses([gaussians(3)]), TypeError, "ClassPredictive"),
        (lambda: MixedClasses([LabelSets([[0.5, 0.5]])]), TypeError, "ClassPredictive"),
        (lambda: MixedNumbers([gaussians(3)] * 2, weights=[1.0, -1.0]), ValueError, "weights"),
        (
            lambda: MixedClasses([Bernoulli([0.5]), Categorical([[0.1] * 10])]).probabilities(),
            ValueError,
            "same classes",
        ),
    ],
)
def test_bad_parts_are_named(make, error, match):
    with pytest.raises(error, match=match):
        make()


# -- posteriors -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line(Posterior):
    """Numbers around a slope times the first feature; half of the variance is epistemic."""

    slope: float
    takes: int | None = None

    @property
    def most_rows(self):
        return self.takes

    def predictive(self, X):
        return Gaussian(self.slope * X[:, 0], np.full(len(X), 2.0))

    def uncertainty(self, X):
        return Uncertainty(*(np.full(len(X), v) for v in (4.0, 2.0, 2.0)))

    def check_rows(self, X):
        if (X < 0.0).any():
            raise ValueError("negative")

    def check(self, n_features, n_classes):
        if n_features != 3 or n_classes is not None:
            raise ValueError("three features, no classes")


@dataclass(frozen=True)
class Coin(Posterior):
    p: float

    def predictive(self, X):
        return Bernoulli(np.full(len(X), self.p))


def test_a_posterior_of_posteriors_predicts_the_mixture():
    X = np.arange(12.0).reshape(4, 3)
    both = MixedPosterior((Line(1.0, 50), Line(-1.0)), np.array([1.0, 3.0]))
    both.check(3, None)
    assert both.most_rows == 50
    np.testing.assert_allclose(both.point(X), -0.5 * X[:, 0])
    found = both.uncertainty(X)
    np.testing.assert_allclose(found.aleatoric, 2.0)  # what the members say, not their variance
    np.testing.assert_allclose(found.epistemic, 2.0 + 0.75 * X[:, 0] ** 2)
    np.testing.assert_allclose(found.total, both.predictive(X).std() ** 2)
    with pytest.raises(ValueError, match="negative"):
        both.check_rows(-X)
    coins = MixedPosterior((Coin(0.2), Coin(0.6)), np.ones(2))
    assert coins.most_rows is None
    np.testing.assert_allclose(coins.predictive(X).probabilities(), [[0.6, 0.4]] * 4)


def test_a_posterior_of_posteriors_checks_weights_and_members():
    for weights in (np.array([1.0, 0.0]), np.array([1.0, np.nan]), np.ones(3)):
        with pytest.raises(ValueError, match="weights"):
            MixedPosterior((Line(1.0), Line(2.0)), weights).check(3, None)
    with pytest.raises(ValueError, match="three features"):
        MixedPosterior((Line(1.0), Line(2.0)), np.ones(2)).check(4, None)
    with pytest.raises(ValueError, match="one or more"):
        MixedPosterior((), np.ones(0)).check(3, None)
    with pytest.raises(TypeError, match="NumberPredictive"):
        MixedPosterior((Line(1.0), Coin(0.5)), np.ones(2)).predictive(np.ones((1, 3)))
