"""How much rows without labels help: labels of half or nine tenths of the rows are hidden."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import likelier
from benchmarks.common import Cases
from benchmarks.multilabel.data import f1_scores, load

SHARES = (0.5, 0.9)


def run(sets: Sequence[str], seeds: int = 5, done: Any = (), report: Any = print) -> Cases:
    """Fit the same classifier with the rows whose labels are hidden, and without them."""
    for seed in range(seeds):
        for name in sets:
            for share in SHARES:
                key = f"{name}/{share}/{seed}"
                if key in done:
                    continue
                with threadpool_limits(1):
                    entry = measure(name, share, seed)
                report(f"hidden {key}: with {entry['with']}, without {entry['without']}")
                yield key, entry


def measure(name: str, share: float, seed: int) -> dict[str, Any]:
    """Micro- and macro-F1 with and without the unlabelled rows."""
    data = load(name, seed)
    n = len(data.Y)
    shown = np.sort(
        np.random.default_rng([seed, 1]).permutation(n)[: max(10, round(n - share * n))]
    )
    Y = np.full(data.Y.shape, np.nan)
    Y[shown] = data.Y[shown]
    fits = {"with": (data.X, Y), "without": (data.X[shown], data.Y[shown])}
    out = {}
    for method, (X, labels) in fits.items():
        model = likelier.MultilabelClassifier(random_state=seed).fit(X, labels)
        micro = f1_scores(data.Yt, model.predict(data.Xt))[0]
        macro = f1_scores(data.Yt, model.use_threshold("macro").predict(data.Xt))[1]
        out[method] = {"micro": round(micro, 4), "macro": round(macro, 4)}
    return out
