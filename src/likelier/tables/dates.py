"""Dates and times in text: how a column writes them, learned block by block, and their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.columns import mask_of, row_array, text_array, text_scalar
from likelier.tables.calendar import PATTERNS, Moments, candidates, extract
from likelier.tables.numbers import N_EXAMPLES, Seen, added

# A column is one of dates if so many of its rows are dates of one style.
MIN_DATES = 0.95
# Day and month come in one order if so many of the dates agree that can tell.
SAME_ORDER = 0.99
_FIRST_COMPACT, _LAST_COMPACT = 1900, 2100


class DateLayout(NamedTuple):
    """How a date is written: by which pattern, with which sign between its numbers.

    ``order`` says what numeric dates tell about day and month: ``d`` or ``m`` must come first,
    ``?`` either, ``=`` it does not matter. Of ``2010-11`` it is ``+`` where the second number
    follows the first, as in the names of seasons. The pattern is ``digits`` for other integers
    than dates, ``words`` for texts without digits, and empty for other texts.
    """

    pattern: str = ""
    sign: str = ""
    order: str = ""
    timed: bool = False


_NOTHING, _DIGITS, _WORDS = DateLayout(), DateLayout("digits"), DateLayout("words")
_NO_DATES = ("", "digits", "words")


@dataclass(frozen=True)
class DateStyle:
    """How the dates of one column are written.

    ``pattern`` names the layout, ``sign`` stands between the numbers of numeric dates and
    ``order`` says which of them comes first, ``d`` or ``m``; ``ambiguous`` is whether that is a
    guess. A time may follow a date where ``has_time``.
    """

    pattern: str
    sign: str = ""
    order: str = ""
    ambiguous: bool = False
    has_time: bool = False

    @property
    def has_date(self) -> bool:
        """Whether there are dates, not only times of day."""
        return self.pattern != "time"

    def to_json(self) -> dict[str, Any]:
        """Return the style as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DateStyle:
        """Return the style that `to_json` wrote."""
        return cls(**data)

    def describe(self) -> str:
        """Say how the dates are written."""
        if not self.has_date:
            return "times of day"
        parts = ["day", "month", "year"] if self.order == "d" else ["month", "day", "year"]
        written = self.sign.join(parts) if self.pattern == "numeric" else self.pattern
        text = f"dates written {written.replace('name', 'month')}"
        if self.has_time:
            text += " with a time"
        if self.ambiguous:
            text += f" (no date tells day and month apart: {parts[0]} first is assumed)"
        return text

    def reads(self, layout: DateLayout) -> bool:
        """Whether dates of this layout are dates of the style."""
        return (layout.pattern, layout.sign) == (self.pattern, self.sign) and (
            self.pattern != "numeric" or layout.order in (self.order, "?", "=")
        )

    def parse(self, texts: Sequence[str]) -> Array:
        """Return the moments of the texts in UTC, NaT where a text is no date in this style.

        Times of day without a date are of 1970-01-01.
        """
        if len(texts) == 1:  # a service predicts one row at a time, and days come again
            return np.array([_parsed(self, texts[0])])
        return self._parsed(texts)

    def _parsed(self, texts: Sequence[str]) -> Array:
        moments = np.full(len(texts), np.datetime64("NaT"), "M8[us]")
        found = extract(self.pattern, text_array(texts))
        values = found.values(self.order)
        values[~_plausible(self.pattern, found)] = np.datetime64("NaT")
        if self.sign:
            values[~mask_of(pc.equal(found.parts["sign"], text_scalar(self.sign)))] = np.datetime64(
                "NaT"
            )
        moments[found.rows] = values
        return moments


def is_word(text: str) -> bool:
    """Whether a text has no digit, as what is written for an unknown date."""
    return not any(map(str.isdigit, text))


def is_blank_date(text: str) -> bool:
    """Whether a text has zeros only, such as ``0000-00-00``."""
    return not text.strip("0-/.: T") and "0" in text


@lru_cache(maxsize=10_000)
def _parsed(style: DateStyle, text: str) -> Any:
    return style._parsed([text])[0]


def _plausible(pattern: str, found: Moments) -> Array:
    """Where the year may be that of a date: eight digits are often something else."""
    if pattern != "yearmonthday":
        return np.ones(len(found.rows), bool)
    return (found.year >= _FIRST_COMPACT) & (found.year <= _LAST_COMPACT)


@dataclass(frozen=True)
class DateEvidence:
    """How many texts of a column are dates of which layout; `merge` adds other rows.

    Texts that come in several blocks are counted as different ones in each of them.
    """

    layouts: dict[DateLayout, Seen] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Sequence[str], counts: Array) -> DateEvidence:
        """Summarise different trimmed texts, with the number of rows of each."""
        written = text_array(texts)
        kinds = np.zeros(len(texts), np.int64)
        layouts = [_NOTHING, _DIGITS, _WORDS]
        digits = pc.match_substring_regex(written, "^[0-9]+$")
        kinds[mask_of(digits)] = 1
        kinds[~mask_of(pc.match_substring_regex(written, "[1-9]"))] = 2
        left = np.flatnonzero(candidates(written))
        for pattern in PATTERNS:
            if not len(left):
                break
            found = extract(pattern, written.take(row_array(left)))
            for layout, places in _layouts(pattern, found):
                kinds[left[found.rows[places]]] = len(layouts)
                layouts.append(layout)
            left = np.delete(left, found.rows)
        seen: dict[DateLayout, Seen] = {}
        for kind in np.unique(kinds).tolist():
            rows = np.flatnonzero(kinds == kind)
            examples = tuple(texts[row] for row in rows[:N_EXAMPLES].tolist())
            seen[layouts[kind]] = Seen(int(np.asarray(counts)[rows].sum()), len(rows), examples)
        return cls(seen)

    def merge(self, other: DateEvidence) -> DateEvidence:
        """Return the evidence of both; ``other`` describes later rows."""
        layouts = dict(self.layouts)
        for layout, seen in other.layouts.items():
            layouts[layout] = layouts.get(layout, Seen()).merge(seen)
        return DateEvidence(layouts)

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return self._count(lambda layout: True).rows

    @property
    def n_distinct(self) -> int:
        """Different texts seen, an upper bound after `merge`."""
        return self._count(lambda layout: True).distinct

    def dates(self, style: DateStyle) -> Seen:
        """Return how many rows and different texts are dates in a style."""
        return self._count(style.reads)

    def others(self, style: DateStyle) -> Seen:
        """Return how many rows and different texts are not, with examples."""
        return self._count(lambda layout: not style.reads(layout))

    @property
    def words(self) -> Seen:
        """Rows and texts without digits other than zero, which may stand for a missing date."""
        return self._count(lambda layout: layout == _WORDS)

    def unread(self, style: DateStyle) -> Seen:
        """Return how many rows and texts have digits and yet are no dates of a style."""
        return self._count(lambda layout: layout != _WORDS and not style.reads(layout))

    def style(self, least: float = MIN_DATES) -> DateStyle | None:
        """Return how the dates of the column are written, None if it is not one of dates.

        So many of the texts must be dates of one style, words for a missing one left aside.
        """
        found: Counter[tuple[str, str]] = Counter()
        for layout, seen in self.layouts.items():
            if layout.pattern not in _NO_DATES:
                found[layout.pattern, layout.sign] += seen.rows
        if not found:
            return None
        pattern, sign = found.most_common(1)[0][0]
        order: str | None = ""
        if pattern == "numeric":
            order = self._order(sign)
        if order is None or not self._believed(pattern):
            return None
        style = DateStyle(pattern, sign, order)
        dates, words = self.dates(style), self.words.rows
        if dates.rows < least * max(self.n_rows - words, words):
            return None
        if least and words and len(dates.examples) == 1:  # two levels of a category
            return None
        fitting = [layout for layout in self.layouts if style.reads(layout)]
        told = {layout.order for layout in fitting}
        ambiguous = "?" in told and order not in told
        timed = any(layout.timed for layout in fitting)
        return DateStyle(pattern, sign, order, ambiguous, timed)

    def _order(self, sign: str) -> str | None:
        """Return which comes first, day or month; None if the dates contradict each other."""
        rows: Counter[str] = Counter()
        for layout, seen in self.layouts.items():
            if layout[:2] == ("numeric", sign):
                rows[layout.order] += seen.rows
        day, month = rows["d"], rows["m"]
        if not day + month:
            return "m" if sign == "/" else "d"
        if max(day, month) < SAME_ORDER * (day + month):
            return None
        return "d" if day > month else "m"

    def _believed(self, pattern: str) -> bool:
        """Whether texts that fit a short pattern are dates, and not integers or seasons."""
        if pattern == "yearmonthday":
            compact = self._count(lambda layout: layout.pattern == pattern)
            return _DIGITS not in self.layouts and len(compact.examples) > 1
        if pattern == "year-month":
            return self._count(lambda layout: layout == DateLayout(pattern)).rows > 0
        return True

    def _count(self, wanted: Callable[[DateLayout], bool]) -> Seen:
        return added(seen for layout, seen in self.layouts.items() if wanted(layout))


def _layouts(pattern: str, found: Moments) -> list[tuple[DateLayout, Array]]:
    """Return the layouts among dates of one pattern, each with the places of its dates."""
    if not len(found.rows):
        return []
    timed = found.has("hour")
    good = found.clock()[1] & _plausible(pattern, found)
    parts: list[tuple[str, str, Array]] = []
    if pattern == "numeric":
        day, month = found.days("d")[1], found.days("m")[1]
        same = found.whole("first") == found.whole("other")
        orders = {"=": day & same, "?": day & month & ~same, "d": day & ~month, "m": month & ~day}
        for sign in "-/.":
            here = mask_of(pc.equal(found.parts["sign"], text_scalar(sign)))
            parts += [(sign, order, here & rows) for order, rows in orders.items()]
    elif pattern == "year-month":
        season = found.whole("month") == (found.year + 1) % 100
        parts = [("", "+", season), ("", "", ~season)]
        good &= found.days()[1]
    else:
        parts = [("", "", found.days()[1])]
    return [
        (DateLayout(pattern, sign, order, bool(with_time)), places)
        for sign, order, rows in parts
        for with_time in (False, True)
        if len(places := np.flatnonzero(rows & good & (timed == with_time)))
    ]
