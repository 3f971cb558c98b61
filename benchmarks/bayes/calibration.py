"""Probabilities on rows that were not trained on: expected calibration error and log loss."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from benchmarks import datasets
from benchmarks.common import Cases
from likelier import BayesianLinearClassifier
from likelier.calibration import ece, log_loss

SETS = ("a9a", "ijcnn1", "spambase", "phishing")
TRAIN, TEST = 3000, 20_000  # rows: enough to judge an error of two percent by


def run(sets: tuple[str, ...], seeds: int, quick: bool = False) -> Cases:
    """Hinge and logistic draws against scikit-learn's logistic regression."""
    for name in sets:
        data = datasets._as_stored(name)
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(data.n_rows)
            cut = 1000 if quick else min(TRAIN, data.n_rows * 2 // 3)
            train, test = order[:cut], order[cut : cut + TEST]
            record = {
                tool: _judge(model, data, train, test)
                for tool, model in {
                    "hinge": BayesianLinearClassifier("hinge", random_state=seed),
                    "log_loss": BayesianLinearClassifier(random_state=seed),
                    "scikit-learn": make_pipeline(
                        MaxAbsScaler(), LogisticRegression(max_iter=2000)
                    ),
                }.items()
            }
            print(name, seed, {tool: round(entry["ece"], 4) for tool, entry in record.items()})
            yield f"{name} #{seed}", {"set": name, "seed": seed, "tools": record}


def _judge(model: Any, data: Any, train: Any, test: Any) -> dict[str, float]:
    start = time.process_time()
    model.fit(data.X[train], data.y[train])
    seconds = time.process_time() - start
    p, y = model.predict_proba(data.X[test]), data.y[test]
    return {
        "ece": ece(p, y),
        "log_loss": log_loss(p, y).value,
        "accuracy": float((p.argmax(axis=1) == y).mean()),
        "seconds": seconds,
    }
