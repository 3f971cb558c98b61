"""State of SGD at a given learning rate: iterate and running mean."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from likelier.base import Array, Matrix
from likelier.glm.loops.averages import add_pending
from likelier.glm.model import LinearModel


def _folded() -> Array:
    return np.array([1.0, 0.0])


@dataclass
class SGDState:
    """Weights (features x outputs, flattened), intercepts, and the means of their iterates.

    During a pass, means are stored as sums, and weights and sums lazily (`scheduled_pass`), until
    `fold`.
    """

    model: LinearModel
    weights: Array
    intercept: Array
    average: Array
    average_intercept: Array
    counters: Array  # steps taken, iterates averaged
    n_passes: int = 0
    progressive: float = math.inf
    waited: int = 0
    norms: tuple[Matrix, Array] | None = None
    lazy: Array = field(default_factory=_folded)  # pending factors of weights and sums
    summing: bool = False

    def sum_up(self) -> None:
        """Convert means to sums."""
        if not self.summing:
            self.average *= self.counters[1]
            self.average_intercept *= self.counters[1]
            self.summing = True

    def fold(self) -> None:
        """Apply pending factors and convert sums to means."""
        if self.summing:
            add_pending(self.weights, self.average, self.lazy[1])
            self.average /= max(1, self.counters[1])
            self.average_intercept /= max(1, self.counters[1])
            self.summing = False
        if self.lazy[0] != 1.0:
            self.weights *= self.lazy[0]
        self.lazy = _folded()

    def theta(self) -> Array:
        """Parameters for prediction: the average, if there is one."""
        self.fold()
        averaged = self.counters[1] > 0
        weights = self.average if averaged else self.weights
        intercept = self.average_intercept if averaged else self.intercept
        W = weights.reshape(self.model.n_features, -1)
        return np.vstack([W, intercept]) if self.model.fit_intercept else W.copy()
