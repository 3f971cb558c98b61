"""Dates and times in text: inferring the format of a column block by block, and parsing."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.columns import mask_of, row_array, text_array, text_scalar
from likelier.tables.calendar import CENTURY, PATTERNS, DateParts, candidates, extract
from likelier.tables.numbers import N_EXAMPLES, Tally, combine

# Minimum fraction of the rows that must be dates of one style.
MIN_DATES = 0.95
# Minimum fraction of the unambiguous dates that must agree on the order of day and month.
SAME_ORDER = 0.99
# Digit patterns that are accepted as dates only within this range of years.
_FIRST_COMPACT, _LAST_COMPACT = 1900, 2100
_COMPACT = ("yearmonthday", "compact", "month-year")
# Patterns in which the order of day and month has to be inferred from the column.
_ORDERED = ("numeric", "compact")


class DateLayout(NamedTuple):
    """The format of a date: its pattern, and the separator ``sign`` between its numbers.

    ``order`` is what a numeric date reveals about its first number: ``d`` or ``m`` if it must be
    the day or the month, ``?`` if it may be either, ``=`` if both are equal; ``y`` is appended if
    it may be a two-digit year. For ``2010-11`` it is ``+`` if the second number follows the
    first, as in seasons. ``short`` marks two-digit years. The pattern is ``digits`` for integers
    that are not dates, ``words`` for texts without digits, and empty for other texts.
    """

    pattern: str = ""
    sign: str = ""
    order: str = ""
    timed: bool = False
    short: bool = False

    def may_be(self, order: str) -> bool:
        """Whether the day, month or year (``order``) may come first."""
        return order in self.order or (order != "y" and self.order[:1] in ("?", "="))


_PARTS = {
    "d": ("day", "month", "year"),
    "m": ("month", "day", "year"),
    "y": ("year", "month", "day"),
}
_NOTHING, _DIGITS, _WORDS = DateLayout(), DateLayout("digits"), DateLayout("words")
_NO_DATES = ("", "digits", "words")


@dataclass(frozen=True)
class DateStyle:
    """The date format of one column.

    ``pattern`` names the layout, ``sign`` is the separator of numeric dates and ``order`` their
    first part, ``d``, ``m`` or ``y``. ``ambiguous`` marks an assumed order, and
    ``maybe_year_first`` that the year might also come first. With ``has_time`` a time may follow
    a date. Two-digit years from ``pivot`` on belong to the 20th century; None if the column has no
    two-digit years.
    """

    pattern: str
    sign: str = ""
    order: str = ""
    ambiguous: bool = False
    has_time: bool = False
    maybe_year_first: bool = False
    pivot: int | None = None

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
        """Describe the date format."""
        if not self.has_date:
            return "times of day"
        text = f"dates in the format {self._written()}"
        if self.has_time and self.pattern != "name day time year":
            text += " with a time"
        if self.pivot is not None:
            first = 1900 + self.pivot
            text += f" (two-digit years: {first} to {first + 99})"
        if self.ambiguous:
            unsure = "year, month and day" if self.maybe_year_first else "day and month"
            first_part = _PARTS[self.order][0]
            text += f" (ambiguous order of {unsure}: {first_part} first assumed)"
        return text

    def _written(self) -> str:
        if self.pattern in _ORDERED:
            return self.sign.join(_PARTS[self.order])
        if self.pattern == "month-year":
            return self.pattern.replace("-", self.sign)
        return self.pattern.replace("name", "month")

    def reads(self, layout: DateLayout) -> bool:
        """Whether dates of this layout are dates of the style."""
        return (layout.pattern, layout.sign) == (self.pattern, self.sign) and (
            self.pattern not in _ORDERED or layout.may_be(self.order)
        )

    def parse(self, texts: Sequence[str]) -> Array:
        """Return timestamps in UTC, NaT where a text is not a date of this style.

        Times of day without a date are on 1970-01-01.
        """
        if len(texts) == 1:  # single-row predictions: dates repeat, so they are cached
            return np.array([_parsed(self, texts[0])])
        return self._parsed(texts)

    def _parsed(self, texts: Sequence[str]) -> Array:
        timestamps = np.full(len(texts), np.datetime64("NaT"), "M8[us]")
        found = extract(self.pattern, text_array(texts))
        values = found.values(self.order, CENTURY if self.pivot is None else self.pivot)
        values[~_plausible(self.pattern, found)] = np.datetime64("NaT")
        if self.sign:
            values[~mask_of(pc.equal(found.parts["sign"], text_scalar(self.sign)))] = np.datetime64(
                "NaT"
            )
        timestamps[found.rows] = values
        return timestamps


def is_word(text: str) -> bool:
    """Whether a text has no digits, such as "unknown" for a missing date."""
    return not any(map(str.isdigit, text))


def is_blank_date(text: str) -> bool:
    """Whether all digits of a text are zeros, such as ``0000-00-00``."""
    return not text.strip("0-/.: T") and "0" in text


@lru_cache(maxsize=10_000)
def _parsed(style: DateStyle, text: str) -> Any:
    return style._parsed([text])[0]


def _plausible(pattern: str, found: DateParts) -> Array:
    """Mask of plausible years: eight digits are often not a date."""
    if pattern not in _COMPACT:
        return np.ones(len(found.rows), bool)
    year = found.year()
    return (year >= _FIRST_COMPACT) & (year <= _LAST_COMPACT)


def _pivot() -> int:
    """Return the first two-digit year that lies more than one year in the future."""
    return (dt.date.today().year + 1) % 100 + 1


@dataclass(frozen=True)
class DateEvidence:
    """Counts of the date layouts in a column; `merge` adds other rows.

    A text that occurs in several blocks counts as distinct in each of them.
    """

    layouts: dict[DateLayout, Tally] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Sequence[str], counts: Array) -> DateEvidence:
        """Summarise distinct trimmed texts, with the number of rows of each."""
        written = text_array(texts)
        kinds = np.zeros(len(texts), np.int64)
        layouts = [_NOTHING, _DIGITS, _WORDS]
        digits = pc.match_substring_regex(written, "^[0-9]+$")
        kinds[mask_of(digits)] = 1
        kinds[~mask_of(pc.match_substring_regex(written, "[1-9]"))] = 2
        remaining = np.flatnonzero(candidates(written))
        for pattern in PATTERNS:
            if not len(remaining):
                break
            found = extract(pattern, written.take(row_array(remaining)))
            dated = []
            for layout, indices in _layouts(pattern, found):
                dated.append(found.rows[indices])
                kinds[remaining[dated[-1]]] = len(layouts)
                layouts.append(layout)
            remaining = np.delete(remaining, np.concatenate(dated)) if dated else remaining
        tallies: dict[DateLayout, Tally] = {}
        for kind in np.unique(kinds).tolist():
            rows = np.flatnonzero(kinds == kind)
            examples = tuple(texts[row] for row in rows[:N_EXAMPLES].tolist())
            n_rows = int(np.asarray(counts)[rows].sum())
            tallies[layouts[kind]] = Tally(n_rows, len(rows), examples)
        return cls(tallies)

    def merge(self, other: DateEvidence) -> DateEvidence:
        """Return the evidence of both; ``other`` describes later rows."""
        layouts = dict(self.layouts)
        for layout, tally in other.layouts.items():
            layouts[layout] = layouts.get(layout, Tally()).merge(tally)
        return DateEvidence(layouts)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._count(lambda layout: True).rows

    @property
    def n_distinct(self) -> int:
        """Number of distinct texts, an upper bound after `merge`."""
        return self._count(lambda layout: True).distinct

    def dates(self, style: DateStyle) -> Tally:
        """Count the rows and distinct texts that are dates of a style."""
        return self._count(style.reads)

    def others(self, style: DateStyle) -> Tally:
        """Count the rows and distinct texts that are not, with examples."""
        return self._count(lambda layout: not style.reads(layout))

    @property
    def words(self) -> Tally:
        """Rows and texts without nonzero digits, which may mean a missing date."""
        return self._count(lambda layout: layout == _WORDS)

    def unread(self, style: DateStyle) -> Tally:
        """Count the rows and texts that have digits but are not dates of a style."""
        return self._count(lambda layout: layout != _WORDS and not style.reads(layout))

    def style(self, least: float = MIN_DATES) -> DateStyle | None:
        """Return the date format of the column, or None if it is not a date column.

        At least the fraction ``least`` of the rows must be dates of one style, not counting words
        that may mean a missing date.
        """
        found: Counter[tuple[str, str]] = Counter()
        for layout, tally in self.layouts.items():
            if layout.pattern not in _NO_DATES:
                found[layout.pattern, layout.sign] += tally.rows
        if not found:
            return None
        pattern, sign = found.most_common(1)[0][0]
        order: str | None = ""
        if pattern in _ORDERED:
            order = self._order(pattern, sign)
        if order is None or not self._plausible(pattern):
            return None
        style = DateStyle(pattern, sign, order)
        dates, words = self.dates(style), self.words.rows
        if dates.rows < least * max(self.n_rows - words, words):
            return None
        if least and words and len(dates.examples) == 1:  # two levels of a category
            return None
        return self._detailed(style)

    def _detailed(self, style: DateStyle) -> DateStyle:
        """Return the style with its ambiguity, times and two-digit years filled in."""
        fitting = [layout for layout in self.layouts if style.reads(layout)]
        orders = {layout.order.rstrip("y") for layout in fitting}
        guess = style.order in ("d", "m") and "?" in orders and style.order not in orders
        maybe_year = style.sign == "-" and style.order in ("d", "m")
        maybe_year = maybe_year and all(layout.may_be("y") for layout in fitting)
        return replace(
            style,
            ambiguous=guess or maybe_year,
            maybe_year_first=maybe_year,
            has_time=any(layout.timed for layout in fitting),
            pivot=_pivot() if any(layout.short for layout in fitting) else None,
        )

    def _order(self, pattern: str, sign: str) -> str | None:
        """Return which of day, month and year comes first; None if the dates are contradictory.

        The year is chosen only if neither day nor month fits. Eight-digit dates must be
        unambiguous.
        """
        rows: Counter[DateLayout] = Counter()
        for layout, tally in self.layouts.items():
            if layout[:2] == (pattern, sign):
                rows[layout] += tally.rows
        fits = {o: sum(n for layout, n in rows.items() if layout.may_be(o)) for o in "dmy"}
        either = sum(n for layout, n in rows.items() if layout.may_be("d") and layout.may_be("m"))
        day, month = fits["d"] - either, fits["m"] - either
        if fits["y"] > max(fits["d"], fits["m"]):
            return "y" if fits["y"] >= SAME_ORDER * rows.total() else None
        if not day + month:
            return None if pattern == "compact" else "m" if sign == "/" else "d"
        if max(day, month) < SAME_ORDER * (day + month):
            return None
        return "d" if day > month else "m"

    def _plausible(self, pattern: str) -> bool:
        """Whether texts that fit a short pattern are dates, not integers or seasons."""
        if pattern in ("yearmonthday", "compact"):
            compact = self._count(lambda layout: layout.pattern == pattern)
            return _DIGITS not in self.layouts and len(compact.examples) > 1
        if pattern == "year-month":
            return self._count(lambda layout: layout == DateLayout(pattern)).rows > 0
        return True

    def _count(self, wanted: Callable[[DateLayout], bool]) -> Tally:
        return combine(tally for layout, tally in self.layouts.items() if wanted(layout))


def _layouts(pattern: str, found: DateParts) -> list[tuple[DateLayout, Array]]:
    """Return the layouts among dates of one pattern, each with the indices of its dates."""
    if not len(found.rows):
        return []
    flags = found.has("hour"), found.short
    good = found.time_of_day()[1] & _plausible(pattern, found)
    parts: list[tuple[str, str, Array]] = []
    if pattern in _ORDERED:
        orders = _orders(found)
        sign_of = found.parts.get("sign")
        for sign in ("",) if sign_of is None else "-/.":
            here = True if sign_of is None else mask_of(pc.equal(sign_of, text_scalar(sign)))
            parts += [(sign, order, here & rows) for order, rows in orders.items()]
    elif pattern == "month-year":
        good &= found.days()[1]
        signs = {sign: mask_of(pc.equal(found.parts["sign"], text_scalar(sign))) for sign in "-/"}
        parts = [(sign, "", rows) for sign, rows in signs.items()]
    elif pattern == "year-month":
        season = found.whole("month") == (found.year() + 1) % 100
        parts = [("", "+", season), ("", "", ~season)]
        good &= found.days()[1]
    else:
        parts = [("", "", found.days()[1])]
    return [
        (DateLayout(pattern, sign, order, *values), indices)
        for sign, order, rows in parts
        if (rows & good).any()
        for values in product((False, True), repeat=2)
        if len(indices := np.flatnonzero(rows & good & _equal(flags, values)))
    ]


def _equal(flags: tuple[Array, Array], values: tuple[bool, ...]) -> Array:
    found: Array = (flags[0] == values[0]) & (flags[1] == values[1])
    return found


def _orders(found: DateParts) -> dict[str, Array]:
    """Return masks of the numeric dates with each of the orders of a `DateLayout`."""
    pivot = _pivot()
    day, month = found.days("d", pivot)[1], found.days("m", pivot)[1]
    same = found.whole("first") == found.whole("other")
    orders = {"=": day & same, "?": day & month & ~same, "d": day & ~month, "m": month & ~day}
    if not found.short.any():
        return orders
    year = found.days("y", pivot)[1]
    alone = {"y": year & ~day & ~month}
    return (
        {k: v & ~year for k, v in orders.items()}
        | alone
        | {f"{k}y": v & year for k, v in orders.items()}
    )
