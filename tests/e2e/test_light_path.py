"""`predict`, `evaluate` and `info` load neither scikit-learn nor pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.e2e.helpers import run_ok, write_libsvm

PROGRAM = """
import sys
from likelier.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
loaded = {"sklearn", "pandas"} & set(sys.modules)
assert not loaded, loaded
"""


def light(*args):
    """Run a command in a process of its own, which must not have loaded heavy packages."""
    command = [sys.executable, "-c", PROGRAM, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def every_kind(n=120):
    """A table with a column of every kind, and missing cells."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    words = np.array(["good", "bad", "new", "old", "cheap", "dear", "slow", "fast"])
    return pa.table(
        {
            "x": pa.array([None if i % 17 == 3 else value for i, value in enumerate(x.tolist())]),
            "price": [f"${1000 + 7 * i:,}" for i in range(n)],
            "day": [f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(n)],
            "on": (rng.random(n) > 0.5).tolist(),
            "town": rng.choice(["Rome", "Oslo", "Bonn"], n).tolist(),
            "text": [" ".join(rng.choice(words, 12)) for _ in range(n)],
            "kind": np.where(x + rng.normal(size=n) > 0, "yes", "no").tolist(),
        }
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("model", ["linear", "kernel", "gaussian_nb", "one_pass"])
def test_commands_on_tables(tmp_path, model, suffix):
    table, file = every_kind(), tmp_path / f"rows{suffix}"
    if suffix == ".csv":
        pyarrow.csv.write_csv(table, file)
    else:
        pyarrow.parquet.write_table(table, file)
    saved = tmp_path / "m.likelier"
    run_ok("fit", file, "-t", "kind", "-m", model, "-o", saved)
    light("predict", saved, file, "-o", tmp_path / f"out{suffix}")
    light("evaluate", saved, file)
    light("info", saved)


@pytest.mark.parametrize("model", ["linear", "kernel"])
def test_commands_on_a_regression(tmp_path, model):
    file, saved = tmp_path / "rows.csv", tmp_path / "m.likelier"
    pyarrow.csv.write_csv(every_kind(), file)
    run_ok("fit", file, "-t", "x", "-m", model, "-o", saved)
    light("predict", saved, file, "-o", "-")
    light("evaluate", saved, file, "--json")
    light("info", saved, "--json")


def test_commands_on_a_libsvm_file(tmp_path):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((80, 6)) < 0.5, rng.normal(size=(80, 6)), 0.0)
    file = write_libsvm(tmp_path / "rows.libsvm", X, np.where(X[:, 0] > 0, 1, -1))
    run_ok("fit", file, "-m", "linear", "-o", tmp_path / "m")
    light("predict", tmp_path / "m", file, "-o", "-")
    light("evaluate", tmp_path / "m", file)
    light("info", tmp_path / "m")
