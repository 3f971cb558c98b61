"""Write predictions block by block to CSV or Parquet; the file appears only when it is whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from likelier.base import Array
from likelier.persistence import replacing

STDOUT = "-"
_PARQUET = (".parquet", ".pq")
_CSV = (".csv",)


def check_output_name(path: str) -> None:
    """Refuse a name whose extension says neither CSV nor Parquet, before any work is done."""
    if path != STDOUT and Path(path).suffix.lower() not in (*_PARQUET, *_CSV):
        raise ValueError(
            f"cannot tell the format of the output {path!r}; "
            "end its name in .csv or .parquet, or give - for CSV on standard output."
        )


class PredictionWriter:
    """Appends blocks of columns to an open file."""

    def __init__(self, file: Path | BinaryIO, parquet: bool) -> None:
        self._file = file
        self._parquet = parquet
        self._writer: Any = None
        self.rows = 0

    def write(self, columns: Mapping[str, Array]) -> None:
        """Append one block; every block has the same columns."""
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        if self._writer is None:
            kind = pa.parquet.ParquetWriter if self._parquet else pa.csv.CSVWriter
            self._writer = kind(self._file, table.schema)
        self._writer.write_table(table)
        self.rows += table.num_rows

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def prediction_file(path: str) -> Iterator[PredictionWriter]:
    """Open the output; it takes its name only if the block ends without an error."""
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
