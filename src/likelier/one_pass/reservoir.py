"""Some rows of every class, a fair sample of all that have passed: what scores are held to.

Each row has a key that depends on its number and weight only, and the smallest keys of a class are
kept (Efraimidis and Spirakis, 2006), as many of every class as there are, up to a number that all
classes share. So the sample is additive: however rows are cut, and whatever models are merged, it
is that of all rows, and it is all of them while they are few. Rows are kept in single precision, in
the coordinates of the stream. (Half precision ends at 65,504 standard deviations of the first rows,
which a column that hardly varies at first soon exceeds.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from likelier.base import Array

KEPT = np.dtype(np.float32)  # of the coordinates of a row
RESERVE_VALUES = 1 << 22  # of all rows: 16 megabytes
SQUARES = 4  # or, if that is more, so many times as many as products of two features
RESERVE_ROWS = 1 << 14
SCORED_VALUES, SCORED_ROWS = 1 << 19, 1 << 13  # of a part that is gone through at predictions
FRESH_SHARE = 8  # one in so many rows may wait to be put in order
COMPLETE = 1e-6  # share of a weight that may be missing, by rounding
TINY = 1e-300  # in place of zero, of a class without rows
EVERY = int(np.iinfo(np.int64).max)  # rows of a class, where none had to go


@dataclass(frozen=True)
class Sample:
    """Rows, each with its class, its key and its weight."""

    rows: Array  # (R, d) coordinates
    codes: Array
    keys: Array
    weight: Array

    @classmethod
    def empty(cls, n_features: int, dtype: np.dtype[Any] = KEPT) -> Sample:
        """No rows."""
        nothing = np.zeros((0, n_features), dtype)
        return cls(nothing, np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))

    def taken(self, where: Array) -> Sample:
        """Some of the rows."""
        return Sample(*(item[where] for item in vars(self).values()))

    def and_then(self, other: Sample) -> Sample:
        """The rows of both."""
        if not len(self.codes):
            return other
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Sample(*(np.concatenate(pair) for pair in pairs))

    def counts(self, n_classes: int = 0) -> Array:
        """Rows of every class."""
        return np.bincount(self.codes, minlength=n_classes)

    def shortened(self, each: int) -> Sample:
        """In order of class and key, no more than ``each`` rows of a class."""
        order = np.lexsort((self.keys, self.codes))
        counts = self.counts()
        first = (np.cumsum(counts) - counts)[self.codes[order]]
        return self.taken(order[np.arange(len(order)) - first < each])

    def shares(self, class_weight: Array) -> Array:
        """What every row stands for: itself, where all rows of its class are here.

        Otherwise its weight over the chance that its key is below the largest one of its class
        (of the exponential distribution), so that shares of a class add up to its weight. Rows
        of one weight stand for the same.
        """
        n_classes, counts = len(class_weight), partial(np.bincount, self.codes)
        own = counts(weights=self.weight, minlength=n_classes)
        whole = (own >= (1.0 - COMPLETE) * class_weight)[self.codes]
        last = np.full(n_classes, -np.inf)
        np.maximum.at(last, self.codes, self.keys)
        times = last[self.codes] + np.log(self.weight)
        expected = np.exp(np.clip(times, -700.0, 700.0))
        part = expected / -np.expm1(-expected)  # one, but for rows that are as good as certain
        unit = class_weight / np.maximum(counts(weights=part, minlength=n_classes), TINY)
        return np.where(whole, self.weight, unit[self.codes] * part)


@dataclass(frozen=True)
class Reserve:
    """A sample in order of class and key, and rows that were taken since it was put in order."""

    kept: Sample
    fresh: Sample
    seen: int  # rows that have passed
    room: int = EVERY  # rows of a class that are kept, which become fewer and never more

    @classmethod
    def empty(cls, n_features: int, dtype: np.dtype[Any] = KEPT) -> Reserve:
        """Before the first row."""
        return cls(Sample.empty(n_features, dtype), Sample.empty(n_features, dtype), 0)

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Reserve:
        """What `to_arrays` gave."""
        kept, fresh = (Sample(**arrays[name]) for name in ("kept", "fresh"))
        return cls(kept, fresh, int(arrays["seen"]), int(arrays["room"]))

    def to_arrays(self) -> dict[str, Any]:
        """As plain arrays, for saving."""
        parts = {"kept": dict(vars(self.kept)), "fresh": dict(vars(self.fresh))}
        return {**parts, "seen": self.seen, "room": self.room}

    def seeing(self, Z: Array, codes: Array, weight: Array) -> Reserve:
        """After a block of rows of positive weight; cost rows, but for those that are kept."""
        with np.errstate(divide="ignore"):  # a row forgotten to weight 0 is not kept
            keys = np.log(-np.log(_uniform(self.seen, len(codes)))) - np.log(weight)
        after = replace(self, seen=self.seen + len(codes))
        taken = np.flatnonzero(keys < self._bars(int(codes.max()) + 1)[codes])
        if not len(taken):
            return after
        rows = _limited(Z[taken], self.kept.rows.dtype)
        new = Sample(rows, codes[taken], keys[taken], np.asarray(weight[taken], dtype=np.float64))
        after = replace(after, fresh=self.fresh.and_then(new))
        waiting = FRESH_SHARE * len(after.fresh.codes)
        return after.ordered() if waiting > len(after.kept.codes) else after

    def ordered(self) -> Reserve:
        """The same sample, with no row waiting."""
        if not len(self.fresh.codes):
            return self
        found, d = self.kept.and_then(self.fresh), int(self.kept.rows.shape[1])
        room = min(self.room, level(found.counts(), reserve_rows(d)))
        nothing = self.fresh.taken(np.arange(0))
        return Reserve(found.shortened(room), nothing, self.seen, room)

    @property
    def sample(self) -> Sample:
        """The rows."""
        return self.ordered().kept

    @property
    def is_complete(self) -> bool:
        """Whether no row is missing."""
        return self.ordered().room == EVERY

    def merged(self, other: Reserve) -> Reserve:
        """The sample of the rows of both."""
        one, two = self.ordered(), other.ordered()
        room = min(one.room, two.room)
        return Reserve(one.kept, two.kept, one.seen + two.seen, room).ordered()

    def moved(self, ratio: Array, shift: Array) -> Reserve:
        """The same rows in other coordinates, ``ratio * z + shift``."""

        def move(sample: Sample) -> Sample:
            rows = ratio * sample.rows.astype(np.float64) + shift
            return replace(sample, rows=_limited(rows, sample.rows.dtype))

        return self._each(move)

    def renumbered(self, places: Array) -> Reserve:
        """The same rows where class ``k`` has become class ``places[k]``, in the same order."""
        return self._each(lambda sample: replace(sample, codes=places[sample.codes]))

    def faded(self, factor: float) -> Reserve:
        """The same rows, each with its weight times ``factor``."""

        def fade(sample: Sample) -> Sample:
            keys, weight = sample.keys - np.log(factor), factor * sample.weight
            found = replace(sample, keys=keys, weight=weight)
            return found if weight.all() else found.taken(np.flatnonzero(weight))

        return self._each(fade)

    def _each(self, change: Callable[[Sample], Sample]) -> Reserve:
        return replace(self, kept=change(self.kept), fresh=change(self.fresh))

    def _bars(self, n_classes: int) -> Array:
        """Key that a row of each class must stay below to be kept."""
        counts = self.kept.counts(n_classes)
        bar = np.full(len(counts), np.inf)
        full = counts >= self.room
        bar[full] = self.kept.keys[(np.cumsum(counts) - 1)[full]]
        return bar


def reserve_rows(n_features: int) -> int:
    """Rows that are kept of so many features."""
    d = max(1, n_features)
    return min(RESERVE_ROWS, max(RESERVE_VALUES // d, SQUARES * d))


def scored_rows(n_features: int) -> int:
    """Rows of the part of the sample that is gone through at predictions."""
    d = max(1, n_features)
    return min(SCORED_ROWS, max(SCORED_VALUES // d, SQUARES * d))


def level(counts: Array, most: int) -> int:
    """The largest number of rows of every class that makes no more than ``most`` in all.

    `EVERY` if there are no more; one, if there are more classes than that.
    """
    fewest = np.sort(counts[counts > 0])
    if fewest.sum() <= most:
        return EVERY
    before = np.cumsum(fewest) - fewest
    each = (most - before) // np.arange(len(fewest), 0, -1)
    return max(1, int(each[np.flatnonzero(each <= fewest)[0]]))


def _limited(rows: Array, dtype: np.dtype[Any]) -> Array:
    """Rows of a precision, in whose range they are: farther out nothing more is to be said."""
    bound = np.finfo(dtype).max
    return np.clip(rows, -bound, bound).astype(dtype)


def _uniform(first: int, n: int) -> Array:
    """Numbers in (0, 1) that depend on the numbers of rows alone (splitmix64)."""
    z = np.arange(first, first + n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z = (z ^ (z >> np.uint64(31))) >> np.uint64(11)
    return (z.astype(np.float64) + 0.5) / 2.0**53
