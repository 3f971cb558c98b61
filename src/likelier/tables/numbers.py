"""Numbers in text: inferring the notation of a column block by block, and parsing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from likelier.base import Array
from likelier.tables.numerals import NOTHING, Layout, Numeral, read
from likelier.tables.units import unit_key, unit_scales

N_EXAMPLES = 5
# Minimum fraction of the distinct texts that must have the unit or currency of the column.
AGREEING = 0.9
# Minimum fraction of the distinct numbers that the separators must fit; the rest may be typos.
SAME_SEPARATORS = 0.99
# Above this fraction of integers with leading zeros, the column holds codes instead of numbers.
CODES = 0.01
MIN_MULTIPLIED = 0.1
MIN_UNIT = 0.01
MAX_UNITS = 3
MIN_VALUES = 3
MAX_LAYOUTS = 200

_SEPARATORS = [(".", ""), (".", ","), (".", " "), (".", "'")]
_SEPARATORS += [(",", ""), (",", "."), (",", " "), (",", "'")]


@dataclass(frozen=True)
class NumberStyle:
    """The notation of the numbers of one column.

    ``decimal`` is the decimal separator and ``group`` the thousands separator (a space matches
    every kind of space). ``units`` may follow a number, the most frequent first; ``%``, ``‰``
    and ``+`` count as units. With ``multiplied``, numbers may end with k, M, B or G. With
    ``zeros``, integers may have leading zeros, which otherwise makes them codes.
    """

    decimal: str = "."
    group: str = ""
    currency: str = ""
    units: tuple[str, ...] = ()
    multiplied: bool = False
    zeros: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the style as plain values."""
        return asdict(self) | {"units": list(self.units)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> NumberStyle:
        """Return the style that `to_json` wrote."""
        return cls(**{**data, "units": tuple(data["units"])})

    def describe(self) -> str:
        """Describe the notation; empty for plain numbers."""
        parts = ["decimal comma"] if self.decimal == "," else []
        if self.group:
            parts.append(f"the thousands separator '{self.group}'")
        if self.currency:
            parts.append(f"the currency '{self.currency}'")
        if self.zeros:
            parts.append("leading zeros")
        if self.multiplied:
            parts.append("multipliers (k, M, B)")
        if self.units:
            quoted = " and ".join(f"'{unit}'" for unit in self.units)
            if self.units[0] in "%‰+":
                parts.append(f"the suffix {quoted}")
            else:
                parts.append(f"the unit{'s' * (len(self.units) > 1)} {quoted}")
            if len(set(unit_scales(self.units) or ())) > 1:
                parts[-1] += f" (converted to '{self.units[0]}')"
            elif len(self.units) > 1:
                parts[-1] += " (treated as the same)"
        return "numbers with " + " and ".join(parts) if parts else ""

    def reads(self, layout: Layout) -> bool:
        """Whether numbers of this layout are numbers of the style."""
        form = "i" if self.zeros and layout.form == "0" else layout.form
        return (
            _fits(form, self.decimal, self.group)
            and layout.currency in ("", self.currency)
            and (self.multiplied or not layout.multiplied)
            and (not layout.tail or layout.tail in map(unit_key, self.units))
        )

    def is_blank(self, text: str) -> bool:
        """Whether a text is only a unit, a currency or a dash, which means a missing value."""
        marks = {self.currency, *map(unit_key, self.units)}
        return not any(map(str.isalnum, text)) or text in marks or unit_key(text) in marks

    def parse(self, texts: Sequence[str]) -> Array:
        """Parse the texts, NaN where a text is not a number of this style."""
        values = np.full(len(texts), np.nan)
        accepted = cache(self.reads)
        scales = dict(zip(map(unit_key, self.units), unit_scales(self.units) or (), strict=True))
        for row, text in enumerate(texts):
            one = read(text)
            if one is not None and accepted(one.layout):
                values[row] = self._value(one) * scales.get(one.layout.tail, 1.0)
        return values

    def _value(self, number: Numeral) -> float:
        digits = number.digits.replace(self.group, "") if self.group else number.digits
        if self.decimal == ",":
            digits = digits.replace(",", ".")
        value = float(f"{digits}e{number.power}" if number.power else digits)
        return -value if number.negative else value


def _fits(form: str, decimal: str, group: str) -> bool:
    """Whether digits with the separators ``form`` are a number in this notation."""
    match form[:1]:
        case "" | "0":
            return False
        case "i" | "I":
            return True
        case "?":
            return form[1] in (decimal, group)
        case "g" | "F":
            return form[1] == group and form[2:] in ("", decimal)
        case _:
            return form == decimal


def is_number(text: str) -> bool:
    """Whether a text is a number in any style."""
    return read(text) is not None


class Tally(NamedTuple):
    """Numbers of rows and distinct texts of one kind, with the first few texts."""

    rows: int = 0
    distinct: int = 0
    examples: tuple[str, ...] = ()

    def merge(self, other: Tally) -> Tally:
        """Return the sum; ``other`` are later rows."""
        examples = tuple(dict.fromkeys(self.examples + other.examples))[:N_EXAMPLES]
        return Tally(self.rows + other.rows, self.distinct + other.distinct, examples)


@dataclass(frozen=True)
class NumberEvidence:
    """Counts of the number layouts in a column; `merge` adds other rows.

    A text that occurs in several blocks counts as distinct in each of them.
    """

    layouts: dict[Layout, Tally] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Sequence[str], counts: Array) -> NumberEvidence:
        """Summarise distinct trimmed texts, with the number of rows of each."""
        counts = np.asarray(counts)
        kinds: dict[Layout, list[int]] = {}
        for row, text in enumerate(texts):
            one = read(text)
            kinds.setdefault(NOTHING if one is None else one.layout, []).append(row)
        layouts = {}
        for layout, rows in kinds.items():
            examples = tuple(texts[row] for row in rows[:N_EXAMPLES])
            layouts[layout] = Tally(int(counts[rows].sum()), len(rows), examples)
        return cls(_bounded(layouts))

    def merge(self, other: NumberEvidence) -> NumberEvidence:
        """Return the evidence of both; ``other`` describes later rows."""
        layouts = dict(self.layouts)
        for layout, tally in other.layouts.items():
            layouts[layout] = layouts.get(layout, Tally()).merge(tally)
        return NumberEvidence(_bounded(layouts))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(tally.rows for tally in self.layouts.values())

    @property
    def n_distinct(self) -> int:
        """Number of distinct texts, an upper bound after `merge`."""
        return sum(tally.distinct for tally in self.layouts.values())

    def numbers(self, style: NumberStyle) -> Tally:
        """Count the rows and distinct texts that are numbers of a style."""
        return combine(tally for layout, tally in self.layouts.items() if style.reads(layout))

    def others(self, style: NumberStyle) -> Tally:
        """Count the rows and distinct texts that are not, with examples."""
        return combine(tally for layout, tally in self.layouts.items() if not style.reads(layout))

    def style(self, decimal: str | None = None) -> NumberStyle | None:
        """Infer the notation of the numbers of the column.

        Parameters
        ----------
        decimal : "." or ",", optional
            The decimal separator of the file, if known; it resolves ``12.345``.

        Returns
        -------
        style : NumberStyle or None
            None if there are no numbers, or if no single style fits them.
        """
        codes = self._count(lambda layout: layout.form == "0")
        if codes.rows > CODES * self.n_rows or codes.distinct > CODES * self.n_distinct:
            return None
        currency = self._currency()
        units = self._units()
        if currency is None or units is None:
            return None
        separators = self._separators(
            NumberStyle("", "", currency, units, self._multiplied()), decimal
        )
        if separators is None:
            return None
        return NumberStyle(*separators, currency, units, self._multiplied())

    def _count(self, wanted: Callable[[Layout], object]) -> Tally:
        return combine(tally for layout, tally in self.layouts.items() if wanted(layout))

    def _n_informative(self) -> int:
        """Number of distinct texts that are informative about units: zeros may lack them."""
        return self._count(lambda layout: not layout.zero).distinct

    def _currency(self) -> str | None:
        """Return the currency of the column, empty if none; None if ambiguous."""
        numbers = self._count(lambda layout: layout.form and not layout.zero).distinct
        found = self._most(lambda layout: layout.currency)
        if not found:
            return ""
        currency, count = found.most_common(1)[0]
        if count >= AGREEING * numbers:
            return currency
        return None if 2 * found.total() > numbers else ""

    def _units(self) -> tuple[str, ...] | None:
        """Return the units of the column, empty if none; None if ambiguous."""
        numbers = self._count(lambda layout: layout.form and not layout.zero).distinct
        found = self._most(lambda layout: layout.tail)
        if not found:
            return ()
        first, count = found.most_common(1)[0]
        if first in "%‰+" and count >= AGREEING * numbers:
            return (first,)
        frequent = [
            unit
            for unit, count in found.most_common(MAX_UNITS)
            if unit not in "%‰+" and self._frequent(unit)
        ]
        units = tuple(map(self._spelling, frequent))
        fraction = sum(found[unit] for unit in frequent) / max(1, self._n_informative())
        if fraction >= AGREEING and self._values(lambda layout: layout.tail in frequent):
            if unit_scales(units) is not None:
                return units
            # Rare units that cannot be converted to the first one are not numbers of the column.
            return units[:1] if found[frequent[0]] >= AGREEING * self._n_informative() else None
        return None if 2 * found.total() > numbers else ()

    def _most(self, part: Callable[[Layout], str]) -> Counter[str]:
        """Count the distinct nonzero numbers by a part of their layouts."""
        found: Counter[str] = Counter()
        for layout, tally in self.layouts.items():
            if layout.form and part(layout):
                found[part(layout)] += tally.distinct
        return found

    def _frequent(self, unit: str) -> bool:
        tally = self._count(lambda layout: layout.tail == unit)
        return tally.rows >= MIN_UNIT * self.n_rows or tally.distinct >= MIN_UNIT * self.n_distinct

    def _spelling(self, unit: str) -> str:
        """Return the spelling of a unit in the column."""
        examples = self._count(lambda layout: layout.tail == unit).examples
        found = read(examples[0])
        return found.unit if found is not None else unit

    def _values(self, wanted: Callable[[Layout], object]) -> bool:
        """Whether there are enough distinct numbers of the wanted layouts."""
        found = {read(text) for text in self._count(wanted).examples}
        return len({number[1:4] for number in found if number is not None}) >= MIN_VALUES

    def _multiplied(self) -> bool:
        """Whether the suffixes k, M, B and G are multipliers: ``14B`` may be a house number."""
        multiplied = self._count(lambda layout: layout.multiplied)
        plain = self._count(lambda layout: layout.form not in ("", "0") and not layout.tail)
        texts = self._n_informative()
        return (
            multiplied.distinct >= max(1, MIN_MULTIPLIED * texts)
            and plain.distinct >= AGREEING * texts
            and self._values(lambda layout: layout.multiplied)
        )

    def _separators(self, style: NumberStyle, decimal: str | None) -> tuple[str, str] | None:
        """Return the decimal and thousands separators that fit the numbers."""
        forms: Counter[str] = Counter()
        for layout, tally in self.layouts.items():
            plain = layout._replace(form="i")
            if layout.form not in ("", "0") and style.reads(plain):
                forms[layout.form] += tally.distinct
        if not forms or {form[0] for form in forms} == {"F"}:
            return None
        # With 1,234 and 5678 in one column the comma is ambiguous.
        if decimal is None and "?," in forms and "I" in forms and forms.keys() <= {"i", "I", "?,"}:
            return None
        candidates = sorted(_SEPARATORS, key=lambda signs: signs[0] != (decimal or "."))
        read_by = {
            signs: sum(count for form, count in forms.items() if _fits(form, *signs))
            for signs in candidates
        }
        best = max(candidates, key=lambda signs: read_by[signs])
        return best if read_by[best] >= SAME_SEPARATORS * forms.total() else None


def combine(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of several tallies."""
    total = Tally()
    for tally in tallies:
        total = total.merge(tally)
    return total


def _bounded(layouts: dict[Layout, Tally]) -> dict[Layout, Tally]:
    """Return the most frequent layouts; rare ones no longer count as numbers."""
    if len(layouts) <= MAX_LAYOUTS:
        return layouts
    order = sorted(layouts, key=lambda layout: (layout != NOTHING, -layouts[layout].distinct))
    kept = {layout: layouts[layout] for layout in order[:MAX_LAYOUTS]}
    rest = combine(layouts[layout] for layout in order[MAX_LAYOUTS:])
    kept[NOTHING] = kept.get(NOTHING, Tally()).merge(rest)
    return kept
