"""How one date or time is written in a text, and what it is: many texts at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.columns import mask_of, numbers_of, row_array, text_array, text_scalar

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    "(?P<name>(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))\.?"
)
_WEEKDAY = r"(?:(?i:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?i:day)?\.?,? +)?"
_DAY = "(?P<day>[0-9]{1,2})"
_NTH = "(?i:st|nd|rd|th)?"
_YEAR, _LONG_YEAR = "(?P<year>[0-9]{4}|[0-9]{2})", "(?P<year>[0-9]{4})"
_CLOCK = (
    "(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
    "(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    r" ?(?P<half>(?i:[ap]\.?m\.?))? ?(?P<zone>(?i:z|utc|gmt)|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_MAYBE_CLOCK = f"(?:(?:T|,? +){_CLOCK})?"

# By name, in the syntax of RE2. Day and month of "numeric" dates are told apart by the column.
PATTERNS = {
    "year-month-day": f"{_LONG_YEAR}(?P<sign>[-/.])(?P<month>[0-9]{{1,2}})(?P<again>[-/.])"
    f"{_DAY}{_MAYBE_CLOCK}",
    "numeric": f"(?P<first>[0-9]{{1,2}})(?P<sign>[-/.])(?P<other>[0-9]{{1,2}})"
    f"(?P<again>[-/.]){_YEAR}{_MAYBE_CLOCK}",
    "yearmonthday": f"{_LONG_YEAR}(?P<month>[0-9]{{2}})(?P<day>[0-9]{{2}})",
    "day name year": f"{_WEEKDAY}{_DAY}{_NTH}[-/. ]*(?:of )?{_MONTH}[-/., ]*{_YEAR}{_MAYBE_CLOCK}",
    "name day year": f"{_WEEKDAY}{_MONTH}[-/. ]*{_DAY}{_NTH}[-/., ]+{_YEAR}{_MAYBE_CLOCK}",
    # "Jan 12" may be a day, "Jan-12" is what spreadsheets make of a month.
    "name year": f"{_MONTH}(?:[-/., ]*{_LONG_YEAR}|[-/ ]?[-/'](?P<short>[0-9]{{2}}))",
    "year-month": f"{_LONG_YEAR}[-/](?P<month>[0-9]{{2}})",
    "time": _CLOCK,
}
_ANY = "|".join(re.sub(r"\?P<[a-z]+>", "?:", pattern) for pattern in PATTERNS.values())
# Years of two digits from here on are of the last century.
_CENTURY = 69
_FIRST_YEAR = 1000
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Moments:
    """The parts of dates written after one pattern; ``rows`` says which of the texts they are."""

    rows: Array
    parts: dict[str, pa.Array]

    def has(self, name: str) -> Array:
        """Where a part is given."""
        if name not in self.parts:
            return np.zeros(len(self.rows), bool)
        given = pc.not_equal(self.parts[name], text_scalar(""))
        return mask_of(given)

    def whole(self, name: str, default: int = 0) -> Array:
        """Return a part as integers."""
        if name not in self.parts:
            return np.full(len(self.rows), default)
        part = self.parts[name]
        filled = pc.if_else(pc.equal(part, text_scalar("")), text_scalar(str(default)), part)
        return numbers_of(filled.cast(pa.int64()))

    @cached_property
    def year(self) -> Array:
        """Years of four digits."""
        short = self.has("short")
        year = np.where(short, self.whole("short"), self.whole("year", 1970))
        if "year" in self.parts:
            lengths = numbers_of(pc.utf8_length(self.parts["year"]))
            short = short | (lengths == 2)
        return np.where(short, year + np.where(year < _CENTURY, 2000, 1900), year)

    def days(self, order: str = "") -> tuple[Array, Array]:
        """Return the days since 1970, and where there is such a day.

        ``order`` says which of the two numbers of a numeric date comes first: ``d`` or ``m``.
        """
        month, day = self.whole("month", 1), self.whole("day", 1)
        if order:
            month, day = self.whole("first"), self.whole("other")
            if order == "d":
                month, day = day, month
        elif "name" in self.parts:
            names = pc.utf8_slice_codeunits(pc.utf8_lower(self.parts["name"]), 0, 3)
            month = numbers_of(pc.index_in(names, value_set=text_array(_MONTHS))) + 1
        year = self.year
        valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= _FIRST_YEAR)
        months = np.where(valid, (year - 1970) * 12 + month - 1, 0).astype("M8[M]")
        dates = months.astype("M8[D]") + np.where(valid, day - 1, 0)
        valid &= dates.astype("M8[M]") == months
        if "again" in self.parts:
            valid &= mask_of(pc.equal(self.parts["sign"], self.parts["again"]))
        return dates.astype(np.int64), valid

    def clock(self) -> tuple[Array, Array]:
        """Return the microseconds since midnight in UTC, and where there is such a time."""
        hour, minute, second = self.whole("hour"), self.whole("minute"), self.whole("second")
        valid = (hour <= 23) & (minute <= 59) & (second <= 59)
        half = self.has("half")
        if half.any():
            valid &= ~half | ((hour >= 1) & (hour <= 12))
            late = mask_of(pc.starts_with(pc.utf8_lower(self.parts["half"]), "p"))
            hour = np.where(half, hour % 12 + 12 * late, hour)
        micro = ((hour * 60 + minute) * 60 + second) * 1_000_000
        if self.has("fraction").any():
            padded = pc.utf8_slice_codeunits(pc.utf8_rpad(self.parts["fraction"], 6, "0"), 0, 6)
            micro = micro + numbers_of(padded.cast(pa.int64()))
        return micro - self._offset() * 60_000_000, valid

    def _offset(self) -> Array:
        """Return the minutes that local time is ahead of UTC."""
        minutes = np.zeros(len(self.rows), np.int64)
        if not self.has("zone").any():
            return minutes
        for place, zone in enumerate(self.parts["zone"].to_pylist()):
            if zone[:1] in ("+", "-"):
                ahead = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
                minutes[place] = ahead if zone[0] == "+" else -ahead
        return minutes

    def values(self, order: str = "") -> Array:
        """Return the moments as datetime64, NaT where there is no such moment."""
        days, valid = self.days(order)
        micro, also = self.clock()
        moments = (days * _DAY_US + micro).astype("M8[us]")
        moments[~(valid & also)] = np.datetime64("NaT")
        return moments


def extract(name: str, texts: pa.Array) -> Moments:
    """Return the parts of the texts that are written after a pattern."""
    found = pc.extract_regex(texts, f"^(?:{PATTERNS[name]})$")
    rows = np.flatnonzero(mask_of(found.is_valid()))
    kept = found.take(row_array(rows))
    fields = [kept.type.field(place).name for place in range(kept.type.num_fields)]
    return Moments(rows, {field: kept.field(field) for field in fields})


def candidates(texts: pa.Array) -> Array:
    """Where a text is written after any of the patterns: quicker than asking each of them."""
    return mask_of(pc.match_substring_regex(texts, f"^(?:{_ANY})$"))
