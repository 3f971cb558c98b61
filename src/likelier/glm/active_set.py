"""L1 penalties on many features: Newton steps by coordinate descent on those that matter.

Every step looks at all rows once for the slopes of all features. Those with a weight, and the
worst of the others that violate the optimality conditions, take part in a Newton step that
coordinate descent finds column by column (Friedman, Hastie, Tibshirani, 2010; Yuan, Ho, Lin,
2012). The intercept is at its best for whatever the weights are.
"""

from __future__ import annotations

import operator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix
from likelier.glm.gap import ROUNDING, TINY, gaps, subgradient, together
from likelier.glm.loops.columns import column_curvatures, descend_columns
from likelier.glm.model import LinearModel
from likelier.glm.posterior import LinearPosterior
from likelier.loops.rows import as_rows

MIN_NEW = 200  # features that may join at one step, or as many as there are already
SHARPER = 0.01  # share of the violation at which a step's own descent may end
MAX_SWEEPS = 200
SURE = 1e-3  # of the largest curvature: what a row counts that has none of its own
MAX_HALVINGS = 30


@dataclass
class ActiveState:
    """The point, scores of every block and slopes there; updated in place."""

    model: LinearModel
    theta: Array
    columns: Columns
    scores: dict[int, Array] = field(default_factory=dict)  # of every block
    bends: dict[int, Array] = field(default_factory=dict)  # curvatures there


@dataclass(frozen=True)
class Slopes:
    """Slopes of the mean loss, their sums over the rows, and the smallest subgradient."""

    mean: Array
    summed: Array
    least: Array


class Columns:
    """Features of the rows that are present, as rows of a matrix of their own."""

    def __init__(self, X: Matrix, present: Array | None) -> None:
        self._rows = present
        self.sparse = sparse.issparse(X)
        self._X: Any = X
        if self.sparse:
            self._X = sparse.csr_array((X if present is None else X[present]).T)
        self._kept: tuple[Array, Array] | None = None

    def take(self, chosen: Array) -> tuple[Any, Array]:
        """`Rows` with the chosen features in it, and where each is."""
        if self.sparse:
            return as_rows(self._X), chosen
        if self._kept is None or not np.array_equal(self._kept[0], chosen):
            some = self._X[:, chosen] if self._rows is None else self._X[:, chosen][self._rows]
            self._kept = (chosen, np.ascontiguousarray(some.T))
        return as_rows(self._kept[1]), np.arange(len(chosen))


@dataclass(frozen=True)
class ActiveSet(Inference):
    """Proximal Newton on an active set. For smooth losses, penalties with L1, data in memory.

    Cost per step: four products with the data, and per sweep of the descent twice the entries of
    the active features. Memory: a copy of sparse data, or of the active features of dense ones.
    Converged when the optimality conditions bound the distance to the optimum (`gap`).
    """

    tol: float = 1e-4
    n_jobs: int = 1  # threads share the outputs

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> ActiveState:
        """Start at ``theta`` or zero."""
        theta = model.zeros() if theta is None else np.array(theta, dtype=np.float64)
        X = next(iter(engine.blocks(0))).X
        return ActiveState(model, theta, Columns(X, getattr(engine, "present", None)))

    def step(self, state: ActiveState, engine: Engine) -> tuple[ActiveState, Info]:
        """Look at all rows; unless the optimum is here, take a Newton step."""
        model, n_rows = state.model, engine.n_rows or 1
        value, slopes = self._look(state, engine)
        above = value - model.floor
        scale = _scale(model, float(above.sum()))
        # that a net is strongly convex would end before the last weights are zero
        gap = float(gaps(model, state.theta, slopes.least, above, strong=False).sum())
        objective = float(value.sum())
        if gap <= self.tol * float(above.sum()):
            return state, Info(objective, gap, 1.0, True)
        direction = self._direction(state, n_rows, slopes, scale)
        step = self._go(state, engine, direction, value, slopes.mean)
        stuck = not np.any(step > 0.0)
        return state, Info(objective, gap, 2.0, False, ROUNDING if stuck else "")

    def _look(self, state: ActiveState, engine: Engine) -> tuple[Array, Slopes]:
        """Objective of each independent problem, and slopes."""
        model, n_rows = state.model, engine.n_rows or 1

        def look(batch: Batch) -> tuple[Array, Array, Array]:
            scores = model.scores(state.theta, batch.X)
            value, slope, curvature = model.terms(batch, scores, 2)
            state.scores[batch.index] = scores  # every block has a place of its own
            state.bends[batch.index] = _curvature(model, batch, curvature)
            return value, model.pull_back(batch.X, slope), slope.sum(axis=0)

        value, gradient, summed = engine.reduce(
            look, lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2])
        )
        value = value / n_rows + together(model, model.penalty.value(state.theta))
        mean = gradient / n_rows
        return value, Slopes(mean, summed / n_rows, subgradient(model, state.theta, mean))

    def _direction(self, state: ActiveState, n_rows: int, slopes: Slopes, scale: Array) -> Array:
        """Newton directions of all outputs, by as many threads as there are."""
        model, d = state.model, state.model.n_features
        ratio = np.abs(slopes.least[:d]) / scale[:, None]
        bends = np.concatenate([state.bends[k] for k in sorted(state.bends)]) / n_rows
        direction = np.zeros_like(state.theta)

        def work(k: int) -> None:
            precision = max(0.1 * self.tol, SHARPER * float(ratio[:, k].max(initial=0.0)))
            chosen = _choose(state.theta[:d, k], ratio[:, k])
            allowed = precision * scale[chosen]
            direction[:, k] = _newton(state, k, chosen, bends[:, k].copy(), slopes, allowed)

        # features of dense data are gathered for one output at a time
        with ThreadPoolExecutor(self.n_jobs if state.columns.sparse else 1) as pool:
            list(pool.map(work, range(model.n_outputs)))
        return direction

    def _go(
        self, state: ActiveState, engine: Engine, direction: Array, value: Array, slopes: Array
    ) -> Array:
        """Halve the step until the objective falls enough, output by output; return the steps."""
        model, theta, n_rows = state.model, state.theta, engine.n_rows or 1
        penalty = model.penalty
        promise = np.einsum("jk,jk->k", slopes, direction)
        promise = together(model, promise + penalty.value(theta + direction))
        promise -= together(model, penalty.value(theta))
        change: dict[int, Array] = {}

        def move(batch: Batch) -> int:
            change[batch.index] = model.scores(direction, batch.X)
            return 1

        engine.reduce(move, operator.add)
        step = np.ones(len(promise))

        def values(batch: Batch) -> Array:
            scores = state.scores[batch.index] + step * change[batch.index]
            return model.terms(batch, scores, 0)[0]

        for _ in range(MAX_HALVINGS):
            total = engine.reduce(values, np.add) / n_rows
            total += together(model, penalty.value(theta + step * direction))
            high = ~(total <= value + 1e-4 * step * promise + 1e-14 * np.abs(value))
            if not high.any():
                break
            step[high] *= 0.5
        else:
            step[high] = 0.0
        state.theta = theta + step * direction
        return step

    def posterior(self, state: ActiveState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta)


def _curvature(model: LinearModel, batch: Batch, curvature: Array) -> Array:
    """Curvature of every row and output, bounded from below where a bound from above exists.

    A row the model is sure of says nothing here but may further on. The Hessian of a coupled loss
    is no larger than twice ``p_k (1 - p_k)`` for each class alone.
    """
    omega = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    top = model.loss.max_curvature
    if model.loss.coupled:
        curvature, top = 2.0 * omega[:, None] * curvature * (1.0 - curvature), 0.5
    if not np.isfinite(top):
        return curvature
    return np.maximum(curvature, SURE * top * omega[:, None])


def _scale(model: LinearModel, above: float) -> Array:
    """Size of a subgradient that leaves as much to gain as the objective is above its floor."""
    d = model.n_features
    l1, l2 = model.penalty.l1[:d], model.penalty.l2[:d]
    return np.maximum(np.maximum(l1, np.sqrt(0.5 * l2 * max(above, 0.0))), TINY)


def _choose(w: Array, ratio: Array) -> Array:
    """Features with a weight, and the worst violators among the others."""
    support = np.flatnonzero(w)
    others = np.flatnonzero((w == 0.0) & (ratio > 0.0))
    room = max(MIN_NEW, len(support))
    if len(others) > room:
        others = others[np.argpartition(-ratio[others], room)[:room]]
    return np.sort(np.concatenate([support, others]))


def _newton(
    state: ActiveState, k: int, chosen: Array, bend: Array, slopes: Slopes, allowed: Array
) -> Array:
    """Direction of one output: features that were not chosen stay."""
    model, summed = state.model, float(slopes.summed[k])
    view, places = state.columns.take(chosen)
    total = float(bend.sum()) if model.fit_intercept else np.inf
    first, second = column_curvatures(*view, places, bend)
    w = state.theta[chosen, k].copy()
    around = slopes.mean[chosen, k] - first * (summed / total)  # the intercept moves along
    shared = descend_columns(
        *view, places, bend, first, second, total, around,
        model.penalty.l2[chosen], model.penalty.l1[chosen], w, allowed, MAX_SWEEPS,
    )  # fmt: skip
    out = np.zeros(len(state.theta))
    out[chosen] = w - state.theta[chosen, k]
    if model.fit_intercept:
        out[-1] = -(summed + shared) / total
    return out
