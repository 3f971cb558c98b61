"""Classification: ours at power 1 and near 0 against multinomial logistic regression."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.deepgp.notes import Notes
from benchmarks.kernel.problem import class_split
from likelier import DeepGPClassifier, PowerEP
from likelier.calibration import log_loss

SETS = (
    "vowel", "segment", "pendigits", "dna", "usps", "svmguide1", "german.numer", "splice",
    "spambase",
)  # fmt: skip
OURS: dict[str, dict[str, Any]] = {"power 1": {"power": 1.0}, "variational": {"power": 1e-3}}
# Multinomial logistic regression, searched in three folds and with the penalty it has unasked.
PEERS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: LogisticRegressionCV(
        Cs=10, cv=3, scoring="neg_log_loss", max_iter=500, l1_ratios=(0.0,),
        use_legacy_attributes=False,
    ),
    "logistic, C = 1": lambda: LogisticRegression(max_iter=500),
}  # fmt: skip
MODELS = (*OURS, *PEERS)
DTYPE = "float32"
FLIPPED = 0.1  # share of training labels that are changed in the noisy runs


def run(
    notes: Notes, sets: Iterable[str], seeds: Iterable[int], models: Iterable[str],
    noisy: bool = False,
) -> None:  # fmt: skip
    """Measure every set, seed and model that is not stored yet."""
    for seed in seeds:
        for name in sets:
            for model in models:
                key = f"{name}/{seed}/{model}" + ("/noisy" if noisy else "")
                record = notes.keep("classify", key, partial(measure, name, seed, model, noisy))
                print(f"{key}: log loss {record['log_loss']:.4f}", flush=True)


def measure(name: str, seed: int, model: str, noisy: bool) -> dict[str, Any]:
    """Accuracy and log loss on the test rows."""
    split = class_split(name, seed)
    y, n_classes = split.y.copy(), len(np.unique(split.y))
    if noisy:
        rng = np.random.default_rng([seed, 78])
        changed = rng.random(len(y)) < FLIPPED
        y[changed] = (y[changed] + rng.integers(1, n_classes, changed.sum())) % n_classes
    with threadpool_limits(1):
        cpu = time.process_time()
        if model in OURS:
            fitted = DeepGPClassifier(
                inference=PowerEP(dtype=DTYPE, **OURS[model]), random_state=seed
            )
        else:
            fitted = make_pipeline(StandardScaler(), PEERS[model]())
        p = fitted.fit(split.X, y).predict_proba(split.X_test)
        cpu = time.process_time() - cpu
    return {
        "rows": len(y), "accuracy": float(np.mean(p.argmax(axis=1) == split.y_test)),
        "log_loss": log_loss(p, split.y_test).value, "cpu": cpu,
    }  # fmt: skip
