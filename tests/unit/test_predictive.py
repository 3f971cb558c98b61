"""Predictive mixtures against scipy.stats, quadrature, brute force and simulation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import integrate, stats

from likelier.predictive import Bernoulli, Categorical, Gaussian, Predictive, StudentT

LEVELS = [1e-6, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999]


def mixture(kind, n=40, n_components=5, seed=0, apart=3.0):
    rng = np.random.default_rng(seed)
    loc = apart * rng.standard_normal((n, n_components))
    scale = np.exp(0.7 * rng.standard_normal((n, n_components)))
    weights = rng.dirichlet(np.ones(n_components), n)
    extra = {"df": rng.uniform(2.5, 9.0, (n, n_components))} if kind is StudentT else {}
    return kind(loc, scale, weights=weights, **extra)


def scipy_law(p):
    """The components as one frozen distribution of shape (n, M)."""
    if isinstance(p, StudentT):
        return stats.t(p.df, p.loc, p.scale)
    return stats.norm(p.loc, p.scale)


def average(p, values):
    return (p.weights * values).sum(axis=1)


numbers = pytest.mark.parametrize("kind", [Gaussian, StudentT])


# -- numbers ----------------------------------------------------------------------------------


@numbers
def test_density_and_distribution_function_are_those_of_scipy(kind):
    p = mixture(kind)
    y = 4.0 * np.random.default_rng(1).standard_normal(p.n_rows)
    law = scipy_law(p)
    np.testing.assert_allclose(
        p.log_density(y), np.log(average(p, law.pdf(y[:, None]))), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(p.cdf(y), average(p, law.cdf(y[:, None])), rtol=1e-12)


@numbers
def test_density_integrates_to_one(kind):
    p = mixture(kind, n=5, apart=1.0)
    grid = np.sinh(np.linspace(-25.0, 25.0, 40_001))  # fine near zero, far in the tails
    for row in range(p.n_rows):
        arrays = (f.name for f in dataclasses.fields(p))
        same = dataclasses.replace(
            p, **{name: np.tile(getattr(p, name)[row], (len(grid), 1)) for name in arrays}
        )
        density = np.exp(same.log_density(grid))
        assert integrate.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-5)


@numbers
def test_mean_and_std_are_those_of_scipy(kind):
    p, law = mixture(kind), scipy_law(mixture(kind))
    mean = average(p, law.mean())
    np.testing.assert_allclose(p.mean(), mean, rtol=1e-10, atol=1e-12)
    second = average(p, law.var() + law.mean() ** 2)
    np.testing.assert_allclose(p.std(), np.sqrt(second - mean**2), rtol=1e-9)


@numbers
@pytest.mark.parametrize("apart", [0.0, 3.0, 1e4])
def test_mixture_quantiles_by_brute_force(kind, apart):
    """Plain bisection on scipy's distribution functions."""
    p = mixture(kind, apart=apart)
    law, found = scipy_law(p), p.quantiles(LEVELS)
    assert found.shape == (p.n_rows, len(LEVELS))
    assert (np.diff(found, axis=1) > 0.0).all()
    for column, level in enumerate(LEVELS):
        low, high = law.ppf(level).min(axis=1), law.ppf(level).max(axis=1)
        for _ in range(80):
            middle = 0.5 * (low + high)
            above = average(p, law.cdf(middle[:, None])) > level
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        np.testing.assert_allclose(found[:, column], middle, rtol=1e-10, atol=1e-9)


def test_quantiles_of_one_component_are_exact():
    loc, scale = np.array([0.0, -3.0, 1e6]), np.array([1.0, 0.1, 5.0])
    np.testing.assert_array_equal(
        Gaussian(loc, scale).quantiles(LEVELS), stats.norm.ppf(LEVELS, loc[:, None], scale[:, None])
    )
    np.testing.assert_allclose(
        StudentT(loc, scale, df=3.0).quantiles(LEVELS),
        stats.t.ppf(LEVELS, 3.0, loc[:, None], scale[:, None]),
        rtol=1e-12,
    )


def test_equal_components_are_one_component():
    one = Gaussian(np.array([1.0, 2.0]), np.array([0.5, 3.0]))
    many = Gaussian(np.tile(one.loc, 7), np.tile(one.scale, 7))
    np.testing.assert_allclose(many.quantiles(LEVELS), one.quantiles(LEVELS), rtol=1e-14)
    np.testing.assert_allclose(many.uncertainty().epistemic, 0.0, atol=1e-30)
    np.testing.assert_allclose(many.log_density([0.0, 0.0]), one.log_density([0.0, 0.0]))


def test_quantile_of_a_component_without_weight_does_not_count():
    p = Gaussian(np.array([[0.0, 1e9]]), np.ones((1, 2)), weights=np.array([1.0, 0.0]))
    np.testing.assert_allclose(p.quantiles([0.1, 0.9])[0], stats.norm.ppf([0.1, 0.9]), rtol=1e-9)
    assert p.mean() == [0.0]
    assert p.uncertainty().epistemic == [0.0]


def test_a_single_level_gives_one_number_per_row():
    p = mixture(Gaussian)
    assert p.quantiles(0.5).shape == (p.n_rows,)
    np.testing.assert_array_equal(p.quantiles(0.5), p.quantiles([0.5])[:, 0])


@numbers
def test_interval_is_central(kind):
    p = mixture(kind)
    interval = p.interval(0.8)
    assert interval.shape == (p.n_rows, 2)
    np.testing.assert_allclose(p.cdf(interval[:, 0]), 0.1, rtol=1e-9)
    np.testing.assert_allclose(p.cdf(interval[:, 1]), 0.9, rtol=1e-9)


@numbers
def test_simulated_targets_agree(kind):
    """Six standard errors, 3 rows and 4 statistics: failure rate below 1e-7 for a new seed."""
    p, n = mixture(kind, n=3, apart=2.0, seed=5), 200_000
    rng = np.random.default_rng(6)
    for row in range(p.n_rows):
        which = rng.choice(5, n, p=p.weights[row])
        noise = rng.standard_t(p.df[row][which]) if kind is StudentT else rng.standard_normal(n)
        draws = p.loc[row][which] + p.scale[row][which] * noise
        assert abs(draws.mean() - p.mean()[row]) < 6.0 * p.std()[row] / np.sqrt(n)
        for level in (0.1, 0.5, 0.9):
            share = np.mean(draws <= p.quantiles(level)[row])
            assert abs(share - level) < 6.0 * np.sqrt(level * (1.0 - level) / n)


def test_variance_splits_into_noise_and_disagreement():
    p = Gaussian(np.array([[0.0, 4.0]]), np.array([[1.0, 3.0]]), weights=np.array([0.75, 0.25]))
    split = p.uncertainty()
    assert split.aleatoric == pytest.approx([0.75 * 1.0 + 0.25 * 9.0])
    assert split.epistemic == pytest.approx([0.75 * 1.0 + 0.25 * 9.0])  # mean 1: 1 and 9 squared
    assert split.total == pytest.approx(split.aleatoric + split.epistemic)
    assert p.std() == pytest.approx(np.sqrt(split.total))


def test_heavy_tails_have_no_variance_and_no_mean():
    p = StudentT(np.zeros((1, 2)), np.ones((1, 2)), df=np.array([1.5, 30.0]))
    assert p.mean() == [0.0]
    assert np.isinf(p.std()).all()
    assert np.isnan(StudentT(np.zeros(1), np.ones(1), df=1.0).mean()).all()
    ignored = StudentT(np.zeros((1, 2)), np.ones((1, 2)), [1.5, 4.0], weights=[0.0, 1.0])
    assert ignored.std() == pytest.approx([np.sqrt(2.0)])


def test_far_targets_have_a_log_density_and_no_warning():
    assert Gaussian([0.0], [1.0]).log_density([40.0])[0] == pytest.approx(stats.norm.logpdf(40.0))
    assert Gaussian([0.0], [1.0]).log_density([1e200])[0] == -np.inf
    assert Gaussian([0.0], [1.0]).cdf([1e200])[0] == 1.0
    far = StudentT([0.0], [1.0], df=3.0).log_density([1e100])[0]
    assert far == pytest.approx(stats.t.logpdf(1e100, 3.0))


def test_scale_zero_is_a_point_mass():
    p = Gaussian([2.0], [0.0])
    assert p.mean() == [2.0]
    assert p.std() == [0.0]
    np.testing.assert_array_equal(p.interval(0.9), [[2.0, 2.0]])
    assert p.cdf([1.999])[0] == 0.0
    assert p.cdf([2.0])[0] == 1.0
    assert p.cdf([2.001])[0] == 1.0
    assert p.log_density([2.0])[0] == np.inf
    assert p.log_density([2.5])[0] == -np.inf
    half = Gaussian([[0.0, 1.0]], [[0.0, 0.0]])
    np.testing.assert_allclose(half.quantiles([0.25, 0.75]), [[0.0, 1.0]], atol=1e-12)


def test_no_rows():
    p = Gaussian(np.empty((0, 3)), np.empty((0, 3)))
    assert p.quantiles([0.1, 0.9]).shape == (0, 2)
    assert p.mean().shape == (0,)
    assert Categorical(np.empty((0, 2, 3))).probabilities().shape == (0, 3)


# -- classes ----------------------------------------------------------------------------------


def classes(n=50, n_components=4, n_classes=3, seed=2):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_classes, 0.3), (n, n_components))
    return Categorical(probs, weights=rng.dirichlet(np.ones(n_components)))


def test_probabilities_are_the_weighted_average():
    p = classes()
    brute = sum(w * p.probs[:, m] for m, w in enumerate(p.weights[0]))
    np.testing.assert_allclose(p.probabilities(), brute, rtol=1e-12)
    np.testing.assert_allclose(p.probabilities().sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(p.mode(), brute.argmax(axis=1))
    y = np.arange(p.n_rows) % 3
    np.testing.assert_allclose(p.log_density(y), np.log(brute[np.arange(p.n_rows), y]), rtol=1e-12)


def test_entropies_are_those_of_scipy():
    p = classes()
    split = p.uncertainty()
    total = stats.entropy(p.probabilities(), axis=1)
    each = stats.entropy(p.probs, axis=2) @ p.weights[0]
    np.testing.assert_allclose(split.total, total, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(split.aleatoric, each, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(split.epistemic, total - each, rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(split.total, split.aleatoric + split.epistemic)


def test_epistemic_uncertainty_is_never_negative_and_zero_without_disagreement():
    rng = np.random.default_rng(3)
    same = np.repeat(rng.dirichlet(np.ones(5), 1000)[:, None], 3, axis=1)
    tiny = same + 1e-12 * rng.standard_normal(same.shape)
    tiny = np.clip(tiny, 0.0, 1.0)
    for probs in (same, tiny / tiny.sum(axis=2, keepdims=True)):
        split = Categorical(probs).uncertainty()
        assert (split.epistemic >= 0.0).all()
        assert (split.epistemic <= 1e-14).all()


def test_certain_and_contradicting_components():
    certain = Categorical(np.array([[0.0, 1.0, 0.0]])).uncertainty()
    assert (certain.total, certain.aleatoric, certain.epistemic) == (0.0, 0.0, 0.0)
    assert not np.signbit(certain.aleatoric).any()
    torn = Categorical(np.array([[[1.0, 0.0], [0.0, 1.0]]])).uncertainty()
    assert torn.aleatoric == pytest.approx([0.0])
    assert torn.epistemic == pytest.approx([np.log(2.0)])


def test_a_component_without_weight_does_not_count():
    probs = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    split = Categorical(probs, weights=np.array([1.0, 0.0])).uncertainty()
    assert split.total == pytest.approx([0.0])
    assert np.isneginf(Categorical(probs, weights=np.array([1.0, 0.0])).log_density([1]))


def test_bernoulli_is_the_categorical_of_two_classes():
    rng = np.random.default_rng(4)
    prob, weights = rng.uniform(size=(20, 3)), rng.dirichlet(np.ones(3), 20)
    one = Bernoulli(prob, weights=weights)
    two = Categorical(np.stack([1 - prob, prob], axis=2), weights=weights)
    np.testing.assert_array_equal(one.probabilities(), two.probabilities())
    np.testing.assert_array_equal(one.mode(), two.mode())
    np.testing.assert_array_equal(one.uncertainty().total, two.uncertainty().total)
    np.testing.assert_array_equal(one.log_density([1] * 20), two.log_density([1] * 20))
    assert one.n_rows == 20


def test_weights_need_not_be_normalised():
    probs = classes().probs
    np.testing.assert_allclose(
        Categorical(probs, weights=np.array([2.0, 4.0, 2.0, 0.0])).probabilities(),
        Categorical(probs, weights=np.array([0.25, 0.5, 0.25, 0.0])).probabilities(),
        rtol=1e-15,
    )


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Categorical([[0.5, 0.6]]), "probs must sum to one"),
        (lambda: Categorical([[1.5, -0.5]]), "probs must hold probabilities"),
        (lambda: Categorical([0.5, 0.5]), "probs must have 2 or 3 dimensions"),
        (lambda: Categorical([[np.nan, 0.5]]), "probs must be finite"),
        (lambda: Categorical(np.empty((2, 0, 3))), "at least one component"),
        (lambda: Bernoulli([0.5, 1.1]), "prob must lie between 0 and 1"),
        (lambda: Bernoulli([0.5], weights=[-1.0]), "weights must be finite and >= 0"),
        (lambda: Bernoulli([[0.5, 0.5]], weights=[0.0, 0.0]), "positive, finite sum"),
        (lambda: Bernoulli([[0.5, 0.5]], weights=[0.1, 0.2, 0.7]), "weights must have shape"),
        (lambda: Gaussian([0.0, 1.0], [1.0, -1.0]), "scale must be >= 0"),
        (lambda: Gaussian([0.0, 1.0], [1.0, 1.0, 1.0]), "scale has shape"),
        (lambda: Gaussian([np.inf], [1.0]), "loc must be finite"),
        (lambda: StudentT([0.0], [1.0], df=0.0), "df must be finite and > 0"),
        (lambda: StudentT([0.0], [1.0], df=[1.0, 2.0]), "df has shape"),
        (lambda: Gaussian([0.0], [1.0]).quantiles(0.0), "alpha must lie strictly between"),
        (lambda: Gaussian([0.0], [1.0]).quantiles([0.5, np.nan]), "alpha"),
        (lambda: Gaussian([0.0], [1.0]).interval(1.0), "coverage must lie strictly between"),
        (lambda: Gaussian([0.0], [1.0]).log_density([1.0, 2.0]), "one number for each of 1 rows"),
        (lambda: Gaussian([0.0], [1.0]).log_density([np.nan]), "y must not hold NaN"),
        (lambda: Bernoulli([0.5]).log_density([2]), r"class numbers 0\.\.1"),
        (lambda: Bernoulli([0.5]).log_density([0.5]), r"class numbers 0\.\.1"),
        (lambda: Bernoulli([0.5]).log_density([[1]]), "one class for each of 1 rows"),
    ],
)
def test_bad_input_is_named(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_predictive_is_abstract_and_frozen():
    with pytest.raises(TypeError, match="abstract"):
        Predictive()
    p = Gaussian([0.0], [1.0])
    with pytest.raises(dataclasses.FrozenInstanceError):
        p.loc = np.ones(1)
    assert isinstance(p, Predictive)
    assert Gaussian(np.zeros((3, 2)), 0.5).scale.shape == (3, 2)
