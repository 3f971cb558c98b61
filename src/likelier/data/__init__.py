"""Readers: from files, data frames and iterators to blocks of columns or rows.

`open_table` reads named columns of a CSV or Parquet file or a frame, and `LibsvmFile` sparse rows.
Files are never read into memory as a whole. The interpretation of columns, and `block_source`, are
in `likelier.tables`.
"""

from likelier.data.libsvm import LibsvmFile, LibsvmLayout
from likelier.data.sources import IterableSource, LibsvmSource, Source
from likelier.data.tables import Table, open_table

__all__ = [
    "IterableSource",
    "LibsvmFile",
    "LibsvmLayout",
    "LibsvmSource",
    "Source",
    "Table",
    "open_table",
]
