"""Inlier scores: out-of-fold scores of training rows, which calibrate the outlier threshold."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from likelier.base import Array
from likelier.naive_bayes.closed_form import LOWEST

TINY = float(np.finfo(np.float64).tiny)
MAX_SCORES = 1000


@dataclass(frozen=True)
class InlierScores:
    """Out-of-fold scores of at most `MAX_SCORES` rows; the rows themselves are not stored.

    ``weight`` is the weight of all rows that a score represents, ``codes`` are the classes of the
    rows, ``count`` is the weight of the class when the row was scored, and ``size`` the divisor of
    its log density.
    """

    scores: Array
    weight: Array
    codes: Array
    count: Array
    size: Array

    def to_arrays(self) -> dict[str, Array]:
        """Arrays by name, for saving."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def growth(self) -> float:
        """Exponent in [0, 1] with which ``-log p(x)`` of inliers grows with their size.

        For a well-specified model, ``-log p(x)`` of rows of counts hardly depends on their length;
        with overdispersion it grows in proportion. The exponent is the regression coefficient of
        ``log(-log p)`` on ``log(size)`` under a prior of 0.5 +- 0.5, which dominates for few rows
        or rows of equal length.
        """
        good = (self.scores < 0.0) & (self.scores > -LOWEST)
        if not good.any():
            return 1.0
        share = self.weight[good] / self.weight[good].sum()
        x, y = np.log(self.size[good]), np.log(-self.scores[good] * self.size[good])
        x, y = x - share @ x, y - share @ y
        known, noise = len(x) * (share @ x**2), 4.0 * (share @ y**2) + TINY
        return float(np.clip((len(x) * (share @ (x * y)) + 0.5 * noise) / (known + noise), 0, 1))

    def per_size(self, size: Array) -> Array:
        """Factors that make log densities per unit of size comparable across sizes.

        Rows larger than all scored rows are treated as the largest of these.
        """
        return np.asarray(np.minimum(size, self.size.max(initial=1.0)) ** (1.0 - self.growth()))

    def reindex(self, positions: Array, shift: Array) -> InlierScores:
        """Scores after class ``k`` becomes ``positions[k]`` and its log prior changes by a shift.

        Exact for rows that are improbable under all other classes.
        """
        scores = self.scores + shift[self.codes] / self.size
        return replace(self, scores=scores, codes=positions[self.codes])

    def merge(self, other: InlierScores, start: float) -> InlierScores:
        """Scores of both sets of rows, without outdated ones.

        More than `MAX_SCORES` are thinned by systematic sampling with probability proportional to
        weight: scores above a limiting weight are kept, the others are kept with probability
        ``weight / limit`` and then weigh ``limit``. Sampling runs in the order of classes and
        scores from a random ``start`` in [0, 1), which nearly preserves the fractions of classes
        and of low scores.
        """
        parts = zip(self.to_arrays().items(), other.to_arrays().values(), strict=True)
        both = InlierScores(**{name: np.concatenate([mine, new]) for (name, mine), new in parts})
        rows = both._without_outdated()
        if len(rows.scores) <= MAX_SCORES:
            return rows
        rows = rows._take(np.lexsort((rows.scores, rows.codes)))
        limit = _limit_of(rows.weight)
        held = np.cumsum(np.minimum(rows.weight / limit, 1.0))
        hits = np.searchsorted(
            held, (np.arange(MAX_SCORES) + start) * (held[-1] / MAX_SCORES), "right"
        )
        kept = rows._take(np.unique(np.minimum(hits, len(held) - 1)))
        weight = np.maximum(kept.weight, limit)
        return replace(kept, weight=weight * (rows.weight.sum() / weight.sum()))

    def _without_outdated(self) -> InlierScores:
        """Drop scores from when their class had less than half the weight of the latest score.

        They are biased downwards, since the class was estimated from fewer rows. The remaining
        scores of the class take over their weight. A class that would lose more than half of its
        scores keeps all of them.
        """
        n_classes = int(self.codes.max(initial=-1)) + 1
        latest = np.zeros(n_classes)
        np.maximum.at(latest, self.codes, self.count)
        good = 2.0 * self.count >= latest[self.codes]
        too_few = 2 * np.bincount(self.codes[good], minlength=n_classes) < np.bincount(self.codes)
        good |= too_few[self.codes]
        if good.all():
            return self
        rows = self._take(np.flatnonzero(good))
        total = np.bincount(self.codes, self.weight, n_classes)
        left = np.bincount(rows.codes, rows.weight, n_classes)
        return replace(rows, weight=rows.weight * (total[rows.codes] / left[rows.codes]))

    def _take(self, rows: Array) -> InlierScores:
        return InlierScores(**{name: array[rows] for name, array in self.to_arrays().items()})


def _limit_of(weight: Array) -> float:
    """Limiting weight such that `MAX_SCORES` scores are kept.

    If the ``k`` heaviest are always kept, the others share the remaining weight equally; the limit
    is that share for the smallest ``k`` for which it is no less than the next weight.
    """
    falling = np.sort(weight)[::-1]
    left = np.cumsum(falling[::-1])[::-1][:MAX_SCORES]
    shares = left / np.arange(MAX_SCORES, 0, -1)
    return float(shares[np.argmax(falling[:MAX_SCORES] <= shares)])
