"""Files as people have them: other notations, blank targets, and advice in the command's words."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from tests.e2e.helpers import flowers, run, run_ok

import likelier
from likelier.cli.options import in_options


def write(path, columns, delimiter=",", decimal="."):
    """Write columns with numbers of three decimals."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        cells = [f"{x:.3f}".replace(".", decimal) if isinstance(x, float) else x for x in row]
        writer.writerow(cells)
    path.write_text(text.getvalue())
    return path


def fit(path, model, *args, target="species"):
    return run_ok("fit", path, "-t", target, "-m", "linear", "-o", model, *args)


def accuracy(model, path, *args):
    report = json.loads(run_ok("evaluate", model, path, "--json", *args).stdout)
    return report["scores"]["accuracy"]["value"]


def refusal(*args):
    result = run(*args)
    assert result.exit_code == 2, result.output
    return result.stderr.splitlines()[-1]


def test_decimal_commas_give_the_same_model(tmp_path):
    columns, model = flowers(150, 0), tmp_path / "m"
    plain = write(tmp_path / "plain.csv", columns)
    commas = write(tmp_path / "commas.csv", columns, ";", ",")
    fit(plain, model)
    expected = run_ok("predict", model, plain, "-o", "-").stdout
    assert run_ok("predict", model, commas, "-o", "-").stdout == expected
    fit(commas, model)
    assert len(likelier.load(model).feature_names_in_) == 6
    assert run_ok("predict", model, commas, "-o", "-").stdout == expected
    assert run_ok("predict", model, plain, "-o", "-").stdout == expected
    assert run_ok("predict", model, commas, "-o", "-", "--decimal", ",").stdout == expected


def test_a_typo_is_not_a_category(tmp_path):
    columns = flowers(100, 0)
    columns["length"] = [*columns["length"][:60], "n.a.", *columns["length"][61:]]
    path = write(tmp_path / "typo.csv", columns)
    start = ("fit", path, "-t", "species", "-m", "linear", "-o", tmp_path / "m")
    told = run_ok(*start).stderr
    assert "length: numbers; 1 text such as 'n.a.' treated as missing" in told
    assert "--kind 'length=KIND'" in told
    assert "length is missing" in likelier.load(tmp_path / "m").feature_names_in_
    assert accuracy(tmp_path / "m", path) > 0.8  # the model knows what n.a. means
    run_ok(*start, "--missing-value", "n.a.")
    assert "length is missing" in likelier.load(tmp_path / "m").feature_names_in_
    assert accuracy(tmp_path / "m", path) > 0.8
    run_ok(*start, "--kind", "length=category")
    assert likelier.load(tmp_path / "m").encoding_.kinds()["length"] == "category"
    assert "has the unknown kind 'categories'; use one of" in refusal(
        *start, "--kind", "length=categories"
    )
    assert "must have the form COLUMN=KIND" in refusal(*start, "--kind", "length")


def test_a_typo_in_a_target_is_refused(tmp_path):
    columns = flowers(100, 0)
    columns["length"] = [*columns["length"][:60], "n.a.", *columns["length"][61:]]
    path = write(tmp_path / "typo.csv", columns)
    start = ("fit", path, "-t", "length", "-m", "linear", "-o", tmp_path / "m")
    line = refusal(*start)
    assert "'length'" in line
    assert "'n.a.' (row 61)" in line
    for option in ("--missing-value", "--kind 'length=category'"):
        assert option in line
    assert "also_missing" not in line
    told = run_ok(*start, "--missing-value", "n.a.").stderr
    assert "Read 100 rows" in told
    assert "99 used, 1 dropped (missing target)" in told


def test_texts_in_a_column_of_numbers_are_refused_later(tmp_path):
    columns, model = flowers(100, 0), tmp_path / "m"
    fit(write(tmp_path / "t.csv", columns), model)
    columns["length"] = [*columns["length"][:60], "long", *columns["length"][61:]]
    line = refusal("predict", model, write(tmp_path / "new.csv", columns), "-o", "-")
    for word in ("new.csv", "'length'", "row 61", "'long'"):
        assert word in line


@pytest.mark.parametrize("blank", ["", "tbd", "?"])
@pytest.mark.parametrize("target", ["species", "length"])
def test_predictions_need_no_target(tmp_path, target, blank):
    columns, model = flowers(100, 0), tmp_path / "m"
    fit(write(tmp_path / "t.csv", columns), model, target=target)
    whole = run_ok("predict", model, tmp_path / "t.csv", "-o", "-").stdout
    later = write(tmp_path / "new.csv", {**columns, target: [blank] * 100})
    assert run_ok("predict", model, later, "-o", "-").stdout == whole
    line = refusal("evaluate", model, later)
    assert (f"'{target}'" if blank == "tbd" else "contains no rows with a target") in line


def test_what_was_said_at_fit_counts_later(tmp_path):
    columns, model = flowers(150, 0), tmp_path / "m"
    columns["colour"] = np.char.replace(columns["colour"], "green", "grün")
    path = write(tmp_path / "t.csv", columns, "^", ",")
    path.write_bytes(path.read_text().encode("latin-1"))
    start = ("fit", path, "-t", "species", "-m", "linear", "-o", model)
    assert "--delimiter" in refusal(*start, "--encoding", "latin-1")
    run_ok(*start, "--delimiter", "^", "--encoding", "latin-1")
    assert "colour=grün" in likelier.load(model).feature_names_in_
    found = accuracy(model, path)
    assert found > 0.8
    plain = write(tmp_path / "plain.csv", columns)
    assert accuracy(model, plain) == found
    assert len(run_ok("predict", model, path, "-o", "-").stdout.splitlines()) == 151


def test_a_single_column_with_gaps(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.normal(size=80)
    lines = "".join(f"{x:.3f},{x > 0}\n" if i else f",{x > 0}\n" for i, x in enumerate(a))
    (tmp_path / "t.csv").write_text("a,y\n" + lines)
    fit(tmp_path / "t.csv", tmp_path / "m", target="y")
    (tmp_path / "new.csv").write_text("a\n1.0\n\n-3.0\n\n")
    result = run_ok("predict", tmp_path / "m", tmp_path / "new.csv", "-o", "-")
    labels = [line.partition(",")[0] for line in result.stdout.splitlines()[1:]]
    assert len(labels) == 3
    assert (labels[0], labels[2]) == ('"True"', '"False"')


def test_missing_values_are_filled_in_and_told(tmp_path):
    columns = flowers(100, 0)
    model, gaps = tmp_path / "m", {**columns, "width": ["", *columns["width"][1:]]}
    path = write(tmp_path / "gaps.csv", gaps)
    run_ok("fit", path, "-t", "species", "-m", "linear", "-o", model)
    assert "width is missing" in likelier.load(model).feature_names_in_
    assert "warning" not in run_ok("predict", model, path, "-o", tmp_path / "out.csv").stderr
    fit(write(tmp_path / "t.csv", columns), model)
    told = run_ok("predict", model, path, "-o", tmp_path / "out.csv").stderr
    assert told.count("warning") == 1
    assert "of 100 rows" in told
    assert "'width' (1)" in told


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("use decimal=',' if", "use --decimal , if"),
        ("use kinds={'a b': 'category'} if", "use --kind 'a b=category' if"),
        ("kinds: 'a' has", "--kind: 'a' has"),
        ("but kinds says", "but --kind says"),
        ("target must name one", "--target must name one"),
        ("use header=True if", "use --header if"),
        ("use header=False if", "use --no-header if"),
        ("use quotes=False if", "use --no-quotes if"),
        ("delimiter must be one character", "--delimiter must be one character"),
        ("unknown encoding 'x'; use", "unknown --encoding 'x'; use"),
        ("or name its encoding ('cp1252'?)", "or name its encoding, as in --encoding cp1252"),
        ("a target column", "a target column"),
    ],
)
def test_words_of_python_become_options(message, expected):
    assert in_options(message) == expected


# -- what cannot be told from the file is asked for by option ------------------------------
def table(tmp_path, first, cells, n=300):
    """A file of three numbers and a class, with this first line and the cells of a column."""
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal():.2f},{rng.normal():.2f},{cells(i)},{'ab'[i % 2]}\n" for i in range(n)]
    path = tmp_path / "data.csv"
    path.write_text(first + "".join(rows))
    return path


def nb(path, model, target, *args):
    return ("fit", path, "-t", target, "-m", "gaussian_nb", "-o", model, *args)


def n_predictions(model, path):
    return len(run_ok("predict", model, path, "-o", "-").stdout.splitlines()) - 1


def test_stray_quotes_are_told(tmp_path):
    marks = {40: '"5 inch', 70: '6" inch'}
    path, model = table(tmp_path, "a,b,c,y\n", lambda i: marks.get(i, "7 inch")), tmp_path / "m"
    line = refusal(*nb(path, model, "y", "--exclude", "c"))
    assert "line 42" in line
    assert "--no-quotes" in line
    run_ok(*nb(path, model, "y", "--exclude", "c", "--no-quotes"))
    assert n_predictions(model, path) == 300


def test_a_header_of_numbers(tmp_path):
    path, model = table(tmp_path, "2019,2020,2021,label\n", lambda i: i % 9), tmp_path / "m"
    run_ok(*nb(path, model, "label"))
    assert list(likelier.load(model).feature_names_in_) == ["2019", "2020", "2021"]
    assert n_predictions(model, path) == 300


def test_a_first_row_that_may_be_either(tmp_path):
    path, model = tmp_path / "data.csv", tmp_path / "m"
    rows = [f"{i % 7},{i % 9},{i % 5},{'ab'[i % 2]}\n" for i in range(300)]
    path.write_text("5,6,3,c\n" + "".join(rows))
    line = refusal(*nb(path, model, "-1"))
    assert "--header" in line
    assert "--no-header" in line
    run_ok(*nb(path, model, "c", "--header"))
    assert n_predictions(model, path) == 300
    run_ok(*nb(path, model, "3", "--no-header"))
    assert n_predictions(model, path) == 301
    assert "twice" in refusal(*nb(path, model, "c", "--header", "--no-header"))


@pytest.mark.parametrize("mark", ["n/a", "NA", "null", "?", ""])
def test_a_missing_value_in_the_first_row(tmp_path, mark):
    path, model = table(tmp_path, f"1.5,{mark},3,a\n", lambda i: i % 9), tmp_path / "m"
    run_ok(*nb(path, model, "3"))
    assert n_predictions(model, path) == 301


@pytest.mark.parametrize("mark", ["-999", "-999.0", "-999.00"])
def test_a_number_for_missing_values(tmp_path, mark):
    path = table(tmp_path, "a,b,c,y\n", lambda i: ["-999", "-999.0", "2.5", "3"][i % 4])
    run_ok(*nb(path, tmp_path / "m", "y", f"--missing-value={mark}"))
    means = likelier.load(tmp_path / "m").theta_
    assert np.abs(means).max() < 3.5  # whether in columns of numbers or of marks
    assert n_predictions(tmp_path / "m", path) == 300


def test_points_between_thousands(tmp_path):
    path = table(tmp_path, "a,b,c,y\n", lambda i: ["1.529", "999", "12.345"][i % 3])
    run_ok(*nb(path, tmp_path / "m", "y"))  # the points of other columns are decimal
    lines = [f"{['1.529', '999'][i % 2]},{'ab'[i % 3 == 0]}\n" for i in range(60)]
    path.write_text("c,y\n" + "".join(lines))
    assert "--decimal" in refusal(*nb(path, tmp_path / "m", "y", "--force"))
    run_ok(*nb(path, tmp_path / "m", "y", "--decimal", "."))
    assert n_predictions(tmp_path / "m", path) == 60


def test_columns_of_the_same_name(tmp_path):
    path, model = table(tmp_path, "a,b,a,y\n", lambda i: i % 9), tmp_path / "m"
    told = run_ok(*nb(path, model, "y")).stderr
    assert told.count("warning") == 1
    assert "'a' as 'a_2'" in told
    assert list(likelier.load(model).feature_names_in_) == ["a", "b", "a_2"]
    assert n_predictions(model, path) == 300


def test_a_saved_model_reads_frames_and_files_in_python(tmp_path):
    import pandas as pd
    import polars as pl

    columns, model = flowers(120, 0), tmp_path / "m"
    path = write(tmp_path / "t.csv", columns)
    fit(path, model)
    loaded = likelier.load(model)
    labels, probability = loaded.predict(path), loaded.predict_proba(path)
    assert (labels == columns["species"]).mean() > 0.8
    np.testing.assert_array_equal(loaded.classes_[probability.argmax(axis=1)], labels)
    rounded = {k: np.round(v, 3) if v.dtype.kind == "f" else v for k, v in columns.items()}
    del rounded["species"]
    for frame in (pd.DataFrame(rounded), pl.DataFrame(rounded)):
        np.testing.assert_array_equal(loaded.predict(frame), labels)
        np.testing.assert_array_equal(loaded.predict_proba(frame), probability)
    fit(path, model, target="length")
    assert likelier.load(model).predict(path).dtype == float
    with pytest.raises(ValueError, match="predict_proba is for classes"):
        likelier.load_predictor(model).predict_proba(path)


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_categories_that_were_never_seen_are_told(command, tmp_path):
    model, data = tmp_path / "model", tmp_path / "new.csv"
    run_ok("fit", write(tmp_path / "train.csv", flowers(200, 0)), "-t", "species", "-o", model)
    table = flowers(50, 1)
    table["colour"] = np.where(np.arange(50) < 3, "violet", table["colour"])
    end = ("-o", tmp_path / "out.csv") if command == "predict" else ()
    lines = run_ok(command, model, write(data, table), *end).stderr.splitlines()
    told = [line for line in lines if "warning" in line]
    assert len(told) == 1
    assert "of 50 rows" in told[0]
    assert "'colour' (3)" in told[0]
