"""Statistics gathered before a fit of `BayesianLinearClassifier`, and held-out folds of a stream.

Both are passes over blocks, the same for data in memory and for streams.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Matrix
from likelier.bayesian_linear.model import SHIFT_ABOVE, Coordinates
from likelier.fitting.dataset import CONSTANT, NumberSource, Summary, informative_squares, summarise


def standard_coordinates(engine: Engine, fit_intercept: bool) -> Coordinates:
    """Coordinates in which columns have mean zero and unit variance.

    One pass, and a second one over columns with a mean much larger than their standard deviation.
    """
    with np.errstate(over="ignore"):
        summary = engine.reduce(lambda batch: summarise(batch, True), Summary.__add__)
    if not np.isfinite(summary.squares).all():
        column = int(np.argmin(np.isfinite(summary.squares)))
        raise ValueError(
            f"column {column} of X is too large: the sum of its squares overflows; rescale it"
        )
    mean = summary.sums / summary.weight
    column_variance = informative_squares(
        summary.sums, summary.squares, summary.weight, fit_intercept
    )
    variance = summary.squares / summary.weight - mean**2
    shifted = np.flatnonzero(mean**2 > SHIFT_ABOVE**2 * variance)
    if fit_intercept and len(shifted):
        mean[shifted], column_variance[shifted] = _centred_moments(engine, summary, shifted)
    return Coordinates.of(mean, np.maximum(column_variance, 0.0), fit_intercept)


def _centred_moments(engine: Engine, summary: Summary, shifted: Array) -> tuple[Array, Array]:
    """Means and variances of some columns, by a second pass over centred columns.

    The one-pass variance of a column with a large mean suffers from cancellation, and the column
    might be taken for a constant.
    """
    mean = summary.sums[shifted] / summary.weight

    def of_block(batch: Batch) -> Summary:
        return summarise(replace(batch, X=_columns(batch.X, shifted) - mean), True)

    found = engine.reduce(of_block, Summary.__add__)
    move, square = found.sums / found.weight, found.squares / found.weight
    varies = square - move**2 > CONSTANT * square
    constant = summary.squares[shifted] / summary.weight
    return mean + move, np.where(varies, square - move**2, constant)


def _columns(X: Matrix, which: Array) -> Array:
    """Some columns of dense or sparse rows, in double precision."""
    some = X[:, which]
    return np.asarray(some.toarray() if sparse.issparse(some) else some, dtype=np.float64)


@dataclass(frozen=True)
class FoldSource(NumberSource):
    """One fold of the rows of an encoded source, or its complement; other rows get weight zero.

    The fold of a row depends on its index among rows of positive weight, not on the block layout.
    """

    n_folds: int
    seed: int
    inside: bool

    def __call__(self) -> Generator[Batch, None, None]:
        """Yield the blocks with the weights of this part."""
        stream = np.random.default_rng([self.seed, 2])
        for block in self.source():
            batch = block.compact()
            weight = np.ones(batch.n_rows) if batch.weight is None else batch.weight
            present = weight > 0.0  # zero-weight rows consume no random numbers
            chosen = np.zeros(batch.n_rows, dtype=bool)
            chosen[present] = stream.random(np.count_nonzero(present)) * self.n_folds < 1.0
            yield replace(batch, weight=np.where(chosen == self.inside, weight, 0.0))
