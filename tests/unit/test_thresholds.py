"""Thresholds against every possible choice of cuts."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

from likelier.calibration import best_thresholds

RNG = np.random.default_rng(0)


def brute_force(scores, Y, measure):
    """Best value over all cuts of all labels: above a score, or everything."""
    cuts = [[-np.inf, *np.sort(column)] for column in scores.T]
    return max(measure(Y, scores > np.array(choice)) for choice in itertools.product(*cuts))


def f1(Y, P, axis):
    both = Y.sum(axis=axis) + P.sum(axis=axis)
    return np.mean(2.0 * (Y * P).sum(axis=axis) / np.maximum(both, 1))


def micro(Y, P):
    return f1(Y, P, None)


def macro(Y, P):
    return f1(Y, P, 0)


def correct(Y, P):
    return np.mean(Y == P)


@pytest.mark.parametrize(
    ("objective", "measure"), [("micro", micro), ("macro", macro), ("hamming", correct)]
)
@pytest.mark.parametrize("seed", range(5))
def test_no_choice_of_cuts_is_better(objective, measure, seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(9, 3)).round(1)  # with ties
    Y = (rng.random((9, 3)) < 0.4).astype(int)
    cuts = best_thresholds(scores, Y, objective, pseudo_positives=0)
    found = measure(Y, scores > cuts)
    assert found == pytest.approx(brute_force(scores, Y, measure))


def test_weights_are_duplicates():
    scores, Y = RNG.normal(size=(30, 4)), (RNG.random((30, 4)) < 0.3).astype(float)
    weight = RNG.integers(0, 4, 30).astype(float)
    copies = np.repeat(np.arange(30), weight.astype(int))
    for objective in ("micro", "macro", "hamming"):
        one = best_thresholds(scores, Y, objective, weight)
        two = best_thresholds(scores[copies], Y[copies], objective)
        np.testing.assert_array_equal(scores[copies] > one, scores[copies] > two)


def test_rare_labels_are_not_a_matter_of_luck():
    """Three positives with high scores by luck: the cut stays near where probabilities say."""
    rng = np.random.default_rng(1)
    scores = rng.normal(-3.0, 1.0, size=(400, 1))
    Y = np.zeros((400, 1))
    Y[np.argsort(scores[:, 0])[-3:]] = 1.0  # the very top, which will not happen again
    eager = best_thresholds(scores, Y, "macro", pseudo_positives=0)[0]
    calm = best_thresholds(scores, Y, "macro")[0]
    many = rng.normal(-3.0, 1.0, size=(100_000, 1))
    fresh = (rng.random(many.shape) < expit(many)).astype(int)
    assert calm < eager
    assert macro(fresh, many > calm) > macro(fresh, many > eager)


def test_rows_without_labels_count_by_their_scores():
    rng = np.random.default_rng(2)
    scores = rng.normal(-1.0, 2.0, size=(50_000, 1))
    nothing = np.full(scores.shape, np.nan)
    labels = (rng.random(scores.shape) < expit(scores)).astype(float)
    one = best_thresholds(scores, nothing, "micro")
    two = best_thresholds(scores, labels, "micro", pseudo_positives=0)
    assert abs(one - two) < 0.15
    assert best_thresholds(scores, nothing, "hamming")[0] == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("pseudo", [0.0, 10.0])
def test_a_label_without_positives_is_not_predicted_for_macro_f1(pseudo):
    """Expected F1 alone grows with every prediction where probabilities are flat."""
    scores = np.column_stack([RNG.normal(size=200), np.full(200, -6.0)])
    Y = np.column_stack([scores[:, 0] > 1.0, np.zeros(200)]).astype(float)
    cuts = best_thresholds(scores, Y, "macro", pseudo_positives=pseudo)
    assert cuts[1] >= 0.0 and not (scores[:, 1] > cuts[1]).any()
    assert 10 < (scores[:, 0] > cuts[0]).sum() < 60


@pytest.mark.parametrize("objective", ["micro", "macro", "hamming"])
@pytest.mark.parametrize("n_positive", [0, 1, 3, 8])
def test_labels_of_hardly_any_row_are_not_predicted_everywhere(objective, n_positive):
    """Uninformative scores: F1 alone would be largest if all rows were predicted."""
    rng = np.random.default_rng(n_positive)
    scores = np.log((n_positive + 0.5) / 400) + 0.1 * rng.normal(size=(400, 3))
    Y = np.zeros((400, 3))
    Y[:n_positive] = 1.0
    predicted = scores > best_thresholds(scores, Y, objective)
    assert (predicted.sum(axis=0) <= 10 * n_positive).all()
    assert best_thresholds(scores, np.zeros((400, 3)), objective).min() >= 0.0


def test_parameters_are_validated():
    with pytest.raises(ValueError, match="objective must be one of"):
        best_thresholds(np.zeros((2, 1)), np.zeros((2, 1)), "accuracy")
    with pytest.raises(ValueError, match="same 2d shape"):
        best_thresholds(np.zeros((2, 1)), np.zeros((3, 1)))
