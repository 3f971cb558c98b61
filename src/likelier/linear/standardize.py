"""Standardisation of a linear problem: standardised targets, and centring of large columns.

A fit without tuning must not depend on origins and units, such as a currency. Targets are therefore
centred and divided by their standard deviation before the fit, and with them the lengths of a loss
(``delta``, ``epsilon``); columns with a mean far larger than their standard deviation are centred;
and the parameters are transformed back. A given penalty is converted exactly; an automatic one
weighs as much as one row of standardised data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Loss, Matrix
from likelier.fitting.moments import ColumnMoments

MAX_RATIO = 1e6  # of squared mean to variance, beyond which sums of squares are too imprecise


def target_moments(y: Array, weight: Array | None, with_floor: bool = False) -> ColumnMoments:
    """Moments of targets; ``with_floor`` adds those of the minimal Poisson loss of each row."""
    if not with_floor:
        return ColumnMoments.of(y[:, None], weight)
    logs = np.log(y, out=np.zeros_like(y), where=y > 0.0)
    return ColumnMoments.of(np.column_stack([y, y - y * logs]), weight)


def _deviation(targets: ColumnMoments, centre: float) -> float:
    """Root mean square distance from ``centre``; one if all targets equal it."""
    mean = float(targets.mean[0])
    square = float(targets.squares[0]) / targets.weight + (mean - centre) ** 2
    tiny = (4.0 * np.finfo(np.float64).eps * abs(mean)) ** 2
    return float(np.sqrt(square)) if square > tiny else 1.0


@dataclass(frozen=True)
class Standardization:
    """Map between original and standardised rows, targets and parameters.

    Attributes
    ----------
    centre, scale : float
        Standardised targets are ``(y - centre) / scale``.
    degree : int
        The original objective is ``scale ** degree`` times the standardised one.
    shift : array of shape (n_features,), optional
        Subtracted from every row.
    intercept : float
        Initial intercept.
    floor : float
        Lower bound of the mean standardised loss.
    penalty_factor : float
        Multiplies an automatic penalty: the information of one row, at most one.
    """

    centre: float = 0.0
    scale: float = 1.0
    degree: int = 0
    shift: Array | None = None
    intercept: float = 0.0
    floor: float = 0.0
    penalty_factor: float = 1.0

    @property
    def changes_rows(self) -> bool:
        """Whether rows or targets differ from the original ones."""
        return self.degree != 0 or self.shift is not None

    def __call__(self, batch: Batch) -> Batch:
        """Standardised rows and targets of a batch."""
        y = None if batch.y is None else self.targets(batch.y)
        return replace(batch, X=self.rows(batch.X), y=y)

    def rows(self, X: Matrix) -> Matrix:
        """Standardised rows; copied only if a shift is subtracted."""
        if self.shift is None:
            return X
        return _shifted(X, self.shift) if sparse.issparse(X) else np.asarray(X - self.shift)

    def targets(self, y: Array) -> Array:
        """Standardised targets."""
        return y if self.degree == 0 else (y - self.centre) / self.scale

    def scores(self, scores: Array) -> Array:
        """Original scores, from standardised ones."""
        return np.asarray(scores * self.scale + self.centre)

    def loss(self, loss: Loss) -> Loss:
        """The loss for standardised targets."""
        return loss if self.degree == 0 else loss.in_units(self.scale)

    def outer(self, theta: Array, fit_intercept: bool) -> Array:
        """Original parameters; the array itself if they are the same."""
        if self.scale == 1.0 and self.centre == 0.0 and self.shift is None:
            return theta
        theta = theta * self.scale
        if fit_intercept:
            theta[-1] += self.centre
            if self.shift is not None:
                theta[-1] -= self.shift @ theta[:-1]
        return theta

    def covariance(self, covariance: Array, fit_intercept: bool) -> Array:
        """Covariance of the original parameters, from that of the standardised ones."""
        if not covariance.size:
            return covariance
        covariance = covariance * self.scale**2
        if self.shift is None or not fit_intercept:
            return covariance
        p = len(self.shift) + 1
        move = np.eye(p)
        move[-1, :-1] = -self.shift
        whole = np.kron(np.eye(covariance.shape[1] // p), move)
        return np.asarray(whole @ covariance @ whole.T)


IDENTITY = Standardization()


def standardization_of(
    loss: Loss, targets: ColumnMoments, n_rows: int, fit_intercept: bool
) -> Standardization:
    """Standardisation of targets with these moments; identity if the loss has no scale."""
    if not targets.weight:
        return IDENTITY
    mean = float(targets.mean[0])
    if loss.task == "count":  # counts are not rescaled
        if mean <= 0.0:
            return IDENTITY
        return Standardization(
            intercept=float(np.log(mean)) if fit_intercept else 0.0,
            floor=float(targets.mean[1]) * targets.weight / n_rows,
            penalty_factor=min(1.0, mean),
        )
    if loss.degree is None:
        return IDENTITY
    centre = mean if fit_intercept else 0.0
    scale = _deviation(targets, centre)
    factor = loss.in_units(scale).curved_width
    return Standardization(centre, scale, loss.degree, penalty_factor=factor)


def imprecise_columns(sums: Array, squares: Array, total: float) -> Array:
    """Columns whose variance may be lost to rounding in their sums of squares."""
    return np.flatnonzero(squares - sums**2 / total < 2.0 * squares / MAX_RATIO)


def large_means(moments: ColumnMoments) -> Array:
    """Means of columns with a mean far larger than their standard deviation, else zero.

    A constant column is not shifted, since it is redundant with the intercept.
    """
    mean, variance = moments.mean, moments.squares / moments.weight
    tiny = (4.0 * np.finfo(np.float64).eps * np.abs(mean)) ** 2
    return np.where((mean**2 > MAX_RATIO * variance) & (variance > tiny), mean, 0.0)


def _shifted(X: Any, shift: Array) -> Matrix:
    """CSR rows minus a shift of some columns, which are nearly dense."""
    columns = np.flatnonzero(shift)
    dense = sparse.csr_array(X[:, columns].toarray() - shift[columns])
    embed = sparse.csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), (len(columns), X.shape[1])
    )
    unshifted = sparse.csr_array(X @ sparse.diags_array((shift == 0.0).astype(X.dtype)))
    return sparse.csr_array(unshifted + dense @ embed)
