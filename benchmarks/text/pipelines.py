"""Whole pipelines on 20newsgroups: documents in, predictions out, against scikit-learn's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import MultinomialNB as PeerNB
from sklearn.pipeline import make_pipeline
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
                LinearClassifier("squared_hinge", random_state=seed, **same),
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
    for name, (ours, theirs) in cases(len(X)).items():
        if only and name not in only:
            continue

        def whole(make: Callable[[int], Any], seed: int) -> float:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = make(seed).fit(X, y)
            return float(np.mean(model.predict(corpus.test) == np.array(corpus.yt)))

        ours(0).fit(X[::20], y[::20]).predict(X[:20])  # compile
        runs = {
            "ours": lambda seed, make=ours: whole(make, seed),
            "sklearn": lambda seed, make=theirs: whole(make, seed),
        }
        timings, accuracy = interleave(runs, repeats, budget=BUDGET)
        ratio = float(np.median(np.array(timings["sklearn"].cpu) / np.array(timings["ours"].cpu)))
        scores = {tool: float(np.mean(values)) for tool, values in accuracy.items()}
        report(
            f"pipeline {name}: {ratio:.1f}x, accuracy {scores['ours']:.4f} {scores['sklearn']:.4f}"
        )
        seconds = {tool: timing.to_json() for tool, timing in timings.items()}
        yield name, {"timings": seconds, "ratio": ratio, "accuracy": scores, "documents": len(X)}
