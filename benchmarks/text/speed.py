"""`fit_transform` against scikit-learn's vectorizers, same options, one thread, interleaved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

from benchmarks.common import Cases, interleave
from benchmarks.text.corpora import load
from likelier import TextFeatures

COUNTS = {"idf": None, "norm": None, "dtype": "int64"}
# what is compared, ours, theirs, and how many times faster it has to be
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], float]] = {
    "tf-idf, vocabulary": (TextFeatures, TfidfVectorizer, 5.0),
    "counts, vocabulary": (lambda: TextFeatures(**COUNTS), CountVectorizer, 5.0),
    "hashed, 2^20 columns": (
        lambda: TextFeatures(n_features=2**20, idf=None),
        HashingVectorizer,
        12.0,
    ),
    "words and pairs": (
        lambda: TextFeatures(ngram_range=(1, 2)),
        lambda: TfidfVectorizer(ngram_range=(1, 2)),
        5.0,
    ),
    "3-5 characters of words": (
        lambda: TextFeatures("char_wb", ngram_range=(3, 5)),
        lambda: TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5)),
        5.0,
    ),
}
LARGE = ("words and pairs", "3-5 characters of words")
LARGE_ROWS = 2000


def run(
    sets: Sequence[str],
    repeats: int = 5,
    rows: int | None = None,
    report: Callable[[str], None] = print,
) -> Cases:
    """Measure every corpus and case, and yield its name and results."""
    for name in sets:
        corpus = load(name)
        for case in CASES:
            documents = corpus.train[: rows or (LARGE_ROWS if case in LARGE else None)]
            entry = measure(case, documents, repeats)
            report(f"speed {name}, {case}: {entry['ratio']:.1f}x")
            yield f"{name}: {case}", {"set": name, "case": case, **entry}


def measure(case: str, documents: list[str], repeats: int) -> dict[str, Any]:
    """Time both, and compare what they return."""
    ours, theirs, target = CASES[case]
    ours().fit_transform(documents[:20])  # compile
    A, B = ours().fit_transform(documents), theirs().fit_transform(documents)
    runs = {
        "ours": lambda _: ours().fit_transform(documents).shape,
        "sklearn": lambda _: theirs().fit_transform(documents).shape,
    }
    timings, _ = interleave(runs, repeats)
    cpu = {name: np.array(timing.cpu) for name, timing in timings.items()}
    ratios = cpu["sklearn"] / cpu["ours"]
    return {
        "documents": len(documents),
        "megabytes": sum(len(text.encode()) for text in documents) / 1e6,
        "columns": A.shape[1],
        "difference": float(abs(A - B).max()),
        "timings": {name: timing.to_json() for name, timing in timings.items()},
        "ratio": float(np.median(ratios)),
        "quartiles": np.percentile(ratios, [25, 75]).tolist(),
        "target": target,
    }
