"""Time to equal test log density: how long ours takes to reach where GPyTorch ends.

Both have two layers, 100 inducing points, 256 rows and 10 samples in a minibatch, and start from
the same standardised rows; processor time of the training alone on one core. What is not counted
is judging the test rows, starting, and compiling (ours is compiled once for all sets of a shape).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.deepgp.notes import Notes

SETS, SECONDS, N_INDUCING, BATCH, DTYPE = ("kin8nm", "power-plant"), 60.0, 100, 256, "float32"
STEPS_APART, SHARES = 100, 10  # minibatches of ours between judgements; judgements of GPyTorch
MOST_TEST = 1000
Curve = list[tuple[float, float]]


def run(notes: Notes, sets: tuple[str, ...] = SETS, seconds: float = SECONDS) -> None:
    """Measure each set in a process of its own."""
    for name in sets:
        record = notes.keep("race", name, lambda name=name: _apart(name, seconds))
        print(f"{name}: {record['ratio']} times less time to {record['level']:.3f}", flush=True)


def _apart(name: str, seconds: float) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.deepgp.race", name, str(seconds)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Both curves, and the ratio of the times at which each reaches GPyTorch's last figure."""
    from benchmarks.kernel.problem import number_split
    from likelier.fitting.standardize import Standard

    split = number_split(name, 0)
    standard, mean, spread = Standard.of(split.X), split.y.mean(), split.y.std()
    y, y_test = (split.y - mean) / spread, (split.y_test[:MOST_TEST] - mean) / spread
    X, X_test = (standard.apply(a, np.float64) for a in (split.X, split.X_test[:MOST_TEST]))
    theirs = _gpytorch(X, y, (X_test, y_test), seconds)
    ours = _ours(X, y, (X_test, y_test))
    level = theirs[-1][1]
    times = [next((t for t, value in curve if value >= level), None) for curve in (ours, theirs)]
    ratio = None if times[0] is None else round(times[1] / times[0], 3)
    return {"level": level, "times": times, "ratio": ratio, "ours": ours, "gpytorch": theirs}


def _gpytorch(X: Any, y: Any, test: tuple[Any, Any], seconds: float) -> Curve:
    import torch

    from benchmarks.deepgp.gpytorch_peer import Trainer

    torch.set_num_threads(1)
    trainer, curve, spent = Trainer(X, y, N_INDUCING, BATCH, DTYPE), [], 0.0
    for share in np.arange(1, SHARES + 1) / SHARES:
        begin = time.process_time()
        while spent + time.process_time() - begin < share * seconds:
            trainer.step()
        spent += time.process_time() - begin
        curve.append((spent, float(trainer.log_density(*test).mean())))
    return curve


def _ours(X: Any, y: Any, test: tuple[Any, Any]) -> Curve:
    from likelier.deep_gp.adam import DeepAdam
    from likelier.deep_gp.model import DeepGP
    from likelier.engines import LocalEngine
    from likelier.fitting.standardize import Standard

    engine, d = LocalEngine(X, y, seed=0), X.shape[1]
    inference = DeepAdam(Standard.of(X), float(len(y)), power=1.0, batch_size=BATCH)
    model = DeepGP((d, d, 1), N_INDUCING, 10, dtype=DTYPE)
    inference.step(inference.init(model, engine), engine)  # compiles, or reads from disk
    state, spent, curve, last = inference.init(model, engine), 0.0, [], 0
    while state.step < state.horizon:
        begin = time.process_time()
        state, _ = inference.step(state, engine)
        spent += time.process_time() - begin
        if state.step - last >= STEPS_APART:
            last = state.step
            curve.append((spent, _log_density(inference, state, test)))
    return curve


def _log_density(inference: Any, state: Any, test: tuple[Any, Any]) -> float:
    from likelier.predictive import Gaussian

    law = inference.posterior(state).predictive(test[0])
    noise = inference.noise_floor + np.exp(float(state.adam_state.parameters.likelihood))
    return float(Gaussian(law.loc, np.sqrt(law.scale**2 + noise)).log_density(test[1]).mean())


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with threadpool_limits(1):
        print(json.dumps(measure(sys.argv[1], float(sys.argv[2]))))
