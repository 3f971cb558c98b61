"""Merging of two streams: sums; anew, where their classes differ or all rows are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from likelier.base import Array
from likelier.one_pass.bridge import Learned, bridged
from likelier.one_pass.inference import (
    ADDITIVE,
    CALIBRATION_START,
    StreamState,
    alike,
    meet_classes,
    resolved,
    stream_prior,
    stream_weights,
    with_constant,
    with_sites,
    with_spare,
)
from likelier.one_pass.initial_batch import converged

OWN_SHARE = 0.1  # of the share a class has of all rows, that makes it one a model has learned
APART = 0.01  # share of rows among unlike labels, beyond which classes count as different
MISSED = 10.0  # rows of a class that a model should have, and has not: not by chance


def merge_streams(one: StreamState, two: StreamState, prior: float | None) -> StreamState:
    """Sites of both, in the coordinates of the first: sums of natural parameters.

    Sums are right as long as both have learned the same classes. If not, a class that a model has
    never seen is lost among its rows; then the weights are found anew, see `bridged`. While all
    rows of both are kept, nothing has to be summed: they are learned as one opening.
    """
    two = _moved(two, one.centre, one.scale)
    labels = np.union1d(one.classes, two.classes)
    one, two = meet_classes(one, labels), meet_classes(two, labels)
    both = {name: getattr(one, name) + getattr(two, name) for name in ADDITIVE}
    apart = unlike_weight(one, two)
    both["unlike"] += apart
    both["weight_squares"] = one.weight_squares + two.weight_squares
    information = one.calibration[1] + two.calibration[1]
    log_scale = (
        one.calibration[0] * one.calibration[1] + two.calibration[0] * two.calibration[1]
    ) / information
    late = one.late & two.late  # a class is as early as in the model that knew it first
    out = replace(one, **both, calibration=np.array([log_scale, information]), late=late)
    out = out.keeping(one.reserve.merged(two.reserve))
    if out.reserve.is_complete and len(out.known) > 1:
        return _opened(out, prior)
    out = resolved(out, prior)
    different = apart > APART * out.weight or any(_misses(s, out).any() for s in (one, two))
    return _anew(out, one, two, prior) if different else out


def _opened(both: StreamState, prior: float | None) -> StreamState:
    """The state that an opening of all rows leaves, where all of them are kept."""
    known, diagonal, sample = both.known, stream_prior(both, prior), both.reserve.sample
    Z, codes = with_constant(sample.rows, both, sample.rows.dtype), sample.codes
    codes, weight = np.searchsorted(known, codes), sample.weight.astype(Z.dtype)
    w = converged(Z, codes, sample.weight, diagonal, len(known))
    mean = with_spare(w, Z, codes, weight, diagonal)
    outputs = np.full(
        len(both.classes) + 1, len(known)
    )  # classes without rows: as the spare output
    outputs[known] = np.arange(len(known))
    nothing = replace(both, precision=np.zeros_like(both.precision), linear=np.zeros_like(mean))
    made = with_sites(nothing, Z, codes, weight, Z @ mean.astype(Z.dtype), 1.0)
    made = replace(made, linear=made.linear[:, outputs])
    return resolved(_compared(made, CALIBRATION_START), prior)


def _compared(both: StreamState, information: float) -> StreamState:
    """The state of weights that compare all classes, in one scale: none is late any more."""
    late = both.late.copy()
    late[both.known] = False
    return replace(both, late=late, unlike=0.0, calibration=np.array([0.0, information]))


def own_classes(state: StreamState, both: StreamState) -> Array:
    """Which of the known classes of ``both`` a state has learned: fewer rows say too little."""
    share, of_all = (s.class_weight[both.known] / s.weight for s in (state, both))
    return np.asarray(share >= OWN_SHARE * of_all)


def _misses(state: StreamState, both: StreamState) -> Array:
    """Which of the known classes of ``both`` a state has not learned, and not by chance.

    Of rare classes too: a few rows of the other would be lost among all of this one.
    """
    expected = both.class_weight[both.known] / both.weight * state.n_rows
    return np.asarray(~own_classes(state, both) & (expected >= MISSED))


def _anew(
    both: StreamState, one: StreamState, two: StreamState, prior: float | None
) -> StreamState:
    """The merged state with weights that compare all classes, which needs no mixing any more."""
    known, diagonal = both.known, stream_prior(both, prior)
    streams = [_learned(state, both, prior) for state in (one, two)]
    found = bridged(streams, len(known), diagonal)
    mean = both.mean.copy()
    middle = mean[:, known].mean(axis=1) - found.mean(axis=1)  # as far from classes never seen
    mean[:, known] = found + middle[:, None]
    linear = both.precision @ mean + diagonal[:, None] * mean
    return _compared(replace(both, mean=mean, linear=linear), float(both.calibration[1]))


def _learned(state: StreamState, both: StreamState, prior: float | None) -> Learned:
    """What a state knows about its own classes, numbered as the known ones of ``both``."""
    own = np.flatnonzero(own_classes(state, both))
    weights = stream_weights(state, prior).mean[:, both.known[own]]
    sample = state.reserve.sample
    Z = with_constant(sample.rows, state, sample.rows.dtype)
    return Learned(
        float(np.exp(state.calibration[0])) * weights, own, state.precision, state.weight,
        state.n_rows, Z, np.searchsorted(both.known, sample.codes),
        sample.shares(state.class_weight),
    )  # fmt: skip


def _moved(state: StreamState, centre: Array, scale: Array) -> StreamState:
    """The same sites in other coordinates: ``z' = A z`` makes ``P' = A P A^T``, ``Q' = A Q``."""
    ratio, shift = state.scale / scale, (state.centre - centre) / scale
    A = np.diag(ratio)
    if state.fit_intercept:
        A = np.block([[A, shift[:, None]], [np.zeros((1, len(ratio))), np.ones((1, 1))]])
    moved = replace(
        state, centre=centre, scale=scale,
        precision=A @ state.precision @ A.T, linear=A @ state.linear,
        sums=ratio * state.sums + shift * state.weight,
        squares=ratio**2 * state.squares + 2.0 * ratio * shift * state.sums
        + shift**2 * state.weight,
    )  # fmt: skip
    return moved.keeping(state.reserve.moved(ratio, shift))


def unlike_weight(one: StreamState, two: StreamState) -> float:
    """Weight of rows that another model learned among labels unlike those of the first.

    Both know the same classes. What chance makes of their labels is a matter of how many rows
    there are, and not of the unit of their weights.
    """
    if not (one.weight and two.weight):
        return 0.0
    n_rows = min(one.n_rows, two.n_rows)
    shared = alike(one.class_weight / one.weight, two.class_weight / two.weight, n_rows)
    return min(one.weight, two.weight) * (1.0 - shared)
