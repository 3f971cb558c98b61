"""Vectorised parsing of dates and times in text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.columns import mask_of, numbers_of, row_array, text_array, text_scalar

# Names and abbreviations in lower case: English, German, French, Spanish, Italian, Dutch and
# Portuguese.
_MONTHS = (
    "january jan januar jänner janvier janv enero ene gennaio gen januari janeiro",
    "february feb februar février fevrier févr fevr fév fev febrero febbraio februari fevereiro",
    "march mar märz maerz mär mrz mars marzo maart mrt março marco",
    "april apr avril avr abril abr aprile",
    "may mai mayo maggio mag mei maio",
    "june jun juni juin junio giugno giu junho",
    "july jul juli juillet juil julio luglio lug julho",
    "august aug août aout aoû agosto ago augustus",
    "september sept sep septembre septiembre setiembre settembre sett set setembro",
    "october oct oktober okt octobre octubre ottobre ott outubro out",
    "november nov novembre noviembre novembro",
    "december dec dezember dez décembre decembre déc diciembre dic dicembre dezembro",
)
_MONTH_OF = {name: month for month, names in enumerate(_MONTHS, 1) for name in names.split()}
_MONTH = f"(?P<name>(?i:{'|'.join(sorted(_MONTH_OF, key=len, reverse=True))}))\\.?"
_WEEKDAYS = (
    "(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?",
    "mo(?:ntag)?|di(?:enstag)?|mi(?:ttwoch)?|do(?:nnerstag)?|fr(?:eitag)?|sa(?:mstag)?|so(?:nntag)?",
    "lun(?:di|es|ed[iì])?|mar(?:di|tes|ted[iì])?|mer(?:c|credi|coled[iì])?|mi[eé](?:rc|rcoles)?",
    "jeu(?:di)?|jue(?:ves)?|gio(?:ved[iì])?|ven(?:dredi|erd[iì])?|vie(?:rnes)?",
    "sam(?:edi)?|s[aáà]b(?:ado|ato)?|dim(?:anche)?|dom(?:ingo|enica)?",
    "ma(?:andag)?|di(?:nsdag)?|wo(?:ensdag)?|do(?:nderdag)?|vr(?:ijdag)?|za(?:terdag)?|zo(?:ndag)?",
    "(?:seg(?:unda)?|ter(?:[çc]a)?|qua(?:rta)?|qui(?:nta)?|sex(?:ta)?)(?:-feira)?",
)
_WEEKDAY = rf"(?:(?i:{'|'.join(_WEEKDAYS)})\.?,? +)?"
_DAY = "(?P<day>[0-9]{1,2})"
_NTH = "(?i:st|nd|rd|th|er|º|°)?"
_OF = "(?i:(?:of|de|del) )?"
_YEAR, _LONG_YEAR = "(?P<year>[0-9]{4}|[0-9]{2})", "(?P<year>[0-9]{4})"
_TWO_DIGITS = "(?P<{}>[0-9]{{2}})".format
_ZONE = "(?P<zone>(?i:z|utc|gmt)|[+-][0-9]{2}(?::?[0-9]{2})?)?"
_CLOCK = (
    "(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
    "(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    rf" ?(?P<half>(?i:[ap]\.?m\.?))? ?{_ZONE}"
)
_MAYBE_CLOCK = f"(?:(?:T|,? +(?:(?:at|um|à|a) )?){_CLOCK.replace('):', ')[:hH]', 1)})?"
_COMPACT_CLOCK = (
    f"(?:[T ]?{_TWO_DIGITS('hour')}:?{_TWO_DIGITS('minute')}"
    rf"(?::?{_TWO_DIGITS('second')}(?:\.(?P<fraction>[0-9]{{1,9}}))?)? ?{_ZONE})?"
)

# By name, in RE2 syntax. Whether day or month comes first in "numeric" dates depends on the column.
PATTERNS = {
    "year-month-day": f"{_LONG_YEAR}(?P<sign>[-/.])(?P<month>[0-9]{{1,2}})(?P<again>[-/.])"
    f"{_DAY}{_MAYBE_CLOCK}",
    "numeric": f"{_WEEKDAY}(?P<first>[0-9]{{1,2}})(?P<sign>[-/.])(?P<other>[0-9]{{1,2}})"
    f"(?P<again>[-/.]){_YEAR}{_MAYBE_CLOCK}",
    "yearmonthday": f"{_LONG_YEAR}{_TWO_DIGITS('month')}{_TWO_DIGITS('day')}{_COMPACT_CLOCK}",
    "compact": f"{_TWO_DIGITS('first')}{_TWO_DIGITS('other')}{_LONG_YEAR}",
    "day name year": f"{_WEEKDAY}{_DAY}{_NTH}[-/. ]*{_OF}{_MONTH}[-/., ]*{_OF}{_YEAR}"
    f"{_MAYBE_CLOCK}",
    "name day year": f"{_WEEKDAY}{_MONTH}[-/. ]*{_DAY}{_NTH}[-/., ]+{_YEAR}{_MAYBE_CLOCK}",
    "name day time year": f"{_WEEKDAY}{_MONTH} +{_DAY},? +{_CLOCK} +{_LONG_YEAR}",
    # "Jan 12" may be a day; "Jan-12" is how spreadsheets format a month.
    "name year": f"{_MONTH}(?:[-/., ]*{_OF}{_LONG_YEAR}|[-/ ]?[-/'](?P<short>[0-9]{{2}}))",
    "year-month": f"{_LONG_YEAR}[-/](?P<month>[0-9]{{2}})",
    "month-year": f"(?P<month>[0-9]{{1,2}})(?P<sign>[-/]){_LONG_YEAR}",
    "year quarter": f"{_LONG_YEAR}[-/ ]?[Qq](?P<quarter>[1-4])",
    "quarter year": f"[Qq](?P<quarter>[1-4])[-/ ]?{_LONG_YEAR}",
    "time": _CLOCK,
}
_ANY = "|".join(re.sub(r"\?P<[a-z]+>", "?:", pattern) for pattern in PATTERNS.values())
# Two-digit years from here on belong to the 20th century, unless the column's pivot differs.
CENTURY = 69
_FIRST_YEAR = 1000
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class DateParts:
    """The parts of the dates that match one pattern; ``rows`` are their indices among the texts."""

    rows: Array
    parts: dict[str, pa.Array]

    def has(self, name: str) -> Array:
        """Mask of the dates that have a part."""
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
    def short(self) -> Array:
        """Mask of the dates with a two-digit year."""
        short = self.has("short")
        if "year" in self.parts:
            short = short | (numbers_of(pc.utf8_length(self.parts["year"])) == 2)
        return short

    def year(self, order: str = "", pivot: int = CENTURY) -> Array:
        """Return four-digit years; two-digit ones from ``pivot`` on belong to the 20th century."""
        if order == "y":
            year, short = self.whole("first"), np.ones(len(self.rows), bool)
        else:
            year = np.where(self.has("short"), self.whole("short"), self.whole("year", 1970))
            short = self.short
        return np.where(short, year + np.where(year < pivot, 2000, 1900), year)

    def _month(self, order: str) -> Array:
        if order:
            return self.whole("first" if order == "m" else "other")
        if "quarter" in self.parts:
            return 3 * self.whole("quarter") - 2
        if "name" in self.parts:
            names, months = text_array(list(_MONTH_OF)), np.array([*_MONTH_OF.values()])
            found = pc.index_in(pc.utf8_lower(self.parts["name"]), value_set=names)
            return months[numbers_of(found)]
        return self.whole("month", 1)

    def days(self, order: str = "", pivot: int = CENTURY) -> tuple[Array, Array]:
        """Return the days since 1970, and a mask of the valid dates.

        ``order`` is the first part of a numeric date: ``d``, ``m``, or ``y`` for a two-digit year
        with the month in the middle.
        """
        last = {"d": "first", "m": "other", "y": "year"}
        day, month = self.whole(last.get(order, "day"), 1), self._month(order)
        year = self.year(order, pivot)
        valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= _FIRST_YEAR)
        months = np.where(valid, (year - 1970) * 12 + month - 1, 0).astype("M8[M]")
        dates = months.astype("M8[D]") + np.where(valid, day - 1, 0)
        valid &= dates.astype("M8[M]") == months
        if "again" in self.parts:
            valid &= mask_of(pc.equal(self.parts["sign"], self.parts["again"]))
        if order == "y":
            valid &= self._two_digits()
        return dates.astype(np.int64), valid

    def _two_digits(self) -> Array:
        """Mask of the dates in which all three numbers have two digits."""
        lengths = (pc.utf8_length(self.parts[name]) for name in ("first", "other", "year"))
        two: Array = np.all([numbers_of(length) == 2 for length in lengths], axis=0)
        return two

    def time_of_day(self) -> tuple[Array, Array]:
        """Return the microseconds since midnight in UTC, and a mask of the valid times."""
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
        """Return the UTC offset in minutes."""
        minutes = np.zeros(len(self.rows), np.int64)
        if not self.has("zone").any():
            return minutes
        for place, zone in enumerate(self.parts["zone"].to_pylist()):
            if zone[:1] in ("+", "-"):
                ahead = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
                minutes[place] = ahead if zone[0] == "+" else -ahead
        return minutes

    def values(self, order: str = "", pivot: int = CENTURY) -> Array:
        """Return datetime64 values, NaT for invalid dates."""
        days, valid = self.days(order, pivot)
        micro, valid_time = self.time_of_day()
        timestamps = (days * _DAY_US + micro).astype("M8[us]")
        timestamps[~(valid & valid_time)] = np.datetime64("NaT")
        return timestamps


def extract(name: str, texts: pa.Array) -> DateParts:
    """Return the parts of the texts that match a pattern."""
    found = pc.extract_regex(texts, f"^(?:{PATTERNS[name]})$")
    rows = np.flatnonzero(mask_of(found.is_valid()))
    kept = found.take(row_array(rows))
    fields = [kept.type.field(place).name for place in range(kept.type.num_fields)]
    return DateParts(rows, {field: kept.field(field) for field in fields})


def candidates(texts: pa.Array) -> Array:
    """Mask of the texts that match any pattern, which is faster than testing each of them."""
    return mask_of(pc.match_substring_regex(texts, f"^(?:{_ANY})$"))
