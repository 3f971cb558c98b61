"""Logistic regressions of all labels at once, with shared matrix products.

Every label ``c`` minimises ``sum_i omega_i log(1 + exp(-s_ic f_ic)) + 1/2 sum_j P_jc w_jc^2``,
``f = Z w_c + b_c`` with signs ``s`` and an unpenalised intercept; rows whose label is unknown
(NaN) are left out of that label's sum. Columns of ``Z`` are uncorrelated principal directions, so
a diagonal matrix per label approximates its curvature well: the preconditioned conjugate gradients
of all labels run side by side and each iteration costs two products ``Z @ (directions of all
labels)``; line searches need no product at all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.multilabel.loops import line_sums, residuals

LINE_STEPS = 2  # Newton steps per line search, which need not be exact
MAX_LINE_STEPS = 8  # if the first steps have found no decrease


@dataclass(frozen=True)
class LabelWeights:
    """Gaussian posterior of the weights of all labels: mode and diagonal precision.

    ``coef`` and ``precision`` are ``(r, L)``, ``intercept`` and ``intercept_precision``
    ``(L,)``. The precision is that of the Laplace approximation in the principal directions.
    """

    coef: Array
    intercept: Array
    precision: Array
    intercept_precision: Array

    def scores(self, Z: Matrix) -> Array:
        """Scores of rows at the mode, one column per label."""
        return np.asarray(Z @ self.coef + self.intercept)

    def variance(self, Z: Matrix) -> Array:
        """Variance of every score."""
        square = Z * Z if isinstance(Z, np.ndarray) else Z.multiply(Z).tocsr()
        return np.asarray(square @ (1.0 / self.precision) + 1.0 / self.intercept_precision)

    def to_arrays(self) -> dict[str, Array]:
        """Plain form, for saving."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Any) -> Self:
        """Inverse of `to_arrays`."""
        return cls(**arrays)


def prior_weights(n_columns: int, Y: Array, weight: Array, alpha: Array) -> LabelWeights:
    """Zero weights of precision ``alpha``; intercepts at the smoothed frequencies of the labels."""
    known = np.isfinite(Y)
    count = weight @ known
    frequency = (weight @ np.where(known, Y, 0.0) + 0.5) / (count + 1.0)
    return LabelWeights(
        np.zeros((n_columns, Y.shape[1]), dtype=Y.dtype),
        np.log(frequency / (1.0 - frequency)).astype(Y.dtype),
        np.broadcast_to(alpha, (n_columns, Y.shape[1])).astype(Y.dtype),
        ((count + 1.0) * frequency * (1.0 - frequency)).astype(Y.dtype),
    )


def fit_labels(
    Z: Matrix, Y: Array, weight: Array, alpha: Array,
    start: LabelWeights | None = None, max_iter: int = 40, tol: float = 1e-3,
) -> LabelWeights:  # fmt: skip
    """Minimise the penalised log loss of every label.

    Parameters
    ----------
    Z : array or CSR matrix of shape (n, r)
        Features; converges fastest if columns are centred and uncorrelated.
    Y : array of shape (n, L)
        Labels 0 and 1, NaN where unknown; same dtype as ``Z``.
    weight : array of shape (n,)
        Weights of rows, same dtype as ``Z``.
    alpha : array of shape (L,)
        Prior precision of every label's weights.
    start : LabelWeights, optional
        Initial weights.
    max_iter, tol : int, float
        Stop when the preconditioned gradient norm of every label fell by a factor of ``tol``,
        relative to the initial one or to a typical start at zero weights.

    Returns
    -------
    LabelWeights
        The minimum. Cost per iteration: two products of ``Z`` with ``L`` columns.
    """
    empty = prior_weights(Z.shape[1], Y, weight, alpha)
    return _minimise(Z, Y, weight, empty, start or empty, (max_iter, tol, 0.0))


def update_labels(
    Z: Matrix, Y: Array, weight: Array, before: LabelWeights, max_iter: int = 40, tol: float = 1e-3
) -> LabelWeights:
    """Learn more rows, with the previous posterior as prior."""
    return _minimise(Z, Y, weight, before, before, (max_iter, tol, 1.0))


def _minimise(
    Z: Matrix, Y: Array, weight: Array, prior: LabelWeights, start: LabelWeights,
    control: tuple[int, float, float],
) -> LabelWeights:  # fmt: skip
    """Minimum of loss plus prior; ``control``: max_iter, tol, factor of the intercept's prior."""
    max_iter, tol, intercept_prior = control
    known = np.isfinite(Y[weight > 0.0]).any(axis=0)
    active = np.flatnonzero(known if intercept_prior else _varied(Y, weight))
    out = {name: array.copy() for name, array in prior.to_arrays().items()}
    if not len(active):
        return LabelWeights(**out)
    run = _ConjugateGradients(Z, Y, weight, prior, intercept_prior)
    run = run.start(start).select(active) if len(active) < Y.shape[1] else run.start(start)
    for _ in range(max_iter):
        run.step()
        done = run.decrement <= tol * tol * run.initial
        if done.all():
            break
        if done.mean() > 0.1:  # drop converged labels, which makes products cheaper
            run.store(out, active)
            active, run = active[~done], run.select(~done)
    run.store(out, active)
    return LabelWeights(**out)


def _varied(Y: Array, weight: Array) -> Array:
    """Labels that take both values."""
    present = weight > 0.0
    return np.asarray((Y[present] == 1.0).any(axis=0) & (Y[present] == 0.0).any(axis=0))


def column_squares(Z: Matrix, weight: Array) -> Array:
    """Weighted mean of the squares of every column."""
    if isinstance(Z, np.ndarray):
        total = np.einsum("ij,ij,i->j", Z, Z, weight)
    else:
        total = np.asarray(sparse.csr_array(Z.multiply(Z)).T @ weight)
    return np.asarray(total / weight.sum(), dtype=Z.dtype)


# State of `_ConjugateGradients` per label: columns of arrays, and scalars.
ARRAYS = (
    "coef", "F", "R", "T", "W", "direction", "grad", "scaled", "centre", "alpha", "diagonal",
)  # fmt: skip
SCALARS = (
    "intercept", "direction_b", "grad_b", "scaled_b", "centre_b", "alpha_b", "diagonal_b",
    "decrement", "initial", "momentum",
)  # fmt: skip


class _ConjugateGradients:
    """Preconditioned conjugate gradients of several labels, side by side."""

    def __init__(
        self, Z: Matrix, Y: Array, weight: Array, prior: LabelWeights, intercept_prior: float
    ) -> None:
        self.Z = Z
        known = np.isfinite(Y)
        self.T = np.where(known, Y, Y.dtype.type(0))  # targets
        self.W = np.where(known, weight[:, None], weight.dtype.type(0))  # 0 where unknown
        self.squares = column_squares(Z, weight)
        self.centre, self.alpha = prior.coef, prior.precision
        self.centre_b = prior.intercept
        self.typical = np.maximum(prior.intercept_precision.astype(np.float64), 1e-12)
        self.alpha_b = (intercept_prior * prior.intercept_precision).astype(Z.dtype)

    def start(self, start: LabelWeights) -> _ConjugateGradients:
        """Start at the given weights."""
        self.coef, self.intercept = start.coef.copy(), start.intercept.copy()
        self.F = np.ascontiguousarray(start.scores(self.Z))
        self.R = np.empty_like(self.F)
        self.direction = np.zeros_like(self.coef)
        self.direction_b = np.zeros_like(self.intercept)
        self._gradient()
        self.decrement = self._inner(self.grad, self.grad_b)
        # a start near the optimum need not improve further than one from zero weights
        self.initial = np.maximum(self.decrement, self.typical)
        self.momentum = np.zeros(len(self.intercept), dtype=self.coef.dtype)
        return self

    def select(self, which: Array) -> _ConjugateGradients:
        """Continue with some of the labels."""
        for name in ARRAYS:
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[:, which]))
        for name in SCALARS:
            setattr(self, name, getattr(self, name)[which])
        return self

    def store(self, out: dict[str, Array], active: Array) -> None:
        """Write the results of the active labels."""
        out["coef"][:, active], out["intercept"][active] = self.coef, self.intercept
        out["precision"][:, active] = self.diagonal
        out["intercept_precision"][active] = self.diagonal_b

    def step(self) -> None:
        """One iteration: a direction, the minimum along it, the next gradient."""
        self.direction *= self.momentum
        self.direction -= self.scaled
        self.direction_b = self.momentum * self.direction_b - self.scaled_b
        G = np.ascontiguousarray(self.Z @ self.direction)
        G += self.direction_b
        t = self._search(G)
        stuck = (t == 0.0) & (self.momentum == 0.0)  # no descent beyond rounding errors
        self.coef += t * self.direction
        self.intercept = self.intercept + t * self.direction_b
        G *= t
        self.F += G
        before, before_b = self.grad, self.grad_b
        self._gradient()
        new = self._inner(self.grad, self.grad_b)
        # Polak-Ribiere+, which restarts automatically
        change = new - self._inner(before, before_b)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.decrement > 0.0, change / self.decrement, 0.0)
        self.momentum = np.where(t > 0.0, np.clip(ratio, 0.0, 2.0), 0.0).astype(self.coef.dtype)
        self.decrement = np.where(stuck, 0.0, new)

    def _gradient(self) -> None:
        """Gradient, and the gradient divided by the diagonal approximation of the curvature."""
        dtype = self.coef.dtype
        curvature = np.empty(len(self.intercept), dtype=dtype)
        total = np.empty_like(curvature)
        residuals(self.F, self.T, self.W, self.R, curvature, total)
        np.maximum(curvature, dtype.type(1e-6), out=curvature)
        self.grad = self.Z.T @ self.R
        self.grad += self.alpha * (self.coef - self.centre)
        self.grad_b = total + self.alpha_b * (self.intercept - self.centre_b)
        self.diagonal = np.multiply.outer(self.squares, curvature)
        self.diagonal += self.alpha
        self.diagonal_b = curvature + self.alpha_b
        self.scaled, self.scaled_b = self.grad / self.diagonal, self.grad_b / self.diagonal_b

    def _search(self, G: Array) -> Array:
        """Minimum along the direction, for every label."""
        prior_step = self.alpha * self.direction
        prior_gradient = np.einsum("jc,jc->c", prior_step, self.coef - self.centre)
        prior_gradient += self.alpha_b * self.direction_b * (self.intercept - self.centre_b)
        prior_curvature = (
            np.einsum("jc,jc->c", prior_step, self.direction) + self.alpha_b * self.direction_b**2
        )
        line = _LineSearch((self.F, G, self.T, self.W), prior_gradient, prior_curvature)
        for _ in range(LINE_STEPS):
            line.newton()
        pending = np.flatnonzero(line.low == 0.0)
        if len(pending):  # no decrease found yet
            narrow = line.select(pending)
            for _ in range(MAX_LINE_STEPS - LINE_STEPS):
                narrow.newton()
                if (narrow.low > 0.0).all():
                    break
            line.t[pending], line.low[pending], line.high[pending] = (
                narrow.t,
                narrow.low,
                narrow.high,
            )
        # without a decrease, do not move; without a bracket, extrapolate only a little
        t = np.where(np.isfinite(line.high), line.t, np.minimum(line.t, 1.5 * line.low))
        return np.where(line.low > 0.0, t, 0.0).astype(self.coef.dtype)

    def _inner(self, grad: Array, grad_b: Array) -> Array:
        """Product of a gradient with the scaled one, per label."""
        out = np.einsum("jc,jc->c", grad, self.scaled) + grad_b * self.scaled_b
        return np.asarray(out, dtype=np.float64)


class _LineSearch:
    """Newton steps along a direction, for every label inside a bracket ``low < t < high``.

    ``rows`` are scores, their change along the direction, targets and weights;
    ``prior_gradient`` and ``prior_curvature`` are the prior's derivatives at 0.
    """

    def __init__(
        self, rows: tuple[Array, ...], prior_gradient: Array, prior_curvature: Array
    ) -> None:
        self.rows, self.prior_gradient, self.prior_curvature = rows, prior_gradient, prior_curvature
        self.t = np.ones_like(prior_gradient)
        self.low, self.high = np.zeros_like(prior_gradient), np.full_like(prior_gradient, np.inf)

    def select(self, which: Array) -> _LineSearch:
        """The same for some of the labels."""
        rows = tuple(np.ascontiguousarray(array[:, which]) for array in self.rows)
        out = _LineSearch(rows, self.prior_gradient[which], self.prior_curvature[which])
        out.t, out.low, out.high = self.t[which], self.low[which], self.high[which]
        return out

    def newton(self) -> None:
        """Evaluate the derivative at ``t``, and take a safeguarded Newton step."""
        t, first, second = self.t, np.empty_like(self.t), np.empty_like(self.t)
        line_sums(*self.rows, t, first, second)
        first += self.prior_gradient + t * self.prior_curvature
        second += self.prior_curvature
        down = first < 0.0
        low, high = np.where(down, t, self.low), np.where(down, self.high, t)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = np.where(second > 0.0, t - first / second, t)
        bisection = np.where(low > 0.0, 0.5 * (low + high), 0.2 * high)
        inside = (newton > low) & (newton < high) & (newton <= 4.0 * t)
        self.t = np.where(inside, newton, np.where(np.isfinite(high), bisection, 4.0 * t)).astype(
            t.dtype
        )
        self.low, self.high = low, high
