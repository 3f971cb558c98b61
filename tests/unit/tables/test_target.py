"""The target column: labels as they were written, numbers in text, and what is refused."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.tables.helpers import copy_by_file, csv_file, csv_table, encode, learn, names_of

from likelier.data import open_table
from likelier.data.columns import Kind
from likelier.tables import block_source, first_pass


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(first_pass, "default_block_rows", lambda n_columns: 10)


def labelled(tmp_path, labels, **reading):
    """A table of a number and these labels."""
    lines = [f"{i * i},{label}\n" for i, label in enumerate(labels)]
    return csv_table(tmp_path, "x,y\n" + "".join(lines), **reading)


def labels_of(tmp_path, labels, **reading):
    table = labelled(tmp_path, labels, **reading)
    encoding = copy_by_file(learn(table, "y"), tmp_path)
    return encoding, encode(encoding, table)[1]


NUMBERS = [f"{0.37 * i - 5:.2f}" for i in range(60)]


# -- kinds ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("texts", "kind", "expected"),
    [
        (["1", "2", "-3"], Kind.INTEGER, np.array([1, 2, -3])),
        ([" 1", "2 ", " 3"], Kind.INTEGER, np.array([1, 2, 3])),
        (["1", "2.5", "3"], Kind.FLOAT, np.array([1, 2.5, 3])),
        (["1", "99999999999999999999", "3"], Kind.FLOAT, np.array([1, 1e20, 3])),
        (["true", "False", "TRUE"], Kind.BOOLEAN, np.array([True, False, True])),
        (["a", " b", "c "], Kind.TEXT, np.array(["a", "b", "c"])),
        (["true", "1", "0"], Kind.TEXT, np.array(["true", "1", "0"])),
        (["01", "1", "x"], Kind.TEXT, np.array(["01", "1", "x"])),
        (["001", "007", "010"], Kind.TEXT, np.array(["001", "007", "010"])),
        (["<=50K", ">50K", "<=50K"], Kind.TEXT, np.array(["<=50K", ">50K", "<=50K"])),
        (["yes", "no", "yes"], Kind.TEXT, np.array(["yes", "no", "yes"])),
        (["5 %", "7 %", "5 %"], Kind.TEXT, np.array(["5 %", "7 %", "5 %"])),
    ],
)
def test_labels_keep_their_kind(tmp_path, texts, kind, expected):
    encoding, y = labels_of(tmp_path, texts)
    assert encoding.target.kind == kind
    np.testing.assert_array_equal(y, expected, strict=expected.dtype.kind != "U")
    assert y.dtype.kind == expected.dtype.kind


def test_the_kind_is_settled_by_the_last_row(tmp_path, small_blocks):
    for last, kind in (("2", "i"), ("2.5", "f"), ("two", "U")):
        _, y = labels_of(tmp_path, ["1"] * 99 + [last])
        assert y.dtype.kind == kind


def test_by_position(tmp_path):
    text = "1,2,a\n3,4,b\n6,9,b\n"
    for target in (2, -1, "2", "-1", "x2"):
        assert learn(csv_table(tmp_path, text), target).target.name == "x2"
    assert learn(csv_table(tmp_path, text)).n_features == 3
    for target in (3, "y", "1.5", -4):
        with pytest.raises(ValueError, match=rf"target: .* no column {target!r}.*count from 0"):
            learn(csv_table(tmp_path, text), target)


def test_labels_of_another_table(tmp_path):
    encoding = learn(csv_table(tmp_path, "a,y\n1,1\n2,0\n"), "y")
    _, y = encode(encoding, csv_table(tmp_path, "a,y\n1,1.0\n"))
    assert y.dtype == np.int64
    _, y = encode(encoding, csv_table(tmp_path, "a,y\n1,1.5\n"))
    np.testing.assert_array_equal(y, [1.5])
    with pytest.raises(ValueError, match=r"target column 'y'.* contains 'no'"):
        encode(encoding, csv_table(tmp_path, "a,y\n1,no\n"))
    encoding = learn(csv_table(tmp_path, "a,y\n1,1\n2,b\n"), "y")
    _, y = encode(encoding, open_table(pa.table({"a": [1], "y": [1]})))
    assert y.tolist() == ["1"]


def test_a_prediction_leaves_the_target_alone(tmp_path):
    encoding = learn(csv_table(tmp_path, "a,y\n1,1\n2,0\n"), "y")
    source = block_source(csv_file(tmp_path, "a,y\n1,\n2,tbd\n", "p.csv"), encoder=encoding)
    (batch,) = source.unlabelled()()
    np.testing.assert_array_equal(batch.X, [[1], [2]])
    assert batch.y is None
    with pytest.raises(ValueError, match="target column 'y', rows 2 to 2, contains 'tbd'"):
        list(source())


# -- labels that are alike --------------------------------------------------------------
@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["yes", "Yes", "no"], {"yes", "Yes", "no"}),
        (["a b", "a  b", "c"], {"a b", "a  b", "c"}),
        (["yes", "yes ", "no"], {"yes", "yes ", "no"}),
        (["yes", " YES", "no"], {"yes", "YES", "no"}),
    ],
)
def test_labels_that_differ_by_case_or_blanks_are_kept_apart(labels, classes):
    table = {"x": list(range(12)), "y": labels * 4}
    with pytest.warns(
        UserWarning, match="target column 'y': labels that differ only by case or sp"
    ):
        encoding = learn(table, "y")
    _, y = encode(encoding, table)
    assert set(y.tolist()) == classes
    with pytest.warns(UserWarning, match="make them equal if they mean the same"):
        learn(pd.DataFrame(table), "y")


def test_blanks_around_all_labels_do_not_matter(tmp_path):
    _, y = labels_of(tmp_path, [" a", " b"] * 10)
    assert set(y.tolist()) == {"a", "b"}


def test_few_of_many_labels_that_are_alike_are_shown():
    labels = [f"{case}{i}" for i in range(8) for case in ("label", "Label")]
    with pytest.warns(UserWarning, match=r"'Label0' and 'label0'; .* and 5 more; make") as told:
        learn({"x": list(range(16)), "y": labels}, "y")
    assert len(str(told[0].message)) < 300


# -- numbers in text --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("write", "delimiter"),
    [
        (lambda x: f"{x:.2f} kg", ","),
        (lambda x: f"{x:.2f}%", ","),
        (lambda x: f"${x:.2f}", ","),
        (lambda x: f"{x:.2f} EUR".replace(".", ","), ";"),
        (lambda x: f"{x:.2f}".replace(".", ","), ";"),
    ],
)
def test_a_target_of_written_numbers(tmp_path, write, delimiter):
    numbers = np.round(np.linspace(1, 900, 60), 2)
    lines = [f"{i % 7}{delimiter}{write(x)}\n" for i, x in enumerate(numbers)]
    table = csv_table(tmp_path, f"a{delimiter}y\n" + "".join(lines))
    encoding = copy_by_file(learn(table, "y"), tmp_path)
    np.testing.assert_allclose(encode(encoding, table)[1], numbers)
    if "kg" in write(1.0):
        later = csv_table(tmp_path, "a,y\n1,heavy\n", "later.csv")
        with pytest.raises(ValueError, match="contains 'heavy', which is not a number like"):
            encode(encoding, later)


@pytest.mark.parametrize("where", [0, 31, 60])
def test_one_text_among_numbers_is_refused(tmp_path, small_blocks, where):
    values = [*NUMBERS[:where], "tbd", *NUMBERS[where:]]
    path = csv_file(tmp_path, "a,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values)))
    fault = rf"target column 'y' seems numeric, but 'tbd' \(row {where + 1}\) cannot"
    with pytest.raises(ValueError, match=fault + ".*list them in also_missing"):
        block_source(path, target="y")
    (batch,) = block_source(path, target="y", kinds={"y": "category"}, block_rows=100)()
    assert batch.y.dtype.kind == "U"
    source = block_source(path, target="y", also_missing=["tbd"], block_rows=100)
    (batch,) = source()
    np.testing.assert_array_equal(batch.y, [float(v) for v in NUMBERS])
    assert source.encoder.n_dropped == 1


def test_several_texts_are_shown_but_not_all(tmp_path):
    values = NUMBERS * 4
    values[3:200:40] = ["one", "two", "three", "four", "five"]
    with pytest.raises(ValueError, match=r"'one' \(row 4\), .*'three' \(row 84\) and others") as e:
        learn(labelled(tmp_path, values), "y")
    assert "'four'" not in str(e.value)


def test_commas_or_points_that_may_be_either(tmp_path):
    values = [f"{i},{100 + i}" for i in range(1, 41)]
    text = "a;y\n" + "".join(f"{i};{v}\n" for i, v in enumerate([*values, "7,5x"]))
    with pytest.raises(ValueError, match=r"use decimal=',' if the comma is the decimal separator"):
        learn(csv_table(tmp_path, text, decimal="."), "y")


# -- what cannot be learned -------------------------------------------------------------
@pytest.mark.parametrize(
    "values",
    [
        [dt.date(2020, 1, 1), dt.date(2021, 1, 1)],
        [dt.datetime(2020, 1, 1, 5), dt.datetime(2021, 1, 1)],
        [[1], [2]],
    ],
)
def test_dates_and_lists_are_no_target(values):
    with pytest.raises(ValueError, match="target column 'y' contains dates or other unsupp"):
        learn(pa.table({"x": [1, 2], "y": values}), "y")


def test_infinite_targets_are_refused(tmp_path):
    with pytest.raises(ValueError, match="target column 'y' contains 1 infinite values"):
        learn(csv_table(tmp_path, "a,y\n1,0\n1,inf\n"), "y")


def test_a_target_of_many_labels(tmp_path):
    labels = [f"label {i}" for i in range(1500)]
    _, y = labels_of(tmp_path, labels)
    assert y.tolist() == labels


def test_the_target_is_not_a_feature():
    table = {"x": [1.0, 2.0, 5.0], "y": [0, 1, 0]}
    assert names_of(learn(table, "y")) == ["x"]
    assert "y" not in learn(table, "y").kinds()
