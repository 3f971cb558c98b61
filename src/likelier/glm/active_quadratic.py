"""The quadratic model of a loss in the active features, from columns of the data or a Gram matrix.

Few rows, and their columns are gathered: a sweep costs a product with them. Many rows, and a pass
adds up the Gram matrix, in bounded memory. The choice depends on the numbers of rows and features
alone, so it is the same wherever the rows are. The intercept is profiled out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Matrix, RowValues
from likelier.glm.loops.columns import column_curvatures, descend_columns
from likelier.glm.model import LinearModel
from likelier.glm.penalty import ElasticNet
from likelier.loops.rows import Rows, as_rows

MAX_GATHERED = 1 << 25  # rows times active features
MAX_SWEEPS = 200
MIN_CURVATURE = 1e-3  # of a row, relative to the largest curvature of the loss


@dataclass(frozen=True)
class GramQuadratic:
    """From the mean weighted Gram matrix; its last row and column belong to the intercept."""

    gram: Array

    def descend(
        self, gradient: Array, intercept: float | None, penalty: ElasticNet, w: Array,
        allowed: Array,
    ) -> tuple[Array, float]:  # fmt: skip
        """Changes of the weights ``w`` and of the intercept to the penalised minimum.

        ``gradient`` and ``intercept`` are derivatives at ``w``; subgradients may be ``allowed``.
        """
        if not len(w):  # only an intercept, if anything
            return w, 0.0 if intercept is None else -intercept / float(self.gram[-1, -1])
        if intercept is None:
            return penalty.minimise(self.gram, gradient, w, allowed) - w, 0.0
        first, total = self.gram[-1, :-1], float(self.gram[-1, -1])
        hessian = self.gram[:-1, :-1] - np.multiply.outer(first, first / total)
        linear = gradient - first * (intercept / total)  # the intercept moves along
        change = penalty.minimise(hessian, linear, w, allowed) - w
        return change, -(intercept + float(first @ change)) / total


@dataclass(frozen=True)
class ColumnQuadratic:
    """From columns of the data, the active ones at these positions, and curvatures of the rows."""

    columns: Rows
    positions: Array
    curvature: Array

    def descend(
        self, gradient: Array, intercept: float | None, penalty: ElasticNet, w: Array,
        allowed: Array,
    ) -> tuple[Array, float]:  # fmt: skip
        """As `GramQuadratic.descend`."""
        total = np.inf if intercept is None else float(self.curvature.sum())
        first, second = column_curvatures(*self.columns, self.positions, self.curvature)
        linear, v = gradient - first * ((intercept or 0.0) / total), w.copy()
        shared = descend_columns(
            *self.columns, self.positions, self.curvature, first, second, total, linear,
            penalty.l2, penalty.l1, v, allowed, MAX_SWEEPS,
        )  # fmt: skip
        return v - w, 0.0 if intercept is None else -(intercept + shared) / total


def active_quadratics(
    model: LinearModel, engine: Engine, scores: RowValues, actives: list[Array]
) -> Sequence[GramQuadratic | ColumnQuadratic]:
    """The quadratic of every output in its active features; a pass.

    Cost: the nonzeros of the active columns where these are gathered, else rows x (active nonzeros
    per row)^2 / 2 for each output.
    """
    assert engine.n_rows is not None
    union = np.unique(np.concatenate(actives))
    if engine.n_rows * len(union) > MAX_GATHERED:
        grams = engine.reduce(ActiveGrams(model), np.add, scores, state=actives) / engine.n_rows
        sizes = np.array([len(active) + int(model.fit_intercept) for active in actives])
        parts = np.split(grams, np.cumsum(sizes**2)[:-1])
        return [GramQuadratic(g.reshape(p, p)) for g, p in zip(parts, sizes, strict=True)]
    blocks = list(engine.map_blocks(ActiveColumns(model), scores, state=union))
    columns = as_rows(_transposed([X for X, _ in blocks]))
    curvature = np.concatenate([h for _, h in blocks]).T / engine.n_rows
    positions = [np.searchsorted(union, active) for active in actives]
    return [
        ColumnQuadratic(columns, positions[k], np.ascontiguousarray(h))
        for k, h in enumerate(curvature)
    ]


@dataclass(frozen=True)
class ActiveGrams:
    """Weighted Gram matrices of the active features of every output, one after the other."""

    model: LinearModel

    def __call__(self, batch: Batch, scores: Array, actives: list[Array]) -> Array:
        curvature, grams = _curvature(self.model, batch, scores), []
        for k, active in enumerate(actives):
            few = replace(self.model, n_features=len(active))
            grams.append(few.gram(batch.X[:, active], curvature[:, k]).ravel())
        return np.concatenate(grams)


@dataclass(frozen=True)
class ActiveColumns:
    """Some columns of the rows, and the curvature of every row and output."""

    model: LinearModel

    def __call__(self, batch: Batch, scores: Array, features: Array) -> tuple[Matrix, Array]:
        return batch.X[:, features], _curvature(self.model, batch, scores)


def _transposed(parts: list[Any]) -> Matrix:
    """The columns of blocks of rows, as rows."""
    if isinstance(parts[0], np.ndarray):
        return np.ascontiguousarray(np.concatenate(parts).T)
    return sparse.csr_array(sparse.vstack(parts, format="csr").T)


def _curvature(model: LinearModel, batch: Batch, scores: Array) -> Array:
    """Curvature of every row and output, bounded from below if the loss has a largest curvature.

    A row far in the tail of the loss has no curvature now, but may have some after the step. The
    Hessian of a coupled loss is bounded by twice its diagonal ``p_k (1 - p_k)``.
    """
    curvature = model.terms(batch, scores, 2)[2]
    omega = np.ones(batch.n_rows) if batch.weight is None else batch.weight
    top = model.loss.max_curvature
    if model.loss.coupled:
        curvature, top = 2.0 * omega[:, None] * curvature * (1.0 - curvature), 0.5
    if not np.isfinite(top):
        return curvature
    return np.maximum(curvature, MIN_CURVATURE * top * omega[:, None])
