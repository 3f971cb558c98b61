"""The dialect of a CSV file, told from its first lines: delimiter, header, decimal sign."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Self

from likelier.data.files import read_sample
from likelier.data.header import columns_of, distinct_names, names_columns, numbers_rows
from likelier.data.notation import DECIMALS, decimal_sign, shows_decimal_point

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None")
SAMPLE_ROWS = 1000
STRAY_QUOTE = (
    'double a quotation mark that is part of a text (""), or use quotes=False if no cell of the '
    "file is quoted"
)


@dataclass(frozen=True)
class Hints:
    """How a training file had to be read, where its lines did not say so.

    A later file is read in the same way unless its own lines show another. What is None was
    found out, and will be again. ``quote`` is what cells are quoted by: the empty text where
    quotation marks are text like any other.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    quote: str | None = None

    def to_json(self) -> dict[str, str | None]:
        """Plain form."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Any) -> Self:
        """Make it again from its plain form."""
        hints = cls(**plain)
        if not all(isinstance(value, str | None) for value in asdict(hints).values()):
            raise TypeError(f"expected texts by name, got {plain!r}")
        return hints


NO_HINTS = Hints()


@dataclass(frozen=True)
class Dialect:
    """How to read a CSV file.

    ``skip_lines`` counts the lines before the first row of data; ``longest_line`` is the
    number of characters of the longest line seen. A file without a header gets the column
    names ``x0``, ``x1``, ... ``shows_point`` tells that its numbers have decimal points,
    ``numbers_rows`` that the first column has no name and a number of its own in every row, as
    data frames write their index.
    """

    delimiter: str
    header: bool
    column_names: tuple[str, ...]
    skip_lines: int
    longest_line: int
    encoding: str
    decimal: str
    quote: str
    shows_point: bool
    numbers_rows: bool


def sniff_dialect(
    path: Path, given: Hints, header: bool | None, likely: Hints, missing: Collection[str] = MISSING
) -> Dialect:
    """Find the dialect of a file.

    What is not None in ``given`` and ``header`` is taken as said; ``likely`` is how the
    training file was read; ``missing`` are the texts that stand for a missing value.
    """
    _check(given)
    encoding, text = _decoded(path, given.encoding, likely.encoding)
    content = text.lstrip("\r\n")
    if not content.strip():
        raise ValueError(f"{str(path)!r} holds no rows, only empty lines")
    blank_lines = text[: len(text) - len(content)].count("\n")
    quote = _first_said(given.quote, likely.quote, '"')
    try:
        delimiter = given.delimiter or _delimiter(content, likely.delimiter, quote)
        rows = _rows(content, delimiter, quote)
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} is not a CSV file: {error}; {STRAY_QUOTE}") from None
    has_header = _has_header(rows, missing, path) if header is None else header
    names = rows[0] if has_header else [""] * len(rows[0])
    columns = columns_of(rows[1:] if has_header else rows, len(names))
    present = [[cell for cell in column if cell not in missing] for column in columns]
    names = distinct_names([name or f"x{i}" for i, name in enumerate(names)], str(path))
    return Dialect(
        delimiter=delimiter,
        header=has_header,
        column_names=tuple(names),
        skip_lines=blank_lines + (_header_lines(content, delimiter, quote) if has_header else 0),
        longest_line=max(map(len, content.split("\n"))),
        encoding=encoding,
        decimal=given.decimal or _decimal(present, delimiter, likely.decimal, path),
        quote=quote,
        shows_point=shows_decimal_point(present),
        numbers_rows=has_header and not rows[0][0] and numbers_rows(columns[0]),
    )


def _check(given: Hints) -> None:
    if given.delimiter is not None and len(given.delimiter) != 1:
        raise ValueError(f"delimiter must be one character, got {given.delimiter!r}")
    if given.decimal is not None and given.decimal not in DECIMALS:
        raise ValueError(f"decimal must be '.' or ',', got {given.decimal!r}")


def _decoded(path: Path, given: str | None, likely: str | None) -> tuple[str, str]:
    """Return the encoding and the first lines.

    Text that is not plain ASCII and yet valid UTF-8 is in no other encoding.
    """
    sample, encoding = read_sample(path), given or likely or "utf8"
    if given is None and likely is not None and not sample.isascii():
        try:
            sample.decode("utf8")
            encoding = "utf8"
        except UnicodeDecodeError:
            pass
    try:
        return encoding, sample.decode(encoding, errors="replace").lstrip("\ufeff")
    except LookupError:
        raise ValueError(f"encoding {encoding!r} is not known to Python") from None


def _first_said(*answers: str | None) -> str:
    """Return the first that is not None."""
    return next(answer for answer in answers if answer is not None)


def _decimal(columns: list[list[str]], delimiter: str, likely: str | None, path: Path) -> str:
    try:
        return decimal_sign(columns, delimiter, likely)
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from None


def _reader(text: str, delimiter: str, quote: str) -> Any:
    form: Any = {"quoting": csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE}
    lines = StringIO(text, newline="")
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, **form)


def _rows(text: str, delimiter: str, quote: str) -> list[list[str]]:
    """Return the cells of the first rows, without surrounding spaces."""
    reader = _reader(text, delimiter, quote)
    return [[cell.strip() for cell in row] for row in islice(reader, SAMPLE_ROWS) if row]


def _header_lines(text: str, delimiter: str, quote: str) -> int:
    """Count the lines of the first row: a quoted name may contain line ends."""
    reader = _reader(text, delimiter, quote)
    next(reader)
    return int(reader.line_num)


def _delimiter(text: str, likely: str | None, quote: str) -> str:
    """Choose the delimiter that cuts the most rows into the same number of cells.

    Where commas and semicolons both do, the comma is more likely inside the numbers.
    """
    best, best_share = ",", 0.0
    for candidate in ([likely] if likely else []) + ["\t", ";", ","]:
        try:
            widths = Counter(len(row) for row in _rows(text, candidate, quote))
        except csv.Error:  # a cell too long to be one
            continue
        width, count = widths.most_common(1)[0]
        share = count / widths.total() if width > 1 else 0.0
        if share > best_share:
            best, best_share = candidate, share
    return best


def _has_header(rows: list[list[str]], missing: Collection[str], path: Path) -> bool:
    found = names_columns(rows, missing)
    if found is None:
        start = ", ".join(map(repr, rows[0][:5]))
        raise ValueError(
            f"{str(path)!r}: the first row ({start}, ...) may be names of columns or data; use "
            "header=True if it has the names, header=False if it is data"
        )
    return found
