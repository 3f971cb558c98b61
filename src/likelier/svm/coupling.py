"""Scores of pairs of classes: votes, scores per class, and coupled probabilities.

Pairs are ordered as in LIBSVM: (0, 1), (0, 2), ..., (1, 2), ... A positive score is a vote for the
first class of the pair, but for the second one if there are only two classes.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.special import expit

from likelier.base import Array
from likelier.calibration import fit_platt

# Clipping of pairwise probabilities, as in LIBSVM, so that the coupling has a unique solution.
MIN_PROBABILITY = 1e-7
SYSTEM_VALUES = 1 << 20  # size of the linear systems solved at once: 8 MB


def class_pairs(n_classes: int) -> list[tuple[int, int]]:
    """Pairs of classes in LIBSVM's order."""
    return list(combinations(range(n_classes), 2))


def pair_columns(dual_coef: Array, n_support: Array) -> Array:
    """Coefficients with one column per pair, from LIBSVM's table."""
    n_classes = len(n_support)
    ends = np.cumsum(n_support)
    parts = [slice(end - count, end) for end, count in zip(ends, n_support, strict=True)]
    columns = np.zeros((dual_coef.shape[1], len(class_pairs(n_classes))))
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        columns[parts[first], number] = dual_coef[second - 1, parts[first]]
        columns[parts[second], number] = dual_coef[first, parts[second]]
    return columns


def pair_scores(K: Array, dual_coef: Array, n_support: Array) -> Array:
    """Scores of all pairs without intercepts, from kernel values with the support vectors.

    Cost: rows x support vectors x classes.
    """
    if len(dual_coef) == 1:
        return np.asarray(K @ dual_coef.T)
    ends = np.cumsum(n_support)
    parts = [slice(end - count, end) for end, count in zip(ends, n_support, strict=True)]
    against = np.stack([K[:, part] @ dual_coef[:, part].T for part in parts])
    first, second = np.array(class_pairs(len(n_support))).T
    return np.asarray((against[first, :, second - 1] + against[second, :, first]).T)


def votes(scores: Array, n_classes: int) -> Array:
    """Number of pairs won by every class; a score of zero is a vote for the second class."""
    won = np.zeros((len(scores), n_classes))
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        ahead = scores[:, number] > 0.0
        won[:, first] += ahead
        won[:, second] += ~ahead
    return won


def class_scores(scores: Array, n_classes: int) -> Array:
    """One score per class: its votes plus a bounded sum of its pair scores."""
    won, sums = np.zeros((len(scores), n_classes)), np.zeros((len(scores), n_classes))
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        score = scores[:, number]
        sums[:, first] += score
        sums[:, second] -= score
        ahead = score >= 0.0
        won[:, first] += ahead
        won[:, second] += ~ahead
    return won + sums / (3.0 * (abs(sums) + 1.0))


def pair_sigmoids(
    scores: Array, codes: Array, weight: Array | None, n_classes: int
) -> tuple[Array, Array]:
    """Platt's parameters of every pair, in LIBSVM's convention.

    The probability of the first class of a pair with score ``f`` is ``1 / (1 + exp(A f + B))``.
    Both are zero for pairs without rows.
    """
    flipped = -scores if scores.shape[1] == 1 else scores
    A, B = np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
    for number, (first, second) in enumerate(class_pairs(n_classes)):
        inside = np.flatnonzero((codes == first) | (codes == second))
        if len(inside):
            pair_weight = None if weight is None else weight[inside]
            found = fit_platt(flipped[inside, number], codes[inside] == first, pair_weight)
            A[number], B[number] = -found.slope / found.scale, -found.intercept
    return A, B


def couple_probabilities(scores: Array, A: Array, B: Array, n_classes: int) -> Array:
    """Log probabilities of all classes from pairwise probabilities.

    With ``r_kj`` the probability of class k among k and j by the sigmoids, ``p`` minimises
    ``sum_kj (r_jk p_k - r_kj p_j)^2`` where ``sum p = 1`` (the second method of Wu, Lin and Weng,
    2004): one linear system per row. Cost: rows x classes^3.
    """
    first, second = np.array(class_pairs(n_classes)).T
    out = np.empty((len(scores), n_classes))
    at_once = max(1, SYSTEM_VALUES // (n_classes + 1) ** 2)
    for start in range(0, len(scores), at_once):
        part = scores[start : start + at_once]
        won = np.clip(expit(-(A * part + B)), MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
        r = np.zeros((len(part), n_classes, n_classes))
        r[:, first, second], r[:, second, first] = won, 1.0 - won
        system = np.ones((len(part), n_classes + 1, n_classes + 1))
        system[:, -1, -1] = 0.0
        system[:, :-1, :-1] = -r * r.transpose(0, 2, 1)
        diagonal = np.arange(n_classes)
        system[:, diagonal, diagonal] = np.square(r).sum(axis=1)
        right = np.zeros((len(part), n_classes + 1, 1))
        right[:, -1] = 1.0
        p = np.linalg.solve(system, right)[:, :-1, 0]
        # rounding may make tiny probabilities negative
        out[start : start + at_once] = np.log(np.maximum(p, np.square(MIN_PROBABILITY)))
    return out
