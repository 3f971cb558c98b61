"""Outputs: an input is never replaced, and an existing file of another kind only by --force."""

import os

import numpy as np
import pytest
from tests.e2e.helpers import flowers, houses, run, run_ok, write

import likelier
from likelier.cli.output import check_model_output


@pytest.fixture
def train(tmp_path):
    return write(tmp_path / "train.csv", flowers(60, 0))


def fitting(path, output, *args):
    start = ("fit", path, "-t", "species", "-m", "gaussian_nb", "--exclude", "colour")
    return (*start, "-o", output, *args)


@pytest.fixture
def model(train, tmp_path):
    run_ok(*fitting(train, tmp_path / "model"))
    return tmp_path / "model"


def refused(*args):
    """Run, expect a refusal before any work, and return its one line."""
    result = run(*args)
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


def other_names(path):
    """Other names of a file: through a symbolic link, a hard link and a folder."""
    links = [path.with_name(f"{kind}.csv") for kind in ("soft", "hard")]
    links[0].symlink_to(path)
    os.link(path, links[1])
    return [path, *links, path.parent / ".." / path.parent.name / path.name]


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_an_input_is_never_replaced(tmp_path, train, model, force):
    data, saved = train.read_bytes(), model.read_bytes()
    for name in other_names(train):
        assert "is the input" in refused(*fitting(train, name), *force)
        assert "is the input" in refused("predict", model, train, "-o", name, *force)
    (tmp_path / "model.csv").symlink_to(model)
    assert "is the input" in refused("predict", model, train, "-o", tmp_path / "model.csv", *force)
    assert (train.read_bytes(), model.read_bytes()) == (data, saved)


@pytest.mark.parametrize("content", ["precious", "", "PK\x03\x04 precious"])
def test_a_model_replaces_only_a_model(tmp_path, train, model, content):
    notes = tmp_path / "notes"
    notes.write_text(content)
    assert "--force" in refused(*fitting(train, notes))
    assert notes.read_text() == content
    run_ok(*fitting(train, notes, "--force"))
    assert likelier.load(notes).encoding_.target.name == "species"
    run_ok(*fitting(train, model))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(model.read_bytes()[:100] + b"?" + model.read_bytes()[101:])
    run_ok(*fitting(train, damaged))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_replace_only_such_predictions(tmp_path, train, model, suffix):
    out = tmp_path / f"out{suffix}"
    start = ("predict", model, train, "-o", out)
    run_ok(*start)
    first = out.read_bytes()
    run_ok(*start)
    assert out.read_bytes() == first
    write(out, houses(5, 0))
    assert "--force" in refused(*start)
    run_ok(*start, "--force")
    assert out.read_bytes() == first
    for content in (b"precious", b"", b'"prediction', b"\xff\xfe\x00", model.read_bytes()):
        out.write_bytes(content)
        assert "--force" in refused(*start)
        assert out.read_bytes() == content


def test_predictions_of_other_classes_are_kept(tmp_path, model, train):
    out = tmp_path / "out.csv"
    write(out, {"prediction": ["a"], "probability_a": [1.0]})
    assert "--force" in refused("predict", model, train, "-o", out)


def test_names_of_classes_over_several_lines(tmp_path):
    columns = flowers(60, 0)
    columns["species"] = np.char.replace(columns["species"], "lily", 'two\n"lines", quoted')
    train = write(tmp_path / "t.csv", columns)
    run_ok(*fitting(train, tmp_path / "m"))
    for _ in range(2):
        run_ok("predict", tmp_path / "m", train, "-o", tmp_path / "out.csv")


@pytest.mark.parametrize("target", ["price", "age"])
def test_predictions_of_numbers(tmp_path, target):
    train = write(tmp_path / "t.csv", houses(60, 0))
    for model in ("linear", "kernel"):
        run_ok("fit", train, "-t", target, "-m", model, "-o", tmp_path / "m")
        for _ in range(2):
            run_ok("predict", tmp_path / "m", train, "-o", tmp_path / f"{model}.csv")


@pytest.mark.skipif(os.name != "posix", reason="devices have names on POSIX")
def test_a_device_is_never_replaced():
    with pytest.raises(ValueError, match="not a file"):
        check_model_output(os.devnull, [], force=True)


# -- options that count once ----------------------------------------------------------------
@pytest.mark.parametrize(
    "twice",
    [
        ("-t", "length", "--target", "width"),
        ("-t", "species", "-t", "species"),
        ("-m", "linear", "--model", "kernel"),
        ("--task", "regression", "--task=classification"),
        ("--seed", "1", "--seed", "2"),
        ("--delimiter", ";", "--delimiter", ","),
        ("--param", "alpha=1", "--param", "alpha=2"),
        ("--alpha", "1", "--param", "alpha=2"),
        ("-o", "other"),
    ],
)
def test_options_that_are_given_twice(tmp_path, train, twice):
    line = refused("fit", train, "-o", tmp_path / "m", *twice)
    assert "--help" in line
    assert "twice" in line or "second time" in line
    assert not (tmp_path / "m").exists()


def test_options_that_may_be_given_twice(tmp_path, train):
    more = ("--exclude", "noise", "-q", "-q", "--force", "--force", "--param", "random_state=3")
    run_ok(*fitting(train, tmp_path / "m", "-q"), *more[:-2])
    start = ("fit", train, "-t", "species", "-m", "linear", "-o", tmp_path / "m", *more[-2:])
    run_ok(*start)
    assert likelier.load(tmp_path / "m").random_state == 3


def test_two_outputs_of_a_prediction(tmp_path, train, model):
    two = ("-o", tmp_path / "a.csv", "-o", tmp_path / "b.csv")
    assert "twice" in refused("predict", model, train, *two)
