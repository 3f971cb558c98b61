"""A streaming variational update of Polya-Gamma means: one visit per row, in small blocks.

The softmax likelihood of class ``k`` given the others is logistic in
``psi_k = eta_k - log sum_{j != k} exp eta_j``, so with ``omega`` at the Polya-Gamma mean
``tanh(psi/2) / (2 psi) = (p - 1/2) / psi`` every row adds a Gaussian site to the natural
parameters: ``omega x x^T`` to ``P`` and ``(omega eta_k + 1[y = k] - p_k) x`` to ``Q_k``. The
weights are ``w_k = (P + Sigma0^-1)^-1 Q_k`` with one ``P`` for all classes, in which ``omega`` is
the mean over them. ``P`` keeps the ``omega`` of the time a row was seen, when the model was less
sure than it is now; over-relaxed steps (which a bound optimiser allows up to a factor of 2) make
up for that. The first block, which starts from nothing, is brought to convergence beforehand.

Relaxed curvature is right only if blocks are alike. A block whose labels are unlike those before
(sorted data, label drift) says nothing about how sure the model may be, so to that extent its
sites are frozen: ``omega = 1/4`` at ``eta = 0``, additive in any order.

One output more than classes, the spare output, sees every row as not its own: a class that appears
late starts as its copy. How far it then goes is found with a small sample of the rows so far; so
is how scores of classes compare, where many rows came without those of other classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp

from likelier.base import Array, Matrix
from likelier.one_pass.initial_batch import converged
from likelier.one_pass.late_classes import raised
from likelier.one_pass.mixed import apply_mixing, find_mixing
from likelier.one_pass.model import (
    Weights,
    column_units,
    dense_rows,
    known_spread,
    prior_diagonal,
    solve_posterior,
)
from likelier.one_pass.reservoir import Reserve, scored_rows
from likelier.one_pass.sites import sites, softmax

RELAXATION = 2.0  # of the steps of the bound optimiser; up to 2 they still go down
SPARE_SWEEPS = 8  # that take the spare output to odds of about one in a hundred
MIN_BLOCK, MAX_BLOCK = 512, 2048
BLOCK_SHARE = 64  # a block is no larger than one in so many of the rows so far
GROWTH = 2.0  # of a variance, that calls for weights under its new prior
STRICTNESS = 2.0  # how fast unlike labels end the relaxation
DISORDER = 0.05  # share of rows among unlike labels, beyond which scores are compared anew
CALIBRATION_MEMORY = 0.98  # per block, of the scale of the scores
CALIBRATION_START = 10.0  # how much information that scale begins with, at one
ADDITIVE = ("precision", "linear", "class_weight", "sums", "squares", "unlike")


@dataclass(frozen=True)
class StreamState:
    """Natural parameters of the sites so far, without the prior, and what else a block needs."""

    centre: Array  # (d,) reference of the coordinates, from the first block
    scale: Array
    precision: Array  # P
    linear: Array  # Q, one column per class and the spare output
    mean: Array  # w, of the shape of Q
    classes: Array  # sorted labels
    class_weight: Array
    sums: Array  # of the coordinates and of their squares, for the prior
    squares: Array
    calibration: Array  # log of the scale of the scores, and its information
    late: Array  # whether a class appeared after the opening
    kept: dict[str, Any]  # a sample of the rows, see `Reserve`
    unlike: float = 0.0  # weight of rows whose labels were not distributed as those before them
    weight_squares: float = 0.0  # sum over rows

    @property
    def reserve(self) -> Reserve:
        """Some rows of every class."""
        return Reserve.from_arrays(self.kept)

    def keeping(self, reserve: Reserve) -> StreamState:
        """The same state with another sample of rows."""
        return replace(self, kept=reserve.to_arrays())

    @property
    def fit_intercept(self) -> bool:
        """Whether the last coordinate is constant."""
        return len(self.linear) > len(self.scale)

    @property
    def weight(self) -> float:
        """Weight of all rows."""
        return float(self.class_weight.sum())

    @property
    def n_rows(self) -> float:
        """How many rows of one weight say as much as all, whatever the unit of weights."""
        return self.weight**2 / self.weight_squares if self.weight_squares else 0.0

    @property
    def known(self) -> Array:
        """Numbers of the classes that have rows."""
        return np.flatnonzero(self.class_weight > 0.0)

    @property
    def disordered(self) -> bool:
        """Whether scores have to be compared anew."""
        return len(self.known) > 1 and self.unlike > DISORDER * self.weight

    def to_arrays(self) -> dict[str, Any]:
        """As plain arrays, for saving."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def faded(self, factor: float) -> StreamState:
        """The same rows, each with its weight times ``factor``."""
        state = replace(self, **{name: getattr(self, name) * factor for name in ADDITIVE},
                        weight_squares=self.weight_squares * factor**2)  # fmt: skip
        return state.keeping(self.reserve.faded(factor))


Mixing = Callable[[StreamState, Weights], Array]


def block_size(n_features: int, n_seen: int = 0) -> int:
    """Rows of a block: enough to make its factorisation as cheap as its sums.

    After many rows a block may be larger, as it changes the weights no more than those before.
    """
    small = max(MIN_BLOCK, 1 << max(0, (n_features - 1) // 2).bit_length())
    ripe = 1 << max(1, n_seen // BLOCK_SHARE).bit_length() - 1
    return max(small, min(MAX_BLOCK, ripe))


def start_stream(X: Matrix, weight: Array, classes: Array, fit_intercept: bool) -> StreamState:
    """State before the first row; the coordinates take their units from the first block."""
    rows = dense_rows(X).astype(np.float64, copy=False)
    d, total = rows.shape[1], weight.sum()
    centre = weight @ rows / total if fit_intercept else np.zeros(d)
    spread = weight @ (rows - centre) ** 2 / total
    scale = column_units(spread, weight @ rows**2 / total)
    p = d + int(fit_intercept)
    return StreamState(
        centre, scale, np.zeros((p, p)), np.zeros((p, 1)), np.zeros((p, 1)), classes[:0],
        np.zeros(0), np.zeros(d), np.zeros(d), np.array([0.0, CALIBRATION_START]),
        np.zeros(0, dtype=bool), Reserve.empty(d).to_arrays(),
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
    """Make room for new classes, each a copy of the output that saw every row as not its own."""
    classes = np.union1d(state.classes, labels) if len(state.classes) else np.unique(labels)
    if len(classes) == len(state.classes):
        return state
    outputs = np.full(len(classes) + 1, len(state.classes))  # the spare output is the last
    places = np.searchsorted(classes, state.classes)
    outputs[places] = np.arange(len(state.classes))
    weight = np.zeros(len(classes))
    weight[places] = state.class_weight
    late = np.full(len(classes), state.weight > 0.0)
    late[places] = state.late
    grown = replace(
        state, classes=classes, class_weight=weight, late=late,
        linear=state.linear[:, outputs], mean=state.mean[:, outputs],
    )  # fmt: skip
    return grown.keeping(state.reserve.renumbered(places))


def learn_block(
    state: StreamState, X: Matrix, y: Array, weight: Array, prior: float | None
) -> StreamState:
    """Add the sites of a block; cost rows x features^2 and one factorisation, features^3 / 3.

    Those of the first block are expanded about the weights it makes by itself.
    """
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
        unlike=state.unlike + (1.0 - likeness) * float(weight.sum()),
        weight_squares=state.weight_squares + float(weight @ weight),
    )
    if first and likeness:
        diagonal = stream_prior(moments, prior)
        w = converged(Z, codes, weight, diagonal, len(moments.classes))
        moments = replace(moments, mean=with_spare(w, Z, codes, row_weight, diagonal))
    elif _grown(state, moments):
        moments = resolved(moments, prior)
    scores = Z @ moments.mean.astype(Z.dtype)
    if not first:
        found = _calibrate(moments, scores, codes, weight, likeness)
        moments = replace(moments, calibration=found)
    kept = state.reserve.seeing(Z[:, :d], codes, weight)
    return resolved(
        with_sites(moments, Z, codes, row_weight, scores, likeness).keeping(kept), prior
    )


def with_sites(
    state: StreamState, Z: Array, codes: Array, weight: Array, scores: Array, likeness: float
) -> StreamState:
    """State with the sites of some rows, which have these scores, but the weights of before."""
    curvature, pull = sites(scores, codes, likeness, RELAXATION)
    rooted = Z * np.sqrt(weight * curvature)[:, None]
    P = state.precision + rooted.T @ rooted
    Q = state.linear + Z.T @ (weight[:, None] * pull)
    return replace(state, precision=P, linear=Q)


def with_spare(w: Array, Z: Array, codes: Array, weight: Array, prior: Array) -> Array:
    """Weights of an opening and, last, those of the spare output, after a few sweeps from zero.

    At its own maximum the output would lie so far below the others that a late class, which starts
    there and has the precision all outputs share, could hardly rise.
    """
    scores = Z @ w.astype(Z.dtype)
    spare = np.zeros(len(w))
    curvature = sites(np.pad(scores, ((0, 0), (0, 1))), codes, 1.0, 1.0)[0]
    rooted = Z * np.sqrt(weight * curvature)[:, None]
    P = (rooted.T @ rooted).astype(np.float64)
    level = logsumexp(scores, axis=1)
    for _ in range(SPARE_SWEEPS):
        p = expit(Z @ spare.astype(Z.dtype) - level)
        slope = -(Z.T @ (weight * p)) - prior * spare
        spare = spare + solve_posterior(P, slope[:, None], prior)[0][:, 0]
    return np.column_stack([w, spare])


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


def stream_weights(
    state: StreamState, prior: float | None, mixing: Mixing | None = None
) -> Weights:
    """Posterior of the classes that were seen or announced.

    Where scores have to be compared anew, ``mixing`` says how; by default, `stream_mixing`.
    """
    outputs = stream_outputs(state, prior)
    if not state.disordered:
        return outputs
    found = (mixing or stream_mixing)(state, outputs)
    rows, factor = max(state.weight, state.n_rows), float(np.exp(state.calibration[0]))
    return replace(outputs, mean=apply_mixing(found, outputs.mean, state.known, rows, factor))


def stream_outputs(state: StreamState, prior: float | None) -> Weights:
    """Posterior in which scores of classes that did not meet are not yet made to compare."""
    diagonal = stream_prior(state, prior)
    mean, root, units = solve_posterior(state.precision, state.linear, diagonal)
    late = state.known[state.late[state.known]]
    if len(late):
        factor = float(np.exp(state.calibration[0]))
        mean = raised(mean, late, stream_sample(state), diagonal, factor, state.fit_intercept)
    else:
        mean = mean[:, :-1]
    return Weights(mean, root, units, state.centre, state.scale, state.fit_intercept)


def stream_mixing(state: StreamState, outputs: Weights) -> Array:
    """How scores of the known classes are mixed, see `find_mixing`: the dear part."""
    factor = float(np.exp(state.calibration[0]))
    return find_mixing(outputs.mean, state.known, stream_sample(state), factor, state.fit_intercept)


def stream_sample(state: StreamState) -> tuple[Array, Array, Array]:
    """Coordinates of some of the rows that were kept, their classes, and what each stands for."""
    each = max(1, scored_rows(len(state.scale)) // len(state.classes))
    some = state.reserve.sample.shortened(each)
    return with_constant(some.rows, state), some.codes, some.shares(state.class_weight)


def with_constant(rows: Array, state: StreamState, dtype: Any = np.float64) -> Array:
    """Coordinates and, with an intercept, a one."""
    Z = np.ones((len(rows), len(state.linear)), dtype)
    Z[:, : rows.shape[1]] = rows
    return Z


def resolved(state: StreamState, prior: float | None) -> StreamState:
    """The same sites, with the weights solved anew."""
    mean = solve_posterior(state.precision, state.linear, stream_prior(state, prior))[0]
    return replace(state, mean=mean)


def _likeness(state: StreamState, y: Array, weight: Array) -> float:
    """How far the labels of a block are distributed as those before it, from 0 to 1.

    Total variation between the two, less what chance alone would make of a block of this size.
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
    each = weight / weight.max()  # squares of weights that are nearly forgotten would be zero
    return alike(before, now, each.sum() ** 2 / (each**2).sum())


def alike(before: Array, now: Array, n_rows: float) -> float:
    """Likeness of two distributions, of which the second is that of ``n_rows`` rows."""
    if not n_rows:  # all but forgotten: nothing speaks against it
        return 1.0
    middle = 0.5 * (before + now)
    chance = np.sqrt(middle * (1.0 - middle) / (0.5 * np.pi * n_rows)).sum()
    apart = 0.5 * np.abs(now - before).sum() - chance
    return float(np.clip(1.0 - STRICTNESS * apart, 0.0, 1.0))


def _label_codes(classes: Array, y: Array) -> tuple[Array, Array]:
    """Sorted labels and their number for every row; those known already, if no other occurs."""
    if len(classes):
        codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        if (classes[codes] == y).all():
            return classes, codes
    return np.unique(y, return_inverse=True)


def _calibrate(
    state: StreamState, scores: Array, codes: Array, weight: Array, likeness: float
) -> Array:
    """A step of the scale that suits the scores of rows before they are learned."""
    log_scale, information = state.calibration
    if likeness < 0.5 or len(state.classes) < 2:  # their surprise would be the order's doing
        return state.calibration
    own = scores[:, :-1]
    factor = float(np.exp(log_scale))
    p = softmax(factor * own)
    expected = (p * own).sum(axis=1)
    gain = factor * float(weight @ (own[np.arange(len(codes)), codes] - expected))
    spread = (p * own**2).sum(axis=1) - expected**2
    information = CALIBRATION_MEMORY * information + factor**2 * float(weight @ spread)
    return np.array([log_scale + np.clip(gain / information, -0.2, 0.2), information])
