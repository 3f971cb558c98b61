"""Output weights on fixed features: a convex problem, by sums over blocks of rows.

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
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import blas, lapack

from likelier.base import Array, Batch, Engine, Inference, Info, RowValues
from likelier.fitting.monitor import Monitor
from likelier.fitting.run import run

MAX_HALVINGS = 20
# A row that is confident now may not be after the next step, so its curvature is at least this
# fraction of the largest possible one for two classes, and half of that for more.
CURVATURE_FLOOR = 0.1
HINGE_SHARPNESS = 20.0
# With kinks, the few rows at them change during the optimisation.
REFRESH_EVERY, KINK_FLOOR = 20, 0.03
MEMORY = 10  # steps that L-BFGS remembers
# Log of a negligible probability; subnormal arithmetic would be slow.
MIN_LOG = -40.0
WEAK_CONSTANT = 1e-2


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
    """Rows with features, and the loss and prior of their weights.

    Attributes
    ----------
    engine : Engine
        Rows with targets (class codes or numbers) and weights.
    features : RowValues
        Features of the rows, the last one constant.
    loss : ClassLoss or EpsilonLoss
    prior : Prior
    offset : RowValues, optional
        Scores to add to those of the features.
    certify : bool
        See `WeightSolver`.
    """

    engine: Engine
    features: RowValues
    loss: Any
    prior: Prior
    offset: RowValues | None = None
    certify: bool = False

    def reduce(self, map: Callable[..., Any], merge: Callable[[Any, Any], Any], state: Any) -> Any:
        """Sum ``map(batch, scored rows, *state)`` over rows; the state starts with the weights."""
        offset = () if self.offset is None else (self.offset,)
        whole: Any = OnScores(self.loss, map)
        return self.engine.reduce(whole, merge, self.features, *offset, state=state)

    def value_gradient(self, W: Array) -> tuple[float, Array]:
        """Objective and gradient, in one pass."""
        value, gradient = self.reduce(_value_gradient, _add_pairs, (W,))
        return value + self.prior.value(W), gradient + self.prior.gradient(W)

    def gram(self, W: Array, floor: float = 0.0) -> Array:
        """``Phi^T diag(r) Phi``, lower triangle, in the precision of the features; one pass.

        Row curvatures ``r`` are at least ``floor``.
        """
        return np.asarray(self.reduce(_metric_gram, np.add, (W, floor, self.loss)))

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
class ScoredRows:
    """Features of a block of rows, and what the loss says at their scores."""

    Phi: Array
    value: Array
    derivative: Array
    p: Array

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.Phi)


@dataclass(frozen=True)
class OnScores:
    """The map of a pass: scores of a block by the weights, then a function of what they cost."""

    loss: Any
    then: Callable[..., Any]

    def __call__(self, batch: Batch, Phi: Array, *rest: Any) -> Any:
        *offset, state = rest
        scores: Array = Phi @ state[0].astype(Phi.dtype)
        if offset:
            scores += offset[0].astype(Phi.dtype, copy=False)
        value, derivative, p = self.loss.terms(scores, np.asarray(batch.y))
        return self.then(batch, ScoredRows(Phi, value, derivative, p), *state)


def _value_gradient(batch: Batch, rows: ScoredRows, W: Array) -> tuple[float, Array]:
    value, derivative = rows.value, rows.derivative
    if batch.weight is not None:
        omega = batch.weight.astype(value.dtype)
        value, derivative = value * omega, derivative * omega[:, None]
    return float(value.sum(dtype=np.float64)), (rows.Phi.T @ derivative).astype(np.float64)


def _add_pairs(one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
    return one[0] + other[0], one[1] + other[1]


def _metric_gram(batch: Batch, rows: ScoredRows, W: Array, floor: float, loss: Any) -> Array:
    r = np.maximum(loss.metric_curvature(rows.p), floor)
    return weighted_gram(rows.Phi, r if batch.weight is None else r * batch.weight)


@dataclass(frozen=True)
class FeatureRows:
    """The map from a block of rows to their features, in single precision."""

    map: Callable[..., Array]

    def __call__(self, batch: Batch) -> Array:
        return self.map(batch.X, np.float32)


@dataclass(frozen=True)
class SolverState:
    """Everything that the next steps depend on.

    ``changes`` are the recent steps: change of the weights, of the gradient, and their product.
    """

    W: Array
    value: float
    gradient: Array
    gram: Array
    changes: tuple[tuple[Array, Array, float], ...] = ()
    step: int = 0
    converged: bool = False

    def after(self, moved: tuple[Array, float, Array]) -> SolverState:
        """State one step later, from (weights, objective, gradient)."""
        W, value, gradient = moved
        change, gradient_change = W - self.W, gradient - self.gradient
        product, changes = float(np.vdot(change, gradient_change)), self.changes
        if product > 0.0:
            changes = (*changes[1 - MEMORY :], (change, gradient_change, product))
        return SolverState(W, value, gradient, self.gram, changes, self.step + 1)


@dataclass(frozen=True)
class WeightSolver(Inference):
    """Preconditioned L-BFGS, until the expected decrease is below ``tol`` times the objective.

    A step costs two products of the features with the weights (rows x features x outputs each);
    two Gram matrices (rows x features^2 / 2) come in addition.

    The expected decrease relies on the preconditioner, which may be far too optimistic for losses
    with kinks. ``problem.certify`` stops only when the objective is guaranteed to be within ``tol``
    times itself of the optimum, and refreshes the preconditioner more often.

    Parameters
    ----------
    problem : WeightProblem
    tol : float
    near_optimum : bool
        The start is near the optimum and its ``gram`` serves all steps.
    """

    resumable: ClassVar[bool] = True

    problem: WeightProblem
    tol: float = 1e-4
    near_optimum: bool = False
    _metrics: list[tuple[Array, Callable[[Array], Array]]] = field(
        default_factory=list, compare=False, repr=False
    )  # the last Gram matrix and the metric made of it

    def init(self, model: Any, engine: Any = None, gram: Array | None = None) -> SolverState:
        """State at the weights ``model``; ``gram`` is `WeightProblem.gram` there if known."""
        value, gradient = self.problem.value_gradient(model)
        gram = self.problem.gram(model) if gram is None else gram
        return SolverState(model, value, gradient, gram)

    def step(self, state: SolverState, engine: Any = None) -> tuple[SolverState, Info]:
        """One step: a pass for each length tried."""
        problem, certify = self.problem, self.problem.certify
        refresh = certify and state.step and state.step % REFRESH_EVERY == 0
        if (state.step == 1 and not self.near_optimum) or refresh:
            floor = (KINK_FLOOR if certify else 1.0) * problem.loss.min_curvature
            state = replace(state, gram=problem.gram(state.W, floor), changes=())
        if not self._metrics or self._metrics[0][0] is not state.gram:
            self._metrics[:] = [(state.gram, problem.metric(state.gram))]
        metric = self._metrics[0][1]
        direction = -_two_loop_recursion(state.gradient, state.changes, metric)
        derivative = float(np.vdot(direction, state.gradient))
        gain = problem.prior.max_decrease(state.gradient) if certify else -0.5 * derivative
        if not gain > self.tol * abs(state.value):
            return replace(state, converged=True), Info(state.value, gain, 0.0, True)
        moved = _line_search(problem, state.W, state.value, direction, derivative)
        if moved is None:  # no progress beyond rounding error
            info = Info(state.value, gain, 1.0, not certify, "no step decreases the objective")
            return replace(state, converged=not certify), info
        after = state.after(moved)
        return after, Info(after.value, gain, 1.0)

    def posterior(self, state: SolverState) -> Any:
        """The state itself: the posterior needs one more pass, see `laplace`."""
        return state


def fit_weights(
    problem: WeightProblem,
    W: Array,
    tol: float,
    max_iter: int,
    gram: Array | None = None,
    near_optimum: bool = False,
) -> SolverState:
    """Minimise from ``W``, unmonitored: for small problems such as validation fits."""
    solver = WeightSolver(problem, tol, near_optimum)
    state = solver.init(W, None, gram)
    while state.step < max_iter:
        state, info = solver.step(state)
        if info.converged or info.message:
            break
    return state


def solve(
    solver: WeightSolver, W: Array, max_iter: int, stage: str, monitor: Monitor
) -> SolverState:
    """Minimise from ``W`` under a monitor; the result is recorded without what led to it."""

    def optimise() -> SolverState:
        state, n_steps = solver.init(W), monitor.n_steps + max_iter
        if monitor.over:  # a first step, since the start knows nothing of the inputs
            state, _ = solver.step(state)
        engine = solver.problem.engine
        result = run(solver, state, engine, monitor, stage=stage, max_steps=n_steps)
        found: SolverState = result.state
        return replace(found, gram=np.empty((0, 0)), changes=())

    return monitor.stage(f"optimum of {stage}", optimise)


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


def ridge(n_features: int, precision: float, constant: float | None = None) -> Array:
    """Diagonal prior precision of the weights, and ``constant`` for the intercept.

    The default for the intercept is weak but nonzero, since softmax intercepts are not identified.
    """
    diagonal = np.full(n_features, precision)
    diagonal[-1] = min(precision, WEAK_CONSTANT) if constant is None else constant
    return diagonal
