"""Quotation marks: those of quoted cells, those within text, and those that cost rows."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from likelier.data import open_table
from likelier.data import tables as module
from likelier.tables import block_source


def write(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_bytes(text.encode())
    return path


def rows_of(table, columns=None):
    batches = table.blocks(1000, columns)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def parts(n, seed=0):
    """Rows of a text, a category and numbers."""
    rng = np.random.default_rng(seed)
    words = np.array(["pipe", "tube", "rod", "bar"])
    return [
        [f"{words[rng.integers(4)]} {i}", "ab"[i % 2], f"{rng.normal():.3f}", str(i)]
        for i in range(n)
    ]


def text_of(rows, delimiter=",", end="\n"):
    return end.join(delimiter.join(row) for row in [["what", "kind", "x", "n"], *rows]) + end


@pytest.mark.parametrize(("delimiter", "end"), [(",", "\n"), (";", "\r\n")])
@pytest.mark.parametrize("last", [11, 40, 299])
@pytest.mark.parametrize("closing", ['rod"', '5" rod'])
@pytest.mark.parametrize("column", [0, 1, 3])
def test_rows_between_two_stray_quotes(tmp_path, column, closing, last, delimiter, end):
    rows = parts(300)
    rows[10][column] = '"pipe'
    rows[last][column] = closing
    path = write(tmp_path, text_of(rows, delimiter, end))
    for columns in (None, ["x"]):  # also where the column is not used
        with pytest.raises(ValueError, match=r"data.csv', line 12: a quotation mark.*quotes=False"):
            rows_of(open_table(path), columns)
    found = rows_of(open_table(path, quotes=False))
    assert found == [tuple(row) for row in rows]


def test_a_quote_that_is_closed_by_a_quoted_cell(tmp_path):
    rows = parts(100)
    rows[10][0] = '"pipe'
    rows[50][0] = '"rod, long"'
    with pytest.raises(ValueError, match="quotes=False"):
        rows_of(open_table(write(tmp_path, text_of(rows))))


@pytest.mark.parametrize("first", [0, 10, 295])
def test_a_quote_that_is_never_closed(tmp_path, first):
    rows = [[row[3], row[1], row[2], row[0]] for row in parts(300)]
    rows[first][3] = '"pipe'
    with pytest.raises(ValueError, match=r"line \d+: a quotation mark.*quotes=False"):
        rows_of(open_table(write(tmp_path, text_of(rows)), header=True, delimiter=","))


def test_stray_quotes_in_two_columns_are_explained(tmp_path):
    rows = parts(300)
    rows[10][0], rows[40][1] = '"pipe', 'rod"'
    with pytest.raises(ValueError, match=r"(?s)Expected 4 columns.*quotes=False"):
        rows_of(open_table(write(tmp_path, text_of(rows))))


def test_quotes_inside_cells_are_text(tmp_path):
    rows = parts(300)
    for i in (10, 40, 77):
        rows[i][0] = f'{i}" pipe'
    assert rows_of(open_table(write(tmp_path, text_of(rows)))) == [tuple(row) for row in rows]


NOTES = [
    "one\ntwo",
    "Dear Sir,\n\nI have, as you know,\nno, none",
    "12 Main St, Springfield, IL, 62704\nUSA",
    "a,b\nc,d",
    "ends here\n",
    "\n",
    'said "no", and\nwent, at 5, 6, 7',
]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("others", [["kind"], ["n"], ["n", "kind"], ["kind", "n", "x"]])
def test_quoted_cells_of_several_lines(tmp_path, others, position):
    values = {"kind": lambda i: "uv"[i % 2], "n": str, "x": lambda i: f"{i / 7:.2f}"}
    names = [*others[:position], "note", *others[position:]]
    table = [
        [NOTES[i % 7] if name == "note" else values[name](i) for name in names] for i in range(60)
    ]
    text = io.StringIO()
    csv.writer(text).writerows([names, *table])
    found = rows_of(open_table(write(tmp_path, text.getvalue()), header=True))
    assert found == [tuple(row) for row in table]


def test_small_pieces_are_looked_at_too(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CSV_CHUNK_BYTES", 2000)
    rows = parts(2000)
    rows[1500][0], rows[1510][0] = '"pipe', 'rod"'
    with pytest.raises(ValueError, match="line 1502: a quotation mark.* next 10 lines"):
        rows_of(open_table(write(tmp_path, text_of(rows))))


def test_files_without_quoted_cells_are_remembered(tmp_path):
    rows = parts(100)
    rows[10][1], rows[40][1] = '"a', 'b"'
    path = write(tmp_path, text_of(rows))
    reading = {"exclude": ["what"], "target": "n"}
    encoder = block_source(path, quotes=False, **reading).encoder
    (batch,) = block_source(path, encoder=encoder)()
    assert len(batch.X) == 100
