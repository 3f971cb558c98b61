"""The convex problem of a linear fit: model, engine and the units they are in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Loss
from likelier.fitting.dataset import NumberSource, Summary, column_spread
from likelier.glm.model import LinearModel
from likelier.linear.penalty import Columns, Penalty
from likelier.linear.standardize import PLAIN, Frame


@dataclass(frozen=True)
class Problem:
    """Everything `likelier.glm.route` needs."""

    model: LinearModel
    engine: Engine
    n_nonzeros: float  # mean per row
    dtype: Any
    frame: Frame = PLAIN  # units of the model

    def start(self) -> Array | None:
        """Parameters to begin with, where zeros are a bad guess."""
        if not self.frame.first:
            return None
        theta = self.model.zeros()
        theta[-1] = self.frame.first
        return theta


@dataclass(frozen=True)
class Wanted:
    """What an estimator asks for; ``outputs`` is the number of them for a classifier, else None."""

    loss: Loss
    penalty: Penalty
    fit_intercept: bool
    outputs: int | None
    dtype: Any


def make_problem(engine: Engine, summary: Summary, wanted: Wanted, frame: Frame = PLAIN) -> Problem:
    """Model for rows and targets that are in the units of the frame."""
    loss, fit_intercept, outputs = frame.loss(wanted.loss), wanted.fit_intercept, wanted.outputs
    penalty, unknown = wanted.penalty.in_frame(frame), np.full(len(summary.squares), np.nan)
    columns = Columns(unknown, unknown)
    if penalty.alpha == "auto":  # nothing else asks what the features look like
        spread = column_spread(summary.sums, summary.squares, summary.weight, fit_intercept)
        columns = Columns(spread, summary.counts / max(1, summary.n_rows))
    model = LinearModel(
        loss, len(columns.spread), outputs or 1, outputs is not None, fit_intercept,
        penalty.strengths(columns, summary.n_rows, fit_intercept, loss), frame.floor,
    )  # fmt: skip
    per_row = summary.n_nonzeros / max(1, summary.n_rows)
    return Problem(model, engine, per_row, wanted.dtype, frame)


@dataclass(frozen=True)
class FramedSource(NumberSource):
    """A source whose targets are numbers in the units of a frame."""

    frame: Frame

    def _encode(self, batch: Batch) -> Batch:
        batch = super()._encode(batch)
        return replace(batch, y=self.frame.targets(np.asarray(batch.y)))


@dataclass(frozen=True)
class MovedSource(NumberSource):
    """A source of encoded blocks whose columns are in the units of a frame."""

    frame: Frame

    def _encode(self, batch: Batch) -> Batch:
        return replace(batch, X=self.frame.rows(batch.X))
