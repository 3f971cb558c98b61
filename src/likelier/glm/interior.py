"""Interior point method by sums over rows, for losses with kinks and few features.

A piecewise linear loss is a sum of hinges ``max(low u, high u)`` with ``u = a - b f``, each with a
dual variable ``g`` in ``[low, high]``. With ``v`` and ``s`` the positive and the negative part of
``u``, the optimality conditions are ``v (high - g) = 0``, ``s (g - low) = 0``, ``v - s = u``, and
that the gradient of the penalty equals ``sum_i omega_i b_i g_i x_i / N``. A step is Mehrotra's
predictor-corrector method with one weighted Gram matrix; the number of steps hardly depends on the
data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import lapack

from likelier.base import Array, Batch, Engine, Inference, Info, Loss
from likelier.glm.interior_parts import (
    Hinges,
    Part,
    PartMove,
    dual_scales,
    is_done,
    penalty_gap,
    penalty_part,
    with_exact_zeros,
)
from likelier.glm.model import LinearModel
from likelier.glm.penalty import solve_positive
from likelier.glm.posterior import LinearPosterior

BOUNDARY = 0.995  # fraction of the distance to the boundary that a step may cover
REFINEMENTS = 2
REGULARISATION = 1e-14  # of the unit diagonal, against rounding errors


@dataclass
class InteriorState:
    """Parameters, and the hinges of every output; updated in place.

    ``solution`` are the parameters with exact zeros, ``values`` and ``gaps`` refer to them.
    """

    model: LinearModel
    theta: Array
    outputs: list[list[Part]]
    solution: Array
    values: Array
    gaps: Array
    previous_gaps: Array  # of ``theta``
    done: Array


@dataclass(frozen=True)
class _Move:
    """A direction of the parameters, and of the variables of every part."""

    w: Array
    parts: list[PartMove]


@dataclass(frozen=True)
class Interior(Inference):
    """Primal-dual interior point method for any penalty or none.

    It is ``local_only``: every row has dual variables that all steps so far have moved, and that
    nothing could make again where they are lost.

    Cost per step: rows x (nonzeros per row)^2 / 2 and features^3 / 3 per output. Memory: six
    numbers per row, hinge and output. Converged when the duality gap is below ``tol`` times the
    objective and, with an L1 penalty, the zero weights are identified.
    """

    local_only: ClassVar[bool] = True

    tol: float = 1e-4

    def init(self, model: LinearModel, engine: Engine, theta: Array | None = None) -> InteriorState:
        """Start at ``theta`` or zero, every dual variable in the middle of its interval."""
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
            parts = [Part.initial(h, weight, scores[:, k]) for h in _hinges(model.loss, target)]
            kinks = penalty_part(model.penalty.l1, len(y), theta[:, k], _complementarity(parts))
            outputs.append(parts if kinks is None else [*parts, kinks])
        infinite = np.full(model.n_outputs, np.inf)
        return InteriorState(
            model, theta, outputs, theta.copy(), infinite.copy(), infinite.copy(), infinite,
            np.zeros(model.n_outputs, dtype=bool),
        )  # fmt: skip

    def step(self, state: InteriorState, engine: Engine) -> tuple[InteriorState, Info]:
        """One step of every output that has not converged."""
        scores = all_scores(state.model, engine, state.theta)
        for k in np.flatnonzero(~state.done).tolist():
            state.theta[:, k], f = _advance(state, engine, k, scores[:, k])
            self._evaluate(state, engine, k, f)
        objective, gap = float(state.values.sum()), float(state.gaps.sum())
        converged = gap <= self.tol * abs(objective)
        if state.model.penalty.sparse:
            converged = bool(state.done.all())
        return state, Info(objective, gap, 1.0, bool(converged))

    def _evaluate(self, state: InteriorState, engine: Engine, k: int, f: Array) -> None:
        """Objective and gap of an output, with exact zeros if these do not increase the gap."""
        model, parts, w = state.model, state.outputs[k], state.theta[:, k]
        value, gap = _value_and_gap(model, engine, parts, w, f)
        exact, gap_of_exact = w, gap
        if model.penalty.sparse:
            exact = with_exact_zeros(parts[-1], w)
            f = all_scores(model, engine, exact[:, None])[:, 0]
            value_of_exact, gap_of_exact = _value_and_gap(model, engine, parts, exact, f)
            if gap_of_exact > max(gap, self.tol * value_of_exact):  # too early
                exact = w
            else:
                value = value_of_exact
        gaps = (gap_of_exact, gap)
        state.done[k] = is_done(self.tol, model.penalty.sparse, gaps, state.previous_gaps[k], value)
        state.solution[:, k], state.values[k], state.previous_gaps[k] = exact, value, gap
        state.gaps[k] = gap if exact is w else gap_of_exact

    def posterior(self, state: InteriorState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.solution.copy())


def _hinges(loss: Loss, y: Array) -> list[Hinges]:
    """The hinges whose sum is a piecewise linear loss."""
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


def pull_back_all(model: LinearModel, engine: Engine, weights: Array) -> Array:
    """Sum of ``weights_i x_i`` over all rows, one column per column of ``weights``."""
    return engine.reduce(lambda batch: model.pull_back(batch.X, batch_part(batch, weights)), np.add)


def _pull_back(model: LinearModel, engine: Engine, weights: Array) -> Array:
    return pull_back_all(model, engine, weights[:, None])[:, 0]


def batch_part(batch: Batch, values: Array) -> Array:
    """The entries of a batch in an array over all rows."""
    return values[batch.start : batch.start + batch.n_rows]


def _advance(state: InteriorState, engine: Engine, k: int, f: Array) -> tuple[Array, Array]:
    """Predictor, corrector, and a step in the interior; returns parameters and scores."""
    model, parts, n = state.model, state.outputs[k], len(f)
    w, ridge = state.theta[:, k], model.penalty.l2.copy()
    curvature = np.zeros(n)
    for part in parts:
        if part.positions is None:
            curvature += part.weight / part.stiffness()
        else:
            ridge[part.positions] += part.weight / part.stiffness() / n
    gram = engine.reduce(
        lambda batch: model.gram(dense64(batch.X), batch_part(batch, curvature)), np.add
    )
    balance = dual_gradient(model, engine, parts, [part.g for part in parts]) - model.penalty.l2 * w
    solve = _Direction(model, engine, f, w, parts, Factored(gram / n, ridge), balance)
    mean = _complementarity(parts)
    predictor = solve(0.0, None)
    step = _max_step(parts, predictor)
    sigma = (_complementarity(parts, predictor, step) / mean) ** 3
    corrector = solve(sigma * mean, predictor)
    step = BOUNDARY * _max_step(parts, corrector)
    for part, change in zip(parts, corrector.parts, strict=True):
        part.advance(change, step)
    theta = w + step * corrector.w
    return theta, f + step * solve.scores(corrector.w)


def dual_gradient(
    model: LinearModel, engine: Engine, parts: list[Part], values: list[Array]
) -> Array:
    """Gradient with respect to the parameters for given dual variables of every hinge."""
    rows = [(p, x) for p, x in zip(parts, values, strict=True) if p.positions is None]
    weights = np.asarray(sum(part.weight * part.hinges.sign * x for part, x in rows))
    out = _pull_back(model, engine, weights)
    for part, x in zip(parts, values, strict=True):
        if part.positions is not None:
            out[part.positions] += part.weight * x
    return out / len(weights)


def dense64(X: Any) -> Any:
    """Dense rows in float64, for precise sums; sparse rows unchanged."""
    return X.astype(np.float64, copy=False) if isinstance(X, np.ndarray) else X


class Factored:
    """A positive semi-definite system with a ridge, factored once for both solves of a step.

    Its condition number grows like the inverse of the gap. Cholesky of the matrix scaled to a unit
    diagonal remains usable, and iterative refinement restores precision. Cost: n^3 / 3, and n^2
    for a solve. The matrix is overwritten.
    """

    def __init__(self, matrix: Array, ridge: Array) -> None:
        diagonal = np.diagonal(matrix) + ridge
        nonzero = diagonal > 0.0
        self._inverse = nonzero / np.sqrt(np.where(nonzero, diagonal, 1.0))
        matrix *= self._inverse
        matrix *= self._inverse[:, None]
        self._matrix = matrix
        np.fill_diagonal(matrix, 1.0 + REGULARISATION)
        # upper triangle of the transpose: LAPACK works on C order
        self._factor, self._failed = lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=0)
        np.fill_diagonal(matrix, 1.0)

    def __call__(self, right: Array) -> Array:
        """Solve for one right-hand side."""
        right = right * self._inverse
        if self._failed:
            return np.asarray(solve_positive(self._matrix, right) * self._inverse)
        solution = lapack.dpotrs(self._factor, right, lower=0)[0]
        for _ in range(REFINEMENTS):
            residual = right - self._matrix @ solution
            solution += lapack.dpotrs(self._factor, residual, lower=0)[0]
        return np.asarray(solution * self._inverse)


@dataclass(frozen=True)
class _Direction:
    """Newton direction for a target value of the complementarity products."""

    model: LinearModel
    engine: Engine
    f: Array
    w: Array
    parts: list[Part]
    system: Factored
    balance: Array

    def __call__(self, target: float, predictor: _Move | None) -> _Move:
        """Solve for all variables; ``predictor`` adds its second-order terms."""
        residuals = [
            part.residuals(
                _scores_of(part, self.f, self.w), target, predictor.parts[i] if predictor else None
            )
            for i, part in enumerate(self.parts)
        ]
        right = [
            q / part.stiffness() for part, (_, _, q) in zip(self.parts, residuals, strict=True)
        ]
        dw = self.system(self.balance + dual_gradient(self.model, self.engine, self.parts, right))
        df = self.scores(dw)
        pairs = zip(self.parts, residuals, strict=True)
        return _Move(dw, [part.move(some, _scores_of(part, df, dw)) for part, some in pairs])

    def scores(self, dw: Array) -> Array:
        """Changes of the scores."""
        return all_scores(self.model, self.engine, dw[:, None])[:, 0]


def _scores_of(part: Part, f: Array, w: Array) -> Array:
    """The scores of the hinges of a part."""
    return f if part.positions is None else w[part.positions]


def _complementarity(parts: list[Part], move: _Move | None = None, step: float = 0.0) -> float:
    """Mean complementarity product, here or a step ahead."""
    moves = move.parts if move else [None] * len(parts)
    total = sum(part.products(some, step) for part, some in zip(parts, moves, strict=True))
    return total / (2.0 * sum(float(part.weight.sum()) for part in parts))


def _max_step(parts: list[Part], move: _Move) -> float:
    """Largest step, at most one, that keeps every variable in the interior."""
    shrinks = [part.shrink(change) for part, change in zip(parts, move.parts, strict=True)]
    return 1.0 / max(1.0, *shrinks)


def _value_and_gap(
    model: LinearModel, engine: Engine, parts: list[Part], w: Array, f: Array
) -> tuple[float, float]:
    """Objective of one output, and a bound of its gap.

    Dual variables are scaled down to be feasible: to sum to zero with an intercept, and not to
    exceed an L1 penalty. The duality gap is then an exact bound.
    """
    rows, n = [part for part in parts if part.positions is None], len(f)
    value = sum(part.loss(f) for part in rows) / n + float(model.penalty.value(w[:, None]).sum())
    scales = _balancing(rows) if model.fit_intercept else [np.ones(n) for _ in rows]
    duals = [scale * part.g for scale, part in zip(scales, rows, strict=True)]
    gradient, gap = dual_gradient(model, engine, rows, duals), np.inf
    for factor in dual_scales(model.penalty, gradient):
        pairs = zip(rows, scales, strict=True)
        rest = sum(part.gap(f, factor * scale) for part, scale in pairs) / n
        gap = min(gap, rest + penalty_gap(model.penalty, w, factor * gradient))
    # the objective is non-negative, so its value is a bound too
    return value, min(value, gap)


def _balancing(rows: list[Part]) -> list[Array]:
    """Factors, at most one, with which the dual variables sum to zero."""
    sums = [part.weight * part.hinges.sign * part.g for part in rows]
    up = sum(float(np.maximum(x, 0.0).sum()) for x in sums)
    down = sum(float(np.maximum(-x, 0.0).sum()) for x in sums)
    least = min(up, down)
    high, low = least / (up or 1.0), least / (down or 1.0)
    return [np.where(x > 0.0, high, low) for x in sums]
