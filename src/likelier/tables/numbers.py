"""Numbers in text: how a column writes them, learned block by block, and their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.columns import numbers_of, text_scalar
from likelier.tables.numerals import NOTHING, Layout, Numeral, read
from likelier.tables.quick import quick_numbers
from likelier.tables.units import unit_key, unit_scales

N_EXAMPLES = 5
# A unit, or a currency, belongs to a column if so many of its different texts have it.
AGREEING = 0.9
# Separators agree if so many of the different numbers can be read with them: typing errors.
SAME_SEPARATORS = 0.99
# So few integers that begin with zeros are accidents; more of them are codes of the column.
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
    """How the numbers of one column are written.

    ``decimal`` is the decimal sign and ``group`` the thousands separator (a space stands for
    every kind of space). ``units`` may follow a number, the most frequent first; ``%``, ``‰``
    and ``+`` count as units. ``multiplied`` numbers may end with k, M, B or G. Only where
    ``zeros`` is said, integers may begin with zeros: otherwise they are codes.
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
        """Say what is special about the numbers; empty for plain ones."""
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
                parts.append(f"{quoted} behind them")
            else:
                parts.append(f"the unit{'s' * (len(self.units) > 1)} {quoted}")
            if len(set(unit_scales(self.units) or ())) > 1:
                parts[-1] += f" (converted to '{self.units[0]}')"
            elif len(self.units) > 1:
                parts[-1] += " (taken for the same)"
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
        """Whether a text is a unit or a currency without a number, or a dash: nothing is there."""
        marks = {self.currency, *map(unit_key, self.units)}
        return not any(map(str.isalnum, text)) or text in marks or unit_key(text) in marks

    def parse(self, texts: Sequence[str]) -> Array:
        """Return the numbers of the texts, NaN where a text is no number in this style."""
        values = np.full(len(texts), np.nan)
        left = np.ones(len(texts), bool)
        accepted = cache(self.reads)
        scales = dict(zip(map(unit_key, self.units), unit_scales(self.units) or (), strict=True))
        for number, rows, digits in quick_numbers(texts):
            left[rows] = False
            if self.reads(number.layout):
                values[rows] = self._values(digits, number) * scales.get(number.layout.tail, 1.0)
        for row in np.flatnonzero(left).tolist():
            one = read(texts[row])
            if one is not None and accepted(one.layout):
                values[row] = self._value(one) * scales.get(one.layout.tail, 1.0)
        return values

    def _values(self, digits: pa.Array, number: Numeral) -> Array:
        if self.group:
            digits = pc.replace_substring(digits, self.group, "")
        if self.decimal == ",":
            digits = pc.replace_substring(digits, ",", ".")
        if number.power:
            digits = pc.binary_join_element_wise(
                digits, text_scalar(str(number.power)), text_scalar("e")
            )
        return numbers_of(digits.cast(pa.float64()))

    def _value(self, number: Numeral) -> float:
        digits = number.digits.replace(self.group, "") if self.group else number.digits
        if self.decimal == ",":
            digits = digits.replace(",", ".")
        value = float(f"{digits}e{number.power}" if number.power else digits)
        return -value if number.negative else value


def _fits(form: str, decimal: str, group: str) -> bool:
    """Whether digits with the separators ``form`` are a number with these signs."""
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
    """Whether a text is a number in some style."""
    return read(text) is not None


class Seen(NamedTuple):
    """Rows and different texts of a kind, with the first few texts."""

    rows: int = 0
    distinct: int = 0
    examples: tuple[str, ...] = ()

    def merge(self, other: Seen) -> Seen:
        """Return both; ``other`` are later rows."""
        examples = tuple(dict.fromkeys(self.examples + other.examples))[:N_EXAMPLES]
        return Seen(self.rows + other.rows, self.distinct + other.distinct, examples)


@dataclass(frozen=True)
class NumberEvidence:
    """How many texts of a column are written in which way; `merge` adds other rows.

    Texts that come in several blocks are counted as different ones in each of them.
    """

    layouts: dict[Layout, Seen] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Sequence[str], counts: Array) -> NumberEvidence:
        """Summarise different trimmed texts, with the number of rows of each."""
        counts = np.asarray(counts)
        kinds: dict[Layout, list[Array]] = {}
        left = np.ones(len(texts), bool)
        for number, rows, _ in quick_numbers(texts):
            left[rows] = False
            if len(rows):
                kinds.setdefault(number.layout, []).append(rows)
        others: dict[Layout, list[int]] = {}
        for row in np.flatnonzero(left).tolist():
            one = read(texts[row])
            others.setdefault(NOTHING if one is None else one.layout, []).append(row)
        for layout, places in others.items():
            kinds.setdefault(layout, []).append(np.array(places))
        layouts = {}
        for layout, parts in kinds.items():
            rows = np.sort(np.concatenate(parts))
            examples = tuple(texts[row] for row in rows[:N_EXAMPLES].tolist())
            layouts[layout] = Seen(int(counts[rows].sum()), len(rows), examples)
        return cls(_bounded(layouts))

    def merge(self, other: NumberEvidence) -> NumberEvidence:
        """Return the evidence of both; ``other`` describes later rows."""
        layouts = dict(self.layouts)
        for layout, seen in other.layouts.items():
            layouts[layout] = layouts.get(layout, Seen()).merge(seen)
        return NumberEvidence(_bounded(layouts))

    @property
    def n_rows(self) -> int:
        """Rows seen."""
        return sum(seen.rows for seen in self.layouts.values())

    @property
    def n_distinct(self) -> int:
        """Different texts seen, an upper bound after `merge`."""
        return sum(seen.distinct for seen in self.layouts.values())

    def numbers(self, style: NumberStyle) -> Seen:
        """Return how many rows and different texts are numbers in a style."""
        return added(seen for layout, seen in self.layouts.items() if style.reads(layout))

    def others(self, style: NumberStyle) -> Seen:
        """Return how many rows and different texts are not, with examples."""
        return added(seen for layout, seen in self.layouts.items() if not style.reads(layout))

    def style(self, decimal: str | None = None) -> NumberStyle | None:
        """Return how the numbers of the column are written.

        Parameters
        ----------
        decimal : "." or ",", optional
            The decimal sign of the file, where it is known: it decides what ``12.345`` is.

        Returns
        -------
        style : NumberStyle or None
            None if there are no numbers, or if they do not agree on one style.
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

    def _count(self, wanted: Callable[[Layout], object]) -> Seen:
        return added(seen for layout, seen in self.layouts.items() if wanted(layout))

    def _share_base(self) -> int:
        """Different texts that say something about units: zeros may go without."""
        return self._count(lambda layout: not layout.zero).distinct

    def _currency(self) -> str | None:
        """Return the currency of the column, empty without; None if they do not agree."""
        numbers = self._count(lambda layout: layout.form and not layout.zero).distinct
        found = self._most(lambda layout: layout.currency)
        if not found:
            return ""
        currency, count = found.most_common(1)[0]
        if count >= AGREEING * numbers:
            return currency
        return None if 2 * found.total() > numbers else ""

    def _units(self) -> tuple[str, ...] | None:
        """Return the units of the column, empty without; None if they do not agree."""
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
        share = sum(found[unit] for unit in frequent) / max(1, self._share_base())
        if share >= AGREEING and self._values(lambda layout: layout.tail in frequent):
            if unit_scales(units) is not None:
                return units
            # Rare units that do not go with the first one are no numbers.
            return units[:1] if found[frequent[0]] >= AGREEING * self._share_base() else None
        return None if 2 * found.total() > numbers else ()

    def _most(self, part: Callable[[Layout], str]) -> Counter[str]:
        """Count the different numbers, other than zero, by a part of their layouts."""
        found: Counter[str] = Counter()
        for layout, seen in self.layouts.items():
            if layout.form and part(layout):
                found[part(layout)] += seen.distinct
        return found

    def _frequent(self, unit: str) -> bool:
        seen = self._count(lambda layout: layout.tail == unit)
        return seen.rows >= MIN_UNIT * self.n_rows or seen.distinct >= MIN_UNIT * self.n_distinct

    def _spelling(self, unit: str) -> str:
        """Return a unit as the column writes it."""
        examples = self._count(lambda layout: layout.tail == unit).examples
        found = read(examples[0])
        return found.unit if found is not None else unit

    def _values(self, wanted: Callable[[Layout], object]) -> bool:
        """Whether there are enough different numbers of such layouts."""
        found = {read(text) for text in self._count(wanted).examples}
        return len({number[1:4] for number in found if number is not None}) >= MIN_VALUES

    def _multiplied(self) -> bool:
        """Whether k, M, B or G behind numbers multiply them: ``14B`` may be a house number."""
        multiplied = self._count(lambda layout: layout.multiplied)
        plain = self._count(lambda layout: layout.form not in ("", "0") and not layout.tail)
        texts = self._share_base()
        return (
            multiplied.distinct >= max(1, MIN_MULTIPLIED * texts)
            and plain.distinct >= AGREEING * texts
            and self._values(lambda layout: layout.multiplied)
        )

    def _separators(self, style: NumberStyle, decimal: str | None) -> tuple[str, str] | None:
        """Return the decimal sign and thousands separator that read the numbers."""
        forms: Counter[str] = Counter()
        for layout, seen in self.layouts.items():
            plain = layout._replace(form="i")
            if layout.form not in ("", "0") and style.reads(plain):
                forms[layout.form] += seen.distinct
        if not forms or {form[0] for form in forms} == {"F"}:
            return None
        # 1,234 and 5678 in one column: without more knowledge the comma may be either sign.
        if decimal is None and "?," in forms and "I" in forms and forms.keys() <= {"i", "I", "?,"}:
            return None
        candidates = sorted(_SEPARATORS, key=lambda signs: signs[0] != (decimal or "."))
        read_by = {
            signs: sum(count for form, count in forms.items() if _fits(form, *signs))
            for signs in candidates
        }
        best = max(candidates, key=lambda signs: read_by[signs])
        return best if read_by[best] >= SAME_SEPARATORS * forms.total() else None


def added(seen: Iterable[Seen]) -> Seen:
    """Return the sum of what was seen."""
    total = Seen()
    for one in seen:
        total = total.merge(one)
    return total


def _bounded(layouts: dict[Layout, Seen]) -> dict[Layout, Seen]:
    """Return the most frequent layouts: rare ones count as no numbers."""
    if len(layouts) <= MAX_LAYOUTS:
        return layouts
    order = sorted(layouts, key=lambda layout: (layout != NOTHING, -layouts[layout].distinct))
    kept = {layout: layouts[layout] for layout in order[:MAX_LAYOUTS]}
    rest = added(layouts[layout] for layout in order[MAX_LAYOUTS:])
    kept[NOTHING] = kept.get(NOTHING, Seen()).merge(rest)
    return kept
