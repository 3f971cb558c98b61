"""Logistic regressions of all labels at once, by shared products with one matrix.

Every label ``c`` minimises ``sum_i omega_i log(1 + exp(-s_ic f_ic)) + 1/2 sum_j P_jc w_jc^2``,
``f = Z w_c + b_c`` with signs ``s`` and an intercept that is not penalised; a row whose label
is unknown (NaN) is left out of that label's sum. Columns of ``Z`` are uncorrelated principal
directions, so one diagonal matrix per label is a good guess of its curvature: the labels'
preconditioned conjugate gradients run side by side and each iteration costs two products
``Z @ (directions of all labels)``; line searches need no product at all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.multilabel.loops import line_sums, residuals

LINE_STEPS = 2  # Newton steps along a line; conjugate gradients forgive what is left
MAX_LINE_STEPS = 8  # where the first ones have found nothing lower


@dataclass(frozen=True)
class LabelWeights:
    """Gaussian law of the weights of all labels: a mode, and a diagonal precision there.

    ``coef`` and ``precision`` are ``(r, L)``, ``intercept`` and ``intercept_precision``
    ``(L,)``. The precision is that of Laplace's method in the principal directions.
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
        """Return the weights whose plain form this is."""
        return cls(**arrays)


def prior_weights(n_columns: int, Y: Array, weight: Array, alpha: Array) -> LabelWeights:
    """No weights, of precision ``alpha``; intercepts at the smoothed frequency of labels."""
    known = np.isfinite(Y)
    count = weight @ known
    share = (weight @ np.where(known, Y, 0.0) + 0.5) / (count + 1.0)
    return LabelWeights(
        np.zeros((n_columns, Y.shape[1]), dtype=Y.dtype),
        np.log(share / (1.0 - share)).astype(Y.dtype),
        np.broadcast_to(alpha, (n_columns, Y.shape[1])).astype(Y.dtype),
        ((count + 1.0) * share * (1.0 - share)).astype(Y.dtype),
    )


def fit_labels(
    Z: Matrix, Y: Array, weight: Array, alpha: Array,
    start: LabelWeights | None = None, max_iter: int = 40, tol: float = 1e-3,
) -> LabelWeights:  # fmt: skip
    """Minimise the penalised log loss of every label.

    Parameters
    ----------
    Z : array or CSR matrix of shape (n, r)
        Features; the nearer their columns are to centred and uncorrelated, the faster.
    Y : array of shape (n, L)
        Labels 0 and 1, NaN where unknown; the type of ``Z``.
    weight : array of shape (n,)
        Weights of rows, the type of ``Z``.
    alpha : array of shape (L,)
        Precision of every label's prior.
    start : LabelWeights, optional
        Where to start from.
    max_iter, tol : int, float
        Stop when the preconditioned gradient of every label fell by ``tol``, or is as small as
        that of a start from nothing usually is then.

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
    """Learn more rows: what was known before is the prior, its precision included."""
    return _minimise(Z, Y, weight, before, before, (max_iter, tol, 1.0))


def _minimise(
    Z: Matrix, Y: Array, weight: Array, prior: LabelWeights, start: LabelWeights,
    control: tuple[int, float, float],
) -> LabelWeights:  # fmt: skip
    """Minimum of loss plus prior; ``control``: iterations, tolerance, intercept's prior."""
    max_iter, tol, intercept_prior = control
    known = np.isfinite(Y[weight > 0.0]).any(axis=0)
    active = np.flatnonzero(known if intercept_prior else _varied(Y, weight))
    out = {name: array.copy() for name, array in prior.to_arrays().items()}
    if not len(active):
        return LabelWeights(**out)
    run = _Run(Z, Y, weight, prior, intercept_prior)
    run = run.begin(start).keep(active) if len(active) < Y.shape[1] else run.begin(start)
    for _ in range(max_iter):
        run.step()
        done = run.decrement <= tol * tol * run.first
        if done.all():
            break
        if done.mean() > 0.1:  # labels that are done leave, which makes products narrower
            run.store(out, active)
            active, run = active[~done], run.keep(~done)
    run.store(out, active)
    return LabelWeights(**out)


def _varied(Y: Array, weight: Array) -> Array:
    """Labels that some rows have and some have not; of any other only the frequency is known."""
    there = weight > 0.0
    return np.asarray((Y[there] == 1.0).any(axis=0) & (Y[there] == 0.0).any(axis=0))


def column_squares(Z: Matrix, weight: Array) -> Array:
    """Weighted mean of the squares of every column."""
    if isinstance(Z, np.ndarray):
        total = np.einsum("ij,ij,i->j", Z, Z, weight)
    else:
        total = np.asarray(sparse.csr_array(Z.multiply(Z)).T @ weight)
    return np.asarray(total / weight.sum(), dtype=Z.dtype)


# What `_Run` holds per label: columns of arrays, and single numbers.
WIDE = (
    "coef", "F", "R", "T", "W", "direction", "grad", "scaled", "centre", "alpha", "diagonal",
)  # fmt: skip
SINGLE = (
    "intercept", "direction_b", "grad_b", "scaled_b", "centre_b", "alpha_b", "diagonal_b",
    "decrement", "first", "momentum",
)  # fmt: skip


class _Run:
    """Preconditioned conjugate gradients of some labels, side by side."""

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
        self.usual = np.maximum(prior.intercept_precision.astype(np.float64), 1e-12)
        self.alpha_b = (intercept_prior * prior.intercept_precision).astype(Z.dtype)

    def begin(self, start: LabelWeights) -> _Run:
        """Start at the given weights."""
        self.coef, self.intercept = start.coef.copy(), start.intercept.copy()
        self.F = np.ascontiguousarray(start.scores(self.Z))
        self.R = np.empty_like(self.F)
        self.direction = np.zeros_like(self.coef)
        self.direction_b = np.zeros_like(self.intercept)
        self._gradient()
        self.decrement = self._inner(self.grad, self.grad_b)
        # a start near the optimum need not fall further than one from nothing
        self.first = np.maximum(self.decrement, self.usual)
        self.momentum = np.zeros(len(self.intercept), dtype=self.coef.dtype)
        return self

    def keep(self, which: Array) -> _Run:
        """Go on with some labels only."""
        for name in WIDE:
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[:, which]))
        for name in SINGLE:
            setattr(self, name, getattr(self, name)[which])
        return self

    def store(self, out: dict[str, Array], active: Array) -> None:
        """Write what has been found about the active labels."""
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
        stuck = (t == 0.0) & (self.momentum == 0.0)  # no descent left that rounding lets us see
        self.coef += t * self.direction
        self.intercept = self.intercept + t * self.direction_b
        G *= t
        self.F += G
        before, before_b = self.grad, self.grad_b
        self._gradient()
        new = self._inner(self.grad, self.grad_b)
        # Polak-Ribiere, set to zero where it would point back: the classic automatic restart
        change = new - self._inner(before, before_b)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(self.decrement > 0.0, change / self.decrement, 0.0)
        self.momentum = np.where(t > 0.0, np.clip(ratio, 0.0, 2.0), 0.0).astype(self.coef.dtype)
        self.decrement = np.where(stuck, 0.0, new)

    def _gradient(self) -> None:
        """Gradient, and the same divided by the diagonal guess of the curvature."""
        kind = self.coef.dtype
        curvature = np.empty(len(self.intercept), dtype=kind)
        total = np.empty_like(curvature)
        residuals(self.F, self.T, self.W, self.R, curvature, total)
        np.maximum(curvature, kind.type(1e-6), out=curvature)
        self.grad = self.Z.T @ self.R
        self.grad += self.alpha * (self.coef - self.centre)
        self.grad_b = total + self.alpha_b * (self.intercept - self.centre_b)
        self.diagonal = np.multiply.outer(self.squares, curvature)
        self.diagonal += self.alpha
        self.diagonal_b = curvature + self.alpha_b
        self.scaled, self.scaled_b = self.grad / self.diagonal, self.grad_b / self.diagonal_b

    def _search(self, G: Array) -> Array:
        """Minimum along the direction, for every label."""
        pull = self.alpha * self.direction
        straight = np.einsum("jc,jc->c", pull, self.coef - self.centre)
        straight += self.alpha_b * self.direction_b * (self.intercept - self.centre_b)
        bend = np.einsum("jc,jc->c", pull, self.direction) + self.alpha_b * self.direction_b**2
        line = _Line((self.F, G, self.T, self.W), straight, bend)
        for _ in range(LINE_STEPS):
            line.newton()
        late = np.flatnonzero(line.low == 0.0)
        if len(late):  # nothing lower has been seen yet
            narrow = line.keep(late)
            for _ in range(MAX_LINE_STEPS - LINE_STEPS):
                narrow.newton()
                if (narrow.low > 0.0).all():
                    break
            line.t[late], line.low[late], line.high[late] = narrow.t, narrow.low, narrow.high
        # where nothing lower has been seen, stay; beyond the last point seen, go a little only
        t = np.where(np.isfinite(line.high), line.t, np.minimum(line.t, 1.5 * line.low))
        return np.where(line.low > 0.0, t, 0.0).astype(self.coef.dtype)

    def _inner(self, grad: Array, grad_b: Array) -> Array:
        """Product of a gradient with the scaled one, per label."""
        out = np.einsum("jc,jc->c", grad, self.scaled) + grad_b * self.scaled_b
        return np.asarray(out, dtype=np.float64)


class _Line:
    """Newton steps along a direction, for every label inside a bracket ``low < t < high``.

    ``rows`` are scores, their change along the direction, targets and weights; ``straight`` and
    ``bend`` the prior's share of the slope at 0 and of its growth.
    """

    def __init__(self, rows: tuple[Array, ...], straight: Array, bend: Array) -> None:
        self.rows, self.straight, self.bend = rows, straight, bend
        self.t = np.ones_like(straight)
        self.low, self.high = np.zeros_like(straight), np.full_like(straight, np.inf)

    def keep(self, which: Array) -> _Line:
        """The same for some labels only."""
        rows = tuple(np.ascontiguousarray(array[:, which]) for array in self.rows)
        out = _Line(rows, self.straight[which], self.bend[which])
        out.t, out.low, out.high = self.t[which], self.low[which], self.high[which]
        return out

    def newton(self) -> None:
        """See the slope at ``t``, and go where Newton's step leads, if that is allowed."""
        t, slope, curve = self.t, np.empty_like(self.t), np.empty_like(self.t)
        line_sums(*self.rows, t, slope, curve)
        slope += self.straight + t * self.bend
        curve += self.bend
        down = slope < 0.0
        low, high = np.where(down, t, self.low), np.where(down, self.high, t)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = np.where(curve > 0.0, t - slope / curve, t)
        cut = np.where(low > 0.0, 0.5 * (low + high), 0.2 * high)
        inside = (newton > low) & (newton < high) & (newton <= 4.0 * t)
        self.t = np.where(inside, newton, np.where(np.isfinite(high), cut, 4.0 * t)).astype(t.dtype)
        self.low, self.high = low, high
