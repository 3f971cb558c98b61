"""Dual coordinate ascent by implicit steps: many features in memory, with an L2 penalty.

A step is one shuffled pass. The last contribution of a row is removed before its implicit step is
solved again, so the steps need no learning rate and the weights converge to the optimum; the
duality gap bounds the distance to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array, Engine, Inference, Info, Matrix
from likelier.glm.dual_rows import DualRows, dual_rows
from likelier.glm.loops.dual import dual_pass, duality_gap, output_losses, take_labelled
from likelier.glm.model import LinearModel
from likelier.glm.posterior import LinearPosterior
from likelier.loops.lanes import MOST_LANES, WIDTHS, aligned_zeros, padded, tables
from likelier.loops.memory import touched_empty

FIRST_CHECK = 3  # passes before the first computation of the exact gap, which costs half a pass
NEXT_CHECK = 10  # maximum number of passes between computations of the exact gap
INTERCEPT = 0.1  # rate of the intercept relative to a typical feature: all rows share it
KINKED_INTERCEPT = 0.03  # for losses with kinks, where rows at a kink do not damp it
GROUP_OUTPUTS = max(WIDTHS)  # of a group, at least: classes with common visits of rows
NEGLIGIBLE = 1e-9  # of the tolerance
EARLY = 1.5  # times the tolerance: an expected gap below triggers a check, for losses with kinks
SHRINK_BELOW = 0.1  # of the tolerance: rows with a smaller part of the gap are skipped


@dataclass
class _Part:
    """A range of outputs with their weights and duals: work for one thread.

    ``active`` marks the rows to visit again. The parts of a group visit the same rows.
    """

    first_class: int
    group: int
    weights: Array
    intercept: Array
    anchor: Array
    dual: Array
    points: Array
    active: Array

    @property
    def outputs(self) -> slice:
        """Their range among all outputs."""
        return slice(self.first_class, self.first_class + len(self.intercept))

    def tables(self, model: LinearModel) -> list[tuple[slice, Array]]:
        """Ranges of the part's outputs with their padded weights, one row per feature."""
        d, n_outputs = model.n_features, len(self.intercept)
        if model.loss.coupled:
            return [(slice(0, n_outputs), self.weights.reshape(d, n_outputs))]
        return tables(self.weights, d, n_outputs)


@dataclass
class DualState:
    """Primal weights and one dual per row and output; updated in place by a step."""

    model: LinearModel
    data: DualRows
    parts: list[_Part]
    scale: float  # 1 / (lambda N)
    intercept_rate: float
    n_rows: int
    engine: Engine  # whose threads run the parts
    n_passes: int = 0
    waited: int = 0  # passes since the last computation of the exact gap
    ratio: float = 1.0  # of that gap to the estimate by the pass before it
    estimate: float = np.inf  # of the gap, by that pass
    objective: float = np.nan

    @property
    def active(self) -> Array:
        """Whether the next pass visits a row, per group of outputs."""
        groups: dict[int, Array] = {}
        for part in self.parts:
            groups[part.group] = groups.get(part.group, False) | part.active
        return np.array(list(groups.values()))

    def theta(self) -> Array:
        """Parameters as one matrix."""
        model = self.model
        theta = touched_empty((model.n_outputs, model.n_rows_theta)).T  # the layout of coef_
        over_parts(self, lambda part: self._write(part, theta))
        return theta

    def _write(self, part: _Part, theta: Array) -> None:
        block = theta[:, part.outputs]
        for outputs, W in part.tables(self.model):
            out = block[: len(W), outputs]
            if self.data.label is None:
                out[:] = W[:, : out.shape[1]]
            else:
                take_labelled(W, self.data.label, out)
        if self.model.fit_intercept:
            block[-1] = part.intercept


def over_parts(state: DualState, work: Callable[[_Part], Any]) -> list[Any]:
    """Apply a function to every part in the engine's threads; results in order."""
    return list(state.engine.each(lambda k: work(state.parts[k]), len(state.parts)))


@dataclass(frozen=True)
class Dual(Inference):
    """Dual coordinate ascent by implicit steps; every feature must have ``l2`` > 0.

    It is ``local_only``: each row is learned with the weights after the one before it.

    The intercept is not penalised: it is a feature with a penalty that is recentred after each pass
    (method of multipliers). Cost per pass: nonzeros x outputs, twice; memory: 16 bytes per row and
    output, and a copy of a wide sparse matrix (`dual_rows`). The classes of a one-vs-rest problem
    are split among threads.
    """

    local_only: ClassVar[bool] = True

    tol: float = 1e-4
    n_jobs: int = 1

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> DualState:
        """Start from zero, or from the derivatives of a smooth loss at ``theta``.

        At an optimum they are the optimal duals, so a start near it stays near. (At a kink the
        subgradient is not unique, so losses with kinks start from zero.)
        """
        assert engine.n_rows is not None
        rates, l2 = _penalties(model)
        data = dual_rows(engine, rates, model.n_outputs, self.n_jobs)
        scale = 1.0 / (l2 * engine.n_rows)
        factor = INTERCEPT if model.loss.smooth else KINKED_INTERCEPT
        # 1.0 if all rows are empty
        rate = factor * scale * (float(data.norms[data.positions].mean()) or 1.0)
        rate *= float(model.fit_intercept)
        parts = _new_parts(model, _part_bounds(model, self.n_jobs), len(data.y))
        state = DualState(model, data, parts, scale, rate, engine.n_rows, engine)
        if theta is not None and model.loss.smooth:
            _start_at(state, engine.draw(1).X, theta)
        return state

    def step(self, state: DualState, engine: Engine) -> tuple[DualState, Info]:
        """Visit the active rows once, every thread for its own classes."""
        order = state.data.order(engine, state.n_passes)
        goal = self.tol * abs(state.objective)
        checked = state.n_passes >= FIRST_CHECK
        threshold = _active_threshold(state, goal) / state.ratio if checked else -1.0
        visited = [order[rows[order]] for rows in state.active]
        estimate = sum(
            over_parts(state, lambda part: _visit(state, part, visited[part.group], threshold))
        )
        estimate /= state.n_rows
        state.n_passes, state.waited = state.n_passes + 1, state.waited + 1
        near = self._expected(state, estimate) <= goal or state.waited >= NEXT_CHECK
        if not (state.n_passes == FIRST_CHECK or (state.n_passes > FIRST_CHECK and near)):
            return state, Info(state.objective, np.inf, 1.0)
        gap = self._check(state)
        if estimate > 0.0:
            state.ratio, state.estimate = max(1.0, gap / estimate), estimate
        converged = gap <= self.tol * abs(state.objective)
        return state, Info(state.objective, gap, 1.0, bool(converged))

    @staticmethod
    def _expected(state: DualState, estimate: float) -> float:
        """Expected gap after a pass; with kinks it falls like the root of the dual gain."""
        if state.model.loss.smooth:
            return estimate * state.ratio
        return state.ratio * float(np.sqrt(estimate * state.estimate)) / EARLY

    def _check(self, state: DualState) -> float:
        """Exact objective and gap; rows with a relevant part of the gap become active."""
        goal = self.tol * abs(state.objective)
        sums = over_parts(state, lambda part: _gap(state, part, goal))
        state.objective = sum(s[0] for s in sums) / state.n_rows
        state.objective += sum(s[2] for s in sums)
        state.waited = 0
        if goal > 2.0 * self.tol * abs(state.objective):  # the threshold was too high
            for part in state.parts:
                part.active[:] = True
        return float(sum(s[1] for s in sums)) / state.n_rows

    @staticmethod
    def objectives(state: DualState) -> Array:
        """Exact objective of every output; of all together, if they are coupled.

        Cost: about half a pass.
        """
        return np.concatenate(over_parts(state, lambda part: _output_objectives(state, part)))

    def posterior(self, state: DualState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta())


def _active_threshold(state: DualState, goal: float) -> float:
    """Part of the gap below which an output of a row is not active.

    Practically zero for losses with kinks: the dual gain of a step is quadratic in its part of the
    gap, and only duals at a bound do not move.
    """
    fraction = SHRINK_BELOW if state.model.loss.smooth else NEGLIGIBLE
    return fraction * goal / state.model.n_outputs


def _groups(model: LinearModel) -> list[int]:
    """Bounds of groups of outputs: as many groups as possible of at least `GROUP_OUTPUTS`.

    The weights of a group fit the cache better than those of all classes. Surplus classes are
    spread over the groups, since a small group costs as much as a full one.
    """
    K = model.n_outputs
    if model.loss.coupled:
        return [0, K]
    count = max(K // GROUP_OUTPUTS, -(-K // MOST_LANES))
    return [number * K // count for number in range(count + 1)]


def _part_bounds(model: LinearModel, n_jobs: int) -> list[int]:
    """Bounds of parts of the outputs: groups, the last ones split if threads would idle."""
    groups = list(pairwise(_groups(model)))
    rest = 0 if model.loss.coupled else len(groups) % n_jobs  # after equal numbers per thread
    bounds = [0]
    for number, (a, b) in enumerate(groups):
        n_splits = -(-n_jobs // rest) if number >= len(groups) - rest else 1
        bounds += np.linspace(a, b, min(n_splits, b - a) + 1).astype(int)[1:].tolist()
    return bounds


def _new_parts(model: LinearModel, bounds: list[int], n_rows: int) -> list[_Part]:
    """Parts for the classes between successive bounds, initialised with zeros.

    The result for a class does not depend on its part.
    """
    coupled, K = model.loss.coupled, model.n_outputs
    ranges = list(pairwise(bounds))
    groups = [bisect_right(_groups(model), first) - 1 for first, _ in ranges]
    sizes: list[int] = []
    for first, last in ranges:
        n_outputs = last - first
        width = n_outputs if coupled or K == 1 else padded(max(2, n_outputs))
        sizes += [model.n_features * width, n_rows * n_outputs, n_rows * n_outputs]
    arrays = iter(aligned_zeros(sizes))
    return [
        _Part(
            first, group, next(arrays), np.zeros(last - first), np.zeros(last - first),
            next(arrays).reshape(n_rows, -1), next(arrays).reshape(n_rows, -1),
            np.ones(n_rows, dtype=bool),
        )
        for group, (first, last) in zip(groups, ranges, strict=True)
    ]  # fmt: skip


def _penalties(model: LinearModel) -> tuple[Array | None, float]:
    """Median strength, and its ratio to that of every feature (None if all are equal)."""
    l2 = model.penalty.l2[: model.n_features]
    median = float(np.partition(l2, len(l2) // 2)[len(l2) // 2])
    return (None if l2.min() == l2.max() else median / l2), median


def _start_at(state: DualState, X: Matrix, theta: Array) -> None:
    """Set duals and weights from the derivatives of the losses at ``theta``."""
    model, K, data = state.model, state.model.n_outputs, state.data
    X, present = X[data.source], data.positions
    scores = model.scores(theta, X)
    weight = data.weight[present] if len(data.weight) else None
    y = data.y[present]
    targets: Array = y
    if model.classes and not model.loss.coupled:
        targets = np.where(y[:, None] == np.arange(K), 1.0, -1.0)
    elif not model.classes:
        targets = y[:, None]
    duals = -model.loss.derivative(targets, scores)
    given = duals if weight is None else duals * weight[:, None]
    W = np.asarray(X.T @ given, dtype=np.float64) * state.scale
    if data.label is not None:
        W = W[np.argsort(data.label)]
    if data.rates is not None:
        W[len(W) - len(data.rates) :] *= data.rates[:, None]
    for part in state.parts:
        outputs = part.outputs
        part.dual[present], part.points[present] = duals[:, outputs], scores[:, outputs]
        for some, table in part.tables(model):
            table[:, : some.stop - some.start] = W[:, outputs][:, some]
        if model.fit_intercept:
            part.intercept[:] = theta[-1, outputs]
            part.anchor[:] = part.intercept - state.intercept_rate * given[:, outputs].sum(axis=0)


def _visit(state: DualState, part: _Part, order: Array, threshold: float) -> float:
    loss, data = state.model.loss, state.data
    if state.n_passes:  # before the pass, so that the gap refers to the state after it
        part.intercept, part.anchor = 2.0 * part.intercept - part.anchor, part.intercept
    return float(
        dual_pass(
            *data.rows, order, data.y - part.first_class, data.weight, data.norms,
            loss.code, loss.parameters, loss.coupled, state.model.classes,
            part.dual, part.points, part.weights, part.intercept,
            state.scale, state.intercept_rate, data.rates, threshold, part.active,
        )
    )  # fmt: skip


def _penalty_values(state: DualState, part: _Part) -> Array:
    """Penalty of every output, from the weights in their stored order."""
    rates, strength = state.data.rates, 1.0 / (state.scale * state.n_rows)
    n_uniform = state.model.n_features - (0 if rates is None else len(rates))
    total = np.empty(len(part.intercept))
    for outputs, table in part.tables(state.model):
        W = table[:, : outputs.stop - outputs.start]
        total[outputs] = np.einsum("jk,jk->k", W[:n_uniform], W[:n_uniform])
        if rates is not None:
            total[outputs] += np.einsum("jk,jk,j->k", W[n_uniform:], W[n_uniform:], 1.0 / rates)
    return 0.5 * strength * total


def _output_objectives(state: DualState, part: _Part) -> Array:
    loss, data, penalty = state.model.loss, state.data, _penalty_values(state, part)
    total = output_losses(
        *data.rows, data.positions, data.y - part.first_class, data.weight,
        loss.code, loss.parameters, loss.coupled, state.model.classes,
        part.weights, part.intercept,
    )  # fmt: skip
    penalties = penalty.sum(keepdims=True) if loss.coupled else penalty
    return np.asarray(total / state.n_rows + penalties)


def _gap(state: DualState, part: _Part, goal: float) -> tuple[float, float, float]:
    """Summed loss, gap, and penalty; the gap includes the residual of the intercept.

    The duals must sum to zero. Until they do, a large residual keeps all rows active.
    """
    loss, data = state.model.loss, state.data
    threshold = _active_threshold(state, goal) if np.isfinite(goal) else -1.0
    total, gap = duality_gap(
        *data.rows, data.positions, data.y - part.first_class, data.weight,
        loss.code, loss.parameters, loss.coupled, state.model.classes,
        part.dual, part.points, part.weights, part.intercept, threshold, part.active,
    )  # fmt: skip
    if state.model.fit_intercept:
        residual = (part.intercept - part.anchor) / state.intercept_rate
        excess = np.abs(part.intercept * residual)
        gap += float(excess.sum())
        limit = SHRINK_BELOW * goal / state.model.n_outputs * state.n_rows
        part.active |= not excess.max() <= limit
    return float(total), float(gap), float(_penalty_values(state, part).sum())
