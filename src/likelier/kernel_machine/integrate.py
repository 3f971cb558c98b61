"""From Gaussian scores to class probabilities, by quadrature."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import expit, ndtri, softmax

from likelier.base import Array
from likelier.predictive import Bernoulli, Categorical

# Number of quadrature points by the largest variance of a row; errors stay below 0.01.
LEVELS = (0.5, 2.0, 16.0)
N_NODES, N_PAIRS = (31, 31, 31, 127), (16, 64, 256, 1024)
MIN_IMPROVEMENT, MIN_SCALE = 0.9, 1e-4  # required loss ratio, and limit relative to the grid
SCALE_GRID = np.geomspace(1e-2, 1.0, 9)
FLAT = 1e-5  # jitter relative to the trace, above single precision rounding
LARGEST_EXPONENT = np.float32(80.0)  # sums of exponentials do not overflow in float32


def levels(covariance: Array, scale: float) -> Array:
    """Quadrature level that each row needs, for `class_predictive`."""
    if covariance.ndim == 3:
        covariance = np.diagonal(centred(covariance), axis1=1, axis2=2)
    return np.asarray(np.searchsorted(LEVELS, scale * covariance.max(axis=1)))


def centred(covariance: Array) -> Array:
    """Covariance of scores minus their mean over classes, which does not affect probabilities."""
    rows = covariance - covariance.mean(axis=2, keepdims=True)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def class_predictive(
    scores: Array, covariance: Array, scale: float, level: int | None = None
) -> tuple[Array, Array]:
    """Class probabilities at quadrature nodes of the Gaussian scores, and the node weights.

    Returns probabilities of shape ``(n, nodes, K)`` (``(n, nodes)`` for the second class if there
    is one score) and weights ``(nodes,)``. One score uses Gauss-Hermite quadrature, several use
    antithetic quasi-random points, which are deterministic and shared by all rows. Their
    coordinates are assigned to classes in the order of the scores, so the result does not depend on
    the order of the labels. ``level`` sets the number of points, by default what the widest row
    needs.
    """
    if scale == 0.0:
        p = expit(scores) if scores.shape[1] == 1 else softmax(scores, axis=1)[:, None]
        return np.asarray(p), np.ones(1)
    if level is None:
        level = int(levels(covariance, scale).max(initial=0))
    deviation, weights = _centred_nodes(scores, covariance, level)
    return _probabilities_at(scores, deviation, scale), weights


def _centred_nodes(scores: Array, covariance: Array, level: int) -> tuple[Array, Array]:
    """Nodes of each row's Gaussian scores relative to the mean, and their weights."""
    n_classes = scores.shape[1]
    if n_classes == 1:
        nodes, weights = hermite_nodes(N_NODES[level])
        return np.asarray(np.sqrt(covariance) * nodes), weights
    nodes = normal_points(n_classes, N_PAIRS[level])
    weights = np.full(len(nodes), 1 / len(nodes))
    order = np.argsort(-scores, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    if covariance.ndim == 2:
        return np.sqrt(covariance)[:, None] * nodes[:, rank].transpose(1, 0, 2), weights
    rows = np.arange(len(scores))[:, None, None]
    sorted_ = centred(covariance)[rows, order[:, :, None], order[:, None]]
    flat = 1e-10 + FLAT * sorted_.trace(axis1=1, axis2=2)
    sorted_[:, range(n_classes), range(n_classes)] += flat[:, None]
    by_class = np.take_along_axis(np.linalg.cholesky(sorted_), rank[:, :, None], axis=1)
    return np.matmul(nodes, by_class.transpose(0, 2, 1)), weights


def _probabilities_at(scores: Array, deviation: Array, scale: float) -> Array:
    """Class probabilities at the nodes, whose deviation from the mean is scaled."""
    if scores.shape[1] == 1:
        return np.asarray(expit(scores + np.sqrt(scale) * deviation))
    nodes = np.sqrt(scale) * deviation
    nodes += scores[:, None]
    nodes -= nodes.max(axis=2, keepdims=True)
    np.exp(nodes, out=nodes)
    nodes /= nodes.sum(axis=2, keepdims=True)
    return np.asarray(nodes)


@lru_cache(maxsize=4)
def hermite_nodes(n_nodes: int) -> tuple[Array, Array]:
    """Gauss-Hermite nodes and weights for a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=32)
def normal_points(n_dims: int, n_pairs: int = N_PAIRS[0]) -> Array:
    """Antithetic quasi-random standard normal points with unit mean square."""
    from scipy.stats import qmc  # takes as long to load as all other modules; two classes need none

    uniform = qmc.Sobol(n_dims, scramble=True, rng=np.random.default_rng(0)).random(n_pairs)
    half = ndtri(np.clip(uniform, 1e-6, 1.0 - 1e-6))
    half /= np.sqrt((half**2).mean(axis=0))
    return np.concatenate([half, -half])


def to_predictive(probs: Array, weights: Array) -> Bernoulli | Categorical:
    """Mixture of what is predicted at the nodes."""
    if probs.ndim == 2:
        return Bernoulli(probs, weights=weights)
    return Categorical(probs, weights=weights)


def choose_posterior_scale(
    scores: Array, covariance: Array, codes: Array, weight: Array | None
) -> float:
    """Covariance factor with the smallest log loss on held-out rows.

    The grid is `SCALE_GRID`, for rows of weight one; ties go to the smaller factor. Rows of smaller
    weight widen the covariance without making its scores less certain, so the grid shrinks with the
    typical weight. With a far too weak prior even the smallest factor is too large; the grid is
    then extended downwards while the gain is large. A coarse quadrature suffices to compare
    factors, since their errors are similar.
    """
    omega = np.ones(len(scores)) if weight is None else weight
    from likelier.kernel_machine.evidence import typical_weight  # which predicting does not need

    scales = min(typical_weight(weight), 1.0) * SCALE_GRID
    deviation, weights = _centred_nodes(scores, covariance, 0)
    margins, deviation = _margins(scores[:, None], codes), _margins(deviation, codes)
    if len(margins) > 1:  # no margin over itself
        margins[codes.astype(np.intp), np.arange(len(codes))] = -np.inf

    def loss(scale: float) -> float:
        others = np.float32(scale**0.5) * deviation
        others += margins
        np.minimum(others, LARGEST_EXPONENT, out=others)
        given = 1.0 / (1.0 + np.exp(others, out=others).sum(axis=0))
        return float(omega @ -np.log(np.maximum(given @ weights, 1e-12)))

    losses = [loss(float(scale)) for scale in scales]
    best = int(np.argmin(losses))
    chosen, least = float(scales[best]), losses[best]
    while best == 0 and chosen > MIN_SCALE * scales[0]:
        smaller = loss(chosen / 10.0)
        if not smaller < MIN_IMPROVEMENT * least:
            break
        chosen, least = chosen / 10.0, smaller
    return chosen


def _margins(nodes: Array, codes: Array) -> Array:
    """Score margins of all classes over the true class at the nodes ``(n, nodes, K)``.

    Classes come first, in single precision. For two classes the score ``(n, nodes)`` of the second
    class gives the margin of the wrong class.
    """
    k = codes.astype(np.intp)
    if nodes.shape[-1] == 1 or nodes.ndim == 2:
        nodes = nodes.reshape(len(nodes), -1)
        return np.asarray(np.where(k > 0, -1.0, 1.0)[:, None] * nodes, dtype=np.float32)[None]
    own = np.take_along_axis(nodes, k[:, None, None], axis=2)
    return np.ascontiguousarray((nodes - own).transpose(2, 0, 1), dtype=np.float32)
