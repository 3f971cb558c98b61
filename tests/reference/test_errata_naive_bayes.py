"""Errors in the printed description of naive Bayes: the printed formula fails, ours holds."""

import numpy as np
import sklearn.naive_bayes as peer
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from likelier import GaussianNB, MultinomialNB

RNG = np.random.default_rng(0)


def test_smoothing_is_relative_to_all_rows_not_to_the_last_batch():
    X = np.concatenate([RNG.normal(scale=100.0, size=(50, 3)), RNG.normal(size=(50, 3))])
    y = np.arange(100) % 2
    ours, printed = GaussianNB(), peer.GaussianNB()
    for part in (slice(0, 50), slice(50, 100)):
        ours.partial_fit(X[part], y[part])
        printed.partial_fit(X[part], y[part], classes=[0, 1])
    right = 1e-9 * X.var(axis=0).max()
    assert abs(ours.epsilon_ / right - 1.0) < 1e-12
    assert abs(printed.epsilon_ / right - 1.0) > 0.9


def test_alpha_is_a_pseudocount_per_term_and_class_not_per_document():
    """The estimate is the mean of the posterior under a Dirichlet(alpha) prior."""
    X, alpha = RNG.poisson(1.0, size=(40, 3)).astype(float), 2.5
    model = MultinomialNB(alpha=alpha).fit(X, np.zeros(40))
    counts = X.sum(axis=0)
    draws = RNG.dirichlet(counts + alpha, size=200_000).mean(axis=0)
    ours = np.exp(model.feature_log_prob_[0])
    printed = (counts + alpha * len(X)) / (counts.sum() + alpha * len(X) * 3)  # "every document"
    assert abs(ours - draws).max() < 1e-3  # 20 standard errors
    assert abs(printed - draws).max() > 1e-2


def test_the_prior_is_counted_once_not_once_per_example():
    """The smoothed estimate maximises likelihood times prior; the printed sum repeats the prior."""
    X, alpha = RNG.poisson([0.2, 2.0, 4.0], size=(30, 3)).astype(float), 1.0
    model = MultinomialNB(alpha=alpha).fit(X, np.zeros(30))

    def optimum(times):
        def energy(z):
            return -(X.sum(axis=0) + times * alpha) @ log_softmax(z)

        return softmax(minimize(energy, np.zeros(3), tol=1e-12).x)

    ours = np.exp(model.feature_log_prob_[0])
    assert abs(ours - optimum(1)).max() < 1e-5
    assert abs(ours - optimum(len(X))).max() > 1e-2


def test_the_constant_is_needed_for_the_density_of_a_row():
    """``c`` is said not to be needed; without it the probabilities of rows do not sum to one."""
    model = MultinomialNB().fit([[3.0, 1.0], [1.0, 3.0]], [0, 1])
    rows = np.array([[k, 4 - k] for k in range(5)], dtype=float)
    assert abs(np.exp(model.score_samples(rows)).sum() - 1.0) < 1e-12
    without = np.exp(model.predict_joint_log_proba(rows)).sum()
    assert abs(without - 1.0) > 0.1
