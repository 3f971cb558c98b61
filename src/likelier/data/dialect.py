"""The dialect of a CSV file, told from its first lines: delimiter, header, column names."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path

from likelier.data.files import read_sample

DELIMITERS = (",", ";", "\t")
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "NULL", "null")
SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class Dialect:
    """How to read a CSV file.

    ``skip_lines`` counts the lines before the first row of data; ``longest_line`` is the
    number of characters of the longest line seen. A file without a header gets the column
    names ``x0``, ``x1``, ...
    """

    delimiter: str
    header: bool
    column_names: tuple[str, ...]
    skip_lines: int
    longest_line: int


def sniff_dialect(path: Path, delimiter: str | None, header: bool | None, encoding: str) -> Dialect:
    """Find the dialect of a file; what is not None is taken as given."""
    if delimiter is not None and len(delimiter) != 1:
        raise ValueError(f"delimiter must be one character, got {delimiter!r}")
    try:
        text = read_sample(path).decode(encoding, errors="replace").lstrip("\ufeff")
    except LookupError:
        raise ValueError(f"encoding {encoding!r} is not known to Python") from None
    content = text.lstrip("\r\n")
    if not content.strip():
        raise ValueError(f"{str(path)!r} holds no rows, only empty lines")
    blank_lines = text[: len(text) - len(content)].count("\n")
    try:
        found = delimiter or _delimiter(content)
        rows = _rows(content, found)
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} is not a CSV file: {error}") from None
    has_header = _has_header(rows) if header is None else header
    names = _names(rows[0], path) if has_header else [f"x{i}" for i in range(len(rows[0]))]
    header_lines = _header_lines(content, found) if has_header else 0
    longest = max(map(len, content.split("\n")))
    return Dialect(found, has_header, tuple(names), blank_lines + header_lines, longest)


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the cells of the first rows, without surrounding spaces."""
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in islice(reader, SAMPLE_ROWS) if row]


def _header_lines(text: str, delimiter: str) -> int:
    """Count the lines of the first row: a quoted name may contain line ends."""
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    next(reader)
    return reader.line_num


def _delimiter(text: str) -> str:
    """Choose the delimiter that cuts the most rows into the same number of cells.

    Where commas and semicolons both do, the comma is more likely inside the numbers.
    """
    best, best_share = ",", 0.0
    for candidate in ("\t", ";", ","):
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
    first, others = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = list(zip(*others, strict=True)) or [()] * len(first)
    pairs = list(zip(first, columns, strict=True))
    texts = [not _is_number(cell) and cell not in MISSING for cell in first]
    if any(text and _is_numeric(column) for text, column in zip(texts, columns, strict=True)):
        return True
    distinct = len(set(first)) == len(first)
    return all(texts) and distinct and not any(cell in column for cell, column in pairs)


def _is_number(cell: str) -> bool:
    if cell in MISSING:
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


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
