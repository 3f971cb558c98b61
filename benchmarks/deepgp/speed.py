"""Time per minibatch against GPyTorch: two layers, 128 inducing points, 10 samples, 1024 rows.

Run on one core: the process is bound to it before JAX and PyTorch start their threads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.deepgp.notes import Notes

N_INDUCING, BATCH, REPEATS = 128, 1024, 9


def run(notes: Notes, dtypes: tuple[str, ...] = ("float32", "float64")) -> None:
    """Measure each precision in a process of its own."""
    for dtype in dtypes:
        record = notes.keep("speed", dtype, lambda dtype=dtype: _apart(dtype))
        print(f"{dtype}: {record['ratio']:.2f} times as fast as GPyTorch", flush=True)


def _apart(dtype: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.deepgp.speed", dtype]
    with tempfile.TemporaryDirectory() as cache:  # so that the first call compiles
        done = subprocess.run(
            words, check=True, capture_output=True, text=True,
            env={**os.environ, "LIKELIER_CACHE_DIR": cache},
        )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(dtype: str) -> dict[str, Any]:
    """Median processor time of a minibatch, ours and theirs in turn."""
    import torch

    from benchmarks.deepgp.gpytorch_peer import Trainer
    from benchmarks.kernel.problem import number_split
    from likelier.deep_gp.adam import STEPS, DeepAdam
    from likelier.deep_gp.model import DeepGP
    from likelier.engines import LocalEngine
    from likelier.fitting.standardize import Standard

    torch.set_num_threads(1)
    split = number_split("kin8nm", 0)
    y = (split.y - split.y.mean()) / split.y.std()
    standard, engine = Standard.of(split.X), LocalEngine(split.X, y, seed=0)
    inference = DeepAdam(standard, float(len(y)), batch_size=BATCH)
    d = split.X.shape[1]
    begin = time.perf_counter()
    state = inference.init(DeepGP((d, d, 1), N_INDUCING, 10, dtype=dtype), engine)
    state, _ = inference.step(state, engine)
    first = time.perf_counter() - begin
    trainer = Trainer(standard.apply(split.X, np.float64), y, N_INDUCING, BATCH, dtype)
    trainer.step()
    ours, theirs = [], []
    for _ in range(REPEATS):
        start = time.process_time()
        state, _ = inference.step(state, engine)
        ours.append((time.process_time() - start) / STEPS)
        start = time.process_time()
        for _ in range(STEPS // 2):
            trainer.step()
        theirs.append((time.process_time() - start) / (STEPS // 2))
    return {
        "ours": float(np.median(ours)), "gpytorch": float(np.median(theirs)),
        "ratio": float(np.median(theirs) / np.median(ours)), "first_call": first,
    }  # fmt: skip


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with threadpool_limits(1):
        print(json.dumps(measure(sys.argv[1])))
