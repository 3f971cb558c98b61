"""Columns of numbers in text: how they are written, and texts among them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.unit.tables.helpers import copy_by_file, csv_file, encode, learn, names_of

from likelier.data import open_table
from likelier.tables import block_source, first_pass

N = 60
NUMBERS = [f"{0.37 * i - 5:.2f}" for i in range(N)]
VALUES = np.array(NUMBERS, dtype=float)
COMMAS = [value.replace(".", ",") for value in NUMBERS]


@pytest.fixture(params=[None, 10], ids=["one block", "blocks of ten rows"])
def block_rows(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(first_pass, "default_block_rows", lambda n_columns: request.param)


def column(values, delimiter=","):
    return f"a{delimiter}y\n" + "".join(f"{v}{delimiter}{i % 2}\n" for i, v in enumerate(values))


def rows(source):
    return np.concatenate([batch.X for batch in source()])


def fit(path, **options):
    return block_source(path, target="y", **options)


# -- notations --------------------------------------------------------------------------
AMOUNTS = np.round(np.linspace(0.5, 98765.25, N), 2)
WRITTEN = {
    "thousands": (lambda x: f"{x:,.2f}", "numbers with the thousands separator ','"),
    "decimal commas": (
        lambda x: f"{x:,.2f}".translate(str.maketrans(",.", ".,")),
        "numbers with decimal comma and the thousands separator '.'",
    ),
    "spaces": (
        lambda x: f"{x:,.2f}".replace(",", " "),
        "numbers with the thousands separator ' '",
    ),
    "percent": (lambda x: f"{x:.2f}%", "numbers with the suffix '%'"),
    "currency": (lambda x: f"${x:.2f}", "numbers with the currency '$'"),
    "currency behind": (
        lambda x: f"{x:,.2f} €".translate(str.maketrans(",.", ".,")),
        "numbers with decimal comma and the thousands separator '.' and the currency '€'",
    ),
    "unit": (lambda x: f"{x:.2f} kg", "numbers with the unit 'kg'"),
    "negative in brackets": (lambda x: f"({x:.2f})", ""),
    "plus": (lambda x: f"+{x:.2f}", ""),
    "exponent": (lambda x: f"{x:.8e}", ""),
    "blanks": (lambda x: f"  {x:.2f} ", ""),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_notations_are_read_and_named(tmp_path, block_rows, name):
    write, note = WRITTEN[name]
    cells = [write(x) for x in AMOUNTS]
    expected = -AMOUNTS if "negative" in name else AMOUNTS
    table = {"a": cells, "x": VALUES}
    encoding = copy_by_file(learn(table), tmp_path)
    assert encoding.notes() == ({"a": note} if note else {})
    np.testing.assert_allclose(encode(encoding, table)[0][:, 0], expected, rtol=1e-12)
    path = csv_file(
        tmp_path, "a;x\n" + "".join(f"{c};{v}\n" for c, v in zip(cells, VALUES, strict=True))
    )
    found = learn(open_table(path))
    np.testing.assert_allclose(encode(found, open_table(path))[0][:, 0], expected, rtol=1e-12)
    # a frame of real numbers can be predicted too
    np.testing.assert_allclose(encode(encoding, {"a": AMOUNTS, "x": VALUES})[0][:, 0], AMOUNTS)


@pytest.mark.parametrize("cells", [["001", "002", "010"], ["01", "1", "10"], ["007", "8", "9"]])
def test_leading_zeros_are_kept(tmp_path, cells):
    for data in ({"a": cells * 20, "x": VALUES}, csv_file(tmp_path, column(cells * 20))):
        encoding = learn(open_table(data))
        assert encoding.kinds()["a"] == "category"
        assert {f"a={cell}" for cell in cells} < set(names_of(encoding))
    later = csv_file(tmp_path, f"a,y\n{cells[1]},1\n", "later.csv")
    X, _ = encode(encoding, open_table(later))
    assert X[0, names_of(encoding).index(f"a={cells[1]}")] == 1
    assert X[0, :-1].sum() == 1


def test_codes_are_found_again_where_all_are_numbers(tmp_path):
    """A prediction file with digits only must not lose the zeros of a category."""
    encoding = learn(open_table(csv_file(tmp_path, "zip,y\n" + "01,0\n1,1\nA9,0\n" * 3)), "y")
    later = open_table(csv_file(tmp_path, "zip\n01\n1\n", "p.csv"), header=True)
    np.testing.assert_array_equal(encode(encoding, later)[0], [[1, 0, 0], [0, 1, 0]])


# -- texts among numbers ----------------------------------------------------------------
@pytest.mark.parametrize("where", [0, 31, 59])
@pytest.mark.parametrize("stray", ["n.a.", "1o.5", "unknown"])
def test_one_stray_text_is_missing(tmp_path, block_rows, stray, where):
    values = list(NUMBERS)
    values[where] = stray
    path = csv_file(tmp_path, column(values))
    source = fit(path)
    assert source.feature_names == ["a", "a is missing"]
    assert source.encoder.notes() == {"a": f"numbers; 1 text such as {stray!r} treated as missing"}
    X = rows(source)
    there = np.delete(np.arange(N), where)
    np.testing.assert_array_equal(X[there, 0], VALUES[there])
    np.testing.assert_array_equal(X[where], [np.median(VALUES[there]), 1])
    later = csv_file(tmp_path, f"a,y\n{stray},1\n,1\nNA,1\nother,1\n7,0\n", "later.csv")
    assert rows(block_source(later, encoder=source.encoder))[:, 1].tolist() == [1, 1, 1, 1, 0]
    marked = fit(path, also_missing=[stray])
    np.testing.assert_array_equal(rows(marked), X)
    assert not marked.encoder.notes()


@pytest.mark.parametrize("n_texts", [1, 8, 30, 55])
def test_few_different_texts_among_many_numbers_are_missing(n_texts):
    """Up to half of the rows may be texts such as "unknown"; then it is a category."""
    cells = [NUMBERS[i] if i >= n_texts else "unknown" for i in range(N)]
    encoding = learn({"a": [*cells, *NUMBERS], "x": np.arange(2 * N) ** 0.5})
    assert encoding.kinds()["a"] == "number"
    alone = learn({"a": cells, "x": VALUES}, max_levels=4)
    assert alone.kinds()["a"] == ("number" if n_texts <= 30 else "category")


def test_few_different_numbers_with_texts_are_categories():
    cells = [str(i % 9) for i in range(95)] + ["unknown"] * 5
    encoding = learn({"a": cells, "x": np.arange(100) ** 0.5})
    assert names_of(encoding)[:-1] == [*(f"a={i}" for i in range(9)), "a=unknown"]


def test_names_with_some_numbers_are_categories():
    cells = [f"A{i}" if i % 2 == 0 else str(i) for i in range(N)] * 2
    encoding = learn({"a": cells, "x": np.arange(2 * N) ** 0.5})
    assert encoding.kinds()["a"] == "category"


def test_a_text_in_a_column_of_numbers_is_refused_later(tmp_path):
    encoding = fit(csv_file(tmp_path, column(NUMBERS))).encoder
    lines = "a,y\n" + "1,0\n" * 11 + "high,1\n" + "1,1\n"
    later = csv_file(tmp_path, lines, "later.csv")
    for block in (5, 100):
        source = block_source(later, encoder=encoding, block_rows=block)
        with pytest.raises(ValueError, match=r"later.csv': column 'a', row 12: 'high' cannot be"):
            list(source())
    with pytest.raises(ValueError, match=r"column 'a', row 2: '5 kg' cannot be read as a number"):
        encode(encoding, pd.DataFrame({"a": ["1", "5 kg"]}))


def test_frames_with_numbers_as_text():
    """What pandas makes of a column with one stray text."""
    frame = pd.DataFrame({"a": [*NUMBERS, "n.a."], "y": np.arange(61) ** 2})
    assert names_of(learn(frame, "y")) == ["a", "a is missing"]
    declared = learn(frame.astype({"a": "category"}), "y")
    assert declared.kinds() == {"a": "category"}  # somebody said so
    assert learn(frame[:60], "y").kinds() == {"a": "number"}  # typed as text, every one of them


# -- decimal commas ---------------------------------------------------------------------
@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_decimal_commas_are_numbers(tmp_path, block_rows, delimiter):
    source = fit(csv_file(tmp_path, column(COMMAS, delimiter)))
    assert source.feature_names == ["a"]
    np.testing.assert_array_equal(rows(source)[:, 0], VALUES)
    text = f"y{delimiter}b\n" + "".join(f"{v}{delimiter}{i * i}\n" for i, v in enumerate(COMMAS))
    (batch,) = fit(csv_file(tmp_path, text))()
    np.testing.assert_array_equal(batch.y, VALUES)


def test_decimal_commas_with_gaps_and_spaces(tmp_path):
    values = ["3,5", " 4,5 ", "", "?", "6"] * 4
    source = fit(csv_file(tmp_path, column(values, ";")))
    np.testing.assert_allclose(rows(source)[:5, 0], [3.5, 4.5, 4.5, 4.5, 6])


def test_a_file_of_decimal_commas_without_header(tmp_path):
    """The first row of such numbers is no row of names."""
    path = csv_file(tmp_path, "".join(f"{v};{i % 2}\n" for i, v in enumerate(COMMAS)))
    assert rows(block_source(path, target=1)).shape == (N, 1)


def test_quoted_decimal_commas(tmp_path):
    path = csv_file(tmp_path, column([f'"{v}"' for v in COMMAS]))
    source = fit(path)
    assert source.encoder.notes() == {"a": "numbers with decimal comma"}
    np.testing.assert_array_equal(rows(source)[:, 0], VALUES)
    said = fit(path, decimal=",")
    np.testing.assert_array_equal(rows(said)[:, 0], VALUES)
    assert rows(block_source(path, encoder=said.encoder)).shape == (N, 1)  # remembered


def test_commas_before_three_digits_are_read_one_way_and_named(tmp_path):
    path = csv_file(tmp_path, column([f"{i + 1},{100 + i}" for i in range(40)], ";"))
    source = fit(path)
    assert source.encoder.notes() == {"a": "numbers with the thousands separator ','"}
    assert rows(source)[0, 0] == 1100
    assert rows(fit(path, decimal=","))[0, 0] == 1.1
    assert rows(fit(path, decimal="."))[0, 0] == 1100


def test_a_wrong_decimal_sign(tmp_path):
    with pytest.raises(ValueError, match=r"decimal must be '\.' or ',', got ';'"):
        open_table(csv_file(tmp_path, column(NUMBERS)), decimal=";")


def test_later_files_may_be_written_in_the_other_way(tmp_path):
    encoding = fit(csv_file(tmp_path, column(COMMAS, ";"))).encoder
    again = copy_by_file(encoding, tmp_path)
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
