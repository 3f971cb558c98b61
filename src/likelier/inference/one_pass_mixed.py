"""Classes that were not seen together: their scores, made comparable with a sample of all rows.

Sites of rows that came in the order of their classes, or to models that knew other classes, give
every class weights that separate it from those it was seen with. What is missing is how scores of
classes compare that never met. That is little: a matrix that mixes the scores and a level for each,
found as the largest posterior over the sample of rows of all classes. It is used if it predicts
rows of the sample that it was not learned from no worse than the scores as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from likelier.base import Array
from likelier.inference.one_pass_opening import softmax_terms

Rows = tuple[Array, Array, Array]

MAX_STEPS = 100
MEMORY = 20  # changes that L-BFGS remembers
MIX_PRECISION = 3.0  # of the prior of what an ordinary score of one class adds to another's
LEVEL_PRECISION = 0.01
FOLDS = 5  # of the sample, by which it is judged
MAX_MIXED = 64  # classes: beyond them only a common scale and the levels are found


def mixed(mean: Array, known: Array, rows: Rows, factor: float, has_level: bool) -> Array:
    """Weights (coordinates x classes) whose scores compare, or ``mean`` if those do already.

    Costs a product of rows x coordinates x classes, and three times as many steps of rows x
    classes^2 as the matrix needs.

    Parameters
    ----------
    mean : ndarray of shape (n_coordinates, n_classes)
        Weights.
    known : ndarray
        Numbers of the classes that have rows, two or more; the others are put below them.
    rows : ndarray of shape (n_rows, n_coordinates), (n_rows,) and (n_rows,)
        Coordinates of the sample, class of every row, and the weight it stands for.
    factor : float
        Scale of the scores.
    has_level : bool
        Whether the last coordinate is constant.
    """
    Z, codes, weight = rows
    own = mean[:, known] - mean[:, known].mean(axis=1, keepdims=True)
    scores = factor * (Z @ own)
    lane = np.searchsorted(known, codes)
    share = weight * (len(weight) / weight.sum())  # as much information as there are rows
    if not _predicts(scores, lane, share, has_level):
        return mean
    matrix, level = mixture(scores, lane, share, has_level)
    out = np.empty_like(mean)
    found = own @ matrix
    found[-1] += level / factor
    out[:, known] = found
    absent = np.setdiff1d(np.arange(mean.shape[1]), known)
    out[:, absent] = found.mean(axis=1, keepdims=True)  # never above the largest
    if has_level:
        out[-1, absent] -= np.log(2.0 * weight.sum()) / factor
    return out


def mixture(scores: Array, codes: Array, weight: Array, has_level: bool) -> tuple[Array, Array]:
    """Matrix and levels of the largest posterior; the scores in proportion are its prior mean."""
    K = scores.shape[1]
    spread = np.sqrt(weight @ scores**2 / weight.sum())
    spread[spread == 0.0] = 1.0
    inputs = scores / spread if K <= MAX_MIXED else scores[:, :0]
    n_inputs = inputs.shape[1]

    def energy(point: Array) -> tuple[float, Array]:
        scale, level, change = point[0], point[1 : K + 1], point[K + 1 :].reshape(n_inputs, K)
        lanes = scale * scores + inputs @ change + has_level * level
        loss, residual = softmax_terms(np.ascontiguousarray(lanes.T), codes)
        pull = (weight * residual).T
        value = float(weight @ loss) + 0.5 * MIX_PRECISION * float((change**2).sum())
        value += 0.5 * LEVEL_PRECISION * float(level @ level)
        slope_change = inputs.T @ pull + MIX_PRECISION * change
        slope_level = has_level * pull.sum(axis=0) + LEVEL_PRECISION * level
        scale_slope = float((pull * scores).sum())
        return value, np.concatenate([[scale_slope], slope_level, slope_change.ravel()])

    start = np.append(1.0, np.zeros(K + n_inputs * K))
    bounds = [(0.0, None)] + [(None, None)] * (len(start) - 1)
    options: Any = {"maxiter": MAX_STEPS, "maxcor": MEMORY}
    best = minimize(energy, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    matrix = best[0] * np.eye(K)
    if n_inputs:
        matrix += best[K + 1 :].reshape(K, K) / spread[:, None]
    return matrix, best[1 : K + 1] * has_level


def _predicts(scores: Array, codes: Array, weight: Array, has_level: bool) -> bool:
    """Whether mixed scores of rows left out have a lower loss, and no more errors, than these."""
    fold = np.arange(len(codes)) % FOLDS  # rows are sorted by class: a part of each
    new = np.zeros(2)
    for out in range(FOLDS):
        held, left = fold != out, fold == out
        matrix, level = mixture(scores[held], codes[held], weight[held], has_level)
        new += _judged(scores[left] @ matrix + level, codes[left], weight[left])
    old = _judged(scores, codes, weight)
    return bool(new[0] < old[0] and new[1] <= old[1])


def _judged(scores: Array, codes: Array, weight: Array) -> Array:
    """Weighted loss and number of errors."""
    wrong = scores.argmax(axis=1) != codes
    loss, _ = softmax_terms(np.ascontiguousarray(scores.T), codes)
    return np.array([weight @ loss, weight @ wrong])
