"""A streaming variational update of Polya-Gamma means: one visit per row, in small blocks.

The softmax likelihood of class ``k`` given the others is logistic in
``psi_k = eta_k - log sum_{j != k} exp eta_j``, so with ``omega`` at the Polya-Gamma mean
``tanh(psi/2) / (2 psi) = (p - 1/2) / psi`` every row adds a Gaussian site to the natural
parameters: ``omega x x^T`` to ``P`` and ``(omega eta_k + 1[y = k] - p_k) x`` to ``Q_k``. The
weights are ``w_k = (P + Sigma0^-1)^-1 Q_k`` with one ``P`` for all classes, in which ``omega`` is
the mean over them. ``P`` keeps the ``omega`` of the time a row was seen, when the model was less
sure than it is now; over-relaxed steps (which a bound optimiser allows up to a factor of 2) make
up for that.

Relaxed curvature is right only if blocks are alike. A block whose labels are unlike those before
(sorted data, label drift) says nothing about how sure the model may be, so to that extent its
sites are frozen: ``omega = 1/4`` at ``eta = 0``, additive in any order.

One lane more than classes, the spare lane, sees every row as not its own: a class that appears
late starts as its copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from likelier.base import Array, Matrix
from likelier.models.one_pass import (
    FROZEN,
    Weights,
    dense_rows,
    known_spread,
    prior_diagonal,
    solve_posterior,
)

RELAXATION = 2.0  # of the steps of the bound optimiser; up to 2 they still go down
FIRST_SWEEPS = 8  # over the first block, which starts from nothing
MIN_BLOCK = 512
GROWTH = 2.0  # of a variance, that calls for weights under its new prior
STRICTNESS = 2.0  # how fast unlike labels end the relaxation
CALIBRATION_MEMORY = 0.98  # per block, of the scale of the scores
CALIBRATION_START = 10.0  # how much information that scale begins with, at one


@dataclass(frozen=True)
class StreamState:
    """Natural parameters of the sites so far, without the prior, and what else a block needs."""

    centre: Array  # (d,) reference of the coordinates, from the first block
    scale: Array
    precision: Array  # P
    linear: Array  # Q, one column per class and the spare lane
    mean: Array  # w, of the shape of Q
    classes: Array  # sorted labels
    class_weight: Array
    sums: Array  # of the coordinates and of their squares, for the prior
    squares: Array
    calibration: Array  # log of the scale of the scores, and its information

    @property
    def fit_intercept(self) -> bool:
        """Whether the last coordinate is constant."""
        return len(self.linear) > len(self.scale)

    @property
    def weight(self) -> float:
        """Weight of all rows."""
        return float(self.class_weight.sum())

    def to_arrays(self) -> dict[str, Any]:
        """As plain arrays, for saving."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def faded(self, factor: float) -> StreamState:
        """The same rows, each with its weight times ``factor``."""
        names = ("precision", "linear", "class_weight", "sums", "squares")
        return replace(self, **{name: getattr(self, name) * factor for name in names})


def block_size(n_features: int) -> int:
    """Rows of a block: enough to make its factorisation as cheap as its sums."""
    return max(MIN_BLOCK, 1 << max(0, (n_features - 1) // 2).bit_length())


def start_stream(X: Matrix, weight: Array, classes: Array, fit_intercept: bool) -> StreamState:
    """State before the first row; the coordinates take their units from the first block."""
    rows = dense_rows(X).astype(np.float64, copy=False)
    d, total = rows.shape[1], weight.sum()
    centre = weight @ rows / total if fit_intercept else np.zeros(d)
    spread = weight @ (rows - centre) ** 2 / total
    scale = np.sqrt(known_spread(spread, weight @ rows**2 / total))
    p = d + int(fit_intercept)
    return StreamState(
        centre, scale, np.zeros((p, p)), np.zeros((p, 1)), np.zeros((p, 1)), classes[:0],
        np.zeros(0), np.zeros(d), np.zeros(d), np.array([0.0, CALIBRATION_START]),
    )  # fmt: skip


def coordinates(X: Matrix, centre: Array, scale: Array, fit_intercept: bool) -> Array:
    """``((x - centre) / scale, 1)`` of dense or sparse rows, of their precision."""
    rows = dense_rows(X)
    Z = np.empty((len(rows), len(scale) + int(fit_intercept)), dtype=rows.dtype)
    inner = Z[:, : len(scale)]
    np.subtract(rows, centre, out=inner, casting="same_kind")
    inner /= scale.astype(rows.dtype)
    if fit_intercept:
        Z[:, -1] = 1.0
    return Z


def meet_classes(state: StreamState, labels: Array) -> StreamState:
    """Make room for new classes, each a copy of the lane that saw every row as not its own."""
    classes = np.union1d(state.classes, labels) if len(state.classes) else np.unique(labels)
    if len(classes) == len(state.classes):
        return state
    lanes = np.full(len(classes) + 1, len(state.classes))  # the spare lane is the last
    places = np.searchsorted(classes, state.classes)
    lanes[places] = np.arange(len(state.classes))
    weight = np.zeros(len(classes))
    weight[places] = state.class_weight
    return replace(
        state, classes=classes, class_weight=weight,
        linear=state.linear[:, lanes], mean=state.mean[:, lanes],
    )  # fmt: skip


def learn_block(
    state: StreamState, X: Matrix, y: Array, weight: Array, prior: float | None
) -> StreamState:
    """Add the sites of a block; cost rows x features^2 and one factorisation, features^3 / 3."""
    first = state.weight == 0.0
    likeness = _likeness(state, y, weight)
    state = meet_classes(state, y)
    Z = coordinates(X, state.centre, state.scale, state.fit_intercept)
    row_weight = weight.astype(Z.dtype)
    codes = np.searchsorted(state.classes, y)
    d = len(state.scale)
    moments = replace(
        state,
        class_weight=state.class_weight
        + np.bincount(codes, weights=weight, minlength=len(state.classes)),
        sums=state.sums + row_weight @ Z[:, :d],
        squares=state.squares + row_weight @ (Z[:, :d] ** 2),
    )
    if _grown(state, moments):
        moments = resolved(moments, prior)
    relaxation, out = (1.0 if first else RELAXATION), moments
    for sweep in range(FIRST_SWEEPS if first else 1):
        scores = Z @ out.mean.astype(Z.dtype)
        if sweep == 0 and not first:
            out = replace(out, calibration=_calibrate(out, scores, codes, weight, likeness))
        curvature, pull = sites(scores, codes, likeness, relaxation)
        rooted = Z * np.sqrt(row_weight * curvature)[:, None]
        P = moments.precision + rooted.T @ rooted
        Q = moments.linear + Z.T @ (row_weight[:, None] * pull)
        out = replace(out, precision=P, linear=Q)
        out = replace(out, mean=solve_posterior(P, Q, stream_prior(out, prior))[0])
    return out


def _grown(before: StreamState, after: StreamState) -> bool:
    """Whether some feature turns out to vary far more than it did, as its prior did not know.

    Weights learned while a feature hardly varied are too large for the rows that now come.
    """
    if before.weight == 0.0:
        return False
    old, new = stream_prior(before, 1.0), stream_prior(after, 1.0)
    return bool((new > GROWTH * old).any())


def stream_prior(state: StreamState, prior: float | None) -> Array:
    """Prior precisions in the coordinates of the state, from the variances of all rows so far."""
    W = max(state.weight, 1e-300)
    square = state.squares / W
    variance = square - (state.sums / W) ** 2 if state.fit_intercept else square
    return prior_diagonal(known_spread(variance, square), prior, state.fit_intercept)


def stream_weights(state: StreamState, prior: float | None) -> Weights:
    """Posterior of the classes that were seen."""
    mean, root, units = solve_posterior(
        state.precision, state.linear[:, :-1], stream_prior(state, prior)
    )
    return Weights(mean, root, units, state.centre, state.scale, state.fit_intercept)


def softmax(scores: Array) -> Array:
    """Probabilities of the lanes, in place of their scores' copy."""
    p = scores - scores.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    return np.asarray(p)


def polya_gamma_mean(p: Array) -> Array:
    """``E omega`` of PG(1, psi) from ``p = sigma(psi)``: ``(p - 1/2) / psi``, 1/4 at the middle."""
    tiny = 1e-7 if p.dtype == np.float32 else 1e-15
    p = np.clip(p, tiny, 1.0 - tiny)
    psi = np.log(p / (1.0 - p))
    near = np.abs(psi) < 1e-2
    psi[near] = 1.0
    return np.where(near, FROZEN - (p - 0.5) ** 2 / 3.0, (p - 0.5) / psi)


def sites(scores: Array, codes: Array, likeness: float, relaxation: float) -> tuple[Array, Array]:
    """Curvature of every row's site, shared by the lanes, and its pull on every lane.

    A learned site expands the likelihood at the present scores. A row moves the differences of
    ``K`` classes, which makes the curvature of one of them ``K / (K - 1)`` times that of its
    logistic problem. A frozen site expands it at zero, where no order of the rows matters.
    """
    p = softmax(scores)
    n_classes = max(2, p.shape[1] - 1)
    omega = polya_gamma_mean(p[:, :-1]).mean(axis=1)
    learned = (likeness / relaxation * n_classes / (n_classes - 1.0)) * omega
    curvature = np.asarray(learned + (1.0 - likeness) * FROZEN, dtype=p.dtype)
    pull = learned.astype(p.dtype)[:, None] * scores - likeness * p
    pull -= (1.0 - likeness) / p.shape[1]
    pull[np.arange(len(codes)), codes] += 1.0
    return curvature, pull


def merge_streams(one: StreamState, two: StreamState, prior: float | None) -> StreamState:
    """Sites of both: sums of natural parameters, in the coordinates of the first."""
    two = _moved(two, one.centre, one.scale)
    labels = np.union1d(one.classes, two.classes)
    one, two = meet_classes(one, labels), meet_classes(two, labels)
    names = ("precision", "linear", "class_weight", "sums", "squares")
    both = {name: getattr(one, name) + getattr(two, name) for name in names}
    information = one.calibration[1] + two.calibration[1]
    log_scale = (
        one.calibration[0] * one.calibration[1] + two.calibration[0] * two.calibration[1]
    ) / information
    out = replace(one, **both, calibration=np.array([log_scale, information]))
    return resolved(out, prior)


def resolved(state: StreamState, prior: float | None) -> StreamState:
    """The same sites, with the weights solved anew."""
    mean = solve_posterior(state.precision, state.linear, stream_prior(state, prior))[0]
    return replace(state, mean=mean)


def _moved(state: StreamState, centre: Array, scale: Array) -> StreamState:
    """The same sites in other coordinates: ``z' = A z`` makes ``P' = A P A^T``, ``Q' = A Q``."""
    ratio, shift = state.scale / scale, (state.centre - centre) / scale
    A = np.diag(ratio)
    if state.fit_intercept:
        A = np.block([[A, shift[:, None]], [np.zeros((1, len(ratio))), np.ones((1, 1))]])
    return replace(
        state, centre=centre, scale=scale,
        precision=A @ state.precision @ A.T, linear=A @ state.linear,
        sums=ratio * state.sums + shift * state.weight,
        squares=ratio**2 * state.squares + 2.0 * ratio * shift * state.sums
        + shift**2 * state.weight,
    )  # fmt: skip


def _likeness(state: StreamState, y: Array, weight: Array) -> float:
    """How far the labels of a block are distributed as those before it, from 0 to 1.

    Total variation between the two, less what chance alone would make of a block of this size.
    """
    labels, codes = np.unique(y, return_inverse=True)
    if state.weight == 0.0:
        return float(len(labels) > 1)
    classes = np.union1d(labels, state.classes)
    if len(classes) < 2:
        return 0.0
    before, now = np.zeros(len(classes)), np.zeros(len(classes))
    before[np.searchsorted(classes, state.classes)] = state.class_weight / state.weight
    now[np.searchsorted(classes, labels)] = np.bincount(codes, weights=weight) / weight.sum()
    n_rows = weight.sum() ** 2 / (weight**2).sum()
    mixed = 0.5 * (before + now)
    chance = np.sqrt(mixed * (1.0 - mixed) / (0.5 * np.pi * n_rows)).sum()
    apart = 0.5 * np.abs(now - before).sum() - chance
    return float(np.clip(1.0 - STRICTNESS * apart, 0.0, 1.0))


def _calibrate(
    state: StreamState, scores: Array, codes: Array, weight: Array, likeness: float
) -> Array:
    """A step of the scale that suits the scores of rows before they are learned."""
    log_scale, information = state.calibration
    if likeness < 0.5 or len(state.classes) < 2:  # their surprise would be the order's doing
        return state.calibration
    own = scores[:, :-1].astype(np.float64)
    factor = np.exp(log_scale)
    p = softmax(factor * own)
    expected = (p * own).sum(axis=1)
    gain = factor * float(weight @ (own[np.arange(len(codes)), codes] - expected))
    spread = (p * own**2).sum(axis=1) - expected**2
    information = CALIBRATION_MEMORY * information + factor**2 * float(weight @ spread)
    return np.array([log_scale + np.clip(gain / information, -0.2, 0.2), information])
