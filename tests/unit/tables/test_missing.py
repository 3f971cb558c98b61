"""Missing values: filled in and marked, dropped in the target, told once where they are new."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.unit.tables.helpers import copy_by_file, csv_table, encode, learn, names_of

from likelier import TableFeatures

N = 60
X = np.random.default_rng(0).normal(size=N).round(3)
DAYS = [f"2020-0{1 + i % 6}-{10 + i % 18}" for i in range(N)]
COLUMNS = {
    "number": X.tolist(),
    "written": [f"{x + 5:.2f} kg" for x in X],
    "boolean": [True, False] * (N // 2),
    "yesno": ["yes", "no", "yes"] * (N // 3),
    "category": ["red", "green", "blue"] * (N // 3),
    "names": [f"street {i % 50}" for i in range(N)],
    "date": DAYS,
    "typed": [np.datetime64(day, "us").item() for day in DAYS],
    "text": [f"some words of row {i} {'uvw'[i % 3]}{i % 5}x" for i in range(N)],
}
KINDS = {
    "number": "number",
    "written": "number",
    "boolean": "boolean",
    "yesno": "boolean",
    "category": "category",
    "names": "category",
    "date": "date",
    "typed": "date",
    "text": "text",
}
OTHER = {"other": (X**2).tolist()}


# -- in training ------------------------------------------------------------------------
def test_missing_values_are_filled_in_and_marked(tmp_path):
    text = "a,b,c,y\n1,?,x,0\n,2,y,1\n3,4,NA,0\n,6,x,1\n8,3,y,1\n"
    table = csv_table(tmp_path, text)
    encoding = copy_by_file(learn(table, "y"), tmp_path)
    assert names_of(encoding) == [
        *("a", "a is missing", "b", "b is missing", "c=x", "c=y", "c is missing")
    ]
    features, y = encode(encoding, table)
    np.testing.assert_array_equal(
        features,
        [
            [1, 0, 3.5, 1, 1, 0, 0],
            [3, 1, 2, 0, 0, 1, 0],
            [3, 0, 4, 0, 0, 0, 1],
            [3, 1, 6, 0, 1, 0, 0],
            [8, 0, 3, 0, 0, 1, 0],
        ],
    )
    np.testing.assert_array_equal(y, [0, 1, 0, 1, 1])


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_kind_marks_missing_values(kind):
    """Where there is a value, the features are those without a gap elsewhere."""
    whole = learn({kind: COLUMNS[kind], **OTHER})
    cells = list(COLUMNS[kind])
    cells[4] = cells[50] = None
    encoding = learn({kind: cells, **OTHER})
    assert encoding.kinds()[kind] == whole.kinds()[kind] == KINDS[kind]
    assert names_of(encoding)[-2:] == [f"{kind} is missing", "other"]
    features, _ = encode(encoding, {kind: cells, **OTHER})
    assert np.isfinite(features).all()
    assert np.flatnonzero(features[:, -2]).tolist() == [4, 50]
    if kind not in ("names", "text"):  # whose weights depend on all rows
        there = np.delete(np.arange(N), [4, 50])
        common = [name for name in names_of(whole) if name in names_of(encoding)]
        old = [names_of(whole).index(name) for name in common]
        new = [names_of(encoding).index(name) for name in common]
        expected = encode(whole, {kind: COLUMNS[kind], **OTHER})[0]
        np.testing.assert_allclose(features[np.ix_(there, new)], expected[np.ix_(there, old)])


def test_what_stands_for_a_missing_value():
    for kind, value in (("number", np.median(np.delete(X, [4, 50]))), ("boolean", 0.5)):
        cells = list(COLUMNS[kind])
        cells[4] = cells[50] = None
        filled = encode(learn({kind: cells, **OTHER}), {kind: cells, **OTHER})[0]
        assert filled[4, 0] == pytest.approx(value, abs=0.02)
    cells = [*DAYS[:4], None, *DAYS[5:]]
    encoding = learn({"date": cells, **OTHER})
    row = dict(
        zip(names_of(encoding), encode(encoding, {"date": cells, **OTHER})[0][4], strict=True)
    )
    days = np.array([day for day in cells if day], "M8[D]").astype(int)
    assert row["date days"] == np.median(days) - days.min()
    angles = [row[name] for name in row if name.endswith((" sin", " cos"))]
    assert len(angles) == 6 and not any(angles)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_nan_and_null_in_frames(make):
    frame = make({"a": [1.0, None, 3.0, 3.0], "s": ["x", None, "y", "x"]})
    encoding = learn(frame)
    assert names_of(encoding) == ["a", "a is missing", "s=x", "s=y", "s is missing"]
    features, _ = encode(encoding, frame)
    np.testing.assert_array_equal(
        features, [[1, 0, 1, 0, 0], [3, 1, 0, 0, 1], [3, 0, 0, 1, 0], [3, 0, 1, 0, 0]]
    )
    gap = pl.DataFrame({"a": [1.0, float("nan"), 3.0, 3.0], "s": ["x", None, "y", "x"]})
    np.testing.assert_array_equal(encode(encoding, gap)[0], features)


@pytest.mark.parametrize(
    "cells", [[None] * 30, [np.nan] * 30, [""] * 30, np.full(30, np.datetime64("NaT", "us"))]
)
def test_a_column_that_is_always_missing_is_left_out(tmp_path, cells):
    data = {"gone": cells, "x": X[:30]}
    if isinstance(cells, list) and cells[0] == "":
        data = csv_table(tmp_path, "gone,x\n" + "".join(f",{x}\n" for x in X[:30]))
    encoding = learn(data)
    assert encoding.kinds() == {"gone": "constant", "x": "number"}
    assert encoding.notes() == {"gone": "no values: dropped"}
    np.testing.assert_array_equal(encode(encoding, data)[0], X[:30, None])
    np.testing.assert_array_equal(encode(encoding, {"x": [1.5]})[0], [[1.5]])


def test_a_constant_with_gaps_is_kept():
    encoding = learn({"a": [1.0, None, 1.0, None], "b": ["x", None, None, "x"], "x": [1, 2, 3, 5]})
    assert names_of(encoding) == ["a", "a is missing", "b=x", "b is missing", "x"]


def test_infinite_values_are_missing():
    encoding = learn({"a": [1.0, np.inf, 3.0, -np.inf, 5.0], "x": [1, 2, 3, 4, 6]})
    assert encoding.notes() == {"a": "numbers; 2 infinite values treated as missing"}
    features, _ = encode(encoding, {"a": [np.inf, 2.0], "x": [0, 0]})
    np.testing.assert_array_equal(features, [[3, 1, 0], [2, 0, 0]])


# -- only at prediction -----------------------------------------------------------------
@pytest.mark.parametrize("kind", [kind for kind in COLUMNS if kind != "text"])
def test_values_missing_only_later_are_filled_in_with_one_warning(kind):
    features = TableFeatures().fit({kind: COLUMNS[kind], **OTHER})
    expected = features.transform({kind: COLUMNS[kind], **OTHER})
    cells = list(COLUMNS[kind])
    cells[4] = cells[50] = None
    with pytest.warns(UserWarning, match="lack values that were never missing") as told:
        found = features.transform({kind: cells, **OTHER})
    assert len(told) == 1
    message = str(told[0].message)
    assert f"of {N} rows" in message
    assert message.endswith(f"'{kind}' (2)")
    there = np.delete(np.arange(N), [4, 50])
    np.testing.assert_array_equal(found[there], expected[there])
    np.testing.assert_array_equal(found[4, :-1], found[50, :-1])
    if kind == "number":
        assert found[4, 0] == pytest.approx(np.median(X))
    elif KINDS[kind] in ("boolean", "category"):  # the average of training
        np.testing.assert_allclose(found[4, :-1], expected[:, :-1].mean(axis=0), atol=1e-6)


def test_no_text_is_a_text_of_no_words():
    features = TableFeatures().fit({"text": COLUMNS["text"], **OTHER})
    found = features.transform({"text": [None, "", "words"], "other": [0.0, 0.0, 0.0]})
    assert not found[:2].any()
    assert np.count_nonzero(found[2]) == 1


def test_values_missing_in_several_columns_are_told_at_once():
    features = TableFeatures().fit({"a": X, "c": COLUMNS["category"], **OTHER})
    later = {"a": [None, 1.0, None], "c": [None, "red", "red"], "other": [1.0, 2.0, 3.0]}
    with pytest.warns(UserWarning, match=r"of 3 rows.*: 'a' \(2\), 'c' \(1\)$") as told:
        features.transform(later)
    assert len(told) == 1


def test_marked_columns_are_not_told():
    cells = [None, *X[1:]]
    features = TableFeatures().fit({"a": cells, **OTHER})
    found = features.transform({"a": [None, 2.0], "other": [1.0, 1.0]})
    np.testing.assert_allclose(found, [[np.median(X[1:]), 1, 1], [2, 0, 1]])


def test_own_marks_of_missing_values_are_remembered(tmp_path):
    train = csv_table(tmp_path, "a,y\n1,0\n-99,1\n3,1\n4,0\n", missing_values=["-99"])
    encoding = copy_by_file(learn(train, "y"), tmp_path)
    later = csv_table(tmp_path, "a\n-99\n7\n", **encoding.reading())
    np.testing.assert_array_equal(encode(encoding, later)[0], [[3, 1], [7, 0]])


# -- in the target ----------------------------------------------------------------------
@pytest.mark.parametrize("mark", ["", "NA", "?", "nan"])
def test_rows_without_a_target_are_dropped_and_counted(tmp_path, mark):
    lines = [f"{x},{mark if i in (2, 17) else i % 2}\n" for i, x in enumerate(X)]
    table = csv_table(tmp_path, "x,y\n" + "".join(lines))
    encoding = learn(table, "y")
    assert (encoding.n_rows, encoding.n_dropped) == (N - 2, 2)
    there = np.delete(np.arange(N), [2, 17])
    for block_rows in (1, 7, 1000):
        features, y = encode(encoding, table, block_rows)
        np.testing.assert_array_equal(features[:, 0], X[there])
        np.testing.assert_array_equal(y, there % 2)


def test_dropped_rows_teach_nothing():
    frame = {"x": [1.0, 2.0, 3.0, 1e9], "c": ["a", "b", "a", "never"], "y": [0, 1, 1, None]}
    encoding = learn(frame, "y")
    assert names_of(encoding) == ["x", "c=b"]
    (column, _) = encoding.columns
    assert column.fill == 2.0


def test_a_target_without_any_value(tmp_path):
    with pytest.raises(ValueError, match="contains no rows with a target"):
        learn(csv_table(tmp_path, "a,y\n1,\n2,\n"), "y")
    with pytest.raises(ValueError, match="contains no rows with a target"):
        learn({"a": [1.0, 2.0], "y": [None, np.nan]}, "y")
