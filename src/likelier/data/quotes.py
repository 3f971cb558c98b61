"""Detection of stray quotation marks in CSV files, from cells that swallowed several rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from likelier.data.header import is_numeric

# Rows of a batch that are inspected to infer the type of each column.
_SHOWN = 1000


def swallowed_rows(batch: pa.RecordBatch, delimiter: str) -> str | None:
    """Return a cell that seems to contain the ends and starts of rows, or None.

    A stray opening quotation mark is closed by the next one, rows later. If the resulting row has
    the right number of cells, so has every line in between. Such a cell is distinguished from
    quoted multi-line text by whether its parts fit the other columns.
    """
    width = batch.num_columns
    if width == 1:
        return None
    for position in range(width):
        column = batch.column(position)
        characters = column.buffers()[2]
        if characters is None or b"\n" not in characters.to_pybytes():
            continue
        for cell in column.filter(pc.match_substring(column, "\n")).to_pylist():
            if _holds_rows(cell, position, batch, delimiter):
                return str(cell)
    return None


def _holds_rows(cell: str, position: int, batch: pa.RecordBatch, delimiter: str) -> bool:
    lines = cell.rstrip("\r\n").split("\n")
    width = batch.num_columns
    if len(lines) == 1:
        return False
    first, *inner, last = (line.rstrip("\r").split(delimiter) for line in lines)
    if len(first) != width - position or len(last) > width:
        return False
    if any(len(cells) != width for cells in inner):
        return False
    pieces = [*enumerate(first[1:], position + 1), *enumerate(last[:position])]
    pieces += [(i, piece) for cells in inner for i, piece in enumerate(cells) if i != position]
    fits = list(_fits(pieces, batch))
    many = width > 2 and len(inner) > 1  # several lines with the right number of cells
    return False not in fits and (True in fits or many)


def _fits(pieces: Sequence[tuple[int, str]], batch: pa.RecordBatch) -> Iterator[bool | None]:
    """Yield whether each piece fits its column, None if the column accepts any text."""
    columns: dict[int, list[str]] = {}
    for position, piece in pieces:
        if position not in columns:
            shown = batch.column(position).slice(0, _SHOWN).drop_null().to_pylist()
            columns[position] = [value for value in shown if "\n" not in value]
        yield _fits_column(piece, columns[position])


def _fits_column(piece: str, values: Sequence[str]) -> bool | None:
    if not values or not piece.strip():
        return None
    if piece[0].isspace() and not values[0][:1].isspace():
        return False  # a comma within a sentence is followed by a space
    trimmed = [value.strip() for value in values]
    if is_numeric(trimmed):
        return is_numeric([piece.strip()])
    if piece.strip() in trimmed:
        return True
    return None if len({*trimmed}) == len(trimmed) else False
