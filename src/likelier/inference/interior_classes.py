"""Interior point method for the maximum over classes (Crammer and Singer), few parameters.

The loss is ``max_k (c_k + f_k) - f_y`` with ``c_k = 1`` for all classes but ``y``. With a share
``pi_k`` of every class, ``t`` the maximum and ``r_k = t - c_k - f_k`` what class k is short of it,
the optimum is where ``pi_k r_k = 0``, ``pi, r >= 0``, ``sum_k pi_k = 1`` and the slope of the
penalty balances ``sum_i omega_i (e_y - pi_i) x_i^T / N``. A step is Newton's method on these
equations with zero replaced by a small number (Mehrotra's predictor and corrector).

Every row eliminates its own unknowns: with ``D_k = pi_k / r_k`` what is left of them is
``d pi = q + (diag(D) - D D^T / sum D) d f``. That matrix is the Laplacian of a graph whose edge
between classes k and j weighs ``D_k D_j / sum D``: one weighted Gram matrix per pair of classes
gives the whole system, and nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from likelier.base import Array, Batch, Engine, Inference, Info
from likelier.inference.interior import (
    BOUNDARY,
    Factored,
    all_scores,
    dense64,
    part_of,
    pull_back_all,
)
from likelier.inference.posterior import LinearPosterior
from likelier.models.linear import LinearModel


@dataclass
class ClassInteriorState:
    """Parameters, and the unknowns of every row; updated in place.

    ``share`` and ``short`` have a column per class, ``top`` is the maximum they refer to.
    """

    model: LinearModel
    theta: Array
    weight: Array
    own: Array  # one in the column of each row's class
    share: Array
    short: Array
    top: Array

    def levels(self, f: Array) -> Array:
        """``c_k + f_k``: the loss is the largest of a row, minus the score of its class."""
        return np.asarray(1.0 - self.own + f)


@dataclass(frozen=True)
class _Move:
    """A direction: of the parameters, and of every row's unknowns and scores."""

    theta: Array
    share: Array
    short: Array
    top: Array
    f: Array


@dataclass(frozen=True)
class ClassInterior(Inference):
    """Primal-dual interior point method over all classes; rows in memory, ridge penalty or none.

    Cost per step: a weighted Gram matrix for each of the K (K - 1) / 2 pairs of classes (rows x
    (nonzeros per row)^2 / 2 each) and (K x features)^3 / 3. Memory: a dozen numbers per row and
    class. Converged when the duality gap is below ``tol`` times the objective.
    """

    tol: float = 1e-4

    def init(
        self, model: LinearModel, engine: Engine, theta: Array | None = None
    ) -> ClassInteriorState:
        """Start at ``theta`` or zero, every class with the same share."""
        theta = model.zeros() if theta is None else np.array(theta, dtype=np.float64)
        theta -= theta.mean(axis=1, keepdims=True)  # what all classes share only costs a penalty
        rows = list(engine.map_blocks(lambda batch: (batch.y, batch.weight)))
        y = np.concatenate([part[0] for part in rows]).astype(np.intp)
        weight = np.ones(len(y))
        if rows[0][1] is not None:
            weight = np.concatenate([part[1] for part in rows])
        K = model.n_outputs
        own = np.zeros((len(y), K))
        own[np.arange(len(y)), y] = 1.0
        state = ClassInteriorState(
            model, theta, weight, own, np.full(own.shape, 1.0 / K), own, weight
        )
        f = all_scores(model, engine, theta)
        levels = state.levels(f)
        largest = levels.max(axis=1)
        room = max(float((largest - (own * f).sum(axis=1)).mean()), 1e-3)
        state.top = largest + room
        state.short = state.top[:, None] - levels
        return state

    def step(self, state: ClassInteriorState, engine: Engine) -> tuple[ClassInteriorState, Info]:
        """Predictor, corrector, and a step that stays inside."""
        f = all_scores(state.model, engine, state.theta)
        solve = _Direction(state, engine, f, _system(state, engine), _balance(state, engine))
        mean = _complementarity(state, state.share, state.short)
        ahead = solve(0.0, None)
        reach = _reach(state, ahead)
        after = _complementarity(
            state, state.share + reach * ahead.share, state.short + reach * ahead.short
        )
        move = solve((after / mean) ** 3 * mean, ahead)
        reach = BOUNDARY * _reach(state, move)
        state.theta += reach * move.theta
        state.share += reach * move.share
        state.short += reach * move.short
        state.top += reach * move.top
        objective, gap = _value_and_gap(state, engine, f + reach * move.f)
        return state, Info(objective, gap, 1.0, bool(gap <= self.tol * objective))

    def posterior(self, state: ClassInteriorState) -> LinearPosterior:
        """Point estimate."""
        return LinearPosterior(state.model, state.theta.copy())


@dataclass(frozen=True)
class _Direction:
    """Newton's direction for a target of the products of shares and shortfalls."""

    state: ClassInteriorState
    engine: Engine
    f: Array
    system: Factored
    balance: Array

    def __call__(self, target: float, ahead: _Move | None) -> _Move:
        """Solve for all unknowns; ``ahead`` is the predictor whose products are corrected."""
        state, model = self.state, self.state.model
        wanted = target - state.share * state.short
        if ahead is not None:
            wanted -= ahead.share * ahead.short
        stiff = state.share / state.short
        total = stiff.sum(axis=1)
        # rounding only: both equations hold from the start
        off = state.short - state.top[:, None] + state.levels(self.f)
        lost = 1.0 - state.share.sum(axis=1)
        q = wanted / state.short + stiff * off
        excess = (q.sum(axis=1) - lost) / total
        slope = state.weight[:, None] * (q - stiff * excess[:, None])
        right = self.balance - pull_back_all(model, self.engine, slope) / len(slope)
        flat = self.system(right.T.ravel())
        theta = np.ascontiguousarray(flat.reshape(right.T.shape).T)
        df = all_scores(model, self.engine, theta)
        top = excess + (stiff * df).sum(axis=1) / total
        short = top[:, None] - df - off
        share = (wanted - state.share * short) / state.short
        return _Move(theta, share, short, top, df)


def _system(state: ClassInteriorState, engine: Engine) -> Factored:
    """Second derivative of what is left for the parameters, those of one class together.

    Nothing changes when all classes move together, so they never do: a term in that direction
    does not touch the solution and makes the matrix regular.
    """
    model, n = state.model, len(state.top)
    K, p = model.n_outputs, model.n_rows_theta
    stiff = state.share / state.short
    scaled = stiff * (state.weight / (n * stiff.sum(axis=1)))[:, None]
    pairs = list(combinations(range(K), 2))

    def grams(batch: Batch) -> Array:
        X, left, right = dense64(batch.X), part_of(batch, stiff), part_of(batch, scaled)
        return np.stack([model.gram(X, left[:, k] * right[:, j]) for k, j in pairs])

    full = np.zeros((K, p, K, p))
    sums: Array = engine.reduce(grams, np.add)
    for (k, j), gram in zip(pairs, sums, strict=True):
        full[k, :, j] = full[j, :, k] = -gram
        full[k, :, k] += gram
        full[j, :, j] += gram
    for j in range(p):
        full[:, j, :, j] += np.trace(full[:, j, :, j]) / K**2
    return Factored(full.reshape(K * p, K * p), np.tile(model.penalty.l2, K))


def _balance(state: ClassInteriorState, engine: Engine) -> Array:
    """What the pull of the rows has over the slope of the penalty."""
    slope = state.weight[:, None] * (state.own - state.share)
    pull = pull_back_all(state.model, engine, slope) / len(slope)
    return np.asarray(pull - state.model.penalty.l2[:, None] * state.theta)


def _complementarity(state: ClassInteriorState, share: Array, short: Array) -> float:
    """Mean product of shares and shortfalls."""
    products = state.weight @ (share * short)
    return float(products.mean() / state.weight.sum())


def _reach(state: ClassInteriorState, move: _Move) -> float:
    """Largest part of a move, at most all of it, that leaves every unknown inside."""
    shrink = max(float((-move.share / state.share).max()), float((-move.short / state.short).max()))
    return 1.0 / max(1.0, shrink)


def _value_and_gap(state: ClassInteriorState, engine: Engine, f: Array) -> tuple[float, float]:
    """Objective, and how far it is above the dual one.

    Where the rows do not balance the penalty, half the square of what is missing over the
    strength is exactly what that adds to the gap; for a parameter without a penalty there is no
    dual value until they balance, and what is missing times the parameter stands in for it.
    """
    model, theta, n = state.model, state.theta, len(f)
    levels = state.levels(f)
    largest = levels.max(axis=1)
    below = (state.share * (largest[:, None] - levels)).sum(axis=1)
    value = float(state.weight @ (largest - (state.own * f).sum(axis=1))) / n
    value += float(model.penalty.value(theta).sum())
    balance, l2 = _balance(state, engine), np.broadcast_to(model.penalty.l2[:, None], theta.shape)
    missing = np.abs(balance * theta)
    np.divide(balance * balance, 2.0 * l2, out=missing, where=l2 > 0.0)
    # no objective is below zero: the whole of it is a bound too
    return value, min(value, float(state.weight @ below) / n + float(missing.sum()))
