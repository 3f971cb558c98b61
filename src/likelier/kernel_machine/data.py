"""The rows of a fit of a kernel machine: an engine over all of them, and a sample at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Engine, Matrix
from likelier.fitting.dataset import local_engine
from likelier.fitting.moments import ColumnMoments, check_not_tiny
from likelier.fitting.rows import Rows
from likelier.fitting.standardize import LARGEST, Standard, StandardRows
from likelier.kernel_machine.evidence import typical_weight

SAMPLE_ROWS = 20_000  # rows to learn hyperparameters from
HOLD_OUT_FROM, HOLD_OUT_SHARE, HOLD_OUT_MOST = 1000, 0.2, 1000


@dataclass(frozen=True)
class Data:
    """Rows with encoded targets.

    Attributes
    ----------
    engine : Engine
        All rows.
    standard : Standard
        Means and scales of the inputs.
    sample : Rows
        At most `SAMPLE_ROWS` rows in random order.
    seed : int
        Keys all random numbers of the fit.
    """

    engine: Engine
    standard: Standard
    sample: Rows
    seed: int

    @classmethod
    def of(cls, engine: Engine, merge: Callable[[Rows], Rows], seed: int) -> Data:
        """Data on an engine; up to `SAMPLE_ROWS` rows are gathered, and duplicates merged."""
        n_rows = int(engine.n_rows or 0)
        batch = engine.sample(SAMPLE_ROWS)
        sample = Rows(batch.X, np.asarray(batch.y), batch.weight)
        if n_rows <= SAMPLE_ROWS:
            sample = merge(sample)
            engine = local_engine(sample.X, sample.y, sample.weight, seed, engine.n_jobs, False)
        standard = Standard.from_moments(engine.reduce(_moments, ColumnMoments.__add__))
        constant = np.flatnonzero(standard.inverse == 0.0)
        check_not_tiny(sample.X, constant, 1.0 / LARGEST)
        return cls(engine, standard, sample, seed)

    @property
    def n_rows(self) -> int:
        """Number of all rows."""
        return int(self.engine.n_rows or 0)

    @property
    def unit(self) -> float:
        """Weight of a typical row; scales are learned from relative weights."""
        return typical_weight(self.sample.weight)

    @cached_property
    def standardised(self) -> StandardRows:
        """The sample, standardised."""
        return StandardRows.of(self.sample.X, self.standard)

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return bool(sparse.issparse(self.sample.X))

    def rng(self, *key: int) -> np.random.Generator:
        """Random numbers for one purpose."""
        return np.random.default_rng([self.seed, *key])

    def dense(self, X: Matrix) -> Array:
        """Rows of `standardised` as dense standardised rows."""
        standard = self.standardised.standard
        return np.asarray(X) if standard is None else standard.apply(X, np.float32)

    def held_out(self, strata: Array) -> Array:
        """Numbers of held-out rows of the sample, balanced over groups; none if it is small."""
        n, rng = self.sample.n, self.rng(0)
        if n < HOLD_OUT_FROM:
            return np.empty(0, dtype=np.intp)
        wanted, parts = min(HOLD_OUT_SHARE * n, HOLD_OUT_MOST), []
        for group in np.unique(strata):
            inside = rng.permutation(np.flatnonzero(strata == group))
            parts.append(inside[: round(wanted * len(inside) / n)])
        return np.sort(np.concatenate(parts))


def _moments(batch: Batch) -> ColumnMoments:
    return ColumnMoments.of(batch.X, batch.weight)
