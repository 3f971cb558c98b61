"""Tables: dialects of CSV, Parquet, frames; exact blocks whatever the source."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from likelier.data import open_table
from likelier.data import tables as module
from likelier.data.files import detect_format


def write(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows_of(table, block_rows=1000, columns=None):
    batches = list(table.blocks(block_rows, columns))
    return [list(row.values()) for batch in batches for row in batch.to_pylist()]


# -- CSV dialects -----------------------------------------------------------------------
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_delimiter_and_header_are_found(tmp_path, delimiter, header, ending):
    lines = [["1", "a b", "2.5"], ["2", "c", "-1e3"], ["3", "a b", "7"]]
    named = [["id", "what", "how much"], *lines] if header else lines
    text = ending.join(delimiter.join(line) for line in named) + ending
    table = open_table(write(tmp_path, text))
    assert table.header is header
    assert table.column_names == (named[0] if header else ["x0", "x1", "x2"])
    assert rows_of(table) == lines


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("a,b\n1,2\n", True),
        ("1,2\n3,4\n", False),
        ("x,y\nred,1\nblue,2\n", True),
        ("red,1\nblue,2\n", False),
        ("colour,size\nred,big\nblue,small\nred,small\n", True),
        ("red,big\nblue,small\nred,small\n", False),
        (",a,b\n0,1,2\n1,3,4\n", True),  # an unnamed index, as pandas writes it
        ("a,?\nb,1\na,2\n", False),
        ("a,NA\nb,1\na,2\n", False),
        ("2010,2011,y\n1,2,3\n", True),
        ("1,?,red\n2,5,blue\n", False),
        ('"a, b","c"\n1,2\n', True),
        ("a, b, c\n1, 2, ?\n", True),
        ("\n\na,b\n1,2\n", True),
        ("\ufeffa,b\n1,2\n", True),
        ("pm2.5,TEMP\nNA,-11\n1,2\n", True),
        ("single\n1\n2\n", True),
        ("1\n2\n", False),
        ("a,b", True),
        # a mark of a missing value in the first row, in any case
        *((f"5,{mark},3\n1,2,3\n4,5,6\n", False) for mark in ("n/a", "N/A", "na", "None", "#N/A")),
        *((f"5,{mark},3\n1,2,3\n4,5,6\n", False) for mark in ("null", "NULL", "?", "-", "--", "")),
        ("5.1,unknown,red\n" + "1.5,2.5,red\n" * 3, False),
        # numbers as names
        (
            "2019,2020,2021,label\n"
            + "".join(f"{i},{i % 7},{i / 9},{'ab'[i % 2]}\n" for i in range(30)),
            True,
        ),
        ("2019,2021,label\n" + "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(30)), True),
        ("x,0,1,2\n" + "".join(f"{i},{i % 7},{i / 9},{i}\n" for i in range(30)), True),
        ("a,4046,4225,b\n" + "".join(f"{i},{400 * i},{500 * i},{i}\n" for i in range(30)), True),
        # data, whatever their first row has
        ("1,2,3,a\n" + "".join(f"{i},{i % 7},{i % 5},{'ab'[i % 2]}\n" for i in range(30)), False),
        ("5,20,3.5,rare\n" + "".join(f"{i},{i % 7},{i},{'ab'[i % 2]}\n" for i in range(30)), False),
        ("1,Ann\n2,Bob\n3,Cid\n", False),
        ("1,2,3\n4,5,6\n", False),
        ("001\n002\n003\n", False),
        (",colour\n0,red\n1,blue\n2,red\n", True),
    ],
)
def test_header(tmp_path, text, header):
    table = open_table(write(tmp_path, text))
    assert table.header is header
    n_lines = len([line for line in text.split("\n") if line.strip()])
    assert len(rows_of(table)) == n_lines - header
    assert open_table(write(tmp_path, text), header=not header).header is not header


@pytest.mark.parametrize(
    "first",
    [
        "5,6,1,c",  # a class that no other row has, or a name
        "0,1,2,3",  # as data frames without names are written
        "2019,2020,2021,2022",
        "5,unknown,1,0",
        "0.5,unknown,1.5,0",
    ],
)
def test_a_first_row_that_may_be_either(tmp_path, first):
    labels = "ab" if first.endswith("c") else "01"
    rows = "".join(f"{i},{i % 9},{i % 6},{labels[i % 2]}\n" for i in range(40))
    path = write(tmp_path, f"{first}\n{rows}")
    with pytest.raises(ValueError, match=r"data.csv.*header=True.*header=False"):
        open_table(path)
    for header in (True, False):
        assert len(rows_of(open_table(path, header=header))) == 41 - header


def test_names_of_columns(tmp_path):
    table = open_table(write(tmp_path, ' a ,"b ""x"" c", ,d\n1,2,3,4\n'), header=True)
    assert table.column_names == ["a", 'b "x" c', "x2", "d"]


def test_columns_of_the_same_name_get_numbers(tmp_path):
    text = "a,a_2,b,a,a,x0,,\n1,2,3,4,5,6,7,8\n"
    with pytest.warns(UserWarning, match="duplicate column names") as told:
        table = open_table(write(tmp_path, text), header=True)
    assert len(told) == 1
    assert table.column_names == ["a", "a_2", "b", "a_3", "a_4", "x0", "x6", "x7"]
    assert rows_of(table) == [list("12345678")]
    text = "red,big,blue\nblue,small,red\n" * 10
    with pytest.warns(UserWarning, match="'colour' as 'colour_2'"):
        assert open_table(write(tmp_path, f"colour,size,colour\n{text}")).header


def test_commas_inside_semicolons(tmp_path):
    table = open_table(write(tmp_path, "a;b\n1,5;2,5\n3,5;4,5\n"))
    assert table.column_names == ["a", "b"]
    assert rows_of(table) == [["1,5", "2,5"], ["3,5", "4,5"]]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a|b,c\n1|2,3\n4|5,6\n", ["a|b", "c"]),
        ("a,b\nx|y|z,1\nu|v|w,2\n", ["a", "b"]),
        ("a|b|c\n1,5|2|3\n2,5|2|3\n", ["a", "b", "c"]),
        ("genres\nComedy|Drama\nAction|War\nWar|Crime\n", ["genres"]),
    ],
)
def test_pipes_between_and_inside_cells(tmp_path, text, names):
    assert open_table(write(tmp_path, text)).column_names == names


def test_missing_values(tmp_path):
    text = "a,b,c,d,e\n1, ?,NA,,x\n2,?, NA ,nan,NULL\n"
    assert rows_of(open_table(write(tmp_path, text))) == [
        ["1", None, None, None, "x"],
        ["2", None, None, None, None],
    ]
    table = open_table(write(tmp_path, text), missing_values=["x"])
    assert rows_of(table) == [["1", " ?", "NA", "", None], ["2", "?", " NA ", "nan", "NULL"]]


def test_the_usual_marks_of_missing_values(tmp_path):
    marks = ["", " ", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None"]
    text = "a,b\n1,2\n" + "".join(f"{mark},0\n" for mark in marks)
    assert rows_of(open_table(write(tmp_path, text)))[1:] == [[None, "0"]] * len(marks)


@pytest.mark.parametrize("mark", ["-999", "-999.0", "-9.99e2", "-999,0"])
def test_numbers_that_stand_for_missing_values(tmp_path, mark):
    decimal = "," if "," in mark else "."
    cells = ["-999", " -999.0", "-999.00", "-9.990000e+02", "-999.5", "999"]
    cells = [cell.replace(".", decimal) for cell in cells]
    text = "a;b;c\n" + "".join(f"{cell};x{cell};0{i}\n" for i, cell in enumerate(cells))
    table = open_table(write(tmp_path, text), also_missing=[mark, "5"], decimal=decimal)
    rows = rows_of(table)
    assert [row[0] for row in rows] == [None] * 4 + cells[4:]
    assert [row[1] for row in rows] == [f"x{cell}" for cell in cells]  # text is compared as such
    assert [row[2] for row in rows] == [f"0{i}" for i in range(6)]  # and so are codes


def test_quotes_and_line_ends_inside_cells(tmp_path):
    text = 'a,b\n"x, y",1\n"two\nlines",2\n"say ""hi""",3\n'
    assert rows_of(open_table(write(tmp_path, text))) == [
        ["x, y", "1"],
        ["two\nlines", "2"],
        ['say "hi"', "3"],
    ]


@pytest.mark.parametrize("sep", ["sep=;\n", '"sep=;"\r\n', "\ufeffsep=;\n\n", "sep=;;;\n"])
def test_the_line_of_excel_names_the_delimiter(tmp_path, sep):
    table = open_table(write(tmp_path, sep + "a;b, c;d\n1;2,5;x\n"))
    assert (table.delimiter, table.column_names) == (";", ["a", "b, c", "d"])
    assert rows_of(table) == [["1", "2,5", "x"]]


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_a_byte_order_mark_tells_the_encoding(tmp_path, encoding, suffix):
    mark = "\ufeff" if encoding.endswith("be") else ""
    rows = [[f"{i}", f"Köln {i}"] for i in range(30_000)]
    data = (mark + "n\tStraße\n" + "".join("\t".join(row) + "\n" for row in rows)).encode(encoding)
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    table = open_table(write(tmp_path, pack(data), f"data.csv{suffix}"))
    assert table.column_names == ["n", "Straße"]
    assert rows_of(table) == rows


@pytest.mark.parametrize("text", ["stadt,größe\nBonn,1\n", "stadt,n\nKöln,1\n", "größe\n1\n"])
def test_other_bytes_than_utf8_ask_for_the_encoding(tmp_path, text):
    path = write(tmp_path, text.encode("cp1252"))
    with pytest.raises(ValueError, match=r"name its encoding \('cp1252'\?\)"):
        rows_of(open_table(path))
    with pytest.raises(ValueError, match="data.csv.*name its encoding"):
        rows_of(open_table(path, encoding="ascii"))
    assert open_table(path, encoding="cp1252").column_names == text.split("\n")[0].split(",")


COLOURS = "red,small,b\nblue,big,a\n" * 30


@pytest.mark.parametrize(
    ("above", "table"),
    [
        ("# export", "a,b,y\n1,2,3\n1,2,4\n"),
        ("Customer report", "a,y\n1,x\n"),
        ("# made, at\n# 2 o'clock", "a,b,y\n1,2,3\n1,2,4\n1,2,4\n"),
        ("Umsatzbericht;;;", "a;b;c;y\n1;2;3;4\n"),
        ("Umsatzbericht;alle;;;\n;;;;", "a;b;c;d;y\n1;x;3;4;5\n"),
        ("Report,,", "colour,size,kind\n" + COLOURS),
        ("Report", "1,2,3\n4,5,6\n"),
    ],
)
@pytest.mark.parametrize("header", [None, True])
def test_lines_above_the_table_are_named(tmp_path, above, table, header):
    line = above.split("\n")[0]
    with pytest.raises(
        ValueError, match=rf"line 1 \('{line}'\) is not part of.*remove the lines above"
    ):
        open_table(write(tmp_path, above + "\n" + table), header=header)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("name,,\nAnn,red,big\nBob,red,big\nCid,blue,small\n", ["x0", "x1", "x2"]),
        ("red,,\n" + COLOURS, ["x0", "x1", "x2"]),
        ("a,b,\n1,2,3\n4,5,6\n", ["a", "b", "x2"]),
        ("Customer report\nx\ny\n", ["Customer report"]),
    ],
)
def test_rows_with_gaps_are_no_titles(tmp_path, text, names):
    assert open_table(write(tmp_path, text)).column_names == names


@pytest.mark.parametrize("end", ["Total rows: 80", "# end, x", "# " + "end" * 99, '"# end"'])
def test_a_line_of_another_length_is_named(tmp_path, end):
    path = write(tmp_path, "a,b,y\n" + "1,2,3\n" * 80 + end + "\n")
    with pytest.raises(ValueError, match="line 82: .*remove lines that are not part.*, quote text"):
        rows_of(open_table(path))


@pytest.mark.parametrize("again", ["a,b,y", '"a",b, y'])
@pytest.mark.parametrize("n_rows", [3, 3000])
@pytest.mark.parametrize("header", [None, True])
def test_names_that_come_again_are_named(tmp_path, n_rows, again, header):
    rows = "1,2,3\n4,5,6\n" * n_rows
    path = write(tmp_path, f"a,b,y\n{rows}{again}\n{rows}")
    with pytest.raises(ValueError, match=f"line {2 * n_rows + 2} repeats the column names"):
        rows_of(open_table(path, header=header))


def test_a_row_that_comes_again_is_no_header(tmp_path):
    text = "red,big\nblue,small\nred,big\n"
    assert not open_table(write(tmp_path, text)).header


def test_encoding(tmp_path):
    data = "stadt,n\nKöln,1\nMünchen,2\n".encode("latin-1")
    with pytest.raises(ValueError, match="convert it to UTF-8, or name its encoding"):
        rows_of(open_table(write(tmp_path, data)))
    table = open_table(write(tmp_path, data), encoding="latin-1")
    assert rows_of(table) == [["Köln", "1"], ["München", "2"]]
    with pytest.raises(ValueError, match="unknown encoding 'klingon'"):
        open_table(write(tmp_path, data), encoding="klingon")


@pytest.mark.parametrize(
    ("compress", "suffix"),
    [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (lzma.compress, ".xz")],
)
def test_compressed(tmp_path, compress, suffix):
    text = "a,b\n" + "".join(f"{i},x{i}\n" for i in range(5000))
    table = open_table(write(tmp_path, compress(text.encode()), f"data.csv{suffix}"))
    assert rows_of(table) == [[str(i), f"x{i}"] for i in range(5000)]
    assert len(rows_of(table)) == 5000  # and again


def test_truncated(tmp_path):
    data = gzip.compress(("a,b\n" + "1,2\n" * 400_000).encode())
    with pytest.raises(ValueError, match=r"data\.csv\.gz"):
        rows_of(open_table(write(tmp_path, data[: len(data) // 2], "data.csv.gz")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n1,2,3\n", "Expected 2 columns, got 3.*quote text"),
        ("", "is empty"),
        ("\n\n\n", "only empty lines"),
    ],
)
def test_not_a_table(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        rows_of(open_table(write(tmp_path, text)))


def test_bad_arguments(tmp_path):
    path = write(tmp_path, "a,b\n1,2\n")
    with pytest.raises(ValueError, match="delimiter must be one character"):
        open_table(path, delimiter=", ")
    with pytest.raises(ValueError, match="block_rows"):
        rows_of(open_table(path), block_rows=0)
    with pytest.raises(ValueError, match="format must be"):
        open_table(path, format="excel")
    with pytest.raises(ValueError, match="at least one column"):
        rows_of(open_table(path), columns=[])
    with pytest.raises(FileNotFoundError, match="no file"):
        open_table(tmp_path / "absent.csv")
    with pytest.raises(TypeError):
        open_table(42)


def test_header_only(tmp_path):
    assert rows_of(open_table(write(tmp_path, "a,b\n"), header=True)) == []


def test_a_row_longer_than_the_sample(tmp_path):
    n = 60_000
    names = ",".join(f"column{i}" for i in range(n))
    table = open_table(write(tmp_path, f"{names}\n{','.join(['1'] * n)}\n"))
    assert table.header
    assert rows_of(table) == [["1"] * n]


def test_a_row_longer_than_a_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CSV_CHUNK_BYTES", 100)
    n = 1000
    text = "\n".join(",".join([str(i)] * n) for i in range(20))
    assert rows_of(open_table(write(tmp_path, text))) == [[str(i)] * n for i in range(20)]


def test_columns_can_be_chosen(tmp_path):
    table = open_table(write(tmp_path, "a,b,c\n1,2,3\n"))
    assert rows_of(table, columns=["c", "a"]) == [["3", "1"]]


cell = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8
).map(lambda text: f"v{text}v")


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.tuples(cell, cell, cell), min_size=1, max_size=25),
    delimiter=st.sampled_from([",", ";", "\t"]),
    block_rows=st.integers(1, 10),
)
def test_csv_round_trip(tmp_path, rows, delimiter, block_rows):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(rows)
    path = write(tmp_path, text.getvalue())
    table = open_table(path, delimiter=delimiter, header=False, missing_values=[])
    assert rows_of(table, block_rows) == [list(row) for row in rows]
    sizes = [batch.num_rows for batch in table.blocks(block_rows)]
    assert all(size == block_rows for size in sizes[:-1])


# -- Parquet and frames -----------------------------------------------------------------
FRAME = {
    "n": list(range(95)),
    "x": [i / 7 for i in range(95)],
    "s": [f"t{i % 5}" for i in range(95)],
}


def test_parquet(tmp_path):
    path = tmp_path / "data.parquet"
    pyarrow.parquet.write_table(pa.table(FRAME), path, row_group_size=13)
    table = open_table(path)
    assert table.column_names == ["n", "x", "s"]
    assert [b.num_rows for b in table.blocks(30)] == [30, 30, 30, 5]
    assert rows_of(table, 30) == [list(row) for row in zip(*FRAME.values(), strict=True)]
    assert rows_of(table, 50, ["s", "n"])[3] == ["t3", 3]
    assert not table.untyped


def test_damaged_parquet(tmp_path):
    path = tmp_path / "data.parquet"
    pyarrow.parquet.write_table(pa.table(FRAME), path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="not a Parquet file"):
        open_table(path)
    with pytest.raises(ValueError, match="not a Parquet file"):
        open_table(write(tmp_path, "a,b\n1,2\n", "x.parquet"))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames(make):
    table = open_table(make(FRAME))
    assert table.column_names == ["n", "x", "s"]
    assert [b.num_rows for b in table.blocks(30)] == [30, 30, 30, 5]
    assert rows_of(table, 30) == [list(row) for row in zip(*FRAME.values(), strict=True)]


def test_frames_of_many_chunks():
    chunks = pa.concat_tables([pa.table({"a": [i, i]}) for i in range(50)])
    table = open_table(chunks)
    assert [b.num_rows for b in table.blocks(7)] == [7] * 14 + [2]
    assert rows_of(table, 7) == [[i // 2] for i in range(100)]


def test_dictionaries_that_differ_between_chunks():
    parts = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    table = open_table(pa.table({"s": pa.chunked_array(parts)}))
    assert rows_of(table, 3) == [["a"], ["b"], ["c"], ["a"]]


def test_frame_with_unusual_columns():
    assert open_table(pd.DataFrame([[1, 2]])).column_names == ["0", "1"]
    with pytest.warns(UserWarning, match="duplicate column names; reading '1' as '1_2'"):
        table = open_table(pd.DataFrame([[1, 2]], columns=["1", "1"]))
    assert table.column_names == ["1", "1_2"]
    assert rows_of(table) == [[1, 2]]
    with pytest.warns(UserWarning, match="'a' as 'a_2'"):
        table = open_table(pa.table([[1], [2.5]], names=["a", "a"]))
    assert rows_of(table, columns=["a_2"]) == [[2.5]]


MIXED = [1, "x", 2.5, None, True]


@pytest.mark.parametrize(
    "make",
    [
        dict,
        lambda columns: pd.DataFrame(columns, dtype=object),
        lambda columns: {"a": np.array(columns["a"], dtype=object)},
    ],
)
def test_numbers_and_texts_in_one_column_become_texts(make):
    assert rows_of(open_table(make({"a": MIXED}))) == [["1"], ["x"], ["2.5"], [None], ["True"]]
    with pytest.raises(ValueError, match="contains values of types .*; convert it to text"):
        open_table(make({"a": [1, "x", {"k": 1}, object()]}))


def test_columns_of_different_lengths_are_told():
    with pytest.raises(ValueError, match=r"different lengths: \{'a': 1, 'b': 2\}"):
        open_table({"a": [1], "b": [1, 2]})


def test_text_views_become_texts():
    array = pa.array(["x", None, "a text longer than twelve bytes"], pa.string_view())
    table = open_table(pa.table({"n": [1, 2, 3], "v": array}))
    assert rows_of(table, 2, ["v"]) == [["x"], [None], ["a text longer than twelve bytes"]]
    assert all(batch["v"].type == pa.string() for batch in table.blocks(2))


def test_csv_reads_small_pieces(tmp_path, monkeypatch):
    """Blocks are the same whatever the size of the pieces the file is read in."""
    text = "a,b\n" + "".join(f"{i},{'x' * (i % 50)}v\n" for i in range(3000))
    path = write(tmp_path, text)
    expected = [batch.to_pydict() for batch in open_table(path).blocks(100)]
    monkeypatch.setattr(module, "CSV_CHUNK_BYTES", 1000)
    assert [batch.to_pydict() for batch in open_table(path).blocks(100)] == expected


def test_a_quote_that_is_never_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CSV_CHUNK_BYTES", 1000)
    monkeypatch.setattr(module, "CSV_LARGE_CHUNK_BYTES", 1000)
    path = write(tmp_path, 'a,b\n1,2\n"oops,3\n' + "4,5\n" * 3000)
    with pytest.raises(ValueError, match="quotation mark is never closed"):
        rows_of(open_table(path, header=True, delimiter=","))


# -- formats ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "1 2:3", "csv"),
        ("a.tsv", "1", "csv"),
        ("a.CSV.GZ", None, "csv"),
        ("a.parquet", "1", "parquet"),
        ("a.svm", "1", "libsvm"),
        ("a.libsvm.bz2", None, "libsvm"),
        ("a9a", "-1 3:1 11:1\n+1 5:0.5\n", "libsvm"),
        ("a9a.t", "1\n-1 3:1 11:1 # x\n\n", "libsvm"),
        ("rank.txt", "1 qid:3 1:0.5\n", "libsvm"),
        ("multi", "1,3 2:0.5\n", "libsvm"),
        ("none", "3:1 11:1\n", "libsvm"),
        ("times.txt", "12:30,5\n12:40,7\n", "csv"),
        ("times.txt", "12:30 noon\n12:40 later\n", "csv"),
        ("numbers.txt", "1\n2\n", "csv"),
        ("adult.data", "39, State-gov, 77516\n", "csv"),
        ("noext", "PAR1xxxx", "parquet"),
    ],
)
def test_formats_are_told(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text("1" if text is None else text)
    assert detect_format(path) == expected


@pytest.mark.parametrize("name", ["a.arff", "a.xlsx", "a.json", "a.npz", "a.zip"])
def test_formats_that_are_not_read(tmp_path, name):
    with pytest.raises(ValueError, match="are not supported; convert it to CSV, Parquet or libsvm"):
        open_table(write(tmp_path, "x", name))


def test_libsvm_is_not_a_table(tmp_path):
    with pytest.raises(ValueError, match="is a libsvm file"):
        open_table(write(tmp_path, "1 2:3\n", "a.svm"))


def test_the_index_of_a_frame_is_no_column():
    """A frame that was split, sorted or filtered has an index that may tell the target."""
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
    for other in (frame[::-1], frame.set_index(pd.Index([7, 3, 9])), frame.iloc[1:]):
        assert open_table(other).column_names == ["a", "y"]
