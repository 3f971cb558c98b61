"""Detection of the dialect of a CSV file from its first lines: delimiter, header, decimals."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Self

from likelier.data.files import read_sample
from likelier.data.header import (
    columns_of,
    distinct_names,
    lines_above,
    names_columns,
    numbers_rows,
    repeats_names,
)
from likelier.data.notation import DECIMALS, decimal_sign, shows_decimal_point

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None")
SAMPLE_ROWS = 1000
DELIMITERS = ("\t", ";", ",", "|")
NAME_ENCODING = "convert it to UTF-8, or name its encoding ('cp1252'?)"
STRAY_QUOTE = (
    'double a quotation mark that is part of a text (""), or use quotes=False if no cells are '
    "quoted"
)
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Excel's delimiter line, which may be quoted or padded with delimiters.
_SEP_LINE = re.compile(r'"?sep=(?P<sign>[^\r\n"])"?(?P=sign)*(?:\r?\n)+')


@dataclass(frozen=True)
class Hints:
    """Dialect of a training file, to be assumed for later files.

    A later file may override it if its own lines show another dialect. None means detected, and to
    be detected again. ``quote`` is the quote character, empty if quotation marks are plain text.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    quote: str | None = None

    def to_json(self) -> dict[str, str | None]:
        """Return the hints as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Any) -> Self:
        """Return the hints that `to_json` wrote."""
        hints = cls(**plain)
        if not all(isinstance(value, str | None) for value in asdict(hints).values()):
            raise TypeError(f"hints must be strings or None, got {plain!r}")
        return hints


NO_HINTS = Hints()


@dataclass(frozen=True)
class Dialect:
    """How to read a CSV file.

    ``skip_lines`` counts the lines before the first row of data; ``longest_line`` is the number of
    characters of the longest line sampled. A file without a header gets the column names ``x0``,
    ``x1``, ... ``shows_point`` means that its numbers have decimal points, and ``numbers_rows``
    that the first column is an unnamed row index, as data frames write it.
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
    """Detect the dialect of a file.

    Values of ``given`` and ``header`` other than None are taken as given; ``likely`` is the dialect
    of the training file; ``missing`` are the texts that mean a missing value.
    """
    _check(given)
    encoding, text, clean = _decoded(path, given.encoding, likely.encoding)
    content, named = _without_sep_line(text.lstrip("\r\n"))
    if not content.strip():
        raise ValueError(f"{str(path)!r} contains no rows, only empty lines")
    lines_before = text[: len(text) - len(content)].count("\n")
    quote = _first_given(given.quote, likely.quote, '"')
    try:
        delimiter = given.delimiter or named or _delimiter(content, likely.delimiter, quote)
        rows = _rows(content, delimiter, quote)
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} is not a CSV file: {error}; {STRAY_QUOTE}") from None
    _check_rows(path, rows, content.split("\n"), lines_before, header, missing)
    has_header = _has_header(rows, missing, path) if header is None else header
    names = rows[0] if has_header else [""] * len(rows[0])
    if not clean and any("\ufffd" in name for name in names):
        raise ValueError(_undecoded(path, names, encoding))
    columns = columns_of(rows[1:] if has_header else rows, len(names))
    present = [[cell for cell in column if cell not in missing] for column in columns]
    names = distinct_names([name or f"x{i}" for i, name in enumerate(names)], str(path))
    return Dialect(
        delimiter=delimiter,
        header=has_header,
        column_names=tuple(names),
        skip_lines=lines_before + (_header_lines(content, delimiter, quote) if has_header else 0),
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


def _decoded(path: Path, given: str | None, likely: str | None) -> tuple[str, str, bool]:
    """Return the encoding, the first lines, and whether they are valid in that encoding.

    A byte order mark implies UTF-16 or UTF-32. Non-ASCII text that is valid UTF-8 is assumed to be
    UTF-8.
    """
    sample = read_sample(path)
    marked = next((name for mark, name in _BYTE_ORDER_MARKS.items() if sample.startswith(mark)), "")
    encoding = given or marked or likely or "utf8"
    if given is None and likely is not None and not marked and not sample.isascii():
        encoding = "utf8" if _decodes(sample, "utf8") else likely
    try:
        # The sample may end within a character, which the incremental decoder drops.
        text = codecs.getincrementaldecoder(encoding)("replace").decode(sample)
    except LookupError:
        raise ValueError(f"unknown encoding {encoding!r}; use a name such as 'cp1252'") from None
    return encoding, text.lstrip("\ufeff"), _decodes(sample, encoding)


def _decodes(sample: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)("strict").decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def _undecoded(path: Path, names: list[str], encoding: str) -> str:
    name = next(name for name in names if "\ufffd" in name)
    written = "UTF-8" if encoding == "utf8" else encoding
    return f"{str(path)!r}: the column name {name!r} is not valid {written}; {NAME_ENCODING}"


def _without_sep_line(content: str) -> tuple[str, str | None]:
    """Return the text after Excel's line ``sep=;``, and the delimiter that it names."""
    found = _SEP_LINE.match(content)
    return (content[found.end() :], found["sign"]) if found else (content, None)


def _check_rows(
    path: Path,
    rows: list[list[str]],
    lines: list[str],
    lines_before: int,
    header: bool | None,
    missing: Collection[str],
) -> None:
    """Raise if there are lines above the header, or if the header is repeated."""
    if lines_above(rows, missing):
        one_cell = len(rows[0]) == 1  # a single column of texts with commas looks the same
        raise ValueError(
            f"{str(path)!r}: line {lines_before + 1} ({lines[0].strip()[:80]!r}) is not part of "
            "the table; remove the lines above the header"
            + (", or name the delimiter if there is only one column" if one_cell else "")
        )
    if header is not False and repeats_names(rows, missing):
        first = lines[0].rstrip("\r")
        again = next((n for n, line in enumerate(lines) if n and line.rstrip("\r") == first), None)
        number = again or rows.index(rows[0], 1)
        raise ValueError(repeated_names(str(path), lines_before + number + 1))


def repeated_names(name: str, line: int | None) -> str:
    """Return the error message for a repeated header."""
    return f"{name!r}: line {line or '?'} repeats the column names; remove it"


def _first_given(*values: str | None) -> str:
    """Return the first value that is not None."""
    return next(value for value in values if value is not None)


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
    """Count the lines of the first row: a quoted name may contain line breaks."""
    reader = _reader(text, delimiter, quote)
    next(reader)
    return int(reader.line_num)


def _delimiter(text: str, likely: str | None, quote: str) -> str:
    """Choose the delimiter that splits the most rows into the same number of cells.

    If both commas and semicolons do, the comma is more likely a decimal separator. Vertical bars
    may be part of a single text column, so they must split the first row as well.
    """
    best, best_fraction = ",", 0.0
    for candidate in ([likely] if likely else []) + list(DELIMITERS):
        try:
            lengths = [len(row) for row in _rows(text, candidate, quote)]
        except csv.Error:  # a cell exceeds the size limit
            continue
        width, count = Counter(lengths).most_common(1)[0]
        fraction = count / len(lengths) if width > 1 else 0.0
        if candidate == "|" != likely and lengths[0] != width:
            fraction = 0.0
        if fraction > best_fraction:
            best, best_fraction = candidate, fraction
    return best


def _has_header(rows: list[list[str]], missing: Collection[str], path: Path) -> bool:
    found = names_columns(rows, missing)
    if found is None:
        start = ", ".join(map(repr, rows[0][:5]))
        raise ValueError(
            f"{str(path)!r}: the first row ({start}, ...) may be column names or data; use "
            "header=True if it has the names, header=False if it is data"
        )
    return found
