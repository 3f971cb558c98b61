"""Lanes side by side: products with a listed row against NumPy, whatever their number."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.loops.lanes import add_scores, keep_and_add

PLACES = np.array([3, 0, 6, 2, 5], dtype=np.uintp)


def draw(n_lanes):
    rng = np.random.default_rng(n_lanes)
    return rng.standard_normal((7, n_lanes)), rng.standard_normal(5), rng.standard_normal(n_lanes)


@pytest.mark.parametrize("n_lanes", [1, 2, 3, 4, 5, 7, 8, 9, 10, 13, 16, 23])
@pytest.mark.parametrize("n", [0, 1, 4, 5])
def test_scores_and_moves_of_a_listed_row(n, n_lanes):
    weights, values, start = draw(n_lanes)
    keep = np.random.default_rng(0).random(5)
    listed, scores = PLACES[:n].astype(int), start.copy()
    add_scores(values, PLACES, np.uintp(n), weights.reshape(-1), scores)
    np.testing.assert_allclose(scores, start + values[:n] @ weights[listed], atol=1e-14)
    expected = weights.copy()
    expected[listed] = keep[:n, None] * weights[listed] + values[:n, None] * start
    keep_and_add(values, PLACES, np.uintp(n), weights.reshape(-1), start, keep)
    np.testing.assert_allclose(weights, expected, atol=1e-14)


@pytest.mark.parametrize("borders", [(0, 5), (5, 10), (0, 1), (9, 10), (2, 9)])
def test_a_lane_has_the_same_bits_in_any_company(borders):
    weights, values, start = draw(10)
    some, keep = slice(*borders), np.linspace(0.1, 0.9, 5)
    scores, few = start.copy(), start[some].copy()
    own = np.ascontiguousarray(weights[:, some])
    add_scores(values, PLACES, np.uintp(5), weights.reshape(-1), scores)
    add_scores(values, PLACES, np.uintp(5), own.reshape(-1), few)
    np.testing.assert_array_equal(few, scores[some])
    keep_and_add(values, PLACES, np.uintp(5), weights.reshape(-1), start, keep)
    keep_and_add(values, PLACES, np.uintp(5), own.reshape(-1), start[some].copy(), keep)
    np.testing.assert_array_equal(own, weights[:, some])
