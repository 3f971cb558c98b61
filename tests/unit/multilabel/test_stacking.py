"""Stacking weights: the minimum, and the labels they are fitted to."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit

from likelier.multilabel import stacking as label_stack
from likelier.multilabel.stacking import PRECISIONS, out_of_fold, scorable_labels, stack_weights


def stacked(scores, Y, n_log_odds, weight=None):
    weight = np.ones(len(Y)) if weight is None else weight
    return stack_weights(scores, Y, weight, np.random.default_rng(0), n_log_odds)


def cost(g, scores, Y, n_log_odds, weight, prior=1.0):
    """Log loss over known labels plus the prior, written out."""
    f = sum(one * part for one, part in zip(g, scores, strict=True))
    loss = np.logaddexp(0.0, np.where(Y == 1.0, -f, f)) * weight[:, None]
    total = loss[np.isfinite(Y)].sum()
    return total + 0.5 * prior * ((g[:n_log_odds].sum() - 1.0) ** 2 + (g[n_log_odds:] ** 2).sum())


def data(n, n_labels=2, n_scores=3):
    rng = np.random.default_rng(n)
    f = rng.normal(size=(n, n_labels))
    Y = (rng.random(f.shape) < expit(f)).astype(float)
    Y[rng.random(f.shape) < 0.1] = np.nan
    return [f + rng.normal(size=f.shape) for _ in range(n_scores)], Y


@pytest.mark.parametrize("n_log_odds", [1, 2, 3])
@pytest.mark.parametrize("n", [4, 40])
def test_weights_are_the_minimum_of_loss_and_prior(n, n_log_odds):
    scores, Y = data(n)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, n)
    ours = stacked(scores, Y, n_log_odds, weight)
    told = (scores, Y, n_log_odds, weight)
    best = minimize(
        cost, np.full(3, 0.3), told, method="Nelder-Mead", bounds=[(0.0, 4.0)] * 3,
        options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 4000},
    )  # fmt: skip
    assert cost(ours, *told) <= best.fun + 1e-6
    np.testing.assert_allclose(ours, best.x, atol=2e-3)


def test_many_rows_do_not_feel_the_prior():
    scores, Y = data(1000)
    ours = stacked(scores, Y, 2)
    told = (scores, Y, 2, np.ones(1000))
    for step in (0.02, -0.02):
        moved = ours + np.array([step, 0.0, 0.0])
        assert cost(ours, *told, prior=0.0) < cost(moved, *told, prior=0.0)


def test_without_labels_maps_are_averaged_and_nothing_is_added():
    nothing = [np.zeros((5, 0))] * 4
    np.testing.assert_allclose(stacked(nothing, np.zeros((5, 0)), 3), [1 / 3, 1 / 3, 1 / 3, 0.0])
    unknown = np.full((5, 2), np.nan)
    np.testing.assert_allclose(stacked([np.ones((5, 2))] * 2, unknown, 2), [0.5, 0.5])


def test_uninformative_scores_get_no_large_weight():
    """Nothing but a prior holds a weight whose scores are nearly zero."""
    base = np.array([0.35, 0.6, 0.1])
    for seed in range(5):
        rng = np.random.default_rng(seed)
        Y = (rng.random((200, 3)) < base).astype(float)
        whole = np.broadcast_to(logit(base), Y.shape)
        g = stacked([whole, 0.02 * rng.normal(size=Y.shape)], Y, 1)
        assert abs(g[0] - 1.0) < 0.3 and g[1] < 0.5


def test_many_cells_are_fitted_on_a_part_of_the_rows(monkeypatch):
    monkeypatch.setattr(label_stack, "MAX_STACK_CELLS", 10_000)
    rng = np.random.default_rng(0)
    f = rng.normal(size=(20_000, 2)).astype(np.float32)
    Y = (rng.random(f.shape) < expit(f)).astype(np.float32)
    part = stacked([f], Y, 1)[0]
    assert part == pytest.approx(1.0, abs=0.15) and part != stacked([f[:9000]], Y[:9000], 1)[0]


def test_labels_are_scorable_where_a_fold_was_trained_on_both_values():
    Y = np.array([
        [1, 0, 1, 1, np.nan, 1],
        [1, 0, 0, 1, np.nan, 1],
        [1, 0, 0, 0, np.nan, 0],
        [1, 0, 0, 0, np.nan, np.nan],
        [0, 1, 0, 1, 1, 0],
    ], dtype=float)  # fmt: skip
    fold = np.array([0, 0, 1, 2, -1])  # the last row is in no fold
    np.testing.assert_array_equal(
        scorable_labels(Y, fold), [False, False, True, True, False, False]
    )
    # two folds of which each learns from a single row
    assert not scorable_labels(Y[[0, 2]], np.array([0, 1])).any()
    assert not scorable_labels(Y[:1], np.array([0])).any()


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_scorable_labels_by_trying(n_folds):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        Y = rng.choice([0.0, 1.0, np.nan], size=(8, 30), p=[0.6, 0.1, 0.3])
        fold = rng.permutation(8) % n_folds
        expected = [
            any(
                {0.0, 1.0} <= set(column[fold != f].tolist())
                and np.isfinite(column[fold == f]).any()
                for f in range(n_folds)
            )
            for column in Y.T
        ]
        np.testing.assert_array_equal(scorable_labels(Y, fold), expected)


@pytest.mark.parametrize(("n_rarer", "least"), [(1, 1.0), (9, 0.2), (99, 0.02), (100, 0.0)])
def test_weak_priors_are_tried_where_there_are_enough_examples(n_rarer, least, monkeypatch):
    """A prior precision below one over the number of rarer answers is chance."""
    Y = np.zeros((400, 2))
    Y[: n_rarer // 2, 0] = 1.0
    Y[n_rarer - n_rarer // 2 :, 1] = 1.0  # here zeros are rare
    Y[300:] = np.nan  # and here nothing is known
    seen = []

    def watched(Z, Y, weight, alpha, *rest):
        seen.append(alpha[0])
        return fit_labels(Z, Y, weight, alpha, *rest)

    fit_labels = label_stack.fit_labels
    monkeypatch.setattr(label_stack, "fit_labels", watched)
    monkeypatch.setattr(label_stack, "PATIENCE", len(PRECISIONS))
    Z = np.random.default_rng(0).normal(size=(400, 2))
    out_of_fold(Z, Y, np.ones(400), np.arange(400) % 2)
    assert sorted(set(seen), reverse=True) == [a for a in PRECISIONS if a >= least]
