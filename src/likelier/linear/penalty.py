"""Penalty strengths per feature, from the constructor parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from likelier.base import Array, Loss
from likelier.fitting.dataset import WIDE
from likelier.glm.penalty import ElasticNet
from likelier.linear.standardize import Standardization

TINY = 1e-300
SPARSE = 0.1  # fraction of nonzeros below which features are treated as sparse
OTHER_SCALE = 100.0  # factor from the typical scale at which a feature keeps its own
LOGIT_VARIANCE = 10.0  # a logit of one prior standard deviation is a probability of 0.96
UNIT_VARIANCE = 1.0  # of prior scores on the scale of margins or targets


@dataclass(frozen=True)
class Penalty:
    """Constructor parameters of the penalty."""

    alpha: float | str
    l1_ratio: float
    factor: float = 1.0  # multiplies automatic strengths

    def standardized(self, standard: Standardization) -> Penalty:
        """The equivalent penalty for standardised targets."""
        if self.alpha == "auto":
            return replace(self, factor=standard.penalty_factor)
        alpha, fraction = float(self.alpha), self.l1_ratio
        l2 = (1.0 - fraction) * alpha * standard.scale ** (2 - standard.degree)
        l1 = fraction * alpha * standard.scale ** (1 - standard.degree)
        if standard.degree == 0 or l1 + l2 == 0.0:
            return self
        return Penalty(l1 + l2, l1 / (l1 + l2))

    def strengths(
        self, columns: Columns, n_rows: int, fit_intercept: bool, loss: Loss
    ) -> ElasticNet:
        """One strength per feature, zero for the intercept."""
        d = len(columns.square)
        strength: float | Array
        if self.alpha == "auto":
            logits = loss.probabilistic and loss.task in ("binary", "multiclass")
            variance = LOGIT_VARIANCE if logits else UNIT_VARIANCE
            strength = self.factor * automatic_strengths(columns, variance) / n_rows
        else:
            strength = float(self.alpha)
        l2, l1 = np.zeros(d + int(fit_intercept)), np.zeros(d + int(fit_intercept))
        l2[:d] = (1.0 - self.l1_ratio) * strength
        if self.l1_ratio:
            l1[:d] = self.l1_ratio * strength
        return ElasticNet(l2, l1)


@dataclass(frozen=True)
class Columns:
    """Column statistics for the automatic penalty.

    ``square`` is the informative mean square (`informative_squares`), ``density`` the fraction of
    nonzeros (not used up to `WIDE` features).
    """

    square: Array
    density: Array


def automatic_strengths(columns: Columns, variance: float) -> Array:
    """Penalty of every feature times the number of rows.

    Few features: equivalent to one row of standardised data. As a prior, every feature that varies
    adds one to the variance of the score. Beyond `WIDE` features the penalty grows with their
    number, which bounds this variance.

    Many sparse features (terms, categories) share one scale, and the prior of a score has the given
    variance: with individual scales a rare term would be penalised no more than a frequent one,
    despite few observations. A feature with a very different scale keeps its own (its mean square
    where it is nonzero).
    """
    square, varies = columns.square, columns.square > TINY
    n_varying = int(varies.sum())
    scale = np.where(varies, square, 1.0)
    if n_varying <= WIDE or columns.density[varies].mean() > SPARSE:
        return scale * max(1.0, n_varying / WIDE)
    own = scale / np.where(varies, columns.density, 1.0)
    typical = _weighted_median(own[varies], columns.density[varies])
    ratio = own / typical
    alike = ~varies | ((ratio < OTHER_SCALE**2) & (ratio > OTHER_SCALE**-2))
    scale = np.where(alike, typical, own)
    return np.asarray(scale * (square / scale)[varies].sum() / variance)


def _weighted_median(values: Array, weight: Array) -> float:
    order = np.argsort(values, kind="stable")
    half = np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum())
    return float(values[order[min(half, len(order) - 1)]])
