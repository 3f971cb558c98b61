"""Strange rows: how well log p(x) tells them from digits, and how often digits are accused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import likelier
from benchmarks.common import Cases
from benchmarks.nb.data import load

COVERAGES = (0.9, 0.95, 0.99)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "GaussianNB": ("GaussianNB", {}),
    "GaussianNB, bayesian": ("GaussianNB", {"bayesian": True}),
    "BernoulliNB, binarize=127": ("BernoulliNB", {"binarize": 127.0}),
    "MultinomialNB": ("MultinomialNB", {}),
}


def run(seeds: int = 3, rows: int | None = None, report: Callable[[str], None] = print) -> Cases:
    """Train on mnist and score its test digits and three kinds of rows that are no digits."""
    X, y, Xt, _ = load("mnist")
    for label, (kind, words) in MODELS.items():
        scores: dict[str, list[float]] = {}
        accused: dict[str, list[float]] = {str(c): [] for c in COVERAGES}
        histograms: dict[str, Any] = {}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            train = rng.permutation(len(X))[: rows or len(X)]
            model = getattr(likelier, kind)(**words, random_state=seed).fit(X[train], y[train])
            good = model.score_samples(Xt)
            for name, strange in _strange(Xt, rng).items():
                bad = model.score_samples(strange)
                who = np.repeat([1, 0], [len(good), len(bad)])
                scores.setdefault(name, []).append(roc_auc_score(who, np.r_[good, bad]))
                histograms[name] = _quantiles(bad)
            for coverage in COVERAGES:
                accused[str(coverage)].append(float(model.is_outlier(Xt, coverage).mean()))
        histograms["test digits"] = _quantiles(good)
        report(f"outliers {label}: " + ", ".join(f"{k} {min(v):.4f}" for k, v in scores.items()))
        yield label, {"auroc": scores, "accused": accused, "quantiles": histograms}


def _strange(digits: Any, rng: np.random.Generator) -> dict[str, Any]:
    return {
        "uniform noise": rng.integers(0, 256, digits.shape).astype(np.float64),
        "pixels permuted, one order for all": digits[:, rng.permutation(digits.shape[1])],
        "pixels permuted, each digit anew": rng.permuted(digits, axis=1),
    }


def _quantiles(scores: Any) -> list[float]:
    return np.quantile(scores, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist()
