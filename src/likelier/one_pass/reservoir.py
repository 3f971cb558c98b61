"""A stratified reservoir sample of the rows, used to compare and scale the scores of classes.

Each row has a key that depends on its number and weight only, and the smallest keys of a class are
kept (Efraimidis and Spirakis, 2006), up to a capacity per class that all classes share. The sample
is therefore additive: however rows are split, and whatever models are merged, it is the sample of
all rows, and holds all of them while they are few. Rows are stored in single precision, in the
coordinates of the stream. (Half precision ends at 65,504 standard deviations of the first rows,
which a column that hardly varies at first soon exceeds.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from likelier.base import Array

STORED_DTYPE = np.dtype(np.float32)
RESERVOIR_VALUES = 1 << 22  # 16 megabytes
SQUARE_MULTIPLE = 4  # the limit on values is at least this times n_features^2
RESERVOIR_ROWS = 1 << 14
SCORED_VALUES, SCORED_ROWS = 1 << 19, 1 << 13  # of the part that is used before predictions
SORTED_PER_NEW = 8  # sorted rows needed for every new row before the next sort
COMPLETE_TOL = 1e-6  # relative weight that may be missing due to rounding
TINY = 1e-300  # avoids division by zero for a class without rows
UNLIMITED = int(np.iinfo(np.int64).max)  # capacity while no row has been dropped


@dataclass(frozen=True)
class Sample:
    """Rows, each with its class, its key and its weight."""

    rows: Array  # (R, d) coordinates
    codes: Array
    keys: Array
    weight: Array

    @classmethod
    def empty(cls, n_features: int, dtype: np.dtype[Any] = STORED_DTYPE) -> Sample:
        """No rows."""
        no_rows = np.zeros((0, n_features), dtype)
        return cls(no_rows, np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))

    def take(self, where: Array) -> Sample:
        """The rows at the given positions."""
        return Sample(*(item[where] for item in vars(self).values()))

    def append(self, other: Sample) -> Sample:
        """The rows of both samples."""
        if not len(self.codes):
            return other
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Sample(*(np.concatenate(pair) for pair in pairs))

    def counts(self, n_classes: int = 0) -> Array:
        """Number of rows of every class."""
        return np.bincount(self.codes, minlength=n_classes)

    def truncate(self, each: int) -> Sample:
        """Rows sorted by class and key, at most ``each`` of a class."""
        order = np.lexsort((self.keys, self.codes))
        counts = self.counts()
        first = (np.cumsum(counts) - counts)[self.codes[order]]
        return self.take(order[np.arange(len(order)) - first < each])

    def importance_weights(self, class_weight: Array) -> Array:
        """Importance weight of every row: its own, if the sample holds all rows of its class.

        Otherwise its weight over the probability that its key is below the largest one of its class
        (of the exponential distribution), normalised so that a class adds up to its total weight.
        Rows of equal weight have equal importance.
        """
        n_classes, counts = len(class_weight), partial(np.bincount, self.codes)
        own = counts(weights=self.weight, minlength=n_classes)
        complete = (own >= (1.0 - COMPLETE_TOL) * class_weight)[self.codes]
        last = np.full(n_classes, -np.inf)
        np.maximum.at(last, self.codes, self.keys)
        log_rate = last[self.codes] + np.log(self.weight)
        rate = np.exp(np.clip(log_rate, -700.0, 700.0))
        inverse = rate / -np.expm1(-rate)  # about one, except for rows that are almost surely kept
        unit = class_weight / np.maximum(counts(weights=inverse, minlength=n_classes), TINY)
        return np.where(complete, self.weight, unit[self.codes] * inverse)


@dataclass(frozen=True)
class Reservoir:
    """A sample sorted by class and key, and rows added since the last sort."""

    sorted_rows: Sample
    new_rows: Sample
    n_seen: int
    capacity: int = UNLIMITED  # rows per class; it never increases

    @classmethod
    def empty(cls, n_features: int, dtype: np.dtype[Any] = STORED_DTYPE) -> Reservoir:
        """A reservoir without rows."""
        return cls(Sample.empty(n_features, dtype), Sample.empty(n_features, dtype), 0)

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Reservoir:
        """Inverse of `to_arrays`."""
        sorted_rows, new_rows = (Sample(**arrays[name]) for name in ("sorted_rows", "new_rows"))
        return cls(sorted_rows, new_rows, int(arrays["n_seen"]), int(arrays["capacity"]))

    def to_arrays(self) -> dict[str, Any]:
        """As plain arrays, for saving."""
        parts = {name: dict(vars(getattr(self, name))) for name in ("sorted_rows", "new_rows")}
        return {**parts, "n_seen": self.n_seen, "capacity": self.capacity}

    def add_rows(self, Z: Array, codes: Array, weight: Array) -> Reservoir:
        """Add a block of rows of positive weight; costs little beyond the rows that are kept."""
        with np.errstate(divide="ignore"):  # a row whose weight has decayed to 0 is not kept
            keys = np.log(-np.log(_uniform(self.n_seen, len(codes)))) - np.log(weight)
        after = replace(self, n_seen=self.n_seen + len(codes))
        kept = np.flatnonzero(keys < self._key_limits(int(codes.max()) + 1)[codes])
        if not len(kept):
            return after
        rows = _clip_to_dtype(Z[kept], self.sorted_rows.rows.dtype)
        new = Sample(rows, codes[kept], keys[kept], np.asarray(weight[kept], dtype=np.float64))
        after = replace(after, new_rows=self.new_rows.append(new))
        needed = SORTED_PER_NEW * len(after.new_rows.codes)
        return after.compacted() if needed > len(after.sorted_rows.codes) else after

    def compacted(self) -> Reservoir:
        """The same sample with new rows sorted in and surplus rows dropped."""
        if not len(self.new_rows.codes):
            return self
        rows, d = self.sorted_rows.append(self.new_rows), int(self.sorted_rows.rows.shape[1])
        capacity = min(self.capacity, rows_per_class(rows.counts(), reservoir_rows(d)))
        empty = self.new_rows.take(np.arange(0))
        return Reservoir(rows.truncate(capacity), empty, self.n_seen, capacity)

    @property
    def sample(self) -> Sample:
        """The sampled rows, sorted by class and key."""
        return self.compacted().sorted_rows

    @property
    def is_complete(self) -> bool:
        """Whether the sample holds all rows seen."""
        return self.compacted().capacity == UNLIMITED

    def merged(self, other: Reservoir) -> Reservoir:
        """The sample of the rows of both."""
        one, two = self.compacted(), other.compacted()
        capacity = min(one.capacity, two.capacity)
        return Reservoir(
            one.sorted_rows, two.sorted_rows, one.n_seen + two.n_seen, capacity
        ).compacted()

    def transform(self, ratio: Array, shift: Array) -> Reservoir:
        """The same rows in other coordinates, ``ratio * z + shift``."""

        def move(sample: Sample) -> Sample:
            rows = ratio * sample.rows.astype(np.float64) + shift
            return replace(sample, rows=_clip_to_dtype(rows, sample.rows.dtype))

        return self._each(move)

    def relabel(self, positions: Array) -> Reservoir:
        """The same rows with class ``k`` renamed to ``positions[k]``, in the same order."""
        return self._each(lambda sample: replace(sample, codes=positions[sample.codes]))

    def discounted(self, factor: float) -> Reservoir:
        """The same rows, each with its weight times ``factor``."""

        def fade(sample: Sample) -> Sample:
            keys, weight = sample.keys - np.log(factor), factor * sample.weight
            scaled = replace(sample, keys=keys, weight=weight)
            return scaled if weight.all() else scaled.take(np.flatnonzero(weight))

        return self._each(fade)

    def _each(self, change: Callable[[Sample], Sample]) -> Reservoir:
        return replace(self, sorted_rows=change(self.sorted_rows), new_rows=change(self.new_rows))

    def _key_limits(self, n_classes: int) -> Array:
        """Key that a row of each class must stay below to be kept."""
        counts = self.sorted_rows.counts(n_classes)
        limit = np.full(len(counts), np.inf)
        full = counts >= self.capacity
        limit[full] = self.sorted_rows.keys[(np.cumsum(counts) - 1)[full]]
        return limit


def reservoir_rows(n_features: int) -> int:
    """Total capacity in rows of so many features."""
    d = max(1, n_features)
    return min(RESERVOIR_ROWS, max(RESERVOIR_VALUES // d, SQUARE_MULTIPLE * d))


def scored_rows(n_features: int) -> int:
    """Rows of the part of the sample that is used before predictions."""
    d = max(1, n_features)
    return min(SCORED_ROWS, max(SCORED_VALUES // d, SQUARE_MULTIPLE * d))


def rows_per_class(counts: Array, most: int) -> int:
    """The largest capacity per class with no more than ``most`` rows in total.

    `UNLIMITED` if there are no more rows than that; one, if there are more classes.
    """
    ascending = np.sort(counts[counts > 0])
    if ascending.sum() <= most:
        return UNLIMITED
    before = np.cumsum(ascending) - ascending
    each = (most - before) // np.arange(len(ascending), 0, -1)
    return max(1, int(each[np.flatnonzero(each <= ascending)[0]]))


def _clip_to_dtype(rows: Array, dtype: np.dtype[Any]) -> Array:
    """Rows converted to a dtype, clipped to its range."""
    bound = np.finfo(dtype).max
    return np.clip(rows, -bound, bound).astype(dtype)


def _uniform(first: int, n: int) -> Array:
    """Numbers in (0, 1) that depend on the row numbers alone (splitmix64)."""
    z = np.arange(first, first + n, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z = (z ^ (z >> np.uint64(31))) >> np.uint64(11)
    return (z.astype(np.float64) + 0.5) / 2.0**53
