"""Dates and times in text: how a column writes them, learned block by block, and their values."""

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
from likelier.tables.calendar import CENTURY, PATTERNS, Moments, candidates, extract
from likelier.tables.numbers import N_EXAMPLES, Seen, added

# A column is one of dates if so many of its rows are dates of one style.
MIN_DATES = 0.95
# Day and month come in one order if so many of the dates agree that can tell.
SAME_ORDER = 0.99
# Patterns of digits that are dates only with such years.
_FIRST_COMPACT, _LAST_COMPACT = 1900, 2100
_COMPACT = ("yearmonthday", "compact", "month-year")
# Numbers that are day and month in an order that the column tells.
_ORDERED = ("numeric", "compact")


class DateLayout(NamedTuple):
    """How a date is written: by which pattern, with which sign between its numbers.

    ``order`` says what numeric dates tell about day and month: ``d`` or ``m`` must come first,
    ``?`` either, ``=`` it does not matter; ``y`` is added if a year of two digits may come
    first. Of ``2010-11`` it is ``+`` where the second number follows the first, as in the names
    of seasons. ``short`` tells that the year has two digits. The pattern is ``digits`` for other
    integers than dates, ``words`` for texts without digits, and empty for other texts.
    """

    pattern: str = ""
    sign: str = ""
    order: str = ""
    timed: bool = False
    short: bool = False

    def may_be(self, order: str) -> bool:
        """Whether it can be a date with the day, the month or the year first."""
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
    """How the dates of one column are written.

    ``pattern`` names the layout, ``sign`` stands between the numbers of numeric dates and
    ``order`` says which of them comes first, ``d``, ``m`` or ``y``; ``ambiguous`` is whether
    that is a guess, and ``maybe_year_first`` whether the year might come first as well. A time
    may follow a date where ``has_time``. Years of two digits from ``pivot`` on are of the last
    century; it is None where the column had none.
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
        """Say how the dates are written."""
        if not self.has_date:
            return "times of day"
        text = f"dates written {self._written()}"
        if self.has_time and self.pattern != "name day time year":
            text += " with a time"
        if self.pivot is not None:
            first = 1900 + self.pivot
            text += f" (two-digit years: {first} to {first + 99})"
        if self.ambiguous:
            unsure = "year, month and day" if self.maybe_year_first else "day and month"
            first_part = _PARTS[self.order][0]
            text += f" (no date tells {unsure} apart: {first_part} first is assumed)"
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
        """Return the moments of the texts in UTC, NaT where a text is no date in this style.

        Times of day without a date are of 1970-01-01.
        """
        if len(texts) == 1:  # a service predicts one row at a time, and days come again
            return np.array([_parsed(self, texts[0])])
        return self._parsed(texts)

    def _parsed(self, texts: Sequence[str]) -> Array:
        moments = np.full(len(texts), np.datetime64("NaT"), "M8[us]")
        found = extract(self.pattern, text_array(texts))
        values = found.values(self.order, CENTURY if self.pivot is None else self.pivot)
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
    if pattern not in _COMPACT:
        return np.ones(len(found.rows), bool)
    year = found.year()
    return (year >= _FIRST_COMPACT) & (year <= _LAST_COMPACT)


def _pivot() -> int:
    """Return the first two-digit year that would lie in the future, next year left aside."""
    return (dt.date.today().year + 1) % 100 + 1


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
            dated = []
            for layout, places in _layouts(pattern, found):
                dated.append(found.rows[places])
                kinds[left[dated[-1]]] = len(layouts)
                layouts.append(layout)
            left = np.delete(left, np.concatenate(dated)) if dated else left
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
        if pattern in _ORDERED:
            order = self._order(pattern, sign)
        if order is None or not self._believed(pattern):
            return None
        style = DateStyle(pattern, sign, order)
        dates, words = self.dates(style), self.words.rows
        if dates.rows < least * max(self.n_rows - words, words):
            return None
        if least and words and len(dates.examples) == 1:  # two levels of a category
            return None
        return self._detailed(style)

    def _detailed(self, style: DateStyle) -> DateStyle:
        """Return the style with what else the dates tell."""
        fitting = [layout for layout in self.layouts if style.reads(layout)]
        told = {layout.order.rstrip("y") for layout in fitting}
        guess = style.order in ("d", "m") and "?" in told and style.order not in told
        maybe = style.sign == "-" and style.order in ("d", "m")
        maybe = maybe and all(layout.may_be("y") for layout in fitting)
        return replace(
            style,
            ambiguous=guess or maybe,
            maybe_year_first=maybe,
            has_time=any(layout.timed for layout in fitting),
            pivot=_pivot() if any(layout.short for layout in fitting) else None,
        )

    def _order(self, pattern: str, sign: str) -> str | None:
        """Return which comes first, day, month or year; None if the dates contradict each other.

        The year does only where neither day nor month can. Eight digits must tell the order.
        """
        rows: Counter[DateLayout] = Counter()
        for layout, seen in self.layouts.items():
            if layout[:2] == (pattern, sign):
                rows[layout] += seen.rows
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

    def _believed(self, pattern: str) -> bool:
        """Whether texts that fit a short pattern are dates, and not integers or seasons."""
        if pattern in ("yearmonthday", "compact"):
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
    flags = found.has("hour"), found.short
    good = found.clock()[1] & _plausible(pattern, found)
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
        (DateLayout(pattern, sign, order, *told), places)
        for sign, order, rows in parts
        if (rows & good).any()
        for told in product((False, True), repeat=2)
        if len(places := np.flatnonzero(rows & good & _are(flags, told)))
    ]


def _are(flags: tuple[Array, Array], told: tuple[bool, ...]) -> Array:
    found: Array = (flags[0] == told[0]) & (flags[1] == told[1])
    return found


def _orders(found: Moments) -> dict[str, Array]:
    """Return where numeric dates tell each of the orders of a `DateLayout`."""
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
