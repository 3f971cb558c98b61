"""The dialect of a CSV file, told from its first lines: delimiter, header, decimal sign."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Self

from likelier.data.files import read_sample
from likelier.data.notation import DECIMALS, decimal_sign, is_written_number

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null")
SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class Hints:
    """How a training file had to be read, where its lines did not say so.

    A later file is read in the same way unless its own lines show another. What is None was
    found out, and will be again.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None

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
    names ``x0``, ``x1``, ... ``numbers_rows`` tells that the first column has no name and a
    number of its own in every row, as data frames write their index.
    """

    delimiter: str
    header: bool
    column_names: tuple[str, ...]
    skip_lines: int
    longest_line: int
    encoding: str
    decimal: str
    numbers_rows: bool


def sniff_dialect(path: Path, given: Hints, header: bool | None, likely: Hints) -> Dialect:
    """Find the dialect of a file.

    What is not None in ``given`` and ``header`` is taken as said; ``likely`` is how the
    training file was read.
    """
    _check(given)
    encoding, text = _decoded(path, given.encoding, likely.encoding)
    content = text.lstrip("\r\n")
    if not content.strip():
        raise ValueError(f"{str(path)!r} holds no rows, only empty lines")
    blank_lines = text[: len(text) - len(content)].count("\n")
    try:
        delimiter = given.delimiter or _delimiter(content, likely.delimiter)
        rows = _rows(content, delimiter)
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} is not a CSV file: {error}") from None
    has_header = _has_header(rows) if header is None else header
    names = _names(rows[0], path) if has_header else [f"x{i}" for i in range(len(rows[0]))]
    columns = _columns(rows[1:] if has_header else rows, len(names))
    present = ([cell for cell in column if cell not in MISSING] for column in columns)
    return Dialect(
        delimiter=delimiter,
        header=has_header,
        column_names=tuple(names),
        skip_lines=blank_lines + (_header_lines(content, delimiter) if has_header else 0),
        longest_line=max(map(len, content.split("\n"))),
        encoding=encoding,
        decimal=given.decimal or decimal_sign(present, delimiter, likely.decimal),
        numbers_rows=has_header and not rows[0][0] and _numbers_rows(columns[0]),
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


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the cells of the first rows, without surrounding spaces."""
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in islice(reader, SAMPLE_ROWS) if row]


def _header_lines(text: str, delimiter: str) -> int:
    """Count the lines of the first row: a quoted name may contain line ends."""
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    next(reader)
    return reader.line_num


def _delimiter(text: str, likely: str | None) -> str:
    """Choose the delimiter that cuts the most rows into the same number of cells.

    Where commas and semicolons both do, the comma is more likely inside the numbers.
    """
    best, best_share = ",", 0.0
    for candidate in ([likely] if likely else []) + ["\t", ";", ","]:
        try:
            widths = Counter(len(row) for row in _rows(text, candidate))
        except csv.Error:  # a cell too long to be one
            continue
        width, count = widths.most_common(1)[0]
        share = count / widths.total() if width > 1 else 0.0
        if share > best_share:
            best, best_share = candidate, share
    return best


def _has_header(rows: list[list[str]]) -> bool:
    """Whether the first row names the columns.

    Text above a column of numbers settles it. Otherwise names are neither numbers nor
    missing, are all different, and do not come again as values.
    """
    first = rows[0]
    columns = _columns(rows[1:], len(first))
    pairs = list(zip(first, columns, strict=True))
    texts = [not _is_number(cell) and cell not in MISSING for cell in first]
    if any(text and _is_numeric(column) for text, column in zip(texts, columns, strict=True)):
        return True
    distinct = len(set(first)) == len(first)
    return all(texts) and distinct and not any(cell in column for cell, column in pairs)


def _columns(rows: list[list[str]], width: int) -> list[tuple[str, ...]]:
    """Return the cells by column; rows that are too short or too long are left out."""
    whole = [row for row in rows if len(row) == width]
    return list(zip(*whole, strict=True)) or [()] * width


def _numbers_rows(column: Sequence[str]) -> bool:
    """Whether a column has another whole number in every row."""
    return all(map(str.isdecimal, column)) and 1 < len(column) == len(set(column))


def _is_number(cell: str) -> bool:
    return cell not in MISSING and is_written_number(cell)


def _is_numeric(column: tuple[str, ...]) -> bool:
    values = [cell for cell in column if cell not in MISSING]
    return bool(values) and all(map(_is_number, values))


def _names(header: list[str], path: Path) -> list[str]:
    """Return the column names; a nameless column is named by its position."""
    names = [name or f"x{i}" for i, name in enumerate(header)]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(
            f"{str(path)!r} has several columns named {', '.join(map(repr, twice))}; "
            "rename them, or say that the file has no header"
        )
    return names
