"""Missing values: understood by GaussianNB and BernoulliNB, refused by MultinomialNB."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from likelier import BernoulliNB, GaussianNB, MultinomialNB

every_matrix = pytest.mark.parametrize("matrix", [np.asarray, sparse.csr_array])


def rows(n=400, d=6, K=3, seed=0, holes=0.2):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    X = rng.poisson(1.0 + 3.0 * rng.random((K, d))[y]).astype(float)
    X[(rng.random(X.shape) < holes) & (rng.random((n, 1)) < 0.6)] = np.nan
    return X, y


@every_matrix
@pytest.mark.parametrize("bayesian", [False, True])
def test_missing_counts_are_refused(matrix, bayesian):
    X, y = rows(holes=0.0)
    model = MultinomialNB(bayesian=bayesian, random_state=0).fit(matrix(X), y)
    before = model.predict_proba(X)
    X[7, 4] = np.nan
    rejected = pytest.raises(ValueError, match="NaN, in column 4: MultinomialNB needs all counts")
    for fit in (model.fit, model.partial_fit):
        with rejected:
            fit(matrix(X), y)
    with pytest.raises(ValueError, match="block 0.*NaN"):
        model.fit([(matrix(X), y)])
    for call in (model.predict, model.predict_proba, model.score_samples, model.is_outlier):
        with rejected:
            call(matrix(X))
    np.testing.assert_array_equal(model.predict_proba(np.nan_to_num(X, nan=0.0))[:7], before[:7])


@every_matrix
def test_what_is_no_count_is_named(matrix):
    X, y = rows(holes=0.0)
    bad = X.copy()
    bad[7, 4] = -1.0
    with pytest.raises(ValueError, match="Negative values in data.*column 4"):
        MultinomialNB().fit(matrix(bad), y)
    model = MultinomialNB(random_state=0).fit(matrix(X), y)
    bad[7, 4] = np.inf
    for call in (MultinomialNB().fit, MultinomialNB().partial_fit):
        with pytest.raises(ValueError, match="infinity"):
            call(matrix(bad), y)
    for call in (model.predict, model.predict_proba, model.score_samples, model.is_outlier):
        with pytest.raises(ValueError, match="infinity"):
            call(matrix(bad))


@pytest.mark.parametrize("kind", [GaussianNB, BernoulliNB])
@every_matrix
def test_streams_may_have_holes_too(kind, matrix):
    if kind is GaussianNB and matrix is not np.asarray:
        matrix = np.asarray
    X, y = rows()
    X = np.minimum(X, 1.0) if kind is BernoulliNB else X
    blocks = [(matrix(X[a : a + 90]), y[a : a + 90]) for a in range(0, len(y), 90)]
    one, two = kind().fit(blocks), kind().fit(matrix(X), y)
    np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=1e-9)
    X[3, 2] = np.inf
    with pytest.raises(ValueError, match=r"block 0.*infinity"):
        kind().fit([(matrix(X), y)])
