"""What a fit of `BayesianLinearClassifier` learns of its rows first, and rows left out of a stream.

Both are passes over blocks, the same for data in memory and for streams.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Matrix
from likelier.bayesian_linear.model import FAR, Coordinates
from likelier.fitting.dataset import CONSTANT, NumberSource, Summary, informative_squares, summarise


def standard_coordinates(engine: Engine, fit_intercept: bool) -> Coordinates:
    """Coordinates in which columns have mean zero and spread one.

    One pass; a second one over columns that may be far from zero, where there are any.
    """
    with np.errstate(over="ignore"):
        summary = engine.reduce(lambda batch: summarise(batch, True), Summary.__add__)
    if not np.isfinite(summary.squares).all():
        column = int(np.argmin(np.isfinite(summary.squares)))
        raise ValueError(
            f"column {column} of X is so large that its squares are not finite; rescale it"
        )
    mean = summary.sums / summary.weight
    spread = informative_squares(summary.sums, summary.squares, summary.weight, fit_intercept)
    variance = summary.squares / summary.weight - mean**2
    far = np.flatnonzero(mean**2 > FAR**2 * variance)
    if fit_intercept and len(far):
        mean[far], spread[far] = _far_columns(engine, summary, far)
    return Coordinates.of(mean, np.maximum(spread, 0.0), fit_intercept)


def _far_columns(engine: Engine, summary: Summary, far: Array) -> tuple[Array, Array]:
    """Means and mean squared spreads of some columns, by a pass over them less their means.

    Columns far from zero lose the digits of their spread in a difference of large squares, and
    would pass for constant ones.
    """
    mean = summary.sums[far] / summary.weight

    def of_block(batch: Batch) -> Summary:
        return summarise(replace(batch, X=_columns(batch.X, far) - mean), True)

    found = engine.reduce(of_block, Summary.__add__)
    move, square = found.sums / found.weight, found.squares / found.weight
    varies = square - move**2 > CONSTANT * square
    constant = summary.squares[far] / summary.weight
    return mean + move, np.where(varies, square - move**2, constant)


def _columns(X: Matrix, which: Array) -> Array:
    """Some columns of dense or sparse rows, in double precision."""
    some = X[:, which]
    return np.asarray(some.toarray() if sparse.issparse(some) else some, dtype=np.float64)


@dataclass(frozen=True)
class PartSource(NumberSource):
    """One fold of the rows of an encoded source, or all others: the rest has weight zero.

    A row's fold depends on its place among all present rows, however they are cut into blocks.
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
            present = weight > 0.0  # a row that is absent takes no number from those after it
            chosen = np.zeros(batch.n_rows, dtype=bool)
            chosen[present] = stream.random(np.count_nonzero(present)) * self.n_folds < 1.0
            yield replace(batch, weight=np.where(chosen == self.inside, weight, 0.0))
