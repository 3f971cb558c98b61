"""Where stochastic passes at a chosen rate have come to, and the mean of their iterates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from likelier.base import Array, Matrix
from likelier.glm.loops.averages import add_owed
from likelier.glm.model import LinearModel


def _folded() -> Array:
    return np.array([1.0, 0.0])


@dataclass
class SGDState:
    """Weights (features x outputs, as a vector), intercepts, and the means of all they have been.

    During a pass the means are sums, and both lack something (`scheduled_pass`); then `fold`.
    """

    model: LinearModel
    weights: Array
    intercept: Array
    average: Array
    average_intercept: Array
    clock: Array  # steps taken, iterates averaged
    n_passes: int = 0
    progressive: float = math.inf
    waited: int = 0
    norms: tuple[Matrix, Array] | None = None
    lazy: Array = field(default_factory=_folded)  # what the weights and the sums still lack
    summing: bool = False

    def sum_up(self) -> None:
        """Make sums of the means, to add to."""
        if not self.summing:
            self.average *= self.clock[1]
            self.average_intercept *= self.clock[1]
            self.summing = True

    def fold(self) -> None:
        """Give weights and sums what they lack, and make means of the sums: all can be read."""
        if self.summing:
            add_owed(self.weights, self.average, self.lazy[1])
            self.average /= max(1, self.clock[1])
            self.average_intercept /= max(1, self.clock[1])
            self.summing = False
        if self.lazy[0] != 1.0:
            self.weights *= self.lazy[0]
        self.lazy = _folded()

    def theta(self) -> Array:
        """Parameters to predict with: the average once there is one."""
        self.fold()
        averaged = self.clock[1] > 0
        weights = self.average if averaged else self.weights
        intercept = self.average_intercept if averaged else self.intercept
        W = weights.reshape(self.model.n_features, -1)
        return np.vstack([W, intercept]) if self.model.fit_intercept else W.copy()
