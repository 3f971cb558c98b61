"""Some rows of every class, a fair sample of all that have passed: what scores are held to.

Each row has a key that depends on its number and weight only, and the smallest keys of a class are
kept (Efraimidis and Spirakis, 2006). So the sample is additive: however rows are cut, and whatever
models are merged, it is that of all rows. Rows are kept in single precision, in the coordinates of
the stream. (Half precision ends at 65,504 standard deviations of the first rows, which a column
that hardly varies at first soon exceeds.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from likelier.base import Array

KEPT = np.dtype(np.float32)  # of the coordinates of a row
RESERVE_VALUES = 1 << 19  # of all classes, as many as the opening holds
SQUARES = 4  # or, if that is more, so many times as many as products of two features
RESERVE_ROWS, ALL_ROWS = 4096, 8192  # of one class, of all


@dataclass(frozen=True)
class Reserve:
    """Rows in order of their class and, within a class, of their keys."""

    rows: Array  # (R, d) coordinates
    codes: Array  # class of every row
    keys: Array
    seen: int  # rows that have passed

    @classmethod
    def empty(cls, n_features: int, dtype: np.dtype[Any] = KEPT) -> Reserve:
        """Before the first row."""
        nothing = np.zeros((0, n_features), dtype)
        return cls(nothing, np.zeros(0, dtype=np.intp), np.zeros(0), 0)

    def seeing(self, Z: Array, codes: Array, weight: Array, n_classes: int) -> Reserve:
        """After a block of rows of positive weight; cost rows, but for those that are kept."""
        with np.errstate(divide="ignore"):  # a row forgotten to weight 0 comes last
            keys = np.log(-np.log(_uniform(self.seen, len(codes)))) - np.log(weight)
        seen = self.seen + len(codes)
        bar = self._bars(n_classes)
        taken = np.flatnonzero(keys < bar[codes])
        if not len(taken):
            return replace(self, seen=seen)
        rows = _limited(Z[taken], self.rows.dtype)
        new = Reserve(rows, codes[taken], keys[taken], seen)
        return self._joined(new, n_classes, seen)

    def merged(self, other: Reserve, n_classes: int) -> Reserve:
        """The sample of the rows of both."""
        return self._joined(other, n_classes, self.seen + other.seen)

    def moved(self, ratio: Array, shift: Array) -> Reserve:
        """The same rows in other coordinates, ``ratio * z + shift``."""
        rows = ratio * self.rows.astype(np.float64) + shift
        return replace(self, rows=_limited(rows, self.rows.dtype))

    def renumbered(self, places: Array) -> Reserve:
        """The same rows where class ``k`` has become class ``places[k]``, in the same order."""
        return replace(self, codes=places[self.codes] if len(self.codes) else self.codes)

    def faded(self, factor: float) -> Reserve:
        """The same rows, each with its weight times ``factor``."""
        return replace(self, keys=self.keys - np.log(factor))

    def counts(self, n_classes: int) -> Array:
        """Rows kept of every class."""
        return np.bincount(self.codes, minlength=n_classes)

    def _room(self, n_classes: int) -> int:
        d = max(1, int(self.rows.shape[1]))
        n_rows = min(ALL_ROWS, max(RESERVE_VALUES // d, SQUARES * d))
        return max(1, min(RESERVE_ROWS, n_rows // max(1, n_classes)))

    def _bars(self, n_classes: int) -> Array:
        """Key that a row of each class must stay below to be kept."""
        room, counts = self._room(n_classes), self.counts(n_classes)
        bar = np.full(n_classes, np.inf)
        full = counts >= room
        bar[full] = self.keys[(np.cumsum(counts) - counts + room - 1)[full]]
        return bar

    def _joined(self, other: Reserve, n_classes: int, seen: int) -> Reserve:
        codes = np.concatenate([self.codes, other.codes])
        keys = np.concatenate([self.keys, other.keys])
        order = np.lexsort((keys, codes))
        counts = np.bincount(codes, minlength=n_classes)
        first = (np.cumsum(counts) - counts)[codes[order]]
        order = order[np.arange(len(order)) - first < self._room(n_classes)]
        rows = np.concatenate([self.rows, other.rows])
        return Reserve(rows[order], codes[order], keys[order], seen)


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
