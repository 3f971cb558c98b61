"""MNIST with all 60,000 rows: two layers, in single precision, with a checkpoint to go on from."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import read_json, write_json
from benchmarks.deepgp.notes import Notes
from benchmarks.kernel.problem import _open
from likelier import DeepGPClassifier
from likelier.calibration import log_loss

# Few samples and large minibatches: what a step costs for every node is paid less often.
WORDS: dict[str, Any] = {
    "layers": 2, "n_inducing": 100, "inference__n_samples": 2, "inference__batch_size": 512,
    "inference__dtype": "float32", "kernel__input_scale": "common",
}  # fmt: skip
STEPS = (1000, 5000, 12000)


def run(notes: Notes, steps: tuple[int, ...] = STEPS) -> None:
    """Train once for every number of minibatches that is not stored yet."""
    for count in steps:
        key = f"{count} minibatches"
        record = notes.keep("mnist", key, partial(measure, notes.folder, count))
        print(f"MNIST {key}: accuracy {record['accuracy']:.4f}", flush=True)


def measure(folder: Path, steps: int) -> dict[str, Any]:
    """Accuracy and log loss on the 10,000 test rows; times add up over interrupted runs."""
    with _open("mnist") as archive:
        X, y = archive["X"].astype(np.float32), archive["y"]
        X_test, y_test = archive["Xt"].astype(np.float32), archive["yt"]
    spent = folder / f"mnist-{steps}-spent.json"
    before = read_json(spent) or {"wall": 0.0, "cpu": 0.0}
    wall, cpu = time.perf_counter(), time.process_time()
    model = DeepGPClassifier(
        max_iter=steps, random_state=0, checkpoint=str(folder / f"mnist-{steps}.npz")
    ).set_params(**WORDS)
    try:
        model.fit(X, y)
    finally:
        told = {
            "wall": before["wall"] + time.perf_counter() - wall,
            "cpu": before["cpu"] + time.process_time() - cpu,
        }
        write_json(spent, told)
    p = model.predict_proba(X_test)
    spent.unlink()
    return {
        "accuracy": float(np.mean(p.argmax(axis=1) == y_test)),
        "log_loss": log_loss(p, y_test).value, "label_noise": model.label_noise_, **told,
    }  # fmt: skip
