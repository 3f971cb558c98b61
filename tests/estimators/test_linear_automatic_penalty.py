"""The automatic penalty: one row of data where features are few, one unit for rare ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import LinearClassifier, losses
from likelier.linear.penalty import Columns, Penalty, automatic_strengths

AUTO = Penalty("auto", 0.0)


def documents(n=400, d=300, seed=0):
    """Rows of Zipf-distributed words, and two classes that a few common ones separate."""
    rng = np.random.default_rng(seed)
    often = 1.0 / np.arange(1, d + 1)
    X = (rng.random((n, d)) < np.minimum(2.0 * often, 0.5)) * rng.uniform(0.5, 1.5, (n, d))
    y = (X[:, 3:9].sum(axis=1) + 0.3 * rng.standard_normal(n) > 0.6).astype(int)
    return X, y


def columns(X):
    return Columns(X.var(axis=0), np.count_nonzero(X, axis=0) / len(X))


def test_few_features_weigh_one_row_each():
    X = np.random.default_rng(0).standard_normal((50, 7)) * np.logspace(-3, 3, 7)
    np.testing.assert_allclose(automatic_strengths(columns(X), 10.0), X.var(axis=0))


def test_wide_dense_features_keep_their_units():
    X = np.random.default_rng(0).standard_normal((50, 200)) * np.logspace(-3, 3, 200)
    np.testing.assert_allclose(automatic_strengths(columns(X), 10.0), 2.0 * X.var(axis=0))


@pytest.mark.parametrize("variance", [1.0, 10.0])
def test_rare_features_share_one_strength_that_gives_scores_their_variance(variance):
    X, _ = documents()
    found = automatic_strengths(columns(X), variance)
    assert np.ptp(found) == 0.0
    assert (X.var(axis=0) / found).sum() == pytest.approx(variance)


def test_a_feature_in_other_units_keeps_its_own_and_leaves_the_rest_alone():
    X, _ = documents()
    plain = automatic_strengths(columns(X), 10.0)
    for scale in (1e-6, 1e6):
        Z = X.copy()
        Z[:, 5] *= scale
        found = automatic_strengths(columns(Z), 10.0)
        np.testing.assert_allclose(np.delete(found, 5), np.delete(plain, 5), rtol=0.2)
        assert 0.1 <= found[5] / scale**2 / plain[5] <= 10.0


def test_features_that_never_occur_are_harmless():
    X, _ = documents()
    X[:, 100:150] = 0.0
    found = automatic_strengths(columns(X), 1.0)
    assert np.isfinite(found).all()
    assert (found > 0.0).all()


@pytest.mark.parametrize(
    ("loss", "variance"),
    [(losses.LogLoss(), 10.0), (losses.Softmax(), 10.0), (losses.Hinge(), 1.0)],
)
def test_margins_want_smaller_scores_than_logits(loss, variance):
    X, _ = documents()
    strengths = AUTO.strengths(columns(X), len(X), True, loss)
    expected = automatic_strengths(columns(X), variance) / len(X)
    np.testing.assert_allclose(strengths.l2, np.append(expected, 0.0))


def test_layout_and_blocks_do_not_matter():
    X, y = documents()
    dense = LinearClassifier(random_state=0, tol=1e-8).fit(X, y)
    rows = LinearClassifier(random_state=0, tol=1e-8).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(dense.coef_, rows.coef_, atol=1e-5)
    source = [(X[:150], y[:150]), (X[150:], y[150:])]
    blocks = LinearClassifier(random_state=0, tol=1e-8).fit(source)
    np.testing.assert_allclose(dense.coef_, blocks.coef_, atol=1e-5)


def test_one_huge_column_does_not_drown_the_words():
    X, y = documents(800)
    Z = X.copy()
    Z[:, 50] *= 1e5
    train, test = slice(0, 400), slice(400, None)
    plain = LinearClassifier(random_state=0).fit(sparse.csr_array(X[train]), y[train])
    other = LinearClassifier(random_state=0).fit(sparse.csr_array(Z[train]), y[train])
    gap = plain.score(X[test], y[test]) - other.score(Z[test], y[test])
    assert abs(gap) <= 0.02


def test_partial_fit_has_the_same_rule():
    X, y = documents(2000)
    model = LinearClassifier(random_state=0)
    for first in range(0, 2000, 250):
        rows = slice(first, first + 250)
        model.partial_fit(sparse.csr_array(X[rows]), y[rows], classes=[0, 1])
    full = LinearClassifier(random_state=0).fit(X, y)
    assert model.score(X, y) >= full.score(X, y) - 0.03
