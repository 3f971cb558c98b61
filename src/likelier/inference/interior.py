"""Interior point method by sums over rows: the finish for losses with kinks, few features.

A piecewise linear loss is a sum of hinges ``max(low u, high u)`` with ``u = a - b f``, and each
hinge a box for its slope ``g``. With ``v`` and ``s`` the positive and the negative part of ``u``,
the optimum is where ``v (high - g) = 0``, ``s (g - low) = 0``, ``v - s = u`` and the slope of the
penalty balances ``sum_i omega_i b_i g_i x_i / N``. A step is Newton's method on these equations
with zero replaced by a small number (Mehrotra's predictor and corrector): one weighted Gram
matrix, and the number of steps hardly depends on the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack

from likelier.base import Array, Batch, Engine, Inference, Info, Loss
from likelier.inference.posterior import LinearPosterior
from likelier.models.linear import LinearModel
from likelier.models.penalty import solve_positive

BOUNDARY = 0.995  # part of the way to the boundary that a step may go
REFINEMENTS = 2
UNKNOWN = 1e-14  # added to a unit diagonal: rounding must not become a step


@dataclass(frozen=True)
class _Hinges:
    """The hinges of one output, one row each: ``u = a - sign f``; slopes between low and high."""

    a: Array
    sign: Array
    low: float
    high: float


@dataclass
class _Part:
    """One set of hinges with its unknowns.

    The slope is kept as its distances from both ends: the smaller one keeps all its digits.
    """

    hinges: _Hinges
    above: Array
    below: Array
    v: Array
    s: Array

    def rooms(self) -> tuple[Array, Array]:
        """Distances of the slopes from their upper and lower end."""
        return self.above, self.below

    @property
    def g(self) -> Array:
        """The slopes."""
        return self.hinges.low + self.below


@dataclass
class InteriorState:
    """Parameters, and per output the slopes and distances of every row; updated in place."""

    model: LinearModel
    theta: Array
    weight: Array
    lanes: list[list[_Part]]


@dataclass(frozen=True)
class _Move:
    """A direction: of the parameters, and of every part's unknowns."""

    w: Array
    parts: list[tuple[Array, Array, Array]]


@dataclass(frozen=True)
class Interior(Inference):
    """Primal-dual interior point method; rows in memory, ridge penalty or none.

    Cost per step: rows x (nonzeros per row)^2 / 2 and features^3 / 3 per output. Memory: six
    numbers per row, hinge and output. Converged when the duality gap is below ``tol`` times the
    objective.
    """

    tol: float = 1e-4

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> InteriorState:
        """Start at ``theta`` or zero, every slope in the middle of its box."""
        theta = model.zeros() if theta is None else np.array(theta, dtype=np.float64)
        rows = list(engine.map_blocks(lambda batch: (batch.y, batch.weight)))
        y = np.concatenate([part[0] for part in rows]).astype(np.float64)
        weight = np.ones(len(y))
        if rows[0][1] is not None:
            weight = np.concatenate([part[1] for part in rows])
        scores = all_scores(model, engine, theta)
        lanes = []
        for k in range(model.n_outputs):
            target = np.where(y == k, 1.0, -1.0) if model.classes else y
            lanes.append([_start(h, scores[:, k]) for h in _hinges(model.loss, target)])
        return InteriorState(model, theta, weight, lanes)

    def step(self, state: InteriorState, engine: Engine) -> tuple[InteriorState, Info]:
        """One step of every output."""
        scores = all_scores(state.model, engine, state.theta)
        objective = gap = 0.0
        for k, parts in enumerate(state.lanes):
            theta, scores[:, k] = _advance(state, engine, k, parts, scores[:, k])
            state.theta[:, k] = theta
            value, left = _value_and_gap(state, engine, k, parts, scores[:, k])
            objective, gap = objective + value, gap + left
        converged = gap <= self.tol * abs(objective)
        return state, Info(objective, gap, 1.0, bool(converged))

    def posterior(self, state: InteriorState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta.copy())


def _hinges(loss: Loss, y: Array) -> list[_Hinges]:
    """The hinges a piecewise linear loss is the sum of."""
    one = np.ones(len(y))
    if loss.name == "hinge":
        return [_Hinges(one, y, 0.0, 1.0)]
    if loss.name == "quantile":
        tau = float(loss.get_params()["tau"])
        return [_Hinges(y, one, tau - 1.0, tau)]
    epsilon = float(loss.get_params()["epsilon"])
    return [_Hinges(y - epsilon, one, 0.0, 1.0), _Hinges(-y - epsilon, -one, 0.0, 1.0)]


def _start(hinges: _Hinges, f: Array) -> _Part:
    u = hinges.a - hinges.sign * f
    slack = max(float(np.abs(u).mean()), 1e-3)
    half = np.full(len(u), 0.5 * (hinges.high - hinges.low))
    return _Part(hinges, half, half, np.maximum(u, 0.0) + slack, np.maximum(-u, 0.0) + slack)


def all_scores(model: LinearModel, engine: Engine, theta: Array) -> Array:
    """Scores of all rows, one column per column of ``theta``."""
    return np.concatenate(list(engine.map_blocks(lambda batch: model.scores(theta, batch.X))))


def pull_back_all(model: LinearModel, engine: Engine, slope: Array) -> Array:
    """Sum of ``slope_i x_i`` over all rows, one column per column of ``slope``."""
    return engine.reduce(lambda batch: model.pull_back(batch.X, part_of(batch, slope)), np.add)


def _pull_back(model: LinearModel, engine: Engine, slope: Array) -> Array:
    return pull_back_all(model, engine, slope[:, None])[:, 0]


def part_of(batch: Batch, values: Array) -> Array:
    """The part of an array over all rows that belongs to a batch."""
    return values[batch.start : batch.start + batch.n_rows]


def _advance(
    state: InteriorState, engine: Engine, k: int, parts: list[_Part], f: Array
) -> tuple[Array, Array]:
    """Predictor, corrector, and a step that stays inside; returns parameters and scores."""
    model, omega, n = state.model, state.weight, len(f)
    w, l2 = state.theta[:, k], state.model.penalty.l2
    curvature = sum(1.0 / _stiffness(part) for part in parts)
    gram = engine.reduce(
        lambda batch: model.gram(dense64(batch.X), part_of(batch, omega * curvature)), np.add
    )
    balance = _pull_back(model, engine, omega * _slopes(parts)) / n - l2 * w
    solve = _Direction(model, engine, omega, f, parts, Factored(gram / n, l2), balance)
    mean = _complementarity(parts, omega)
    ahead = solve(0.0, None)
    reach = _reach(parts, ahead)
    sigma = (_complementarity(parts, omega, ahead, reach) / mean) ** 3
    move = solve(sigma * mean, ahead)
    reach = BOUNDARY * _reach(parts, move)
    for part, (dg, dv, ds) in zip(parts, move.parts, strict=True):
        part.above, part.below = part.above - reach * dg, part.below + reach * dg
        part.v, part.s = part.v + reach * dv, part.s + reach * ds
    theta = w + reach * move.w
    return theta, f + reach * solve.scores(move.w)


def dense64(X: Any) -> Any:
    """Dense rows in float64, so that sums keep their digits; sparse rows as they are."""
    return X.astype(np.float64, copy=False) if isinstance(X, np.ndarray) else X


def _slopes(parts: list[_Part]) -> Array:
    return np.asarray(sum(part.hinges.sign * part.g for part in parts))


def _stiffness(part: _Part) -> Array:
    above, below = part.rooms()
    return np.asarray(part.v / above + part.s / below)


class Factored:
    """A positive semi-definite system with a ridge, factored once for both solves of a step.

    Near the optimum its condition grows like one over the gap: Cholesky of the matrix scaled to
    a unit diagonal stays useful there, and refinement recovers the digits it loses. Cost:
    n^3 / 3, and n^2 for a solve. The matrix is overwritten.
    """

    def __init__(self, matrix: Array, ridge: Array) -> None:
        diagonal = np.diagonal(matrix) + ridge
        alive = diagonal > 0.0
        self._inverse = alive / np.sqrt(np.where(alive, diagonal, 1.0))
        matrix *= self._inverse
        matrix *= self._inverse[:, None]
        self._matrix = matrix
        np.fill_diagonal(matrix, 1.0 + UNKNOWN)
        # upper triangle of the transpose: LAPACK works on rows as they lie in memory
        self._factor, self._failed = lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=0)
        np.fill_diagonal(matrix, 1.0)

    def __call__(self, right: Array) -> Array:
        """Solve for one right side."""
        right = right * self._inverse
        if self._failed:
            return np.asarray(solve_positive(self._matrix, right) * self._inverse)
        solution = lapack.dpotrs(self._factor, right, lower=0)[0]
        for _ in range(REFINEMENTS):
            rest = right - self._matrix @ solution
            solution += lapack.dpotrs(self._factor, rest, lower=0)[0]
        return np.asarray(solution * self._inverse)


@dataclass(frozen=True)
class _Direction:
    """Newton's direction for a target of the complementarity products."""

    model: LinearModel
    engine: Engine
    omega: Array
    f: Array
    parts: list[_Part]
    system: Factored
    balance: Array

    def __call__(self, target: float, ahead: _Move | None) -> _Move:
        """Solve for all unknowns; ``ahead`` is the predictor whose products are corrected."""
        wanted, right = [], np.zeros(len(self.f))
        for i, part in enumerate(self.parts):
            above, below = part.rooms()
            first, second = target - part.v * above, target - part.s * below
            if ahead is not None:
                dg, dv, ds = ahead.parts[i]
                first, second = first + dg * dv, second - dg * ds
            h = part.hinges
            gap = h.a - h.sign * self.f - part.v + part.s
            q = gap - first / above + second / below
            wanted.append((first, second, q))
            right += h.sign * q / _stiffness(part)
        pull = _pull_back(self.model, self.engine, self.omega * right) / len(self.f)
        dw = self.system(self.balance + pull)
        df, moves = self.scores(dw), []
        for part, (first, second, q) in zip(self.parts, wanted, strict=True):
            above, below = part.rooms()
            dg = (q - part.hinges.sign * df) / _stiffness(part)
            moves.append((dg, (first + part.v * dg) / above, (second - part.s * dg) / below))
        return _Move(dw, moves)

    def scores(self, dw: Array) -> Array:
        """Change of every score."""
        return all_scores(self.model, self.engine, dw[:, None])[:, 0]


def _complementarity(
    parts: list[_Part], omega: Array, move: _Move | None = None, reach: float = 0.0
) -> float:
    """Mean complementarity product, here or a step ahead."""
    total = 0.0
    for i, part in enumerate(parts):
        above, below = part.rooms()
        v, s = part.v, part.s
        if move is not None:
            dg, dv, ds = (reach * d for d in move.parts[i])
            above, below, v, s = above - dg, below + dg, v + dv, s + ds
        total += float(omega @ (v * above + s * below))
    return total / (2.0 * len(parts) * float(omega.sum()))


def _reach(parts: list[_Part], move: _Move) -> float:
    """Largest part of a move, at most all of it, that leaves every unknown inside."""
    longest = 1.0
    for part, (dg, dv, ds) in zip(parts, move.parts, strict=True):
        above, below = part.rooms()
        for room, change in ((above, -dg), (below, dg), (part.v, dv), (part.s, ds)):
            shrink = float((-change / room).max())
            if shrink > 0.0:
                longest = min(longest, 1.0 / shrink)
    return longest


def _value_and_gap(
    state: InteriorState, engine: Engine, k: int, parts: list[_Part], f: Array
) -> tuple[float, float]:
    """Objective of one output, and how far it is above the dual one.

    Where the slopes do not balance the penalty, half the square of what is missing over the
    strength is exactly what that adds to the gap; for a parameter without a penalty there is no
    dual value until they balance, and what is missing times the parameter stands in for it.
    """
    model, omega, n, w = state.model, state.weight, len(f), state.theta[:, k]
    value = gap = 0.0
    for part in parts:
        u = part.hinges.a - part.hinges.sign * f
        # loss - g u, without cancellation
        gap += float(omega @ np.where(u > 0.0, part.above * u, -part.below * u)) / n
        value += float(omega @ np.maximum(part.hinges.low * u, part.hinges.high * u)) / n
    l2 = model.penalty.l2
    balance = _pull_back(model, engine, omega * _slopes(parts)) / n - l2 * w
    missing = np.abs(balance * w)
    np.divide(balance * balance, 2.0 * l2, out=missing, where=l2 > 0.0)
    value += float(model.penalty.value(w[:, None]).sum())
    # no objective is below zero: the whole of it is a bound too
    return value, min(value, gap + float(missing.sum()))
