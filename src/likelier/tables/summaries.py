"""Mergeable summaries of columns, accumulated block by block."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from likelier.base import Array
from likelier.data.columns import Kind
from likelier.tables.cells import Cells, hashed
from likelier.tables.dates import DateEvidence
from likelier.tables.numbers import NumberEvidence

MAX_LEVELS = 1000
# Distinct texts are counted exactly up to this number, and estimated to about 1% beyond.
MAX_HASHES = 1 << 16
# Plain numbers of a column that are kept as text, to infer its notation.
N_PLAIN = 200


@dataclass(frozen=True)
class Numbers:
    """Finite numbers of a column: count, range, and whether they increase in equal steps."""

    n: int = 0
    low: float = np.inf
    high: float = -np.inf
    whole: bool = True
    first: float = np.nan
    last: float = np.nan
    step: float = np.nan  # NaN while unknown, 0 if the steps differ

    @classmethod
    def of(cls, values: Array) -> Numbers:
        """Summarise the numbers of a block; NaN is a missing value."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return cls(step=0.0) if len(values) else cls()
        step = np.nan
        if len(finite) < len(values):
            step = 0.0
        elif len(values) > 1:
            steps = np.diff(values)
            step = float(steps[0]) if steps[0] > 0 and (steps == steps[0]).all() else 0.0
        low, high = float(finite.min()), float(finite.max())
        whole = bool((finite == np.rint(finite)).all())
        return cls(len(finite), low, high, whole, float(finite[0]), float(finite[-1]), step)

    def merge(self, other: Numbers) -> Numbers:
        """Return the merged summary; ``other`` are later rows."""
        if not self.n or not other.n:
            one = other if other.n else self
            gap = 0.0 in (self.step, other.step)
            return Numbers(one.n, one.low, one.high, one.whole, one.first, one.last,
                           0.0 if gap else one.step)  # fmt: skip
        steps = {other.first - self.last} | {s for s in (self.step, other.step) if s == s}
        step = steps.pop() if len(steps) == 1 else 0.0
        return Numbers(
            self.n + other.n,
            min(self.low, other.low),
            max(self.high, other.high),
            self.whole and other.whole,
            self.first,
            other.last,
            step if step > 0 else 0.0,
        )

    @property
    def evenly_increasing(self) -> bool:
        """Whether the numbers are integers that increase in equal steps."""
        return self.whole and self.n > 1 and self.step > 0


_NO_HASHES = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True)
class Hashes:
    """The smallest hashes of the distinct texts (a KMV sketch), to count them."""

    values: Array = field(default_factory=lambda: _NO_HASHES)
    complete: bool = True

    @classmethod
    def of(cls, texts: list[str], most: int) -> Hashes:
        """Summarise some texts."""
        return cls().merge(cls(np.unique(hashed(texts))), most)

    def merge(self, other: Hashes, most: int) -> Hashes:
        """Return the merged sketch of at most ``most`` hashes."""
        values = np.union1d(self.values, other.values)
        complete = self.complete and other.complete and len(values) <= most
        return Hashes(values[:most], complete)

    @property
    def count(self) -> int:
        """Number of distinct texts, estimated if the sketch is not complete."""
        if self.complete or not len(self.values):
            return len(self.values)
        return int((len(self.values) - 1) * (2.0**64 / float(self.values[-1])))


@dataclass(frozen=True)
class Words:
    """Word counts of the distinct texts of a column, counted per block."""

    texts: int = 0
    words: int = 0
    longest: int = 0
    blanks: bool = False

    @classmethod
    def of(cls, texts: list[str]) -> Words:
        """Count the words of some texts."""
        counts = [len(text.split()) for text in texts]
        longest = max(map(len, texts), default=0)
        return cls(len(texts), sum(counts), longest, any(count > 1 for count in counts))

    def merge(self, other: Words) -> Words:
        """Return the sum of both."""
        return Words(
            self.texts + other.texts,
            self.words + other.words,
            max(self.longest, other.longest),
            self.blanks or other.blanks,
        )

    @property
    def mean(self) -> float:
        """Mean number of words per text."""
        return self.words / max(1, self.texts)


@dataclass(frozen=True)
class ColumnSummary:
    """Summary of some rows of a column; `merge` adds later rows.

    ``types`` are the storage types seen; blocks of text that are all plain numbers are "plain".
    ``levels`` counts the distinct texts, or is None beyond `MAX_LEVELS` of them. ``plain`` has
    some of the plain numbers as text, from ``n_plain`` rows.
    """

    n_rows: int = 0
    n_missing: int = 0
    n_infinite: int = 0
    types: frozenset[str] = frozenset()
    numbers: Numbers = field(default_factory=Numbers)
    levels: dict[str, int] | None = field(default_factory=dict)
    hashes: Hashes = field(default_factory=Hashes)
    words: Words = field(default_factory=Words)
    written: NumberEvidence = field(default_factory=NumberEvidence)
    dated: DateEvidence = field(default_factory=DateEvidence)
    plain: tuple[str, ...] = ()
    n_plain: int = 0

    @classmethod
    def of(
        cls, cells: Cells, max_hashes: int = MAX_HASHES, as_category: bool = False
    ) -> ColumnSummary:
        """Summarise the cells of a block; ``as_category`` skips the detection of numbers."""
        values = None if as_category else cells.plain_numbers
        if values is not None and not cells.is_text:
            stored = {Kind.BOOLEAN: "boolean", Kind.EMPTY: ""}.get(cells.kind, "number")
            return cls._of_numbers(values, stored)
        if cells.kind == Kind.DATE and not as_category:
            return cls._of_timestamps(cells)
        if cells.kind == Kind.OTHER:
            return cls(len(cells), types=frozenset({"other"}))
        texts = [text for text in cells.distinct[0] if text is not None]
        counts = cells.counts[[text is not None for text in cells.distinct[0]]]
        levels = _bounded(dict(zip(texts, counts.tolist(), strict=True)))
        if not texts:
            return cls(len(cells), n_missing=len(cells))
        if values is not None:
            found = cls._of_numbers(values, "plain")
            return replace(
                found, levels=levels, plain=tuple(texts[:N_PLAIN]), n_plain=int(counts.sum())
            )
        names = as_category or cells.declared
        return cls(
            len(cells),
            len(cells) - int(counts.sum()),
            types=frozenset({"names" if names else "text"}),
            levels=levels,
            hashes=Hashes.of(texts, max_hashes),
            words=Words.of(texts),
            written=NumberEvidence() if names else NumberEvidence.of(texts, counts),
            dated=DateEvidence() if names else DateEvidence.of(texts, counts),
        )

    @classmethod
    def _of_numbers(cls, values: Array, stored: str) -> ColumnSummary:
        n_infinite = int(np.isinf(values).sum())
        return cls(
            len(values),
            int(np.isnan(values).sum()) + n_infinite,
            n_infinite,
            frozenset({stored} - {""}),
            Numbers.of(values),
        )

    @classmethod
    def _of_timestamps(cls, cells: Cells) -> ColumnSummary:
        timestamps = cells.timestamps()
        known = timestamps[~np.isnat(timestamps)].astype(np.int64).astype(float)
        types = frozenset({"time"} if len(known) else ())
        return cls(len(cells), len(cells) - len(known), types=types, numbers=Numbers.of(known))

    def merge(self, other: ColumnSummary, max_hashes: int = MAX_HASHES) -> ColumnSummary:
        """Return the merged summary; ``other`` describes later rows."""
        levels = None
        if self.levels is not None and other.levels is not None:
            levels = dict(self.levels)
            for text, count in other.levels.items():
                levels[text] = levels.get(text, 0) + count
        return ColumnSummary(
            self.n_rows + other.n_rows,
            self.n_missing + other.n_missing,
            self.n_infinite + other.n_infinite,
            self.types | other.types,
            self.numbers.merge(other.numbers),
            None if levels is None else _bounded(levels),
            self.hashes.merge(other.hashes, max_hashes),
            self.words.merge(other.words),
            self.written.merge(other.written),
            self.dated.merge(other.dated),
            (self.plain + other.plain)[:N_PLAIN],
            self.n_plain + other.n_plain,
        )

    @property
    def n_present(self) -> int:
        """Number of rows with a value."""
        return self.n_rows - self.n_missing

    @property
    def n_distinct(self) -> int:
        """Number of distinct texts, approximate beyond `MAX_LEVELS`."""
        return self.hashes.count if self.levels is None else len(self.levels)

    def number_evidence(self) -> NumberEvidence:
        """Return the evidence on number notation, including plain blocks."""
        return self.written.merge(NumberEvidence.of(list(self.plain), self._plain_counts()))

    def date_evidence(self) -> DateEvidence:
        """Return the evidence on date formats, including dates without separators."""
        return self.dated.merge(DateEvidence.of(list(self.plain), self._plain_counts()))

    def _plain_counts(self) -> Array:
        """Number of rows that each of the kept plain numbers represents."""
        n = len(self.plain)
        return np.diff(np.linspace(0, self.n_plain, n + 1).astype(np.int64)) if n else np.zeros(0)


def _bounded(levels: dict[str, int]) -> dict[str, int] | None:
    return levels if len(levels) <= MAX_LEVELS else None
