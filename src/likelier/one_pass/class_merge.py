"""Weights for the union of the classes of several streams.

Let ``A`` be the classes of one stream. The likelihood of its rows among all classes factorises
exactly: ``p(k | x) = p(A | x) p(k | x, A)``. The second factor is what the stream has learned from
all its rows. It is approximated in two ways: by the precision of its sites (all rows, but one
curvature for all classes) and by its predictions on the rows of its sample (few rows, but a
curvature for every class). The first factor compares classes that were never seen together; only
the sample has information about it.

The weights maximise the posterior of the sample. There the second factor is a weighted mean of the
two approximations and, depending on the fraction of the rows that the sample holds, of the labels.
It counts as many rows as the sample has, so the relative precision of the stream's own classes is
that of a single row, and the prior is as strong as for so few rows, which prevents overfitting the
sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from likelier.base import Array
from likelier.one_pass.initial_batch import GRADIENT_TOL

MAX_STEPS = 100
LBFGS_MEMORY = 20
ROWS_PER_COORDINATE = 2.0  # at which sample predictions and site precision have equal weight


@dataclass(frozen=True)
class StreamSummary:
    """Weights and precision of one stream for its own classes, and a sample of its rows."""

    mean: Array  # (n_coordinates, n_own): weights of its own classes, of calibrated scores
    own: Array  # indices of these classes
    precision: Array  # sum over its sites
    weight: float  # of all its rows
    n_learned: float  # effective number of rows
    rows: Array  # (n_rows, n_coordinates)
    codes: Array  # class of every row; may include a few rows of other classes
    importance: Array  # (n_rows,) importance weights


@dataclass(frozen=True)
class _StreamTerm:
    """Contribution of one stream to the energy, scaled to the number of rows of the sample."""

    rows: Array
    weight: Array
    own: Array
    mean: Array  # centred weights of its own classes
    precision: Array
    group: Array  # (n_rows,) weight of the loss of the group of own classes, log p(A | x)
    target: Array  # (n_rows, n_classes) target probabilities of the rest of the loss

    def terms(self, w: Array) -> tuple[float, Array]:
        """Negative log likelihood at the given weights, and its gradient."""
        scores = (self.rows @ w.astype(self.rows.dtype)).astype(np.float64)
        total, p = _log_softmax_terms(scores)
        inside, q = _log_softmax_terms(scores[:, self.own])
        loss = total - self.group * inside - (self.target * scores).sum(axis=1)
        residual = p - self.target
        residual[:, self.own] -= self.group[:, None] * q
        residual *= self.weight[:, None]
        gradient = (self.rows.T @ residual.astype(self.rows.dtype)).astype(np.float64)
        difference = _centred(w[:, self.own]) - self.mean
        site_gradient = self.precision @ difference
        gradient[:, self.own] += site_gradient  # centred, like `difference`
        return float(self.weight @ loss) + 0.5 * float(np.vdot(difference, site_gradient)), gradient


def merge_class_weights(streams: Sequence[StreamSummary], n_classes: int, prior: Array) -> Array:
    """Weights (n_coordinates, n_classes) of the union of the classes of several streams.

    Every class must be an own class of some stream. Costs a factorisation of
    ``n_coordinates^3 / 3`` and at most 100 steps, each of two products of
    rows x coordinates x classes.

    Parameters
    ----------
    streams : sequence of StreamSummary
        In the same coordinates.
    n_classes : int
        Number of classes.
    prior : ndarray of shape (n_coordinates,)
        Prior precisions.
    """
    n_rows = sum(len(each.codes) for each in streams)
    unit = n_rows / sum(each.weight for each in streams)
    sample_fraction = n_rows / (n_rows + ROWS_PER_COORDINATE * len(prior))
    terms = [_stream_term(each, n_classes, unit, sample_fraction) for each in streams]
    start = np.zeros((len(prior), n_classes))
    total = np.zeros(n_classes)
    for each in streams:
        start[:, each.own] += each.weight * _centred(each.mean)
        total[each.own] += each.weight
    start /= total
    precision = unit * np.sum([each.precision for each in streams], axis=0)
    return _maximise_posterior(terms, start, prior, _metric(precision, prior))


def _stream_term(
    stream: StreamSummary, n_classes: int, unit: float, sample_fraction: float
) -> _StreamTerm:
    """Energy of a stream: site precision, predictions on the sample, and labels of the sample.

    Labels have weight 1 minus the ratio of sample rows to effective rows, as far as the sample
    holds all rows. The same applies if the total weight is so small that the prior has kept the
    stream from learning much.
    """
    mean, n_rows = _centred(stream.mean), len(stream.codes)
    scores = (stream.rows @ mean.astype(stream.rows.dtype)).astype(np.float64)
    is_own = np.isin(stream.codes, stream.own)
    trust = max(0.0, 1.0 - n_rows / min(stream.weight, stream.n_learned)) * is_own
    target = np.zeros((n_rows, n_classes))
    target[:, stream.own] = _log_softmax_terms(scores)[1]
    target *= sample_fraction * trust[:, None]
    target[np.arange(n_rows), stream.codes] += 1.0 - trust
    site_weight = (1.0 - sample_fraction) * trust
    return _StreamTerm(
        stream.rows, unit * stream.importance, stream.own, mean,
        float(site_weight.max()) * unit * stream.precision, site_weight, target,
    )  # fmt: skip


def _metric(precision: Array, prior: Array) -> Array:
    """Cholesky factor of the approximate curvature of one class, used as preconditioner."""
    curvature = precision + np.diag(prior)
    scale = 1.0 / np.sqrt(np.diag(curvature))
    curvature = scale[:, None] * curvature * scale
    curvature[np.diag_indices_from(curvature)] += len(prior) * float(np.finfo(np.float32).eps)
    return np.asarray(cholesky(curvature, lower=True, check_finite=False) / scale[:, None])


def _maximise_posterior(terms: list[_StreamTerm], start: Array, prior: Array, root: Array) -> Array:
    """Maximum of the posterior by L-BFGS."""

    def weights(point: Array) -> Array:
        step = solve_triangular(root, point.reshape(start.shape), lower=True, trans=1)
        return np.asarray(start + step)

    def energy(point: Array) -> tuple[float, Array]:
        w = weights(point)
        value, gradient = 0.5 * float((prior @ w**2).sum()), prior[:, None] * w
        for term in terms:
            loss, loss_gradient = term.terms(w)
            value, gradient = value + loss, gradient + loss_gradient
        return value, solve_triangular(root, gradient, lower=True).ravel()

    options: Any = {"maxiter": MAX_STEPS, "maxcor": LBFGS_MEMORY, "gtol": GRADIENT_TOL,
                    "ftol": float(np.finfo(terms[0].rows.dtype).eps)}  # fmt: skip
    result = minimize(energy, np.zeros(start.size), jac=True, method="L-BFGS-B", options=options)
    return weights(result.x)


def _centred(mean: Array) -> Array:
    return np.asarray(mean - mean.mean(axis=1, keepdims=True))


def _log_softmax_terms(scores: Array) -> tuple[Array, Array]:
    """Log-sum-exp of every row, and the softmax probabilities."""
    most = scores.max(axis=1, keepdims=True)
    p = np.exp(scores - most)
    total = p.sum(axis=1, keepdims=True)
    p /= total
    return (most + np.log(total))[:, 0], p
