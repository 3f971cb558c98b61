"""Merging of two streams: sums of sites, or a refit where classes differ or all rows are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from likelier.base import Array
from likelier.one_pass.class_merge import StreamSummary, merge_class_weights
from likelier.one_pass.inference import (
    ADDITIVE,
    CALIBRATION_START,
    StreamState,
    add_classes,
    add_sites,
    append_background,
    distribution_similarity,
    stream_prior,
    stream_weights,
    update_mean,
    with_intercept,
)
from likelier.one_pass.initial_batch import fit_softmax

MIN_CLASS_RATIO = 0.1  # class frequency in a model / in both, above which the model has learned it
MAX_LABEL_SHIFT = 0.01  # fraction of rows; above it the models' classes count as different
MIN_EXPECTED_ROWS = 10.0  # of a class whose absence is then not due to chance


def merge_streams(one: StreamState, two: StreamState, prior: float | None) -> StreamState:
    """Sites of both streams in the coordinates of the first: sums of natural parameters.

    Sums are right as long as both streams have seen the same classes. Otherwise a class that one
    model has never seen would be outweighed by that model's rows, and the weights are recomputed by
    `merge_class_weights`. While the samples hold all rows of both, these are fitted as one initial
    batch instead.
    """
    two = _change_coordinates(two, one.centre, one.scale)
    labels = np.union1d(one.classes, two.classes)
    one, two = add_classes(one, labels), add_classes(two, labels)
    both = {name: getattr(one, name) + getattr(two, name) for name in ADDITIVE}
    shifted = label_shift_weight(one, two)
    both["shifted_weight"] += shifted
    both["weight_squares"] = one.weight_squares + two.weight_squares
    information = one.calibration[1] + two.calibration[1]
    log_scale = (
        one.calibration[0] * one.calibration[1] + two.calibration[0] * two.calibration[1]
    ) / information
    out = replace(one, **both, calibration=np.array([log_scale, information]))
    out = out.with_reservoir(one.reservoir.merged(two.reservoir))
    if out.reservoir.is_complete and len(out.known) > 1:
        return _refit(out, prior)
    out = update_mean(out, prior)
    classes_differ = shifted > MAX_LABEL_SHIFT * out.weight or any(
        _missing_classes(s, out).any() for s in (one, two)
    )
    return _merge_classes(out, one, two, prior) if classes_differ else out


def _refit(both: StreamState, prior: float | None) -> StreamState:
    """State after an initial batch of all rows, where the sample holds all of them."""
    known, diagonal, sample = both.known, stream_prior(both, prior), both.reservoir.sample
    Z, codes = with_intercept(sample.rows, both, sample.rows.dtype), sample.codes
    codes, weight = np.searchsorted(known, codes), sample.weight.astype(Z.dtype)
    w = fit_softmax(Z, codes, sample.weight, diagonal, len(known))
    mean = append_background(w, Z, codes, weight, diagonal)
    # classes without rows start as the background output
    outputs = np.full(len(both.classes) + 1, len(known))
    outputs[known] = np.arange(len(known))
    empty = replace(both, precision=np.zeros_like(both.precision), linear=np.zeros_like(mean))
    refitted = add_sites(empty, Z, codes, weight, Z @ mean.astype(Z.dtype), 1.0)
    refitted = replace(refitted, linear=refitted.linear[:, outputs])
    return update_mean(_with_comparable_scores(refitted, CALIBRATION_START), prior)


def _with_comparable_scores(both: StreamState, information: float) -> StreamState:
    """The state marked as having comparable scores of all classes."""
    return replace(both, shifted_weight=0.0, calibration=np.array([0.0, information]))


def learned_classes(state: StreamState, both: StreamState) -> Array:
    """Mask of the known classes of ``both`` of which a state has enough rows."""
    own, common = (s.class_weight[both.known] / s.weight for s in (state, both))
    return np.asarray(own >= MIN_CLASS_RATIO * common)


def _missing_classes(state: StreamState, both: StreamState) -> Array:
    """Mask of the known classes of ``both`` that a state should have seen and has not.

    Rare classes count too: a few rows of the other stream would be outweighed by all of this one.
    """
    expected = both.class_weight[both.known] / both.weight * state.n_rows
    return np.asarray(~learned_classes(state, both) & (expected >= MIN_EXPECTED_ROWS))


def _merge_classes(
    both: StreamState, one: StreamState, two: StreamState, prior: float | None
) -> StreamState:
    """The merged state with weights that are comparable over all classes and need no mixing."""
    known, diagonal = both.known, stream_prior(both, prior)
    streams = [_summarise(state, both, prior) for state in (one, two)]
    weights = merge_class_weights(streams, len(known), diagonal)
    mean = both.mean.copy()
    shift = mean[:, known].mean(axis=1) - weights.mean(axis=1)  # relative to classes never seen
    mean[:, known] = weights + shift[:, None]
    linear = both.precision @ mean + diagonal[:, None] * mean
    return _with_comparable_scores(
        replace(both, mean=mean, linear=linear), float(both.calibration[1])
    )


def _summarise(state: StreamState, both: StreamState, prior: float | None) -> StreamSummary:
    """Summary of a state for its own classes, numbered as the known ones of ``both``."""
    own = np.flatnonzero(learned_classes(state, both))
    weights = stream_weights(state, prior).mean[:, both.known[own]]
    sample = state.reservoir.sample
    Z = with_intercept(sample.rows, state, sample.rows.dtype)
    return StreamSummary(
        float(np.exp(state.calibration[0])) * weights, own, state.precision, state.weight,
        state.n_rows, Z, np.searchsorted(both.known, sample.codes),
        sample.importance_weights(state.class_weight),
    )  # fmt: skip


def _change_coordinates(state: StreamState, centre: Array, scale: Array) -> StreamState:
    """The same sites in other coordinates: ``z' = A z`` gives ``P' = A P A^T``, ``Q' = A Q``."""
    ratio, shift = state.scale / scale, (state.centre - centre) / scale
    A = np.diag(ratio)
    if state.fit_intercept:
        A = np.block([[A, shift[:, None]], [np.zeros((1, len(ratio))), np.ones((1, 1))]])
    changed = replace(
        state, centre=centre, scale=scale,
        precision=A @ state.precision @ A.T, linear=A @ state.linear,
        sums=ratio * state.sums + shift * state.weight,
        squares=ratio**2 * state.squares + 2.0 * ratio * shift * state.sums
        + shift**2 * state.weight,
    )  # fmt: skip
    return changed.with_reservoir(state.reservoir.transform(ratio, shift))


def label_shift_weight(one: StreamState, two: StreamState) -> float:
    """Weight of the rows that one model has learned with another label distribution than the other.

    Both states have the same classes. The sampling error of their class frequencies depends on the
    number of rows, not on the unit of the weights.
    """
    if not (one.weight and two.weight):
        return 0.0
    n_rows = min(one.n_rows, two.n_rows)
    similarity = distribution_similarity(
        one.class_weight / one.weight, two.class_weight / two.weight, n_rows
    )
    return min(one.weight, two.weight) * (1.0 - similarity)
