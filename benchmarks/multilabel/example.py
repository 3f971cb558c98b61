"""Fitted models to look at: patterns, the bound, and how far probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import likelier
from benchmarks.common import Cases
from benchmarks.datasets import data_folder
from benchmarks.multilabel.data import load

SETS = ("emotions", "yeast_ml")
BINS = 8


def run(sets: Sequence[str] = SETS, report: Any = print) -> Cases:
    """Fit each set once and keep what the pictures show."""
    for name in sets:
        data = load(name, 0)
        with threadpool_limits(1):
            model = likelier.MultilabelClassifier(random_state=0).fit(data.X, data.Y)
        names = label_names(name, data.Y.shape[1])
        patterns = []
        for pattern in model.label_patterns_:
            probabilities = np.full(len(names), np.nan)  # only the top labels are known
            for label, p in pattern["labels"]:
                probabilities[int(label)] = p
            patterns.append({"weight": pattern["weight"], "labels": probabilities})
        p = model.predict_proba(data.Xt)
        report(f"example {name}: {len(patterns)} patterns, {len(model.elbo_)} passes")
        yield (
            name,
            {
                "names": names,
                "patterns": patterns,
                "elbo": model.elbo_,
                "temperature": model.temperature_,
                "weights": model.stack_weights_,
                "calibration": [reliability(p[:, c], data.Yt[:, c]) for c in range(len(names))],
                "base": model.base_rates_,
            },
        )


def label_names(name: str, n_labels: int) -> list[str]:
    """Names of the labels where the set has them."""
    with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as archive:
        if "label_names" in archive.files:
            return [str(value) for value in archive["label_names"]]
    return [str(number) for number in range(n_labels)]


def reliability(p: Any, y: Any) -> dict[str, Any]:
    """Mean probability and share of positives in bins of equal count; and their mean gap."""
    parts = np.array_split(np.argsort(p, kind="stable"), BINS)
    said = [float(p[part].mean()) for part in parts]
    seen = [float(y[part].mean()) for part in parts]
    gap = sum(len(q) * abs(a - b) for q, a, b in zip(parts, said, seen, strict=True)) / len(p)
    return {"said": said, "seen": seen, "ece": gap}
