"""Output weights of a classifier on fixed features: a convex problem, by sums over blocks of rows.

Minimises ``sum_i omega_i loss(y_i, W^T phi_i) + 1/2 tr((W - M)^T H (W - M))`` where ``H`` is
diagonal (the initial prior) or one matrix per output (the posterior of earlier rows). Two classes
have one score, more have one each.

The losses are ``(1/beta) log sum_k exp(beta (f_k + margin 1[k != y])) - f_y``: cross-entropy for
``beta = 1`` without margin; with margin one, the multiclass hinge, smoothed from above by at most
``log(K) / beta``.

The solver is L-BFGS preconditioned by ``Phi^T diag(r) Phi + H``, with a curvature ``r`` per row
that all outputs share, refreshed after the first step. A trial point costs two products with the
features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from likelier.base import Array, Batch
from likelier.kernel_machine.weights_state import SolverState

MAX_HALVINGS = 20
# A row that is confident now may not be after the next step, so its curvature is at least this
# fraction of the largest possible one for two classes, and half of that for more.
CURVATURE_FLOOR = 0.1
HINGE_SHARPNESS = 20.0
# With kinks, the few rows at them change during the optimisation.
REFRESH_EVERY, KINK_FLOOR = 20, 0.03
REDUCE_BLOCK_ROWS = 2048
# Log of a negligible probability; subnormal arithmetic would be slow.
MIN_LOG = -40.0
WEAK_CONSTANT = 1e-2

Reduce = Callable[[Callable[[Batch], Any], Callable[[Any, Any], Any]], Any]


@dataclass(frozen=True)
class ClassLoss:
    """Cross-entropy or smoothed hinge of ``n_classes`` classes."""

    n_classes: int
    margin: float = 0.0
    sharpness: float = 1.0

    @property
    def n_outputs(self) -> int:
        """One score for two classes, else one per class."""
        return 1 if self.n_classes == 2 else self.n_classes

    def terms(self, scores: Array, codes: Array) -> tuple[Array, Array, Array]:
        """Loss, derivative and softmax probabilities of every row.

        The curvature of a row is ``sharpness (diag p - p p^T)``, for one score
        ``sharpness p (1 - p)``.
        """
        beta = scores.dtype.type(self.sharpness)
        if self.n_outputs == 1:
            sign = np.where(codes > 0.5, 1.0, -1.0).astype(scores.dtype)
            z = beta * (scores.dtype.type(self.margin) - sign * scores[:, 0])
            np.maximum(z, MIN_LOG, out=z)
            value = np.logaddexp(z, scores.dtype.type(0.0)) / beta
            wrong = np.exp(np.minimum(z, 0.0)) / (1.0 + np.exp(-np.abs(z)))
            return value, (-sign * wrong)[:, None], wrong[:, None]
        rows, k = np.arange(len(scores)), codes.astype(np.intp)
        own = scores[rows, k]
        # classes first: sums over few classes vectorise only along the rows
        z = beta * (np.ascontiguousarray(scores.T) + scores.dtype.type(self.margin))
        z[k, rows] = beta * own
        top = z.max(axis=0)
        z -= top
        p = np.exp(np.maximum(z, MIN_LOG, out=z), out=z)
        total = p.sum(axis=0)
        p /= total
        value = (top + np.log(total)) / beta - own
        derivative = p.copy()
        derivative[k, rows] -= 1.0
        return value, derivative.T, p.T

    def row_curvature(self, p: Array) -> Array:
        """Mean curvature of each row over the outputs."""
        if self.n_outputs == 1:
            return np.asarray(self.sharpness * (p * (1.0 - p))[:, 0])
        return np.asarray(self.sharpness * (p * (1.0 - p)).sum(axis=1) / (self.n_classes - 1))

    def metric_curvature(self, p: Array) -> Array:
        """Curvature of each row for a preconditioner that all outputs share.

        For several classes it is the root mean square of the eigenvalues of ``diag p - p p^T``: a
        row undecided between two of ten classes has nine times the average curvature along their
        difference, where the average would make steps too long.
        """
        if self.n_outputs == 1:
            return self.row_curvature(p)
        second, third = (p * p).sum(axis=1), (p * p * p).sum(axis=1)
        squares = np.maximum(second - 2.0 * third + second**2, 0.0)  # sum of squared eigenvalues
        return np.asarray(self.sharpness * np.sqrt(squares / (self.n_classes - 1)))

    @property
    def min_curvature(self) -> float:
        """Lower bound of the preconditioner for rows that are confident at the moment."""
        return self.sharpness * CURVATURE_FLOOR / (4.0 if self.n_outputs == 1 else 8.0)

    def start(self, n_features: int, frequencies: Array) -> Array:
        """Weights that predict the class frequencies; the intercept comes last."""
        W = np.zeros((n_features, self.n_outputs))
        if self.margin == 0.0:
            logs = np.log(frequencies)
            W[-1] = logs[1] - logs[0] if self.n_outputs == 1 else logs - logs.mean()
        return W


@dataclass(frozen=True)
class Prior:
    """Gaussian prior: mean and precision, a diagonal ``(D,)`` or matrices ``(outputs, D, D)``.

    One matrix ``(D, D)`` is shared by all outputs.
    """

    precision: Array
    mean: Array | None = None

    def gradient(self, W: Array) -> Array:
        """Gradient of the penalty."""
        deviation = W if self.mean is None else W - self.mean
        if self.precision.ndim == 1:
            return np.asarray(self.precision[:, None] * deviation)
        if self.precision.ndim == 2:
            return np.asarray(self.precision @ deviation)
        return np.stack([H @ deviation[:, k] for k, H in enumerate(self.precision)], axis=1)

    def value(self, W: Array) -> float:
        """Value of the penalty."""
        deviation = W if self.mean is None else W - self.mean
        return 0.5 * float((deviation * self.gradient(W)).sum())

    def max_decrease(self, gradient: Array) -> float:
        """Upper bound of the remaining decrease, from the gradient; for a diagonal precision.

        The objective is at least as strongly convex as the penalty.
        """
        return 0.5 * float((gradient**2 / self.precision[:, None]).sum())

    def shared(self) -> Array:
        """One precision for all outputs, a matrix or a diagonal."""
        return self.precision.mean(axis=0) if self.precision.ndim == 3 else self.precision


@dataclass(frozen=True)
class WeightProblem:
    """Optimisation problem: a reduction over rows, their features, loss and prior.

    ``offset`` returns scores to add to those of the features, ``(n, n_outputs)``. For ``certify``
    see `fit_output_weights`.
    """

    reduce: Reduce
    features: Callable[[Batch], Array]
    loss: ClassLoss
    prior: Prior
    offset: Callable[[Batch], Array] | None = None
    certify: bool = False

    def scores(self, batch: Batch, Phi: Array, W: Array) -> Array:
        """Scores of a batch with known features."""
        scores: Array = Phi @ W.astype(Phi.dtype)
        if self.offset is not None:
            scores += self.offset(batch).astype(Phi.dtype, copy=False)
        return scores

    def value_gradient(self, W: Array) -> tuple[float, Array]:
        """Objective and gradient, in one pass."""

        def map_block(batch: Batch) -> tuple[float, Array]:
            Phi = self.features(batch)
            value, derivative, _ = self.loss.terms(self.scores(batch, Phi, W), _codes(batch))
            if batch.weight is not None:
                value, derivative = apply_weights(value, derivative, batch.weight)
            return float(value.sum(dtype=np.float64)), (Phi.T @ derivative).astype(np.float64)

        value, gradient = self.reduce(map_block, lambda a, b: (a[0] + b[0], a[1] + b[1]))
        return value + self.prior.value(W), gradient + self.prior.gradient(W)

    def gram(self, W: Array, floor: float = 0.0) -> Array:
        """``Phi^T diag(r) Phi``, lower triangle, in the precision of the features; one pass.

        Row curvatures ``r`` are at least ``floor``.
        """

        def map_block(batch: Batch) -> Array:
            Phi = self.features(batch)
            _, _, p = self.loss.terms(self.scores(batch, Phi, W), _codes(batch))
            r = np.maximum(self.loss.metric_curvature(p), floor)
            return weighted_gram(Phi, r if batch.weight is None else r * batch.weight)

        return np.asarray(self.reduce(map_block, np.add))

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
class WeightFit:
    """Weights, and how the optimisation ended."""

    W: Array
    value: float
    n_iter: int
    converged: bool
    values: tuple[float, ...] = field(default=(), repr=False)
    gram: Array | None = field(default=None, repr=False)


def fit_output_weights(
    problem: WeightProblem,
    W: Array | SolverState,
    tol: float = 1e-4,
    max_iter: int = 100,
    monitor: Callable[[SolverState], bool] | None = None,
    gram: Array | None = None,
    near_optimum: bool = False,
) -> WeightFit:
    """Minimise from ``W`` until the expected decrease is below ``tol`` times the objective.

    ``monitor`` is called with the state after every step; True ends the optimisation. Passing such
    a state as ``W`` resumes to bit-identical results. ``gram`` is ``problem.gram(W)`` if already
    known; it does not depend on the prior. ``near_optimum`` says that ``W`` is near the optimum and
    that ``gram``, e.g. of another `WeightFit`, serves all steps. A step costs two products of the
    features with the weights (rows x features x outputs each); two Gram matrices (rows x features^2
    / 2) come in addition.

    The expected decrease relies on the preconditioner, which may be far too optimistic for losses
    with kinks. ``problem.certify`` stops only when the objective is guaranteed to be within ``tol``
    times itself of the optimum, and refreshes the preconditioner more often.
    """
    state = W if isinstance(W, SolverState) else _first_state(problem, W, gram)
    certify = problem.certify
    metric = problem.metric(state.gram)

    def done(converged: bool) -> WeightFit:
        return WeightFit(state.W, state.value, state.step, converged, state.values, state.gram)

    for step in range(state.step, max_iter):
        if (step == 1 and not near_optimum) or (certify and step and step % REFRESH_EVERY == 0):
            floor = (KINK_FLOOR if certify else 1.0) * problem.loss.min_curvature
            state = replace(state, gram=problem.gram(state.W, floor), changes=())
            metric = problem.metric(state.gram)
        direction = -_two_loop_recursion(state.gradient, state.changes, metric)
        derivative = float(np.vdot(direction, state.gradient))
        gain = problem.prior.max_decrease(state.gradient) if certify else -0.5 * derivative
        if not gain > tol * abs(state.value):
            return done(True)
        moved = _line_search(problem, state.W, state.value, direction, derivative)
        if moved is None:  # no progress beyond rounding error
            return done(not certify)
        state = state.after(moved)
        if monitor is not None and monitor(state):
            return done(False)
    return done(False)


def _first_state(problem: WeightProblem, W: Array, gram: Array | None) -> SolverState:
    value, gradient = problem.value_gradient(W)
    gram = problem.gram(W) if gram is None else gram
    return SolverState(W, value, gradient, gram, values=(value,))


def _line_search(
    problem: WeightProblem, W: Array, value: float, direction: Array, derivative: float
) -> tuple[Array, float, Array] | None:
    """The first of 1, 1/2, 1/4, ... that decreases the objective sufficiently."""
    length = 1.0
    for _ in range(MAX_HALVINGS):
        trial = W + length * direction
        height, gradient = problem.value_gradient(trial)
        if height <= value + 1e-4 * length * derivative:
            return trial, height, gradient
        if length * -derivative < 1e-9 * abs(value):
            return None
        length *= 0.5
    return None


def _two_loop_recursion(
    gradient: Array,
    changes: tuple[tuple[Array, Array, float], ...],
    metric: Callable[[Array], Array],
) -> Array:
    """L-BFGS two-loop recursion, with the preconditioner in the middle."""
    q, coefficients = gradient.copy(), []
    for change, gradient_change, product in reversed(changes):
        a = float(np.vdot(change, q)) / product
        q -= a * gradient_change
        coefficients.append(a)
    q = metric(q)
    for (change, gradient_change, product), a in zip(changes, reversed(coefficients), strict=True):
        q += (a - float(np.vdot(gradient_change, q)) / product) * change
    return q


def weighted_gram(Phi: Array, weight: Array) -> Array:
    """``Phi^T diag(weight) Phi``; only the lower triangle is meaningful."""
    scaled = np.sqrt(weight).astype(Phi.dtype)[:, None] * Phi
    syrk: Any = blas.ssyrk if Phi.dtype == np.float32 else blas.dsyrk
    return np.asarray(syrk(1.0, scaled.T, lower=1))


def lower_factor(H: Array) -> Array:
    """Cholesky factor of a lower triangle; falls back to double precision and jitter."""
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
    raise np.linalg.LinAlgError("the curvature of the output weights is not positive definite")


def apply_weights(value: Array, derivative: Array, weight: Array) -> tuple[Array, Array]:
    """Multiply losses and derivatives by the row weights."""
    omega = weight.astype(value.dtype)
    return value * omega, derivative * omega[:, None]


def in_memory_reduction(Phi: Array, codes: Array, weight: Array | None = None) -> Reduce:
    """Single-threaded reduction over features in memory, block by block."""

    def reduce(map: Callable[[Batch], Any], merge: Callable[[Any, Any], Any]) -> Any:
        total = None
        for start in range(0, len(Phi), REDUCE_BLOCK_ROWS):
            part = slice(start, start + REDUCE_BLOCK_ROWS)
            omega = None if weight is None else weight[part]
            result = map(Batch(Phi[part], codes[part], omega, start=start))
            total = result if total is None else merge(total, result)
        return total

    return reduce


def stored_features(batch: Batch) -> Array:
    """Features that the engine holds itself."""
    return np.asarray(batch.X)


def ridge(n_features: int, precision: float, constant: float | None = None) -> Array:
    """Diagonal prior precision of the weights, and ``constant`` for the intercept.

    The default for the intercept is weak but nonzero, since softmax intercepts are not identified.
    """
    diagonal = np.full(n_features, precision)
    diagonal[-1] = min(precision, WEAK_CONSTANT) if constant is None else constant
    return diagonal


def _codes(batch: Batch) -> Array:
    if batch.y is None:
        raise ValueError("y is missing; output weights need a target for every row")
    return np.asarray(batch.y)
