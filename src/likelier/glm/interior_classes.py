"""Interior point method for the maximum over classes (Crammer and Singer), few parameters.

The loss is ``max_k (c_k + f_k) - f_y`` with ``c_k = 1`` for all classes but ``y``. With dual
variables ``pi_k``, ``t`` the maximum and slacks ``r_k = t - c_k - f_k``, the optimality conditions
are ``pi_k r_k = 0``, ``pi, r >= 0``, ``sum_k pi_k = 1``, and that the gradient of the penalty is
``sum_i omega_i (e_y - pi_i) x_i^T / N``. A step is Mehrotra's predictor-corrector method.

The variables of each row are eliminated: with ``D_k = pi_k / r_k`` they reduce to
``d pi = q + (diag(D) - D D^T / sum D) d f``. This matrix is the Laplacian of a graph with edge
weights ``D_k D_j / sum D``: one weighted Gram matrix per pair of classes gives the whole system,
without cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info
from likelier.glm.interior import (
    BOUNDARY,
    Factored,
    all_scores,
    batch_part,
    dense64,
    pull_back_all,
)
from likelier.glm.interior_parts import (
    Part,
    PartMove,
    dual_scales,
    is_done,
    penalty_gap,
    penalty_part,
    with_exact_zeros,
)
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.posterior import LinearPosterior


@dataclass
class ClassInteriorState:
    """Parameters, and the variables of every row; updated in place.

    ``dual`` and ``slack`` have a column per class, relative to the maximum ``top``.
    """

    model: LinearModel
    theta: Array
    weight: Array
    one_hot: Array
    dual: Array
    slack: Array
    top: Array
    kinks: Part | None = None  # of an L1 penalty, parameters ordered by class
    previous_gap: float = np.inf
    solution: Array | None = None  # parameters with exact zeros

    def levels(self, f: Array) -> Array:
        """``c_k + f_k``: the loss is their maximum, minus the score of the class."""
        return np.asarray(1.0 - self.one_hot + f)


@dataclass(frozen=True)
class _Move:
    """A direction of the parameters, and of the variables and scores of every row."""

    theta: Array
    dual: Array
    slack: Array
    top: Array
    f: Array
    kinks: PartMove | None


@dataclass(frozen=True)
class ClassInterior(Inference):
    """Primal-dual interior point method over all classes, for any penalty or none.

    It is ``local_only``, as is `likelier.glm.interior.Interior`.

    Cost per step: a weighted Gram matrix for each of the K (K - 1) / 2 pairs of classes (rows x
    (nonzeros per row)^2 / 2 each) and (K x features)^3 / 3. Memory: a dozen numbers per row and
    class. Converged when the duality gap is below ``tol`` times the objective and, with an L1
    penalty, the zero weights are identified.
    """

    local_only: ClassVar[bool] = True

    tol: float = 1e-4

    def init(
        self, model: LinearModel, engine: Engine, theta: Array | None = None
    ) -> ClassInteriorState:
        """Start at ``theta`` or zero, with equal dual variables of all classes."""
        theta = model.zeros() if theta is None else np.array(theta, dtype=np.float64)
        theta -= theta.mean(axis=1, keepdims=True)  # a common part has no effect but a penalty
        rows = list(engine.map_blocks(lambda batch: (batch.y, batch.weight)))
        y = np.concatenate([part[0] for part in rows]).astype(np.intp)
        weight = np.ones(len(y))
        if rows[0][1] is not None:
            weight = np.concatenate([part[1] for part in rows])
        K = model.n_outputs
        one_hot = np.zeros((len(y), K))
        one_hot[np.arange(len(y)), y] = 1.0
        state = ClassInteriorState(
            model, theta, weight, one_hot, np.full(one_hot.shape, 1.0 / K), one_hot, weight
        )
        f = all_scores(model, engine, theta)
        levels = state.levels(f)
        largest = levels.max(axis=1)
        slack = max(float((largest - (one_hot * f).sum(axis=1)).mean()), 1e-3)
        state.top = largest + slack
        state.slack = state.top[:, None] - levels
        mean = _complementarity(state, state.dual, state.slack)
        l1 = np.tile(model.penalty.l1, K)
        state.kinks = penalty_part(l1, len(y), theta.T.ravel(), mean)
        return state

    def step(self, state: ClassInteriorState, engine: Engine) -> tuple[ClassInteriorState, Info]:
        """Predictor, corrector, and a step in the interior."""
        f = all_scores(state.model, engine, state.theta)
        solve = _Direction(state, engine, f, _system(state, engine), _balance(state, engine))
        mean = _complementarity(state, state.dual, state.slack)
        predictor = solve(0.0, None)
        step = _max_step(state, predictor)
        after = _complementarity(
            state, state.dual + step * predictor.dual, state.slack + step * predictor.slack,
            predictor.kinks, step,
        )  # fmt: skip
        corrector = solve((after / mean) ** 3 * mean, predictor)
        step = BOUNDARY * _max_step(state, corrector)
        state.theta += step * corrector.theta
        state.dual += step * corrector.dual
        state.slack += step * corrector.slack
        state.top += step * corrector.top
        if state.kinks is not None and corrector.kinks is not None:
            state.kinks.advance(corrector.kinks, step)
        return state, self._evaluate(state, engine, f + step * corrector.f)

    def _evaluate(self, state: ClassInteriorState, engine: Engine, f: Array) -> Info:
        """Objective and gap, with exact zeros if these do not increase the gap."""
        model, state.solution = state.model, state.theta
        value, gap = _value_and_gap(state, engine, state.theta, f)
        gaps = (gap, gap)
        if state.kinks is not None:
            flat = with_exact_zeros(state.kinks, state.theta.T.ravel())
            exact = np.ascontiguousarray(flat.reshape(model.n_outputs, -1).T)
            other, exact_gap = _value_and_gap(
                state, engine, exact, all_scores(model, engine, exact)
            )
            gaps = (exact_gap, gap)
            if exact_gap <= max(gap, self.tol * other):  # otherwise it is too early
                state.solution, value, gap = exact, other, exact_gap
        converged = is_done(self.tol, state.kinks is not None, gaps, state.previous_gap, value)
        state.previous_gap = gaps[1]
        return Info(value, gap, 1.0, converged)

    def posterior(self, state: ClassInteriorState) -> LinearPosterior:
        """Point estimate."""
        theta = state.theta if state.solution is None else state.solution
        return LinearPosterior(state.model, theta.copy())


@dataclass(frozen=True)
class _Direction:
    """Newton direction for a target value of the products of dual variables and slacks."""

    state: ClassInteriorState
    engine: Engine
    f: Array
    system: Factored
    balance: Array

    def __call__(self, target: float, predictor: _Move | None) -> _Move:
        """Solve for all variables; ``predictor`` adds its second-order terms."""
        state, model = self.state, self.state.model
        residual = target - state.dual * state.slack
        if predictor is not None:
            residual -= predictor.dual * predictor.slack
        stiff = state.dual / state.slack
        total = stiff.sum(axis=1)
        # zero up to rounding errors: both constraints hold from the start
        off = state.slack - state.top[:, None] + state.levels(self.f)
        missing = 1.0 - state.dual.sum(axis=1)
        q = residual / state.slack + stiff * off
        excess = (q.sum(axis=1) - missing) / total
        weights = state.weight[:, None] * (q - stiff * excess[:, None])
        right = (self.balance - pull_back_all(model, self.engine, weights) / len(weights)).T.ravel()
        kinks, kink_residuals, n = state.kinks, None, len(weights)
        if kinks is not None:
            at = kinks.positions
            kink_residuals = kinks.residuals(
                state.theta.T.ravel()[at], target, None if predictor is None else predictor.kinks
            )
            right[at] += kinks.weight * kink_residuals[2] / kinks.stiffness() / n
        flat = self.system(right)
        theta = np.ascontiguousarray(flat.reshape(state.theta.T.shape).T)
        df = all_scores(model, self.engine, theta)
        top = excess + (stiff * df).sum(axis=1) / total
        slack = top[:, None] - df - off
        dual = (residual - state.dual * slack) / state.slack
        moved = (
            None
            if kinks is None or kink_residuals is None
            else kinks.move(kink_residuals, flat[kinks.positions])
        )
        return _Move(theta, dual, slack, top, df, moved)


def _system(state: ClassInteriorState, engine: Engine) -> Factored:
    """Schur complement of the parameters, ordered by class.

    The loss is invariant to a common shift of all classes. A term in that direction does not change
    the solution and makes the matrix regular; an L1 penalty fixes it by itself.
    """
    model, n = state.model, len(state.top)
    K, p = model.n_outputs, model.n_rows_theta
    stiff = state.dual / state.slack
    scaled = stiff * (state.weight / (n * stiff.sum(axis=1)))[:, None]
    pairs = list(combinations(range(K), 2))

    def grams(batch: Batch) -> Array:
        X, left, right = dense64(batch.X), batch_part(batch, stiff), batch_part(batch, scaled)
        return np.stack([model.gram(X, left[:, k] * right[:, j]) for k, j in pairs])

    full = np.zeros((K, p, K, p))
    sums: Array = engine.reduce(grams, np.add)
    for (k, j), gram in zip(pairs, sums, strict=True):
        full[k, :, j] = full[j, :, k] = -gram
        full[k, :, k] += gram
        full[j, :, j] += gram
    for j in np.flatnonzero(model.penalty.l1 == 0.0).tolist():
        full[:, j, :, j] += np.trace(full[:, j, :, j]) / K**2
    ridge, kinks = np.tile(model.penalty.l2, K), state.kinks
    if kinks is not None:
        ridge[kinks.positions] += kinks.weight / kinks.stiffness() / n
    return Factored(full.reshape(K * p, K * p), ridge)


def _negative_gradient(state: ClassInteriorState, engine: Engine) -> Array:
    """Negative gradient of the mean loss for the current dual variables."""
    weights = state.weight[:, None] * (state.one_hot - state.dual)
    return pull_back_all(state.model, engine, weights) / len(weights)


def _balance(state: ClassInteriorState, engine: Engine) -> Array:
    """Residual of stationarity."""
    out = _negative_gradient(state, engine) - state.model.penalty.l2[:, None] * state.theta
    if state.kinks is not None:
        flat = out.T.ravel()
        flat[state.kinks.positions] += state.kinks.weight * state.kinks.g / len(state.top)
        out = flat.reshape(out.T.shape).T
    return np.asarray(out)


def _complementarity(
    state: ClassInteriorState, dual: Array, slack: Array, kinks: PartMove | None = None,
    step: float = 0.0,
) -> float:  # fmt: skip
    """Mean complementarity product, including those of an L1 penalty."""
    total = float((state.weight @ (dual * slack)).sum())
    count = dual.shape[1] * float(state.weight.sum())
    if state.kinks is not None:
        total += state.kinks.products(kinks, step)
        count += 2.0 * float(state.kinks.weight.sum())
    return float(total / count)


def _max_step(state: ClassInteriorState, move: _Move) -> float:
    """Largest step, at most one, that keeps every variable in the interior."""
    shrink = max(float((-move.dual / state.dual).max()), float((-move.slack / state.slack).max()))
    if state.kinks is not None and move.kinks is not None:
        shrink = max(shrink, state.kinks.shrink(move.kinks))
    return 1.0 / max(1.0, shrink)


def _value_and_gap(
    state: ClassInteriorState, engine: Engine, theta: Array, f: Array
) -> tuple[float, float]:
    """Objective of the parameters, and a bound of its gap.

    Dual variables move towards the true class until they satisfy the L1 constraints, and so are
    feasible but for the intercepts, for which the residual times the intercept is used.
    """
    model, n = state.model, len(f)
    K, levels = model.n_outputs, state.levels(f)
    largest = levels.max(axis=1)
    true_score = (state.one_hot * f).sum(axis=1)
    below = (state.dual * (largest[:, None] - levels)).sum(axis=1)
    loss = float(state.weight @ (largest - true_score)) / n
    value = loss + float(model.penalty.value(theta).sum())
    penalty = ElasticNet(np.tile(model.penalty.l2, K), np.tile(model.penalty.l1, K))
    gradient, gap = _negative_gradient(state, engine).T.ravel(), np.inf
    if model.fit_intercept:  # invariant to a common shift
        theta = theta.copy()
        theta[-1] -= theta[-1].mean()
    for scale in dual_scales(penalty, gradient):
        rest = scale * float(state.weight @ below) / n + (1.0 - scale) * loss
        gap = min(gap, rest + penalty_gap(penalty, theta.T.ravel(), scale * gradient))
    # the objective is non-negative, so its value is a bound too
    return value, min(value, gap)
