"""The same numbers as scikit-learn on every open data set that has classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.naive_bayes as peer
from scipy import sparse

import likelier
from benchmarks.common import Cases
from benchmarks.nb.data import TEXT, load

SETS = (
    "a9a", "adult", "australian", "breast-cancer", "connect-4", "covtype", "diabetes", "dna",
    "german.numer", "higgs_sample", "ijcnn1", "kddcup99_10pct", "mnist", "mushrooms", "pendigits",
    "phishing", "sector", "segment", "sonar", "spambase", "splice", "svmguide1", "usps", "vowel",
    "w8a", TEXT,
)  # fmt: skip
KINDS = ("GaussianNB", "MultinomialNB", "BernoulliNB")
MOST_ROWS = 50_000
MOST_FEATURES = 2000  # of sparse rows that are spelled out for the Gaussian
TARGET = 1e-10


def run(sets: Any = SETS, report: Callable[[str], None] = print) -> Cases:
    """Largest relative difference of the joint log probabilities, per model."""
    for name in sets:
        X, y, _, _ = load(name)
        kept = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:MOST_ROWS])
        X, y = X[kept], y[kept]
        entry: dict[str, Any] = {"rows": X.shape[0], "difference": {}, "truth": {}}
        for kind in KINDS:
            rows = _applicable(kind, X)
            if rows is None:
                entry["difference"][kind] = None
                continue
            entry["difference"][kind], entry["truth"][kind] = _compare(kind, rows, y)
        report(f"agreement {name}: {entry['difference']} {entry['truth']}")
        yield name, entry


def _applicable(kind: str, X: Any) -> Any:
    """Rows as scikit-learn's model takes them, or None if it does not."""
    if kind == "MultinomialNB":
        return X if X.min() >= 0.0 else None
    if kind == "GaussianNB" and sparse.issparse(X):
        return X.toarray() if X.shape[1] <= MOST_FEATURES else None
    return X


def _compare(kind: str, X: Any, y: Any) -> tuple[float, Any]:
    """Largest difference; where it is above the target, who is right there."""
    theirs = getattr(peer, kind)()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joint = theirs.fit(X, y).predict_joint_log_proba(X)
    mine = getattr(likelier, kind)(random_state=0).fit(X, y)
    ours = mine.predict_joint_log_proba(X)
    with np.errstate(invalid="ignore"):
        gap = np.where(ours == joint, 0.0, abs(ours - joint) / (1.0 + abs(joint)))
    worst = float(gap.max())
    if worst <= TARGET or kind != "GaussianNB":
        return worst, None
    i, k = np.unravel_index(gap.argmax(), gap.shape)
    exact = _extended(X, y, theirs.classes_[k], X[i])
    errors = [float(abs(value - exact) / (1 + abs(exact))) for value in (ours[i, k], joint[i, k])]
    probabilities = float(abs(mine.predict_proba(X) - theirs.predict_proba(X)).max())
    return worst, {"ours": errors[0], "sklearn": errors[1], "probabilities": probabilities}


def _extended(X: Any, y: Any, label: Any, row: Any) -> Any:
    """The Gaussian joint log probability in extended precision, from the rows themselves."""
    rows = X.astype(np.longdouble)
    mine = rows[y == label]
    mean = mine.mean(axis=0)
    var = ((mine - mean) ** 2).mean(axis=0)
    var += np.longdouble(1e-9) * ((rows - rows.mean(axis=0)) ** 2).mean(axis=0).max()
    score = np.log(np.longdouble(len(mine)) / len(rows))
    return score - 0.5 * (np.log(2 * np.pi * var) + (row - mean) ** 2 / var).sum()
