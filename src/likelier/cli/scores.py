"""Scores of predictions with their standard errors, from one pass over blocks of rows.

Every score is a smooth function of means over rows. The running means and their covariance are
accumulated, and standard errors follow from the delta method. Memory does not depend on the
number of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from likelier.base import Array

_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)  # as scikit-learn clips its log loss
_BINS = 15


@dataclass(frozen=True)
class Score:
    """One score; ``stderr`` is nan with a single row."""

    name: str
    value: float
    stderr: float


class RunningMoments:
    """Mean and covariance of the rows so far, updated block by block without cancellation."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean = np.zeros(width)
        self._scatter = np.zeros((width, width))

    def add(self, rows: Array) -> None:
        """Add a block of shape (rows, width)."""
        n = len(rows)
        if n == 0:
            return
        mean = rows.mean(axis=0)
        centred = rows - mean
        step = mean - self.mean
        total = self.count + n
        self._scatter += centred.T @ centred + np.outer(step, step) * (self.count * n / total)
        self.mean += step * (n / total)
        self.count = total

    def stderr(self, gradient: Array) -> float:
        """Standard error of a function of the mean with this gradient."""
        if self.count < 2:
            return math.nan
        covariance = self._scatter / (self.count - 1)
        return math.sqrt(max(0.0, float(gradient @ covariance @ gradient)) / self.count)


class ClassificationScores:
    """Accuracy, log loss, Brier score and expected calibration error.

    Conventions are scikit-learn's: probabilities are clipped for the log loss, the Brier
    score is ``(p - y)^2`` for two classes and summed over classes for more. The calibration
    error compares confidence and accuracy of the predicted class in 15 bins of equal width.
    """

    def __init__(self, n_classes: int) -> None:
        self._halve = n_classes == 2
        self._moments = RunningMoments(3)
        # per bin: rows, sum and sum of squares of confidence minus correctness
        self._bins = np.zeros((3, _BINS))
        self.unseen_labels = 0

    def add(self, y: Array, predicted: Array, probability: Array) -> None:
        """Add a block: true class indices, predicted class indices, and probabilities.

        A true class of -1 is a label unseen in training, which counts as an error.
        """
        row = np.arange(len(y))
        known = y >= 0
        self.unseen_labels += int(np.sum(~known))
        actual = np.zeros_like(probability)
        actual[known, y[known]] = 1.0
        given = np.where(known, probability[row, np.maximum(y, 0)], 0.0)
        correct = (predicted == y).astype(float)
        log_loss = -np.log(np.clip(given, _SMALLEST_PROBABILITY, 1.0))
        brier = ((probability - actual) ** 2).sum(axis=1) * (0.5 if self._halve else 1.0)
        self._moments.add(np.column_stack([correct, log_loss, brier]))
        confidence = probability[row, predicted]
        gap = confidence - correct
        place = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
        for sums, terms in zip(self._bins, (np.ones_like(gap), gap, gap**2), strict=True):
            sums += np.bincount(place, weights=terms, minlength=_BINS)

    @property
    def count(self) -> int:
        """Rows seen."""
        return self._moments.count

    def scores(self) -> list[Score]:
        """Return all scores."""
        names = ("accuracy", "log_loss", "brier_score")
        found = [
            Score(name, float(self._moments.mean[i]), self._moments.stderr(np.eye(3)[i]))
            for i, name in enumerate(names)
        ]
        return [*found, self._calibration_error()]

    def _calibration_error(self) -> Score:
        rows, _, gap_squared = self._bins.sum(axis=1)
        if rows < 2:
            return Score("calibration_error", math.nan, math.nan)
        error = float(np.abs(self._bins[1]).sum() / rows)
        # Given the sign of each bin, the error is a mean over rows of sign * gap.
        variance = max(0.0, gap_squared / rows - error**2)
        return Score("calibration_error", error, math.sqrt(variance / (rows - 1)))


class RegressionScores:
    """Root mean squared error, mean absolute error and R2; coverage where there are intervals."""

    def __init__(self) -> None:
        self._moments = RunningMoments(4)
        self._intervals = RunningMoments(2)
        self._origin: float | None = None

    def add(self, y: Array, prediction: Array, interval: Array | None = None) -> None:
        """Add a block: targets, predictions and optional (lower, upper) columns."""
        if self._origin is None and len(y):
            self._origin = float(y.mean())  # centring keeps the squares of y accurate
        error = np.abs(y - prediction)
        shifted = y - (self._origin or 0.0)
        self._moments.add(np.column_stack([error, error**2, shifted, shifted**2]))
        if interval is not None:
            lower, upper = interval.T
            inside = ((lower <= y) & (y <= upper)).astype(float)
            self._intervals.add(np.column_stack([inside, upper - lower]))

    @property
    def count(self) -> int:
        """Rows seen."""
        return self._moments.count

    def scores(self) -> list[Score]:
        """Return all scores."""
        mae, mse, mean, square = self._moments.mean
        rmse = math.sqrt(mse)
        variance = square - mean**2
        rmse_gradient = np.array([0.0, 0.5 / rmse if rmse else 0.0, 0.0, 0.0])
        found = [
            Score("rmse", rmse, self._moments.stderr(rmse_gradient)),
            Score("mae", float(mae), self._moments.stderr(np.eye(4)[0])),
        ]
        if variance > 0.0:
            gradient = np.array(
                [0.0, -1.0 / variance, -2.0 * mean * mse / variance**2, mse / variance**2]
            )
            found.append(Score("r2", float(1.0 - mse / variance), self._moments.stderr(gradient)))
        else:
            found.append(Score("r2", math.nan, math.nan))  # undefined for a constant target
        for i, name in enumerate(("interval_coverage", "interval_width")):
            if self._intervals.count:
                stderr = self._intervals.stderr(np.eye(2)[i])
                found.append(Score(name, float(self._intervals.mean[i]), stderr))
        return found
