"""Parsing of a single number in text: sign, separators, currency, unit and multiplier."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from likelier.tables.units import unit_key

_SPACE = "[ \u00a0\u2009\u202f]"
_LETTER = r"[^\W\d_]"
_CODES = (
    "AED|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KRW|MXN|MYR|NOK|NZD|PHP|PLN|"
    "RMB|RUB|SAR|SEK|SGD|THB|TRY|USD|VND|ZAR"
)
_CURRENCY = rf"(?:[A-Z]{{0,3}}\$|[€£¥₹₽₩₺฿₫₴₪₦₱]|[Rr]s\.?|kr\.?|zł|Kč|Ft|(?i:{_CODES}))"
_NUMERAL = "[.,]?[0-9](?:[0-9.,'\u2019 \u00a0\u2009\u202f]*[0-9])?\\.?"
_UNIT = re.compile(rf"(?:{_LETTER}|°)(?:{_LETTER}|[°.· ]|/(?:10+)?)*[23]?|[%‰+]")
# The text after the digits is parsed by `_tail`, once per spelling.
_TEXT = re.compile(
    rf"(\()?([+\-\u2212])?(?:(?![0-9.,])({_CURRENCY}){_SPACE}?)?([+\-\u2212])?({_NUMERAL})"
    rf"([eE][+-]?[0-9]+(?![0-9A-Za-z]))?(?:([kKMBG])(?!{_LETTER}|/))?"
    rf"(?:{_SPACE}?([^0-9()\-\u2212][^()\-\u2212]*))?([-\u2212])?(\))?"
)
_INFINITE = re.compile(r"([+\-\u2212]?)inf(?:inity)?", re.IGNORECASE)
_GROUPED = re.compile(r"([1-9][0-9]{0,2})((?:([.,' ])[0-9]{3})(?:\3[0-9]{3})*)(?:([.,])[0-9]+)?")
# lakh and crore: groups of two digits, then a last group of three
_INDIAN = re.compile(r"[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}(?:(\.)[0-9]+)?")
_DECIMAL = re.compile(r"(?:0|[1-9][0-9]*)?([.,])[0-9]+|(?:0|[1-9][0-9]*)(\.)")
_IS_CURRENCY = re.compile(_CURRENCY)
_ONE_SPACE = str.maketrans({"\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2019": "'"})
_MULTIPLIERS = {"k": 3, "K": 3, "M": 6, "B": 9, "G": 9}
_MAX_UNIT = 12
# The suffixes of "1st" and "5 pm" are not units.
_NO_UNITS = frozenset({"st", "nd", "rd", "th", "am", "pm", "a.m", "p.m"})


class Layout(NamedTuple):
    """The notation of a number, apart from its digits.

    ``form`` encodes the separators of the digits: ``i`` none; ``I`` none, with four digits or
    more; ``.`` or ``,`` a decimal separator; ``?.`` or ``?,`` a single separator before three
    digits (decimal or thousands); ``g,`` and ``g,.`` thousands without and with a decimal
    separator; ``F.`` groups of three digits only, as in telephone numbers; ``0`` an integer with
    leading zeros (a code); empty for texts that are not numbers. ``tail`` is a unit or one of
    ``%‰+``.
    """

    form: str = ""
    currency: str = ""
    multiplied: bool = False
    tail: str = ""
    zero: bool = False


class Numeral(NamedTuple):
    """A number in a text: its layout, raw digits, sign and power of ten."""

    layout: Layout
    digits: str
    negative: bool
    power: int
    unit: str


NOTHING = Layout()


def read(text: str) -> Numeral | None:
    """Parse a text as a number, or return None; the decimal separator is left undecided."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return _infinite(text)
    opened, sign, prefix, inner, digits, power, multiplier, tail, minus, closed = found.groups()
    negative = False
    if sign or inner or minus or opened or closed:
        given = [mark for mark in (sign, inner, minus, opened) if mark]
        if len(given) > 1 or (opened is None) != (closed is None):
            return None
        negative = given[0] != "+"
    currency, key = prefix or "", ""
    if tail:
        behind, key, known = _tail(tail)
        if not known or (currency and behind):
            return None
        currency = currency or behind
    if not digits.isascii():
        digits = digits.translate(_ONE_SPACE)
    form = _form(digits, power is not None)
    if not form:
        return None
    exponent = (int(power[1:]) if power else 0) + (_MULTIPLIERS[multiplier] if multiplier else 0)
    zero = not digits.strip("0.,")
    layout = _layout(form, currency.rstrip("."), multiplier is not None, key, zero)
    return Numeral(layout, digits, negative, exponent, tail or "")


# Texts of a column share few layouts.
_layout = lru_cache(maxsize=1000)(Layout)


@lru_cache(maxsize=1000)
def _tail(text: str) -> tuple[str, str, bool]:
    """Return the currency, the key of the unit, and whether the text is one of the two."""
    if _IS_CURRENCY.fullmatch(text):
        return text, "", True
    key = unit_key(text)
    known = len(text) <= _MAX_UNIT and key not in _NO_UNITS
    return "", key, known and _UNIT.fullmatch(text) is not None


def _infinite(text: str) -> Numeral | None:
    found = _INFINITE.fullmatch(text)
    if found is None:
        return None
    return Numeral(Layout("i"), "inf", found[1] not in ("", "+"), 0, "")


def _form(digits: str, with_power: bool) -> str:
    """Return the separators of the digits as a `Layout` form."""
    if digits.isdigit():
        if digits[0] == "0" and len(digits) > 1:
            return "0"
        return "i" if len(digits) < 4 or with_power else "I"
    grouped = _GROUPED.fullmatch(digits)
    if grouped is not None and grouped[3] != grouped[4] and not with_power:
        head, groups, sign, decimal = grouped.groups()
        if decimal is not None:
            return f"g{sign}{decimal}"
        if len(groups) == 4 and sign in ".,":
            return f"?{sign}"
        return f"F{sign}" if len(head) == 3 and len(groups) > 4 else f"g{sign}"
    indian = _INDIAN.fullmatch(digits)
    if indian is not None and not with_power:
        return f"g,{indian[1] or ''}"
    plain = _DECIMAL.fullmatch(digits)
    return "" if plain is None else plain[1] or plain[2]
