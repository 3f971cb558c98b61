"""How long ``DeepGPRegressor()`` trains as it is, on both cores: no word given, nothing on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Any

from benchmarks.deepgp.notes import Notes

SPLIT = 0


def run(notes: Notes, sets: tuple[str, ...]) -> None:
    """Measure each set in a process of its own, which compiles."""
    for name in sets:
        record = notes.keep("default", name, partial(_apart, name))
        print(f"{name}: {record['wall']:.1f} s, {record['log_density']:.3f}", flush=True)


def _apart(name: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.deepgp.default", name]
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            words, check=True, capture_output=True, text=True,
            env={**os.environ, "LIKELIER_CACHE_DIR": cache},
        )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(name: str) -> dict[str, Any]:
    """Wall and processor seconds of the training, and what it led to."""
    from benchmarks.deepgp.regress import MOST_TEST
    from benchmarks.kernel.problem import number_split
    from likelier import DeepGPRegressor, PowerEP

    split = number_split(name, SPLIT)
    wall, cpu = time.perf_counter(), time.process_time()
    fitted = DeepGPRegressor().fit(split.X, split.y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    density = fitted.log_predictive_density(split.X_test[:MOST_TEST], split.y_test[:MOST_TEST])
    return {
        "rows": len(split.y), "wall": wall, "cpu": cpu, "dtype": PowerEP().dtype,
        "log_density": float(density.mean()),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
