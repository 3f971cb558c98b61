"""Thresholds of scores, one per label, that maximise an objective over all labels.

Objectives are computed from expected counts: known labels are mixed with the probabilities given
by the scores, with more weight on the probabilities the rarer the label; unknown labels use the
probabilities alone. Thresholds of rare labels then do not depend on two or three rows, and
unlabelled rows help.

F1 of a label whose scores are uninformative is largest if the label is predicted for every row.
Therefore a label is predicted for at most `MAX_RATIO` times as many rows as have it, fewer where
few positives are known, and a label without known positives for no row.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from likelier.base import Array

OBJECTIVES = ("micro", "macro", "hamming")
PSEUDO_POSITIVES = 10.0  # known positives at which labels and probabilities have equal weight
MAX_RATIO = 10.0  # predicted rows per row that has the label
MAX_ROUNDS = 60


def best_thresholds(
    scores: Array,
    Y: Array,
    objective: str = "micro",
    weight: Array | None = None,
    pseudo_positives: float = PSEUDO_POSITIVES,
) -> Array:
    """Thresholds that maximise micro-F1, macro-F1 or the fraction of correct labels.

    Parameters
    ----------
    scores : array of shape (n, L)
        Log-odds of labels, out of fold.
    Y : array of shape (n, L)
        Labels 0 and 1; NaN where unknown.
    objective : {"micro", "macro", "hamming"}
        Objective to maximise.
    weight : array of shape (n,), optional
        Weights of rows.
    pseudo_positives : float
        Known positives of a label at which labels and probabilities have equal weight in the
        expected counts; 0 uses known labels only.

    Returns
    -------
    array of shape (L,)
        A label is predicted where its score is above. Where it is best to predict a label for no
        row (always, if it is known but never positive), its threshold is at least even odds.

    Notes
    -----
    Micro-F1 is maximal where, for ``F`` its maximum, every label maximises
    ``2 TP - F (predicted)``; ``F`` is found by a fixed-point iteration, which converges in a few
    rounds. Cost: sorting ``L`` columns.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[-3.0], [-2.0], [-1.0], [2.0]])
    >>> Y = np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> best_thresholds(scores, Y, pseudo_positives=0)
    array([-1.5])
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {list(OBJECTIVES)}, got {objective!r}")
    if np.shape(scores) != np.shape(Y) or np.ndim(scores) != 2:
        raise ValueError(
            f"scores and Y must have the same 2d shape, got {np.shape(scores)} and {np.shape(Y)}"
        )
    w = np.ones(len(scores)) if weight is None else np.asarray(weight, dtype=np.float64)
    scores = np.asarray(scores, dtype=np.float64)
    Y = np.asarray(Y, dtype=np.float64)
    expected = _expected_labels(scores, Y, w, pseudo_positives)
    hits, chosen, cuts = _curves(scores, expected, w)
    allowed = ~np.isnan(cuts) & (chosen <= _max_predicted(Y, w, hits[-1], pseudo_positives))
    best = _best_positions(hits, chosen, allowed, objective)
    found = cuts[best, np.arange(scores.shape[1])]
    # a label that is predicted for no row here is predicted later only if it is probable
    return np.where(best == 0, np.maximum(cuts[0], 0.0), found)


def _best_positions(hits: Array, chosen: Array, allowed: Array, objective: str) -> Array:
    """Number of highest scores at which each label is predicted, among the allowed ones."""
    positives, labels = hits[-1], np.arange(hits.shape[1])
    if objective == "macro":
        total = np.maximum(chosen + positives, 1e-300)
        return _last_argmax(np.where(allowed, 2.0 * hits / total, -np.inf))
    # the fraction of correct labels is the same problem with F = 1, solved in one round
    F = 1.0 if objective == "hamming" else 0.5
    for _ in range(MAX_ROUNDS):
        best = _last_argmax(np.where(allowed, 2.0 * hits - F * chosen, -np.inf))
        count = float(chosen[best, labels].sum() + positives.sum())
        better = 2.0 * float(hits[best, labels].sum()) / count if count > 0.0 else F
        if objective == "hamming" or abs(better - F) < 1e-12:
            break
        F = better
    return best


def _max_predicted(Y: Array, w: Array, positives: Array, pseudo: float) -> Array:
    """Maximum weight of the rows for which a label is predicted; no limit for unknown labels.

    Expected F1 alone increases with every prediction where probabilities are small and flat.
    """
    known = np.isfinite(Y)
    positive = w @ np.where(known, Y, 0.0)
    ratio = np.maximum(1.0, MAX_RATIO * positive / np.maximum(positive + pseudo, 1e-300))
    limit = np.where(positive > 0.0, ratio * positives, 0.0)
    return np.where(known.any(axis=0), limit, np.inf)


def _expected_labels(scores: Array, Y: Array, w: Array, pseudo: float) -> Array:
    """Known labels mixed with probabilities; probabilities where labels are unknown."""
    p = expit(scores)
    known = np.isfinite(Y)
    positive = w @ np.where(known, Y, 0.0)
    trust = np.ones_like(positive) if pseudo <= 0.0 else positive / (positive + pseudo)
    return np.asarray(np.where(known, trust * np.where(known, Y, 0.0) + (1.0 - trust) * p, p))


def _curves(scores: Array, expected: Array, w: Array) -> tuple[Array, Array, Array]:
    """True positives and predictions for the ``k`` highest scores, and the corresponding cuts.

    A cut is NaN between equal scores.
    """
    order = np.argsort(-scores, axis=0, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=0)
    zero = np.zeros((1, scores.shape[1]))
    hits = np.take_along_axis(expected * w[:, None], order, axis=0)
    hits = np.concatenate([zero, np.cumsum(hits, axis=0)])
    chosen = np.concatenate([zero, np.cumsum(w[order], axis=0)])
    middle = 0.5 * (ordered[:-1] + ordered[1:])
    middle[ordered[:-1] <= ordered[1:]] = np.nan
    cuts = np.concatenate([ordered[:1] + 1.0, middle, ordered[-1:] - 1.0])
    return hits, chosen, cuts


def _last_argmax(values: Array) -> Array:
    """Last position of the maximum of every column: the lowest of equally good cuts."""
    return np.asarray(len(values) - 1 - values[::-1].argmax(axis=0))
