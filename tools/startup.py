"""Processor time of the commands that should start fast, against importing three packages.

``python tools/startup.py [--repeats N] [--limit RATIO]`` fits a linear and a kernel model on a
small table, then runs ``likelier predict`` of 100 rows, ``evaluate``, ``info`` and ``--help`` in
processes of their own, interleaved with ``import numpy, numba, pyarrow``. It prints medians and
their ratios, and ends with 1 where one of ``predict`` exceeds the limit.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

BASE = "import numpy, numba, pyarrow"
MODELS = ("linear", "kernel")


def write_rows(path: Path, n_rows: int, seed: int) -> Path:
    """Write a table of numbers and a category with a target of two classes."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, n_rows)).round(4)
    colour = rng.choice(["red", "green", "blue"], n_rows)
    kind = np.where(x + (colour == "red") + rng.normal(size=n_rows) > 0.5, "yes", "no")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "z", "colour", "kind"])
        writer.writerows(zip(x.tolist(), z.tolist(), colour, kind, strict=True))
    return path


def processor_time(command: list[str]) -> float:
    """Seconds that a process and its threads spent on processors."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def commands(folder: Path) -> dict[str, list[str]]:
    """What is measured, by name; fits the models."""
    likelier = [sys.executable, "-m", "likelier"]
    train, rows = write_rows(folder / "train.csv", 300, 0), write_rows(folder / "rows.csv", 100, 1)
    found = {BASE: [sys.executable, "-c", BASE]}
    for kind in MODELS:
        model = str(folder / kind)
        fit = [*likelier, "fit", str(train), "-t", "kind", "-m", kind, "-o", model]
        subprocess.run(fit, check=True, stderr=subprocess.DEVNULL)
        out = str(folder / f"{kind}.csv")
        found[f"predict {kind}"] = [*likelier, "predict", model, str(rows), "-o", out]
    found["evaluate"] = [*likelier, "evaluate", model, str(rows)]
    found["info"] = [*likelier, "info", model]
    found["--help"] = [*likelier, "--help"]
    return found


def main() -> int:
    """Measure, print and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--limit", type=float, default=1.6)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = commands(Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in measured}
        for _ in range(chosen.repeats):
            for name, command in measured.items():
                seconds[name].append(processor_time(command))
    base = median(seconds[BASE])
    for name, values in seconds.items():
        print(f"{name:30} {median(values):6.3f} s  {median(values) / base:5.2f}")
    worst = max(median(seconds[f"predict {kind}"]) for kind in MODELS)
    return int(worst > chosen.limit * base)


if __name__ == "__main__":
    sys.exit(main())
