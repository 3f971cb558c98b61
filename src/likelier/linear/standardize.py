"""Units in which a linear fit works: targets around zero of size one, features not far from it.

A fit with nothing to tune must not depend on where a clock begins or in what currency a price
is told. So targets are centred and divided by their spread before the fit, a loss's own lengths
(``delta``, ``epsilon``) with them, columns whose mean dwarfs their spread are moved to it, and the
parameters found are put back into the caller's units. A penalty the caller gave is carried over
exactly; an automatic one is one row of data in these units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from likelier.base import Array, Loss, Matrix
from likelier.fitting.moments import ColumnMoments

FAR = 1e6  # mean squared over variance from which on sums of squares lose too many digits


def target_moments(y: Array, weight: Array | None) -> ColumnMoments:
    """Moments of targets; rows that are absent do not change a bit of them."""
    if weight is not None:
        y, weight = y[weight > 0.0], weight[weight > 0.0]
    return ColumnMoments.of(y[:, None], weight)


def _spread(targets: ColumnMoments, centre: float) -> float:
    """Root of the mean squared distance from ``centre``; one where all are there."""
    mean = float(targets.mean[0])
    square = float(targets.squares[0]) / targets.weight + (mean - centre) ** 2
    tiny = (4.0 * np.finfo(np.float64).eps * abs(mean)) ** 2
    return float(np.sqrt(square)) if square > tiny else 1.0


@dataclass(frozen=True)
class Frame:
    """How inner units relate to the caller's.

    Attributes
    ----------
    centre, unit : float
        Inner targets are ``(y - centre) / unit``.
    degree : int
        The caller's objective is ``unit ** degree`` times the inner one.
    shift : array of shape (n_features,), optional
        Taken off every row.
    first : float
        Intercept to start from.
    floor : float
        The least that the mean inner loss can be.
    penalty_factor : float
        What an automatic penalty is multiplied by: how much one row tells, at most one.
    """

    centre: float = 0.0
    unit: float = 1.0
    degree: int = 0
    shift: Array | None = None
    first: float = 0.0
    floor: float = 0.0
    penalty_factor: float = 1.0

    def rows(self, X: Matrix) -> Matrix:
        """Rows in inner units; a copy only where something is taken off."""
        if self.shift is None:
            return X
        return _moved(X, self.shift) if sparse.issparse(X) else np.asarray(X - self.shift)

    def targets(self, y: Array) -> Array:
        """Targets in inner units."""
        return y if self.degree == 0 else (y - self.centre) / self.unit

    def scores(self, scores: Array) -> Array:
        """Scores in the caller's units."""
        return np.asarray(scores * self.unit + self.centre)

    def loss(self, loss: Loss) -> Loss:
        """The loss with its lengths in inner units."""
        return loss if self.degree == 0 else loss.in_units(self.unit)

    def outer(self, theta: Array, fit_intercept: bool) -> Array:
        """Parameters in the caller's units; the array itself where they are the same."""
        if self.unit == 1.0 and self.centre == 0.0 and self.shift is None:
            return theta
        theta = theta * self.unit
        if fit_intercept:
            theta[-1] += self.centre
            if self.shift is not None:
                theta[-1] -= self.shift @ theta[:-1]
        return theta

    def inner(self, theta: Array, fit_intercept: bool) -> Array:
        """Parameters in inner units: the inverse of `outer`."""
        theta = np.array(theta)
        if fit_intercept:
            if self.shift is not None:
                theta[-1] += self.shift @ theta[:-1]
            theta[-1] -= self.centre
        return np.asarray(theta / self.unit)

    def covariance(self, covariance: Array, fit_intercept: bool) -> Array:
        """Covariance of the parameters in the caller's units, from that of the inner ones."""
        if not covariance.size:
            return covariance
        covariance = covariance * self.unit**2
        if self.shift is None or not fit_intercept:
            return covariance
        p = len(self.shift) + 1
        move = np.eye(p)
        move[-1, :-1] = -self.shift
        whole = np.kron(np.eye(covariance.shape[1] // p), move)
        return np.asarray(whole @ covariance @ whole.T)


PLAIN = Frame()


def target_frame(loss: Loss, targets: ColumnMoments, fit_intercept: bool) -> Frame:
    """Inner units for targets with these moments; as they are where the loss has no units."""
    if not targets.weight:
        return PLAIN
    if loss.task == "count":
        return _counts(float(targets.mean[0]), fit_intercept)
    if loss.degree is None:
        return PLAIN
    centre = float(targets.mean[0]) if fit_intercept else 0.0
    unit = _spread(targets, centre)
    return Frame(centre, unit, loss.degree, penalty_factor=loss.in_units(unit).curved_width)


def count_frame(y: Array, weight: Array | None, fit_intercept: bool) -> Frame:
    """Counts keep their units: where to start, what is the best to be had, how much a row tells."""
    if weight is not None:  # absent rows must not change a bit
        y, weight = y[weight > 0.0], weight[weight > 0.0]
    omega = np.ones(len(y)) if weight is None else weight
    mean = float(omega @ y) / float(omega.sum())
    logs = np.log(y, out=np.zeros_like(y), where=y > 0.0)
    floor = float(omega @ (y - y * logs)) / len(y)
    return replace(_counts(mean, fit_intercept), floor=floor)


def _counts(mean: float, fit_intercept: bool) -> Frame:
    if mean <= 0.0:
        return PLAIN
    return Frame(first=float(np.log(mean)) if fit_intercept else 0.0, penalty_factor=min(1.0, mean))


def far_columns(X: Any, sums: Array, squares: Array, weight: Array | None) -> Array | None:
    """What to take off the columns whose mean dwarfs their spread; None where there are none.

    ``sums`` and ``squares`` say which columns may be such; only these are looked at again, in two
    passes, so that the spread of ``1e9 + noise`` is that of the noise. A constant column is left
    where it is: what it tells, the intercept does.
    """
    omega = np.ones(X.shape[0]) if weight is None else weight
    suspects = suspicious(sums, squares, float(omega.sum()))
    if not len(suspects):
        return None
    some = X[:, suspects]
    rows = np.asarray(some.toarray() if sparse.issparse(X) else some, dtype=np.float64)
    present = omega > 0.0  # the same bits whether absent rows are there or not
    moments = ColumnMoments.of(rows[present] - rows[present][0], omega[present])
    moments = replace(moments, mean=moments.mean + rows[present][0])
    shift = np.zeros(X.shape[1])
    shift[suspects] = far_means(moments)
    return shift if shift.any() else None


def suspicious(sums: Array, squares: Array, total: float) -> Array:
    """Columns whose sums of squares may have lost their spread."""
    return np.flatnonzero(squares - sums**2 / total < 2.0 * squares / FAR)


def far_means(moments: ColumnMoments) -> Array:
    """Means of the columns whose mean dwarfs their spread; zero for the others."""
    mean, spread = moments.mean, moments.squares / moments.weight
    tiny = (4.0 * np.finfo(np.float64).eps * np.abs(mean)) ** 2
    return np.where((mean**2 > FAR * spread) & (spread > tiny), mean, 0.0)


def _moved(X: Any, shift: Array) -> Matrix:
    """CSR rows with something taken off some columns, which hold hardly any zeros."""
    columns = np.flatnonzero(shift)
    dense = sparse.csr_array(X[:, columns].toarray() - shift[columns])
    place = sparse.csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), (len(columns), X.shape[1])
    )
    kept = sparse.csr_array(X @ sparse.diags_array((shift == 0.0).astype(X.dtype)))
    return sparse.csr_array(kept + dense @ place)
