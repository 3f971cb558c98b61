"""The distributions behind naive Bayes, against quadrature, enumeration and other libraries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import integrate, sparse, stats
from scipy.special import logsumexp

from likelier import BernoulliNB, GaussianNB, MultinomialNB

RNG = np.random.default_rng(1)
X = RNG.normal(size=(60, 3)) * [1.0, 5.0, 0.1] + [0.0, 100.0, -3.0]
BITS = (RNG.random((60, 4)) < [0.1, 0.5, 0.8, 0.3]).astype(float)
Y = np.arange(60) % 3


def gaussian_rows_with_holes():
    rows = X[:6].copy()
    for i, holes in enumerate([[0], [1], [2], [0, 1], [1, 2], [0, 1, 2]]):
        rows[i, holes] = np.nan
    return rows


# -- missing values -----------------------------------------------------------------------
@pytest.mark.parametrize("bayesian", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_missing_value_is_integrated_out(bayesian, kind):
    """``p(x_seen) = integral p(x) dx_missing``, by quadrature over one missing feature."""
    model = GaussianNB(bayesian=bayesian, random_state=0).fit(X, Y)
    for j in range(3):
        row = X[:1].copy()

        def density(value, row=row, j=j):
            row[0, j] = value
            return np.exp(model.score_samples(row)[0])

        centre, scale = X[:, j].mean(), X[:, j].std()
        grid = centre + scale * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
        low, high = centre - 400 * scale, centre + 400 * scale
        area = integrate.quad(density, low, high, points=grid, limit=400, epsabs=0, epsrel=1e-9)[0]
        row[0, j] = np.nan
        ours = model.score_samples(kind(row))[0]
        # tails of Student-t with 21 degrees of freedom beyond the range are below 1e-40
        assert abs(ours - np.log(area)) < 1e-7


def test_missing_values_in_prediction_drop_their_features():
    rows = gaussian_rows_with_holes()
    model = GaussianNB(random_state=0).fit(X, Y)
    for row in rows:
        seen = ~np.isnan(row)
        log_p = stats.norm.logpdf(row[seen], model.theta_[:, seen], np.sqrt(model.var_[:, seen]))
        joint = np.log(model.class_prior_) + log_p.sum(axis=1)
        np.testing.assert_allclose(model.predict_joint_log_proba(row[None])[0], joint, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(rows)[-1], model.class_prior_)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_missing_values_in_training_leave_their_column_only(kind, weighted):
    rows = X.copy()
    rows[RNG.random(rows.shape) < 0.3] = np.nan
    weight = RNG.uniform(0.5, 2.0, 60) if weighted else np.ones(60)
    given = weight if weighted else None
    model = GaussianNB(var_smoothing=0.0, random_state=0).fit(kind(rows), Y, given)
    for k, j in itertools.product(range(3), range(3)):
        mine = (Y == k) & ~np.isnan(rows[:, j])
        mean = np.average(rows[mine, j], weights=weight[mine])
        var = np.average((rows[mine, j] - mean) ** 2, weights=weight[mine])
        np.testing.assert_allclose([model.theta_[k, j], model.var_[k, j]], [mean, var], rtol=1e-12)


def test_missing_presence_is_summed_out():
    model = BernoulliNB(random_state=0).fit(BITS, Y)
    for pattern in itertools.product([0.0, 1.0, np.nan], repeat=4):
        row = np.array([pattern])
        holes = np.flatnonzero(np.isnan(row[0]))
        filled = np.repeat(row, 2 ** len(holes), axis=0)
        filled[:, holes] = list(itertools.product([0.0, 1.0], repeat=len(holes)))
        brute = logsumexp(model.score_samples(filled))
        for kind in (np.asarray, sparse.csr_array):
            assert abs(model.score_samples(kind(row))[0] - brute) < 1e-12


@pytest.mark.parametrize("binarize", [0.0, None])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_missing_presence_in_training(binarize, kind):
    rows = BITS.copy()
    rows[RNG.random(rows.shape) < 0.3] = np.nan
    model = BernoulliNB(alpha=0.5, binarize=binarize, random_state=0).fit(kind(rows), Y)
    for k, j in itertools.product(range(3), range(4)):
        seen = rows[(Y == k) & ~np.isnan(rows[:, j]), j]
        p = (seen.sum() + 0.5) / (len(seen) + 1.0)
        assert abs(np.exp(model.feature_log_prob_[k, j]) - p) < 1e-12


def test_a_feature_that_a_class_never_has_takes_that_of_all_rows():
    rows = X.copy()
    rows[Y == 1, 0] = np.nan
    model = GaussianNB(random_state=0).fit(rows, Y)
    seen = rows[Y != 1, 0]
    np.testing.assert_allclose(model.theta_[1, 0], seen.mean(), rtol=1e-12)
    np.testing.assert_allclose(model.var_[1, 0], seen.var() + model.epsilon_, rtol=1e-12)
    rows[:, 1] = np.nan  # and one that nobody has tells nothing
    model = GaussianNB(random_state=0).fit(rows, Y)
    p = model.predict_proba([[np.nan, 3.0, np.nan], [np.nan, np.nan, np.nan]])
    np.testing.assert_allclose(p[0], p[1])


# -- posterior predictive -------------------------------------------------------------------
def test_student_law_is_the_average_over_mean_and_variance():
    """Quadrature of the Gaussian density over the posterior of (mu, log v) for one feature."""
    x, y = X[:, :1], np.zeros(60)
    model = GaussianNB(bayesian=True, random_state=0).fit(x, y)
    values, m0, v0 = x[:, 0], x.mean(), x.var() * (1.0 + 1e-9)
    mu = np.linspace(-1.5, 1.5, 801)[:, None]
    v = np.exp(np.linspace(-2.5, 2.5, 801))[None]
    log_post = stats.norm.logpdf(mu, m0, np.sqrt(v)) - 0.5 * v0 / v - 1.5 * np.log(v)
    log_post += sum(stats.norm.logpdf(value, mu, np.sqrt(v)) for value in values)
    weight = np.exp(log_post - log_post.max()) * v  # steps are equal in log v
    for new in (-4.0, -0.3, 2.0, 8.0):
        brute = (weight * stats.norm.pdf(new, mu, np.sqrt(v))).sum() / weight.sum()
        assert abs(model.score_samples([[new]])[0] - np.log(brute)) < 1e-6


def test_student_law_matches_scipy_also_with_uneven_counts():
    rows = X.copy()
    rows[:30, 1] = np.nan
    model = GaussianNB(bayesian=True, var_smoothing=0.0, random_state=0).fit(rows, Y)
    new = RNG.normal(size=(20, 3)) * [1.0, 300.0, 100.0]
    expected = np.zeros((20, 3))
    for k, j in itertools.product(range(3), range(3)):
        seen = rows[(Y == k) & ~np.isnan(rows[:, j]), j]
        everyone = rows[~np.isnan(rows[:, j]), j]
        n, m0 = len(seen), everyone.mean()
        kappa = df = n + 1.0
        loc = (m0 + seen.sum()) / kappa
        ssd = ((seen - seen.mean()) ** 2).sum() + n / kappa * (seen.mean() - m0) ** 2
        scale = np.sqrt((everyone.var() + ssd) / df * (1.0 + 1.0 / kappa))
        expected[:, k] += stats.t.logpdf(new[:, j], df, loc, scale)
    expected += np.log(21.0 / 63.0)
    for kind in (np.asarray, sparse.csr_array):
        np.testing.assert_allclose(model.predict_joint_log_proba(kind(new)), expected, rtol=1e-11)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_dirichlet_multinomial_matches_scipy(kind):
    counts = RNG.poisson([0.3, 2.0, 30.0], size=(40, 3)).astype(float)
    y = np.arange(40) % 2
    model = MultinomialNB(alpha=[0.5, 1.0, 2.0], bayesian=True, random_state=0).fit(counts, y)
    parts = [
        stats.dirichlet_multinomial.logpmf(
            counts.astype(int), counts[y == k].sum(axis=0) + np.array([0.5, 1.0, 2.0]),
            counts.sum(axis=1).astype(int),
        )
        for k in range(2)
    ]  # fmt: skip
    expected = logsumexp(np.stack(parts) + np.log(0.5), axis=0)
    np.testing.assert_allclose(model.score_samples(kind(counts)), expected, rtol=1e-10)


def test_probabilities_of_all_rows_of_a_length_sum_to_one():
    rows = np.array([r for r in itertools.product(range(6), repeat=3) if sum(r) == 5], dtype=float)
    for bayesian in (False, True):
        model = MultinomialNB(bayesian=bayesian, random_state=0).fit(rows, np.arange(len(rows)) % 3)
        assert abs(np.exp(model.score_samples(rows)).sum() - 1.0) < 1e-12


def test_multinomial_matches_scipy():
    counts = RNG.poisson(2.0, size=(30, 4)).astype(float)
    model = MultinomialNB(random_state=0).fit(counts, np.zeros(30))
    p = np.exp(model.feature_log_prob_[0])
    expected = stats.multinomial.logpmf(counts, counts.sum(axis=1), p / p.sum())
    np.testing.assert_allclose(model.score_samples(counts), expected, rtol=1e-12)


def test_averaging_over_presence_is_the_smoothed_estimate():
    """Beta-Bernoulli: quadrature over the probability of one feature."""
    model = BernoulliNB(alpha=0.7, bayesian=True, random_state=0).fit(BITS, np.zeros(60))
    ones = BITS[:, 0].sum()
    posterior = stats.beta(ones + 0.7, 60 - ones + 0.7)
    mean = integrate.quad(lambda p: p * posterior.pdf(p), 0.0, 1.0)[0]
    assert abs(np.exp(model.feature_log_prob_[0, 0]) - mean) < 1e-10
    rows = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    assert abs(np.exp(model.score_samples(rows)).sum() - 1.0) < 1e-12


@pytest.mark.parametrize("name", [GaussianNB, MultinomialNB, BernoulliNB])
def test_draws_of_the_parameters_average_to_the_predictive_law(name):
    """The mean density over draws of the parameters is the posterior predictive density."""
    rows = abs(X[:, :1]) if name is not BernoulliNB else BITS[:, :1]
    rows = np.hstack([rows, rows[::-1]]).round(1)
    model = name(bayesian=True, random_state=0).fit(rows, Y % 2)
    parts = model._model(2, 2), model._stats(model.classes_), np.random.default_rng(0)
    exact = np.exp(model._posterior().distributions.log_density(rows[:5]))
    total = sum(
        np.exp(parts[0].draw_distributions(*parts[1:]).log_density(rows[:5])) for _ in range(4000)
    )
    np.testing.assert_allclose(total / 4000, exact, rtol=0.1)


# -- no smoothing at all --------------------------------------------------------------------
def test_without_smoothing_what_never_occurred_is_impossible():
    counts = np.array([[2.0, 0.0, 1.0], [1.0, 0.0, 3.0], [0.0, 2.0, 1.0]])
    model = MultinomialNB(alpha=0.0, random_state=0).fit(counts, ["a", "a", "b"])
    for kind in (np.asarray, sparse.csr_array):
        p = model.predict_proba(kind(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])))
        np.testing.assert_allclose(p, [[1, 0], [0, 1], [2 / 3, 1 / 3]])  # the last: impossible
    bits = BernoulliNB(alpha=0.0, random_state=0).fit(
        [[1, 0, 0], [1, 0, 1], [0, 1, 1.0]], list("aab")
    )
    rows = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    for kind in (np.asarray, sparse.csr_array):
        np.testing.assert_allclose(bits.predict_proba(kind(rows)), [[1, 0], [0, 1], [2 / 3, 1 / 3]])
        assert list(bits.predict(kind(rows))) == ["a", "b", "a"]
        np.testing.assert_array_equal(
            np.isinf(bits.score_samples(kind(rows))), [False, False, True]
        )
