"""Out-of-fold scores: how many folds are left out, and which cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.engines import LocalEngine
from likelier.fitting.cross_fit import held_out_scores
from likelier.fitting.monitor import Monitor


def first_column(rest, X, stage):
    return X[:, :1]


@pytest.mark.parametrize(("n_rare", "folds"), [(600, 1), (300, 2), (60, 5)])
def test_folds_are_added_until_both_classes_have_been_scored(n_rare, folds):
    X = np.arange(2400.0)[:, None]
    y = (X[:, 0] < n_rare).astype(float)
    found = held_out_scores(LocalEngine(X, y, seed=1), 2, Monitor(), first_column)
    assert len(found.y) == pytest.approx(folds * 480, abs=5)
    assert len(np.unique(found.X)) == len(found.y)
    np.testing.assert_array_equal(found.y, found.X[:, 0] < n_rare)
    assert found.weight is None or (found.weight == 1.0).all()


def test_a_class_of_one_row_is_never_left_out():
    X = np.arange(300.0)[:, None]
    found = held_out_scores(
        LocalEngine(X, (X[:, 0] == 17.0).astype(float)), 2, Monitor(), first_column
    )
    assert 17.0 not in found.X
    assert len(found.y) == pytest.approx(240, abs=5)


def test_rows_too_few_for_folds_give_none():
    X = np.arange(9.0)[:, None]
    engine = LocalEngine(X, np.arange(9.0) % 2.0)
    assert held_out_scores(engine, 2, Monitor(), first_column) is None
