"""Counts missing at random: estimates go to the truth, which filling with zeros does not."""

from __future__ import annotations

import numpy as np

from likelier import MultinomialNB

TRUTH = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])
RATES = np.array([0.6, 0.1, 0.3, 0.0])  # of missing counts, per term


def draws(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    lengths = rng.poisson([20.0, 30.0], size=(n, 2))[np.arange(n), y]
    X = np.array([rng.multinomial(m, TRUTH[k]) for m, k in zip(lengths, y, strict=True)], float)
    X[rng.random(X.shape) < RATES] = np.nan
    return X, y


def error(X, y):
    model = MultinomialNB(random_state=0).fit(X, y)
    return abs(np.exp(model.feature_log_prob_) - TRUTH).max(), model


def test_estimates_converge_and_those_of_zeros_do_not():
    few, many = (np.mean([error(*draws(n, seed))[0] for seed in range(5)]) for n in (200, 20_000))
    assert many < 0.2 * few  # a tenth is expected of a hundred times the rows
    X, y = draws(20_000, 0)
    exact, model = error(X, y)
    filled, _ = error(np.nan_to_num(X, nan=0.0), y)
    assert exact < 0.005
    assert filled > 0.1
    # the mean length of whole rows, to four standard errors
    np.testing.assert_allclose(model.mean_length_, [20.0, 30.0], atol=0.2)


def test_probabilities_of_classes_are_calibrated_where_those_of_zeros_are_not():
    X, y = draws(20_000, 1)
    new, labels = draws(20_000, 2)
    exact = error(X, y)[1]
    loss = -np.log(exact.predict_proba(new)[np.arange(len(labels)), labels]).mean()
    zeros = MultinomialNB(random_state=0).fit(np.nan_to_num(X, nan=0.0), y)
    p = zeros.predict_proba(np.nan_to_num(new, nan=0.0))
    filled = -np.log(p[np.arange(len(labels)), labels]).mean()
    assert loss < filled - 0.002
    top = exact.predict_proba(new).max(axis=1)
    right = (exact.predict(new) == labels).mean()
    assert abs(top.mean() - right) < 4 * np.sqrt(right * (1 - right) / len(labels))


def test_the_requested_fraction_of_rows_is_flagged():
    X, y = draws(4000, 3)
    model = MultinomialNB(random_state=0).fit(X[:2000], y[:2000])
    for coverage in (0.8, 0.95):
        fraction = model.is_outlier(X[2000:], coverage).mean()
        deviation = np.sqrt(coverage * (1 - coverage) * (1 / 2000 + 1 / 1000))
        assert abs(fraction - (1 - coverage)) < 4 * deviation
