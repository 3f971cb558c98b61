"""Mixing of the scores of classes that were not seen together, and when it is applied."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from likelier.one_pass import score_mixing
from likelier.one_pass.score_mixing import (
    MIX_PRECISION,
    OFFSET_PRECISION,
    apply_mixing,
    find_mixing,
    mixing_problem,
)


def problem_rows(n=1200, K=4, d=3, seed=0):
    """Rows, their classes, and weights that are right but for the levels of half of the classes."""
    rng = np.random.default_rng(seed)
    Z = np.hstack([rng.normal(size=(n, d)), np.ones((n, 1))])
    right = rng.normal(size=(d + 1, K)) * 2.0
    codes = np.argmax(Z @ right + rng.gumbel(size=(n, K)), axis=1)
    order = np.argsort(codes, kind="stable")
    off = right.copy()
    off[-1, K // 2 :] += 3.0
    return Z[order], codes[order], rng.uniform(0.5, 2.0, n), right, off


def mixed(mean, known, rows, factor, has_intercept):
    """Weights after mixing, where the sample is all there is."""
    found = find_mixing(mean, known, rows, factor, has_intercept)
    return apply_mixing(found, mean, known, max(rows[2].sum(), len(rows[2])), factor)


def mixture(scores, codes, weight, has_intercept):
    """Matrix and levels of the largest posterior."""
    problem = mixing_problem(scores, codes, weight, has_intercept)
    return problem.mixture(problem.solve(problem.start(), score_mixing.MAX_STEPS))


def losses(scores, codes):
    return logsumexp(scores, axis=1) - scores[np.arange(len(codes)), codes]


@pytest.mark.parametrize("has_intercept", [True, False])
def test_no_other_mixture_has_a_larger_posterior(has_intercept, monkeypatch):
    monkeypatch.setattr(score_mixing, "MAX_STEPS", 2000)
    Z, codes, weight, _, off = problem_rows(400)
    scores = Z @ off
    scale = np.sqrt(weight @ scores**2 / weight.sum())
    matrix, level = mixture(scores, codes, weight, has_intercept)

    def energy(matrix, level):
        # the scale that the prior leaves free is the one that suits the matrix best
        change = scale[:, None] * matrix
        own = np.diag(scale)
        change = change - own * (change * own).sum() / (own * own).sum()
        prior = MIX_PRECISION * (change**2).sum() + OFFSET_PRECISION * level @ level
        return weight @ losses(scores @ matrix + level, codes) + 0.5 * prior

    best, rng = energy(matrix, level), np.random.default_rng(2)
    assert has_intercept or not level.any()
    assert best < energy(np.eye(4), np.zeros(4))
    for _ in range(50):
        step, up = rng.normal(size=(4, 4)), rng.normal(size=4) * has_intercept
        assert energy(matrix + 0.02 * step, level + 0.02 * up) > best


def test_levels_that_are_off_are_found_and_right_ones_are_left_alone():
    Z, codes, weight, right, off = problem_rows(6000)
    known, rows = np.arange(4), (Z, codes, weight)
    found = mixed(off, known, rows, 1.0, True)
    accuracy = [((Z @ w).argmax(axis=1) == codes).mean() for w in (right, found, off)]
    assert accuracy[1] > accuracy[0] - 0.01 > accuracy[2] + 0.05
    assert losses(Z @ found, codes).mean() < losses(Z @ right, codes).mean() + 0.01
    again = mixed(right, known, rows, 1.0, True)
    assert np.abs(Z @ (again - again.mean(axis=1, keepdims=True))
                  - Z @ (right - right.mean(axis=1, keepdims=True))).mean() < 0.3  # fmt: skip


def test_the_factor_of_the_scores_is_taken_out_again():
    Z, codes, weight, _, off = problem_rows()
    one = mixed(off, np.arange(4), (Z, codes, weight), 1.0, True)
    two = mixed(off / 2.5, np.arange(4), (Z, codes, weight), 2.5, True)
    np.testing.assert_allclose(2.5 * two, one, atol=1e-6)


@pytest.mark.parametrize("has_intercept", [True, False])
def test_classes_without_rows_never_win(has_intercept):
    Z, codes, weight, _, off = problem_rows()
    known = np.array([0, 2, 3, 5])
    wide = np.full((4, 6), 9.0)
    wide[:, known] = off
    found = mixed(wide, known, (Z, known[codes], weight), 1.0, has_intercept)
    assert np.isin((Z @ found).argmax(axis=1), known).all()


def test_scores_that_a_mixture_does_not_improve_stay_as_they_are(monkeypatch):
    Z, codes, weight, _, off = problem_rows(200)
    monkeypatch.setattr(score_mixing, "_improves", lambda *args: False)
    np.testing.assert_array_equal(mixed(off, np.arange(4), (Z, codes, weight), 1.0, True), off)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-9])
def test_classes_without_rows_stay_below_whatever_the_unit_of_weights(unit):
    Z, codes, weight, _, off = problem_rows()
    known = np.array([0, 2, 3, 5])
    wide = np.full((4, 6), 9.0)
    wide[:, known] = off
    found = mixed(wide, known, (Z, known[codes], unit * weight), 1.0, True)
    middle = found[:, known].mean(axis=1)
    np.testing.assert_allclose(found[:-1, [1, 4]], middle[:-1, None] * [[1.0, 1.0]])
    assert (found[-1, [1, 4]] < middle[-1] - np.log(1200.0)).all()


def test_many_classes_mix_the_directions_that_vary_most(monkeypatch):
    Z, codes, weight, right, off = problem_rows(4000)
    monkeypatch.setattr(score_mixing, "MAX_ENTRIES", 8)  # two directions of four classes
    matrix, _ = mixture(Z @ off, codes, weight, True)
    scale = np.linalg.eigvals(matrix)
    assert np.isclose(scale[:, None], scale, rtol=1e-6).sum(axis=1).max() == 2  # left in proportion
    found = mixed(off, np.arange(4), (Z, codes, weight), 1.0, True)
    assert losses(Z @ found, codes).mean() < losses(Z @ right, codes).mean() + 0.01


def test_scores_of_few_coordinates_need_no_more_directions(monkeypatch):
    Z, codes, weight, _, off = problem_rows(2000, K=7, d=3)
    scores = Z @ (off - off.mean(axis=1, keepdims=True))
    assert score_mixing._directions(scores, weight).shape == (7, 4)
    best = mixture(scores, codes, weight, True)
    monkeypatch.setattr(score_mixing, "MAX_DIRECTIONS", 4)
    for found, all_ in zip(mixture(scores, codes, weight, True), best, strict=True):
        np.testing.assert_allclose(found, all_)


def test_a_few_steps_come_close_to_the_largest_posterior(monkeypatch):
    Z, codes, weight, _, off = problem_rows(3000, K=12, d=8)
    short = mixture(Z @ off, codes, weight, True)
    monkeypatch.setattr(score_mixing, "MAX_STEPS", 2000)
    long = mixture(Z @ off, codes, weight, True)
    few, many = (losses(Z @ off @ m + level, codes).mean() for m, level in (short, long))
    assert abs(few - many) < 0.002


def test_validation_rows_are_held_out_first(monkeypatch):
    Z, codes, weight, _, off = problem_rows(500)
    sizes, problem = [], score_mixing.MixingProblem.solve
    monkeypatch.setattr(
        score_mixing.MixingProblem, "solve",
        lambda self, *args: sizes.append(len(self.codes)) or problem(self, *args),
    )  # fmt: skip
    mixed(off, np.arange(4), (Z, codes, weight), 1.0, True)
    assert sizes == [400, 500]
