"""Out-of-fold scores of training rows: what is ordinary, and so what is an outlier."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from likelier.base import Array
from likelier.naive_bayes.closed_form import LOWEST

TINY = float(np.finfo(np.float64).tiny)
HELD_OUT = 1000  # rows whose out-of-fold scores say what is ordinary


@dataclass(frozen=True)
class OrdinaryRows:
    """Out-of-fold scores of at most `HELD_OUT` rows; the rows themselves are not kept.

    ``weight`` is that of all rows a score stands for, ``codes`` are the classes of the rows,
    ``count`` is the weight that the class had when the row was scored, ``size`` what the log
    density of the row was divided by.
    """

    scores: Array
    weight: Array
    codes: Array
    count: Array
    size: Array

    def to_arrays(self) -> dict[str, Array]:
        """Plain form, for saving."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def growth(self) -> float:
        """Power of its size that ``-log p(x)`` of an ordinary row grows with, from 0 to 1.

        Rows of counts that the law describes well have nearly the same log probability whatever
        their length; where they vary more than it says, every event adds its share. The slope of
        ``log(-log p)`` by ``log(size)`` tells, and is taken to be a half, give or take a half,
        before: few rows, or rows of one length, say nothing.
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
        """By what to multiply log densities per unit of size to compare rows of these sizes.

        Rows larger than all of these are judged like the largest: what they would add is unknown.
        """
        return np.asarray(np.minimum(size, self.size.max(initial=1.0)) ** (1.0 - self.growth()))

    def moved(self, places: Array, shift: Array) -> OrdinaryRows:
        """Scores once class ``k`` is number ``places[k]`` and its log prior has moved by a shift.

        Exact for rows that no other class is likely to have made.
        """
        scores = self.scores + shift[self.codes] / self.size
        return replace(self, scores=scores, codes=places[self.codes])

    def joined(self, other: OrdinaryRows, start: float) -> OrdinaryRows:
        """Scores of both sets of rows, without those that are out of date.

        Too many are thinned by weight: those above a limit stay as they are, the others each with a
        probability proportional to its weight, which is then the limit (so none weighs more than it
        must). In the order of classes and scores every so many-eth is taken, from a ``start`` in
        [0, 1): so the shares of classes and of low scores are kept nearly exactly.
        """
        parts = zip(self.to_arrays().items(), other.to_arrays().values(), strict=True)
        both = OrdinaryRows(**{name: np.concatenate([mine, new]) for (name, mine), new in parts})
        rows = both._without_early()
        if len(rows.scores) <= HELD_OUT:
            return rows
        rows = rows._take(np.lexsort((rows.scores, rows.codes)))
        limit = _limit_of(rows.weight)
        held = np.cumsum(np.minimum(rows.weight / limit, 1.0))
        hits = np.searchsorted(held, (np.arange(HELD_OUT) + start) * (held[-1] / HELD_OUT), "right")
        kept = rows._take(np.unique(np.minimum(hits, len(held) - 1)))
        weight = np.maximum(kept.weight, limit)
        return replace(kept, weight=weight * (rows.weight.sum() / weight.sum()))

    def _without_early(self) -> OrdinaryRows:
        """Forget scores made when their class had under half the weight it had for the latest.

        They are lower than scores of today, for the law of the class was less well known. The
        other scores of the class stand for their rows too. Nothing is forgotten of a class if that
        would leave less than half of its scores: few good ones are worse than many fair ones.
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

    def _take(self, rows: Array) -> OrdinaryRows:
        return OrdinaryRows(**{name: array[rows] for name, array in self.to_arrays().items()})


def _limit_of(weight: Array) -> float:
    """Weight that scores get when `HELD_OUT` of them stand for all, those above it for themselves.

    With the ``k`` heaviest set apart the others share what is left; the first ``k`` whose share is
    no less than the next weight is the one.
    """
    falling = np.sort(weight)[::-1]
    left = np.cumsum(falling[::-1])[::-1][:HELD_OUT]
    shares = left / np.arange(HELD_OUT, 0, -1)
    return float(shares[np.argmax(falling[:HELD_OUT] <= shares)])
