"""How columns are encoded: frozen values, one class for each kind, that fill output columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array
from likelier.data.columns import Kind
from likelier.data.notation import has_decimal_comma
from likelier.tables.cells import Cells
from likelier.tables.dates import DateStyle, is_blank_date, is_word
from likelier.tables.numbers import NumberStyle, is_number
from likelier.tables.summaries import hashed
from likelier.tables.terms import Terms

# A row with a level that training never saw is predicted as a mixture over so many that it did.
N_DRAWS = 32
# English, German, French, Spanish and Italian; the first words are named in messages
TRUE = ("true", "yes", "y", "t", "on", "1", "ja", "j", "oui", "si", "sí", "sì", "wahr", "vrai")
FALSE = (
    "false",
    "no",
    "n",
    "f",
    "off",
    "0",
    "nein",
    "n",
    "non",
    "no",
    "no",
    "no",
    "falsch",
    "faux",
)


@dataclass(frozen=True, eq=False)
class ColumnCode(ABC):
    """How one column is encoded.

    ``note`` says what was assumed of it, empty for plain numbers; ``had_missing`` whether
    values were missing in training: a last output column then marks them.
    """

    name: str
    note: str = field(default="", kw_only=True)
    had_missing: bool = field(default=False, kw_only=True)
    kind: ClassVar[str]
    sparse: ClassVar[bool] = False
    has_levels: ClassVar[bool] = False

    @property
    @abstractmethod
    def values(self) -> list[str]:
        """Names of the output columns, without the one that marks missing values."""

    @property
    def output_names(self) -> list[str]:
        """Names of all output columns."""
        return [*self.values, *([f"{self.name} is missing"] if self.had_missing else [])]

    @cached_property
    def width(self) -> int:
        """Number of output columns."""
        return len(self.output_names)

    @abstractmethod
    def encode(self, cells: Cells, out: Array) -> Array | None:
        """Fill the output columns of some rows, which are zero.

        Returns
        -------
        strange : ndarray of bool or None
            Rows with a level that training never saw, or with no value where none was ever
            missing: ``out`` holds the average for them. None if there are none.
        """

    def draws(self, cells: Cells) -> Array | None:
        """Return `N_DRAWS` rows of output columns for each of some strange rows.

        None where the average is all there is to say.
        """
        return None

    def _mark(self, absent: Array, out: Array) -> Array | None:
        """Mark missing values; return those that were never missing in training."""
        if self.had_missing:
            out[:, -1] = absent
            return None
        return absent if absent.any() else None

    def to_json(self) -> dict[str, Any]:
        """Return the code as plain values and arrays."""
        names = [part.name for part in fields(self)]
        return {"class": type(self).__name__, **{n: _plain(getattr(self, n)) for n in names}}


@dataclass(frozen=True, eq=False)
class NumberColumn(ColumnCode):
    """Numbers; ``fill`` stands in for missing ones.

    With ``loose`` texts that are no numbers are missing; otherwise they are errors, as are in any
    case numbers that are written in another way, unless ``texts`` has them.
    """

    fill: float = 0.0
    style: NumberStyle | None = None
    loose: bool = False
    texts: tuple[str, ...] = ()
    kind: ClassVar[str] = "number"

    @property
    def values(self) -> list[str]:
        return [self.name]

    def encode(self, cells: Cells, out: Array) -> Array | None:
        numbers = self.read(cells)
        absent = ~np.isfinite(numbers)
        out[:, 0] = np.where(absent, self.fill, numbers)
        return self._mark(absent, out)

    def read(self, cells: Cells) -> Array:
        """Return the numbers, NaN for missing."""
        if cells.kind == Kind.DATE:
            raise ValueError(f"column {self.name!r} holds dates or times where it held numbers")
        if self.style is None or not cells.is_text:
            plain = cells.plain_numbers
            if plain is not None:
                return plain
        style = self.style or NumberStyle(cells.decimal)
        numbers = cells.spread(style.parse, np.nan)
        unread = np.isnan(numbers) & ~cells.absent
        wrong = {text for text in cells.texts_of(unread) if not self._missing(text)}
        if wrong:
            row, text = cells.row_of(lambda text: text in wrong)
            raise ValueError(
                f"column {self.name!r}, row {row}: {text!r} is not a number as the model was "
                f"fitted on, {style.describe() or 'plain numbers'}; {_remedy(text, cells.decimal)}"
            )
        return numbers

    def _missing(self, text: str) -> bool:
        """Whether a text that is no number of the column stands for a missing one."""
        return text in self.texts or (self.loose and not is_number(text))


def _remedy(text: str, decimal: str) -> str:
    if decimal == "." and has_decimal_comma(text):
        return "use decimal=',' if the comma is the decimal sign, or correct the cell"
    return "correct the cell, or leave it empty if the value is missing"


@dataclass(frozen=True, eq=False)
class BooleanColumn(ColumnCode):
    """Two values that mean yes and no, as 1 and 0; ``share`` of the rows have yes."""

    share: float = 0.5
    kind: ClassVar[str] = "boolean"
    has_levels: ClassVar[bool] = True

    @property
    def values(self) -> list[str]:
        return [self.name]

    def encode(self, cells: Cells, out: Array) -> Array | None:
        self._mark(cells.absent, out)
        truth = cells.plain_numbers if not cells.is_text else None
        if truth is None:
            truth = cells.spread(truth_values, np.nan)
        truth = np.where((truth == 0.0) | (truth == 1.0), truth, np.nan)
        out[:, 0] = np.where(np.isnan(truth), self.share, truth)
        strange = np.isnan(truth) & ~(cells.absent & self.had_missing)
        return strange if strange.any() else None

    def draws(self, cells: Cells) -> Array:
        drawn = np.arange(N_DRAWS) < round(self.share * N_DRAWS)
        return _marked(np.broadcast_to(drawn[:, None], (len(cells), N_DRAWS, 1)), self.had_missing)


def truth_values(texts: list[str]) -> Array:
    """Return 1 for texts that mean yes, 0 for no, NaN for others."""
    meaning = dict.fromkeys(TRUE, 1.0) | dict.fromkeys(FALSE, 0.0)
    return np.array([meaning.get(text.casefold(), np.nan) for text in texts])


@dataclass(frozen=True, eq=False)
class DateColumn(ColumnCode):
    """Dates and times: days since ``origin``, and the ``parts`` that vary.

    ``fill`` is the day that stands in for missing ones; periodic parts are zero there. With
    ``loose`` words are missing dates; otherwise they are errors.
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
        moments = self.read(cells)
        absent = np.isnat(moments)
        known = np.where(absent, np.datetime64(self.origin), moments)
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

    def elapsed(self, moments: Array) -> Array:
        """Return days since the origin, or hours since midnight."""
        unit = 86_400e6 if self.style.has_date else 3_600e6
        since = (moments - np.datetime64(self.origin, "us")).astype("m8[us]")
        return since.astype(np.int64).astype(float) / unit

    def read(self, cells: Cells, strict: bool = True) -> Array:
        """Return the moments, NaT for missing; if ``strict``, an unreadable cell is an error."""
        if cells.kind == Kind.DATE:
            return cells.moments()
        if not cells.is_text:
            written = self.style.pattern == "yearmonthday" and cells.kind == Kind.INTEGER
            if not written and not cells.absent.all():
                raise ValueError(f"column {self.name!r} holds {cells.kind}s, and held dates")

        def parse(texts: list[str]) -> Array:
            moments = self.style.parse(texts)
            if self.style.has_date and np.isnat(moments).any():  # nobody mistakes these
                moments = np.where(np.isnat(moments), _ISO.parse(texts), moments)
            return np.where(np.isnat(moments), np.nan, moments.astype(np.int64).astype(float))

        numbers = cells.spread(parse, np.nan)
        unread = np.isnan(numbers) & ~cells.absent
        if strict and unread.any() and not all(map(self._missing, cells.texts_of(unread))):
            row, text = cells.row_of(
                lambda text: not self._missing(text) and bool(np.isnan(parse([text])))
            )
            raise ValueError(unread_date(self.name, row, text, self.style))
        moments = np.full(len(numbers), np.datetime64("NaT"), "M8[us]")
        known = np.isfinite(numbers)
        moments[known] = numbers[known].astype(np.int64).astype("M8[us]")
        return moments

    def _missing(self, text: str) -> bool:
        """Whether a text stands for a missing date."""
        return is_blank_date(text) or (self.loose and is_word(text))


_ISO = DateStyle("year-month-day", "-")


def unread_date(name: str, row: int, text: str, style: DateStyle) -> str:
    """Say that a cell in a column of dates cannot be read, and what to do."""
    return (
        f"column {name!r}, row {row}: {text!r} cannot be read as a date; the column has "
        f"{style.describe()}. Correct the cell, leave it empty if the date is missing, or use "
        f"kinds={{{name!r}: 'category'}} if the column has no dates"
    )


def _year_of(fill: float, origin: str) -> float:
    day = np.datetime64(origin, "us") + np.timedelta64(round(fill * 86_400e6), "us")
    return float(day.astype("M8[Y]").astype(int) + 1970)


def _part(part: str, moments: Array) -> tuple[Array, float]:
    """Return where each moment is in a period that returns, and how long it is."""
    days = moments.astype("M8[D]")
    if part == "year":
        return moments.astype("M8[Y]").astype(int) + 1970.0, 0.0
    if part == "month":
        return moments.astype("M8[M]").astype(int) % 12, 12.0
    if part == "day":
        return (days - moments.astype("M8[M]").astype("M8[D]")).astype(int), 31.0
    if part == "weekday":
        return (days.astype(int) + 3) % 7, 7.0
    return (moments - days).astype("m8[us]").astype(np.int64) / 3_600e6, 24.0


PARTS = ("year", "month", "day", "weekday", "hour")


def varying_parts(moments: Array) -> tuple[str, ...]:
    """Return the parts that are not the same in all moments."""
    if not len(moments):
        return ()
    return tuple(part for part in PARTS if np.ptp(_part(part, moments)[0]) > 0)


@dataclass(frozen=True, eq=False)
class CategoryColumn(ColumnCode):
    """Few levels: a column of 0 and 1 for each; rare ones share a column.

    Of two levels, both always there, one column is enough. ``shares`` are the parts of the rows
    of training that had each output column, which is what an unseen level gets.
    """

    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()
    kind: ClassVar[str] = "category"
    has_levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.shares) != len(self.levels) + bool(self.rare) or not self.shares:
            raise ValueError(f"damaged column {self.name!r}: not one share for each level")

    @property
    def single(self) -> bool:
        """Whether one output column tells the two levels apart."""
        return len(self.levels) == 2 and not self.rare and not self.had_missing

    @property
    def values(self) -> list[str]:
        names = [f"{self.name}={level}" for level in self.levels]
        if self.rare:
            names.append(f"{self.name} is rare")
        return names[1:] if self.single else names

    @cached_property
    def _slots(self) -> dict[str, float]:
        slots = {level: float(slot) for slot, level in enumerate(self.levels)}
        return slots | dict.fromkeys(self.rare, float(len(self.levels)))

    def encode(self, cells: Cells, out: Array) -> Array | None:
        absent = cells.absent
        self._mark(absent, out)
        slots = cells.spread(
            lambda texts: np.array([self._slots.get(text, -1.0) for text in texts]), -2.0
        ).astype(np.int64)
        rows = np.flatnonzero(slots >= 0)
        if self.single:
            out[rows, 0] = slots[rows]
        else:
            out[rows, slots[rows]] = 1.0
        strange: Array = (slots == -1) | (absent & (not self.had_missing))
        if not strange.any():
            return None
        out[strange, : len(self.values)] = self.shares[1:] if self.single else self.shares
        return strange

    def draws(self, cells: Cells) -> Array:
        shares = np.array(self.shares) / max(sum(self.shares), 1e-300)
        points = (np.arange(N_DRAWS) + 0.5) / N_DRAWS
        slots = np.minimum(np.searchsorted(np.cumsum(shares), points), len(shares) - 1)
        drawn = np.eye(len(shares))[slots]
        drawn = drawn[:, 1:] if self.single else drawn
        return _marked(np.broadcast_to(drawn, (len(cells), *drawn.shape)), self.had_missing)


@dataclass(frozen=True, eq=False)
class NameColumn(ColumnCode):
    """Many levels: pieces of their spelling in a few dense columns, so that like names are near.

    ``known`` are hashes of the levels of training, and ``examples`` some of them drawn by
    frequency; both are empty where an unseen level is no surprise.
    """

    terms: Terms
    projection: Array
    known: Array
    examples: tuple[str, ...] = ()
    mean: Array = field(default_factory=lambda: np.zeros(0))
    kind: ClassVar[str] = "category"
    has_levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_projection(self.name, self.terms, self.projection)
        if self.mean.shape not in ((0,), (self.projection.shape[1],)):
            raise ValueError(f"damaged column {self.name!r}: a mean of {self.mean.shape}")

    @property
    def values(self) -> list[str]:
        return [f"{self.name} {number}" for number in range(self.projection.shape[1])]

    def encode(self, cells: Cells, out: Array) -> Array | None:
        texts, codes = cells.distinct
        absent, n_values = cells.absent, self.projection.shape[1]
        self._mark(absent, out)
        out[:, :n_values] = self.place([text or "" for text in texts])[codes]
        out[absent, :n_values] = 0.0
        strange = absent & (not self.had_missing)
        if len(self.known):
            found = np.isin(hashed([text or "" for text in texts]), self.known)
            strange = strange | (~found[codes] & ~absent)
        if not strange.any():
            return None
        if not self.had_missing:
            out[absent] = self.mean
        return strange

    def place(self, texts: list[str]) -> Array:
        """Return the dense columns of some texts."""
        return np.asarray(self.terms.matrix(texts) @ self.projection)

    def draws(self, cells: Cells) -> Array | None:
        """Return the levels of training that are spelled most like each of the unseen ones."""
        if not self.examples:
            return None
        texts, codes = cells.distinct
        places = self.place([text or "" for text in texts])
        likeness = places @ self._examples.T
        nearest = np.argsort(-likeness, axis=1, kind="stable")[:, :N_DRAWS]
        nearest = np.resize(nearest.T, (N_DRAWS, len(texts))).T
        return _marked(self._examples[nearest][codes], self.had_missing)

    @cached_property
    def _examples(self) -> Array:
        return self.place(list(self.examples))


@dataclass(frozen=True, eq=False)
class TextColumn(ColumnCode):
    """Running text: weights of its words, or a few dense columns of them."""

    terms: Terms
    projection: Array | None = None
    kind: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        if self.projection is not None:
            _check_projection(self.name, self.terms, self.projection)
        elif self.terms.terms is None:
            raise ValueError(f"damaged column {self.name!r}: no words")

    @property
    def sparse(self) -> bool:  # type: ignore[override]
        """Whether the output columns are words, nearly all of them zero in a row."""
        return self.projection is None

    @property
    def values(self) -> list[str]:
        if self.projection is None:
            return [f"{self.name}:{term}" for term in self.terms.terms or ()]
        return [f"{self.name} {number}" for number in range(self.projection.shape[1])]

    def matrix(self, cells: Cells) -> Any:
        """Return the weights of the words in CSR form."""
        texts, codes = cells.distinct
        if len(texts) == len(codes) and None not in texts:
            return self.terms.matrix([text or "" for text in texts])
        return self.terms.matrix([texts[code] or "" for code in codes.tolist()])

    def encode(self, cells: Cells, out: Array) -> Array | None:
        matrix = self.matrix(cells)
        dense = matrix.toarray() if self.projection is None else matrix @ self.projection
        out[:, : dense.shape[1]] = dense
        if self.had_missing:
            out[:, -1] = cells.absent
        return None  # no words are words too


def _check_projection(name: str, terms: Terms, projection: Array) -> None:
    fits = projection.ndim == 2 and projection.shape[0] == len(terms) and projection.shape[1]
    if not fits or not np.isfinite(projection).all():
        raise ValueError(f"damaged column {name!r}: its projection does not fit its terms")


def _marked(drawn: Array, had_missing: bool) -> Array:
    """Return draws with the column that marks missing values, where there is one."""
    if not had_missing:
        return drawn
    return np.concatenate([drawn, np.zeros((*drawn.shape[:2], 1))], axis=2)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value.to_json() if hasattr(value, "to_json") else value


_CLASSES: dict[str, type[ColumnCode]] = {
    cls.__name__: cls
    for cls in (NumberColumn, BooleanColumn, DateColumn, CategoryColumn, NameColumn, TextColumn)
}


def column_from_json(plain: Mapping[str, Any]) -> ColumnCode:
    """Return the code that `ColumnCode.to_json` wrote."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    cls: Any = _CLASSES[values.pop("class")]
    if values.get("style") is not None:
        style = NumberStyle if cls is NumberColumn else DateStyle
        values["style"] = style.from_json(values["style"])
    if "terms" in values:
        values["terms"] = Terms.from_json(values["terms"])
    column: ColumnCode = cls(**values)
    return column
