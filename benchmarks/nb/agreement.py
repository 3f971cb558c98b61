"""The same numbers as scikit-learn on every open data set that has classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.naive_bayes as peer

import likelier
from benchmarks.common import Cases
from benchmarks.nb.data import TEXT, load

SETS = (
    "australian", "breast-cancer", "connect-4", "covtype", "diabetes", "german.numer",
    "higgs_sample", "kddcup99_10pct", "mnist", "pendigits", "phishing", "segment", "sonar",
    "spambase", "splice", "svmguide1", "usps", "vowel", TEXT,
)  # fmt: skip
MOST_ROWS = 50_000


def run(sets: Any = SETS, report: Callable[[str], None] = print) -> Cases:
    """Largest relative difference of the joint log probabilities, per model."""
    for name in sets:
        try:
            X, y, _, _ = load(name)
        except (KeyError, FileNotFoundError):
            continue  # stored sparse, or not there: the tests cover those
        kept = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:MOST_ROWS])
        X, y = X[kept], y[kept]
        found: dict[str, float | None] = {}
        for kind in ("GaussianNB", "MultinomialNB", "BernoulliNB"):
            found[kind] = _difference(kind, X, y, name)
        report(f"agreement {name}: {found}")
        yield name, {"rows": X.shape[0], "difference": found}


def _difference(kind: str, X: Any, y: Any, name: str) -> float | None:
    lowest = X.data.min() if name == TEXT else X.min()
    if (kind == "GaussianNB" and name == TEXT) or (kind == "MultinomialNB" and lowest < 0.0):
        return None
    theirs = getattr(peer, kind)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joint = theirs.fit(X, y).predict_joint_log_proba(X)
    ours = getattr(likelier, kind)(random_state=0).fit(X, y).predict_joint_log_proba(X)
    with np.errstate(invalid="ignore"):
        return float(np.nanmax(abs(ours - joint) / (1.0 + abs(joint))))
