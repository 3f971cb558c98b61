"""The tree of regions, and the algebra of stacked experts."""

from __future__ import annotations

import numpy as np
import pytest

from likelier.kernel_machine.expert_model import (
    Experts,
    by_region,
    expert_map,
    grow_tree,
)
from likelier.kernel_machine.features import fourier_map, landmark_map


def walk(tree, z):
    """The region of one row, step by step."""
    node = 0
    while node < tree.n_regions - 1:
        node = 2 * node + (2 if z @ tree.directions[node] > tree.cuts[node] else 1)
    return node - (tree.n_regions - 1)


def test_regions_are_balanced_and_found():
    Z = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    tree = grow_tree(Z, 8)
    found = tree.regions(Z)
    assert (np.bincount(found, minlength=8) == 125).all()
    assert [walk(tree, z) for z in Z[:50]] == found[:50].tolist()


def test_the_first_cut_is_across_the_widest_direction():
    rng = np.random.default_rng(0)
    Z = (rng.normal(size=(500, 3)) * [1.0, 9.0, 1.0]).astype(np.float32)
    assert np.abs(grow_tree(Z, 2).directions[0]).argmax() == 1


@pytest.mark.parametrize("values", [[0, 1], [0, 0, 0, 1], [0, 1, 1, 1], [2, 2, 2]])
def test_equal_rows_stay_together(values):
    Z = np.repeat(np.array(values, dtype=np.float32), 10)[:, None]
    found = grow_tree(Z, 4).regions(Z)
    for value in set(values):
        assert len(set(found[Z[:, 0] == value])) == 1
    assert len(set(found)) == len(set(values))


def test_rows_by_region():
    regions = np.array([3, 0, 3, 1])
    pairs = [(region, rows.tolist()) for region, rows in by_region(regions)]
    assert pairs == [(0, [1]), (1, [3]), (3, [0, 2])]
    assert list(by_region(np.empty(0, dtype=int))) == []


@pytest.mark.parametrize("kind", ["landmarks", "fourier"])
def test_scores_without_features(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    one, zero = np.ones(4), np.zeros(4)
    made = (
        landmark_map(X[:20], zero, one) if kind == "landmarks" else fourier_map(20, zero, one, rng)
    )
    W = rng.normal(size=(made.n_features, 3))
    np.testing.assert_allclose(made.scores(X, W), made(X) @ W, atol=2e-3)


def filled(n_outputs, seed=0):
    """Experts with random weights, and rows."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(200, 2)).astype(np.float32)
    tree = grow_tree(Z, 4)
    shapes = [(4, 10, 2), (4, 10, 10), (4, 11, n_outputs), (4, 11, 11)]
    landmarks, whiten, weights, roots = (np.zeros(shape, np.float32) for shape in shapes)
    experts = Experts(
        np.zeros(2), np.ones(2), 2.0, tree.directions, tree.cuts, landmarks, whiten, weights,
        roots, np.zeros(4, dtype=np.int64), 5.0,
    )  # fmt: skip
    for expert, rows in by_region(tree.regions(Z)):
        made, _ = expert_map(Z[rows], 2.0, 10, rng)
        experts.landmarks[expert], experts.whiten[expert] = made.landmarks, made.whiten
        experts.weights[expert] = rng.normal(size=(11, n_outputs))
        experts.roots[expert] = np.eye(11) * 0.1
        experts.counts[expert] = len(rows)
    return Z, experts


def test_every_row_meets_its_own_expert():
    Z, experts = filled(2)
    scores, variance = experts.correct(Z)
    for i in range(0, 200, 17):
        expert = walk(experts.tree, Z[i])
        made = experts.map(expert)
        Phi = made(Z[i : i + 1])
        np.testing.assert_allclose(scores[i], (Phi @ experts.weights[expert])[0], atol=1e-4)
        expected = 0.01 * (Phi**2).sum() + 5.0 * made.residual(Phi)[0]
        np.testing.assert_allclose(variance[i], expected, rtol=1e-3, atol=1e-3)


def test_experts_without_rows_add_nothing():
    Z, experts = filled(1)
    experts.counts[2] = 0
    scores, variance = experts.correct(Z)
    inside = experts.regions(Z) == 2
    assert inside.any() and not scores[inside].any()
    assert (variance[inside] == 0.0).all() and scores[~inside].any()


def test_plain_form():
    Z, experts = filled(2)
    again = Experts(**experts.to_arrays())
    np.testing.assert_array_equal(experts.correct(Z)[0], again.correct(Z)[0])
