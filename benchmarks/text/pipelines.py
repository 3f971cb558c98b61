"""Whole pipelines on 20newsgroups: documents in, predictions out, against scikit-learn's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import binomtest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB as PeerNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

from benchmarks.common import Cases, interleave
from benchmarks.text.corpora import load
from likelier import LinearClassifier, MultinomialNB, TextFeatures

SET = "20newsgroups_bydate"
COUNTS = {"idf": None, "norm": None}
BUDGET = 60.0


def _alpha(C: float, n_rows: int) -> float:
    """Penalty of ``C sum loss + |w|^2 / 2`` in units of the mean loss."""
    return 1.0 / (C * n_rows)


def cases(n_rows: int) -> dict[str, tuple[Callable[[int], Any], Callable[[int], Any]]]:
    """Pairs of pipelines with the same model: ours, then scikit-learn's, by seed."""
    same = {"alpha": _alpha(1.0, n_rows), "probability": False}
    return {
        "naive Bayes, counts": (
            lambda _: make_pipeline(TextFeatures(**COUNTS), MultinomialNB()),
            lambda _: make_pipeline(CountVectorizer(), PeerNB()),
        ),
        "naive Bayes, tf-idf": (
            lambda _: make_pipeline(TextFeatures(), MultinomialNB(alpha=0.01)),
            lambda _: make_pipeline(TfidfVectorizer(), PeerNB(alpha=0.01)),
        ),
        "logistic: LogisticRegression": (
            lambda seed: make_pipeline(
                TextFeatures(), LinearClassifier("softmax", random_state=seed, **same)
            ),
            lambda seed: make_pipeline(TfidfVectorizer(), LogisticRegression(random_state=seed)),
        ),
        "squared hinge: LinearSVC": (
            lambda seed: make_pipeline(
                TextFeatures(),
                FunctionTransformer(_with_ones, accept_sparse=True),
                LinearClassifier("squared_hinge", fit_intercept=False, random_state=seed, **same),
            ),
            lambda seed: make_pipeline(TfidfVectorizer(), LinearSVC(random_state=seed)),
        ),
        "log loss: SGDClassifier": (
            lambda seed: make_pipeline(
                TextFeatures(), LinearClassifier("log_loss", alpha=1e-4, random_state=seed)
            ),
            lambda seed: make_pipeline(
                TfidfVectorizer(), SGDClassifier("log_loss", random_state=seed)
            ),
        ),
        "log loss, all defaults: SGDClassifier": (
            lambda seed: make_pipeline(TextFeatures(), LinearClassifier(random_state=seed)),
            lambda seed: make_pipeline(
                TfidfVectorizer(), SGDClassifier("log_loss", random_state=seed)
            ),
        ),
        "logistic, all defaults: LogisticRegression": (
            lambda seed: make_pipeline(
                TextFeatures(), LinearClassifier("softmax", random_state=seed)
            ),
            lambda seed: make_pipeline(TfidfVectorizer(), LogisticRegression(random_state=seed)),
        ),
        "squared hinge, all defaults: LinearSVC": (
            lambda seed: make_pipeline(
                TextFeatures(),
                LinearClassifier("squared_hinge", random_state=seed, probability=False),
            ),
            lambda seed: make_pipeline(TfidfVectorizer(), LinearSVC(random_state=seed)),
        ),
        "hinge, all defaults: SGDClassifier": (
            lambda seed: make_pipeline(
                TextFeatures(), LinearClassifier("hinge", random_state=seed, probability=False)
            ),
            lambda seed: make_pipeline(TfidfVectorizer(), SGDClassifier(random_state=seed)),
        ),
        "hinge: SGDClassifier": (
            lambda seed: make_pipeline(
                TextFeatures(),
                LinearClassifier("hinge", alpha=1e-4, random_state=seed, probability=False),
            ),
            lambda seed: make_pipeline(TfidfVectorizer(), SGDClassifier(random_state=seed)),
        ),
    }


def _with_ones(X: Any) -> Any:
    """Rows with a column of ones: its weight is an intercept under the penalty, as LinearSVC's."""
    return sparse.hstack([X, np.ones((X.shape[0], 1))], format="csr")


def converged(n_rows: int) -> dict[str, Any]:
    """scikit-learn's pipelines with the same objective, solved to where predictions stand still.

    For the log loss of `SGDClassifier`, which stops early, the solver is another one.
    """
    newton = {"solver": "newton-cg", "tol": 1e-8, "max_iter": 10_000}
    regression = LogisticRegression(C=1.0 / (1e-4 * n_rows), **newton)
    return {
        "logistic: LogisticRegression": LogisticRegression(**newton),
        "squared hinge: LinearSVC": LinearSVC(tol=1e-8, max_iter=100_000, random_state=0),
        "log loss: SGDClassifier": OneVsRestClassifier(regression),
    }


def run(
    repeats: int = 3,
    rows: int | None = None,
    only: Sequence[str] = (),
    report: Callable[[str], None] = print,
) -> Cases:
    """Measure every pair, and yield its name and results."""
    corpus = load(SET)
    step = 1 if rows is None else max(1, len(corpus.train) // rows)
    X, y = corpus.train[::step], corpus.y[::step]
    exact = converged(len(X))
    for name, (ours, theirs) in cases(len(X)).items():
        if only and name not in only:
            continue

        def whole(make: Callable[[int], Any], seed: int) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return make(seed).fit(X, y).predict(corpus.test)

        ours(0).fit(X[::20], y[::20]).predict(X[:20])  # compile
        runs = {
            "ours": lambda seed, make=ours: whole(make, seed),
            "sklearn": lambda seed, make=theirs: whole(make, seed),
        }
        timings, predicted = interleave(runs, repeats, budget=BUDGET)
        right = {tool: np.array(each) == np.array(corpus.yt) for tool, each in predicted.items()}
        ratio = float(np.median(np.array(timings["sklearn"].cpu) / np.array(timings["ours"].cpu)))
        scores = {tool: float(np.mean(values)) for tool, values in right.items()}
        entry = {
            "timings": {tool: timing.to_json() for tool, timing in timings.items()},
            "ratio": ratio,
            "accuracy": scores,
            "paired": paired(right["ours"][0], right["sklearn"][0]),
            "documents": len(X),
        }
        if name in exact:
            model = make_pipeline(TfidfVectorizer(), exact[name]).fit(X, y)
            there = model.predict(corpus.test) == np.array(corpus.yt)
            scores["converged"] = float(np.mean(there))
            entry["paired_converged"] = paired(right["ours"][0], there)
        report(f"pipeline {name}: {ratio:.1f}x, accuracy {scores}, {entry['paired']}")
        yield name, entry


def paired(ours: Any, theirs: Any) -> dict[str, float]:
    """Documents that one of two predicts rightly, and McNemar's exact test of these."""
    only_ours, only_theirs = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    differing = only_ours + only_theirs
    p = float(binomtest(only_ours, differing).pvalue) if differing else 1.0
    return {"only_ours": only_ours, "only_theirs": only_theirs, "p": p}
