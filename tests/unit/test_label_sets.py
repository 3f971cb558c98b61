"""Distributions of label sets, against their definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from likelier.predictive import Bernoulli, LabelSets

RNG = np.random.default_rng(0)
PROB = RNG.random((6, 4, 3))  # rows, components, labels
WEIGHTS = RNG.dirichlet(np.ones(4), 6)
SETS = np.array(list(itertools.product([0, 1], repeat=3)))


def test_probabilities_of_all_sets_sum_to_one():
    p = LabelSets(PROB, weights=WEIGHTS)
    sets = [np.exp(p.log_density(np.tile(one, (6, 1)))) for one in SETS]
    np.testing.assert_allclose(sum(sets), 1.0, rtol=1e-12)
    with_first = sum(prob for one, prob in zip(SETS, sets, strict=True) if one[0])
    np.testing.assert_allclose(p.probabilities()[:, 0], with_first, rtol=1e-12)


def test_log_density_is_that_of_the_mixture():
    y = np.array([1.0, 0.0, 1.0])
    each = np.where(y == 1.0, PROB, 1.0 - PROB).prod(axis=2)
    expected = np.log((WEIGHTS * each).sum(axis=1))
    found = LabelSets(PROB, weights=WEIGHTS).log_density(np.tile(y, (6, 1)))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_unknown_labels_are_left_out():
    one = LabelSets(PROB[:, 0])
    y = np.tile([1.0, np.nan, 0.0], (6, 1))
    expected = np.log(PROB[:, 0, 0]) + np.log1p(-PROB[:, 0, 2])
    np.testing.assert_allclose(one.log_density(y), expected, rtol=1e-12)
    np.testing.assert_array_equal(one.log_density(np.full((6, 3), np.nan)), 0.0)


def test_a_mixture_of_one_is_what_it_was_given():
    one = LabelSets(PROB[:, 0])
    np.testing.assert_array_equal(one.probabilities(), PROB[:, 0])
    point = one.point()
    assert point.dtype == np.int64
    np.testing.assert_array_equal(point, PROB[:, 0] > 0.5)


def test_an_impossible_set_has_no_probability():
    assert LabelSets([[0.0, 1.0]]).log_density([[1, 1]])[0] == -np.inf
    assert LabelSets([[0.0, 1.0]]).log_density([[0, 1]])[0] == 0.0


def test_uncertainty_is_that_of_each_label():
    found = LabelSets(PROB, weights=WEIGHTS).uncertainty()
    for label in range(3):
        one = Bernoulli(PROB[:, :, label], weights=WEIGHTS).uncertainty()
        for name in ("total", "aleatoric", "epistemic"):
            np.testing.assert_array_equal(getattr(found, name)[:, label], getattr(one, name))


def test_no_rows_and_no_labels():
    assert LabelSets(np.zeros((0, 3))).uncertainty().total.shape == (0, 3)
    assert LabelSets(np.zeros((2, 0))).uncertainty().total.shape == (2, 0)
    np.testing.assert_array_equal(LabelSets(np.zeros((2, 0))).log_density(np.zeros((2, 0))), 0.0)


@pytest.mark.parametrize("prob", [[[1.1]], [[-0.1]], [[np.nan]], [0.5, [0.5]], 0.5])
def test_what_is_no_probability_is_refused(prob):
    with pytest.raises(ValueError, match=r"."):
        LabelSets(prob)


@pytest.mark.parametrize(("y", "message"), [([[1, 0]], "3 labels"), ([[2, 0, 1]] * 6, "0, 1")])
def test_other_labels_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        LabelSets(PROB).log_density(y)
