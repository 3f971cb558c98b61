"""`MultilabelClassifier` where rows repeat: folds, probabilities, weights as duplicates."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from likelier.multilabel.folds import fold_rows
from likelier.multilabel.rows import distinct_rows

from .multilabel_problem import multilabel

FAST = {"kernel": False, "n_components": 4, "n_folds": 5, "max_iter": 10, "random_state": 0}


def discrete(n, d, seed=0):
    """Binary features, three noisy labels, and their true probabilities."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(n, d)).astype(float)
    P = expit(1.5 * X @ np.random.default_rng(5).normal(size=(d, 3)) - 0.5)
    return X, (rng.random(P.shape) < P).astype(float), P


def folded(X, Y, weight=None, n_folds=5):
    return fold_rows(distinct_rows(X, Y, weight, 0), n_folds, 0)


@pytest.mark.parametrize("d", range(1, 7))
def test_few_kinds_of_row_do_not_bias_probabilities(d):
    """A standard error of a cell of 5000 / 64 rows is .05; all together must come to .02."""
    X, Y, P = discrete(5000, d)
    p = multilabel(**FAST).fit(X, Y).predict_proba(X)
    assert abs(p - P).mean() < 0.02


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n", [50, 500])
def test_constant_features_give_base_rates(n, form):
    Y = (np.random.default_rng(1).random((n, 4)) < [0.1, 0.3, 0.5, 0.9]).astype(float)
    p = multilabel(**FAST).fit(form(np.ones((n, 2))), Y).predict_proba(np.ones((1, 2)))
    np.testing.assert_allclose(p[0], Y.mean(axis=0), atol=0.5 / np.sqrt(n))


@pytest.mark.parametrize("certain", [False, True])
def test_levels_of_a_category_keep_their_own_probability(certain):
    rng = np.random.default_rng(2)
    z, truth = rng.integers(0, 20, 2000), rng.random((20, 3))
    truth = np.round(truth) if certain else truth
    Y = (rng.random((2000, 3)) < truth[z]).astype(float)
    p = multilabel(**FAST).fit(np.eye(20)[z], Y).predict_proba(np.eye(20))
    counted = np.array([Y[z == level].mean(axis=0) for level in range(20)])
    assert abs(p - truth).mean() < 1.25 * abs(counted - truth).mean() + 0.02


@pytest.mark.parametrize("d", [2, 5])
def test_weights_are_duplicates_also_where_rows_are_split(d):
    X, Y, _ = discrete(400, d)
    rng = np.random.default_rng(3)
    weight = rng.integers(0, 4, 400)
    copies = rng.permutation(np.repeat(np.arange(400), weight))
    one = multilabel(**FAST).fit(X, Y, sample_weight=weight)
    two = multilabel(**FAST).fit(X[copies], Y[copies])
    assert one.predict_proba(X).tobytes() == two.predict_proba(X).tobytes()


def test_observations_are_split_with_all_their_weight():
    X, Y, _ = discrete(1000, 3)
    weight = np.random.default_rng(4).uniform(0.2, 2.5, 1000)
    Y[::10] = np.nan
    before = distinct_rows(X, Y, weight, 0)
    rows, fold = fold_rows(before, 5, 0)
    assert len(rows.Y) > len(before.Y)
    keys, place = np.unique(
        np.column_stack([rows.X, np.nan_to_num(rows.Y, nan=-1)]), axis=0, return_inverse=True
    )
    known, where = np.unique(
        np.column_stack([before.X, np.nan_to_num(before.Y, nan=-1)]), axis=0, return_inverse=True
    )
    np.testing.assert_array_equal(keys, known)
    np.testing.assert_allclose(
        np.bincount(place.ravel(), weights=rows.weight),
        np.bincount(where.ravel(), weights=before.weight),
    )
    np.testing.assert_array_equal(fold == -1, np.isnan(rows.Y).all(axis=1))
    size = np.bincount(fold[fold >= 0], weights=rows.weight[fold >= 0])
    assert len(size) == 5 and size.max() < 1.3 * size.min()


def test_duplicates_of_different_rows_stay_together():
    """Weights of two, or duplicates, of rows with equal labels: no row is split."""
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(300, 3)), (rng.random((300, 2)) < 0.5).astype(float)
    rows, fold = folded(np.concatenate([X, X]), np.concatenate([Y, Y]), np.full(600, 3.0))
    assert len(rows.Y) == 300 and (rows.weight == 6.0).all()
    np.testing.assert_array_equal(np.bincount(fold), 60)


def test_a_few_conflicting_rows_are_held_out_together():
    """Most repeated rows are duplicates, so the two with different labels share a fold."""
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(300, 3)), (rng.random((300, 2)) < 0.5).astype(float)
    rows, fold = folded(np.concatenate([X, X[:1]]), np.concatenate([Y, 1 - Y[:1]]),
                        np.full(301, 2.0))  # fmt: skip
    same = (rows.X == X[0]).all(axis=1)
    assert same.sum() == 2 and len(set(fold[same])) == 1


def test_dealing_does_not_depend_on_the_answers():
    """Of rows seen twice, answers that agree are as often in two folds as those that do not."""
    rng = np.random.default_rng(7)
    X = np.repeat(rng.normal(size=(2000, 2)), 2, axis=0)
    Y = (rng.random((4000, 1)) < 0.5).astype(float)
    rows, fold = folded(X, Y)
    apart = {True: [], False: []}
    for start in range(0, 4000, 2):
        mine = np.flatnonzero((rows.X == X[start]).all(axis=1))
        apart[bool(Y[start, 0] == Y[start + 1, 0])].append(len(set(fold[mine])) > 1)
    assert abs(np.mean(apart[True]) - 0.8) < 0.07 and abs(np.mean(apart[False]) - 0.8) < 0.07
