"""Implicit steps that remember: the finish for many features, in memory, with an L2 penalty.

One step is one shuffled pass. A row's last contribution is taken back before its implicit step
is solved again, so the steps need no rate and the weights reach the optimum itself; the
duality gap says how far they are from it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix
from likelier.inference.posterior import LinearPosterior
from likelier.loops.dual import dual_pass, duality_gap, take_labelled
from likelier.loops.rows import as_rows, row_norms
from likelier.models.linear import NO_WEIGHT, LinearModel

FIRST_CHECK = 3  # passes before the exact gap, which costs half a pass, is worth computing
NEXT_CHECK = 10  # passes after a check at which the next one is due at the latest
INTERCEPT = 0.1  # how fast it moves, in units of a feature of typical size: all rows share it
CACHED_BYTES = 1 << 18  # weights up to this size stay in the cache whatever their order
LITTLE = 0.1  # of the tolerance: a row that is owed less is left out of the next passes


@dataclass
class _Part:
    """Some lanes (a range of classes) with their weights and duals; one thread's work.

    ``active`` are the rows whose last visit changed something in these lanes.
    """

    first_class: int
    weights: Array
    intercept: Array
    anchor: Array
    dual: Array
    points: Array
    active: Array


@dataclass
class DualState:
    """Primal weights and one dual per row and lane; updated in place by a step."""

    model: LinearModel
    rows: Any
    rates: Array | None  # one over the penalty of every feature, where they differ
    label: Array | None  # where each feature's weights are stored, if not in the order of columns
    y: Array
    weight: Array
    norms: Array
    parts: list[_Part]
    share: float  # 1 / (lambda N)
    intercept_rate: float
    n_rows: int
    active: Array  # rows that the next pass visits
    n_passes: int = 0
    waited: int = 0  # passes since the exact gap was last computed
    ratio: float = 1.0  # of that gap and what the pass before it found to be missing
    objective: float = np.nan

    def theta(self) -> Array:
        """Parameters as one matrix."""
        model = self.model
        theta = np.empty((model.n_rows_theta, model.n_outputs))
        over_parts(self, lambda part: self._write(part, theta))
        return theta

    def _write(self, part: _Part, theta: Array) -> None:
        W = part.weights.reshape(self.model.n_features, -1)
        lanes = slice(part.first_class, part.first_class + W.shape[1])
        if self.label is None:
            theta[: len(W), lanes] = W
        else:
            take_labelled(W, self.label, theta[: len(W), lanes])
        if self.model.fit_intercept:
            theta[-1, lanes] = part.intercept


def over_parts(state: DualState, work: Callable[[_Part], Any]) -> list[Any]:
    """Every part's work in a thread of its own."""
    if len(state.parts) == 1:
        return [work(state.parts[0])]
    with ThreadPoolExecutor(len(state.parts)) as pool:
        return list(pool.map(work, state.parts))


@dataclass(frozen=True)
class Dual(Inference):
    """Dual coordinate ascent by implicit steps; every feature must have ``l2`` > 0.

    The intercept is not penalised: it is a feature whose penalty is centred anew after each
    pass (the method of multipliers). Cost per pass: nonzeros x lanes, twice; memory 16 bytes
    per row and lane. Threads share the classes of a one-vs-rest problem.
    """

    tol: float = 1e-4
    n_jobs: int = 1

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> DualState:
        """Start from zero, or from the slopes of a smooth loss at ``theta``.

        At an optimum those are its duals: a start near it stays near. (At a kink a slope can be
        anything, so losses with kinks start from zero.)
        """
        batches = list(engine.blocks(0))
        batch, present = batches[0], np.concatenate([_row_numbers(b) for b in batches])
        assert batch.y is not None and engine.n_rows is not None
        X, (rates, l2) = batch.X, _penalties(model)
        norms = row_norms(X, rates)
        share = 1.0 / (l2 * engine.n_rows)
        # rows that are all empty have no typical size
        rate = INTERCEPT * share * (float(norms[present].mean()) or 1.0)
        rate *= float(model.fit_intercept)
        label = _labels(X, model.n_outputs)
        n_parts = 1 if model.loss.coupled else min(self.n_jobs, model.n_outputs)
        borders = np.linspace(0, model.n_outputs, n_parts + 1).astype(int)
        parts = [_new_part(int(a), int(b - a), X.shape) for a, b in pairwise(borders)]
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        rows = as_rows(X)
        if label is not None:
            rows = rows._replace(indices=label[rows.indices])
            rates = None if rates is None else rates[np.argsort(label)]
        state = DualState(
            model, rows, rates, label, batch.y, weight, norms, parts, share, rate, engine.n_rows,
            np.ones(X.shape[0], dtype=bool),
        )  # fmt: skip
        if theta is not None and model.loss.smooth:
            _start_at(state, X, np.sort(present), theta)
        return state

    def step(self, state: DualState, engine: Engine) -> tuple[DualState, Info]:
        """Visit the active rows once; every thread has its own classes."""
        order = np.concatenate([_row_numbers(batch) for batch in engine.blocks(state.n_passes)])
        goal = self.tol * abs(state.objective)
        started = state.n_passes >= FIRST_CHECK and state.waited > 0
        little = LITTLE * goal / (state.ratio * state.model.n_outputs) if started else -1.0
        visited = order[state.active[order]]
        owed = sum(over_parts(state, lambda part: _visit(state, part, visited, little)))
        owed /= state.n_rows
        state.active = np.logical_or.reduce([part.active for part in state.parts])
        state.n_passes, state.waited = state.n_passes + 1, state.waited + 1
        near = owed * state.ratio <= goal or state.waited >= NEXT_CHECK
        if not (state.n_passes == FIRST_CHECK or (state.n_passes > FIRST_CHECK and near)):
            return state, Info(state.objective, np.inf, 1.0)
        gap = self._check(state, order)
        state.ratio = max(1.0, gap / owed) if owed > 0.0 else state.ratio
        converged = gap <= self.tol * abs(state.objective)
        return state, Info(state.objective, gap, 1.0, bool(converged))

    def _check(self, state: DualState, order: Array) -> float:
        """Exact objective and gap of all rows, which are then all visited again."""
        sums = over_parts(state, lambda part: _gap(state, part, order))
        state.objective = sum(s[0] for s in sums) / state.n_rows
        state.objective += sum(_penalty_value(state, part) for part in state.parts)
        state.waited = 0
        state.active[:] = True
        return float(sum(s[1] for s in sums)) / state.n_rows

    def posterior(self, state: DualState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta())


def _row_numbers(batch: Batch) -> Array:
    if batch.rows is not None:
        return batch.rows
    return np.arange(batch.start, batch.start + batch.n_rows)


def _labels(X: Matrix, n_lanes: int) -> Array | None:
    """New numbers for the columns of a wide sparse matrix: the most frequent come first.

    Few columns hold most of the entries of a text; side by side their weights stay in the cache.
    """
    if not sparse.issparse(X) or X.shape[1] * n_lanes * 8 <= CACHED_BYTES:
        return None
    often = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")
    label = np.empty(len(often), dtype=np.uint32 if X.indices.dtype.itemsize == 4 else np.uint64)
    label[often] = np.arange(len(often))
    return label


def _new_part(first_class: int, n_lanes: int, shape: tuple[int, int]) -> _Part:
    n_rows, d = shape
    return _Part(
        first_class, np.zeros(d * n_lanes), np.zeros(n_lanes), np.zeros(n_lanes),
        np.zeros((n_rows, n_lanes)), np.zeros((n_rows, n_lanes)), np.ones(n_rows, dtype=bool),
    )  # fmt: skip


def _penalties(model: LinearModel) -> tuple[Array | None, float]:
    """One over every feature's penalty with strength 1, or None with the strength of all."""
    l2 = model.penalty.l2[: model.n_features]
    return (None, float(l2[0])) if l2.min() == l2.max() else (1.0 / l2, 1.0)


def _start_at(state: DualState, X: Matrix, present: Array, theta: Array) -> None:
    """Duals and weights that belong to the slopes of the losses at ``theta``."""
    model, K = state.model, state.model.n_outputs
    scores = model.scores(theta, X[present])
    weight = state.weight[present] if len(state.weight) else None
    y = state.y[present]
    targets: Array = y
    if model.classes and not model.loss.coupled:
        targets = np.where(y[:, None] == np.arange(K), 1.0, -1.0)
    elif not model.classes:
        targets = y[:, None]
    duals = -model.loss.slope(targets, scores)
    given = duals if weight is None else duals * weight[:, None]
    W = np.asarray(X[present].T @ given, dtype=np.float64) * state.share
    if state.label is not None:
        W = W[np.argsort(state.label)]
    if state.rates is not None:
        W *= state.rates[:, None]
    for part in state.parts:
        lanes = slice(part.first_class, part.first_class + len(part.intercept))
        part.dual[present], part.points[present] = duals[:, lanes], scores[:, lanes]
        part.weights[:] = W[:, lanes].ravel()
        if model.fit_intercept:
            part.intercept[:] = theta[-1, lanes]
            part.anchor[:] = part.intercept - state.intercept_rate * given[:, lanes].sum(axis=0)


def _visit(state: DualState, part: _Part, order: Array, little: float) -> float:
    loss = state.model.loss
    if state.n_passes:  # before the pass: what a step leaves behind is what its gap is about
        part.intercept, part.anchor = 2.0 * part.intercept - part.anchor, part.intercept
    return float(
        dual_pass(
            *state.rows, order, state.y - part.first_class, state.weight, state.norms,
            loss.code, loss.parameters, loss.coupled, state.model.classes,
            part.dual, part.points, part.weights, part.intercept,
            state.share, state.intercept_rate, state.rates, little, part.active,
        )
    )  # fmt: skip


def _penalty_value(state: DualState, part: _Part) -> float:
    """Half the sum of the squared weights times the strengths, in whatever order they are."""
    w = part.weights
    if state.rates is None:
        return 0.5 / (state.share * state.n_rows) * float(w @ w)
    W = w.reshape(state.model.n_features, -1)
    return 0.5 * float(np.einsum("jk,jk->j", W, W) @ (1.0 / state.rates))


def _gap(state: DualState, part: _Part, order: Array) -> tuple[float, float]:
    """Summed loss and gap; what the intercept's duals do not sum to zero counts as gap."""
    loss = state.model.loss
    total, gap = duality_gap(
        *state.rows, order, state.y - part.first_class, state.weight,
        loss.code, loss.parameters, loss.coupled, state.model.classes,
        part.dual, part.points, part.weights, part.intercept,
    )  # fmt: skip
    if state.model.fit_intercept:
        drift = (part.intercept - part.anchor) / state.intercept_rate
        gap += float(np.abs(part.intercept * drift).sum())
    return float(total), float(gap)
