"""The convex problem of a linear fit: a model, and an engine over standardised rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Loss
from likelier.fitting.dataset import Dataset, Summarise, Summary, informative_squares
from likelier.fitting.moments import ColumnMoments
from likelier.glm.model import LinearModel
from likelier.linear.penalty import Columns, Penalty
from likelier.linear.standardize import (
    IDENTITY,
    Standardization,
    imprecise_columns,
    large_means,
    standardization_of,
    target_moments,
)


@dataclass(frozen=True)
class Spec:
    """Specification of the problem by an estimator.

    ``standardizes`` is False for a given learning rate, which depends on the scale of the data.
    """

    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    standardizes: bool

    def summarise(self) -> Summarise:
        """Map that computes the required summary of the rows."""
        squares = (self.fit_intercept and self.standardizes) or self.penalty.alpha == "auto"
        if not self.standardizes or self.loss.task not in ("regression", "count"):
            return Summarise(squares)
        return Summarise(
            squares, targets=partial(target_moments, with_floor=self.loss.task == "count")
        )


@dataclass(frozen=True)
class Problem:
    """Input of `likelier.glm.route`."""

    model: LinearModel
    engine: Engine
    n_nonzeros: float  # mean per row
    dtype: Any
    standard: Standardization = IDENTITY

    def start(self) -> Array | None:
        """Initial parameters, None for zeros."""
        if not self.standard.intercept:
            return None
        theta = self.model.zeros()
        theta[-1] = self.standard.intercept
        return theta


def make_problem(data: Dataset, spec: Spec, outputs: int | None) -> Problem:
    """The model and the standardised rows of a dataset.

    ``outputs`` is the number of outputs of a classifier, None for regression. Cost: no pass beyond
    the summary, and two if the mean of a column is far larger than its standard deviation.
    """
    engine, summary = data.engine, data.summary
    standard = IDENTITY
    if summary.targets is not None:
        targets = summary.targets
        standard = standardization_of(spec.loss, targets, summary.n_rows, spec.fit_intercept)
    if spec.fit_intercept and spec.standardizes:
        standard = _with_shift(standard, engine, summary)
    if standard.changes_rows:
        engine = engine.transformed(standard)
    if standard.shift is not None:
        summary = engine.reduce(Summarise(True), Summary.__add__)
    model = _model(summary, spec, outputs, standard)
    per_row = summary.n_nonzeros / max(1, summary.n_rows)
    return Problem(model, engine, per_row, data.dtype, standard)


def _with_shift(standard: Standardization, engine: Engine, summary: Summary) -> Standardization:
    """Add the shift of columns with large means; a pass if there may be such columns."""
    if not len(imprecise_columns(summary.sums, summary.squares, summary.weight)):
        return standard
    moments = engine.reduce(_moments, ColumnMoments.__add__)
    shift = large_means(moments)
    return replace(standard, shift=shift) if shift.any() else standard


def _moments(batch: Batch) -> ColumnMoments:
    return ColumnMoments.of(batch.X, batch.weight)


def _model(
    summary: Summary, spec: Spec, outputs: int | None, standard: Standardization
) -> LinearModel:
    loss, d = standard.loss(spec.loss), len(summary.squares)
    penalty, unknown = spec.penalty.standardized(standard), np.full(d, np.nan)
    columns = Columns(unknown, unknown)
    if penalty.alpha == "auto":  # the only use of column statistics
        square = informative_squares(
            summary.sums, summary.squares, summary.weight, spec.fit_intercept
        )
        columns = Columns(square, summary.counts / max(1, summary.n_rows))
    strengths = penalty.strengths(columns, summary.n_rows, spec.fit_intercept, loss)
    return LinearModel(
        loss, d, outputs or 1, outputs is not None, spec.fit_intercept, strengths, standard.floor
    )
