"""Readers: from files, data frames and iterators to blocks of rows.

`block_source` is what estimators use: it returns a source of blocks for anything. Below it,
`open_table` gives named columns of a CSV or Parquet file or a frame, `TableEncoder` turns them
into a matrix, and `LibsvmFile` reads sparse rows. Nothing reads a file into memory as a whole.
"""

from likelier.data.encoder import TableEncoder
from likelier.data.libsvm import LibsvmFile, LibsvmLayout
from likelier.data.sources import Encoder, Source, block_source, encoder_from_json
from likelier.data.tables import Table, open_table

__all__ = [
    "Encoder",
    "LibsvmFile",
    "LibsvmLayout",
    "Source",
    "Table",
    "TableEncoder",
    "block_source",
    "encoder_from_json",
    "open_table",
]
