"""How numbers are written in text: plain, with a decimal comma, or in ways that are not read."""

from __future__ import annotations

import math
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
_maybe_thousands = _compiled(r"[+-]?[1-9]\d{0,2}\.\d{3}")
_hundreds, _up_to_999 = _compiled(r"[+-]?[1-9]\d\d"), _compiled(r"[+-]?\d{1,3}")


def is_plain_number(text: str) -> bool:
    """Whether a text is a number with a decimal point, or without one."""
    return _plain.fullmatch(text) is not None


def is_written_number(text: str) -> bool:
    """Whether a person would call it a number: also ``3,14``, ``1,200.50``, ``12 %``, ``$5``."""
    return _written.fullmatch(text) is not None


def has_decimal_comma(text: str) -> bool:
    """Whether a text is a number if the comma is the decimal sign."""
    return _comma.fullmatch(text) is not None


def as_number(text: str) -> float | None:
    """Return the finite number that a text is with a decimal point, None if it is none."""
    number = float(text) if is_plain_number(text) else math.inf
    return number if math.isfinite(number) else None


def shows_decimal_point(columns: Iterable[Sequence[str]]) -> bool:
    """Whether the point must be the decimal sign of one of the columns."""
    return any(_vote(cells) == "point" for cells in columns)


def decimal_sign(columns: Iterable[Sequence[str]], delimiter: str, likely: str | None) -> str:
    """Return the decimal sign of a file from the present cells of its columns.

    A column speaks for the comma if nearly all of its cells are numbers then, and one of them
    could not be thousands (``1,234`` could). Cells that are cut at commas seldom hold any, and
    those cut at semicolons often. ``likely`` is the sign of the training file: it decides where
    the cells do not.

    Raises
    ------
    ValueError
        If ``1.529`` beside ``999`` may be thousands, and nothing decides.
    """
    columns = list(columns)
    votes = {_vote(cells) for cells in columns}
    if "point" in votes and "comma" not in votes:
        return "."
    if "thousands" in votes:
        if likely == ".":
            return "."
        if likely == "," or "comma" in votes or delimiter == ";":
            return ","
        raise ValueError(_either_way(next(c for c in columns if _vote(c) == "thousands")))
    if delimiter == ",":
        return "," if likely == "," and votes & {"comma", "either"} else "."
    return "," if "comma" in votes or likely == "," else "."


def _either_way(cells: Sequence[str]) -> str:
    """Say that the points in a column may be decimal or between thousands, and what to do."""
    pointed = next(cell for cell in cells if "." in cell)
    whole = next(cell for cell in cells if _hundreds.fullmatch(cell))
    return (
        f"{pointed!r} beside {whole!r} may have three decimals or be thousands; use decimal='.' if "
        "the point is the decimal sign, decimal=',' if it is between thousands"
    )


def _vote(cells: Sequence[str]) -> str:
    """Tell the decimal sign of a column: point, comma, either or none.

    It may also be "thousands": what has a point has three digits after it, and what has none is
    a number below 1000, some above 99.
    """
    plain = [cell for cell in cells if is_plain_number(cell)]
    commas = [cell for cell in cells if has_decimal_comma(cell)]
    if not cells or len(plain) + len(commas) < NUMBER_SHARE * len(cells):
        return "none"
    pointed = [cell for cell in plain if "." in cell]
    if not commas and pointed:
        return "thousands" if _maybe_all_thousands(plain) else "point"
    if not commas:
        return "none"
    if all(map(_maybe_grouped.fullmatch, commas)):
        return "either"
    return "none" if pointed else "comma"


def _maybe_all_thousands(plain: Sequence[str]) -> bool:
    """Whether these numbers, some of them with a point, can all be whole ones in thousands."""
    return any(map(_hundreds.fullmatch, plain)) and all(
        (_maybe_thousands if "." in cell else _up_to_999).fullmatch(cell) for cell in plain
    )
