"""What a first fit costs before it learns, with an empty and a filled cache, and time by rows.

Fits of classes are followed by a prediction of probabilities, which has a program of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from typing import Any

import numpy as np

from benchmarks.deepgp.notes import Notes

N_ROWS = 4000  # of a first call: enough that the power is chosen too
CALLS, EPOCHS = (1, 4, 16), 5  # of the training loop in an epoch; epochs
BATCH = 1000
CLASSES = {"numbers": 0, "3 classes": 3, "10 classes": 10}


def run(notes: Notes) -> None:
    """First call in a new process, the same in a second one, and epochs of growing data."""
    for target in CLASSES:
        for dtype in ("float32", "float64"):
            key = f"{target}, {dtype}"
            record = notes.keep("compile", key, partial(_first_calls, target, dtype))
            print(f"{key}: first {record['first_cpu']:.1f} s of processor time, "
                  f"second process {record['second_cpu']:.1f} s", flush=True)  # fmt: skip
    record = notes.keep("compile", "epochs", epochs)
    print(f"processor time of an epoch: {record}", flush=True)


def _first_calls(target: str, dtype: str) -> dict[str, float]:
    """Two processes that share a cache, empty at first."""
    out = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("first", "second"):
            words = [sys.executable, "-m", "benchmarks.deepgp.compiling", target, dtype]
            done = subprocess.run(
                words, check=True, capture_output=True, text=True,
                env={**os.environ, "LIKELIER_CACHE_DIR": cache},
            )  # fmt: skip
            told = json.loads(done.stdout.splitlines()[-1])
            out |= {f"{name}_{kind}": seconds for kind, seconds in told.items()}
    return out


def first_call(target: str, dtype: str) -> dict[str, float]:
    """Seconds of the shortest fit with the default shapes (twenty minibatches, and JAX)."""
    from likelier import DeepGPClassifier, DeepGPRegressor, PowerEP

    X, y = _problem(N_ROWS)
    words: dict[str, Any] = {"max_iter": 20, "inference": PowerEP(dtype=dtype), "random_state": 0}
    wall, cpu = time.perf_counter(), time.process_time()
    if CLASSES[target]:
        shares = np.arange(1, CLASSES[target]) / CLASSES[target]
        labels = np.searchsorted(np.quantile(y, shares), y)
        DeepGPClassifier(**words).fit(X, labels).predict_proba(X[:10])
    else:
        DeepGPRegressor(**words).fit(X, y)
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def epochs() -> dict[str, float]:
    """Median processor seconds of whole epochs; the first call, which may compile, is not one."""
    from likelier.deep_gp.adam import STEPS, DeepAdam
    from likelier.deep_gp.model import DeepGP
    from likelier.engines import LocalEngine
    from likelier.fitting.standardize import Standard

    out = {}
    for calls in CALLS:
        n_rows = calls * STEPS * BATCH
        X, y = _problem(n_rows)
        engine = LocalEngine(X, y, seed=0)
        inference = DeepAdam(Standard.of(X), float(n_rows), batch_size=BATCH)
        model = DeepGP((8, 8, 1), 50, 10, dtype="float32")
        state, _ = inference.step(inference.init(model, engine), engine)
        seconds = []
        for _ in range(EPOCHS):
            cpu = time.process_time()
            for _ in range(calls):
                state, _ = inference.step(state, engine)
            seconds.append(time.process_time() - cpu)
        out[str(n_rows)] = float(np.median(seconds))
    return out


def _problem(n_rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, 8))
    return X, np.sin(X.sum(axis=1)) + 0.1 * rng.standard_normal(n_rows)


if __name__ == "__main__":
    print(json.dumps(first_call(sys.argv[1], sys.argv[2])))
