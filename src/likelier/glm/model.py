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
TILE_BYTES = 1 << 21  # of dense rows: read from the memory once, whatever is summed up over them


@dataclass(frozen=True)
class LinearStats:
    """Sums over rows: losses per output, gradient, Hessian and the meat of the sandwich.

    ``hessian`` and ``meat`` have shape (outputs, p, p), or (1, K p, K p) for a coupled loss,
    parameters of one class together. Parts that were not asked for are None.
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
        Targets are class numbers; output k of a scalar loss sees +1 for class k.
    penalty : ElasticNet
        One strength per row of ``theta``, zero for the intercept.
    floor : float
        The least that the mean loss can be on the data: what "near" is measured from.
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
            # BLAS is far quicker with few rows than with few columns
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

        ``width`` replaces a scalar loss by its Moreau envelope, a maximum over classes by a
        softmax. With ``every`` > 1 the Hessian of a scalar loss comes from one row in so many,
        except its diagonal. Cost: rows x features for orders 0 and 1, times features once more for
        order 2 and the meat.
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
        value, slope, curvature = self.terms(batch, scores, order, width)
        if order == 0:
            return LinearStats(batch.n_rows, value)
        gradient = self.pull_back(X, slope)
        hessian = self._hessian(X, curvature, batch.weight, every) if order >= 2 else None
        if self.loss.coupled and width > 0.0 and hessian is not None:
            hessian /= width
        outer = self._outer(X, slope) if meat else None
        return LinearStats(batch.n_rows, value, gradient, hessian, outer)

    def in_one_sweep(self, X: Matrix) -> bool:
        """Whether rows are dense, one after another, and have one score each.

        Sums over them then take listed rows (``Batch.rows``) from where they are.
        """
        alone = not self.loss.coupled and self.n_outputs == 1
        return alone and not sparse.issparse(X) and bool(np.asarray(X).flags.c_contiguous)

    def _dense_stats(
        self, theta: Array, batch: Batch, order: int, width: float, meat: bool, every: int
    ) -> LinearStats:
        """Sums over dense rows of one score each, in tiles that stay in the cache."""
        p, n_rows, X = self.n_rows_theta, batch.n_rows, np.asarray(batch.X)
        w, (y, weight, *rest), rows = theta[:, 0].copy(), self._targets(batch), batch.rows
        value, gradient = 0.0, np.zeros(p)
        thin = order >= 2 and every > 1
        diagonal = np.zeros(p if thin else 0)
        hessian = np.zeros((p, p)) if order >= 2 else None
        outer = np.zeros((p, p)) if meat else None
        size = n_rows if hessian is None else every * max(1, TILE_BYTES // (8 * p))
        size = min(n_rows, size)
        slopes = np.empty(size)
        roots = _scratch((0 if hessian is None else -(-size // every), p))
        for first in range(0, n_rows, size):
            some = slice(first, min(first + size, n_rows))
            tile, omega, few = X[some], weight[some] if len(weight) else weight, -first % every
            given = (tile, None, y[some], omega) if rows is None else (X, rows[some], y, weight)
            told, n_roots = dense_sums(
                *given, *rest, width, w, self.fit_intercept, gradient, diagonal, (few, every),
                (slopes, roots),
            )  # fmt: skip
            value += told
            if hessian is not None:
                hessian += roots[:n_roots].T @ roots[:n_roots]
            if outer is not None:
                outer += self.gram(tile, slopes[: len(tile)] ** 2)
        if hessian is not None and thin:
            _thinned(hessian, every, diagonal)
        return LinearStats(
            n_rows, np.array([value]), gradient[:, None],
            None if hessian is None else hessian[None], None if outer is None else outer[None],
        )  # fmt: skip

    def _targets(self, batch: Batch) -> tuple[Any, ...]:
        """Targets, weights and loss as the compiled sums take them."""
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        return batch.y, weight, self.loss.code, self.loss.parameters, self.classes

    def _sparse_stats(self, theta: Array, batch: Batch, width: float, every: int) -> LinearStats:
        """Value, gradient and Hessian of sparse rows in one sweep, nothing gathered."""
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
        """One output: no score is stored."""
        rows = self._sparse_rows(batch)
        sums = [sparse_values(*rows, 0, width, w[:, 0].copy(), self.fit_intercept) for w in thetas]
        return np.array(sums)[:, None]

    def _sparse_rows(self, batch: Batch) -> tuple[Any, ...]:
        """Sparse rows, targets, weights and loss as the compiled sums take them."""
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
        """Summed loss per output of a batch where every score is zero; the rows are not read."""
        if not self.classes or self.loss.coupled:
            return self.terms(batch.compact(), np.zeros((batch.n_rows, self.n_outputs)), 0)[0]
        assert batch.y is not None
        y, weight = batch.y, batch.weight
        if batch.rows is not None:
            y, weight = y[batch.rows], None if weight is None else weight[batch.rows]
        right, wrong = self._losses_of_zero
        if self.n_outputs == 1 and weight is None:
            mine = np.array([np.count_nonzero(y == 0.0)])
            return np.asarray(right * mine + wrong * (len(y) - mine))
        of_class = np.bincount(y.astype(np.intp), weights=weight, minlength=self.n_outputs)
        mine = of_class[: self.n_outputs]
        return np.asarray(right * mine + wrong * (of_class.sum() - mine))

    @cached_property
    def _losses_of_zero(self) -> tuple[float, float]:
        """Loss of the score zero where the answer is yes, and where it is no."""
        right, wrong = self.loss.value(np.array([1.0, -1.0]), np.zeros(2))
        return float(right), float(wrong)

    def terms(
        self, batch: Batch, scores: Array, order: int, width: float = 0.0
    ) -> tuple[Array, Array, Array]:
        """Summed losses per output, and weighted slopes and curvatures of every score.

        For a coupled loss the last array holds the class probabilities, not weighted.
        """
        slope = np.empty_like(scores) if order >= 1 else scores[:0]
        curvature = np.empty_like(scores) if order >= 2 else scores[:0]
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        if self.loss.coupled:
            value = coupled_terms(
                self.loss.code, width, batch.y, weight, scores, order, slope, curvature
            )
        else:
            value = scalar_terms(
                self.loss.code, self.loss.parameters, self.classes, width,
                batch.y, weight, scores, order, slope, curvature,
            )  # fmt: skip
        return value, slope, curvature

    def pull_back(self, X: Matrix, slope: Array) -> Array:
        """Gradient with respect to ``theta`` of a sum over rows with these slopes."""
        gradient = np.empty((self.n_rows_theta, slope.shape[1]))
        # with the few outputs as rows BLAS takes half the time
        gradient[: self.n_features] = X.T @ slope if sparse.issparse(X) else (slope.T @ X).T
        if self.fit_intercept:
            gradient[self.n_features] = slope.sum(axis=0)
        return gradient

    def gram(self, X: Matrix, weight: Array, exact: bool = True) -> Array:
        """``sum_i weight_i x_i x_i^T`` with the intercept's column of ones last.

        Unless ``exact``, products of dense rows in single precision stay in it.
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
                dense = np.asarray(X)  # sparse rows have their own sums
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
                share = curvature[:, k] * ((k == j) - curvature[:, j])
                full[k, :, j] = full[j, :, k] = self.gram(X, omega * share)
        return full.reshape(1, K * p, K * p)

    def _outer(self, X: Matrix, slope: Array) -> Array:
        if not self.loss.coupled:
            return np.stack([self.gram(X, slope[:, k] ** 2) for k in range(self.n_outputs)])
        p, K = self.n_rows_theta, self.n_outputs
        full = np.empty((K, p, K, p))
        for k in range(K):
            for j in range(k + 1):
                full[k, :, j] = full[j, :, k] = self.gram(X, slope[:, k] * slope[:, j])
        return full.reshape(1, K * p, K * p)


def _thinned(hessian: Array, every: int, diagonal: Array) -> None:
    """Scale a Hessian of one row in ``every`` up to all rows, in place.

    Its diagonal is no smaller than that of all rows: a rare feature may be missing from the few
    rows, and without curvature of its own would take steps without limit.
    """
    hessian *= every
    np.fill_diagonal(hessian, np.maximum(hessian.diagonal(), diagonal))


def _mirror(half: Array) -> None:
    """Complete a symmetric matrix of which every pair was added on one side only."""
    diagonal = half.diagonal().copy()
    half += half.T
    np.fill_diagonal(half, diagonal)


_own = threading.local()


def _scratch(shape: tuple[int, ...]) -> Array:
    """Memory of this thread, until it asks again: fresh memory is handed out slowly.

    Pieces larger than a tile and a half are not kept.
    """
    size = math.prod(shape)
    if 16 * size > 3 * TILE_BYTES:
        return np.empty(shape)
    memory: Array | None = getattr(_own, "memory", None)
    if memory is None or memory.size < size:
        memory = _own.memory = np.empty(size)
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
    """The map of `LinearModel.stats` at a point, which comes as the state of the pass."""

    model: LinearModel
    order: int
    width: float = 0.0
    meat: bool = False
    every: int = 1

    def __call__(self, batch: Batch, theta: Array) -> LinearStats:
        return self.model.stats(theta, batch, self.order, self.width, self.meat, self.every)


@dataclass(frozen=True)
class ValuesAt:
    """The map of `LinearModel.values_at` at points that come as the state of the pass."""

    model: LinearModel
    width: float = 0.0

    def __call__(self, batch: Batch, points: list[Array]) -> Array:
        return self.model.values_at(points, batch, self.width)
