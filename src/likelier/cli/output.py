"""Write predictions block by block to CSV or Parquet, never over a file of another kind.

The file takes its name only when it is complete.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv

from likelier.base import Array
from likelier.files.archive import check_writable, is_model_file, replacing
from likelier.tables import arrow_array

# pyarrow replaces Python's signal handlers while it reads a file; a SIGTERM during that time would
# end the process without cleaning up.
pa.enable_signal_handlers(False)

STDOUT = "-"
_PARQUET = (".parquet", ".pq")
_CSV = (".csv",)


def check_output_name(path: str) -> None:
    """Raise if the extension is neither CSV nor Parquet, before any work is done."""
    if path != STDOUT and Path(path).suffix.lower() not in (*_PARQUET, *_CSV):
        raise ValueError(
            f"unknown format of the output {path!r}; "
            "end its name in .csv or .parquet, or use - for CSV on standard output."
        )


def check_model_output(path: str, inputs: Sequence[str], force: bool) -> None:
    """Raise if the path is an input or, without ``force``, an existing file that is no model."""
    _check_output(path, inputs, force, is_model_file, "a likelier model")


def check_prediction_output(
    path: str, columns: Sequence[str], inputs: Sequence[str], force: bool
) -> None:
    """Raise if the path is an input or, without ``force``, a file with other columns."""
    check_output_name(path)
    if path != STDOUT:
        kind = "a file of predictions with the same columns"
        _check_output(path, inputs, force, lambda old: _column_names(old) == list(columns), kind)


def _check_output(
    path: str, inputs: Sequence[str], force: bool, replaceable: Callable[[str], bool], kind: str
) -> None:
    check_writable(path)
    if not os.path.exists(path):
        return
    for other in inputs:
        if os.path.exists(other) and os.path.samefile(path, other):
            raise ValueError(f"the output {path!r} is the input {other!r}; choose another name.")
    if not force and not replaceable(path):
        raise ValueError(
            f"{path!r} exists and is not {kind}; choose another name, or --force to overwrite it."
        )


def _column_names(path: str) -> list[str] | None:
    """Return the column names of an existing output, or None if it cannot be read as one."""
    try:
        if Path(path).suffix.lower() in _PARQUET:
            from pyarrow import parquet

            return list(parquet.read_schema(path).names)
        with open(path, encoding="utf8", newline="") as file:
            return next(csv.reader(file, strict=True), None)
    except (pa.ArrowException, OSError, UnicodeError, csv.Error):
        return None


class PredictionWriter:
    """Appends blocks of columns to an open file."""

    def __init__(self, file: Path | BinaryIO, parquet: bool) -> None:
        self._file = file
        self.parquet = parquet
        self._writer: Any = None
        self.rows = 0

    def write(self, columns: Mapping[str, Array]) -> None:
        """Append one block; every block has the same columns."""
        table = pa.table({name: arrow_array(values) for name, values in columns.items()})
        if self._writer is None:
            self._writer = _writer(self.parquet)(self._file, table.schema)
        self._writer.write_table(table)
        self.rows += table.num_rows

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


def _writer(to_parquet: bool) -> Any:
    if not to_parquet:
        return pa.csv.CSVWriter
    from pyarrow import parquet  # which CSV files do not need

    return parquet.ParquetWriter


@contextmanager
def prediction_file(path: str) -> Iterator[PredictionWriter]:
    """Open the output; it takes its name only if the ``with`` block ends without an error."""
    if path == STDOUT:
        yield PredictionWriter(sys.stdout.buffer, parquet=False)
        sys.stdout.buffer.flush()
        return
    check_output_name(path)
    with replacing(path) as temporary:
        writer = PredictionWriter(temporary, Path(path).suffix.lower() in _PARQUET)
        try:
            yield writer
        finally:
            writer.close()
