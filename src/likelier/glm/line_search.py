"""Steps along a direction: scores that stay with the rows, and a backtracking line search.

A step is one pass where the full length will do: the change of the scores, objective and gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from likelier.base import Array, Batch, Engine, RowValues
from likelier.glm.gap import per_problem
from likelier.glm.model import LinearModel

BACKTRACK = 0.4
TRIALS = 4  # step lengths tried per pass
MAX_TRIALS = 20


@dataclass(frozen=True)
class Scores:
    """Scores of the rows of a block; the state of the pass are the parameters."""

    model: LinearModel

    def __call__(self, batch: Batch, theta: Array) -> Array:
        return self.model.scores(theta, batch.X)


def advance(batch: Batch, scores: Array, change: Array, step: Array) -> Array:
    """Scores after a step."""
    return np.asarray(scores + step * change)


@dataclass(frozen=True)
class GradientAt:
    """Summed loss per output and its gradient at the scores."""

    model: LinearModel

    def __call__(self, batch: Batch, scores: Array) -> tuple[Array, Array]:
        value, derivative, _ = self.model.terms(batch, scores, 1)
        return value, self.model.pull_back(batch.X, derivative)


@dataclass(frozen=True)
class GradientAfter:
    """Summed loss per output and its gradient after a step."""

    model: LinearModel

    def __call__(
        self, batch: Batch, scores: Array, change: Array, step: Array
    ) -> tuple[Array, Array]:
        return GradientAt(self.model)(batch, scores + step * change)


@dataclass(frozen=True)
class ValuesAfter:
    """Summed losses per output after several steps, one row per step."""

    model: LinearModel

    def __call__(self, batch: Batch, scores: Array, change: Array, steps: Array) -> Array:
        points = (scores + step * change for step in steps)
        return np.stack([self.model.terms(batch, point, 0)[0] for point in points])


@dataclass(frozen=True)
class Point:
    """Parameters, the objective of every problem, the gradient of the mean loss, and the scores."""

    theta: Array
    value: Array
    gradient: Array
    scores: RowValues


def point_at(model: LinearModel, engine: Engine, theta: Array, scores: RowValues) -> Point:
    """Objective and gradient at the parameters that the scores belong to; a pass."""
    sums = engine.reduce(GradientAt(model), _add_pairs, scores)
    return _point(model, engine, theta, scores, sums)


def search(
    model: LinearModel, engine: Engine, start: Point, direction: Array, descent: Array
) -> tuple[Point, Array]:
    """The point after a backtracking line search, and the step length of every problem.

    ``descent`` is the change of the objective that a full step would make, were it linear.
    """
    change = engine.map_rows(Scores(model), state=direction)

    def after(step: Array) -> Point:
        state = _per_output(model, step)
        sums = engine.reduce(GradientAfter(model), _add_pairs, start.scores, change, state=state)
        scores = engine.map_rows(advance, start.scores, change, state=state)
        return _point(model, engine, start.theta + step * direction, scores, sums)

    step = np.ones(len(descent))
    found = after(step)
    if not _sufficient_decrease(start, found.value, step, descent).all():
        step = _backtrack(model, engine, start, (direction, change, descent), found.value)
        found = after(step)
    return found, step


def _point(
    model: LinearModel, engine: Engine, theta: Array, scores: RowValues, sums: tuple[Array, Array]
) -> Point:
    """A point, from sums over the rows."""
    assert engine.n_rows is not None
    value = sums[0] / engine.n_rows + per_problem(model, model.penalty.value(theta))
    return Point(theta, value, sums[1] / engine.n_rows, scores)


def _backtrack(
    model: LinearModel,
    engine: Engine,
    start: Point,
    along: tuple[Array, RowValues, Array],
    value: Array,
) -> Array:
    """Shorter steps for the problems whose objective ``value`` after a full step is too high.

    Several lengths are tried per pass, which may be expensive on a remote engine.
    """
    direction, change, descent = along
    assert engine.n_rows is not None
    step = np.ones(len(descent))
    too_high = ~_sufficient_decrease(start, value, step, descent)
    for first in range(1, MAX_TRIALS, TRIALS):
        lengths = BACKTRACK ** np.arange(first, first + TRIALS)
        tried = np.where(too_high, lengths[:, None], step)
        sums = engine.reduce(
            ValuesAfter(model), np.add, start.scores, change, state=_per_output(model, tried)
        )
        for length, total in zip(tried, sums / engine.n_rows, strict=True):
            penalty = model.penalty.value(start.theta + length * direction)
            found = total + per_problem(model, penalty)
            step = np.where(too_high, length, step)
            too_high = too_high & ~_sufficient_decrease(start, found, length, descent)
            if not too_high.any():
                return step
    return np.where(too_high, 0.0, step)


def _sufficient_decrease(start: Point, value: Array, step: Array, descent: Array) -> Array:
    """Whether each problem satisfies the Armijo condition, up to rounding errors."""
    rounding = 1e-14 * np.abs(start.value)
    return np.asarray(value <= start.value + 1e-4 * step * descent + rounding)


def _per_output(model: LinearModel, steps: Array) -> Array:
    """Step lengths of outputs, from those of independent problems."""
    return np.broadcast_to(steps, (*steps.shape[:-1], model.n_outputs)).copy()


def _add_pairs(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    return one[0] + other[0], one[1] + other[1]
