"""Rows and columns that are easily lost or invented: blank lines, indexes, and what was said."""

from __future__ import annotations

import bz2
import gzip
import lzma

import numpy as np
import pandas as pd
import pytest

from likelier.data import files as files_module
from likelier.data import open_table
from likelier.data import tables as tables_module
from likelier.data.dialect import Hints
from likelier.tables import TableEncoding, block_source
from likelier.tables.learn import learn_encoding


def write(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def cells(table, block_rows=1000):
    return [value for batch in table.blocks(block_rows) for value in batch[0].to_pylist()]


# -- blank lines ------------------------------------------------------------------------
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a", "1", "", "3", ""], ["1", None, "3"]),
        (["a", "1", "", "3", "", "", ""], ["1", None, "3"]),
        (["a", "1", "", "3"], ["1", None, "3"]),
        (["a", "", "", "3", ""], [None, None, "3"]),
        (["", "a", "1", ""], ["1"]),
        (["a", "1", '""', '""', ""], ["1", None, None]),  # as pandas and csv.writer write them
        (["a", '"x', "", '"', "y", ""], ["x{end}{end}", "y"]),
        (["a", ""], []),
    ],
)
def test_blank_lines_of_a_single_column(tmp_path, lines, expected, end):
    path = write(tmp_path, end.join(lines))
    expected = [None if v is None else v.replace("{end}", end) for v in expected]
    assert cells(open_table(path, header=True)) == expected


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_blank_lines_across_pieces_of_the_file(tmp_path, monkeypatch, chunk):
    text = "a\n" + "".join(f"{i}\n\n\n" for i in range(50)) + "\n\n"
    path = write(tmp_path, text)
    expected = [value for i in range(50) for value in (str(i), None, None)][:-2]
    monkeypatch.setattr(tables_module, "CSV_CHUNK_BYTES", 64)
    table = open_table(path)
    monkeypatch.setattr(files_module, "SAMPLE_BYTES", chunk)
    assert cells(table, 7) == expected


@pytest.mark.parametrize(
    ("change", "suffix", "encoding"),
    [
        (gzip.compress, ".gz", None),
        (bz2.compress, ".bz2", None),
        (lzma.compress, ".xz", None),
        (lambda data: data.decode().encode("utf-16"), "", "utf-16"),
        (lambda data: data.decode().encode("latin-1"), "", "latin-1"),
        (lambda data: b"\xef\xbb\xbf" + data, "", "utf-8-sig"),
        (lambda data: b"\xef\xbb\xbf" + data, "", None),
    ],
)
def test_blank_lines_in_other_forms(tmp_path, change, suffix, encoding):
    path = write(tmp_path, change("größe\n1\n\nö\n\n".encode()), f"data.csv{suffix}")
    table = open_table(path, encoding=encoding)
    assert table.column_names == ["größe"]
    assert cells(table) == ["1", None, "ö"]


def test_blank_lines_of_several_columns_are_no_rows(tmp_path):
    assert cells(open_table(write(tmp_path, "a,b\n1,2\n\n3,4\n\n"))) == ["1", "3"]


def test_a_long_single_column_is_read_whole(tmp_path):
    path = write(tmp_path, "a\n" + "".join(f"{i}\n" for i in range(200_000)))
    assert cells(open_table(path), 5000) == [str(i) for i in range(200_000)]


# -- indexes ----------------------------------------------------------------------------
FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]})


def test_an_index_without_a_name_in_parquet(tmp_path):
    path = tmp_path / "part.parquet"
    FRAME.iloc[[0, 2, 3]].to_parquet(path)
    assert "__index_level_0__" in open_table(path).column_names
    source = block_source(path, target="y")
    assert source.feature_names == ["a"]
    whole = tmp_path / "whole.parquet"
    FRAME.to_parquet(whole)
    plain = block_source(whole, target="y").encoder
    for encoder in (source.encoder, plain):  # no warning of columns that are ignored
        for data in (path, whole, FRAME):
            assert block_source(data, encoder=encoder).n_features == 1
    with pytest.raises(ValueError, match="no usable feature column"):
        learn_encoding(open_table(path), "y", exclude=["a"])
    found = learn_encoding(open_table(path), "__index_level_0__").target
    assert found.name == "__index_level_0__"


def test_an_index_with_a_name_is_a_column(tmp_path):
    path = tmp_path / "named.parquet"
    FRAME.set_index(pd.Index([3, 1, 4, 1], name="rooms")).to_parquet(path)
    assert set(block_source(path, target="y").feature_names) == {"a", "rooms"}


def test_several_parts_of_an_index_without_names(tmp_path):
    path = tmp_path / "levels.parquet"
    frame = FRAME.set_axis(pd.MultiIndex.from_product([[0, 1], [5, 6]], names=[None, "n"]))
    frame.to_parquet(path)
    assert set(block_source(path, target="y").feature_names) == {"a", "n"}


def test_an_index_without_a_name_in_csv(tmp_path):
    path = tmp_path / "index.csv"
    FRAME.sample(frac=1, random_state=0).to_csv(path)
    source = block_source(path, target="y")
    assert source.feature_names == ["a"]
    (name,) = set(source.encoder.table_columns) - {"a", "y"}
    assert source.encoder.kinds()[name] == "identifier"
    assert source.encoder.notes() == {name: "row number: dropped"}
    assert block_source(path, encoder=source.encoder).n_features == 1
    plain = tmp_path / "plain.csv"
    FRAME.to_csv(plain, index=False)
    for encoder in (source.encoder, block_source(plain, target="y").encoder):
        assert block_source(path, encoder=encoder).n_features == 1
        assert block_source(plain, encoder=encoder).n_features == 1
    assert learn_encoding(open_table(path), "y", exclude=[0]).n_features == 1  # and no warning


@pytest.mark.parametrize("first", ["5 5 6 7", "1.5 2.5 3.5 4.5", "u v w x"])
def test_other_columns_without_a_name_stay(tmp_path, first):
    lines = [f"{value},{i},{i % 2}\n" for i, value in enumerate(first.split())]
    names = block_source(write(tmp_path, ",a,y\n" + "".join(lines)), target="y").feature_names
    assert names[0].startswith("x0")


# -- what was said about the training file ----------------------------------------------
def test_the_delimiter_is_remembered(tmp_path):
    path = write(tmp_path, "a^b^y\n" + "".join(f"{i}^{i * i}^{i % 2}\n" for i in range(9)))
    encoder = block_source(path, target="y", delimiter="^").encoder
    again = TableEncoding.from_json(encoder.to_json())
    assert again.hints == Hints(delimiter="^")
    expected = np.array([[3.0, 9.0]])
    for text in ("b^a\n9^3\n", "a,b\n3,9\n", "a;b\n3;9\n"):
        (batch,) = block_source(write(tmp_path, text), encoder=again)()
        np.testing.assert_array_equal(batch.X, expected)
    (batch,) = block_source(write(tmp_path, "a:b\n3:9\n"), encoder=again, delimiter=":")()
    np.testing.assert_array_equal(batch.X, expected)


def test_the_encoding_is_remembered(tmp_path):
    text = "stadt,y\nKöln,1\nBonn,0\nKöln,1\n"
    path = write(tmp_path, text.encode("latin-1"))
    encoder = block_source(path, target="y", encoding="latin-1").encoder
    assert list(encoder.get_feature_names_out()) == ["stadt=Köln"]
    for encoding in ("latin-1", "utf8"):  # UTF-8 shows itself
        (batch,) = block_source(write(tmp_path, text.encode(encoding)), encoder=encoder)()
        np.testing.assert_array_equal(batch.X, [[1], [0], [1]])
    (batch,) = block_source(write(tmp_path, b"stadt,y\nBonn,1\n"), encoder=encoder)()
    np.testing.assert_array_equal(batch.X, [[0]])


def test_damaged_memories_are_refused(tmp_path):
    plain = block_source(write(tmp_path, "a,y\n1,0\n2,1\n"), target="y").encoder.to_json()
    assert TableEncoding.from_json(plain).hints == Hints()
    for damage in ({"delimiter": 3}, {"colour": "red"}, [1], None):
        with pytest.raises(ValueError, match="damaged table encoding"):
            TableEncoding.from_json({**plain, "hints": damage})


def test_one_column_instead_of_several_asks_for_the_delimiter(tmp_path):
    with pytest.raises(ValueError, match=r"it has column 'a\^y'; name the delimiter"):
        block_source(write(tmp_path, "a^y\n1^2\n"), target="y")


# -- targets that nobody needs ----------------------------------------------------------
@pytest.mark.parametrize("later", ["a,y\n1,\n2,tbd\n", "a,y\n1,2020-01-01\n2,3\n", "a\n1\n2\n"])
@pytest.mark.parametrize("labels", ["0 1", "no yes", "0.5 1.5", "true false"])
def test_a_prediction_does_not_read_the_target(tmp_path, later, labels):
    text = "a,y\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels.split()))
    encoder = block_source(write(tmp_path, text), target="y").encoder
    source = block_source(write(tmp_path, later), encoder=encoder)
    (batch,) = source.unlabelled()()
    np.testing.assert_array_equal(batch.X, [[1], [2]])
    assert batch.y is None
    if "tbd" in later and labels[0].isdigit():
        with pytest.raises(ValueError, match="target column 'y', rows 2 to 2, contains 'tbd'"):
            list(source())
    elif "tbd" in later:  # a label of its own; the row without any is left out
        (batch,) = source()
        assert batch.y.tolist() == ["tbd"]


# -- labels of one kind -----------------------------------------------------------------
X = np.ones((2, 1))


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        (([1, 2], ["a", "b"]), "block 1 of the data: y contains 'a' after 1;"),
        ((["a", "b"], [1.5, 2]), "block 1 of the data: y contains 1.5 after 'a'"),
        ((np.array([1, "a"], dtype=object),), "block 0 of the data: y contains 'a' after 1;"),
        ((["a", "b"], np.array(["a", None])), "block 1 of the data: y contains None after 'a'"),
    ],
)
def test_labels_of_two_kinds(labels, fault):
    source = block_source([(X, y) for y in labels])
    with pytest.raises(ValueError, match=fault):
        list(source())


def test_labels_of_one_kind():
    kinds = (
        [[1, 2], [True, False], [1.5, 2.5]],
        [["a", "b"], np.array(["a", "c"], dtype=object)],
    )
    for labels in kinds:
        assert len(list(block_source([(X, y) for y in labels])())) == len(labels)
    absent = np.array([None, "b"], dtype=object)  # the first row counts for nothing
    assert len(list(block_source([(X, ["a", "b"]), (X, absent, [0.0, 1.0])])())) == 2
    assert len(list(block_source([(X, np.ones((2, 3)))] * 2)())) == 2
