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
    far_means,
    standardization_of,
    suspicious,
    target_moments,
)

START_ROWS = 1000


@dataclass(frozen=True)
class Spec:
    """What an estimator asks for.

    ``standardizes`` is False where the caller has chosen a learning rate, which belongs to the
    scale of the rows as they are.
    """

    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    standardizes: bool

    def summarise(self) -> Summarise:
        """The map that finds out what the problem needs to know of the rows."""
        squares = (self.fit_intercept and self.standardizes) or self.penalty.alpha == "auto"
        if not self.standardizes or self.loss.task not in ("regression", "count"):
            return Summarise(squares)
        return Summarise(
            squares, targets=partial(target_moments, with_floor=self.loss.task == "count")
        )


@dataclass(frozen=True)
class Problem:
    """Everything that `likelier.glm.route` needs."""

    model: LinearModel
    engine: Engine
    n_nonzeros: float  # mean per row
    dtype: Any
    standard: Standardization = IDENTITY

    def start(self) -> Array | None:
        """Parameters to begin with, where zeros are a bad guess."""
        if not self.standard.intercept:
            return None
        theta = self.model.zeros()
        theta[-1] = self.standard.intercept
        return theta

    def start_at(self, theta: Array) -> Array | None:
        """Standardised parameters to begin with, from those of another fit if they are any good.

        Under an exponential loss, say, the parameters of another one may give infinity.
        """
        model = self.model
        if theta.shape != (model.n_rows_theta, model.n_outputs):
            return self.start()
        theta = self.standard.inner(theta, model.fit_intercept)
        if np.isfinite(model.loss.max_curvature):
            return theta
        some = self.engine.sample(START_ROWS)
        better = model.energy(theta, some) <= model.energy(model.zeros(), some)
        return theta if better else self.start()


def make_problem(data: Dataset, spec: Spec, outputs: int | None) -> Problem:
    """Standardise the rows where that changes anything, and name the model for them.

    ``outputs`` is their number for a classifier, and None for a regression.

    Cost: none beyond the summary, and two more passes where the mean of a column dwarfs its
    standard deviation.
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
    """With what to subtract from columns far from zero; a pass where there may be such columns."""
    if not len(suspicious(summary.sums, summary.squares, summary.weight)):
        return standard
    moments = engine.reduce(_moments, ColumnMoments.__add__)
    shift = far_means(moments)
    return replace(standard, shift=shift) if shift.any() else standard


def _moments(batch: Batch) -> ColumnMoments:
    return ColumnMoments.of(batch.X, batch.weight)


def _model(
    summary: Summary, spec: Spec, outputs: int | None, standard: Standardization
) -> LinearModel:
    loss, d = standard.loss(spec.loss), len(summary.squares)
    penalty, unknown = spec.penalty.standardized(standard), np.full(d, np.nan)
    columns = Columns(unknown, unknown)
    if penalty.alpha == "auto":  # nothing else asks what the features look like
        square = informative_squares(
            summary.sums, summary.squares, summary.weight, spec.fit_intercept
        )
        columns = Columns(square, summary.counts / max(1, summary.n_rows))
    strengths = penalty.strengths(columns, summary.n_rows, spec.fit_intercept, loss)
    return LinearModel(
        loss, d, outputs or 1, outputs is not None, spec.fit_intercept, strengths, standard.floor
    )
