"""Kernel machines on inputs with few distinct values: equal rows are separate observations."""

from __future__ import annotations

import numpy as np
import pytest

from likelier import BayesianKernelClassifier, BayesianKernelRegressor
from likelier.fitting.duplicates import settle_few, settle_many
from likelier.fitting.rows import Rows

CELLS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


def shares_of_cells(X, y):
    return np.array([y[(X == cell).all(axis=1)].mean() for cell in CELLS])


def draw(n, seed=0):
    rng = np.random.default_rng(seed)
    X = CELLS[rng.integers(4, size=n)]
    return X, rng.random(n) < np.array([0.1, 0.4, 0.7, 0.95])[(2 * X[:, 0] + X[:, 1]).astype(int)]


@pytest.mark.parametrize("n", [60, 400, 1990, 2500])  # also beyond where equal rows are looked for
@pytest.mark.parametrize("parameters", [{}, {"features": "fourier"}], ids=str)
def test_probabilities_are_near_the_frequencies_in_the_cells(n, parameters):
    """Within the sampling error of 60 rows, and nearly exact with many."""
    X, y = draw(n)
    model = BayesianKernelClassifier(random_state=1, **parameters).fit(X, y)
    found = model.predict_proba(CELLS)[:, 1]
    np.testing.assert_allclose(found, shares_of_cells(X, y), atol=0.03 + 3.0 / n)


@pytest.mark.parametrize("n", [60, 400])
def test_the_hinge_finds_the_class_of_most_rows(n):
    X, y = draw(n)
    model = BayesianKernelClassifier(loss="hinge", random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.predict(CELLS), shares_of_cells(X, y) > 0.5)


@pytest.mark.parametrize("n", [40, 1200])
def test_one_input_of_two_values(n):
    rng = np.random.default_rng(1)
    X = (np.arange(n) % 2)[:, None].astype(float)
    y = np.where(rng.random(n) < 0.8, X[:, 0], 1.0 - X[:, 0])
    p = BayesianKernelClassifier(random_state=0).fit(X, y).predict_proba([[0.0], [1.0]])[:, 1]
    found = [y[X[:, 0] == value].mean() for value in (0.0, 1.0)]
    np.testing.assert_allclose(p, found, atol=0.02 + 3.0 / n)


def test_a_table_without_noise_becomes_sure():
    X, y = np.tile(CELLS, (30, 1)), np.tile([0, 1, 1, 0], 30)
    p = BayesianKernelClassifier(random_state=0).fit(X, y).predict_proba(CELLS)[:, 1]
    assert (np.abs(p - [0.0, 1.0, 1.0, 0.0]) < 0.02).all()


def test_counts_of_a_table_are_its_rows():
    X, y = draw(600)
    cells, counts = np.unique(np.column_stack([X, y]), axis=0, return_counts=True)
    rows = BayesianKernelClassifier(random_state=0).fit(X, y.astype(float))
    table = BayesianKernelClassifier(random_state=0)
    table.fit(cells[:, :2], cells[:, 2], sample_weight=counts.astype(float))
    np.testing.assert_array_equal(table.predict_proba(CELLS), rows.predict_proba(CELLS))
    many = BayesianKernelClassifier(random_state=0)
    many.fit(cells[:, :2], cells[:, 2], sample_weight=1e6 * counts)
    np.testing.assert_allclose(many.predict_proba(CELLS)[:, 1], shares_of_cells(X, y), atol=0.01)


def test_batches_know_it_too():
    X, y = draw(400)
    model = BayesianKernelClassifier(random_state=0)
    for part in np.array_split(np.arange(400), 5):
        model.partial_fit(X[part], y[part], classes=[False, True])
    np.testing.assert_allclose(model.predict_proba(CELLS)[:, 1], shares_of_cells(X, y), atol=0.05)


@pytest.mark.parametrize("n", [200, 4000])
def test_targets_of_few_values(n):
    """Cell means, the noise within the cells, and calibrated intervals."""
    rng = np.random.default_rng(2)
    X = CELLS[rng.integers(4, size=n)]
    y = np.clip(np.round(2.0 + 1.5 * X[:, 0] - X[:, 1] + rng.normal(size=n)), 0.0, 5.0)
    model = BayesianKernelRegressor(random_state=0).fit(X, y)
    means = shares_of_cells(X, y)
    np.testing.assert_allclose(model.predict(CELLS), means, atol=0.05 + 10.0 / n)
    inside = np.sqrt(np.mean((y - means[(2 * X[:, 0] + X[:, 1]).astype(int)]) ** 2))
    assert model.noise_ == pytest.approx(inside, rel=0.06)
    low, high = model.predict_interval(X, 0.9).T
    assert 0.87 < np.mean((low <= y) & (y <= high)) < 0.97  # whole numbers leave no finer choice


def test_duplicates_of_other_rows_are_still_one_row_each():
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((300, 2)), rng.integers(0, 2, 300).astype(float)
    twice = Rows(np.tile(X, (2, 1)), np.tile(y, 2), None)
    for settle in (settle_few, settle_many):
        merged = settle(twice)
        assert merged.n == 300 and (merged.weight == 2.0).all()


def test_a_few_rows_that_answer_differently_leave_duplicates_merged():
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((300, 2)), rng.integers(0, 2, 300).astype(float)
    X[1] = X[0]
    y[:2] = [0.0, 1.0]
    assert settle_few(Rows(np.tile(X, (2, 1)), np.tile(y, 2), None)).n == 300


def test_weights_that_are_no_counts_stay_with_their_rows():
    X, y = draw(300)
    weight = np.random.default_rng(4).uniform(0.5, 1.5, 300)
    found = settle_few(Rows(X, y.astype(float), weight))
    assert found.n == 300 and found.weight.sum() == pytest.approx(weight.sum())
    p = BayesianKernelClassifier(random_state=0).fit(X, y, sample_weight=weight)
    shares = [np.average(y[(X == c).all(axis=1)], weights=weight[(X == c).all(axis=1)])
              for c in CELLS]  # fmt: skip
    np.testing.assert_allclose(p.predict_proba(CELLS)[:, 1], shares, atol=0.05)
