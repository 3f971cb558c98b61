"""The kernel expansion: scores ``sum_i beta_i K(x, x_i) + b`` over the rows it was fitted on.

Objective: ``C sum_i omega_i loss(y_i, f_i) + 1/2 beta^T K beta``, for the hinge and the epsilon-
insensitive loss. The dual of both has one form (see `Box`): with ``y in {-1, +1}`` the hinge is
the absolute loss with ``eps = 0`` whose ``beta_i`` has the sign of ``y_i``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from likelier.base import Array, Loss, Matrix, Model
from likelier.kernels import Kernel, Prepared
from likelier.losses import EpsilonInsensitive
from likelier.svm.kernel_values import KnownValues
from likelier.svm.loops.smo import mirror_panel, part_of

BLOCK_BYTES = 1 << 23  # kernel values in memory at a time when scores are computed
PANEL = 256  # rows of a kernel matrix that are computed at once


@dataclass(frozen=True)
class Box:
    """The dual: maximise ``t^T beta - eps |beta|_1 - 1/2 beta^T K beta``, ``sum beta = 0``.

    ``lower <= beta <= upper``; ``target`` is ``t``.
    """

    target: Array
    lower: Array
    upper: Array
    eps: float


@dataclass(frozen=True)
class KernelExpansion(Model):
    """A kernel, a loss ("hinge" or "epsilon_insensitive") and the penalty ``C``."""

    has_energy: ClassVar[bool] = True

    kernel: Kernel
    loss: Loss
    C: float = 1.0

    def box(self, y: Array, weight: Array | None = None) -> Box:
        """The dual for these targets and row weights."""
        limit = np.full(len(y), float(self.C)) if weight is None else self.C * weight
        y = np.asarray(y, dtype=np.float64)
        if isinstance(self.loss, EpsilonInsensitive):
            return Box(y, -limit, limit, float(self.loss.epsilon))
        none = np.zeros(len(y))
        return Box(y, np.where(y > 0, none, -limit), np.where(y > 0, limit, none), 0.0)

    def energy(self, beta: Array, F: Array, intercept: float, box: Box) -> float:
        """Primal objective from the residuals ``F = t - K beta`` of all rows."""
        limit = np.maximum(box.upper, -box.lower)
        losses = self.loss.value(box.target, box.target - F + intercept)
        return float(limit @ losses + 0.5 * (beta @ (box.target - F)))

    def scores(self, beta: Array, intercept: Array, rows: Prepared, Z: Matrix) -> Array:
        """Scores of new rows; ``beta`` has one column per output. Cost: all pairs of rows."""
        if rows.n_rows == 0:
            return np.repeat(intercept[None], Z.shape[0], axis=0)
        step = block_rows(rows.n_rows, 8)
        starts = range(0, max(Z.shape[0], 1), step)
        parts = [rows.against(Z[start : start + step]) @ beta for start in starts]
        return np.asarray(np.concatenate(parts) + intercept)


@dataclass(frozen=True)
class Subset:
    """Rows of one problem as a subset of the data, which is prepared once for all problems.

    ``exact`` holds all rows in float64, ``working`` the same rows in working precision (None if not
    yet converted), ``inside`` the indices of the problem's rows (None for all), ``held`` their
    float64 kernel matrix if stored, ``made`` their kernel values in working precision if stored.
    """

    exact: Prepared
    inside: Array | None = None
    working: Prepared | None = None
    held: Array | None = None
    made: KnownValues | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows of the problem."""
        return self.exact.n_rows if self.inside is None else len(self.inside)

    def block(self, rows: Array, columns: Array) -> Array:
        """Float64 kernel values of some rows and columns of the problem."""
        if self.held is not None:
            return np.asarray(part_of(self.held, rows, columns))
        if self.inside is None:
            return kernel_block(self.exact, rows, columns)
        return kernel_block(self.exact, self.inside[rows], self.inside[columns])

    def square(self, rows: Array) -> Array:
        """Float64 kernel matrix of some rows of the problem."""
        if self.held is not None:
            return np.asarray(part_of(self.held, rows, rows))
        return np.asarray(self.block(rows, rows), dtype=np.float64)

    def hold(self) -> Subset:
        """A copy that stores the float64 kernel matrix, for repeated use. Cost: all pairs."""
        if self.exact.kernel.precomputed:
            return replace(self, held=self.square(np.arange(self.n_rows)))
        own = self.take(self.exact)
        held, columns = np.empty((own.n_rows, own.n_rows)), by_features(own)
        for start in range(0, own.n_rows, PANEL):
            fill_panel(own, held, start, columns)
        return replace(self, held=held)

    def take(self, prepared: Prepared) -> Prepared:
        """The rows of the problem; for a precomputed kernel also its columns."""
        if self.inside is None:
            return prepared
        if prepared.kernel.precomputed:
            return replace(prepared, X=part_of(prepared.X, self.inside, self.inside))
        return prepared.take(self.inside)


def by_features(rows: Prepared) -> Prepared:
    """The same rows in column-major order, which is faster as a right operand in BLAS."""
    return replace(rows, X=np.asfortranarray(rows.X)) if isinstance(rows.X, np.ndarray) else rows


def fill_panel(rows: Prepared, whole: Array, start: int, columns: Prepared | None = None) -> None:
    """Compute a panel of kernel values of rows with themselves and later ones, and mirror it.

    All panels together fill the matrix, with each pair of rows computed once. ``columns`` are the
    same rows in another memory layout.
    """
    stop = min(start + PANEL, rows.n_rows)
    later = (columns or rows).take(slice(start, rows.n_rows))
    whole[start:stop, start:] = rows.take(slice(start, stop)).block(later)
    mirror_panel(whole, start, stop)


def dual_objective(box: Box, beta: Array, F: Array) -> float:
    """Dual objective from the residuals ``F = t - K beta``."""
    smooth = 0.5 * float(beta @ (box.target + F))
    return smooth - box.eps * float(abs(beta).sum()) if box.eps > 0.0 else smooth


def block_rows(width: int, itemsize: int) -> int:
    """Rows per block of kernel values of this width."""
    return max(16, BLOCK_BYTES // max(1, width * itemsize))


def kernel_block(prepared: Prepared, rows: Array, columns: Array) -> Array:
    """Kernel values of some rows and columns of the prepared data."""
    if prepared.kernel.precomputed:
        return np.asarray(part_of(prepared.X, rows, columns))
    return prepared.take(rows).block(prepared.take(columns))
