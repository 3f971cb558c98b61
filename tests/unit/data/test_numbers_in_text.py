"""Columns of numbers in which some cells are not numbers are never taken for categories."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from likelier.data import TableEncoder, block_source, open_table
from likelier.data import learn as learn_module


def csv_file(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def column(values, delimiter=","):
    return f"a{delimiter}y\n" + "".join(f"{v}{delimiter}{i % 2}\n" for i, v in enumerate(values))


def fit(path, target="y", **options):
    return block_source(path, target=target, **options)


def rows(source):
    return np.concatenate([batch.X for batch in source()])


NUMBERS = [f"{0.37 * i - 5:.2f}" for i in range(60)]


# -- refused ----------------------------------------------------------------------------
@pytest.fixture(params=[None, 10], ids=["one block", "blocks of ten rows"])
def block_rows(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(learn_module, "default_block_rows", lambda n_columns: request.param)


@pytest.mark.parametrize("where", [0, 31, 59])
@pytest.mark.parametrize("stray", ["n.a.", "1o.5", "5 kg", "12%"])
def test_one_stray_text(tmp_path, block_rows, stray, where):
    values = list(NUMBERS)
    values[where] = stray
    path = csv_file(tmp_path, column(values))
    fault = rf"column 'a' seems to hold numbers, but '{stray}' \(row {where + 1}\) cannot"
    with pytest.raises(ValueError, match=fault):
        fit(path)
    encoder = fit(path, missing="impute", also_missing=[stray]).encoder
    assert list(encoder.get_feature_names_out()) == ["a", "a is missing"]
    later = csv_file(tmp_path, f"a,y\n{stray},1\n,1\nNA,1\n", "later.csv")
    assert rows(block_source(later, encoder=encoder))[:, 1].tolist() == [1, 1, 1]
    assert fit(path, categories=["a"]).n_features == 60
    assert fit(path, categories=[0]).encoder.columns[0].categories[0] == sorted(values)[0]


def test_several_stray_texts_are_shown_but_not_all(tmp_path, block_rows):
    values = NUMBERS * 4
    values[3:200:40] = ["one", "two", "three", "four", "five"]
    with pytest.raises(ValueError, match=r"'one' \(row 4\), .*'three' \(row 84\) and others") as e:
        fit(csv_file(tmp_path, column(values)))
    assert "'four'" not in str(e.value)


def test_a_common_marker_of_missing_values(tmp_path, block_rows):
    """Half of the rows are text, but all different values except one are numbers."""
    values = [value if i % 2 else "unknown" for i, value in enumerate(NUMBERS)]
    with pytest.raises(ValueError, match=r"'unknown' \(row 1\).*list them in also_missing"):
        fit(csv_file(tmp_path, column(values)))


def test_a_target_of_numbers(tmp_path):
    text = "a,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate([*NUMBERS, "tbd"]))
    path = csv_file(tmp_path, text)
    with pytest.raises(ValueError, match=r"target column 'y' seems to .* 'tbd' \(row 61\)"):
        fit(path)
    (batch,) = fit(path, categories=["y"])()
    assert batch.y.dtype.kind == "U"


@pytest.mark.parametrize(
    "write", ["{:.0f}%", "${:,.2f}", "{:,.0f}"], ids=["percent", "money", "thousands"]
)
def test_notations_that_are_not_read(tmp_path, write):
    values = ['"' + write.format(1234 * (i + 1)) + '"' for i in range(40)]
    with pytest.raises(ValueError, match=r"seems to hold numbers, but '.*1,?234.*' \(row 1\)"):
        fit(csv_file(tmp_path, column(values)))


def test_frames_with_numbers_as_text():
    """What pandas makes of a column with one stray text."""
    frame = pd.DataFrame({"a": [*NUMBERS, "n.a."], "y": range(61)})
    with pytest.raises(ValueError, match=r"'n\.a\.' \(row 61\)"):
        fit(frame)
    assert fit(frame.astype({"a": "category"})).n_features == 61  # somebody said so
    assert fit(frame[:60]).n_features == 60  # typed as text, every one of them


# -- not refused ------------------------------------------------------------------------
def test_few_different_numbers_are_categories(tmp_path):
    values = [str(i % 9) for i in range(95)] + ["unknown"] * 5
    assert fit(csv_file(tmp_path, column(values))).n_features == 10


def test_names_with_some_numbers_are_categories(tmp_path):
    values = [f"A{i}" if i % 4 == 0 else str(i) for i in range(60)]
    assert fit(csv_file(tmp_path, column(values))).n_features == 60


def test_categories_of_typed_numbers():
    table = pa.table({"zip": [10115, 20095, None], "r": [1.5, float("nan"), 2.0], "y": [0, 1, 0]})
    source = fit(table, categories=["zip", "r"], missing="impute")
    names = ["zip=10115", "zip=20095", "zip is missing", "r=1.5", "r=2", "r is missing"]
    assert list(source.encoder.get_feature_names_out()) == names
    expected = [[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 1, 0]]
    np.testing.assert_array_equal(rows(source), expected)


def test_categories_that_are_no_categories(tmp_path):
    with pytest.raises(ValueError, match="categories: .* has no column 'b'"):
        fit(csv_file(tmp_path, column(NUMBERS)), categories=["b"])
    with pytest.raises(ValueError, match="column 'l' holds list"):
        fit(pa.table({"l": [[1]], "y": [1]}), categories=["l"])
    many = csv_file(tmp_path, column(range(1001)))
    with pytest.raises(ValueError, match="column 'a' holds text with more than 1000 different"):
        fit(many, categories=["a"])
    with pytest.raises(ValueError, match="leave out target, exclude and categories"):
        block_source([(np.ones((1, 1)), [1])], categories=["a"])


def test_long_categories_are_not_running_text(tmp_path):
    values = [f"a rather long name of type {i}" for i in range(30)]
    path = csv_file(tmp_path, column(values))
    assert fit(path).encoder.columns[0].text is not None
    assert len(fit(path, categories=["a"]).encoder.columns[0].categories) == 30


# -- decimal commas ---------------------------------------------------------------------
COMMAS = [value.replace(".", ",") for value in NUMBERS]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_are_numbers(tmp_path, block_rows, delimiter):
    source = fit(csv_file(tmp_path, column(COMMAS, delimiter)))
    assert source.feature_names == ["a"]
    np.testing.assert_array_equal(rows(source)[:, 0], [float(v) for v in NUMBERS])
    text = f"y{delimiter}b\n" + "".join(f"{v}{delimiter}7\n" for v in COMMAS)
    (batch,) = fit(csv_file(tmp_path, text))()
    np.testing.assert_array_equal(batch.y, [float(v) for v in NUMBERS])


def test_decimal_commas_with_gaps_and_spaces(tmp_path):
    values = ["3,5", " 4,5 ", "", "?", "6"] * 4
    source = fit(csv_file(tmp_path, column(values, ";")), missing="impute")
    np.testing.assert_allclose(rows(source)[:5, 0], [3.5, 4.5, 14 / 3, 14 / 3, 6])


def test_a_file_of_decimal_commas_without_header(tmp_path):
    """The first row of such numbers is no row of names."""
    path = csv_file(tmp_path, "".join(f"{v};{i % 2}\n" for i, v in enumerate(COMMAS)))
    source = fit(path, target=1)
    assert rows(source).shape == (60, 1)


def test_a_stray_text_among_decimal_commas(tmp_path):
    with pytest.raises(ValueError, match=r"but 'n\.a\.' \(row 61\) cannot"):
        fit(csv_file(tmp_path, column([*COMMAS, "n.a."], ";")))


def test_thousands_or_decimals_are_not_guessed(tmp_path):
    path = csv_file(tmp_path, column([f"{i + 1},{100 + i}" for i in range(40)], ";"))
    with pytest.raises(ValueError, match=r"'1,100' \(row 1\).*use decimal=',' if the comma"):
        fit(path)
    assert rows(fit(path, decimal=","))[0, 0] == 1.1


def test_points_in_a_file_of_decimal_commas(tmp_path):
    text = "a;b;y\n" + "".join(f"{v};1.{100 + i};1\n" for i, v in enumerate(COMMAS))
    with pytest.raises(ValueError, match=r"column 'b' .*'1\.100' \(row 1\).*use decimal='\.' if"):
        fit(csv_file(tmp_path, text))


def test_commas_that_appear_late_in_the_file(tmp_path):
    values = [str(i % 50) for i in range(3000)] + ["3,5"]
    with pytest.raises(ValueError, match=r"'3,5' \(row 3001\).*use decimal=','"):
        fit(csv_file(tmp_path, column(values, ";")))
    assert rows(fit(csv_file(tmp_path, column(values, ";")), decimal=","))[-1, 0] == 3.5


def test_quoted_decimal_commas_need_a_word(tmp_path):
    path = csv_file(tmp_path, column([f'"{v}"' for v in COMMAS]))
    with pytest.raises(ValueError, match=r"'-5,00' \(row 1\), .*use decimal=','"):
        fit(path)
    source = fit(path, decimal=",")
    np.testing.assert_array_equal(rows(source)[:, 0], [float(v) for v in NUMBERS])
    assert rows(block_source(path, encoder=source.encoder)).shape == (60, 1)  # remembered


def test_a_wrong_decimal_sign(tmp_path):
    with pytest.raises(ValueError, match=r"decimal must be '\.' or ',', got ';'"):
        open_table(csv_file(tmp_path, column(NUMBERS)), decimal=";")


# -- later files ------------------------------------------------------------------------
def test_later_files_may_be_written_in_the_other_way(tmp_path):
    encoder = fit(csv_file(tmp_path, column(COMMAS, ";"))).encoder
    again = TableEncoder.from_json(encoder.to_json())
    assert again == encoder
    for text, expected in (
        ("a\n1,5\n", 1.5),
        ("a;y\n1,500;2\n", 1.5),  # few rows: the training file decides
        ("a;y\n1.5;2\n", 1.5),
        ("a,y\n1.5,2\n", 1.5),
        ("a,y\n7,2\n", 7.0),
    ):
        path = csv_file(tmp_path, text)
        delimiter = ";" if text.startswith("a\n") else None  # one column has none to be found
        source = block_source(path, encoder=again, delimiter=delimiter)
        assert rows(source)[0, 0] == expected, text
