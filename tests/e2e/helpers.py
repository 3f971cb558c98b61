"""Small tables written in every format, and the command run in two ways."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from click.testing import CliRunner
from sklearn.datasets import dump_svmlight_file

from likelier.cli import main


def run(*args):
    """Run the command in this process."""
    return CliRunner().invoke(main, [str(arg) for arg in args])


def run_ok(*args):
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result


def command():
    """The real command if it is installed beside this Python, else the module."""
    script = Path(sys.executable).with_name("likelier")
    return [str(script)] if script.exists() else [sys.executable, "-m", "likelier.cli"]


def start(*args, **options):
    """Start the real command in a process of its own."""
    arguments = [*command(), *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(arguments, **{**pipes, **options})


def run_process(*args):
    process = start(*args)
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def environment_without_threads():
    """One thread per process: several tests run side by side."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def flowers(n, seed):
    """A table of three classes: two numbers and a category matter, one number does not."""
    rng = np.random.default_rng(seed)
    species = rng.integers(0, 3, n)
    colour = np.where(rng.random(n) < 0.8, species, rng.integers(0, 3, n))
    return {
        "length": 2.0 * species + rng.standard_normal(n),
        "width": -1.0 * species + rng.standard_normal(n),
        "noise": 100.0 * rng.standard_normal(n),
        "colour": np.array(["red", "green", "blue"])[colour],
        "species": np.array(["iris", "lily", "rose, wild"])[species],
    }


def houses(n, seed):
    """A table with a number to predict."""
    rng = np.random.default_rng(seed)
    area, age = rng.uniform(20, 200, n), rng.integers(0, 100, n)
    town = rng.integers(0, 2, n)
    price = 3.0 * area - 1.5 * age + 50.0 * town + 10.0 * rng.standard_normal(n)
    return {"area": area, "age": age, "town": np.array(["A", "B"])[town], "price": price}


def write(path, columns):
    """Write columns as CSV or Parquet, by the name of the file."""
    table = pa.table(columns)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.csv.write_csv(table, path)
    return path


def write_libsvm(path, X, y):
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path


def features(columns, target):
    """The design matrix a person would make by hand, for reference models."""
    parts = []
    for name, values in columns.items():
        if name == target:
            continue
        if values.dtype.kind == "U":
            parts += [(values == level).astype(float) for level in np.unique(values)]
        else:
            parts.append(values.astype(float))
    return np.column_stack(parts)
