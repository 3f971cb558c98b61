"""Support vector machines from the command line, and the command as a module."""

from __future__ import annotations

import csv
import subprocess
import sys

import numpy as np

from .helpers import run


def run_apart(*words):
    command = [sys.executable, "-m", "likelier", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write_table(path, task):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2))
    names = np.array(["in", "out"])[((X**2).sum(axis=1) > 1.4).astype(int)]
    target = names if task == "classes" else np.round(np.sin(X[:, 0]) + X[:, 1], 6)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "kind"])
        writer.writerows([*row, t] for row, t in zip(X.tolist(), target.tolist(), strict=True))


def test_classes_and_numbers_end_to_end(tmp_path):
    for task, columns, word in (  # a word that only one of the two estimators has
        ("classes", {"probability_in", "probability_out"}, "class_weight=balanced"),
        ("numbers", {"lower", "upper"}, "epsilon=0.05"),
    ):
        data, model, out = tmp_path / f"{task}.csv", tmp_path / task, tmp_path / f"{task}-out.csv"
        write_table(data, task)
        words = ("--param", "C=10", "--param", word)
        done = run("fit", data, "-t", "kind", "-m", "svm", *words, "-o", model)
        assert done.exit_code == 0, done.stderr
        assert "SVC" in done.stderr or "SVR" in done.stderr
        done = run("predict", model, data, "-o", out)
        assert done.exit_code == 0, done.stderr
        with out.open() as file:
            rows = list(csv.DictReader(file))
        with data.open() as file:
            truth = [row["kind"] for row in csv.DictReader(file)]
        assert columns <= set(rows[0])
        found = [row["prediction"] for row in rows]
        if task == "classes":
            assert np.mean([a == b for a, b in zip(found, truth, strict=True)]) > 0.9
        else:
            errors = np.array(found, dtype=float) - np.array(truth, dtype=float)
            assert np.sqrt((errors**2).mean()) < 0.3


def test_what_it_cannot_do_is_named(tmp_path):
    data = tmp_path / "rows.csv"
    write_table(data, "classes")
    words = ("fit", data, "-t", "kind", "-m", "svm", "-o", tmp_path / "model")
    done = run(*words, "--param", "probability=False")
    assert done.exit_code != 0 and "probability=True" in done.stderr
    done = run(*words, "--memory", "0")
    assert done.exit_code != 0 and "memory" in done.stderr
    done = run(*words, "--alpha", "1")
    assert done.exit_code != 0 and "alpha" in done.stderr
    data.write_text("a,kind\n0.0,in\n1.0,out\n")
    done = run(*words)  # a model that could not predict probabilities is not saved
    assert done.exit_code != 0 and "at least two rows of some class" in done.stderr
    assert not (tmp_path / "model").exists()


def test_the_module_is_the_command():
    done = run_apart("--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: likelier ")
