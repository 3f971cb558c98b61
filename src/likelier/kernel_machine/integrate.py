"""From Gaussian scores to classes: the integral of their probabilities over the scores of a row."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import expit, ndtri, softmax
from scipy.stats import qmc

from likelier.base import Array
from likelier.kernel_machine.evidence import typical_weight
from likelier.predictive import Bernoulli, Categorical

# Points of the integral over scores, by the largest variance of a row: errors stay below 0.01.
LEVELS = (0.5, 2.0, 16.0)
N_NODES, N_PAIRS = (31, 31, 31, 127), (16, 64, 256, 1024)
NARROWER, LEAST_SPREAD = 0.9, 1e-4  # share of the loss that is left, and of the smallest factor
SPREADS = np.geomspace(1e-2, 1.0, 9)
FLAT = 1e-5  # of its trace: variance that a direction without any gets, beyond single precision
LARGEST_EXPONENT = np.float32(80.0)  # sums of its exponential are still numbers in single


def levels(covariance: Array, spread: float) -> Array:
    """How finely each row is to be integrated: numbers for `class_predictive`."""
    if covariance.ndim == 3:
        covariance = np.diagonal(centred(covariance), axis1=1, axis2=2)
    return np.asarray(np.searchsorted(LEVELS, spread * covariance.max(axis=1)))


def centred(covariance: Array) -> Array:
    """Covariance matrices of scores minus their mean over the classes, which decides nothing."""
    rows = covariance - covariance.mean(axis=2, keepdims=True)
    return np.asarray(rows - rows.mean(axis=1, keepdims=True))


def class_predictive(
    scores: Array, covariance: Array, spread: float, level: int | None = None
) -> tuple[Array, Array]:
    """Class probabilities at nodes of the Gaussian of the scores, and the nodes' weights.

    Returns probabilities of shape ``(n, nodes, K)`` (one score: ``(n, nodes)``, of class 1) and
    weights ``(nodes,)``. One score is integrated by Gauss-Hermite quadrature, several by
    antithetic quasi-random points, the same for all rows: nothing is left to chance. Their
    coordinates belong to the classes by the order of the scores, not of the labels, so other
    names of the classes give the same probabilities. ``level`` says how many points there are,
    by default as many as the widest row needs.
    """
    if spread == 0.0:
        p = expit(scores) if scores.shape[1] == 1 else softmax(scores, axis=1)[:, None]
        return np.asarray(p), np.ones(1)
    if level is None:
        level = int(levels(covariance, spread).max(initial=0))
    away, weights = _around(scores, covariance, level)
    return _probabilities_at(scores, away, spread), weights


def _around(scores: Array, covariance: Array, level: int) -> tuple[Array, Array]:
    """Nodes of the Gaussian of the scores of each row, minus its mean, and their weights."""
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


def _probabilities_at(scores: Array, away: Array, spread: float) -> Array:
    """Class probabilities at nodes, whose distance from the mean is scaled."""
    if scores.shape[1] == 1:
        return np.asarray(expit(scores + np.sqrt(spread) * away))
    at = np.sqrt(spread) * away
    at += scores[:, None]
    at -= at.max(axis=2, keepdims=True)
    np.exp(at, out=at)
    at /= at.sum(axis=2, keepdims=True)
    return np.asarray(at)


@lru_cache(maxsize=4)
def hermite_nodes(n_nodes: int) -> tuple[Array, Array]:
    """Nodes and weights of the Gauss-Hermite rule for a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


@lru_cache(maxsize=32)
def normal_points(n_dims: int, n_pairs: int = N_PAIRS[0]) -> Array:
    """Antithetic quasi-random standard normal points with unit mean square."""
    uniform = qmc.Sobol(n_dims, scramble=True, rng=np.random.default_rng(0)).random(n_pairs)
    half = ndtri(np.clip(uniform, 1e-6, 1.0 - 1e-6))
    half /= np.sqrt((half**2).mean(axis=0))
    return np.concatenate([half, -half])


def to_predictive(parts: list[tuple[Array, Array]]) -> Bernoulli | Categorical:
    """One mixture of several models with equal weights."""
    probs = np.concatenate([p for p, _ in parts], axis=1)
    weights = np.concatenate([w for _, w in parts])
    return (
        Bernoulli(probs, weights=weights)
        if probs.ndim == 2
        else Categorical(probs, weights=weights)
    )


def choose_spread(scores: Array, covariance: Array, codes: Array, weight: Array | None) -> float:
    """The factor of the covariance with the smallest log loss on rows that were held out.

    A larger factor must be worth it: ties go to the smaller one. The grid is `SPREADS`, for rows
    that weigh one; lighter ones have a wider covariance, and know no less about their scores. A
    prior that is far too weak leaves more open than the smallest of them allows for: then it is
    less, where that gains much. Few points are enough to compare factors: their errors are alike.
    """
    omega = np.ones(len(scores)) if weight is None else weight
    spreads = min(typical_weight(weight), 1.0) * SPREADS
    away, weights = _around(scores, covariance, 0)
    behind, away = _behind(scores[:, None], codes), _behind(away, codes)
    if len(behind) > 1:  # a class is not behind itself
        behind[codes.astype(np.intp), np.arange(len(codes))] = -np.inf

    def loss(spread: float) -> float:
        others = np.float32(spread**0.5) * away
        others += behind
        np.minimum(others, LARGEST_EXPONENT, out=others)
        given = 1.0 / (1.0 + np.exp(others, out=others).sum(axis=0))
        return float(omega @ -np.log(np.maximum(given @ weights, 1e-12)))

    losses = [loss(float(spread)) for spread in spreads]
    best = int(np.argmin(losses))
    chosen, least = float(spreads[best]), losses[best]
    while best == 0 and chosen > LEAST_SPREAD * spreads[0]:
        narrower = loss(chosen / 10.0)
        if not narrower < NARROWER * least:
            break
        chosen, least = chosen / 10.0, narrower
    return chosen


def _behind(at: Array, codes: Array) -> Array:
    """How far scores at nodes, ``(n, nodes, K)``, are above that of the class that was given.

    Classes come first, in single precision; of two classes the score ``(n, nodes)`` of the
    second says it for the other one.
    """
    k = codes.astype(np.intp)
    if at.shape[-1] == 1 or at.ndim == 2:
        at = at.reshape(len(at), -1)
        return np.asarray(np.where(k > 0, -1.0, 1.0)[:, None] * at, dtype=np.float32)[None]
    own = np.take_along_axis(at, k[:, None, None], axis=2)
    return np.ascontiguousarray((at - own).transpose(2, 0, 1), dtype=np.float32)
