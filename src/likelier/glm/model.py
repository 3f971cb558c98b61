"""The linear model: scores ``x^T w + b`` under a loss and a penalty.

Objective, for every linear estimator: ``(1/N) sum_i omega_i loss(y_i, f_i) + penalty(w)``, N the
number of rows of positive weight, the intercept not penalised.

Parameters are one matrix ``theta`` with a column per output: the weights and, in its last
row if the model has one, the intercept. Statistics are additive over blocks of rows.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Loss, Matrix, Model
from likelier.glm.loops.terms import (
    coupled_terms,
    dense_sums,
    dense_values,
    scalar_terms,
    scale_rows,
    sparse_gram,
    sparse_sums,
    sparse_values,
)
from likelier.glm.penalty import ElasticNet
from likelier.loops.rows import all_rows, as_rows

NO_WEIGHT = np.empty(0)
TILE_BYTES = 1 << 21  # of dense rows, which stay in the cache for all sums


@dataclass(frozen=True)
class LinearStats:
    """Sums over rows: losses per output, gradient, Hessian and the meat of the sandwich.

    ``hessian`` and ``meat`` have shape (outputs, p, p), or (1, K p, K p) for a coupled loss,
    with the parameters ordered by class. Parts that were not requested are None.
    """

    n_rows: int
    value: Array
    gradient: Array | None = None
    hessian: Array | None = None
    meat: Array | None = None

    def __add__(self, other: LinearStats) -> LinearStats:
        return LinearStats(
            self.n_rows + other.n_rows,
            self.value + other.value,
            _add(self.gradient, other.gradient),
            _add(self.hessian, other.hessian),
            _add(self.meat, other.meat),
        )


def _add(left: Array | None, right: Array | None) -> Array | None:
    if left is None or right is None:
        return None
    left += right
    return left


@dataclass(frozen=True)
class LinearModel(Model):
    """A loss, a penalty and the shape of the parameters.

    Attributes
    ----------
    classes : bool
        Targets are class indices; output k of a scalar loss has target +1 for class k, else -1.
    penalty : ElasticNet
        One strength per row of ``theta``, zero for the intercept.
    floor : float
        Lower bound of the mean loss on the data, to which tolerances are relative.
    """

    has_energy: ClassVar[bool] = True
    has_stats: ClassVar[bool] = True

    loss: Loss
    n_features: int
    n_outputs: int
    classes: bool
    fit_intercept: bool
    penalty: ElasticNet
    floor: float = 0.0

    @property
    def n_rows_theta(self) -> int:
        """Number of rows of ``theta``: features and intercept."""
        return self.n_features + int(self.fit_intercept)

    def zeros(self) -> Array:
        """Return parameters that score zero everywhere."""
        return np.zeros((self.n_rows_theta, self.n_outputs))

    def scores(self, theta: Array, X: Matrix) -> Array:
        """Scores of the rows of ``X``, one column per output."""
        W = theta[: self.n_features]
        if isinstance(X, np.ndarray) and W.shape[1] > 1:
            # BLAS is far faster with few rows than with few columns
            out = np.ascontiguousarray((W.T @ X.T).T, dtype=np.float64)
        else:
            out = np.asarray(X @ W, dtype=np.float64)
        if self.fit_intercept:
            out += theta[self.n_features]
        return out

    def energy(self, theta: Array, batch: Batch) -> float:
        """Mean loss of a batch plus the penalty."""
        stats = self.stats(theta, batch)
        return float(stats.value.sum()) / stats.n_rows + float(self.penalty.value(theta).sum())

    def stats(
        self,
        theta: Array,
        batch: Batch,
        order: int = 0,
        width: float = 0.0,
        meat: bool = False,
        every: int = 1,
    ) -> LinearStats:
        """Additive statistics of a batch up to the given derivative of the loss.

        ``width`` replaces a scalar loss by its Moreau envelope, and a maximum over classes by a
        softmax. With ``every`` > 1 the off-diagonal Hessian of a scalar loss uses one row in so
        many. Cost: rows x features for orders 0 and 1, times features for order 2 and the meat.
        """
        if order == 2 and not meat and not self.loss.coupled and sparse.issparse(batch.X):
            return self._sparse_stats(theta, batch, width, every)
        if meat or order == 0 or not self.in_one_sweep(batch.X):
            batch = batch.compact()
        X = batch.X
        if order >= 1 and self.in_one_sweep(X):
            return self._dense_stats(theta, batch, order, width, meat, every)
        if not sparse.issparse(X):
            X = np.asarray(X, dtype=np.float64)
        scores = self.scores(theta, X)
        value, derivative, curvature = self.terms(batch, scores, order, width)
        if order == 0:
            return LinearStats(batch.n_rows, value)
        gradient = self.pull_back(X, derivative)
        hessian = self._hessian(X, curvature, batch.weight, every) if order >= 2 else None
        if self.loss.coupled and width > 0.0 and hessian is not None:
            hessian /= width
        outer = self._outer(X, derivative) if meat else None
        return LinearStats(batch.n_rows, value, gradient, hessian, outer)

    def in_one_sweep(self, X: Matrix) -> bool:
        """Whether rows are dense and contiguous, with a single score each.

        Sums over them then read listed rows (``Batch.rows``) without a copy.
        """
        single = not self.loss.coupled and self.n_outputs == 1
        return single and not sparse.issparse(X) and bool(np.asarray(X).flags.c_contiguous)

    def _dense_stats(
        self, theta: Array, batch: Batch, order: int, width: float, meat: bool, every: int
    ) -> LinearStats:
        """Sums over dense rows with a single score, in tiles that stay in the cache."""
        p, n_rows, X = self.n_rows_theta, batch.n_rows, np.asarray(batch.X)
        w, (y, weight, *rest), rows = theta[:, 0].copy(), self._targets(batch), batch.rows
        value, gradient = 0.0, np.zeros(p)
        thin = order >= 2 and every > 1
        diagonal = np.zeros(p if thin else 0)
        hessian = np.zeros((p, p)) if order >= 2 else None
        outer = np.zeros((p, p)) if meat else None
        size = n_rows if hessian is None else every * max(1, TILE_BYTES // (8 * p))
        size = min(n_rows, size)
        derivatives = np.empty(size)
        roots = _scratch((0 if hessian is None else -(-size // every), p))
        for first in range(0, n_rows, size):
            some = slice(first, min(first + size, n_rows))
            tile, omega, few = X[some], weight[some] if len(weight) else weight, -first % every
            given = (tile, None, y[some], omega) if rows is None else (X, rows[some], y, weight)
            loss, n_roots = dense_sums(
                *given, *rest, width, w, self.fit_intercept, gradient, diagonal, (few, every),
                (derivatives, roots),
            )  # fmt: skip
            value += loss
            if hessian is not None:
                hessian += roots[:n_roots].T @ roots[:n_roots]
            if outer is not None:
                outer += self.gram(tile, derivatives[: len(tile)] ** 2)
        if hessian is not None and thin:
            _thinned(hessian, every, diagonal)
        return LinearStats(
            n_rows, np.array([value]), gradient[:, None],
            None if hessian is None else hessian[None], None if outer is None else outer[None],
        )  # fmt: skip

    def _targets(self, batch: Batch) -> tuple[Any, ...]:
        """Targets, weights and loss, as arguments of compiled sums."""
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        return batch.y, weight, self.loss.code, self.loss.parameters, self.classes

    def _sparse_stats(self, theta: Array, batch: Batch, width: float, every: int) -> LinearStats:
        """Value, gradient and Hessian of sparse rows in one sweep, without a copy."""
        p, K = self.n_rows_theta, self.n_outputs
        gradient, hessian, value = np.zeros((K, p)), np.zeros((K, p, p)), np.empty(K)
        rows = self._sparse_rows(batch)
        for k in range(K):
            diagonal = np.zeros(p)
            value[k] = sparse_sums(
                *rows, k, width, theta[:, k].copy(), self.fit_intercept, every,
                gradient[k], hessian[k], diagonal,
            )  # fmt: skip
            _mirror(hessian[k])
            if every > 1:
                _thinned(hessian[k], every, diagonal)
        return LinearStats(batch.n_rows, value, gradient.T.copy(), hessian)

    def _sparse_values(self, thetas: list[Array], batch: Batch, width: float) -> Array:
        """Values for a single output, without storing scores."""
        rows = self._sparse_rows(batch)
        sums = [sparse_values(*rows, 0, width, w[:, 0].copy(), self.fit_intercept) for w in thetas]
        return np.array(sums)[:, None]

    def _sparse_rows(self, batch: Batch) -> tuple[Any, ...]:
        """Sparse rows, targets, weights and loss, as arguments of compiled sums."""
        return (*as_rows(batch.X), all_rows(batch.X, batch.rows), *self._targets(batch))

    def values_at(self, thetas: list[Array], batch: Batch, width: float = 0.0) -> Array:
        """Summed loss per output of a batch at several points, one row per point."""
        if sparse.issparse(batch.X) and not self.loss.coupled and self.n_outputs == 1:
            return self._sparse_values(thetas, batch, width)
        batch = batch.compact()
        if self.in_one_sweep(batch.X):
            points, X = np.hstack(thetas).T.copy(), np.asarray(batch.X)
            sums = dense_values(X, *self._targets(batch), width, points, self.fit_intercept)
            return np.asarray(sums)[:, None]
        if len(thetas) == 1:
            return self.terms(batch, self.scores(thetas[0], batch.X), 0, width)[0][None]
        all_scores = self.scores(np.hstack(thetas), batch.X)
        parts = np.split(all_scores, len(thetas), axis=1)
        return np.stack([self.terms(batch, np.ascontiguousarray(f), 0, width)[0] for f in parts])

    def values_at_zero(self, batch: Batch) -> Array:
        """Summed loss per output of a batch for scores of zero; does not read the rows."""
        if not self.classes or self.loss.coupled:
            return self.terms(batch.compact(), np.zeros((batch.n_rows, self.n_outputs)), 0)[0]
        assert batch.y is not None
        y, weight = batch.y, batch.weight
        if batch.rows is not None:
            y, weight = y[batch.rows], None if weight is None else weight[batch.rows]
        right, wrong = self._losses_of_zero
        if self.n_outputs == 1 and weight is None:
            positive = np.array([np.count_nonzero(y == 0.0)])
            return np.asarray(right * positive + wrong * (len(y) - positive))
        per_class = np.bincount(y.astype(np.intp), weights=weight, minlength=self.n_outputs)
        positive = per_class[: self.n_outputs]
        return np.asarray(right * positive + wrong * (per_class.sum() - positive))

    @cached_property
    def _losses_of_zero(self) -> tuple[float, float]:
        """Losses of the score zero for positive and negative targets."""
        right, wrong = self.loss.value(np.array([1.0, -1.0]), np.zeros(2))
        return float(right), float(wrong)

    def terms(
        self, batch: Batch, scores: Array, order: int, width: float = 0.0
    ) -> tuple[Array, Array, Array]:
        """Summed losses per output, and weighted derivatives and curvatures of every score.

        For a coupled loss the last array holds unweighted class probabilities.
        """
        derivative = np.empty_like(scores) if order >= 1 else scores[:0]
        curvature = np.empty_like(scores) if order >= 2 else scores[:0]
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        if self.loss.coupled:
            value = coupled_terms(
                self.loss.code, width, batch.y, weight, scores, order, derivative, curvature
            )
        else:
            value = scalar_terms(
                self.loss.code, self.loss.parameters, self.classes, width,
                batch.y, weight, scores, order, derivative, curvature,
            )  # fmt: skip
        return value, derivative, curvature

    def pull_back(self, X: Matrix, derivative: Array) -> Array:
        """Gradient with respect to ``theta``, from derivatives with respect to the scores."""
        gradient = np.empty((self.n_rows_theta, derivative.shape[1]))
        # with outputs as rows BLAS takes half the time
        gradient[: self.n_features] = (
            X.T @ derivative if sparse.issparse(X) else (derivative.T @ X).T
        )
        if self.fit_intercept:
            gradient[self.n_features] = derivative.sum(axis=0)
        return gradient

    def gram(self, X: Matrix, weight: Array, exact: bool = True) -> Array:
        """``sum_i weight_i x_i x_i^T``, with a final column of ones for the intercept.

        Unless ``exact``, products of dense float32 rows are computed in float32.
        """
        d, p = self.n_features, self.n_rows_theta
        out = np.zeros((p, p))
        if sparse.issparse(X):
            sparse_gram(*as_rows(X), weight, out)
            _mirror(out)
        else:
            out[:d, :d] = _dense_gram(X, weight, np.float64 if exact else X.dtype)
        if self.fit_intercept:
            out[d, :d] = out[:d, d] = X.T @ weight
            out[d, d] = weight.sum()
        return out

    def _hessian(self, X: Matrix, curvature: Array, weight: Array | None, every: int) -> Array:
        if not self.loss.coupled:
            out = np.stack([self.gram(X[::every], h[::every]) for h in curvature.T])
            if every > 1:
                dense = np.asarray(X)  # sparse rows: see _sparse_stats
                squares = curvature.T @ (dense * dense)
                if self.fit_intercept:
                    squares = np.column_stack([squares, curvature.sum(axis=0)])
                for hessian, diagonal in zip(out, squares, strict=True):
                    _thinned(hessian, every, diagonal)
            return out
        omega = np.ones(len(curvature)) if weight is None else weight
        p, K = self.n_rows_theta, self.n_outputs
        full = np.empty((K, p, K, p))
        for k in range(K):
            for j in range(k + 1):
                weights = curvature[:, k] * ((k == j) - curvature[:, j])
                full[k, :, j] = full[j, :, k] = self.gram(X, omega * weights)
        return full.reshape(1, K * p, K * p)

    def _outer(self, X: Matrix, derivative: Array) -> Array:
        if not self.loss.coupled:
            return np.stack([self.gram(X, derivative[:, k] ** 2) for k in range(self.n_outputs)])
        p, K = self.n_rows_theta, self.n_outputs
        full = np.empty((K, p, K, p))
        for k in range(K):
            for j in range(k + 1):
                full[k, :, j] = full[j, :, k] = self.gram(X, derivative[:, k] * derivative[:, j])
        return full.reshape(1, K * p, K * p)


def _thinned(hessian: Array, every: int, diagonal: Array) -> None:
    """Scale a Hessian from one row in ``every`` to all rows, in place.

    The exact diagonal is a lower bound of the estimated one: a rare feature may be absent from the
    subset, and without curvature its step would be unbounded.
    """
    hessian *= every
    np.fill_diagonal(hessian, np.maximum(hessian.diagonal(), diagonal))


def _mirror(half: Array) -> None:
    """Complete a symmetric matrix with every pair on one side only."""
    diagonal = half.diagonal().copy()
    half += half.T
    np.fill_diagonal(half, diagonal)


_local = threading.local()


def _scratch(shape: tuple[int, ...]) -> Array:
    """Scratch memory of this thread, valid until the next call: allocation is slow.

    Arrays larger than 1.5 tiles are not cached.
    """
    size = math.prod(shape)
    if 16 * size > 3 * TILE_BYTES:
        return np.empty(shape)
    memory: Array | None = getattr(_local, "memory", None)
    if memory is None or memory.size < size:
        memory = _local.memory = np.empty(size)
    return np.asarray(memory[:size].reshape(shape))


def _dense_gram(X: Array, weight: Array, dtype: Any) -> Array:
    """Weighted Gram matrix; for weights of one sign BLAS computes only half of it."""
    sign = 1.0 if weight.min() >= 0.0 else -1.0
    if sign < 0.0 and weight.max() > 0.0:
        return np.asarray(X.T @ (X * weight[:, None]))
    root = _scratch(X.shape) if dtype == np.float64 else np.empty(X.shape, dtype)
    scale_rows(X, np.sqrt(sign * weight), root)
    gram = root.T @ root
    return np.asarray(gram if sign > 0.0 else -gram)


@dataclass(frozen=True)
class SumsAt:
    """Map of `LinearModel.stats` at a point, which is the state of the pass."""

    model: LinearModel
    order: int
    width: float = 0.0
    meat: bool = False
    every: int = 1

    def __call__(self, batch: Batch, theta: Array) -> LinearStats:
        return self.model.stats(theta, batch, self.order, self.width, self.meat, self.every)


@dataclass(frozen=True)
class ValuesAt:
    """Map of `LinearModel.values_at` at points, which are the state of the pass."""

    model: LinearModel
    width: float = 0.0

    def __call__(self, batch: Batch, points: list[Array]) -> Array:
        return self.model.values_at(points, batch, self.width)
