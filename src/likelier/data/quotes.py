"""Stray quotation marks in CSV files: told from cells that took in the rows up to the next one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from likelier.data.header import is_numeric

# So many rows of a batch show what the columns hold.
_SHOWN = 1000


def swallowed_rows(batch: pa.RecordBatch, delimiter: str) -> str | None:
    """Return a cell that seems to hold the ends and beginnings of rows, None if there is none.

    A quotation mark that opens a cell by mistake is closed by the next one, rows later. If the
    row it makes of them has the right number of cells, then every line between has too; such a
    cell is told from a quoted text of several lines by whether its pieces fit the other columns.
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
    many = width > 2 and len(inner) > 1  # lines of the right length, whatever they hold
    return False not in fits and (True in fits or many)


def _fits(pieces: Sequence[tuple[int, str]], batch: pa.RecordBatch) -> Iterator[bool | None]:
    """Yield whether each piece could be a value of its column, None where any text could."""
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
        return False  # a comma within a sentence has a space behind it
    trimmed = [value.strip() for value in values]
    if is_numeric(trimmed):
        return is_numeric([piece.strip()])
    if piece.strip() in trimmed:
        return True
    return None if len({*trimmed}) == len(trimmed) else False
