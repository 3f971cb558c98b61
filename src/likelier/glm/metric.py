"""The preconditioner of L-BFGS: the inverse mean Hessian of a subset of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine
from likelier.glm.loops.cholesky import cholesky, cholesky_solve
from likelier.glm.model import LinearModel
from likelier.loops.rows import column_squares

FEATURES = 3000  # above, a diagonal metric is cheaper overall
WORK = 4e10  # multiplications up to which every output has its own metric
MIN_ROWS, MAX_ROWS, ROWS_PER_FEATURE = 2000, 12_000, 6


@dataclass(frozen=True)
class Metric:
    """Cholesky factors of scaled Hessians, one for all outputs or one each; or a diagonal."""

    factors: tuple[tuple[Array, Array], ...]
    diagonal: Array | None = None

    def solve(self, vectors: Array, engine: Engine) -> Array:
        """Inverse times a matrix whose columns repeat the outputs, group by group.

        Outputs with their own factor run in parallel.
        """
        if self.diagonal is not None:
            return np.asarray(vectors / self.diagonal[:, None])
        count, out = len(self.factors), np.empty_like(vectors)

        def solve(k: int) -> None:
            factor, scale = self.factors[k]
            some = scale[:, None] * vectors[:, k::count]
            out[:, k::count] = scale[:, None] * cholesky_solve(factor, some)

        list(engine.each(solve, count))
        return out


def metric_rows(model: LinearModel) -> int:
    """Number of rows in the sample for a metric."""
    return max(MIN_ROWS, min(ROWS_PER_FEATURE * model.n_features, MAX_ROWS))


def make_metric(model: LinearModel, engine: Engine, theta: Array) -> Metric:
    """The metric at a point, from a sample of the rows."""
    batch = engine.sample(metric_rows(model), iteration=1)
    X, d = batch.X, model.n_features
    curvature = model.terms(batch, model.scores(theta, X), 2)[2]
    if model.loss.coupled:
        curvature = curvature * (1.0 - curvature)
    # confident predictions of the sample may underestimate the curvature of the other rows
    floor = 1e-3 * model.loss.max_curvature
    curvature = np.maximum(curvature, floor if np.isfinite(floor) else 0.0)
    if d > FEATURES:
        return Metric((), _diagonal(model, batch, curvature.mean(axis=1)))
    if batch.n_rows * float(d) ** 2 * model.n_outputs > WORK:
        curvature = curvature.mean(axis=1, keepdims=True)
    if isinstance(X, np.ndarray):
        X = X.astype(np.float32)  # approximate is enough
    rows = curvature.T
    return Metric(tuple(engine.each(lambda k: _factor(model, X, rows[k]), len(rows))))


def _factor(model: LinearModel, X: Any, row: Array) -> tuple[Array, Array]:
    try:
        return _scaled_factor(model, X, row, exact=False)
    except np.linalg.LinAlgError:  # single precision was not enough
        return _scaled_factor(model, X, row, exact=True)


def _scaled_factor(model: LinearModel, X: Any, row: Array, exact: bool) -> tuple[Array, Array]:
    """Cholesky factor of the mean Hessian, scaled to a unit diagonal, and the scales."""
    gram = model.gram(X, row.astype(X.dtype), exact) / X.shape[0]
    ridge = model.penalty.l2 + 1e-12
    scale = 1.0 / np.sqrt(np.diagonal(gram) + ridge)
    scaled = (gram + np.diag(ridge)) * scale[:, None] * scale
    scaled[np.diag_indices_from(scaled)] += 1e-5
    return np.ascontiguousarray(cholesky(scaled)), scale


def _diagonal(model: LinearModel, batch: Batch, row: Array) -> Array:
    squares = column_squares(batch.X, row)
    squares = np.append(squares, [row.sum()] * int(model.fit_intercept))
    # a small curvature for features that are absent from the sample
    return np.asarray(squares / batch.n_rows + model.penalty.l2 + 1e-3 * row.mean())
