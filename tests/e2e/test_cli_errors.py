"""Bad input: one helpful line on stderr, exit code 2, and nothing written."""

import os

import numpy as np
import pytest
from tests.e2e.helpers import flowers, houses, run, run_ok, run_process, write, write_libsvm

import likelier


@pytest.fixture
def train(tmp_path):
    return write(tmp_path / "train.csv", flowers(200, 0))


@pytest.fixture
def model(train, tmp_path):
    path = tmp_path / "model"
    run_ok("fit", train, "-t", "species", "-o", path)
    return path


def refused(*args):
    """Run, expect a refusal, and return its one line."""
    result = run(*args)
    assert result.exit_code == 2, result.output
    told = ("Task:", "Read ", "  ", "To override a column")  # before it was refused
    lines = [line for line in result.stderr.splitlines() if not line.startswith(told)]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("likelier: ")
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return lines[0]


def folder(path):
    return sorted(item.name for item in path.iterdir())


def fit_text(text, tmp_path, *args):
    path = tmp_path / "data.csv"
    path.write_text(text)
    line = refused("fit", path, *(args or ("-t", "y")), "-o", tmp_path / "m")
    assert not (tmp_path / "m").exists()
    return line


def test_missing_target_column_names_similar_ones(train, tmp_path):
    before = folder(tmp_path)
    line = refused("fit", train, "-t", "Specie", "-o", tmp_path / "m")
    assert "did you mean 'species'?" in line
    assert folder(tmp_path) == before


def test_no_target(train, tmp_path):
    line = refused("fit", train, "-o", tmp_path / "m")
    assert "target" in line
    assert "species" in line


def test_a_target_for_libsvm(tmp_path):
    path = write_libsvm(tmp_path / "t.libsvm", np.eye(10), np.arange(10) % 2)
    assert "target" in refused("fit", path, "-t", "y", "-o", tmp_path / "m")


def test_absent_and_empty_files(tmp_path, model, train):
    absent, empty = tmp_path / "absent.csv", tmp_path / "empty.csv"
    empty.write_text("")
    for path, words in ((absent, "no file"), (empty, "empty"), (tmp_path, "folder")):
        assert words in refused("fit", path, "-t", "y", "-o", tmp_path / "m")
        assert words in refused("predict", model, path, "-o", tmp_path / "out.csv")
        assert words in refused("evaluate", model, path)
    assert str(absent) in refused("predict", absent, train, "-o", tmp_path / "out.csv")
    assert "rows" in fit_text("a,y\n", tmp_path)
    bare = tmp_path / "bare.csv"
    bare.write_text(train.read_text().splitlines()[0] + "\n")
    assert "no rows" in refused("predict", model, bare, "-o", tmp_path / "out.csv")
    assert "no rows" in refused("evaluate", model, bare)
    assert not (tmp_path / "out.csv").exists()


def test_values_that_are_not_numbers(tmp_path):
    good = "".join(f"{i},{i % 7 + 0.5}\n" for i in range(100))
    assert "infinite" in fit_text("a,y\n" + good + "1,inf\n", tmp_path)
    many = "".join(f"{i},{i * 0.37:.2f}\n" for i in range(100))
    line = fit_text("a,y\n" + many + "1,tbd\n", tmp_path)
    assert "'y'" in line
    assert "'tbd' (row 101)" in line
    assert "CSV" in fit_text("a,y\n" + good + "1,2,3\n", tmp_path)


def test_a_date_that_does_not_exist_is_told_with_its_row(tmp_path):
    good = "".join(f"2020-01-{1 + i % 28:02d},{i % 7 + 0.5}\n" for i in range(100))
    line = fit_text("a,y\n" + good + "2020-02-31,1.5\n", tmp_path)
    for part in ("'a'", "row 101", "'2020-02-31'", "--kind 'a=category'"):
        assert part in line


def test_no_target_in_any_row(tmp_path):
    assert "no rows with a target" in fit_text("a,y\n" + "1,\n" * 20, tmp_path)


def test_text_in_a_column_that_was_numeric(tmp_path):
    columns = houses(200, 0)
    train = write(tmp_path / "t.csv", columns)
    run_ok("fit", train, "-t", "price", "-o", tmp_path / "m")
    text = {**columns, "age": np.full(200, "old")}
    new = write(tmp_path / "new.csv", text)
    line = refused("predict", tmp_path / "m", new, "-o", tmp_path / "out.csv")
    assert "'age'" in line
    assert "'old'" in line
    assert not (tmp_path / "out.csv").exists()


def test_columns_that_are_lacking(tmp_path, model):
    columns = flowers(50, 0)
    del columns["width"]
    new = write(tmp_path / "new.csv", columns)
    assert "'width'" in refused("predict", model, new, "-o", tmp_path / "out.csv")


def test_evaluate_needs_the_target(tmp_path, model):
    columns = flowers(50, 0)
    del columns["species"]
    new = write(tmp_path / "new.csv", columns)
    assert "'species'" in refused("evaluate", model, new)


def test_classes_that_are_all_unknown(tmp_path, model):
    columns = flowers(50, 0)
    columns["species"] = np.char.add(columns["species"], ".")
    line = refused("evaluate", model, write(tmp_path / "new.csv", columns))
    assert "'iris'" in line
    assert ".'" in line


def test_wrong_model_files(tmp_path, train, model):
    out = tmp_path / "out.csv"
    assert "text file" in refused("predict", train, train, "-o", out)
    damaged = tmp_path / "damaged"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    assert "damaged" in refused("predict", damaged, train, "-o", out)
    assert "damaged" in refused("evaluate", damaged, train)
    assert "damaged" in refused("info", damaged)
    likelier.save(likelier.LinearClassifier(), tmp_path / "bare")
    assert "LinearClassifier" in refused("evaluate", tmp_path / "bare", train)
    assert not out.exists()


def test_a_model_of_another_format_of_data(tmp_path, model, train):
    X = np.random.default_rng(0).standard_normal((50, 3))
    path = write_libsvm(tmp_path / "t.libsvm", X, np.arange(50) % 2)
    assert "libsvm" in refused("evaluate", model, path)
    run_ok("fit", path, "-o", tmp_path / "sparse")
    assert "libsvm" in refused("evaluate", tmp_path / "sparse", train)


def test_outputs_that_cannot_be_written(tmp_path, train, model):
    lost = tmp_path / "lost"
    for args in (
        ("fit", train, "-t", "species", "-o", lost / "m"),
        ("predict", model, train, "-o", lost / "out.csv"),
    ):
        assert "does not exist" in refused(*args)
    assert "folder" in refused("fit", train, "-t", "species", "-o", tmp_path)
    assert ".csv or .parquet" in refused("predict", model, train, "-o", tmp_path / "out.txt")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions bind no root")
def test_a_folder_without_permission(tmp_path, train, model):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert "permission" in refused("fit", train, "-t", "species", "-o", closed / "m")
    assert "permission" in refused("predict", model, train, "-o", closed / "out.csv")


def test_an_unwritable_folder(tmp_path, train, model, monkeypatch):
    """The same as root, who may write everywhere: the system is asked, and says no."""
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda p, mode, **k: mode == os.R_OK and allowed(p, mode))
    assert "permission" in refused("fit", train, "-t", "species", "-o", tmp_path / "m")
    assert "permission" in refused("predict", model, train, "-o", tmp_path / "out.csv")


def test_wrong_parameters(tmp_path, train):
    start = ("fit", train, "-t", "species", "-o", tmp_path / "m")
    assert "'nonsense'" in refused(*start, "--loss", "nonsense")
    assert "'nonsense'" in refused(*start, "--param", "nonsense=1")
    assert "NAME=VALUE" in refused(*start, "--param", "nonsense")
    assert "alpha" in refused(*start, "--alpha", "-1")
    assert "'abc'" in refused(*start, "--alpha", "abc")
    assert "max_iter" in refused(*start, "--max-iter", "0")
    assert "regression needs numbers" in refused(*start, "--task", "regression")
    assert "text" in refused(*start, "--loss", "huber")
    assert "--loss" in refused(*start, "--param", "loss__tau=0.3")
    assert "'tau'" in refused(*start, "--loss", "hinge", "--param", "loss__tau=0.3")
    assert "'gone'" in refused(*start, "--exclude", "gone")
    assert "SVC has no parameter 'epsilon'" in refused(*start, "-m", "svm", "--param", "epsilon=1")
    chosen = (*start, "-m", "svm", "--task", "regression")
    assert "SVR has no parameter 'break_ties'" in refused(*chosen, "--param", "break_ties=true")
    assert "not for regression" in refused(*start, "-m", "gaussian_nb", "--task", "regression")
    assert "--help" in refused("fit", train)
    assert "--help" in refused("frobnicate")
    assert not (tmp_path / "m").exists()


def test_only_one_class(tmp_path):
    text = "a,y\n" + "".join(f"{i},same\n" for i in range(50))
    assert "'same' in every row" in fit_text(text, tmp_path)


def test_only_one_number(tmp_path):
    text = "a,y\n" + "".join(f"{i},2.5\n" for i in range(50))
    assert "'2.5' in every row" in fit_text(text, tmp_path)


@pytest.mark.parametrize("model", ["kernel", "linear"])
def test_a_column_of_tiny_numbers_is_named(model, tmp_path):
    path, rng = tmp_path / "t.csv", np.random.default_rng(0)
    rows = [f"{i % 7},{x:.3f}e-300,{'uv'[i % 2]}\n" for i, x in enumerate(rng.normal(size=80))]
    path.write_text("a,tiny,y\n" + "".join(rows))
    assert "column 'tiny'" in run("fit", path, "-t", "y", "-m", model, "-o", tmp_path / "m").stderr


def test_a_class_of_one_row_is_warned_of(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{i % 7},{'uv'[i % 2]}\n" for i in range(50)) + "3,w\n")
    result = run_ok("fit", path, "-t", "y", "-m", "linear", "-o", tmp_path / "m")
    assert "classes of a single row, such as 'w'" in result.stderr


def test_a_failure_leaves_the_old_files(tmp_path, train, model):
    out = tmp_path / "out.csv"
    out.write_text("precious")
    before = model.read_bytes()
    columns = flowers(40_000, 0)
    columns["length"] = np.array([f"{x:.3f}" for x in columns["length"]])
    columns["length"][-1] = "oops"  # found after many blocks were written
    broken = write(tmp_path / "broken.csv", columns)
    names = folder(tmp_path)
    assert "oops" in refused("predict", model, broken, "-o", out, "--force")
    assert out.read_text() == "precious"
    refused(
        "fit", train, "-t", "length", "--task", "classification", "--loss", "huber", "-o", model
    )
    assert model.read_bytes() == before
    assert folder(tmp_path) == names


def test_debug_shows_the_traceback(train, tmp_path):
    code, _, errors = run_process("fit", train, "-t", "nope", "-o", tmp_path / "m", "--debug")
    assert code == 2
    assert "Traceback" in errors
    code, _, errors = run_process("fit", train, "-t", "nope", "-o", tmp_path / "m")
    assert code == 2
    assert "Traceback" not in errors
    assert len(errors.splitlines()) == 1


def test_a_fault_of_ours_is_told_as_such(train, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("impossible")

    monkeypatch.setattr("likelier.cli.fit.fit_model", fail)
    result = run("fit", train, "-t", "species", "-o", tmp_path / "m")
    assert result.exit_code == 1
    assert "internal error (AssertionError: impossible)" in result.stderr
