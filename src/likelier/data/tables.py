"""Tables: named columns that are read block by block, as often as needed."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from likelier.data.columns import text_scalar, without_marks
from likelier.data.dialect import (
    MISSING,
    NAME_ENCODING,
    NO_HINTS,
    STRAY_QUOTE,
    Hints,
    repeated_names,
    sniff_dialect,
)
from likelier.data.files import as_path, detect_format, line_number, open_bytes, open_whole_lines
from likelier.data.header import distinct_names
from likelier.data.notation import as_number
from likelier.data.quotes import swallowed_rows

CSV_CHUNK_BYTES = 1 << 18
CSV_CHUNK_ROWS = 256
CSV_LARGE_CHUNK_BYTES = 1 << 22
PARQUET_BUFFER_BYTES = 1 << 20
# Names of unnamed pandas index levels in a Parquet file.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
# Arrow's error message quotes the start of a row with too many or too few cells.
_WRONG_NUMBER = re.compile(r"Expected \d+ columns, got \d+: (?P<row>.*?)(?P<more> \.\.\.)?\Z", re.S)


class Table(ABC):
    """Named columns of equal length that can be read repeatedly.

    Attributes
    ----------
    name : str
        Name of the table in messages.
    column_names : list of str
        The columns in order.
    header : bool
        Whether the data have column names; otherwise they are ``x0``, ``x1``, ... by position.
    untyped : bool
        Whether every column is text whose type has to be detected (CSV).
    missing_values : tuple of str
        Texts that mean a missing value; empty for typed tables, which have nulls.
    decimal : str
        Decimal separator of numbers in text.
    index_columns : tuple of str
        Row indices, which are not used as features.
    hints : Hints
        Dialect, for later files of the same origin.
    delimiter : str
        Delimiter of a CSV file; empty for other tables.
    """

    name: str
    column_names: list[str]
    header: bool = True
    untyped: bool = False
    missing_values: tuple[str, ...] = ()
    decimal: str = "."
    index_columns: tuple[str, ...] = ()
    hints: Hints = NO_HINTS
    delimiter: str = ""

    @abstractmethod
    def blocks(
        self, block_rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches of ``block_rows`` rows (the last may be shorter), from the start.

        If ``columns`` is given, only these are read.
        """


class CsvTable(Table):
    """A CSV file, compressed or not, read as text in bounded memory."""

    untyped = True

    def __init__(
        self,
        path: Path,
        given: Hints = NO_HINTS,
        *,
        header: bool | None = None,
        missing_values: Sequence[str] = MISSING,
        likely: Hints = NO_HINTS,
    ) -> None:
        self._path = path
        missing_values = tuple(missing_values)
        self._dialect = dialect = sniff_dialect(path, given, header, likely, missing_values)
        self.name = str(path)
        self.column_names = list(dialect.column_names)
        self.header, self.decimal = dialect.header, dialect.decimal
        self.delimiter = dialect.delimiter
        self.missing_values = missing_values
        self.index_columns = (dialect.column_names[0],) if dialect.numbers_rows else ()
        shown = dialect.decimal if dialect.decimal == "," or dialect.shows_point else None
        self.hints = replace(given, decimal=given.decimal or shown)
        self._all_seen = not dialect.quote  # without quotes no cell holds rows

    def blocks(
        self, block_rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches of strings; a missing value is null."""
        columns = self.column_names if columns is None else list(columns)
        if not columns:
            raise ValueError("columns must name at least one column")
        try:
            with ExitStack() as files:
                seen = columns if self._all_seen else self.column_names
                reader = files.enter_context(self._open(seen, files))
                yield from rechunk(self._checked(reader, columns), block_rows)
                self._all_seen = True
        except (pa.ArrowException, OSError) as error:
            if "Empty CSV file" in str(error) or "Could not skip initial" in str(error):
                return  # nothing follows the header
            raise ValueError(
                f"{self.name!r} cannot be read as CSV: {self._line(error)}{_explain(error)}"
            ) from error
        except UnicodeError as error:
            raise ValueError(f"{self.name!r} cannot be read: {error}; {NAME_ENCODING}") from error

    def _checked(
        self, batches: Iterable[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns, null where a number means a missing value.

        The first pass checks all columns for stray quotation marks, which swallow rows.
        """
        marks = (mark.replace(self.decimal, ".") for mark in self.missing_values)
        numbers = [number for number in map(as_number, marks) if number is not None]
        for batch in batches:
            if not self._all_seen:
                self._check(batch)
            batch = batch.select(list(columns))
            yield without_marks(batch, numbers, self.decimal) if numbers else batch

    def _check(self, batch: pa.RecordBatch) -> None:
        cell = swallowed_rows(batch, self._dialect.delimiter)
        if cell is not None:
            raise ValueError(self._stray_quote(cell))
        if self.header and len(self.column_names) > 1 and _has_row(batch, self.column_names):
            raise ValueError(repeated_names(self.name, self._repeated_line()))

    def _stray_quote(self, cell: str) -> str:
        first, *others = cell.rstrip("\r\n").split("\n")
        start = f'"{first}'.rstrip("\r")
        line = line_number(self._path, self._dialect.encoding, lambda text: start in text) or 1
        return (
            f"{self.name!r}, line {line}: a quotation mark opens a cell that would swallow the "
            f"next {len(others)} lines; {STRAY_QUOTE}"
        )

    def _repeated_line(self) -> int | None:
        """Return the number of the line that repeats the header."""
        found = 0

        def repeated(text: str) -> bool:
            nonlocal found
            cells = text.lstrip("\ufeff").split(self.delimiter)
            found += [cell.strip().strip('"') for cell in cells] == self.column_names
            return found > 1

        return line_number(self._path, self._dialect.encoding, repeated)

    def _line(self, error: Exception) -> str:
        """Return a prefix with the line that has the wrong number of cells."""
        wrong = _WRONG_NUMBER.search(str(error))
        if wrong is None:
            return ""
        start = wrong["row"].split("\n")[0].rstrip("\r")
        number = line_number(
            self._path,
            self._dialect.encoding,
            lambda text: text == start or (bool(wrong["more"]) and text.startswith(start)),
        )
        return f"line {number}: " if number else ""

    def _open(self, columns: Sequence[str], files: ExitStack) -> Any:
        dialect, encoding = self._dialect, self._dialect.encoding
        single = len(self.column_names) == 1  # an empty line is a row without a value
        stream: Any = str(self._path)  # Arrow itself decompresses the usual formats
        if single:
            stream = files.enter_context(open_whole_lines(self._path, encoding))
            encoding = "utf8"
        elif self._path.suffix.lower() == ".xz":
            stream = files.enter_context(open_bytes(self._path))
        # The reader compares whole cells; other padding is handled when types are known.
        padded = [
            a + text + b for a in ("", " ") for text in self.missing_values for b in ("", " ")
        ]
        return pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(
                column_names=self.column_names,
                skip_rows=dialect.skip_lines,
                block_size=_chunk_bytes(dialect.longest_line),
                encoding=encoding,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote or False,
                newlines_in_values=bool(dialect.quote),
                ignore_empty_lines=not single,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={name: pa.string() for name in columns},
                include_columns=columns,
                null_values=padded,
                strings_can_be_null=True,
            ),
        )


class ParquetTable(Table):
    """A Parquet file, read in bounded memory.

    An unnamed pandas index is not used as a feature; a named one is a column like any other, as in
    other tools.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        from pyarrow import parquet  # which reading CSV files does not need

        try:
            schema = parquet.read_schema(path)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{self.name!r} is not a Parquet file: {error}") from error
        self.column_names = list(schema.names)
        if len({*schema.names}) < len(schema.names):  # columns are read by name
            raise ValueError(f"{self.name!r} has duplicate column names; rename them")
        self.index_columns = tuple(filter(_UNNAMED_INDEX.fullmatch, self.column_names))

    def blocks(
        self, block_rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches with the types of the file."""
        from pyarrow import parquet

        columns = self.column_names if columns is None else list(columns)
        try:
            # Without pre-buffering, columns are read in small parts instead of whole row groups.
            with parquet.ParquetFile(
                self._path, buffer_size=PARQUET_BUFFER_BYTES, pre_buffer=False
            ) as file:
                batches = file.iter_batches(block_rows, columns=columns, use_threads=False)
                yield from rechunk((batch.select(columns) for batch in batches), block_rows)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{self.name!r} is damaged: {error}") from error


class FrameTable(Table):
    """Columns in memory: a pandas, Polars or Arrow frame, or a dictionary of columns."""

    missing_values = ("",)

    def __init__(self, frame: Any) -> None:
        kind = type(frame).__module__.partition(".")[0]
        self.name = "the dictionary" if isinstance(frame, dict) else f"the {kind} frame"
        try:
            table, names = _arrow_table(frame)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(
                f"{self.name} has a column with values of different types: {error}"
            ) from error
        self.column_names = distinct_names(names, self.name)
        self._table = table.rename_columns(self.column_names)

    def blocks(
        self, block_rows: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches that share the memory of the frame if possible."""
        table = self._table if columns is None else self._table.select(list(columns))
        views = [i for i, type in enumerate(table.schema.types) if pa.types.is_string_view(type)]
        for batch in rechunk(table.to_batches(max_chunksize=block_rows), block_rows):
            for i in views:  # Arrow cannot take rows from string views
                batch = batch.set_column(i, batch.schema.names[i], batch[i].cast(pa.string()))
            yield batch


def open_table(data: str | os.PathLike[str] | Any, format: str | None = None, **csv: Any) -> Table:
    """Open a CSV or Parquet file, or a data frame, as a `Table`.

    Parameters
    ----------
    data : path, data frame or dict
        A file (CSV, also compressed; Parquet), a pandas, Polars or Arrow frame, or columns of
        equal length by their names.
    format : {"csv", "parquet"}, optional
        The file format; detected from the name or content by default.
    **csv
        Dialect options of a CSV file that should not be detected: ``delimiter``, ``header``
        (whether the first line has the column names), ``missing_values`` (the texts that mean a
        missing value) or ``also_missing`` (texts besides the usual ones), ``encoding``,
        ``decimal`` (the decimal separator) and ``quotes`` (whether cells may be quoted; False if
        quotation marks are plain text). ``likely`` are the `Hints` of another file, which apply if
        this file is inconclusive. A number in ``missing_values`` matches in numeric columns
        however it is written.

    Notes
    -----
    Row indices are listed in ``index_columns`` and not used as features: the unnamed index of a
    pandas frame, and an unnamed first CSV column with a distinct integer in every row. Duplicate
    column names are numbered (``a``, ``a_2``). In a CSV file with one column, an empty line is a
    missing value, except at the end of the file.
    """
    if not isinstance(data, str | os.PathLike):
        return FrameTable(data)
    path = as_path(data)
    found = format or detect_format(path)
    if found == "csv":
        also = csv.pop("also_missing", ())
        csv["missing_values"] = (*csv.get("missing_values", MISSING), *also)
        given = {name: csv.pop(name, None) for name in ("delimiter", "encoding", "decimal")}
        quote = {None: None, True: '"', False: ""}[csv.pop("quotes", None)]
        return CsvTable(path, Hints(**given, quote=quote), **csv)
    if found == "parquet":
        return ParquetTable(path)
    if found == "libsvm":
        raise ValueError(f"{str(path)!r} is a libsvm file, which has no columns; use open_libsvm")
    raise ValueError(f"format must be 'csv', 'parquet' or 'libsvm', got {format!r}")


def default_block_rows(n_columns: int) -> int:
    """Number of rows in a block of about two megabytes of floats."""
    return min(16384, max(256, (2 << 20) // (8 * max(1, n_columns))))


def rechunk(batches: Iterable[pa.RecordBatch], block_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of exactly ``block_rows``, except the last."""
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}")
    parts: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, block_rows - count)
            batch = batch.slice(part.num_rows)
            parts.append(part)
            count += part.num_rows
            if count == block_rows:
                yield _join(parts)
                parts, count = [], 0
    if parts:
        yield _join(parts)


def _chunk_bytes(longest_line: int) -> int:
    """Chunk size for reading a CSV file: small, but with some hundred rows if lines are long."""
    many_rows = min(CSV_CHUNK_ROWS * longest_line, CSV_LARGE_CHUNK_BYTES)
    return max(CSV_CHUNK_BYTES, many_rows, 8 * longest_line)


def _arrow_table(frame: Any) -> tuple[pa.Table, list[str]]:
    """Return the columns of a frame and their names, possibly with duplicates."""
    import narwhals as nw  # which reading files does not need

    own: list[str] = []
    if isinstance(frame, dict):
        return _table_of_columns(frame), [str(name) for name in frame]
    if nw.dependencies.is_pandas_like_dataframe(frame):
        own = [str(name) for name in frame.columns]
        # without its index, which would become a column of a frame that was split or sorted
        frame = frame.set_axis([f"{i}" for i in range(len(own))], axis=1).reset_index(drop=True)
    if not isinstance(frame, pa.Table):  # which may have duplicate column names
        frame = nw.from_native(frame, eager_only=True)
        try:
            frame = frame.to_arrow()
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # text and numbers in one column
            frame = _table_of_columns({name: frame[name].to_list() for name in frame.columns})
    return frame, [*own, *frame.column_names[len(own) :]]


def _table_of_columns(columns: Mapping[Any, Any]) -> pa.Table:
    """Return columns as an Arrow table; columns of mixed types become text."""
    arrays = [_arrow_column(values) for values in columns.values()]
    lengths = {str(name): len(a) for name, a in zip(columns, arrays, strict=True)}
    if len({*lengths.values()}) > 1:
        raise ValueError(f"the columns have different lengths: {lengths}")
    return pa.Table.from_arrays(arrays, names=[str(name) for name in columns])


def _arrow_column(values: Any) -> Any:
    if hasattr(values, "__arrow_c_array__") or isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.chunked_array([values]) if isinstance(values, pa.Array) else values
    values = values.tolist() if getattr(values, "dtype", None) == np.dtype(object) else values
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        pass
    items = [None if item is None or item != item else item for item in values]
    if not all(isinstance(item, str | int | float | bool | None) for item in items):
        kinds = sorted({type(item).__name__ for item in items if item is not None})
        raise ValueError(
            f"a column contains values of types {', '.join(kinds)}; convert it to text"
        )
    return pa.array([None if item is None else str(item) for item in items], pa.string())


def _has_row(batch: pa.RecordBatch, cells: Sequence[str]) -> bool:
    """Whether a row equals these cells."""
    rows = batch.filter(pc.equal(batch.column(0), text_scalar(cells[0])))
    found = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return any([cell and cell.strip() for cell in row] == list(cells) for row in found)


def _join(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _explain(error: Exception) -> str:
    """Add advice to the error message of the reader."""
    message = str(error)
    if "UTF8" in message:
        return f"{message}; {NAME_ENCODING}"
    if "straddling" in message:
        long = "a row is far longer than the first rows, or a quotation mark is never closed"
        return f"{long}; {STRAY_QUOTE}"
    if "Expected" in message and "columns" in message:
        advice = "remove lines that are not part of the table, quote text that contains the "
        advice += "delimiter, or name another delimiter"
        return f"{message}; {advice}{'; ' + STRAY_QUOTE if chr(34) in message else ''}"
    return message
