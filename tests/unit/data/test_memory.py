"""Memory of the readers does not grow with the file."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

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
