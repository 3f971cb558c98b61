"""Number notations in text: plain, with a decimal comma, or unsupported."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

DECIMALS = (".", ",")
# A column is numeric if this fraction of its values, or of its distinct values, are numbers, with
# at least this many distinct ones: fewer are treated as categories.
NUMBER_FRACTION = 0.9
MIN_NUMBERS = 10

# Numbers that Arrow reads as floats, and other notations of numbers; valid RE2 patterns.
PLAIN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?i:inf|infinity|nan)"
_COMMA = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"
_GROUPED = r"[+-]?\d{1,3}(?:[.,' \x{a0}\x{202f}]\d{3})+(?:[.,]\d+)?"
_MONEY, _SPACE = "$€£¥", r"[ \x{a0}\x{202f}]"
_NUMBER = f"(?:{PLAIN}|{_COMMA}|{_GROUPED})"
WRITTEN = f"[+-]?[{_MONEY}]?{_SPACE}?{_NUMBER}{_SPACE}?[%{_MONEY}]?"
WHOLE_PLAIN, WHOLE_WRITTEN = f"^(?:{PLAIN})$", f"^(?:{WRITTEN})$"


def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for Python, whose escapes of code points differ from RE2."""
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
    """Whether a text is a number in any notation: also ``3,14``, ``1,200.50``, ``12 %``, ``$5``."""
    return _written.fullmatch(text) is not None


def has_decimal_comma(text: str) -> bool:
    """Whether a text is a number with a decimal comma."""
    return _comma.fullmatch(text) is not None


def as_number(text: str) -> float | None:
    """Parse a text as a finite number with a decimal point, or return None."""
    number = float(text) if is_plain_number(text) else math.inf
    return number if math.isfinite(number) else None


def shows_decimal_point(columns: Iterable[Sequence[str]]) -> bool:
    """Whether the point must be the decimal separator of one of the columns."""
    return any(_vote(cells) == "point" for cells in columns)


def decimal_sign(columns: Iterable[Sequence[str]], delimiter: str, likely: str | None) -> str:
    """Infer the decimal separator of a file from the non-missing cells of its columns.

    A column votes for the comma if nearly all of its cells are then numbers, and one of them
    cannot be grouped thousands (``1,234`` can). Commas within cells are rare if the delimiter is a
    comma, and common if it is a semicolon. ``likely`` is the separator of the training file, which
    decides if the cells are inconclusive.

    Raises
    ------
    ValueError
        If the cells are ambiguous: ``1.529`` next to ``999`` may be grouped thousands.
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
    """Return the error message for points that may be decimal or thousands separators."""
    pointed = next(cell for cell in cells if "." in cell)
    whole = next(cell for cell in cells if _hundreds.fullmatch(cell))
    return (
        f"{pointed!r} next to {whole!r} is ambiguous; use decimal='.' if the point is the decimal "
        "separator, decimal=',' if it separates thousands"
    )


def _vote(cells: Sequence[str]) -> str:
    """Return the vote of a column for the decimal separator: point, comma, either or none.

    It is "thousands" if all cells with a point have three digits after it, and those without are
    below 1000, some of them above 99.
    """
    plain = [cell for cell in cells if is_plain_number(cell)]
    commas = [cell for cell in cells if has_decimal_comma(cell)]
    if not cells or len(plain) + len(commas) < NUMBER_FRACTION * len(cells):
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
    """Whether these numbers, some with a point, can all be integers with grouped thousands."""
    return any(map(_hundreds.fullmatch, plain)) and all(
        (_maybe_thousands if "." in cell else _up_to_999).fullmatch(cell) for cell in plain
    )
