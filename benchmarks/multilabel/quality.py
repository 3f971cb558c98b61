"""F1 of all methods on every set, with thresholds tuned in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import likelier
from benchmarks.common import Cases, timed
from benchmarks.multilabel import peers
from benchmarks.multilabel.data import LabelSet, f1_scores, load
from likelier.calibration import best_thresholds

PEERS: dict[str, Callable[..., Any]] = {
    "binary relevance": peers.binary_relevance,
    "chain": peers.chain,
    "ML-kNN": peers.ml_knn,
    "SCut.FBR": peers.scut_fbr,
}
OURS = "likelier"


def run(sets: Sequence[str], seeds: int = 5, stored: Any = None, report: Any = print) -> Cases:
    """Measure every set with every seed; skip methods already in ``stored``."""
    for seed in range(seeds):
        for name in sets:
            entry = dict((stored or {}).get(f"{name}/{seed}", {}))
            for method in (OURS, *PEERS):
                if method in entry:
                    continue
                with threadpool_limits(1):
                    entry[method] = measure(load(name, seed), seed, method)
                found = entry[method]
                scores = f"{found['micro']:.3f}/{found['macro']:.3f}"
                report(f"quality {name} seed {seed} {method}: {scores}")
                yield f"{name}/{seed}", dict(entry)


def measure(data: LabelSet, seed: int, method: str) -> dict[str, Any]:
    """Micro-F1 with thresholds for it, macro-F1 with thresholds for that; and time."""
    if method != OURS:
        (S, T), _, cpu = timed(lambda: PEERS[method](data.X, data.Y, data.Xt, seed))
        return {**evaluate(S, T, data), "cpu": cpu}
    likelier.MultilabelClassifier(mixture=likelier.Mixture(max_iter=1), random_state=0).fit(
        data.X[:60], data.Y[:60]
    )
    model, _, cpu = timed(
        lambda: likelier.MultilabelClassifier(random_state=seed).fit(data.X, data.Y)
    )
    micro = f1_scores(data.Yt, model.predict(data.Xt))[0]
    macro = f1_scores(data.Yt, model.use_threshold("macro").predict(data.Xt))[1]
    return {"micro": micro, "macro": macro, "cpu": cpu}


def evaluate(S: Any, T: Any, data: LabelSet) -> dict[str, float]:
    """F1 scores of test scores; without out-of-fold scores they were cut already."""
    cuts = {
        name: best_thresholds(S, data.Y, name) if len(S) else np.zeros(T.shape[1])
        for name in ("micro", "macro")
    }
    return {
        "micro": f1_scores(data.Yt, T > cuts["micro"])[0],
        "macro": f1_scores(data.Yt, T > cuts["macro"])[1],
    }
