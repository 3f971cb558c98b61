"""Streaming variational inference with Polya-Gamma means: one visit per row, in small blocks.

The softmax likelihood of class ``k`` given the others is logistic in
``psi_k = eta_k - log sum_{j != k} exp eta_j``, so with ``omega`` at the Polya-Gamma mean
``tanh(psi/2) / (2 psi) = (p - 1/2) / psi`` every row adds a Gaussian site to the natural
parameters: ``omega x x^T`` to ``P`` and ``(omega eta_k + 1[y = k] - p_k) x`` to ``Q_k``. The
weights are ``w_k = (P + Sigma0^-1)^-1 Q_k`` with one ``P`` for all classes, in which ``omega`` is
the mean over them. ``P`` keeps the ``omega`` of the time a row was seen, when the model was less
certain than it is now; over-relaxed steps (which a bound optimiser allows up to a factor of 2)
compensate for that. The first block is fitted to convergence before it is turned into sites.

Over-relaxation is justified only if blocks have the same label distribution. To the extent that
the labels of a block are shifted from those before (sorted data, label drift), its sites are
frozen: ``omega = 1/4`` at ``eta = 0``, additive in any order.

There is one output more than classes, the background output, for which every row is a negative: a
class that appears late starts as its copy. All classes share one precision, to which rows seen
before a class existed contribute without carrying information about it. Where such rows, or rows
under label shift, are many, a small sample of the rows so far tells how scores of classes compare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp

from likelier.base import Array, Matrix
from likelier.one_pass.initial_batch import fit_softmax
from likelier.one_pass.model import (
    Weights,
    column_scales,
    dense_rows,
    nonzero_variance,
    prior_diagonal,
    solve_posterior,
)
from likelier.one_pass.reservoir import Reservoir, scored_rows
from likelier.one_pass.score_mixing import apply_mixing, find_mixing
from likelier.one_pass.sites import sites, softmax

RELAXATION = 2.0  # of the bound optimiser's steps, which decrease the energy up to 2
BACKGROUND_SWEEPS = 8  # bring the background output to a probability of about 0.01
MIN_BLOCK, MAX_BLOCK = 512, 2048
ROWS_PER_BLOCK_ROW = 64  # earlier rows needed for every row of a larger block
VARIANCE_GROWTH = 2.0  # of a column; from there on weights are solved again with the new prior
SHIFT_SENSITIVITY = 2.0  # how fast label shift ends the relaxation
MAX_SHIFTED = 0.05  # fraction of rows under label shift, above which scores are mixed
CALIBRATION_MEMORY = 0.98  # decay per block of the information on the score scale
CALIBRATION_START = 10.0  # prior information on the score scale, centred at one
ADDITIVE = ("precision", "linear", "class_weight", "sums", "squares", "shifted_weight")


@dataclass(frozen=True)
class StreamState:
    """Natural parameters of the sites so far, without the prior, and running statistics."""

    centre: Array  # (d,) of the coordinates, from the first block
    scale: Array
    precision: Array  # P
    linear: Array  # Q, one column per class and the background output
    mean: Array  # w, same shape as Q
    classes: Array  # sorted labels
    class_weight: Array
    sums: Array  # of the coordinates and of their squares; they scale the prior
    squares: Array
    calibration: Array  # log of the scale of the scores, and its information
    reservoir_arrays: dict[str, Any]  # a sample of the rows, see `Reservoir`
    shifted_weight: float = 0.0  # weight of rows under label shift, or before the latest class
    weight_squares: float = 0.0

    @property
    def reservoir(self) -> Reservoir:
        """A sample of the rows of every class."""
        return Reservoir.from_arrays(self.reservoir_arrays)

    def with_reservoir(self, reservoir: Reservoir) -> StreamState:
        """The same state with another reservoir."""
        return replace(self, reservoir_arrays=reservoir.to_arrays())

    @property
    def fit_intercept(self) -> bool:
        """Whether the last coordinate is constant."""
        return len(self.linear) > len(self.scale)

    @property
    def weight(self) -> float:
        """Total weight of all rows."""
        return float(self.class_weight.sum())

    @property
    def n_rows(self) -> float:
        """Effective number of rows (Kish), independent of the unit of the weights."""
        return self.weight**2 / self.weight_squares if self.weight_squares else 0.0

    @property
    def known(self) -> Array:
        """Indices of the classes that have rows."""
        return np.flatnonzero(self.class_weight > 0.0)

    @property
    def needs_mixing(self) -> bool:
        """Whether scores of the classes have to be made comparable."""
        return len(self.known) > 1 and self.shifted_weight > MAX_SHIFTED * self.weight

    def to_arrays(self) -> dict[str, Any]:
        """As plain arrays, for saving."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def discounted(self, factor: float) -> StreamState:
        """The same rows, each with its weight times ``factor``."""
        state = replace(self, **{name: getattr(self, name) * factor for name in ADDITIVE},
                        weight_squares=self.weight_squares * factor**2)  # fmt: skip
        return state.with_reservoir(self.reservoir.discounted(factor))


Mixing = Callable[[StreamState, Weights], Array]


def block_size(n_features: int, n_seen: int = 0) -> int:
    """Rows of a block: enough for its factorisation to cost no more than its sums.

    After many rows a block may be larger, since one block then changes the weights little.
    """
    small = max(MIN_BLOCK, 1 << max(0, (n_features - 1) // 2).bit_length())
    large = 1 << max(1, n_seen // ROWS_PER_BLOCK_ROW).bit_length() - 1
    return max(small, min(MAX_BLOCK, large))


def init_stream(X: Matrix, weight: Array, classes: Array, fit_intercept: bool) -> StreamState:
    """State before the first row; the coordinates are standardised by the first block."""
    rows = dense_rows(X).astype(np.float64, copy=False)
    d, total = rows.shape[1], weight.sum()
    centre = weight @ rows / total if fit_intercept else np.zeros(d)
    variance = weight @ (rows - centre) ** 2 / total
    scale = column_scales(variance, weight @ rows**2 / total)
    p = d + int(fit_intercept)
    return StreamState(
        centre, scale, np.zeros((p, p)), np.zeros((p, 1)), np.zeros((p, 1)), classes[:0],
        np.zeros(0), np.zeros(d), np.zeros(d), np.array([0.0, CALIBRATION_START]),
        Reservoir.empty(d).to_arrays(),
    )  # fmt: skip


def coordinates(X: Matrix, centre: Array, scale: Array, fit_intercept: bool) -> Array:
    """``((x - centre) / scale, 1)`` of dense or sparse rows, in the precision of the rows."""
    rows = dense_rows(X)
    Z = np.empty((len(rows), len(scale) + int(fit_intercept)), dtype=rows.dtype)
    inner = Z[:, : len(scale)]
    np.subtract(rows, centre, out=inner, casting="same_kind")
    inner /= scale.astype(rows.dtype)
    if fit_intercept:
        Z[:, -1] = 1.0
    return Z


def add_classes(state: StreamState, labels: Array) -> StreamState:
    """Add new classes, each initialised as a copy of the background output."""
    classes = np.union1d(state.classes, labels) if len(state.classes) else np.unique(labels)
    if len(classes) == len(state.classes):
        return state
    outputs = np.full(len(classes) + 1, len(state.classes))  # the background output is the last
    positions = np.searchsorted(classes, state.classes)
    outputs[positions] = np.arange(len(state.classes))
    weight = np.zeros(len(classes))
    weight[positions] = state.class_weight
    extended = replace(
        state, classes=classes, class_weight=weight,
        linear=state.linear[:, outputs], mean=state.mean[:, outputs],
    )  # fmt: skip
    return extended.with_reservoir(state.reservoir.relabel(positions))


def learn_block(
    state: StreamState, X: Matrix, y: Array, weight: Array, prior: float | None
) -> StreamState:
    """Add the sites of a block; cost rows x features^2 and one factorisation, features^3 / 3.

    Sites of the first block are expanded about the converged fit to that block.
    """
    first = state.weight == 0.0
    similarity = _label_similarity(state, y, weight)
    state = add_classes(state, y)
    Z = coordinates(X, state.centre, state.scale, state.fit_intercept)
    row_weight = weight.astype(Z.dtype)
    codes = np.searchsorted(state.classes, y)
    d = len(state.scale)
    shifted = state.shifted_weight
    if not state.class_weight[codes].all():  # rows so far came without one of these classes
        shifted = state.weight
    updated = replace(
        state,
        class_weight=state.class_weight
        + np.bincount(codes, weights=weight, minlength=len(state.classes)),
        sums=state.sums + row_weight @ Z[:, :d],
        squares=state.squares + row_weight @ (Z[:, :d] ** 2),
        shifted_weight=shifted + (1.0 - similarity) * float(weight.sum()),
        weight_squares=state.weight_squares + float(weight @ weight),
    )
    if first and similarity:
        diagonal = stream_prior(updated, prior)
        w = fit_softmax(Z, codes, weight, diagonal, len(updated.classes))
        updated = replace(updated, mean=append_background(w, Z, codes, row_weight, diagonal))
    elif _prior_changed(state, updated):
        updated = update_mean(updated, prior)
    scores = Z @ updated.mean.astype(Z.dtype)
    if not first:
        calibration = _calibrate(updated, scores, codes, weight, similarity)
        updated = replace(updated, calibration=calibration)
    reservoir = state.reservoir.add_rows(Z[:, :d], codes, weight)
    return update_mean(
        add_sites(updated, Z, codes, row_weight, scores, similarity).with_reservoir(reservoir),
        prior,
    )


def add_sites(
    state: StreamState, Z: Array, codes: Array, weight: Array, scores: Array, similarity: float
) -> StreamState:
    """State with the sites of rows of these scores added; the weights are not updated."""
    curvature, linear = sites(scores, codes, similarity, RELAXATION)
    rooted = Z * np.sqrt(weight * curvature)[:, None]
    P = state.precision + rooted.T @ rooted
    Q = state.linear + Z.T @ (weight[:, None] * linear)
    return replace(state, precision=P, linear=Q)


def append_background(w: Array, Z: Array, codes: Array, weight: Array, prior: Array) -> Array:
    """Append the weights of the background output, after a few sweeps from zero.

    At its own optimum that output would lie so far below the others that a late class, which starts
    there with the precision all outputs share, could hardly rise.
    """
    scores = Z @ w.astype(Z.dtype)
    background = np.zeros(len(w))
    curvature = sites(np.pad(scores, ((0, 0), (0, 1))), codes, 1.0, 1.0)[0]
    rooted = Z * np.sqrt(weight * curvature)[:, None]
    P = (rooted.T @ rooted).astype(np.float64)
    log_total = logsumexp(scores, axis=1)
    for _ in range(BACKGROUND_SWEEPS):
        p = expit(Z @ background.astype(Z.dtype) - log_total)
        gradient = -(Z.T @ (weight * p)) - prior * background
        background = background + solve_posterior(P, gradient[:, None], prior)[0][:, 0]
    return np.column_stack([w, background])


def _prior_changed(before: StreamState, after: StreamState) -> bool:
    """Whether the variance of some feature, and with it the prior precision, has grown a lot.

    Weights learned while a feature hardly varied are too large for the rows that follow.
    """
    if before.weight == 0.0:
        return False
    old, new = stream_prior(before, 1.0), stream_prior(after, 1.0)
    return bool((new > VARIANCE_GROWTH * old).any())


def stream_prior(state: StreamState, prior: float | None) -> Array:
    """Prior precisions in the coordinates of the state, from the variances of all rows so far."""
    W = max(state.weight, 1e-300)
    square = state.squares / W
    variance = square - (state.sums / W) ** 2 if state.fit_intercept else square
    return prior_diagonal(nonzero_variance(variance, square), prior, state.fit_intercept)


def stream_weights(
    state: StreamState, prior: float | None, mixing: Mixing | None = None
) -> Weights:
    """Posterior of the classes seen or announced.

    Where scores have to be made comparable, ``mixing`` says how; the default is `stream_mixing`.
    """
    outputs = stream_outputs(state, prior)
    if not state.needs_mixing:
        return outputs
    matrix = (mixing or stream_mixing)(state, outputs)
    rows, factor = max(state.weight, state.n_rows), float(np.exp(state.calibration[0]))
    return replace(outputs, mean=apply_mixing(matrix, outputs.mean, state.known, rows, factor))


def stream_outputs(state: StreamState, prior: float | None) -> Weights:
    """Posterior before scores of classes that were not seen together are made comparable."""
    diagonal = stream_prior(state, prior)
    mean, root, scaling = solve_posterior(state.precision, state.linear, diagonal)
    return Weights(mean[:, :-1], root, scaling, state.centre, state.scale, state.fit_intercept)


def stream_mixing(state: StreamState, outputs: Weights) -> Array:
    """Mixing of the scores of the known classes, see `find_mixing`; this is the expensive part."""
    factor = float(np.exp(state.calibration[0]))
    return find_mixing(outputs.mean, state.known, stream_sample(state), factor, state.fit_intercept)


def stream_sample(state: StreamState) -> tuple[Array, Array, Array]:
    """Coordinates, classes and importance weights of part of the reservoir."""
    each = max(1, scored_rows(len(state.scale)) // len(state.classes))
    sample = state.reservoir.sample.truncate(each)
    return (
        with_intercept(sample.rows, state),
        sample.codes,
        sample.importance_weights(state.class_weight),
    )


def with_intercept(rows: Array, state: StreamState, dtype: Any = np.float64) -> Array:
    """Coordinates, followed by a column of ones if there is an intercept."""
    Z = np.ones((len(rows), len(state.linear)), dtype)
    Z[:, : rows.shape[1]] = rows
    return Z


def update_mean(state: StreamState, prior: float | None) -> StreamState:
    """The same sites, with the weights solved for again."""
    mean = solve_posterior(state.precision, state.linear, stream_prior(state, prior))[0]
    return replace(state, mean=mean)


def _label_similarity(state: StreamState, y: Array, weight: Array) -> float:
    """Similarity of the label distribution of a block to that before it, from 0 to 1.

    One minus the total variation distance in excess of the sampling error of a block of this size.
    """
    labels, codes = _label_codes(state.classes, y)
    if state.weight == 0.0:
        return float(len(labels) > 1)
    classes = np.union1d(labels, state.classes)
    if len(classes) < 2:
        return 0.0
    before, now = np.zeros(len(classes)), np.zeros(len(classes))
    before[np.searchsorted(classes, state.classes)] = state.class_weight / state.weight
    now[np.searchsorted(classes, labels)] = (
        np.bincount(codes, weights=weight, minlength=len(labels)) / weight.sum()
    )
    each = weight / weight.max()  # squares of tiny weights would underflow
    return distribution_similarity(before, now, each.sum() ** 2 / (each**2).sum())


def distribution_similarity(before: Array, now: Array, n_rows: float) -> float:
    """Similarity of two distributions, the second of which is estimated from ``n_rows`` rows."""
    if not n_rows:  # no evidence of a difference
        return 1.0
    middle = 0.5 * (before + now)
    sampling_error = np.sqrt(middle * (1.0 - middle) / (0.5 * np.pi * n_rows)).sum()
    distance = 0.5 * np.abs(now - before).sum() - sampling_error
    return float(np.clip(1.0 - SHIFT_SENSITIVITY * distance, 0.0, 1.0))


def _label_codes(classes: Array, y: Array) -> tuple[Array, Array]:
    """Sorted labels and the code of every row; the known classes, if no other label occurs."""
    if len(classes):
        codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        if (classes[codes] == y).all():
            return classes, codes
    return np.unique(y, return_inverse=True)


def _calibrate(
    state: StreamState, scores: Array, codes: Array, weight: Array, similarity: float
) -> Array:
    """One Newton step of the score scale, on rows that have not been learned yet."""
    log_scale, information = state.calibration
    if similarity < 0.5 or len(state.classes) < 2:  # the loss is high because labels are shifted
        return state.calibration
    own = scores[:, :-1]
    factor = float(np.exp(log_scale))
    p = softmax(factor * own)
    expected = (p * own).sum(axis=1)
    gradient = factor * float(weight @ (own[np.arange(len(codes)), codes] - expected))
    variance = (p * own**2).sum(axis=1) - expected**2
    information = CALIBRATION_MEMORY * information + factor**2 * float(weight @ variance)
    return np.array([log_scale + np.clip(gradient / information, -0.2, 0.2), information])
