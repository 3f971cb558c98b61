"""Merging of two streams: sums of natural parameters, and how far their rows were unlike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from likelier.base import Array
from likelier.inference.one_pass import ADDITIVE, StreamState, alike, meet_classes, resolved


def merge_streams(one: StreamState, two: StreamState, prior: float | None) -> StreamState:
    """Sites of both: sums of natural parameters, in the coordinates of the first."""
    two = _moved(two, one.centre, one.scale)
    labels = np.union1d(one.classes, two.classes)
    one, two = meet_classes(one, labels), meet_classes(two, labels)
    both = {name: getattr(one, name) + getattr(two, name) for name in ADDITIVE}
    both["unlike"] += unlike_weight(one, two)
    both["weight_squares"] = one.weight_squares + two.weight_squares
    information = one.calibration[1] + two.calibration[1]
    log_scale = (
        one.calibration[0] * one.calibration[1] + two.calibration[0] * two.calibration[1]
    ) / information
    late = one.late & two.late  # a class is as early as in the model that knew it first
    out = replace(one, **both, calibration=np.array([log_scale, information]), late=late)
    return resolved(out.keeping(one.reserve.merged(two.reserve, len(labels))), prior)


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
