"""Probabilities of `SVC`: folds by what rows hold, so that weights are repetitions there too."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
)

from likelier import SVC
from likelier.svm.folds import FOLDS, assign_folds, row_hashes


@pytest.mark.parametrize(
    "check",
    [check_sample_weight_equivalence_on_dense_data, check_sample_weight_equivalence_on_sparse_data],
)
def test_weights_are_repetitions(check):
    check("SVC", SVC(probability=True, random_state=0))


def test_keys_are_of_the_row_and_not_of_its_form():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (200, 4)).astype(float)
    keys = row_hashes(X, 1)
    _, same = np.unique(X, axis=0, return_inverse=True)
    np.testing.assert_array_equal(keys[:, None] == keys, same[:, None] == same)
    np.testing.assert_array_equal(row_hashes(sparse.csr_array(X), 1), keys)
    np.testing.assert_array_equal(row_hashes(np.where(X == 0, -0.0, X), 1), keys)
    np.testing.assert_array_equal(row_hashes(X[::-1], 1), keys[::-1])
    assert (row_hashes(X, 2) != keys).any()


def test_classes_are_spread_evenly():
    X, y = load_iris(return_X_y=True)
    keys = row_hashes(X, 0)
    folds = assign_folds(keys, y, 0)
    for k in range(3):
        of_key = dict(zip(keys[y == k], folds[y == k], strict=True))
        counts = np.bincount(list(of_key.values()), minlength=FOLDS)
        assert counts.max() - counts.min() <= 1
    for key in np.unique(keys):
        for k in np.unique(y[keys == key]):
            assert len(np.unique(folds[(keys == key) & (y == k)])) == 1


def test_copies_of_one_row_per_class_still_have_probabilities():
    X, y = np.repeat([[0.0], [1.0]], 20, axis=0), np.repeat([0, 1], 20)
    p = SVC(probability=True, random_state=0).fit(X, y).predict_proba([[0.0], [1.0]])
    assert p[0, 0] > 0.5 and p[1, 1] > 0.5
