"""Implicit steps that remember: the finish for many features, in memory, with an L2 penalty.

One step is one shuffled pass. A row's last contribution is taken back before its implicit step
is solved again, so the steps need no rate and the weights reach the optimum itself; the
duality gap says how far they are from it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info, Matrix
from likelier.inference.posterior import LinearPosterior
from likelier.loops.dual import dual_pass, duality_gap
from likelier.loops.rows import as_rows, row_norms
from likelier.models.linear import NO_WEIGHT, LinearModel

FIRST_CHECK = 3  # passes before the exact gap, which costs half a pass, is worth computing


@dataclass
class _Part:
    """Some lanes (a range of classes) with their weights and duals; one thread's work."""

    first_class: int
    weights: Array
    intercept: Array
    anchor: Array
    dual: Array
    points: Array


@dataclass
class DualState:
    """Primal weights and one dual per row and lane; updated in place by a step."""

    model: LinearModel
    rows: Any
    rates: Array | None  # one over the penalty of every feature, where they differ
    y: Array
    weight: Array
    norms: Array
    parts: list[_Part]
    share: float  # 1 / (lambda N)
    intercept_rate: float
    n_rows: int
    n_passes: int = 0
    objective: float = np.nan

    def theta(self) -> Array:
        """Parameters as one matrix."""
        d = self.model.n_features
        W = np.hstack([part.weights.reshape(d, -1) for part in self.parts])
        if not self.model.fit_intercept:
            return W
        return np.vstack([W, np.hstack([part.intercept for part in self.parts])])


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
        # as fast as a feature of typical size; rows that are all empty have none
        rate = share * (float(norms[present].mean()) or 1.0) if model.fit_intercept else 0.0
        n_parts = 1 if model.loss.coupled else min(self.n_jobs, model.n_outputs)
        borders = np.linspace(0, model.n_outputs, n_parts + 1).astype(int)
        parts = [_new_part(int(a), int(b - a), X.shape) for a, b in pairwise(borders)]
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        state = DualState(
            model, as_rows(X), rates, batch.y, weight, norms, parts, share, rate, engine.n_rows
        )
        if theta is not None and model.loss.smooth:
            _start_at(state, X, np.sort(present), theta)
        return state

    def step(self, state: DualState, engine: Engine) -> tuple[DualState, Info]:
        """Visit every row once; every thread has its own classes."""
        if state.n_passes:  # before the pass: what a step leaves behind is what its gap is about
            for part in state.parts:
                part.intercept, part.anchor = 2.0 * part.intercept - part.anchor, part.intercept
        batches = list(engine.blocks(state.n_passes))
        order = np.concatenate([_row_numbers(batch) for batch in batches])
        rise = sum(self._over_parts(state, lambda part: _visit(state, part, order)))
        state.n_passes += 1
        gap = np.inf
        little = rise / state.n_rows <= self.tol * abs(state.objective)
        if state.n_passes == FIRST_CHECK or (state.n_passes > FIRST_CHECK and little):
            sums = self._over_parts(state, lambda part: _gap(state, part, order))
            state.objective = sum(s[0] for s in sums) / state.n_rows
            state.objective += float(state.model.penalty.value(state.theta()).sum())
            gap = sum(s[1] for s in sums) / state.n_rows
        converged = gap <= self.tol * abs(state.objective)
        return state, Info(state.objective, gap, 1.0, bool(converged))

    def _over_parts(self, state: DualState, work: Any) -> list[Any]:
        if len(state.parts) == 1:
            return [work(state.parts[0])]
        with ThreadPoolExecutor(len(state.parts)) as pool:
            return list(pool.map(work, state.parts))

    def posterior(self, state: DualState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta())


def _row_numbers(batch: Batch) -> Array:
    if batch.rows is not None:
        return batch.rows
    return np.arange(batch.start, batch.start + batch.n_rows)


def _new_part(first_class: int, n_lanes: int, shape: tuple[int, int]) -> _Part:
    n_rows, d = shape
    return _Part(
        first_class, np.zeros(d * n_lanes), np.zeros(n_lanes), np.zeros(n_lanes),
        np.zeros((n_rows, n_lanes)), np.zeros((n_rows, n_lanes)),
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
    if state.rates is not None:
        W *= state.rates[:, None]
    for part in state.parts:
        lanes = slice(part.first_class, part.first_class + len(part.intercept))
        part.dual[present], part.points[present] = duals[:, lanes], scores[:, lanes]
        part.weights[:] = W[:, lanes].ravel()
        if model.fit_intercept:
            part.intercept[:] = theta[-1, lanes]
            part.anchor[:] = part.intercept - state.intercept_rate * given[:, lanes].sum(axis=0)


def _visit(state: DualState, part: _Part, order: Array) -> float:
    loss = state.model.loss
    return float(
        dual_pass(
            *state.rows, order, state.y - part.first_class, state.weight, state.norms,
            loss.code, loss.parameters, loss.coupled, state.model.classes,
            part.dual, part.points, part.weights, part.intercept,
            state.share, state.intercept_rate, state.rates,
        )
    )  # fmt: skip


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
