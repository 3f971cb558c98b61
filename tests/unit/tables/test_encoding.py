"""The encoding of a table: names, other tables, blocks, and its plain form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.tables.helpers import (
    columns_csv,
    copy_by_file,
    csv_file,
    csv_table,
    encode,
    learn,
    names_of,
    plain,
    same,
)

from likelier.data import open_table
from likelier.data import tables as tables_module
from likelier.tables import TableEncoding, first_pass

SMALL = "a,colour,flag,y\n1,red,true,yes\n2.5,blue,false,no\n-3, red ,true,yes\n"


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(first_pass, "default_block_rows", lambda n_columns: 10)


# -- columns and names ------------------------------------------------------------------
def test_numbers_categories_and_truth_values(tmp_path):
    table = csv_table(tmp_path, SMALL)
    encoding = learn(table, "y")
    assert names_of(encoding) == ["a", "colour=red", "flag"]
    assert encoding.n_features == 3
    X, y = encode(encoding, table)
    np.testing.assert_array_equal(X, [[1, 1, 1], [2.5, 0, 0], [-3, 1, 1]])
    assert y.tolist() == ["yes", "no", "yes"]
    np.testing.assert_array_equal(encode(copy_by_file(encoding, tmp_path), table)[0], X)
    assert X.flags.c_contiguous


def test_category_order_does_not_depend_on_row_order(tmp_path):
    values = ["b", "a", "Z", "é", "10", "9", "ß"]
    encodings = [
        learn(
            csv_table(tmp_path, "c,d\n" + "".join(f"{v},{i % 2}\n" for v in order for i in (0, 1)))
        )
        for order in (values, values[::-1], sorted(values))
    ]
    assert same(encodings[0], encodings[1]) and same(encodings[0], encodings[2])
    assert list(encodings[0].columns[0].levels) == sorted(values)


def test_typed_columns():
    frame = {
        "i8": pa.array([1, 2, 3], pa.int8()),
        "u64": pa.array([1, 2, 3], pa.uint64()),
        "f2": pa.array(np.array([1, 2, 3], dtype=np.float16)),
        "f4": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "dec": pa.array([1, 2, 3], pa.int64()).cast(pa.decimal128(25, 2)),
        "b": pa.array([True, False, True]),
        "s": pa.array(["p1", "p2", "p1"], pa.large_string()),
        "v": pa.array(["x", "y", "x"], pa.string_view()),
        "d": pa.array(["p", "q", "p"]).dictionary_encode(),
    }
    table = open_table(pa.table(frame))
    encoding = learn(table)
    assert names_of(encoding) == ["i8", "u64", "f2", "f4", "dec", "b", "s=p2", "v=y", "d=q"]
    X, _ = encode(encoding, table)
    np.testing.assert_array_equal(X[:, 4], [1, 2, 3])
    np.testing.assert_array_equal(X[1], [2, 2, 2, 1.5, 2, 0, 1, 1, 1])


def test_pandas_categories():
    frame = pd.DataFrame(
        {"c": pd.Categorical(["a", "b", "a"], categories=["z", "b", "a"]), "n": [3, 1, 3]}
    )
    frame["n"] = frame["n"].astype("category")
    table = open_table(frame)
    encoding = learn(table)
    assert names_of(encoding) == ["c=b", "n=3"]
    X, _ = encode(encoding, table, block_rows=2)
    np.testing.assert_array_equal(X, [[0, 1], [1, 0], [0, 1]])


# -- every form of the same table -------------------------------------------------------
@pytest.fixture(scope="module")
def columns():
    """Two hundred rows of every kind of column, as they would stand in a CSV file."""
    rng = np.random.default_rng(0)
    n = 200
    topic = rng.integers(0, 3, n)
    words = [["ball", "goal", "team"], ["cost", "bank", "loan"], ["moon", "mars", "star"]]
    found = {
        "number": rng.normal(size=n).round(4).tolist(),
        "whole": rng.integers(0, 50, n).tolist(),
        "price": [f"{x:.2f} EUR" for x in rng.uniform(1, 99, n)],
        "flag": rng.choice(["yes", "no"], n).tolist(),
        "colour": rng.choice(["red", "green", "blue"], n, p=[0.6, 0.3, 0.1]).tolist(),
        "town": [f"town of {i}" for i in rng.integers(0, 70, n)],
        "day": [f"20{10 + i % 9}-0{1 + i % 7}-1{i % 10}" for i in range(n)],
        "note": [
            f"the {' '.join(rng.choice(words[k], 4))} of row {i}" for i, k in enumerate(topic)
        ],
        "row": [f"r{i:05d}" for i in range(n)],
        "same": ["x"] * n,
    }
    for name in ("number", "price", "colour", "day", "note"):
        found[name][7] = None
        found[name][150] = None
    found["y"] = rng.choice(["u", "v"], n).tolist()
    return found


FORMS = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "dict": dict,
    "arrays": lambda columns: {k: np.array(v, dtype=object) for k, v in columns.items()},
}


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("form", [*FORMS, "csv", "parquet"])
def test_every_form_gives_the_same_features(tmp_path, columns, form, dense):
    if form == "csv":
        data = csv_file(tmp_path, columns_csv(columns))
    elif form == "parquet":
        data = tmp_path / "data.parquet"
        pyarrow.parquet.write_table(pa.table(columns), data)
    else:
        data = FORMS[form](columns)
    reference = learn(pa.table(columns), "y", dense=dense)
    encoding = learn(open_table(data), "y", dense=dense)
    assert names_of(encoding) == names_of(reference)
    assert (
        encoding.kinds()
        == reference.kinds()
        == {
            "number": "number",
            "whole": "number",
            "price": "number",
            "flag": "boolean",
            "colour": "category",
            "town": "category",
            "day": "date",
            "note": "text",
            "row": "identifier",
            "same": "constant",
        }
    )
    assert encoding.notes() == reference.notes()
    expected, y = encode(reference, open_table(pa.table(columns)))
    for other in (encoding, reference):
        X, labels = encode(other, open_table(data))
        np.testing.assert_array_equal(X, expected)
        np.testing.assert_array_equal(labels, y)


@pytest.mark.parametrize("block_rows", [1, 7, 64])
def test_blocks_encode_like_the_whole(columns, block_rows):
    encoding = learn(pa.table(columns), "y")
    X, y = encode(encoding, pa.table(columns))
    again, labels = encode(encoding, pa.table(columns), block_rows)
    np.testing.assert_allclose(again, X, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(labels, y)


@pytest.mark.parametrize("rows", [7, 64])
def test_learning_in_blocks_is_learning_at_once(tmp_path, columns, monkeypatch, rows):
    path = csv_file(tmp_path, columns_csv(columns))
    whole = learn(open_table(path), "y")
    monkeypatch.setattr(first_pass, "default_block_rows", lambda n_columns: rows)
    monkeypatch.setattr(tables_module, "CSV_CHUNK_BYTES", 1000)
    cut = learn(open_table(path), "y")
    assert names_of(cut) == names_of(whole)
    assert cut.notes() == whole.notes()
    X, Z = (encode(encoding, open_table(path))[0] for encoding in (whole, cut))
    town = np.array([name.startswith("town") for name in names_of(whole)])
    np.testing.assert_array_equal(Z[:, ~town], X[:, ~town])
    # names count once in each block, so that the weights of their pieces differ a little
    assert (Z[:, town] ** 2).sum() == pytest.approx((X[:, town] ** 2).sum(), rel=0.05)


# -- types that change late in the file -------------------------------------------------
@pytest.mark.parametrize(
    ("early", "late", "kind", "expected"),
    [
        ("1", "2.5", "number", (1, 2.5)),
        ("", "2.5", "number", (2.5, 2.5)),
        ("1", "x7", "category", (0, 1)),
        ("1.5", "many", "category", (0, 1)),
        ("01", "x7", "category", (0, 1)),
        ("true", "7", "category", (1, 0)),
        ("1", "true", "category", (0, 1)),
        ("2020-01-01", "soon", "category", (0, 1)),
    ],
)
def test_type_settled_by_the_last_row(tmp_path, small_blocks, early, late, kind, expected):
    """The first 99 rows look like one type, and the last row tells that they are not."""
    text = "a,y\n" + f"{early},0\n" * 99 + f"{late},1\n"
    table = csv_table(tmp_path, text)
    encoding = learn(table, "y")
    assert encoding.kinds() == {"a": kind}
    X, _ = encode(encoding, table)
    assert (X[0, 0], X[-1, 0]) == expected
    text = "a,y\n" + f"{late},1\n" + f"{early},0\n" * 99
    backwards = csv_table(tmp_path, text, "backwards.csv")
    assert names_of(learn(backwards, "y")) == names_of(encoding)
    np.testing.assert_array_equal(encode(learn(backwards, "y"), table)[0], X)


# -- what cannot be encoded -------------------------------------------------------------
@pytest.mark.parametrize(
    "array", [pa.array([[1, 2]] * 3), pa.array([b"x"] * 3), pa.array([{"k": 1}] * 3)]
)
def test_types_that_are_not_read(array):
    with pytest.raises(ValueError, match="column 'odd' contains neither numbers, text nor dates"):
        learn(pa.table({"odd": array, "x": [1, 2, 3]}))
    table = pa.table({"odd": array, "x": [1, 2, 3]})
    assert names_of(learn(table, exclude=["odd"])) == ["x"]
    assert names_of(learn(table, kinds={"odd": "identifier"})) == ["x"]


def test_a_length_of_time_is_a_number_of_seconds():
    table = pa.table({"t": pa.array([1000, 2500, None], pa.duration("ms"))})
    encoding = learn(table)
    assert names_of(encoding) == ["t", "t is missing"]
    np.testing.assert_array_equal(encode(encoding, table)[0], [[1, 0], [2.5, 0], [1.75, 1]])


def test_bad_arguments(tmp_path):
    table = csv_table(tmp_path, SMALL)
    with pytest.raises(ValueError, match="exclude: .* no column 'nope'"):
        learn(table, "y", exclude=["nope"])
    with pytest.raises(ValueError, match="exclude names the target"):
        learn(table, "y", exclude=["y"])
    with pytest.raises(ValueError, match="no usable feature column"):
        learn(table, "y", exclude=["a", "colour", 2])
    with pytest.raises(ValueError, match="contains no rows"):
        learn(csv_table(tmp_path, "a,b\n", header=True))


# -- other tables -----------------------------------------------------------------------
def test_other_order_missing_and_extra_columns(tmp_path):
    encoding = learn(csv_table(tmp_path, "a,b,y\n1,2,0\n3,4,1\n"), "y")
    X, y = encode(encoding, csv_table(tmp_path, "b,a\n2,1\n"))
    np.testing.assert_array_equal(X, [[1, 2]])
    assert y is None
    X, y = encode(encoding, csv_table(tmp_path, "y,b,a\n7,2,1\n"))
    np.testing.assert_array_equal(X, [[1, 2]])
    np.testing.assert_array_equal(y, [7])
    with pytest.warns(UserWarning, match="ignoring columns 'c', 'd'"):
        X, _ = encode(encoding, csv_table(tmp_path, "c,a,d,b\n9,1,9,2\n"))
    np.testing.assert_array_equal(X, [[1, 2]])
    with pytest.raises(ValueError, match="lacks column 'a', which the model was fitted on"):
        encode(encoding, csv_table(tmp_path, "b,y\n2,1\n"))
    with pytest.raises(ValueError, match=r"lacks columns 'a', 'b'.*first line was read as data"):
        encode(encoding, csv_table(tmp_path, "1,2\n"))


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ("Length", "did you mean 'Length' for 'length'"),
        ("lenght", "did you mean 'lenght' for 'length'"),
        ("length_cm", "did you mean 'length_cm' for 'length'"),
        ("colour", "fitted on$"),
    ],
)
def test_a_column_of_a_similar_name_is_suggested(there, told):
    encoding = learn({"length": [1.0, 2.0, 5.0], "width": [1.0, 3.0, 7.0]})
    with pytest.raises(ValueError, match=f"lacks column 'length', .*{told}"):
        encode(encoding, {"width": [1.0], there: [2.0]})


def test_a_column_in_use_is_not_suggested():
    encoding = learn({"height": [1.0, 2.0, 5.0], "heights": [1.0, 3.0, 7.0]})
    with pytest.raises(ValueError, match="fitted on$"):
        encode(encoding, {"heights": [1.0]})


def test_excluded_columns_are_not_extra(tmp_path):
    table = csv_table(tmp_path, SMALL)
    encoding = learn(table, "y", exclude=["colour"])
    assert encode(encoding, table)[0].shape == (3, 2)


def test_columns_left_out_are_not_needed_later(columns):
    encoding = learn(pa.table(columns), "y")
    later = {k: v for k, v in columns.items() if k not in ("row", "same", "y")}
    expected = encode(encoding, columns)[0]
    np.testing.assert_array_equal(encode(encoding, later)[0], expected)


def test_tables_without_header(tmp_path):
    train = csv_table(tmp_path, "no,1,2\nyes,3,4\n", header=False)
    encoding = copy_by_file(learn(train, 0), tmp_path)
    X, y = encode(encoding, train)
    np.testing.assert_array_equal(X, [[1, 2], [3, 4]])
    assert y.tolist() == ["no", "yes"]
    X, y = encode(encoding, csv_table(tmp_path, "1,2\n3,4\n"))  # the target column is left out
    np.testing.assert_array_equal(X, [[1, 2], [3, 4]])
    assert y is None
    with pytest.raises(ValueError, match="lacks columns 'x1', 'x2'.*read as names"):
        encode(encoding, csv_table(tmp_path, "a,b,c\nno,1,2\n"))
    with pytest.raises(ValueError, match="lacks column"):
        encode(encoding, csv_table(tmp_path, "1\n2\n"))


def test_columns_of_the_same_name():
    frame = pd.DataFrame([[1, 2.5, 3], [4, 5, 7]], columns=["a", "a", "b"])
    with pytest.warns(UserWarning, match="'a' as 'a_2'"):
        encoding = learn(frame)
    assert names_of(encoding) == ["a", "a_2", "b"]
    with pytest.warns(UserWarning, match="'a' as 'a_2'"):
        X, _ = encode(encoding, frame)
    np.testing.assert_array_equal(X, frame.to_numpy())


def test_faults_name_the_table_the_column_and_the_row(tmp_path):
    encoding = learn(csv_table(tmp_path, "a,b,y\n1,2,0\n3,5,1\n"), "y")
    bad = csv_table(tmp_path, "a,b\n" + "1,2\n" * 25 + "1,high\n", "p.csv")
    for block_rows in (10, 1000):
        with pytest.raises(ValueError, match=r"p\.csv'.*column 'b', row 26: 'high' cannot be read"):
            encode(encoding, bad, block_rows)
    day = pa.table({"a": [1], "b": pa.array([0], pa.date32())})
    with pytest.raises(
        ValueError, match="column 'b' contains dates or times, but contained numbers"
    ):
        encode(encoding, day)
    text = learn({"a": ["x", "z", "z", "x"], "n": [1.0, 2.0, 5.0, 4.0]})
    with pytest.raises(ValueError, match="column 'a' contains list<.*, but was category"):
        encode(text, pa.table({"a": [[1]], "n": [1.0]}))


# -- wide tables are sparse -------------------------------------------------------------
@pytest.mark.parametrize("gaps", [False, True])
def test_many_words_beside_other_columns_become_sparse(gaps):
    rng = np.random.default_rng(0)
    n = 2000
    texts = [" ".join(f"w{k}" for k in rng.integers(0, 400, 6)) for _ in range(n)]
    columns = {
        "n": rng.normal(size=n).round(3).tolist(),
        "text": texts,
        "c": [f"c{k}" for k in rng.integers(0, 20, n)],
    }
    if gaps:
        for name in columns:
            columns[name][5] = None
    encoding = learn(columns, dense=False)
    assert encoding.sparse
    (batch,) = open_table(columns).blocks(5000)
    X, strange = encoding.transform(batch)
    assert not strange
    assert X.format == "csr" and X.has_sorted_indices and X.has_canonical_format
    names = names_of(encoding)
    assert len(names) == X.shape[1] == 1 + 400 + 20 + 3 * gaps
    X = X.toarray()
    levels = [names.index(f"c=c{k}") for k in range(20)]
    for row in (0, 5, 77):
        gone = gaps and row == 5
        value = np.nanmedian(np.array(columns["n"], dtype=float)) if gone else columns["n"][row]
        assert X[row, 0] == value
        there = {names[k] for k in np.flatnonzero(X[row]) if names[k].startswith("text:")}
        words = {name.removeprefix("text:") for name in there}
        assert words == (set() if gone else set(texts[row].split()))
        found = [names[k] for k in levels if X[row, k]]
        assert found == ([] if gone else [f"c={columns['c'][row]}"])
        assert (
            sum(X[row, k] for k, name in enumerate(names) if name.endswith("missing")) == 3 * gone
        )


# -- the plain form ---------------------------------------------------------------------
@pytest.mark.parametrize(
    "change",
    [
        {"form": "table-99"},
        {"form": "table-1"},
        {"columns": None},
        {"columns": [{"name": "a"}]},
        {"columns": [{"class": "NumberColumn"}]},
        {"columns": [{"class": "NumberColumn", "name": "a", "width": 3}]},
        {"columns": [{"class": "Nonsense", "name": "a"}]},
        {"target": {"name": "y"}},
        {"target": {"name": "y", "kind": "nonsense", "style": None, "exact": False}},
        {"missing_values": 3},
        {"missing_values": "abc"},
        {"hints": {"colour": "red"}},
        {"dropped": [["a"]]},
    ],
)
def test_damaged_plain_form(tmp_path, change):
    written = learn(csv_table(tmp_path, SMALL), "y").to_json()
    with pytest.raises(ValueError, match="table encod|nonsense"):
        TableEncoding.from_json({**written, **change})


def test_every_part_is_needed(tmp_path):
    written = learn(csv_table(tmp_path, SMALL), "y").to_json()
    for key in written:
        with pytest.raises(ValueError, match="table encoding"):
            TableEncoding.from_json({k: v for k, v in written.items() if k != key})


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    texts=st.lists(texts, min_size=1, max_size=20),
    numbers=st.lists(
        st.floats(-1e100, 1e100, allow_nan=False, allow_infinity=False), min_size=1, max_size=20
    ),
)
def test_any_table_comes_back(tmp_path, texts, numbers):
    n = min(len(texts), len(numbers))
    table = pa.table({"t": texts[:n], "x": numbers[:n]})
    encoding = learn(table, kinds={"t": "category", "x": "number"})
    again = TableEncoding.from_json(encoding.to_json())
    assert plain(again.to_json()) == plain(encoding.to_json())
    X, _ = encode(encoding, table)
    np.testing.assert_array_equal(encode(again, table)[0], X)
    np.testing.assert_array_equal(X[:, -1], numbers[:n])


def test_messages_do_not_list_hundreds_of_names():
    encoding = learn({f"c{i}": [1.0, 2.0, 4.0] for i in range(300)})
    with pytest.raises(ValueError, match="and 290 more") as caught:
        encode(encoding, {"other": [1.0]})
    assert len(str(caught.value)) < 600
    assert "c200" not in str(caught.value)
