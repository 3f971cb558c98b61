"""Rows drawn from a model follow its distribution: two-sample tests and exact tests.

Seeds are fixed; over all of this file, right code would fail for about one seed in fifty.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from likelier import BernoulliNB, GaussianNB, MultinomialNB

N = 4000
LEVEL = 1e-3


def training(kind, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=N, p=[0.2, 0.3, 0.5])
    if kind is GaussianNB:
        return rng.normal(loc=rng.normal(size=(3, 4))[y], scale=[1.0, 0.1, 10.0, 3.0]), y
    if kind is BernoulliNB:
        return (rng.random((N, 5)) < rng.random((3, 5))[y]).astype(float), y
    share = rng.dirichlet(np.ones(6), size=3)
    lengths = rng.poisson([4.0, 8.0, 12.0], size=(N, 3))[np.arange(N), y]
    return np.array([rng.multinomial(n, share[k]) for n, k in zip(lengths, y, strict=True)]), y


def dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows


@pytest.mark.parametrize("bayesian", [False, True])
@pytest.mark.parametrize("kind", [GaussianNB, MultinomialNB, BernoulliNB])
def test_drawn_rows_match_rows_of_the_distribution(kind, bayesian):
    """Kolmogorov-Smirnov on every feature and on log p(x), and a classifier that must fail."""
    X, y = training(kind)
    model = kind(bayesian=bayesian, random_state=1).fit(X, y)
    drawn, labels = model.sample(N)
    drawn = dense(drawn)
    counts = np.array([(labels == k).sum() for k in range(3)])
    assert stats.chisquare(counts, N * np.bincount(y) / N).pvalue > LEVEL
    for j in range(X.shape[1]):
        assert stats.ks_2samp(X[:, j], drawn[:, j]).pvalue > LEVEL
    assert stats.ks_2samp(model.score_samples(X), model.score_samples(drawn)).pvalue > LEVEL
    both, who = np.vstack([X, drawn]), np.repeat([0, 1], N)
    features = np.hstack([both, both**2])
    features = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-12)
    learned = np.arange(2 * N) % 2 == 0
    judge = LogisticRegression(max_iter=300).fit(features[learned], who[learned])
    auc = roc_auc_score(who[~learned], judge.predict_proba(features[~learned])[:, 1])
    assert abs(auc - 0.5) < 4 * np.sqrt(1 / (6 * N))  # standard error of a rank statistic


def test_student_draws_have_the_tails_of_the_predictive_law():
    """Few rows: the predictive distribution is far from Gaussian, and draws follow it."""
    X = np.array([[0.0], [1.0], [2.0], [5.0]])
    model = GaussianNB(bayesian=True, var_smoothing=0.0, random_state=3).fit(X, np.zeros(4))
    drawn, _ = model.sample(N)
    ssd, n = ((X - X.mean()) ** 2).sum(), 4
    scale = np.sqrt((X.var() + ssd) / (n + 1) * (1 + 1 / (n + 1)))
    distribution = stats.t(n + 1, X.mean(), scale)
    assert stats.kstest(drawn[:, 0], distribution.cdf).pvalue > LEVEL
    gauss = stats.norm(X.mean(), X.std())
    assert stats.kstest(drawn[:, 0], gauss.cdf).pvalue < LEVEL


def test_dirichlet_multinomial_draws_repeat_their_terms():
    """Variance of a count of the Dirichlet-multinomial, larger than the multinomial's."""
    X = np.array([[6.0, 4.0]])
    model = MultinomialNB(bayesian=True, random_state=0).fit(X, [0])
    drawn = dense(model.sample(N)[0])
    length = drawn.sum(axis=1)
    kept = drawn[length == 10, 0]
    distribution = stats.betabinom(10, 7.0, 5.0)
    expected = distribution.pmf(np.arange(11)) * len(kept)
    observed = np.bincount(kept.astype(int), minlength=11)
    assert stats.chisquare(observed, expected * len(kept) / expected.sum()).pvalue > LEVEL
    plain = stats.binom(10, 7.0 / 12.0).pmf(np.arange(11)) * len(kept)
    assert stats.chisquare(observed, plain * len(kept) / plain.sum()).pvalue < LEVEL
