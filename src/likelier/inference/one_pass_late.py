"""Classes that appear after the opening: how far their weights go, from few rows.

All classes share one precision, to which every row so far contributes, also those that say
nothing about a class because they came before it. Rows of a late class hence turn its weights the
right way (the direction of Fisher's discriminant), yet hardly move them. How far to go, and at
what level, is two numbers per late class: the largest posterior over a sample of rows of all
classes, each standing for its share, with the weights of the other classes held.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from likelier.base import Array
from likelier.inference.one_pass_opening import softmax_terms

MAX_STEPS = 50


def raised(
    mean: Array, late: Array, rows: tuple[Array, Array, Array], prior: Array, factor: float,
    has_level: bool,
) -> Array:  # fmt: skip
    """Weights of all classes, the late ones as far from the spare lane as the rows support.

    Costs a product of rows x coordinates x classes, and as many steps of rows x late classes as
    two numbers for each of them need.

    Parameters
    ----------
    mean : ndarray of shape (n_coordinates, n_classes + 1)
        Weights, those of the spare lane last.
    late : ndarray
        Numbers of the late classes.
    rows : ndarray of shape (n_rows, n_coordinates), (n_rows,) and (n_rows,)
        Coordinates of the sample, class of every row, and the weight it stands for.
    prior : ndarray of shape (n_coordinates,)
        Precisions.
    factor : float
        Scale of the scores.
    has_level : bool
        Whether the last coordinate is constant.
    """
    Z, codes, weight = rows
    spare = mean[:, -1]
    away = mean[:, late] - spare[:, None]
    base = Z @ spare
    reach = Z @ away
    level = float(has_level)
    # classes that are held count as one, the first of the lanes
    held = np.delete(mean[:, :-1], late, axis=1)
    others = logsumexp(factor * (Z @ held), axis=1)
    lane = np.zeros(mean.shape[1] - 1, dtype=np.intp)
    lane[late] = np.arange(1, len(late) + 1)
    own = lane[codes]

    def lanes(point: Array) -> Array:
        far, up = point.reshape(2, -1)
        found = spare[:, None] + far * away
        found[-1] += level * up
        return np.asarray(found)

    def energy(point: Array) -> tuple[float, Array]:
        far, up = point.reshape(2, -1)
        scores = (base[:, None] + far * reach + level * up).T
        loss, residual = softmax_terms(np.vstack([others, factor * scores]), own)
        w = lanes(point)
        value = float(weight @ loss) + 0.5 * float((prior @ w**2).sum())
        pull = factor * weight * residual[1:]
        slope_far = (pull.T * reach).sum(axis=0) + (prior[:, None] * w * away).sum(axis=0)
        slope_up = level * (pull.sum(axis=1) + prior[-1] * w[-1])
        return value, np.concatenate([slope_far, slope_up])

    start = np.concatenate([np.ones(len(late)), np.zeros(len(late))])
    bounds = [(0.0, None)] * len(late) + [(None, None)] * len(late)
    options: Any = {"maxiter": MAX_STEPS}
    best = minimize(energy, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    out = mean[:, :-1].copy()
    out[:, late] = lanes(best.x)
    return out
