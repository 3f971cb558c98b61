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
from likelier.glm.interior import (
    BOUNDARY,
    Factored,
    all_scores,
    dense64,
    part_of,
    pull_back_all,
)
from likelier.glm.interior_parts import (
    Part,
    PartMove,
    is_done,
    penalty_gap,
    penalty_part,
    rounded,
    shares_of_slopes,
)
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.glm.posterior import LinearPosterior


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
    kinks: Part | None = None  # of an L1 penalty on the parameters, those of one class together
    before: float = np.inf  # gap of the last step
    answer: Array | None = None  # parameters with exact zeros

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
    kinks: PartMove | None


@dataclass(frozen=True)
class ClassInterior(Inference):
    """Primal-dual interior point method over all classes; rows in memory, any penalty or none.

    Cost per step: a weighted Gram matrix for each of the K (K - 1) / 2 pairs of classes (rows x
    (nonzeros per row)^2 / 2 each) and (K x features)^3 / 3. Memory: a dozen numbers per row and
    class. Converged when the duality gap is below ``tol`` times the objective and, with an L1
    penalty, the weights that are zero are known.
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
        mean = _complementarity(state, state.share, state.short)
        l1 = np.tile(model.penalty.l1, K)
        state.kinks = penalty_part(l1, len(y), theta.T.ravel(), mean)
        return state

    def step(self, state: ClassInteriorState, engine: Engine) -> tuple[ClassInteriorState, Info]:
        """Predictor, corrector, and a step that stays inside."""
        f = all_scores(state.model, engine, state.theta)
        solve = _Direction(state, engine, f, _system(state, engine), _balance(state, engine))
        mean = _complementarity(state, state.share, state.short)
        ahead = solve(0.0, None)
        reach = _reach(state, ahead)
        after = _complementarity(
            state, state.share + reach * ahead.share, state.short + reach * ahead.short,
            ahead.kinks, reach,
        )  # fmt: skip
        move = solve((after / mean) ** 3 * mean, ahead)
        reach = BOUNDARY * _reach(state, move)
        state.theta += reach * move.theta
        state.share += reach * move.share
        state.short += reach * move.short
        state.top += reach * move.top
        if state.kinks is not None and move.kinks is not None:
            state.kinks.advance(move.kinks, reach)
        return state, self._judged(state, engine, f + reach * move.f)

    def _judged(self, state: ClassInteriorState, engine: Engine, f: Array) -> Info:
        """Objective and gap, with exact zeros where these cost nothing."""
        model, state.answer = state.model, state.theta
        value, gap = _value_and_gap(state, engine, state.theta, f)
        gaps = (gap, gap)
        if state.kinks is not None:
            flat = rounded(state.kinks, state.theta.T.ravel())
            exact = np.ascontiguousarray(flat.reshape(model.n_outputs, -1).T)
            other, left = _value_and_gap(state, engine, exact, all_scores(model, engine, exact))
            gaps = (left, gap)
            if left <= max(gap, self.tol * other):  # else it is too early to tell
                state.answer, value, gap = exact, other, left
        converged = is_done(self.tol, state.kinks is not None, gaps, state.before, value)
        state.before = gaps[1]
        return Info(value, gap, 1.0, converged)

    def posterior(self, state: ClassInteriorState) -> LinearPosterior:
        """Point estimate."""
        theta = state.theta if state.answer is None else state.answer
        return LinearPosterior(state.model, theta.copy())


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
        right = (self.balance - pull_back_all(model, self.engine, slope) / len(slope)).T.ravel()
        kinks, lack, n = state.kinks, None, len(slope)
        if kinks is not None:
            at = kinks.places
            lack = kinks.wanted(
                state.theta.T.ravel()[at], target, None if ahead is None else ahead.kinks
            )
            right[at] += kinks.weight * lack[2] / kinks.stiffness() / n
        flat = self.system(right)
        theta = np.ascontiguousarray(flat.reshape(state.theta.T.shape).T)
        df = all_scores(model, self.engine, theta)
        top = excess + (stiff * df).sum(axis=1) / total
        short = top[:, None] - df - off
        share = (wanted - state.share * short) / state.short
        moved = None if kinks is None or lack is None else kinks.move(lack, flat[kinks.places])
        return _Move(theta, share, short, top, df, moved)


def _system(state: ClassInteriorState, engine: Engine) -> Factored:
    """Second derivative of what is left for the parameters, those of one class together.

    Nothing changes when all classes move together, so they never do: a term in that direction
    does not touch the solution and makes the matrix regular. An L1 penalty decides itself where
    all classes are.
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
    for j in np.flatnonzero(model.penalty.l1 == 0.0).tolist():
        full[:, j, :, j] += np.trace(full[:, j, :, j]) / K**2
    ridge, kinks = np.tile(model.penalty.l2, K), state.kinks
    if kinks is not None:
        ridge[kinks.places] += kinks.weight / kinks.stiffness() / n
    return Factored(full.reshape(K * p, K * p), ridge)


def _pull(state: ClassInteriorState, engine: Engine) -> Array:
    """The pull of the rows on the parameters."""
    slope = state.weight[:, None] * (state.own - state.share)
    return pull_back_all(state.model, engine, slope) / len(slope)


def _balance(state: ClassInteriorState, engine: Engine) -> Array:
    """What the pull of the rows has over the slope of the penalty."""
    out = _pull(state, engine) - state.model.penalty.l2[:, None] * state.theta
    if state.kinks is not None:
        flat = out.T.ravel()
        flat[state.kinks.places] += state.kinks.weight * state.kinks.g / len(state.top)
        out = flat.reshape(out.T.shape).T
    return np.asarray(out)


def _complementarity(
    state: ClassInteriorState, share: Array, short: Array, kinks: PartMove | None = None,
    reach: float = 0.0,
) -> float:  # fmt: skip
    """Mean product of shares and shortfalls, and of the unknowns of a penalty."""
    total = float((state.weight @ (share * short)).sum())
    count = share.shape[1] * float(state.weight.sum())
    if state.kinks is not None:
        total += state.kinks.products(kinks, reach)
        count += 2.0 * float(state.kinks.weight.sum())
    return float(total / count)


def _reach(state: ClassInteriorState, move: _Move) -> float:
    """Largest part of a move, at most all of it, that leaves every unknown inside."""
    shrink = max(float((-move.share / state.share).max()), float((-move.short / state.short).max()))
    if state.kinks is not None and move.kinks is not None:
        shrink = max(shrink, state.kinks.shrink(move.kinks))
    return 1.0 / max(1.0, shrink)


def _value_and_gap(
    state: ClassInteriorState, engine: Engine, theta: Array, f: Array
) -> tuple[float, float]:
    """Objective of parameters, and a bound of how far it is above the optimum.

    Shares move towards the own class until no L1 penalty is exceeded: then they are a point of
    the dual. Only what pulls at intercepts, times these, stands in for what it would cost.
    """
    model, n = state.model, len(f)
    K, levels = model.n_outputs, state.levels(f)
    largest = levels.max(axis=1)
    own = (state.own * f).sum(axis=1)
    below = (state.share * (largest[:, None] - levels)).sum(axis=1)
    loss = float(state.weight @ (largest - own)) / n
    value = loss + float(model.penalty.value(theta).sum())
    penalty = ElasticNet(np.tile(model.penalty.l2, K), np.tile(model.penalty.l1, K))
    pull, gap = _pull(state, engine).T.ravel(), np.inf
    if model.fit_intercept:  # nothing changes when all of them move together
        theta = theta.copy()
        theta[-1] -= theta[-1].mean()
    for share in shares_of_slopes(penalty, pull):
        left = share * float(state.weight @ below) / n + (1.0 - share) * loss
        gap = min(gap, left + penalty_gap(penalty, theta.T.ravel(), share * pull))
    # no objective is below zero: the whole of it is a bound too
    return value, min(value, gap)
