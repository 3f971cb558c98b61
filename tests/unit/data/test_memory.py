"""Memory of the readers and of learning a table does not grow with the file."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.unit.tables.helpers import mixed

MEGABYTES = 200
# Megabytes beyond what a file of a thousand rows needs. Measured: 40 to 70, the rest is for
# what the allocators keep on a busy machine. Holding the file would take 200 and more.
BOUND = 120

PROGRAM = """
import resource, sys
import numpy as np
from likelier.engines import StreamEngine
from likelier.tables import block_source

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def work(path):
    target = None if path.endswith("svm") else "y"
    engine = StreamEngine(block_source(path, target=target))
    for iteration in range(2):
        total = sum(block.n_rows for block in engine.blocks(iteration))
    engine.sample(1000)
    return total

small, large = sys.argv[1:]
work(small)
before = peak()
n_rows = work(large)
print(n_rows, peak() - before)
"""


def write_csv(path, n_rows, frame):
    with open(path, "w") as stream:
        frame.iloc[:0].to_csv(stream, index=False)
        block = frame.to_csv(index=False, header=False)
        for _ in range(n_rows // len(frame)):
            stream.write(block)


def write_parquet(path, n_rows, frame):
    table = pa.table({name: frame[name].to_numpy() for name in frame})
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        for _ in range(n_rows // len(frame)):
            writer.write_table(table)


def write_libsvm(path, n_rows, frame):
    lines = [
        f"{row[-1]} " + " ".join(f"{i}:{v}" for i, v in enumerate(row[:-2], start=1))
        for row in frame.itertuples(index=False)
    ]
    block = "\n".join(lines) + "\n"
    with open(path, "w") as stream:
        for _ in range(n_rows // len(frame)):
            stream.write(block)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in the units of Linux")
@pytest.mark.parametrize(
    ("name", "write"), [("csv", write_csv), ("parquet", write_parquet), ("svm", write_libsvm)]
)
def test_peak_memory(tmp_path, name, write):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1000, 20)).round(6)).add_prefix("c")
    frame["word"] = rng.choice(["red", "green", "blue"], size=1000)
    frame["y"] = rng.integers(0, 2, size=1000)
    small, large = tmp_path / f"small.{name}", tmp_path / f"large.{name}"
    write(small, 1000, frame)
    n_rows = int(MEGABYTES * 2**20 / small.stat().st_size) * 1000
    write(large, n_rows, frame)
    assert large.stat().st_size > 0.8 * MEGABYTES * 2**20
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(small), str(large)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows_read, growth = done.stdout.split()
    assert int(rows_read) == n_rows
    print(f"{name}: {float(growth):.0f} MB beyond a small file")
    assert float(growth) < BOUND


# Megabytes of a process that learns how to encode a million rows of thirty columns of every kind
# and passes over them. Measured: 400 to 460; the features would take 1,900.
MIXED_BOUND = 1500

MIXED_PROGRAM = """
import resource, sys
from likelier.tables import block_source

source = block_source(sys.argv[1], target="c0", dense=sys.argv[2] == "dense")
rows = sum(block.n_rows for block in source())
print(rows, source.n_features, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in the units of Linux")
@pytest.mark.parametrize("texts", ["dense", "sparse"])
def test_peak_memory_of_a_million_mixed_rows(tmp_path, texts):
    path, rng = tmp_path / "mixed.parquet", np.random.default_rng(0)
    table = pa.table(mixed(50_000, 30))
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        for _ in range(20):
            writer.write_table(table.take(pa.array(rng.permutation(len(table)))))
    done = subprocess.run(
        [sys.executable, "-c", MIXED_PROGRAM, str(path), texts],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    n_rows, n_features, peak = map(float, done.stdout.split())
    assert n_rows == 1_000_000
    print(f"a million rows of {n_features:.0f} features, {texts} texts: {peak:.0f} MB")
    assert peak < MIXED_BOUND
