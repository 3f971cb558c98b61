"""Implicit steps that remember: the finish for many features, in memory, with an L2 penalty.

One step is one shuffled pass. A row's last contribution is taken back before its implicit step
is solved again, so the steps need no rate and the weights reach the optimum itself; the
duality gap says how far they are from it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from likelier.base import Array, Engine, Inference, Info, Matrix
from likelier.glm.dual_rows import DualRows, dual_rows
from likelier.glm.loops.dual import dual_pass, duality_gap, output_losses, take_labelled
from likelier.glm.model import LinearModel
from likelier.glm.posterior import LinearPosterior
from likelier.loops.lanes import MOST_LANES, WIDTHS, aligned_zeros, padded, tables
from likelier.loops.memory import touched_empty

FIRST_CHECK = 3  # passes before the exact gap, which costs half a pass, is worth computing
NEXT_CHECK = 10  # passes after a check at which the next one is due at the latest
INTERCEPT = 0.1  # how fast it moves, in units of a feature of typical size: all rows share it
KINKED_INTERCEPT = 0.03  # the same where a loss has kinks: rows at one do not slow it down
LANES = max(WIDTHS)  # of a group, or a few more: classes whose rows are visited together
ROUNDING = 1e-9  # of the tolerance: as good as nothing
EARLY = 1.5  # times the tolerance: an erratic gap expected below it is worth computing
LITTLE = 0.1  # of the tolerance: a row that is owed less is left out of the next passes


@dataclass
class _Part:
    """Some outputs (a range of classes) with their weights and duals: work for one thread.

    ``active`` are the rows that are worth another visit. Parts of a group visit the same rows.
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
        """Which of all outputs they are."""
        return slice(self.first_class, self.first_class + len(self.intercept))

    def tables(self, model: LinearModel) -> list[tuple[slice, Array]]:
        """Some of the part's outputs, and their weights with a row for every feature, padded."""
        d, n_outputs = model.n_features, len(self.intercept)
        if model.loss.coupled:  # as many as there are, side by side
            return [(slice(0, n_outputs), self.weights.reshape(d, n_outputs))]
        return tables(self.weights, d, n_outputs)


@dataclass
class DualState:
    """Primal weights and one dual per row and output; updated in place by a step."""

    model: LinearModel
    data: DualRows
    parts: list[_Part]
    share: float  # 1 / (lambda N)
    intercept_rate: float
    n_rows: int
    engine: Engine  # whose threads share the parts
    n_passes: int = 0
    waited: int = 0  # passes since the exact gap was last computed
    ratio: float = 1.0  # of that gap and what the pass before it found to be missing
    owed: float = np.inf  # what that pass found to be missing
    objective: float = np.nan

    @property
    def active(self) -> Array:
        """Whether the next pass visits a row, for every group of outputs."""
        groups: dict[int, Array] = {}
        for part in self.parts:
            groups[part.group] = groups.get(part.group, False) | part.active
        return np.array(list(groups.values()))

    def theta(self) -> Array:
        """Parameters as one matrix."""
        model = self.model
        theta = touched_empty((model.n_outputs, model.n_rows_theta)).T  # as coefficients are stored
        over_parts(self, lambda part: self._write(part, theta))
        return theta

    def _write(self, part: _Part, theta: Array) -> None:
        mine = theta[:, part.outputs]
        for outputs, W in part.tables(self.model):
            out = mine[: len(W), outputs]
            if self.data.label is None:
                out[:] = W[:, : out.shape[1]]
            else:
                take_labelled(W, self.data.label, out)
        if self.model.fit_intercept:
            mine[-1] = part.intercept


def over_parts(state: DualState, work: Callable[[_Part], Any]) -> list[Any]:
    """Every part's work, by the engine's threads; results in the order of the parts."""
    return list(state.engine.each(lambda k: work(state.parts[k]), len(state.parts)))


@dataclass(frozen=True)
class Dual(Inference):
    """Dual coordinate ascent by implicit steps; every feature must have ``l2`` > 0.

    The intercept is not penalised: it is a feature whose penalty is centred anew after each
    pass (the method of multipliers). Cost per pass: nonzeros x outputs, twice; memory 16 bytes
    per row and output, and a copy of a wide sparse matrix (`dual_rows`). Threads share the classes
    of a one-vs-rest problem.
    """

    tol: float = 1e-4
    n_jobs: int = 1

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> DualState:
        """Start from zero, or from the slopes of a smooth loss at ``theta``.

        At an optimum those are its duals: a start near it stays near. (At a kink a slope can be
        anything, so losses with kinks start from zero.)
        """
        assert engine.n_rows is not None
        rates, l2 = _penalties(model)
        data = dual_rows(engine, rates, model.n_outputs, self.n_jobs)
        share = 1.0 / (l2 * engine.n_rows)
        # rows that are all empty have no typical size
        pace = INTERCEPT if model.loss.smooth else KINKED_INTERCEPT
        rate = pace * share * (float(data.norms[data.places].mean()) or 1.0)
        rate *= float(model.fit_intercept)
        parts = _new_parts(model, _borders(model, self.n_jobs), len(data.y))
        state = DualState(model, data, parts, share, rate, engine.n_rows, engine)
        if theta is not None and model.loss.smooth:
            _start_at(state, next(iter(engine.blocks(0))).X, theta)
        return state

    def step(self, state: DualState, engine: Engine) -> tuple[DualState, Info]:
        """Visit what is active once; every thread has its own classes."""
        order = state.data.order(engine, state.n_passes)
        goal = self.tol * abs(state.objective)
        started = state.n_passes >= FIRST_CHECK
        little = _little(state, goal) / state.ratio if started else -1.0
        visited = [order[rows[order]] for rows in state.active]
        owed = sum(over_parts(state, lambda part: _visit(state, part, visited[part.group], little)))
        owed /= state.n_rows
        state.n_passes, state.waited = state.n_passes + 1, state.waited + 1
        near = self._expected(state, owed) <= goal or state.waited >= NEXT_CHECK
        if not (state.n_passes == FIRST_CHECK or (state.n_passes > FIRST_CHECK and near)):
            return state, Info(state.objective, np.inf, 1.0)
        gap = self._check(state)
        if owed > 0.0:
            state.ratio, state.owed = max(1.0, gap / owed), owed
        converged = gap <= self.tol * abs(state.objective)
        return state, Info(state.objective, gap, 1.0, bool(converged))

    @staticmethod
    def _expected(state: DualState, owed: float) -> float:
        """Gap to expect after a pass; with kinks it falls like the root of what steps gain."""
        if state.model.loss.smooth:
            return owed * state.ratio
        return state.ratio * float(np.sqrt(owed * state.owed)) / EARLY

    def _check(self, state: DualState) -> float:
        """Exact objective and gap; what has more than a little part in that is visited again."""
        goal = self.tol * abs(state.objective)
        sums = over_parts(state, lambda part: _gap(state, part, goal))
        state.objective = sum(s[0] for s in sums) / state.n_rows
        state.objective += sum(s[2] for s in sums)
        state.waited = 0
        if goal > 2.0 * self.tol * abs(state.objective):  # what was little then is not any more
            for part in state.parts:
                part.active[:] = True
        return float(sum(s[1] for s in sums)) / state.n_rows

    @staticmethod
    def objectives(state: DualState) -> Array:
        """Exact objective of every output; of all together, if they are coupled.

        Cost: about half a pass. The weights are where a pass has them, in the order of its rows.
        """
        return np.concatenate(over_parts(state, lambda part: _output_objectives(state, part)))

    def posterior(self, state: DualState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta())


def _little(state: DualState, goal: float) -> float:
    """Part of the gap that an output of a row may keep.

    None at all where the loss has kinks: what a dual gains by a step is the square of what it
    contributes to the gap, and only those that are at a bound really stay where they are.
    """
    share = LITTLE if state.model.loss.smooth else ROUNDING
    return share * goal / state.model.n_outputs


def _groups(model: LinearModel) -> list[int]:
    """Where groups of outputs begin and end: as few as can be with enough outputs in each of them.

    The weights of a group stay in the cache more often than those of all classes together. What
    a few classes too many for full groups would cost in one of their own is saved.
    """
    K = model.n_outputs
    if model.loss.coupled:
        return [0, K]
    count = max(K // LANES, -(-K // MOST_LANES))
    return [number * K // count for number in range(count + 1)]


def _borders(model: LinearModel, n_jobs: int) -> list[int]:
    """Where parts of the outputs begin and end: groups, the last ones cut if threads would idle."""
    groups = list(pairwise(_groups(model)))
    rest = 0 if model.loss.coupled else len(groups) % n_jobs  # when every thread has had as many
    borders = [0]
    for number, (a, b) in enumerate(groups):
        pieces = -(-n_jobs // rest) if number >= len(groups) - rest else 1
        borders += np.linspace(a, b, min(pieces, b - a) + 1).astype(int)[1:].tolist()
    return borders


def _new_parts(model: LinearModel, borders: list[int], n_rows: int) -> list[_Part]:
    """One part for the classes between two borders, with all their numbers zero.

    A class is computed the same way whatever its part.
    """
    coupled, K = model.loss.coupled, model.n_outputs
    stretches = list(pairwise(borders))
    groups = [bisect_right(_groups(model), first) - 1 for first, _ in stretches]
    sizes: list[int] = []
    for first, last in stretches:
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
        for group, (first, last) in zip(groups, stretches, strict=True)
    ]  # fmt: skip


def _penalties(model: LinearModel) -> tuple[Array | None, float]:
    """The usual strength, and that over every feature's own, or None if they are all the same."""
    l2 = model.penalty.l2[: model.n_features]
    usual = float(np.partition(l2, len(l2) // 2)[len(l2) // 2])
    return (None if l2.min() == l2.max() else usual / l2), usual


def _start_at(state: DualState, X: Matrix, theta: Array) -> None:
    """Duals and weights that belong to the slopes of the losses at ``theta``."""
    model, K, data = state.model, state.model.n_outputs, state.data
    X, present = X[data.source], data.places
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
    W = np.asarray(X.T @ given, dtype=np.float64) * state.share
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


def _visit(state: DualState, part: _Part, order: Array, little: float) -> float:
    loss, data = state.model.loss, state.data
    if state.n_passes:  # before the pass: what a step leaves behind is what its gap is about
        part.intercept, part.anchor = 2.0 * part.intercept - part.anchor, part.intercept
    return float(
        dual_pass(
            *data.rows, order, data.y - part.first_class, data.weight, data.norms,
            loss.code, loss.parameters, loss.coupled, state.model.classes,
            part.dual, part.points, part.weights, part.intercept,
            state.share, state.intercept_rate, data.rates, little, part.active,
        )
    )  # fmt: skip


def _penalty_values(state: DualState, part: _Part) -> Array:
    """Half the sums of the squared weights times the strengths, in whatever order they are."""
    rates, strength = state.data.rates, 1.0 / (state.share * state.n_rows)
    even = state.model.n_features - (0 if rates is None else len(rates))
    total = np.empty(len(part.intercept))
    for outputs, table in part.tables(state.model):
        W = table[:, : outputs.stop - outputs.start]
        total[outputs] = np.einsum("jk,jk->k", W[:even], W[:even])
        if rates is not None:
            total[outputs] += np.einsum("jk,jk,j->k", W[even:], W[even:], 1.0 / rates)
    return 0.5 * strength * total


def _output_objectives(state: DualState, part: _Part) -> Array:
    loss, data, penalty = state.model.loss, state.data, _penalty_values(state, part)
    total = output_losses(
        *data.rows, data.places, data.y - part.first_class, data.weight,
        loss.code, loss.parameters, loss.coupled, state.model.classes,
        part.weights, part.intercept,
    )  # fmt: skip
    charged = penalty.sum(keepdims=True) if loss.coupled else penalty
    return np.asarray(total / state.n_rows + charged)


def _gap(state: DualState, part: _Part, goal: float) -> tuple[float, float, float]:
    """Summed loss, gap, and penalty; what the intercept's duals do not sum to zero counts as gap.

    An intercept that is still on its way takes all rows with it.
    """
    loss, data = state.model.loss, state.data
    little = _little(state, goal) if np.isfinite(goal) else -1.0
    total, gap = duality_gap(
        *data.rows, data.places, data.y - part.first_class, data.weight,
        loss.code, loss.parameters, loss.coupled, state.model.classes,
        part.dual, part.points, part.weights, part.intercept, little, part.active,
    )  # fmt: skip
    if state.model.fit_intercept:
        drift = (part.intercept - part.anchor) / state.intercept_rate
        owed = np.abs(part.intercept * drift)
        gap += float(owed.sum())
        part.active |= not owed.max() <= LITTLE * goal / state.model.n_outputs * state.n_rows
    return float(total), float(gap), float(_penalty_values(state, part).sum())
