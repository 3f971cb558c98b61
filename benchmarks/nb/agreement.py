"""The same numbers as scikit-learn on every open data set that has classes or labels."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.naive_bayes as peer
from scipy import sparse

import likelier
from benchmarks.common import Cases
from benchmarks.nb.data import TEXTS, load

SETS = (
    "a9a", "adult", "australian", "breast-cancer", "connect-4", "covtype", "diabetes", "dna",
    "german.numer", "higgs_sample", "ijcnn1", "kddcup99_10pct", "mnist", "mushrooms", "pendigits",
    "phishing", "sector", "segment", "sonar", "spambase", "splice", "svmguide1", "usps", "vowel",
    "w8a", *TEXTS,
    "bibtex", "cal500", "corel5k", "emotions", "enron", "flags", "imdb_genres", "langlog", "scene",
    "slashdot", "tmc2007-500", "yeast_ml",
)  # fmt: skip
# fitted attributes of each model, means and variances in units of their class and column
ATTRIBUTES = {
    "GaussianNB": ("theta_", "var_", "class_prior_", "class_count_"),
    "MultinomialNB": ("feature_log_prob_", "class_log_prior_", "feature_count_", "class_count_"),
    "BernoulliNB": ("feature_log_prob_", "class_log_prior_", "feature_count_", "class_count_"),
}
MEASURES = ("attributes", "probabilities", "joint")
MOST_ROWS = 50_000
MOST_FEATURES = 2000  # of sparse rows that are spelled out for scikit-learn's Gaussian
MOST_CHECKED = 50  # rows computed in extended precision
TARGET = 1e-10


def run(sets: Any = SETS, report: Callable[[str], None] = print) -> Cases:
    """Largest differences of attributes, probabilities and joint log probabilities, per model."""
    for name in sets:
        X, y, _, _ = load(name)
        kept = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:MOST_ROWS])
        X, y = X[kept], y[kept]
        entry: dict[str, Any] = {"rows": X.shape[0], "columns": X.shape[1]}
        entry |= {"difference": {}, "truth": {}}
        for kind in ATTRIBUTES:
            rows = _applicable(kind, X)
            if rows is None:
                entry["difference"][kind] = None
                continue
            entry["difference"][kind], entry["truth"][kind] = _compare(kind, rows, y)
        report(f"agreement {name}: {entry['difference']} {entry['truth']}")
        yield name, entry


def _applicable(kind: str, X: Any) -> Any:
    """Rows as scikit-learn's model takes them, or None if it does not.

    Its Gaussian takes no sparse rows; of many columns it gets the ones with the most entries.
    """
    if kind == "MultinomialNB":
        return X if X.min() >= 0.0 else None
    if kind == "GaussianNB" and sparse.issparse(X):
        used = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")
        return X[:, np.sort(used[:MOST_FEATURES])].toarray()
    return X


def _compare(kind: str, X: Any, y: Any) -> tuple[dict[str, float], Any]:
    """Largest differences; where one of the joint is above the target, who is right there."""
    theirs, mine = getattr(peer, kind)(), getattr(likelier, kind)(random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        joint = theirs.fit(X, y).predict_joint_log_proba(X)
        probabilities = theirs.predict_proba(X)
    if not np.array_equal(mine.classes_, theirs.classes_):
        raise AssertionError(f"{kind}: classes differ")
    ours = mine.predict_joint_log_proba(X)
    gap = _relative(ours, joint)
    found = {
        "attributes": max(_attribute(kind, name, mine, theirs) for name in ATTRIBUTES[kind]),
        "probabilities": float(abs(mine.predict_proba(X) - probabilities).max()),
        "joint": float(gap.max()),
    }
    if found["joint"] <= TARGET or kind != "GaussianNB":
        return found, None
    worst = np.argsort(-gap.max(axis=1), kind="stable")[:MOST_CHECKED]
    exact = _extended(X, y, theirs.classes_, X[worst])
    errors = {"ours": ours[worst], "sklearn": joint[worst]}
    truth = {tool: float(_relative(values, exact).max()) for tool, values in errors.items()}
    return found, truth | {"rows": len(worst), "above": int((gap > TARGET).any(axis=1).sum())}


def _relative(values: Any, reference: Any) -> Any:
    """Differences relative to one plus the size; none where both are the same infinity."""
    with np.errstate(invalid="ignore"):
        gap = abs(values - reference) / (1.0 + abs(reference))
    return np.where(values == reference, 0.0, gap)


def _attribute(kind: str, name: str, mine: Any, theirs: Any) -> float:
    values, reference = getattr(mine, name), getattr(theirs, name)
    if name == "var_":
        return float(abs(values / reference - 1.0).max())
    if name == "theta_":
        return float((abs(values - reference) / np.sqrt(theirs.var_)).max())
    return float(_relative(values, reference).max())


def _extended(X: Any, y: Any, labels: Any, rows: Any) -> Any:
    """Gaussian joint log probabilities of rows in extended precision, from the data themselves."""
    smoothing = np.longdouble(1e-9) * max(column.var() for column in _columns(X))
    score = np.empty((len(rows), len(labels)), dtype=np.longdouble)
    for k, label in enumerate(labels):
        mine = X[y == label]
        score[:, k] = np.log(np.longdouble(len(mine)) / len(X))
        for column, values in zip(_columns(mine), rows.T, strict=True):
            var = column.var() + smoothing
            squares = (values - column.mean()) ** 2
            score[:, k] -= 0.5 * (np.log(2 * np.pi * var) + squares / var)
    return score


def _columns(X: Any) -> Any:
    """Columns in extended precision, one at a time: all at once would not fit the memory."""
    return (column.astype(np.longdouble) for column in X.T)
