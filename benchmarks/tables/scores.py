"""Scores of predictions, the same for the command and its peers."""

from __future__ import annotations

from typing import Any

import numpy as np

COVERAGE = 0.9
SMALLEST = float(np.finfo(np.float64).eps)  # as scikit-learn clips its log loss


def class_scores(y: Any, classes: list[str], probability: Any) -> dict[str, float]:
    """Log loss and accuracy; a class that no training row had gets the smallest probability."""
    if len(set(classes)) != len(classes):
        raise ValueError(f"two classes have one name: {classes}")
    place = {name: i for i, name in enumerate(classes)}
    truth = np.array([place.get(name, -1) for name in y])
    given = np.where(truth >= 0, probability[np.arange(len(y)), truth], 0.0)
    return {
        "log_loss": float(-np.log(np.clip(given, SMALLEST, 1.0)).mean()),
        "accuracy": float((probability.argmax(axis=1) == truth).mean()),
    }


def number_scores(y: Any, predicted: Any, interval: Any = None) -> dict[str, float]:
    """Root mean squared error, R2, and the coverage of intervals where there are any."""
    square = float(((y - predicted) ** 2).mean())
    found = {"rmse": square**0.5, "r2": 1.0 - square / float(y.var())}
    if interval is not None:
        inside = (interval[:, 0] <= y) & (y <= interval[:, 1])
        found["coverage"] = float(inside.mean())
    return found
