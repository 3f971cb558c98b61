"""The kind of every column: found out, said otherwise, and shown."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from tests.unit.tables.helpers import csv_table, encode, learn, names_of

from likelier import TableFeatures

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=N).round(3).tolist()
WORDS = [f"the {['good', 'bad', 'dull'][i % 3]} film of row {i}" for i in range(N)]
DAYS = [f"2020-01-{1 + i % 28:02d}" for i in range(N)]

FOUND = {
    "numbers": (X, "number"),
    "whole numbers": (RNG.integers(0, 1000, N).tolist(), "number"),
    "few whole numbers": ([i % 3 for i in range(N)], "number"),
    "numbers as text": ([str(x) for x in X], "number"),
    "exponents": ([f"{x:.2e}" for x in X], "number"),
    "thousands": ([f"{i + 1},{100 + i},000" for i in range(N)], "number"),
    "decimal commas": ([f"{x:.3f}".replace(".", ",") for x in X], "number"),
    "percent": ([f"{abs(x):.1f} %" for x in X], "number"),
    "currency": ([f"${1000 + i:,}" for i in range(N)], "number"),
    "unit": ([f"{abs(x):.2f} kg" for x in X], "number"),
    "booleans": ([True, False] * 30, "boolean"),
    "yes and no": (["yes", "no"] * 30, "boolean"),
    "YES and No": (["YES", "No", "no"] * 20, "boolean"),
    "y and n": (["y", "n"] * 30, "boolean"),
    "t and f": (["t", "f"] * 30, "boolean"),
    "on and off": (["on", "off"] * 30, "boolean"),
    "true and no": (["true", "no"] * 30, "category"),
    "yes, no and maybe": (["yes", "no", "maybe"] * 20, "category"),
    "levels": (["red", "green", "blue"] * 20, "category"),
    "codes": (["001", "007", "010"] * 20, "category"),
    "many names": ([f"town {i % 50}" for i in range(N)], "category"),
    "declared": (pd.Categorical([i % 50 for i in range(N)]), "category"),
    "few long names": (["a rather long name", "another long name here"] * 30, "category"),
    "running text": (WORDS, "text"),
    "days": (DAYS, "date"),
    "typed days": ([dt.date(2020, 1, 1 + i % 28) for i in range(N)], "date"),
    "moments": ([dt.datetime(2020, 1, 1 + i % 28, i % 24) for i in range(N)], "date"),
    "times of day": ([f"{i % 24}:{i:02d}" for i in range(N)], "date"),
    "typed times": ([dt.time(i % 24, i) for i in range(N)], "date"),
    "identifiers": ([f"id{7 * i}" for i in range(N)], "identifier"),
    "row numbers": (list(range(N)), "identifier"),
    "row numbers from a thousand in fives": (list(range(1000, 1000 + 5 * N, 5)), "identifier"),
    "row numbers as text": ([str(i) for i in range(N)], "identifier"),
    "one number": ([3.5] * N, "constant"),
    "one text": (["x"] * N, "constant"),
    "one day": ([dt.date(2020, 1, 1)] * N, "constant"),
    "nothing": ([None] * N, "constant"),
}


@pytest.mark.parametrize("name", FOUND)
def test_kinds_are_found(name):
    values, kind = FOUND[name]
    features = TableFeatures().fit({name: values, "x": X[::-1]})
    assert features.encoding_.kinds() == {name: kind, "x": "number"}
    line, last = features.summary().splitlines()
    assert line.startswith(f"{name}: {kind}")
    assert last == "x: number"
    left_out = kind in ("identifier", "constant")
    assert (": dropped" in line) == left_out
    assert (names_of(features.encoding_) == ["x"]) == left_out
    assert np.isfinite(features.transform({name: values, "x": X})).all()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (X, "c: number"),
        (["a", "b", "c"] * 20, "c: category of 3 levels"),
        ([*["a", "b"] * 28, "k", "l", "m", "m"], "c: category of 5 levels, 3 rare ones pooled"),
        ([f"town {i % 50}" for i in range(N)], "c: category of 50 levels, encoded by spelling"),
        (["y", "n"] * 30, "c: boolean ('y', 'n')"),
        ([True, False] * 30, "c: boolean"),
        (DAYS, "c: dates in the format year-month-day"),
        (WORDS, "c: text, 7 words"),
        ([f"{x + 9:.2f}" for x in X] + ["unknown", "n.a."],
         "c: numbers; 2 texts such as 'unknown', 'n.a.' treated as missing"),
        ([f"€ {x + 9:.2f}" for x in X], "c: numbers with the currency '€'"),
        ([f"id{i}" for i in range(N)], "c: identifier (all distinct): dropped"),
        (list(range(5, 5 + 3 * N, 3)),
         "c: identifier (integers increasing by 3): dropped"),
        ([7] * N, "c: constant (always 7: dropped)"),
        (["x"] * N, "c: constant (always 'x': dropped)"),
        ([None] * N, "c: constant (no values: dropped)"),
        ([np.inf] * N, "c: constant (no finite values: dropped)"),
    ],
)  # fmt: skip
def test_the_summary_says_what_was_assumed(values, line):
    n = len(values)
    other = np.random.default_rng(1).normal(size=n)
    assert TableFeatures().fit({"c": values, "x": other}).summary().splitlines()[0] == line


# -- said otherwise ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "kind", "names"),
    [
        ([i % 3 for i in range(N)], "category", ["c=0", "c=1", "c=2"]),
        ([1.5, 2.0, float("nan")] * 20, "category", ["c=1.5", "c=2", "c is missing"]),
        ([dt.date(2020, 1, 1 + i % 2) for i in range(N)], "category", ["c=2020-01-02"]),
        (["yes", "no"] * 30, "category", ["c=yes"]),
        ([*["5", "6", "7", "8"] * 14, *["x"] * 4], "number", ["c", "c is missing"]),
        ([True, False] * 30, "number", ["c"]),
        (pd.Categorical(["1", "2.5", "x"] * 20), "number", ["c", "c is missing"]),
        (list(range(N)), "number", ["c"]),
        ([i % 2 for i in range(N)], "boolean", ["c"]),
        ([float(i % 2) for i in range(N)], "boolean", ["c"]),
        (["1", "0"] * 30, "boolean", ["c"]),
        (["red ball", "green ball"] * 30, "text", ["c:ball", "c:green", "c:red"]),
        (["01/02/2020", "unknown", "nothing"] * 20, "date", ["c days", "c is missing"]),
        (X, "identifier", []),
        (X, "constant", []),
    ],
)
def test_kinds_may_be_said(values, kind, names):
    features = TableFeatures({"c": kind}).fit({"c": values, "x": X})
    assert features.encoding_.kinds()["c"] == kind
    found = [name for name in names_of(features.encoding_) if name != "x"]
    assert found[: len(names)] == names or (kind == "number" and found == names[:1])
    assert np.isfinite(features.transform({"c": values, "x": X})).all()


@pytest.mark.parametrize("cells", [["001", "007", "10"], ["00", "01", "x"]])
def test_codes_are_numbers_where_they_are_said_to_be(cells):
    table = {"c": cells * 30, "x": np.arange(30 * len(cells)) ** 0.5}
    encoding = learn(table, kinds={"c": "number"})
    assert encoding.notes()["c"].startswith("numbers with leading zeros")
    expected = [float(cell) for cell in cells if cell != "x"]
    found, _ = encode(encoding, table)
    np.testing.assert_array_equal(found[: len(expected), 0], expected)
    assert names_of(encoding) == (["c", "c is missing", "x"] if "x" in cells else ["c", "x"])


def test_what_is_said_of_one_column_leaves_the_others(tmp_path):
    table = csv_table(
        tmp_path, "zip,r,y\n" + "".join(f"{10115 + i % 3},{i % 7}.5,0\n" for i in range(N))
    )
    encoding = learn(table, "y", kinds={"zip": "category"})
    assert names_of(encoding) == ["zip=10115", "zip=10116", "zip=10117", "r"]
    by_place = learn(table, "y", kinds={0: "category"})
    assert names_of(by_place) == names_of(encoding)


def test_categories_of_typed_numbers():
    table = {"zip": [10115, 20095, None], "r": [1.5, float("nan"), 2.0], "y": [0, 1, 0]}
    encoding = learn(table, "y", kinds={"zip": "category", "r": "category"})
    names = ["zip=10115", "zip=20095", "zip is missing", "r=1.5", "r=2", "r is missing"]
    assert names_of(encoding) == names
    expected = [[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0]]
    np.testing.assert_array_equal(encode(encoding, table)[0], expected)


@pytest.mark.parametrize(
    ("values", "kind", "fault"),
    [
        (["red", "green"] * 30, "number", "contains 'red', 'green', but kinds says 'number'"),
        (DAYS, "number", "contains '2020-01-01', .*, but kinds says 'number'"),
        (
            [dt.date(2020, 1, 1 + i % 9) for i in range(N)],
            "number",
            "contains dates or times, but kinds says 'num",
        ),
        (["red", "green"] * 30, "date", "contains 'red', 'green', but kinds says 'date'"),
        (X, "date", "contains numbers, but kinds says 'date'"),
        (
            ["red", "green"] * 30,
            "boolean",
            "contains 'red', 'green', but kinds says 'boolean'",
        ),
        ([i % 3 for i in range(N)], "boolean", "contains .*, but kinds says 'boolean'"),
        (X, "boolean", "contains .*, but kinds says 'boolean'"),
    ],
)
def test_kinds_that_do_not_fit_are_refused(values, kind, fault):
    with pytest.raises(ValueError, match=f"column 'c' {fault}"):
        TableFeatures({"c": kind}).fit({"c": values, "x": X})


def test_kinds_that_are_none_are_refused():
    table = {"c": X, "y": X}
    with pytest.raises(ValueError, match="'c' has the unknown kind 'categorical'; use one of"):
        learn(table, kinds={"c": "categorical"})
    with pytest.raises(ValueError, match="kinds: .* has no column 'd'"):
        learn(table, kinds={"d": "number"})
    with pytest.raises(ValueError, match="the target 'y' must be a 'category' or a 'number'"):
        learn(table, "y", kinds={"y": "text"})
    with pytest.raises(TypeError, match="kinds must be a dict"):
        TableFeatures(["c"]).fit(table)


# -- identifiers and constants ----------------------------------------------------------
def test_few_rows_may_all_differ():
    for n, kind in ((19, "category"), (20, "identifier")):
        table = {"c": [f"id{i}" for i in range(n)], "x": X[:n]}
        assert learn(table).kinds()["c"] == kind
    for n, kind in ((19, "number"), (20, "identifier")):
        assert learn({"c": list(range(n)), "x": X[:n]}).kinds()["c"] == kind


@pytest.mark.parametrize(
    "values",
    [
        [f"id{i}" for i in range(N - 1)] + ["id0"],
        [*range(N - 1), N + 5],
        [*range(N - 1), None],
        [x + 0.5 for x in range(N)],
        [f"id {i}" for i in range(N)],
        [f"{i}{'long' * 17}" for i in range(N)],
    ],
)
def test_these_are_no_identifiers(values):
    assert learn({"c": values, "x": X}).kinds()["c"] != "identifier"


@pytest.mark.parametrize(
    ("values", "kind", "note"),
    [
        (list(range(N)), "number", "identifier (integers increasing by 1), kept"),
        ([f"id{i}" for i in range(N)], "category", "identifier (all distinct), kept"),
        ([7.0] * N, "number", "always 7, kept"),
        (["x"] * N, "category", "always 'x', kept"),
        ([dt.date(2020, 1, 1)] * N, "date", "always the same date or time, kept"),
        ([None] * N, "number", "no values, kept"),
    ],
)
def test_they_are_kept_if_there_is_nothing_else(values, kind, note):
    encoding = learn({"c": values})
    assert encoding.kinds() == {"c": kind}
    assert encoding.notes() == {"c": f"{note}: no other columns"}
    assert np.isfinite(encode(encoding, {"c": values})[0]).all()


def test_an_identifier_is_kept_rather_than_a_constant():
    encoding = learn({"same": ["x"] * N, "row": list(range(N))})
    assert names_of(encoding) == ["row"]
    assert encoding.kinds() == {"same": "constant", "row": "number"}


def test_nothing_is_left_where_all_is_said_to_be_left_out():
    with pytest.raises(ValueError, match="no usable feature column"):
        learn({"c": X}, kinds={"c": "identifier"})
    with pytest.raises(ValueError, match="no usable feature column"):
        learn({"c": X, "y": X}, "y", exclude=["c"])
