"""Fit and predict against scikit-learn: the same numbers, in less time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sklearn.naive_bayes as peer

import likelier
from benchmarks.common import Cases, interleave
from benchmarks.nb.data import TEXT, load

SETS = ("covtype", "kddcup99_10pct", TEXT)
KINDS = ("GaussianNB", "MultinomialNB", "BernoulliNB")
CALLS = ("fit", "predict", "predict_proba")


def run(
    sets: Sequence[str],
    repeats: int = 9,
    rows: int | None = None,
    report: Callable[[str], None] = print,
) -> Cases:
    """Measure every data set with every model that applies to it."""
    for name in sets:
        X, y, Xt, _ = load(name)
        if rows is not None:
            kept = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:rows])
            X, y, Xt = X[kept], y[kept], Xt[:rows]
        for kind in KINDS:
            if kind == "GaussianNB" and name == TEXT:
                continue  # scikit-learn's takes no sparse rows
            counting = kind == "MultinomialNB" and name != TEXT
            parts = (abs(X), y, abs(Xt)) if counting else (X, y, Xt)
            entry = {"set": name, "kind": kind, **measure(kind, *parts, repeats)}
            ratios = ", ".join(f"{call} {entry['ratio'][call]:.2f}x" for call in CALLS)
            report(f"speed {name} {kind}: {ratios}, differs by {entry['difference']:.1e}")
            yield f"{name}/{kind}", entry


def measure(kind: str, X: Any, y: Any, Xt: Any, repeats: int) -> dict[str, Any]:
    """Time both tools in turn; the ratio is of the medians of processor seconds."""
    ours, theirs = getattr(likelier, kind)(random_state=0), getattr(peer, kind)()
    runs: dict[str, Callable[[int], Any]] = {}
    for name, model in (("ours", ours), ("sklearn", theirs)):
        model.fit(X, y)
        model.predict(Xt[:100])  # compiled before anything is timed
        model.predict_proba(Xt[:100])
        runs[f"{name} fit"] = lambda k, m=model: m.fit(X, y)
        runs[f"{name} predict"] = lambda k, m=model: m.predict(Xt)
        runs[f"{name} predict_proba"] = lambda k, m=model: m.predict_proba(Xt)
    timings, results = interleave(runs, repeats, budget=150.0)
    plain = {name: timing.to_json() for name, timing in timings.items()}
    joint = theirs.predict_joint_log_proba(Xt)
    gap = abs(ours.predict_joint_log_proba(Xt) - joint) / (1.0 + abs(joint))
    return {
        "rows": X.shape[0],
        "test_rows": Xt.shape[0],
        "features": X.shape[1],
        "classes": len(ours.classes_),
        "timings": plain,
        "ratio": {
            call: plain[f"sklearn {call}"]["cpu_seconds"] / plain[f"ours {call}"]["cpu_seconds"]
            for call in CALLS
        },
        "difference": float(np.nanmax(gap)),
        "same_predictions": float(np.mean(results["ours predict"][0] == theirs.predict(Xt))),
    }
