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
from likelier.glm.interior_parts import (
    Hinges,
    Part,
    PartMove,
    is_done,
    penalty_gap,
    penalty_part,
    rounded,
    shares_of_slopes,
)
from likelier.glm.model import LinearModel
from likelier.glm.penalty import solve_positive
from likelier.glm.posterior import LinearPosterior

BOUNDARY = 0.995  # part of the way to the boundary that a step may go
REFINEMENTS = 2
UNKNOWN = 1e-14  # added to a unit diagonal: rounding must not become a step


@dataclass
class InteriorState:
    """Parameters, and per output the slopes and distances of every row; updated in place.

    ``answer`` are the parameters with exact zeros, ``values`` and ``gaps`` theirs.
    """

    model: LinearModel
    theta: Array
    outputs: list[list[Part]]
    answer: Array
    values: Array
    gaps: Array
    before: Array  # gaps of ``theta``
    done: Array


@dataclass(frozen=True)
class _Move:
    """A direction: of the parameters, and of every part's unknowns."""

    w: Array
    parts: list[PartMove]


@dataclass(frozen=True)
class Interior(Inference):
    """Primal-dual interior point method; rows in memory, any penalty or none.

    Cost per step: rows x (nonzeros per row)^2 / 2 and features^3 / 3 per output. Memory: six
    numbers per row, hinge and output. Converged when the duality gap is below ``tol`` times the
    objective and, with an L1 penalty, the weights that are zero are known.
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
        outputs = []
        for k in range(model.n_outputs):
            target = np.where(y == k, 1.0, -1.0) if model.classes else y
            parts = [Part.started(h, weight, scores[:, k]) for h in _hinges(model.loss, target)]
            kinks = penalty_part(model.penalty.l1, len(y), theta[:, k], _complementarity(parts))
            outputs.append(parts if kinks is None else [*parts, kinks])
        endless = np.full(model.n_outputs, np.inf)
        return InteriorState(
            model, theta, outputs, theta.copy(), endless.copy(), endless.copy(), endless,
            np.zeros(model.n_outputs, dtype=bool),
        )  # fmt: skip

    def step(self, state: InteriorState, engine: Engine) -> tuple[InteriorState, Info]:
        """One step of every output that is not done."""
        scores = all_scores(state.model, engine, state.theta)
        for k in np.flatnonzero(~state.done).tolist():
            state.theta[:, k], f = _advance(state, engine, k, scores[:, k])
            self._judge(state, engine, k, f)
        objective, gap = float(state.values.sum()), float(state.gaps.sum())
        converged = gap <= self.tol * abs(objective)
        if state.model.penalty.sparse:
            converged = bool(state.done.all())
        return state, Info(objective, gap, 1.0, bool(converged))

    def _judge(self, state: InteriorState, engine: Engine, k: int, f: Array) -> None:
        """Objective and gap of an output, with exact zeros where these cost nothing."""
        model, parts, w = state.model, state.outputs[k], state.theta[:, k]
        value, gap = _value_and_gap(model, engine, parts, w, f)
        exact, gap_of_exact = w, gap
        if model.penalty.sparse:
            exact = rounded(parts[-1], w)
            f = all_scores(model, engine, exact[:, None])[:, 0]
            value_of_exact, gap_of_exact = _value_and_gap(model, engine, parts, exact, f)
            if gap_of_exact > max(gap, self.tol * value_of_exact):  # too early to tell
                exact = w
            else:
                value = value_of_exact
        gaps = (gap_of_exact, gap)
        state.done[k] = is_done(self.tol, model.penalty.sparse, gaps, state.before[k], value)
        state.answer[:, k], state.values[k], state.before[k] = exact, value, gap
        state.gaps[k] = gap if exact is w else gap_of_exact

    def posterior(self, state: InteriorState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.answer.copy())


def _hinges(loss: Loss, y: Array) -> list[Hinges]:
    """The hinges a piecewise linear loss is the sum of."""
    one = np.ones(len(y))
    if loss.name == "hinge":
        return [Hinges(one, y, 0.0, 1.0)]
    if loss.name == "quantile":
        tau = float(loss.get_params()["tau"])
        return [Hinges(y, one, tau - 1.0, tau)]
    epsilon = float(loss.get_params()["epsilon"])
    return [Hinges(y - epsilon, one, 0.0, 1.0), Hinges(-y - epsilon, -one, 0.0, 1.0)]


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


def _advance(state: InteriorState, engine: Engine, k: int, f: Array) -> tuple[Array, Array]:
    """Predictor, corrector, and a step that stays inside; returns parameters and scores."""
    model, parts, n = state.model, state.outputs[k], len(f)
    w, ridge = state.theta[:, k], model.penalty.l2.copy()
    curvature = np.zeros(n)
    for part in parts:
        if part.places is None:
            curvature += part.weight / part.stiffness()
        else:
            ridge[part.places] += part.weight / part.stiffness() / n
    gram = engine.reduce(
        lambda batch: model.gram(dense64(batch.X), part_of(batch, curvature)), np.add
    )
    balance = pulled(model, engine, parts, [part.g for part in parts]) - model.penalty.l2 * w
    solve = _Direction(model, engine, f, w, parts, Factored(gram / n, ridge), balance)
    mean = _complementarity(parts)
    ahead = solve(0.0, None)
    reach = _reach(parts, ahead)
    sigma = (_complementarity(parts, ahead, reach) / mean) ** 3
    move = solve(sigma * mean, ahead)
    reach = BOUNDARY * _reach(parts, move)
    for part, change in zip(parts, move.parts, strict=True):
        part.advance(change, reach)
    theta = w + reach * move.w
    return theta, f + reach * solve.scores(move.w)


def pulled(model: LinearModel, engine: Engine, parts: list[Part], values: list[Array]) -> Array:
    """What numbers of every hinge do to the parameters, as slopes would."""
    rows = [(p, x) for p, x in zip(parts, values, strict=True) if p.places is None]
    slope = np.asarray(sum(part.weight * part.hinges.sign * x for part, x in rows))
    out = _pull_back(model, engine, slope)
    for part, x in zip(parts, values, strict=True):
        if part.places is not None:
            out[part.places] += part.weight * x
    return out / len(slope)


def dense64(X: Any) -> Any:
    """Dense rows in float64, so that sums keep their digits; sparse rows as they are."""
    return X.astype(np.float64, copy=False) if isinstance(X, np.ndarray) else X


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
    f: Array
    w: Array
    parts: list[Part]
    system: Factored
    balance: Array

    def __call__(self, target: float, ahead: _Move | None) -> _Move:
        """Solve for all unknowns; ``ahead`` is the predictor whose products are corrected."""
        wanted = [
            part.wanted(_seen(part, self.f, self.w), target, ahead.parts[i] if ahead else None)
            for i, part in enumerate(self.parts)
        ]
        right = [q / part.stiffness() for part, (_, _, q) in zip(self.parts, wanted, strict=True)]
        dw = self.system(self.balance + pulled(self.model, self.engine, self.parts, right))
        df = self.scores(dw)
        pairs = zip(self.parts, wanted, strict=True)
        return _Move(dw, [part.move(some, _seen(part, df, dw)) for part, some in pairs])

    def scores(self, dw: Array) -> Array:
        """Change of every score."""
        return all_scores(self.model, self.engine, dw[:, None])[:, 0]


def _seen(part: Part, f: Array, w: Array) -> Array:
    """The scores of a part's hinges."""
    return f if part.places is None else w[part.places]


def _complementarity(parts: list[Part], move: _Move | None = None, reach: float = 0.0) -> float:
    """Mean complementarity product, here or a step ahead."""
    moves = move.parts if move else [None] * len(parts)
    total = sum(part.products(some, reach) for part, some in zip(parts, moves, strict=True))
    return total / (2.0 * sum(float(part.weight.sum()) for part in parts))


def _reach(parts: list[Part], move: _Move) -> float:
    """Largest part of a move, at most all of it, that leaves every unknown inside."""
    shrinks = [part.shrink(change) for part, change in zip(parts, move.parts, strict=True)]
    return 1.0 / max(1.0, *shrinks)


def _value_and_gap(
    model: LinearModel, engine: Engine, parts: list[Part], w: Array, f: Array
) -> tuple[float, float]:
    """Objective of one output, and a bound of how far it is above the optimum.

    Slopes shrink where they add up to something for the intercept, and where they exceed an L1
    penalty: then they are a point of the dual, and what it has to say is exact.
    """
    rows, n = [part for part in parts if part.places is None], len(f)
    value = sum(part.loss(f) for part in rows) / n + float(model.penalty.value(w[:, None]).sum())
    shares = _balancing(rows) if model.fit_intercept else [np.ones(n) for _ in rows]
    slopes = [share * part.g for share, part in zip(shares, rows, strict=True)]
    pull, gap = pulled(model, engine, rows, slopes), np.inf
    for factor in shares_of_slopes(model.penalty, pull):
        pairs = zip(rows, shares, strict=True)
        left = sum(part.left(f, factor * share) for part, share in pairs) / n
        gap = min(gap, left + penalty_gap(model.penalty, w, factor * pull))
    # no objective is below zero: the whole of it is a bound too
    return value, min(value, gap)


def _balancing(rows: list[Part]) -> list[Array]:
    """Factors of slopes, at most one, that make all of them add up to zero."""
    sums = [part.weight * part.hinges.sign * part.g for part in rows]
    up = sum(float(np.maximum(x, 0.0).sum()) for x in sums)
    down = sum(float(np.maximum(-x, 0.0).sum()) for x in sums)
    least = min(up, down)
    high, low = least / (up or 1.0), least / (down or 1.0)
    return [np.where(x > 0.0, high, low) for x in sums]
