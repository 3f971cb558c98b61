"""Statistics gathered before a fit of `BayesianLinearClassifier`, by passes over blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse
from sklearn.utils.validation import assert_all_finite

from likelier.base import Array, Batch, Engine, Matrix
from likelier.bayesian_linear.model import SHIFT_ABOVE, Coordinates
from likelier.fitting.dataset import (
    CONSTANT,
    Summarise,
    Summary,
    informative_squares,
    require_targets,
    summarise,
)
from likelier.fitting.targets import check_labels


def standard_coordinates(engine: Engine, fit_intercept: bool) -> Coordinates:
    """Coordinates in which columns have mean zero and unit variance.

    One pass, and a second one over columns with a mean much larger than their standard deviation.
    """
    with np.errstate(over="ignore"):
        summary = engine.reduce(Summarise(True), Summary.__add__)
    if not np.isfinite(summary.squares).all():
        column = int(np.argmin(np.isfinite(summary.squares)))
        raise ValueError(
            f"column {column} of X is too large: the sum of its squares overflows; rescale it"
        )
    mean = summary.sums / summary.weight
    column_variance = informative_squares(
        summary.sums, summary.squares, summary.weight, fit_intercept
    )
    variance = summary.squares / summary.weight - mean**2
    shifted = np.flatnonzero(mean**2 > SHIFT_ABOVE**2 * variance)
    if fit_intercept and len(shifted):
        mean[shifted], column_variance[shifted] = _centred_moments(engine, summary, shifted)
    return Coordinates.of(mean, np.maximum(column_variance, 0.0), fit_intercept)


def _centred_moments(engine: Engine, summary: Summary, shifted: Array) -> tuple[Array, Array]:
    """Means and variances of some columns, by a second pass over centred columns.

    The one-pass variance of a column with a large mean suffers from cancellation, and the column
    might be taken for a constant.
    """
    mean = summary.sums[shifted] / summary.weight
    found = engine.reduce(_centred_summary, Summary.__add__, state=(shifted, mean))
    move, square = found.sums / found.weight, found.squares / found.weight
    varies = square - move**2 > CONSTANT * square
    constant = summary.squares[shifted] / summary.weight
    return mean + move, np.where(varies, square - move**2, constant)


def _centred_summary(batch: Batch, columns_and_mean: tuple[Array, Array]) -> Summary:
    """Sums of some columns of a block around their mean."""
    columns, mean = columns_and_mean
    return summarise(replace(batch, X=_columns(batch.X, columns) - mean), True)


def _columns(X: Matrix, which: Array) -> Array:
    """Some columns of dense or sparse rows, in double precision."""
    some = X[:, which]
    return np.asarray(some.toarray() if sparse.issparse(some) else some, dtype=np.float64)


def finite_labels(labels: Array) -> Array:
    """Raise unless these can be labels of classes."""
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    check_labels(labels)
    return labels


def label_summary(batch: Batch) -> Summary:
    """The map to the classes of a block, and how often they occur."""
    finite_labels(require_targets(batch))
    return summarise(batch, with_squares=False, with_labels=True)
