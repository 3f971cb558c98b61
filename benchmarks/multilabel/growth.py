"""Time of a fit as rows, or labels, grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import likelier
from benchmarks.common import Cases, timed
from benchmarks.multilabel.data import load

ROWS, LABELS = (0.25, 0.5, 1.0), (0.25, 0.5, 1.0)
LABEL_ROWS = 1500


def run(row_set: str = "tmc2007-500", label_set: str = "bibtex", report: Any = print) -> Cases:
    """Fit growing parts of one set by rows, and of another by labels."""
    data = load(row_set, 0)
    order = np.random.default_rng(0).permutation(len(data.Y))[: len(data.Y) // 2]
    for share in ROWS:
        rows = np.sort(order[: int(share * len(order))])
        entry = measure(data.X[rows], data.Y[rows])
        report(f"growth rows {len(rows)}: {entry['cpu']:.1f} s")
        yield f"rows/{len(rows)}", {"set": row_set, **entry}
    data = load(label_set, 0)
    order = np.random.default_rng(0).permutation(data.Y.shape[1])
    for share in LABELS:
        labels = np.sort(order[: int(share * len(order))])
        entry = measure(data.X[:LABEL_ROWS], data.Y[:LABEL_ROWS][:, labels])
        report(f"growth labels {len(labels)}: {entry['cpu']:.1f} s")
        yield f"labels/{len(labels)}", {"set": label_set, **entry}


def measure(X: Any, Y: Any) -> dict[str, Any]:
    with threadpool_limits(1):
        # small parts would have kernel features by default, and large ones not
        model = likelier.MultilabelClassifier(kernel=False, random_state=0)
        _, _, cpu = timed(lambda: model.fit(X, Y))
    return {"rows": X.shape[0], "labels": Y.shape[1], "cpu": cpu}
