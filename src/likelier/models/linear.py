"""The linear model: scores ``x^T w + b`` under a loss and a penalty.

Objective, for every linear estimator: ``(1/N) sum_i omega_i loss(y_i, f_i) + penalty(w)``, N the
number of rows of positive weight, the intercept not penalised.

Parameters are one matrix ``theta`` with a column per output: the weights and, in its last
row if the model has one, the intercept. Statistics are additive over blocks of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Loss, Matrix, Model
from likelier.loops.rows import as_rows
from likelier.loops.terms import coupled_terms, scalar_terms, sparse_gram
from likelier.models.penalty import ElasticNet

NO_WEIGHT = np.empty(0)


@dataclass(frozen=True)
class LinearStats:
    """Sums over rows: losses per lane, gradient, Hessian and the meat of the sandwich.

    ``hessian`` and ``meat`` have shape (lanes, p, p), or (1, K p, K p) for a coupled loss,
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
    """

    has_energy: ClassVar[bool] = True
    has_stats: ClassVar[bool] = True

    loss: Loss
    n_features: int
    n_outputs: int
    classes: bool
    fit_intercept: bool
    penalty: ElasticNet

    @property
    def n_rows_theta(self) -> int:
        """Number of rows of ``theta``: features and intercept."""
        return self.n_features + int(self.fit_intercept)

    def zeros(self) -> Array:
        """Return parameters that score zero everywhere."""
        return np.zeros((self.n_rows_theta, self.n_outputs))

    def scores(self, theta: Array, X: Matrix) -> Array:
        """Scores of the rows of ``X``, one column per output."""
        out = np.asarray(X @ theta[: self.n_features], dtype=np.float64)
        if self.fit_intercept:
            out += theta[self.n_features]
        return out

    def energy(self, theta: Array, batch: Batch) -> float:
        """Mean loss of a batch plus the penalty."""
        stats = self.stats(theta, batch)
        return float(stats.value.sum()) / stats.n_rows + float(self.penalty.value(theta).sum())

    def stats(
        self, theta: Array, batch: Batch, order: int = 0, width: float = 0.0, meat: bool = False
    ) -> LinearStats:
        """Additive statistics of a batch up to the given derivative of the loss.

        ``width`` replaces a scalar loss by its Moreau envelope. Cost: rows x features for
        orders 0 and 1, times features once more for order 2 and the meat.
        """
        batch = batch.compact()
        X = batch.X
        if not sparse.issparse(X):
            X = np.asarray(X, dtype=np.float64)
        scores = self.scores(theta, X)
        value, slope, curvature = self.terms(batch, scores, order, width)
        if order == 0:
            return LinearStats(batch.n_rows, value)
        gradient = self.pull_back(X, slope)
        hessian = self._hessian(X, curvature, batch.weight) if order >= 2 else None
        outer = self._outer(X, slope) if meat else None
        return LinearStats(batch.n_rows, value, gradient, hessian, outer)

    def values_at(self, thetas: list[Array], batch: Batch, width: float = 0.0) -> Array:
        """Summed loss per lane of a batch at several points, one row per point."""
        batch = batch.compact()
        all_scores = self.scores(np.hstack(thetas), batch.X)
        parts = np.split(all_scores, len(thetas), axis=1)
        return np.stack([self.terms(batch, np.ascontiguousarray(f), 0, width)[0] for f in parts])

    def terms(
        self, batch: Batch, scores: Array, order: int, width: float = 0.0
    ) -> tuple[Array, Array, Array]:
        """Summed losses per lane, and weighted slopes and curvatures of every score.

        For a coupled loss the last array holds the class probabilities, not weighted.
        """
        slope = np.empty_like(scores) if order >= 1 else scores[:0]
        curvature = np.empty_like(scores) if order >= 2 else scores[:0]
        weight = NO_WEIGHT if batch.weight is None else batch.weight
        if self.loss.coupled:
            value = coupled_terms(self.loss.code, batch.y, weight, scores, order, slope, curvature)
        else:
            value = scalar_terms(
                self.loss.code, self.loss.parameters, self.classes, width,
                batch.y, weight, scores, order, slope, curvature,
            )  # fmt: skip
        return value, slope, curvature

    def pull_back(self, X: Matrix, slope: Array) -> Array:
        """Gradient with respect to ``theta`` of a sum over rows with these slopes."""
        gradient = np.empty((self.n_rows_theta, slope.shape[1]))
        gradient[: self.n_features] = X.T @ slope
        if self.fit_intercept:
            gradient[self.n_features] = slope.sum(axis=0)
        return gradient

    def gram(self, X: Matrix, weight: Array) -> Array:
        """``sum_i weight_i x_i x_i^T`` with the intercept's column of ones last."""
        d, p = self.n_features, self.n_rows_theta
        out = np.zeros((p, p))
        if sparse.issparse(X):
            sparse_gram(*as_rows(X), weight, out)
            out += out.T
            out[np.diag_indices(p)] *= 0.5
        else:
            out[:d, :d] = _dense_gram(X, weight)
        if self.fit_intercept:
            out[d, :d] = out[:d, d] = X.T @ weight
            out[d, d] = weight.sum()
        return out

    def _hessian(self, X: Matrix, curvature: Array, weight: Array | None) -> Array:
        if not self.loss.coupled:
            return np.stack([self.gram(X, curvature[:, k]) for k in range(self.n_outputs)])
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


def _dense_gram(X: Array, weight: Array) -> Array:
    """Weighted Gram matrix; for weights of one sign BLAS computes only half of it."""
    sign = 1.0 if weight.min() >= 0.0 else -1.0
    if sign < 0.0 and weight.max() > 0.0:
        return np.asarray(X.T @ (X * weight[:, None]))
    root = X * np.sqrt(sign * weight)[:, None]
    return np.asarray(sign * (root.T @ root))
