"""Labels come out as they were written, and columns of codes are not numbers."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.e2e.helpers import run_ok, write

import likelier


def fit(path, model, *args):
    return run_ok("fit", path, "-t", "y", "-m", "gaussian_nb", "-o", model, *args)


def labelled(path, labels, n=60):
    """Write a table whose target goes with a number."""
    x = np.random.default_rng(0).normal(size=n)
    rows = [f"{x[i] + 4 * (i % len(labels)):.3f},{labels[i % len(labels)]}\n" for i in range(n)]
    path.write_text("x,y\n" + "".join(rows))
    return path


def predictions(model, path):
    lines = run_ok("predict", model, path, "-o", "-").stdout.splitlines()
    return list(csv.DictReader(lines))


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["001", "007", "010"], "U"),
        (["00", "01"], "U"),
        (["1", "2", "10"], "i"),
        (["-1", "1"], "i"),
        (["1.0", "2.0"], "f"),
        (["True", "False"], "U"),
        (["TRUE", "FALSE"], "U"),
        (["true", "false"], "U"),
        (["yes", "no"], "U"),
        (["+1", "-1"], "U"),
        (["1.00", "0.00"], "U"),
        (["setosa", "versicolor, wild"], "U"),
    ],
)
def test_labels_come_out_as_they_were_written(tmp_path, labels, kind):
    text = [f'"{label}"' for label in labels]
    path, model = labelled(tmp_path / "t.csv", text), tmp_path / "m"
    fit(path, model)
    classes = likelier.load(model).classes_
    assert classes.dtype.kind == kind
    assert {str(label) for label in classes} == set(labels)
    rows = predictions(model, path)
    assert {row["prediction"] for row in rows} == set(labels)
    assert set(rows[0]) == {"prediction", *(f"probability_{label}" for label in labels)}
    report = json.loads(run_ok("evaluate", model, path, "--json").stdout)
    assert report["rows_of_unknown_class"] == 0
    assert report["scores"]["accuracy"]["value"] > 0.8


def test_labels_in_several_spellings(tmp_path):
    path, model = labelled(tmp_path / "t.csv", ["True", "FALSE", "TRUE", "false"]), tmp_path / "m"
    fit(path, model)
    assert likelier.load(model).classes_.tolist() == [False, True]
    fit(labelled(tmp_path / "n.csv", ["1", "2.0", "1.0", "2"]), model)
    assert likelier.load(model).classes_.tolist() == [1, 2]
    assert {row["prediction"] for row in predictions(model, tmp_path / "n.csv")} == {"1", "2"}


@pytest.mark.parametrize("values", [[True, False], [1, 2], [1.0, 2.0]])
def test_types_of_parquet_are_kept(tmp_path, values):
    x = np.random.default_rng(0).normal(size=60)
    y = [values[i % 2] for i in range(60)]
    path = write(tmp_path / "t.parquet", {"x": x, "y": y})
    model, out = tmp_path / "m", tmp_path / "out.parquet"
    fit(path, model)
    assert likelier.load(model).classes_.dtype == np.array(values).dtype
    run_ok("predict", model, path, "-o", out)
    assert pa.parquet.read_schema(out).field("prediction").type == pa.array(values).type


def test_numbers_that_begin_with_a_zero_are_numbers(tmp_path):
    rng = np.random.default_rng(0)
    cells = ["0", "0.5", "-0.5", "0", "1e-3"]
    rows = [f"{cells[i % 5]},{0.1 * rng.normal():.4f}\n" for i in range(60)]
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(rows))
    run_ok("fit", tmp_path / "t.csv", "-t", "y", "-m", "linear", "-o", tmp_path / "m")
    assert list(likelier.load(tmp_path / "m").feature_names_in_) == ["a"]


def test_codes_are_categories(tmp_path):
    """Many different codes, most of them without leading zeros, are still no numbers."""
    rng = np.random.default_rng(0)
    codes = ["01234", "00501", *(str(10000 + 37 * i) for i in range(18))]
    rows = [f"{codes[i % 20]},{rng.normal():.4f}\n" for i in range(200)]
    (tmp_path / "t.csv").write_text("zip,y\n" + "".join(rows))
    run_ok("fit", tmp_path / "t.csv", "-t", "y", "-m", "linear", "-o", tmp_path / "m")
    features = likelier.load(tmp_path / "m").feature_names_in_
    assert len(features) == 20
    assert any("01234" in name for name in features)
