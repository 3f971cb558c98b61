"""What a first fit costs before it learns, with an empty and a filled cache, and time by rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import remember

ROWS = (2_000, 8_000, 32_000)
BATCH = 1000


def run(folder: Path) -> None:
    """First call in a new process, the same in a second one, and epochs of growing data."""
    for dtype in ("float32", "float64"):
        record = remember(folder / "compile.json", dtype, lambda dtype=dtype: _first_calls(dtype))
        print(f"{dtype}: first {record['first_cpu']:.1f} s of processor time, "
              f"second process {record['second_cpu']:.1f} s", flush=True)  # fmt: skip
    record = remember(folder / "compile.json", "epochs", epochs)
    print(f"processor time of an epoch: {record}", flush=True)


def _first_calls(dtype: str) -> dict[str, float]:
    """Two processes that share a cache, empty at first."""
    out = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("first", "second"):
            words = [sys.executable, "-m", "benchmarks.deepgp.compiling", dtype]
            done = subprocess.run(
                words, check=True, capture_output=True, text=True,
                env={**os.environ, "LIKELIER_CACHE_DIR": cache},
            )  # fmt: skip
            told = json.loads(done.stdout.splitlines()[-1])
            out |= {f"{name}_{kind}": seconds for kind, seconds in told.items()}
    return out


def first_call(dtype: str) -> dict[str, float]:
    """Seconds of the shortest fit with the default shapes (twenty minibatches, and JAX)."""
    from likelier import DeepGPRegressor

    X, y = _problem(2000)
    wall, cpu = time.perf_counter(), time.process_time()
    DeepGPRegressor(max_iter=20, dtype=dtype, random_state=0).fit(X, y)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def epochs() -> dict[str, float]:
    """Processor seconds of an epoch; the first call, which may compile, is not counted."""
    from likelier.engines import LocalEngine
    from likelier.inference.deep_adam import STEPS, DeepAdam
    from likelier.models.deep_gp import DeepGP
    from likelier.models.kernel_machine import Standard

    out = {}
    for n_rows in ROWS:
        X, y = _problem(n_rows)
        engine = LocalEngine(X, y, seed=0)
        inference = DeepAdam(Standard.of(X), float(n_rows), batch_size=BATCH)
        model = DeepGP((8, 8, 1), 50, 10, dtype="float32")
        state, _ = inference.step(inference.init(model, engine), engine)
        cpu = time.process_time()
        for _ in range(2):
            state, _ = inference.step(state, engine)
        per_step = (time.process_time() - cpu) / (2 * STEPS)
        out[str(n_rows)] = per_step * n_rows / BATCH
    return out


def _problem(n_rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 8))
    return X, np.sin(X.sum(axis=1)) + 0.1 * rng.standard_normal(n_rows)


if __name__ == "__main__":
    print(json.dumps(first_call(sys.argv[1])))
