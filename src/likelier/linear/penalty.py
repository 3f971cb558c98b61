"""From the parameters of the penalty to one strength for every feature."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from likelier.base import Array, Loss
from likelier.fitting.dataset import WIDE
from likelier.glm.penalty import ElasticNet
from likelier.linear.standardize import Standardization

TINY = 1e-300
SPARSE = 0.1  # share of nonzeros below which zero means that a feature is absent
OTHER_SCALE = 100.0  # a feature whose values are so many times larger or smaller than typical
LOGIT_VARIANCE = 10.0  # a prior score of three standard units is nearly sure of its class
UNIT_VARIANCE = 1.0  # of a score that is compared with a margin, or with a target


@dataclass(frozen=True)
class Penalty:
    """The penalty as the constructor describes it."""

    kind: str | None
    alpha: float | str
    l1_ratio: float
    factor: float = 1.0  # multiplies automatic strengths

    def standardized(self, standard: Standardization) -> Penalty:
        """The same penalty of the same function, for standardised targets."""
        if self.alpha == "auto" or self.kind is None:
            return replace(self, factor=standard.penalty_factor)
        alpha, share = float(self.alpha), self.share
        l2 = (1.0 - share) * alpha * standard.scale ** (2 - standard.degree)
        l1 = share * alpha * standard.scale ** (1 - standard.degree)
        if standard.degree == 0 or l1 + l2 == 0.0:
            return self
        return Penalty("elasticnet", l1 + l2, l1 / (l1 + l2))

    @property
    def share(self) -> float:
        """Share of the L1 part."""
        return {None: 0.0, "l2": 0.0, "l1": 1.0}.get(self.kind, self.l1_ratio)

    def strengths(
        self, columns: Columns, n_rows: int, fit_intercept: bool, loss: Loss
    ) -> ElasticNet:
        """One strength per feature, and none for the intercept."""
        d = len(columns.square)
        strength: float | Array = 0.0
        if self.kind is not None and self.alpha == "auto":
            logits = loss.probabilistic and loss.task in ("binary", "multiclass")
            variance = LOGIT_VARIANCE if logits else UNIT_VARIANCE
            strength = self.factor * automatic_strengths(columns, variance) / n_rows
        elif self.kind is not None:
            strength = float(self.alpha)
        l2, l1 = np.zeros(d + int(fit_intercept)), np.zeros(d + int(fit_intercept))
        l2[:d] = (1.0 - self.share) * strength
        if self.share:
            l1[:d] = self.share * strength
        return ElasticNet(l2, l1)


@dataclass(frozen=True)
class Columns:
    """What the automatic penalty knows of the features.

    ``square`` is the mean square of what each can tell (`informative_squares`), ``share`` the share
    of rows where it is not zero (of no interest up to `WIDE` features).
    """

    square: Array
    share: Array


def automatic_strengths(columns: Columns, variance: float) -> Array:
    """Penalty of every feature times the number of rows.

    Few features: as much as one row of standardised data, which as a prior gives the score of a
    row a variance of one per feature that varies. Beyond `WIDE` of them the penalty grows with
    their number, so that this variance stays there.

    Many features that are mostly zero (words, categories) share one scale: on a scale of its own a
    rare word would be as free as a common one, though few rows speak for it. The prior of a
    score then has the given variance. A feature of quite another scale keeps its own (the mean
    square where it is present), so that neither it nor the rest is lost.
    """
    square, varies = columns.square, columns.square > TINY
    n_varying = int(varies.sum())
    scale = np.where(varies, square, 1.0)
    if n_varying <= WIDE or columns.share[varies].mean() > SPARSE:
        return scale * max(1.0, n_varying / WIDE)
    own = scale / np.where(varies, columns.share, 1.0)
    typical = _weighted_median(own[varies], columns.share[varies])
    ratio = own / typical
    alike = ~varies | ((ratio < OTHER_SCALE**2) & (ratio > OTHER_SCALE**-2))
    scale = np.where(alike, typical, own)
    return np.asarray(scale * (square / scale)[varies].sum() / variance)


def _weighted_median(values: Array, weight: Array) -> float:
    order = np.argsort(values, kind="stable")
    half = np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum())
    return float(values[order[min(half, len(order) - 1)]])
