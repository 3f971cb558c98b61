"""How numbers are written in text: plain, with a decimal comma, or in ways that are not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

DECIMALS = (".", ",")
# A column is one of numbers if so many of its values, or of its different values, are numbers,
# and there are this many different ones: a few are as good as categories.
NUMBER_SHARE = 0.9
MIN_NUMBERS = 10

# What Arrow reads as a float, and what people write who mean a number. RE2 reads these too.
PLAIN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:inf|infinity|nan)"
_COMMA = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"
_GROUPED = r"[+-]?\d{1,3}(?:[.,' \x{a0}\x{202f}]\d{3})+(?:[.,]\d+)?"
_MONEY, _SPACE = "$€£¥", r"[ \x{a0}\x{202f}]"
_NUMBER = f"(?:{PLAIN}|{_COMMA}|{_GROUPED})"
WRITTEN = f"[+-]?[{_MONEY}]?{_SPACE}?{_NUMBER}{_SPACE}?[%{_MONEY}]?"
WHOLE_PLAIN, WHOLE_WRITTEN = f"^(?:{PLAIN})$", f"^(?:{WRITTEN})$"


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern for Python, which writes characters by number in another way."""
    python = re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: chr(int(found[1], 16)), pattern)
    return re.compile(python, re.ASCII)


_plain, _comma, _written = _compiled(PLAIN), _compiled(_COMMA), _compiled(WRITTEN)
_maybe_grouped = _compiled(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")


def is_plain_number(text: str) -> bool:
    """Whether a text is a number with a decimal point, or without one."""
    return _plain.fullmatch(text) is not None


def is_written_number(text: str) -> bool:
    """Whether a person would call it a number: also ``3,14``, ``1,200.50``, ``12 %``, ``$5``."""
    return _written.fullmatch(text) is not None


def has_decimal_comma(text: str) -> bool:
    """Whether a text is a number if the comma is the decimal sign."""
    return _comma.fullmatch(text) is not None


def decimal_sign(columns: Iterable[Sequence[str]], delimiter: str, likely: str | None) -> str:
    """Return the decimal sign of a file from the present cells of its columns.

    A column speaks for the comma if nearly all of its cells are numbers then, and one of them
    could not be thousands (``1,234`` could). Cells that are cut at commas seldom hold any.
    ``likely`` is the sign of the training file: it decides where the cells do not.
    """
    if delimiter == "," and likely != ",":
        return "."
    votes = {_vote(cells) for cells in columns}
    if "point" in votes and "comma" not in votes:
        return "."
    if delimiter == ",":
        return "," if votes & {"comma", "either"} else "."
    return "," if "comma" in votes or likely == "," else "."


def _vote(cells: Sequence[str]) -> str:
    """Tell which decimal sign the cells of a column have: point, comma, either or none."""
    plain = [cell for cell in cells if is_plain_number(cell)]
    commas = [cell for cell in cells if has_decimal_comma(cell)]
    if not cells or len(plain) + len(commas) < NUMBER_SHARE * len(cells):
        return "none"
    pointed = [cell for cell in plain if "." in cell]
    if not commas:
        return "point" if pointed else "none"
    if all(map(_maybe_grouped.fullmatch, commas)):
        return "either"
    return "none" if pointed else "comma"
