"""Thresholds of scores, one per label, that maximise a measure of all labels together.

Counts behind a measure are expected counts: where a label is known they mix what is known with
what the score says, the more so the rarer the label; where it is unknown the score alone
speaks. Thresholds of rare labels are then not a matter of two or three lucky rows, and rows
without labels help.

F1 has a quirk: of labels that scores cannot tell at all it is largest if they are predicted for
everybody. So a label is predicted for at most `MOST_OFTEN` times as many rows as have it, fewer
where few positives are known to tune by, and a label of which no positive is known for none.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from likelier.base import Array

OBJECTIVES = ("micro", "macro", "hamming")
PSEUDO_POSITIVES = 10.0  # known positives at which labels and scores weigh the same
MOST_OFTEN = 10.0  # rows that a label may be predicted for, for each that has it
MAX_ROUNDS = 60


def best_thresholds(
    scores: Array,
    Y: Array,
    objective: str = "micro",
    weight: Array | None = None,
    pseudo_positives: float = PSEUDO_POSITIVES,
) -> Array:
    """Thresholds that maximise micro-F1, macro-F1 or the share of correct labels.

    Parameters
    ----------
    scores : array of shape (n, L)
        Log-odds of labels, out of fold.
    Y : array of shape (n, L)
        Labels 0 and 1; NaN where unknown.
    objective : {"micro", "macro", "hamming"}
        What to maximise.
    weight : array of shape (n,), optional
        Weights of rows.
    pseudo_positives : float
        Known positives of a label at which expected counts are half what is known and half
        what scores say; 0 takes known labels as they are.

    Returns
    -------
    array of shape (L,)
        A label is predicted where its score is above. Where the best is to predict a label for no
        row, as always if it is known but never positive, its threshold is also above even odds.

    Notes
    -----
    F1 of all labels together is maximal where, for ``F`` its maximum, every label by itself
    maximises ``2 TP - F (predicted)``; ``F`` is found by repeating the two in turn, which
    converges in a few rounds. Cost: sorting ``L`` columns.

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
        raise ValueError(f"scores and Y must have one shape, got {np.shape(scores)}, {np.shape(Y)}")
    w = np.ones(len(scores)) if weight is None else np.asarray(weight, dtype=np.float64)
    scores = np.asarray(scores, dtype=np.float64)
    Y = np.asarray(Y, dtype=np.float64)
    expected = _expected_labels(scores, Y, w, pseudo_positives)
    hits, chosen, cuts = _curves(scores, expected, w)
    allowed = ~np.isnan(cuts) & (chosen <= _most_rows(Y, w, hits[-1], pseudo_positives))
    best = _best_places(hits, chosen, allowed, objective)
    found = cuts[best, np.arange(scores.shape[1])]
    # no row here is worth a prediction; a later one is only where the label is probable
    return np.where(best == 0, np.maximum(cuts[0], 0.0), found)


def _best_places(hits: Array, chosen: Array, allowed: Array, objective: str) -> Array:
    """How many of its highest scores every label chooses, of those numbers that are allowed."""
    positives, labels = hits[-1], np.arange(hits.shape[1])
    if objective == "macro":
        total = np.maximum(chosen + positives, 1e-300)
        return _last_argmax(np.where(allowed, 2.0 * hits / total, -np.inf))
    # the share of correct labels is the same problem with F = 1, solved in one round
    F = 1.0 if objective == "hamming" else 0.5
    for _ in range(MAX_ROUNDS):
        best = _last_argmax(np.where(allowed, 2.0 * hits - F * chosen, -np.inf))
        count = float(chosen[best, labels].sum() + positives.sum())
        better = 2.0 * float(hits[best, labels].sum()) / count if count > 0.0 else F
        if objective == "hamming" or abs(better - F) < 1e-12:
            break
        F = better
    return best


def _most_rows(Y: Array, w: Array, positives: Array, pseudo: float) -> Array:
    """Weight of the rows that a label may be predicted for; of what is unknown, of any number.

    Expected F1 alone grows with every prediction where probabilities are small and flat.
    """
    known = np.isfinite(Y)
    had = w @ np.where(known, Y, 0.0)
    often = np.maximum(1.0, MOST_OFTEN * had / np.maximum(had + pseudo, 1e-300))
    most = np.where(had > 0.0, often * positives, 0.0)
    return np.where(known.any(axis=0), most, np.inf)


def _expected_labels(scores: Array, Y: Array, w: Array, pseudo: float) -> Array:
    """Labels that are known, mixed with probabilities; probabilities where they are not."""
    p = expit(scores)
    known = np.isfinite(Y)
    positive = w @ np.where(known, Y, 0.0)
    trust = np.ones_like(positive) if pseudo <= 0.0 else positive / (positive + pseudo)
    return np.asarray(np.where(known, trust * np.where(known, Y, 0.0) + (1.0 - trust) * p, p))


def _curves(scores: Array, expected: Array, w: Array) -> tuple[Array, Array, Array]:
    """Hits and predictions if the ``k`` highest scores are chosen, and the cut behind them.

    A cut is NaN where scores on both sides are the same.
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
    """Last position of the maximum of every column: of equal cuts the most generous."""
    return np.asarray(len(values) - 1 - values[::-1].argmax(axis=0))
