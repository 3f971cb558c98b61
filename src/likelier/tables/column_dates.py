"""Encoding of date and time columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from likelier.base import Array
from likelier.data.columns import Kind
from likelier.tables.cells import Cells
from likelier.tables.column import ColumnCode
from likelier.tables.dates import DateStyle, is_blank_date, is_word


@dataclass(frozen=True, eq=False)
class DateColumn(ColumnCode):
    """Dates and times: days since ``origin``, and the calendar ``parts`` that vary.

    ``fill`` is the imputed day of missing dates, whose periodic parts are zero. With ``loose``,
    words are read as missing dates instead of raising an error.
    """

    style: DateStyle = field(default_factory=lambda: DateStyle("year-month-day"))
    origin: str = "1970-01-01"
    fill: float = 0.0
    parts: tuple[str, ...] = ()
    loose: bool = False
    kind: ClassVar[str] = "date"

    @property
    def values(self) -> list[str]:
        names = [f"{self.name} {'days' if self.style.has_date else 'hours'}"]
        for part in self.parts:
            if part == "year":
                names.append(f"{self.name} year")
            else:
                names += [f"{self.name} {part} sin", f"{self.name} {part} cos"]
        return names

    def encode(self, cells: Cells, out: Array) -> Array | None:
        timestamps = self.read(cells)
        absent = np.isnat(timestamps)
        known = np.where(absent, np.datetime64(self.origin), timestamps)
        out[:, 0] = np.where(absent, self.fill, self.elapsed(known))
        place = 1
        for part in self.parts:
            turn, period = _part(part, known)
            if part == "year":
                out[:, place] = np.where(absent, _year_of(self.fill, self.origin), turn)
                place += 1
                continue
            angle = 2.0 * np.pi * turn / period
            out[:, place] = np.where(absent, 0.0, np.sin(angle))
            out[:, place + 1] = np.where(absent, 0.0, np.cos(angle))
            place += 2
        return self._mark(absent, out)

    def elapsed(self, timestamps: Array) -> Array:
        """Return days since the origin, or hours since midnight."""
        unit = 86_400e6 if self.style.has_date else 3_600e6
        since = (timestamps - np.datetime64(self.origin, "us")).astype("m8[us]")
        return since.astype(np.int64).astype(float) / unit

    def read(self, cells: Cells, strict: bool = True) -> Array:
        """Return timestamps, NaT if missing; if ``strict``, an unreadable cell is an error."""
        if cells.kind == Kind.DATE:
            return cells.timestamps()
        if not cells.is_text:
            written = self.style.pattern == "yearmonthday" and cells.kind == Kind.INTEGER
            if not written and not cells.absent.all():
                raise ValueError(
                    f"column {self.name!r} contains {cells.kind}s, but contained dates in training"
                )

        def parse(texts: list[str]) -> Array:
            timestamps = self.style.parse(texts)
            if self.style.has_date and np.isnat(timestamps).any():  # ISO dates are unambiguous
                timestamps = np.where(np.isnat(timestamps), _ISO.parse(texts), timestamps)
            return np.where(np.isnat(timestamps), np.nan, timestamps.astype(np.int64).astype(float))

        numbers = cells.map_texts(parse, np.nan)
        unread = np.isnan(numbers) & ~cells.absent
        if strict and unread.any() and not all(map(self._missing, cells.texts_of(unread))):
            row, text = cells.row_of(
                lambda text: not self._missing(text) and bool(np.isnan(parse([text])))
            )
            raise ValueError(unread_date(self.name, row, text, self.style))
        timestamps = np.full(len(numbers), np.datetime64("NaT"), "M8[us]")
        known = np.isfinite(numbers)
        timestamps[known] = numbers[known].astype(np.int64).astype("M8[us]")
        return timestamps

    def _missing(self, text: str) -> bool:
        """Whether a text means a missing date."""
        return is_blank_date(text) or (self.loose and is_word(text))


_ISO = DateStyle("year-month-day", "-")


def unread_date(name: str, row: int, text: str, style: DateStyle) -> str:
    """Return the error message for a cell that cannot be read as a date."""
    return (
        f"column {name!r}, row {row}: {text!r} cannot be read as a date; the column has "
        f"{style.describe()}. Correct the cell, leave it empty if the date is missing, or use "
        f"kinds={{{name!r}: 'category'}} if the column is not a date"
    )


def _year_of(fill: float, origin: str) -> float:
    day = np.datetime64(origin, "us") + np.timedelta64(round(fill * 86_400e6), "us")
    return float(day.astype("M8[Y]").astype(int) + 1970)


def _part(part: str, timestamps: Array) -> tuple[Array, float]:
    """Return the position of each timestamp within a period, and the length of the period."""
    days = timestamps.astype("M8[D]")
    if part == "year":
        return timestamps.astype("M8[Y]").astype(int) + 1970.0, 0.0
    if part == "month":
        return timestamps.astype("M8[M]").astype(int) % 12, 12.0
    if part == "day":
        return (days - timestamps.astype("M8[M]").astype("M8[D]")).astype(int), 31.0
    if part == "weekday":
        return (days.astype(int) + 3) % 7, 7.0
    return (timestamps - days).astype("m8[us]").astype(np.int64) / 3_600e6, 24.0


PARTS = ("year", "month", "day", "weekday", "hour")


def varying_parts(timestamps: Array) -> tuple[str, ...]:
    """Return the parts that differ between timestamps."""
    if not len(timestamps):
        return ()
    return tuple(part for part in PARTS if np.ptp(_part(part, timestamps)[0]) > 0)
