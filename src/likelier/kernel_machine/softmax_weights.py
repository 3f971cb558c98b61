"""The convex head: weights of a classifier on given features, by sums over blocks of rows.

Minimises ``sum_i omega_i loss(y_i, W^T phi_i) + 1/2 tr((W - M)^T H (W - M))`` where ``H`` is a
diagonal (the first prior) or one matrix per output (what earlier rows have said). Two classes
have one score, more have one each.

One family of losses: ``(1/beta) log sum_k exp(beta (f_k + margin 1[k != y])) - f_y``. With
``beta = 1`` and no margin it is the cross-entropy; with margin one it is the multiclass hinge
whose maximum is rounded, from above and by at most ``log(K) / beta``.

L-BFGS in the metric ``Phi^T diag(r) Phi + H``, ``r`` a curvature of each row that all outputs
share, refreshed after the first step. A trial point costs two products with the features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from likelier.base import Array, Batch
from likelier.kernel_machine.weights_state import HeadState

MAX_HALVINGS = 20
# A row that is sure now may not be after the next step: its curvature in the metric is at
# least this share of the largest possible for two classes, and half of that for more.
CURVATURE_FLOOR = 0.1
HINGE_SHARPNESS = 20.0
# Where a loss has kinks, other rows are at them after some steps, and few at a time.
REFRESHED, KINK_FLOOR = 20, 0.03
HEAD_ROWS = 2048
# Of a chance that is as good as none: numbers that lose digits for being small are slow.
LEAST_LOG = -40.0
WEAK_CONSTANT = 1e-2

Reduce = Callable[[Callable[[Batch], Any], Callable[[Any, Any], Any]], Any]


@dataclass(frozen=True)
class HeadLoss:
    """Cross-entropy or rounded hinge of ``n_classes`` classes."""

    n_classes: int
    margin: float = 0.0
    sharpness: float = 1.0

    @property
    def n_outputs(self) -> int:
        """One score for two classes, else one per class."""
        return 1 if self.n_classes == 2 else self.n_classes

    def terms(self, scores: Array, codes: Array) -> tuple[Array, Array, Array]:
        """Loss, slope and class weights of every row.

        The class weights ``p`` are those of the softmax inside: the curvature of a row is
        ``sharpness (diag p - p p^T)``, for one score ``sharpness p (1 - p)``.
        """
        beta = scores.dtype.type(self.sharpness)
        if self.n_outputs == 1:
            sign = np.where(codes > 0.5, 1.0, -1.0).astype(scores.dtype)
            z = beta * (scores.dtype.type(self.margin) - sign * scores[:, 0])
            np.maximum(z, LEAST_LOG, out=z)
            value = np.logaddexp(z, scores.dtype.type(0.0)) / beta
            wrong = np.exp(np.minimum(z, 0.0)) / (1.0 + np.exp(-np.abs(z)))
            return value, (-sign * wrong)[:, None], wrong[:, None]
        rows, k = np.arange(len(scores)), codes.astype(np.intp)
        own = scores[rows, k]
        # classes first: sums over few of them are fast only where rows lie side by side
        z = beta * (np.ascontiguousarray(scores.T) + scores.dtype.type(self.margin))
        z[k, rows] = beta * own
        top = z.max(axis=0)
        z -= top
        p = np.exp(np.maximum(z, LEAST_LOG, out=z), out=z)
        total = p.sum(axis=0)
        p /= total
        value = (top + np.log(total)) / beta - own
        slope = p.copy()
        slope[k, rows] -= 1.0
        return value, slope.T, p.T

    def row_curvature(self, p: Array) -> Array:
        """Mean curvature of each row, for a metric that all outputs share."""
        if self.n_outputs == 1:
            return np.asarray(self.sharpness * (p * (1.0 - p))[:, 0])
        return np.asarray(self.sharpness * (p * (1.0 - p)).sum(axis=1) / (self.n_classes - 1))

    def metric_curvature(self, p: Array) -> Array:
        """Curvature of each row for steps that all outputs share.

        Of several classes it is the root mean square of the eigenvalues of ``diag p - p p^T``: a
        row that hesitates between two of ten classes bends nine times more along their difference
        than on average, and steps by the average would be too long.
        """
        if self.n_outputs == 1:
            return self.row_curvature(p)
        second, third = (p * p).sum(axis=1), (p * p * p).sum(axis=1)
        squares = np.maximum(second - 2.0 * third + second**2, 0.0)  # of all eigenvalues
        return np.asarray(self.sharpness * np.sqrt(squares / (self.n_classes - 1)))

    @property
    def least_curvature(self) -> float:
        """What the metric takes a row for that is sure at the moment."""
        return self.sharpness * CURVATURE_FLOOR / (4.0 if self.n_outputs == 1 else 8.0)

    def start(self, n_features: int, shares: Array) -> Array:
        """Weights that give every row the shares of the classes; the constant comes last."""
        W = np.zeros((n_features, self.n_outputs))
        if self.margin == 0.0:
            logs = np.log(shares)
            W[-1] = logs[1] - logs[0] if self.n_outputs == 1 else logs - logs.mean()
        return W


@dataclass(frozen=True)
class Prior:
    """Gaussian prior: mean and precision, a diagonal ``(D,)`` or matrices ``(outputs, D, D)``.

    One matrix ``(D, D)`` is that of all outputs.
    """

    precision: Array
    mean: Array | None = None

    def pull(self, W: Array) -> Array:
        """Gradient of the penalty; the penalty is half its product with the distance."""
        away = W if self.mean is None else W - self.mean
        if self.precision.ndim == 1:
            return np.asarray(self.precision[:, None] * away)
        if self.precision.ndim == 2:
            return np.asarray(self.precision @ away)
        return np.stack([H @ away[:, k] for k, H in enumerate(self.precision)], axis=1)

    def value(self, W: Array) -> float:
        """The penalty."""
        away = W if self.mean is None else W - self.mean
        return 0.5 * float((away * self.pull(W)).sum())

    def most_gain(self, gradient: Array) -> float:
        """The most that an objective with this gradient can still lose, of a diagonal precision.

        It bends at least as much as the prior, a convex loss adding to that.
        """
        return 0.5 * float((gradient**2 / self.precision[:, None]).sum())

    def shared(self) -> Array:
        """One precision for all outputs, a matrix or a diagonal."""
        return self.precision.mean(axis=0) if self.precision.ndim == 3 else self.precision


@dataclass(frozen=True)
class HeadProblem:
    """Rows behind a reduction, how they become features, and what is minimised.

    ``offset`` gives scores that are added to those of the features, ``(n, n_outputs)``. ``sure``:
    see `fit_head`.
    """

    reduce: Reduce
    features: Callable[[Batch], Array]
    loss: HeadLoss
    prior: Prior
    offset: Callable[[Batch], Array] | None = None
    sure: bool = False

    def scores(self, batch: Batch, Phi: Array, W: Array) -> Array:
        """Scores of a batch whose features are known."""
        scores: Array = Phi @ W.astype(Phi.dtype)
        if self.offset is not None:
            scores += self.offset(batch).astype(Phi.dtype, copy=False)
        return scores

    def value_gradient(self, W: Array) -> tuple[float, Array]:
        """Objective and gradient: one pass."""

        def look(batch: Batch) -> tuple[float, Array]:
            Phi = self.features(batch)
            value, slope, _ = self.loss.terms(self.scores(batch, Phi, W), _codes(batch))
            if batch.weight is not None:
                value, slope = weigh(value, slope, batch.weight)
            return float(value.sum(dtype=np.float64)), (Phi.T @ slope).astype(np.float64)

        value, gradient = self.reduce(look, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        return value + self.prior.value(W), gradient + self.prior.pull(W)

    def gram(self, W: Array, floor: float = 0.0) -> Array:
        """``Phi^T diag(r) Phi``, lower triangle, in the precision of the features: one pass.

        Curvatures ``r`` of rows are at least ``floor``.
        """

        def look(batch: Batch) -> Array:
            Phi = self.features(batch)
            _, _, p = self.loss.terms(self.scores(batch, Phi, W), _codes(batch))
            r = np.maximum(self.loss.metric_curvature(p), floor)
            return weighted_gram(Phi, r if batch.weight is None else r * batch.weight)

        return np.asarray(self.reduce(look, np.add))

    def metric(self, gram: Array) -> Callable[[Array], Array]:
        """Inverse of the shared curvature, as a function."""
        H = gram.copy(order="K")
        shared = self.prior.shared()
        if shared.ndim == 1:
            H[np.diag_indices_from(H)] += shared.astype(H.dtype)
        else:
            H = H.astype(np.float64) + shared
        factor = lower_factor(H)
        solve = lapack.spotrs if factor.dtype == np.float32 else lapack.dpotrs
        return lambda v: np.asarray(
            solve(factor, v.astype(factor.dtype), lower=1)[0], dtype=np.float64
        )


@dataclass(frozen=True)
class HeadFit:
    """Weights, and how the search for them ended."""

    W: Array
    value: float
    n_iter: int
    converged: bool
    values: tuple[float, ...] = field(default=(), repr=False)
    gram: Array | None = field(default=None, repr=False)


def fit_head(
    problem: HeadProblem,
    W: Array | HeadState,
    tol: float = 1e-4,
    max_iter: int = 100,
    watch: Callable[[HeadState], bool] | None = None,
    gram: Array | None = None,
    near: bool = False,
) -> HeadFit:
    """Minimise from ``W`` until the expected decrease is below ``tol`` times the objective.

    ``watch`` is called after every step with where the search has come to; True ends it. Begun
    with such a state instead of weights, a search goes on to the same bits. ``gram`` is that of
    ``problem.gram(W)`` where it is known already: it does not depend on the prior. ``near`` says
    that ``W`` is near the optimum, and that ``gram`` will do for all steps, as that of another
    `HeadFit` does. Cost per step: two products of the features with the weights (rows x features x
    outputs each), and twice a Gram matrix (rows x features^2 / 2).

    What a step expects to gain is what the metric says, and that may be far too little where the
    loss has kinks. ``problem.sure`` ends the search only where the objective cannot be further than
    ``tol`` times itself from the optimum, and refreshes the metric more often on the way.
    """
    state, sure = W if isinstance(W, HeadState) else _first_state(problem, W, gram), problem.sure
    metric = problem.metric(state.gram)

    def done(converged: bool) -> HeadFit:
        return HeadFit(state.W, state.value, state.step, converged, state.values, state.gram)

    for step in range(state.step, max_iter):
        if (step == 1 and not near) or (sure and step and step % REFRESHED == 0):
            floor = (KINK_FLOOR if sure else 1.0) * problem.loss.least_curvature
            state = replace(state, gram=problem.gram(state.W, floor), changes=())
            metric = problem.metric(state.gram)
        direction = -_two_loops(state.gradient, state.changes, metric)
        slope = float(np.vdot(direction, state.gradient))
        gain = problem.prior.most_gain(state.gradient) if sure else -0.5 * slope
        if not gain > tol * abs(state.value):
            return done(True)
        moved = _line_search(problem, state.W, state.value, direction, slope)
        if moved is None:  # rounding is all that is left
            return done(not sure)
        state = state.after(moved)
        if watch is not None and watch(state):
            return done(False)
    return done(False)


def _first_state(problem: HeadProblem, W: Array, gram: Array | None) -> HeadState:
    value, gradient = problem.value_gradient(W)
    gram = problem.gram(W) if gram is None else gram
    return HeadState(W, value, gradient, gram, values=(value,))


def _line_search(
    problem: HeadProblem, W: Array, value: float, direction: Array, slope: float
) -> tuple[Array, float, Array] | None:
    """The first of 1, 1/2, 1/4, ... that decreases the objective enough."""
    length = 1.0
    for _ in range(MAX_HALVINGS):
        trial = W + length * direction
        height, gradient = problem.value_gradient(trial)
        if height <= value + 1e-4 * length * slope:
            return trial, height, gradient
        if length * -slope < 1e-9 * abs(value):
            return None
        length *= 0.5
    return None


def _two_loops(
    gradient: Array,
    changes: tuple[tuple[Array, Array, float], ...],
    metric: Callable[[Array], Array],
) -> Array:
    """Inverse curvature times the gradient, by the last changes with the metric in the middle."""
    q, kept = gradient.copy(), []
    for change, bend, curve in reversed(changes):
        a = float(np.vdot(change, q)) / curve
        q -= a * bend
        kept.append(a)
    q = metric(q)
    for (change, bend, curve), a in zip(changes, reversed(kept), strict=True):
        q += (a - float(np.vdot(bend, q)) / curve) * change
    return q


def weighted_gram(Phi: Array, weight: Array) -> Array:
    """``Phi^T diag(weight) Phi``; only the lower triangle is meaningful."""
    scaled = np.sqrt(weight).astype(Phi.dtype)[:, None] * Phi
    syrk: Any = blas.ssyrk if Phi.dtype == np.float32 else blas.dsyrk
    return np.asarray(syrk(1.0, scaled.T, lower=1))


def lower_factor(H: Array) -> Array:
    """Cholesky factor of a matrix given by its lower triangle; double where single fails."""
    potrf: Any = lapack.spotrf if H.dtype == np.float32 else lapack.dpotrf
    factor, failed = potrf(H, lower=1, clean=1)
    if not failed:
        return np.asarray(factor)
    H = np.array(H, dtype=np.float64, order="F")
    rise = 1e-7 * float(np.diagonal(H).max())
    for _ in range(8):
        factor, failed = lapack.dpotrf(H, lower=1, clean=1)
        if not failed:
            return np.asarray(factor)
        H[np.diag_indices_from(H)] += rise
        rise *= 10.0
    raise np.linalg.LinAlgError("the curvature of the head is not positive definite")


def weigh(value: Array, slope: Array, weight: Array) -> tuple[Array, Array]:
    """Losses and slopes times the weights of their rows."""
    omega = weight.astype(value.dtype)
    return value * omega, slope * omega[:, None]


def rows_in_memory(Phi: Array, codes: Array, weight: Array | None = None) -> Reduce:
    """A reduction over features that are held in memory, block by block in one thread."""

    def reduce(map: Callable[[Batch], Any], merge: Callable[[Any, Any], Any]) -> Any:
        total = None
        for start in range(0, len(Phi), HEAD_ROWS):
            part = slice(start, start + HEAD_ROWS)
            omega = None if weight is None else weight[part]
            result = map(Batch(Phi[part], codes[part], omega, start=start))
            total = result if total is None else merge(total, result)
        return total

    return reduce


def ready_features(batch: Batch) -> Array:
    """Features that the engine holds itself."""
    return np.asarray(batch.X)


def ridge(n_features: int, precision: float, constant: float | None = None) -> Array:
    """Diagonal prior precision: all weights alike, and ``constant`` for the constant.

    By default that is hardly any; without any, the curvature of the softmax would be singular
    in the constants.
    """
    diagonal = np.full(n_features, precision)
    diagonal[-1] = min(precision, WEAK_CONSTANT) if constant is None else constant
    return diagonal


def _codes(batch: Batch) -> Array:
    if batch.y is None:
        raise ValueError("a head needs the class of every row")
    return np.asarray(batch.y)
