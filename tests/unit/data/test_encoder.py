"""The table encoder: kinds of columns, faults by name, types that change late in a file."""

from __future__ import annotations

import datetime
import json
import re
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from likelier.data import TableEncoder, open_table
from likelier.data import learn as learn_module
from likelier.data.columns import MAX_CATEGORIES, Kind
from likelier.data.summary import Summary, summarise


def csv_table(tmp_path, text, **reading):
    path = tmp_path / "data.csv"
    path.write_text(text)
    return open_table(path, **reading)


def encode(encoder, table, block_rows=1000):
    """Return X and y of a whole table."""
    columns = encoder.align(table)
    X, y, start = [], [], 0
    for batch in table.blocks(block_rows, list(columns.values())):
        batch = batch.rename_columns(list(columns))
        block = encoder.transform(batch)
        X.append(block.toarray() if sparse.issparse(block) else block)
        if encoder.target in columns:
            y.append(encoder.labels(batch, start))
        start += batch.num_rows
    return np.concatenate(X), np.concatenate(y) if y else None


def copy_by_json(encoder):
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    return again


SMALL = "a,colour,flag,y\n1,red,true,yes\n2.5,blue,false,no\n-3, red ,true,yes\n"


# -- what becomes of a column -----------------------------------------------------------
def test_numbers_categories_and_truth_values(tmp_path):
    table = csv_table(tmp_path, SMALL)
    encoder = TableEncoder.fit(table, "y")
    names = ["a", "colour=blue", "colour=red", "flag"]
    assert encoder.get_feature_names_out().tolist() == names
    assert encoder.n_features == 4
    X, y = encode(encoder, table)
    np.testing.assert_array_equal(X, [[1, 0, 1, 1], [2.5, 1, 0, 0], [-3, 0, 1, 1]])
    assert y.tolist() == ["yes", "no", "yes"]
    np.testing.assert_array_equal(encode(copy_by_json(encoder), table)[0], X)
    assert X.flags.c_contiguous


@pytest.mark.parametrize(
    ("texts", "kind", "expected"),
    [
        (["1", "2", "-3"], Kind.INTEGER, np.array([1, 2, -3])),
        ([" 1", "2 ", " 3"], Kind.INTEGER, np.array([1, 2, 3])),
        (["1", "2.5", "3"], Kind.FLOAT, np.array([1, 2.5, 3])),
        (["1", "99999999999999999999", "3"], Kind.FLOAT, np.array([1, 1e20, 3])),
        (["true", "False", "TRUE"], Kind.BOOLEAN, np.array([True, False, True])),
        (["a", " b", "a "], Kind.TEXT, np.array(["a", "b", "a"])),
        (["true", "1", "0"], Kind.TEXT, np.array(["true", "1", "0"])),
        (["01", "1", "x"], Kind.TEXT, np.array(["01", "1", "x"])),
        (["<=50K", ">50K", "<=50K"], Kind.TEXT, np.array(["<=50K", ">50K", "<=50K"])),
    ],
)
def test_labels_keep_their_kind(tmp_path, texts, kind, expected):
    table = csv_table(tmp_path, "x,y\n" + "".join(f"1,{text}\n" for text in texts))
    encoder = TableEncoder.fit(table, "y")
    assert encoder.target_kind == kind
    _, y = encode(copy_by_json(encoder), table)
    np.testing.assert_array_equal(y, expected, strict=expected.dtype.kind != "U")
    assert y.dtype.kind == expected.dtype.kind


def test_target_by_position(tmp_path):
    text = "1,2,a\n3,4,b\n"
    for target in (2, -1, "2", "-1", "x2"):
        assert TableEncoder.fit(csv_table(tmp_path, text), target).target == "x2"
    for target in (3, "y", "1.5", None, -4):
        if target is None:
            assert TableEncoder.fit(csv_table(tmp_path, text)).n_features == 4
            continue
        with pytest.raises(ValueError, match=rf"target: .* no column {target!r}.*count from 0"):
            TableEncoder.fit(csv_table(tmp_path, text), target)


def test_constant_columns_are_allowed(tmp_path):
    table = csv_table(tmp_path, "a,b,y\n1,x,0\n1,x,1\n")
    X, _ = encode(TableEncoder.fit(table, "y"), table)
    np.testing.assert_array_equal(X, [[1, 1], [1, 1]])


def test_unknown_categories_become_zeros(tmp_path):
    encoder = TableEncoder.fit(csv_table(tmp_path, SMALL), "y")
    X, _ = encode(encoder, csv_table(tmp_path, "a,colour,flag\n1,green,true\n2,red,false\n"))
    np.testing.assert_array_equal(X, [[1, 0, 0, 1], [2, 0, 1, 0]])


def test_category_order_does_not_depend_on_row_order(tmp_path):
    values = ["b", "a", "Z", "é", "10", "9", "ß"]
    encoders = [
        TableEncoder.fit(csv_table(tmp_path, "c,d\n" + "".join(f"{v},1\n" for v in order)))
        for order in (values, values[::-1], sorted(values))
    ]
    assert encoders[0] == encoders[1] == encoders[2]
    assert list(encoders[0].columns[0].categories) == sorted(values)


def test_typed_columns():
    frame = {
        "i8": pa.array([1, 2, 3], pa.int8()),
        "u64": pa.array([1, 2, 3], pa.uint64()),
        "f2": pa.array(np.array([1, 2, 3], dtype=np.float16)),
        "f4": pa.array([0.5, 1.5, 2.5], pa.float32()),
        "dec": pa.array([1, 2, 3], pa.int64()).cast(pa.decimal128(25, 2)),
        "b": pa.array([True, False, True]),
        "s": pa.array(["1", "2", "1"], pa.large_string()),
        "v": pa.array(["x", "y", "x"], pa.string_view()),
        "d": pa.array(["p", "q", "p"]).dictionary_encode(),
    }
    table = open_table(pa.table(frame))
    encoder = TableEncoder.fit(table)
    assert encoder.get_feature_names_out().tolist() == [
        *("i8", "u64", "f2", "f4", "dec", "b"),
        *("s=1", "s=2", "v=x", "v=y", "d=p", "d=q"),
    ]
    X, _ = encode(encoder, table)
    np.testing.assert_array_equal(X[:, 4], [1, 2, 3])
    np.testing.assert_array_equal(X[1], [2, 2, 2, 1.5, 2, 0, 0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_and_csv_agree(tmp_path, make):
    data = {"n": [1, 2, 3], "s": ["a", "b", "a"], "b": [True, False, True], "y": ["u", "v", "u"]}
    frame = open_table(make(data))
    text = csv_table(tmp_path, "n,s,b,y\n1,a,true,u\n2,b,false,v\n3,a,true,u\n")
    encoder = TableEncoder.fit(frame, "y")
    for table in (frame, text):
        X, y = encode(encoder, table)
        np.testing.assert_array_equal(X, [[1, 1, 0, 1], [2, 0, 1, 0], [3, 1, 0, 1]])
        assert y.tolist() == ["u", "v", "u"]


def test_pandas_categories(tmp_path):
    frame = pd.DataFrame(
        {"c": pd.Categorical(["a", "b", "a"], categories=["z", "b", "a"]), "n": [3, 1, 3]}
    )
    frame["n"] = frame["n"].astype("category")
    table = open_table(frame)
    encoder = TableEncoder.fit(table)
    assert encoder.get_feature_names_out().tolist() == ["c=a", "c=b", "n=1", "n=3"]
    X, _ = encode(encoder, table, block_rows=2)
    np.testing.assert_array_equal(X, [[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1]])


def test_typed_text_is_never_taken_for_numbers():
    encoder = TableEncoder.fit(open_table(pa.table({"zip": ["01", "02"], "na": ["NA", "US"]})))
    assert encoder.get_feature_names_out().tolist() == ["zip=01", "zip=02", "na=NA", "na=US"]


# -- types that change late in the file -------------------------------------------------
@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(learn_module, "default_block_rows", lambda n_columns: 10)


@pytest.mark.parametrize(
    ("early", "late", "categories", "expected"),
    [
        ("1", "2.5", None, (1, 2.5)),
        ("", "2.5", None, None),
        ("1", "x7", ("1", "x7"), (1, 0)),
        ("1.5", "many", ("1.5", "many"), (1, 0)),
        ("01", "x7", ("01", "x7"), (1, 0)),
        ("true", "7", ("7", "true"), (0, 1)),
        ("1", "true", ("1", "true"), (1, 0)),
        ("2020-01-01", "soon", ("2020-01-01", "soon"), (1, 0)),
    ],
)
def test_type_settled_by_the_last_row(tmp_path, small_blocks, early, late, categories, expected):
    """The first 99 rows look like one type, and the last row tells that they are not."""
    text = "a,y\n" + f"{early},0\n" * 99 + f"{late},1\n"
    table = csv_table(tmp_path, text)
    encoder = TableEncoder.fit(table, "y", missing="impute")
    assert encoder.columns[0].categories == categories
    if expected is not None:
        X, _ = encode(encoder, table)
        assert (X[0, 0], X[-1, 0]) == expected
    backwards = csv_table(tmp_path, "a,y\n" + f"{late},1\n" + f"{early},0\n" * 99)
    assert TableEncoder.fit(backwards, "y", missing="impute") == encoder


def test_target_type_settled_by_the_last_row(tmp_path, small_blocks):
    for last, kind in (("2", "i"), ("2.5", "f"), ("two", "U")):
        table = csv_table(tmp_path, "a,y\n" + "1,1\n" * 99 + f"1,{last}\n")
        encoder = TableEncoder.fit(table, "y")
        ys = [encoder.labels(batch) for batch in table.blocks(10)]
        assert {y.dtype.kind for y in ys} == {kind}


def test_a_stray_text_among_many_numbers(tmp_path, small_blocks):
    text = "a,y\n" + "".join(f"{i}.5,0\n" for i in range(2000)) + "n.a.,1\n"
    with pytest.raises(ValueError, match=r"'a' seems to hold numbers, but 'n\.a\.' \(row 2001\)"):
        TableEncoder.fit(csv_table(tmp_path, text), "y")
    table = csv_table(tmp_path, text, missing_values=["n.a."])
    assert TableEncoder.fit(table, "y", missing="impute").n_features == 2


cells = st.sampled_from(
    ["1", "2", "2.5", "1e3", "-7", "x", "y z", "true", "?", "", " 3", "2020-01-02"]
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(values=st.lists(cells, min_size=1, max_size=30), cuts=st.lists(st.integers(0, 30)))
@example(values=["1", "?"], cuts=[1])
def test_summaries_are_additive(values, cuts):
    """However the rows are cut into blocks, the summary is the same."""

    def summary(parts):
        total = Summary()
        for part in parts:
            array = pa.array(part, pa.string())
            part_summary = summarise(array, total, untyped=True, missing=("?", ""))
            total = total.merge(part_summary)
        return total

    edges = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    parts = [values[a:b] for a, b in pairwise(edges)]
    whole, cut = summary([values]), summary(parts)
    assert (whole.kind, whole.values) == (cut.kind, cut.values)
    assert (whole.n_missing, whole.first_missing) == (cut.n_missing, cut.first_missing)
    if whole.kind.numeric:
        assert whole.mean == pytest.approx(cut.mean)


# -- missing values ---------------------------------------------------------------------
GAPS = "a,b,c,y\n1,?,x,0\n,2,y,1\n3,4,NA,0\n,6,x,1\n"


def test_missing_values_are_an_error_that_names_all_columns(tmp_path):
    with pytest.raises(ValueError, match=r"'a' \(2\), 'b' \(1\), 'c' \(1\): use missing='impute'"):
        TableEncoder.fit(csv_table(tmp_path, GAPS), "y")


def test_missing_values_imputed_and_marked(tmp_path):
    table = csv_table(tmp_path, GAPS)
    encoder = copy_by_json(TableEncoder.fit(table, "y", missing="impute"))
    assert encoder.get_feature_names_out().tolist() == [
        *("a", "a is missing", "b", "b is missing", "c=x", "c=y", "c is missing")
    ]
    X, y = encode(encoder, table)
    np.testing.assert_array_equal(
        X,
        [
            [1, 0, 4, 1, 1, 0, 0],
            [2, 1, 2, 0, 0, 1, 0],
            [3, 0, 4, 0, 0, 0, 1],
            [2, 1, 6, 0, 1, 0, 0],
        ],
    )
    np.testing.assert_array_equal(y, [0, 1, 0, 1])


def test_missing_values_that_only_appear_later(tmp_path):
    train, later = "a,c,y\n1,x,0\n3,y,1\n", "a,c\n?,x\n1,\n"
    encoder = TableEncoder.fit(csv_table(tmp_path, train), "y", missing="impute")
    X, _ = encode(encoder, csv_table(tmp_path, later))
    np.testing.assert_array_equal(X, [[2, 1, 0], [1, 0, 0]])
    strict = TableEncoder.fit(csv_table(tmp_path, train), "y")
    with pytest.raises(ValueError, match=r"missing values in column 'a' \(1\)"):
        encode(strict, csv_table(tmp_path, later))


def test_a_column_that_is_always_missing(tmp_path):
    table = csv_table(tmp_path, "a,b,y\n1,?,0\n2,?,1\n")
    encoder = TableEncoder.fit(table, "y", missing="impute")
    X, _ = encode(encoder, table)
    np.testing.assert_array_equal(X, [[1, 0, 1], [2, 0, 1]])


def test_nan_and_null_in_frames():
    frame = open_table(pd.DataFrame({"a": [1.0, np.nan, 3.0], "s": ["x", None, "y"]}))
    with pytest.raises(ValueError, match=r"'a' \(1\), 's' \(1\)"):
        TableEncoder.fit(frame)
    X, _ = encode(TableEncoder.fit(frame, missing="impute"), frame)
    np.testing.assert_array_equal(X, [[1, 0, 1, 0, 0], [2, 1, 0, 0, 1], [3, 0, 0, 1, 0]])


def test_missing_target_names_the_row(tmp_path, small_blocks):
    text = "a,y\n" + "1,2\n" * 36 + "1,?\n" + "1,2\n" * 20 + "1,\n"
    with pytest.raises(ValueError, match=r"target column 'y' is missing in 2 .* row 37 "):
        TableEncoder.fit(csv_table(tmp_path, text), "y")
    for good in ("a,y\n1,2\n", "a,y\n1,u\n", "a,y\n1,2.5\n"):
        encoder = TableEncoder.fit(csv_table(tmp_path, good), "y")
        with pytest.raises(ValueError, match="is missing in 2 of the rows, first in row 37"):
            encode(encoder, csv_table(tmp_path, text))


# -- what cannot be encoded -------------------------------------------------------------
@pytest.mark.parametrize(
    "values",
    [
        ["2020-01-01", "2021-12-31"],
        ["2020-01-01 10:00", "2020-01-01T10:00:05.5Z"],
        ["10:30", "11:45:10"],
        ["12/31/2020", "1/2/21"],
        ["31.12.2020", "1.2.2021"],
    ],
)
def test_dates_in_text(tmp_path, values):
    table = csv_table(tmp_path, "a,when,y\n" + "".join(f"1,{v},0\n" for v in values))
    with pytest.raises(ValueError, match="dates or times in column 'when'.*exclude"):
        TableEncoder.fit(table, "y")
    assert TableEncoder.fit(table, "y", exclude=["when"]).n_features == 1
    with pytest.raises(ValueError, match="target column 'when' holds dates"):
        TableEncoder.fit(table, "when")


def test_dates_and_odd_types_in_frames():
    day = datetime.date(2020, 1, 1)
    table = open_table(pa.table({"d": [day], "t": [datetime.timedelta(1)], "x": [1]}))
    with pytest.raises(ValueError, match="dates or times in columns 'd', 't'"):
        TableEncoder.fit(table)
    table = open_table(pa.table({"l": [[1, 2]], "b": [b"x"], "x": [1]}))
    with pytest.raises(ValueError, match="neither numbers nor text in columns 'l', 'b'"):
        TableEncoder.fit(table)


def test_infinite_values(tmp_path):
    table = csv_table(tmp_path, "a,y\n1,0\ninf,1\n")
    with pytest.raises(ValueError, match="infinite values in column 'a'"):
        TableEncoder.fit(table, "y")
    encoder = TableEncoder.fit(csv_table(tmp_path, "a,y\n1,0\n2,1\n"), "y")
    with pytest.raises(ValueError, match="column 'a' holds infinite"):
        encode(encoder, csv_table(tmp_path, "a,y\n1,0\n-inf,1\n"))
    with pytest.raises(ValueError, match="target column 'y' holds 1 infinite"):
        TableEncoder.fit(csv_table(tmp_path, "a,y\n1,0\n1,inf\n"), "y")


def test_too_many_categories(tmp_path):
    rows = "".join(f"id{i},1\n" for i in range(MAX_CATEGORIES))
    table = csv_table(tmp_path, "name,y\n" + rows)
    assert TableEncoder.fit(table, "y").n_features == MAX_CATEGORIES
    table = csv_table(tmp_path, "name,y\n" + rows + "one more,1\n")
    with pytest.raises(ValueError, match=r"column 'name' holds text, such as 'id0', .*exclude"):
        TableEncoder.fit(table, "y")
    assert TableEncoder.fit(csv_table(tmp_path, "a,name\n" + "1,x\n"), "name").n_features == 1


def test_text_where_numbers_were(tmp_path):
    encoder = TableEncoder.fit(csv_table(tmp_path, "a,b,y\n1,2,0\n3,4,1\n"), "y")
    with pytest.raises(ValueError, match="column 'b' holds 'high', which is not a number"):
        encode(encoder, csv_table(tmp_path, "a,b\n1,2\n1,high\n", header=True))
    with pytest.raises(ValueError, match="column 'b' holds date32"):
        day = datetime.date(2020, 1, 1)
        encode(encoder, open_table(pa.table({"a": [1], "b": [day]})))
    with pytest.raises(ValueError, match="target column 'y' holds 'no'"):
        encode(encoder, csv_table(tmp_path, "a,b,y\n1,2,no\n"))
    text = TableEncoder.fit(csv_table(tmp_path, "a,c\nx,0\nz,1\n"), "c")
    with pytest.raises(ValueError, match="column 'a' holds list"):
        encode(text, open_table(pa.table({"a": [[1]]})))


def test_bad_arguments(tmp_path):
    table = csv_table(tmp_path, SMALL)
    with pytest.raises(ValueError, match="missing must be"):
        TableEncoder.fit(table, "y", missing="drop")
    with pytest.raises(ValueError, match="exclude: .* no column 'nope'"):
        TableEncoder.fit(table, "y", exclude=["nope"])
    with pytest.raises(ValueError, match="exclude names the target"):
        TableEncoder.fit(table, "y", exclude=["y"])
    with pytest.raises(ValueError, match="no column left"):
        TableEncoder.fit(table, "y", exclude=["a", "colour", 2])
    batch = next(table.blocks(5))
    with pytest.raises(ValueError, match="without a target"):
        TableEncoder.fit(table).labels(batch)
    with pytest.raises(ValueError, match="holds no rows"):
        TableEncoder.fit(csv_table(tmp_path, "a,b\n", header=True))


# -- other tables -----------------------------------------------------------------------
def test_other_order_missing_and_extra_columns(tmp_path):
    encoder = TableEncoder.fit(csv_table(tmp_path, "a,b,y\n1,2,0\n3,4,1\n"), "y")
    X, y = encode(encoder, csv_table(tmp_path, "b,a\n2,1\n"))
    np.testing.assert_array_equal(X, [[1, 2]])
    assert y is None
    X, y = encode(encoder, csv_table(tmp_path, "y,b,a\n7,2,1\n"))
    np.testing.assert_array_equal(y, [7])
    with pytest.warns(UserWarning, match="ignoring columns 'c', 'd'"):
        X, _ = encode(encoder, csv_table(tmp_path, "c,a,d,b\n9,1,9,2\n"))
    np.testing.assert_array_equal(X, [[1, 2]])
    with pytest.raises(ValueError, match="lacks column 'a', which the model was fitted on"):
        encode(encoder, csv_table(tmp_path, "b,y\n2,1\n"))
    with pytest.raises(ValueError, match=r"lacks columns 'a', 'b'.*first line was taken as data"):
        encode(encoder, csv_table(tmp_path, "1,2\n"))


def test_excluded_columns_are_not_extra(tmp_path):
    table = csv_table(tmp_path, SMALL)
    encoder = TableEncoder.fit(table, "y", exclude=["colour"])
    assert encode(encoder, table)[0].shape == (3, 2)


def test_tables_without_header(tmp_path):
    train = csv_table(tmp_path, "no,1,2\nyes,3,4\n", header=False)
    encoder = copy_by_json(TableEncoder.fit(train, 0))
    X, y = encode(encoder, train)
    np.testing.assert_array_equal(X, [[1, 2], [3, 4]])
    assert y.tolist() == ["no", "yes"]
    X, y = encode(encoder, csv_table(tmp_path, "1,2\n3,4\n"))  # the target column is left out
    np.testing.assert_array_equal(X, [[1, 2], [3, 4]])
    assert y is None
    with pytest.raises(ValueError, match="lacks columns 'x1', 'x2'.*taken as names"):
        encode(encoder, csv_table(tmp_path, "a,b,c\nno,1,2\n"))
    with pytest.raises(ValueError, match="lacks column"):
        encode(encoder, csv_table(tmp_path, "1\n2\n"))


def test_labels_of_another_table(tmp_path):
    encoder = TableEncoder.fit(csv_table(tmp_path, "a,y\n1,1\n2,0\n"), "y")
    _, y = encode(encoder, csv_table(tmp_path, "a,y\n1,1.0\n"))
    assert y.dtype == np.int64
    _, y = encode(encoder, csv_table(tmp_path, "a,y\n1,1.5\n"))
    np.testing.assert_array_equal(y, [1.5])
    encoder = TableEncoder.fit(csv_table(tmp_path, "a,y\n1,1\n2,b\n"), "y")
    _, y = encode(encoder, open_table(pa.table({"a": [1], "y": [1]})))
    assert y.tolist() == ["1"]


def test_codes_with_leading_zeros_are_found_again(tmp_path):
    """A prediction file with digits only must not lose the zeros of a category."""
    encoder = TableEncoder.fit(csv_table(tmp_path, "zip,y\n01,0\n1,1\nA9,0\n"), "y")
    X, _ = encode(encoder, csv_table(tmp_path, "zip\n01\n1\n", header=True))
    np.testing.assert_array_equal(X, [[1, 0, 0], [0, 1, 0]])


def test_from_schema():
    schema = pa.schema([("a", pa.int32()), ("y", pa.string()), ("b", pa.bool_())])
    encoder = TableEncoder.from_schema(schema, "y")
    table = open_table(pa.table({"a": [1], "y": ["u"], "b": [True]}, schema=schema))
    X, y = encode(copy_by_json(encoder), table)
    np.testing.assert_array_equal(X, [[1, 1]])
    assert y.tolist() == ["u"]
    with pytest.raises(ValueError, match="column 'y' without numbers: use fit"):
        TableEncoder.from_schema(schema, "a")
    with pytest.raises(ValueError, match="target 'z'"):
        TableEncoder.from_schema(schema, "z")


# -- wide tables are sparse -------------------------------------------------------------
@pytest.mark.parametrize("missing", ["error", "impute"])
def test_wide_tables_become_sparse(tmp_path, missing):
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal():.3f},c{rng.integers(150)},d{rng.integers(90)},0" for _ in range(2000)]
    if missing == "impute":
        lines += [",c1,d1,0", "1,?,d2,0", "?,NA,,0"]
    table = csv_table(tmp_path, "n,c,d,y\n" + "\n".join(lines))
    encoder = TableEncoder.fit(table, "y", missing=missing)
    assert encoder.sparse
    batch = next(table.blocks(5000))
    X = encoder.transform(batch)
    assert isinstance(X, sparse.csr_array)
    assert X.has_canonical_format
    assert (X.data != 0).all()
    dense = np.zeros(X.shape)
    names = encoder.get_feature_names_out().tolist()
    mean = encoder.columns[0].mean
    for row, line in enumerate(lines):
        n, c, d, _ = line.split(",")
        dense[row, 0] = mean if n in ("", "?") else float(n)
        for column, value, gap in (("n", n, ("", "?")), ("c", c, ("?", "NA")), ("d", d, ("",))):
            if value in gap:
                dense[row, names.index(f"{column} is missing")] = 1
            elif column != "n":
                dense[row, names.index(f"{column}={value}")] = 1
    np.testing.assert_array_equal(X.toarray(), dense)


def test_unknown_categories_in_sparse_tables(tmp_path):
    rows = "".join(f"1,c{i},0\n" for i in range(300))
    encoder = TableEncoder.fit(csv_table(tmp_path, "n,c,y\n" + rows), "y")
    assert encoder.sparse
    X, _ = encode(encoder, csv_table(tmp_path, "n,c\n5,new\n6,c0\n"))
    assert X.sum(axis=1).tolist() == [5, 7]


# -- the plain form ---------------------------------------------------------------------
@pytest.mark.parametrize(
    "change",
    [
        {"form": "table-99"},
        {"columns": None},
        {"columns": [{"name": "a"}]},
        {"columns": [{"name": "a", "categories": "abc", "mean": 0, "indicator": False}]},
        {"target_kind": "nonsense"},
        {"missing_values": 3},
    ],
)
def test_damaged_plain_form(tmp_path, change):
    plain = TableEncoder.fit(csv_table(tmp_path, SMALL), "y").to_json()
    with pytest.raises(ValueError, match="table encoder|nonsense"):
        TableEncoder.from_json({**plain, **change})


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(names, min_size=1, max_size=20),
    numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
)
def test_json_round_trip(texts, numbers):
    n = min(len(texts), len(numbers))
    table = open_table(pa.table({"t": texts[:n], "x": numbers[:n]}))
    encoder = TableEncoder.fit(table)
    again = copy_by_json(encoder)
    batch = next(table.blocks(100))
    np.testing.assert_array_equal(again.transform(batch), encoder.transform(batch))
    np.testing.assert_array_equal(again.transform(batch)[:, -1], numbers[:n])


def test_messages_do_not_list_hundreds_of_names():
    frame = pa.table({f"c{i}": [None, 1] for i in range(300)})
    with pytest.raises(ValueError, match="and 290 more columns") as caught:
        TableEncoder.fit(open_table(frame))
    assert len(str(caught.value)) < 600
    assert not re.search("c200", str(caught.value))
