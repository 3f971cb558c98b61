"""Two streams of different classes: weights for all classes from what each knows about its own.

Let ``A`` be the classes one stream has learned. The likelihood of its rows among all classes is
exactly ``p(k | x) = p(A | x) p(k | x, A)``. The second factor is what that stream has learned from
all its rows: it is known twice over, from the precision of its sites (all rows, but one curvature
for all classes) and from what it says about the rows of its sample (few rows, but every class as
it is). The first factor says how classes compare that never met, and only the sample knows it.

So the weights are the largest posterior of the sample, in which the second factor is a mean of both
approximations and, to the extent that the sample holds the rows, of their labels. It counts no more
than as many rows as the sample has: what is learned from all rows stays as certain, relative to the
sample, as it is to a row, and the prior is as strong as it is for so few rows, without which the
sample would be learned by heart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from likelier.base import Array
from likelier.one_pass.initial_batch import CLOSE

MAX_STEPS = 100
MEMORY = 20  # changes that L-BFGS remembers
ROWS_ENOUGH = 2.0  # per coordinate, from which on the sample is the better half of what is known


@dataclass(frozen=True)
class Learned:
    """One stream: what it knows about its classes, and a sample of its rows."""

    mean: Array  # (n_coordinates, n_own): weights of its own classes, of calibrated scores
    own: Array  # numbers of these classes
    precision: Array  # of its sites
    weight: float  # of all its rows
    n_learned: float  # rows of one weight that say as much as all
    rows: Array  # (n_rows, n_coordinates)
    codes: Array  # class of every row; a few may be of classes that are not its own
    share: Array  # the weight each stands for


@dataclass(frozen=True)
class _Part:
    """A stream in the scale of the sample."""

    rows: Array
    weight: Array
    own: Array
    mean: Array  # differences of the weights of its own classes
    precision: Array
    group: Array  # (n_rows,) how far only the group of its own classes is asked for
    target: Array  # (n_rows, n_classes) and what else is

    def terms(self, w: Array) -> tuple[float, Array]:
        """Negative log likelihood at some weights, and its slope."""
        scores = (self.rows @ w.astype(self.rows.dtype)).astype(np.float64)
        total, p = _normalised(scores)
        inside, q = _normalised(scores[:, self.own])
        loss = total - self.group * inside - (self.target * scores).sum(axis=1)
        residual = p - self.target
        residual[:, self.own] -= self.group[:, None] * q
        residual *= self.weight[:, None]
        slope = (self.rows.T @ residual.astype(self.rows.dtype)).astype(np.float64)
        apart = _centred(w[:, self.own]) - self.mean
        pull = self.precision @ apart
        slope[:, self.own] += pull  # columns of it add up to zero, as those of `apart` do
        return float(self.weight @ loss) + 0.5 * float(np.vdot(apart, pull)), slope


def bridged(streams: Sequence[Learned], n_classes: int, prior: Array) -> Array:
    """Weights (n_coordinates, n_classes) of the classes of several streams.

    Every class is some stream's own. Costs a factorisation of ``n_coordinates^3 / 3`` and at most
    100 steps, each of two products of rows x coordinates x classes.

    Parameters
    ----------
    streams : sequence of Learned
        In the same coordinates.
    n_classes : int
        Number of classes.
    prior : ndarray of shape (n_coordinates,)
        Precisions.
    """
    n_rows = sum(len(each.codes) for each in streams)
    unit = n_rows / sum(each.weight for each in streams)
    said = n_rows / (n_rows + ROWS_ENOUGH * len(prior))
    parts = [_part(each, n_classes, unit, said) for each in streams]
    start = np.zeros((len(prior), n_classes))
    known = np.zeros(n_classes)
    for each in streams:
        start[:, each.own] += each.weight * _centred(each.mean)
        known[each.own] += each.weight
    start /= known
    precision = unit * np.sum([each.precision for each in streams], axis=0)
    return _solved(parts, start, prior, _metric(precision, prior))


def _part(stream: Learned, n_classes: int, unit: float, said: float) -> _Part:
    """A stream whose own factor is asked for in three ways: what it knows, what it says, labels.

    Labels of the sample count to the extent that it holds the rows: all, if it is all of them. So
    they do if all rows weigh so little that the prior has kept the stream from learning much.
    """
    mean, n_rows = _centred(stream.mean), len(stream.codes)
    scores = (stream.rows @ mean.astype(stream.rows.dtype)).astype(np.float64)
    is_own = np.isin(stream.codes, stream.own)
    trust = max(0.0, 1.0 - n_rows / min(stream.weight, stream.n_learned)) * is_own
    target = np.zeros((n_rows, n_classes))
    target[:, stream.own] = _normalised(scores)[1]
    target *= said * trust[:, None]
    target[np.arange(n_rows), stream.codes] += 1.0 - trust
    known = (1.0 - said) * trust
    return _Part(
        stream.rows, unit * stream.share, stream.own, mean,
        float(known.max()) * unit * stream.precision, known, target,
    )  # fmt: skip


def _metric(precision: Array, prior: Array) -> Array:
    """Factor of the curvature of a class, in which steps are of about the right size."""
    curvature = precision + np.diag(prior)
    units = 1.0 / np.sqrt(np.diag(curvature))
    curvature = units[:, None] * curvature * units
    curvature[np.diag_indices_from(curvature)] += len(prior) * float(np.finfo(np.float32).eps)
    return np.asarray(cholesky(curvature, lower=True, check_finite=False) / units[:, None])


def _solved(parts: list[_Part], start: Array, prior: Array, root: Array) -> Array:
    """The largest posterior, by L-BFGS."""

    def weights(point: Array) -> Array:
        step = solve_triangular(root, point.reshape(start.shape), lower=True, trans=1)
        return np.asarray(start + step)

    def energy(point: Array) -> tuple[float, Array]:
        w = weights(point)
        value, slope = 0.5 * float((prior @ w**2).sum()), prior[:, None] * w
        for part in parts:
            loss, pull = part.terms(w)
            value, slope = value + loss, slope + pull
        return value, solve_triangular(root, slope, lower=True).ravel()

    options: Any = {"maxiter": MAX_STEPS, "maxcor": MEMORY, "gtol": CLOSE,
                    "ftol": float(np.finfo(parts[0].rows.dtype).eps)}  # fmt: skip
    found = minimize(energy, np.zeros(start.size), jac=True, method="L-BFGS-B", options=options)
    return weights(found.x)


def _centred(mean: Array) -> Array:
    return np.asarray(mean - mean.mean(axis=1, keepdims=True))


def _normalised(scores: Array) -> tuple[Array, Array]:
    """Logarithms of the sums of the exponentials of rows, and their shares."""
    most = scores.max(axis=1, keepdims=True)
    p = np.exp(scores - most)
    total = p.sum(axis=1, keepdims=True)
    p /= total
    return (most + np.log(total))[:, 0], p
