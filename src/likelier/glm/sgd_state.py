"""States of SGD: the iterate and its running mean, at a given rate or with rates of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from likelier.base import Array, Matrix
from likelier.glm.loops.averages import add_pending
from likelier.glm.model import LinearModel

State = TypeVar("State", "SGDState", "AdaptiveState")


def copied(state: State) -> State:
    """The same State in arrays of its own, which a step may write into."""
    values = {item.name: getattr(state, item.name) for item in fields(state)}
    arrays: Any = {name: a.copy() for name, a in values.items() if isinstance(a, np.ndarray)}
    return replace(state, **arrays)


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
    norms: tuple[Matrix, Array] | None = field(default=None, metadata={"checkpoint": False})
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


@dataclass
class AdaptiveState:
    """State with one group of outputs per global rate, and column statistics for the rates."""

    model: LinearModel
    weights: Array
    intercept: Array
    average: Array
    average_intercept: Array
    etas: Array  # one per output
    sums: Array  # sum of x_j
    squares: Array  # sum of x_j^2
    counts: Array  # nonzeros of x_j
    seen: Array
    elapsed: Array
    counters: Array  # rows learned, averages taken
    group_loss: Array = field(default_factory=lambda: np.zeros(1))
    n_passes: int = 0
    progressive: float = math.inf
    waited: int = 0

    @property
    def n_groups(self) -> int:
        """Number of global rates that are still running."""
        return len(self.intercept) // self.model.n_outputs

    def move_origin(self, shift: Array) -> None:
        """Move the origin of the features by ``shift``; intercepts are scores at the origin."""
        with np.errstate(over="ignore", invalid="ignore"):  # some rates may diverge
            self.intercept += shift @ self.weights.reshape(self.model.n_features, -1)

    def best_group(self) -> int:
        """Group of the smallest progressive loss, ignoring diverged ones."""
        return int(np.argmin(np.where(np.isfinite(self.group_loss), self.group_loss, np.inf)))

    def theta(self, group: int | None = None) -> Array:
        """Averaged parameters of a group, by default of the best."""
        K, best = self.model.n_outputs, self.best_group() if group is None else group
        outputs = slice(best * K, (best + 1) * K)
        W = self.average.reshape(self.model.n_features, -1)[:, outputs]
        if self.model.fit_intercept:
            return np.vstack([W, self.average_intercept[outputs]])
        return W.copy()  # the next pass modifies the original
