"""Rows for naive Bayes: training rows, test rows and labels, the same for every tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.common import CACHE
from benchmarks.datasets import data_folder
from benchmarks.text.corpora import load as load_corpus

TEXT = "20newsgroups"
# name on the page, and the name of its file
TEXTS = {
    TEXT: "20newsgroups_bydate",
    "movie_reviews": "movie_reviews",
    "movie_sentences_mr": "movie_sentences_mr",
    "reuters_r8": "reuters_r8",
    "sms_spam": "sms_spam",
    "webkb": "webkb",
}


def load(name: str) -> tuple[Any, Any, Any, Any]:
    """Training rows and labels, test rows and labels (the training ones where none ship).

    Of several labels the commonest is learned: a row has it or not.
    """
    if name in TEXTS:
        return _counts(name)
    with np.load(_folder() / f"{name}.npz", allow_pickle=False) as file:
        X, y = _rows(file, "X"), _labels(file, "")
        if not {"Xt", "Xt_data"} & set(file.files):
            return X, y, X, y
        return X, y, _rows(file, "Xt"), _labels(file, "t")


def _labels(file: Any, part: str) -> Any:
    """One label per row: that of the file, or whether the row has the commonest of several."""
    if "y" in file.files:
        return file[f"y{part}"]
    return _sets(file, part)[:, _sets(file, "").sum(axis=0).argmax()]


def _sets(file: Any, part: str) -> Any:
    """Labels as a matrix of zeros and ones; where there are many, their places are stored."""
    if f"Y{part}" in file.files:
        return file[f"Y{part}"]
    places, starts = (file[f"Y{part}_{key}"] for key in ("indices", "indptr"))
    ones = np.ones(len(places), dtype=np.uint8)
    shape = tuple(int(n) for n in file[f"Y{part}_shape"])
    return sparse.csr_matrix((ones, places.astype(np.int32), starts), shape=shape).toarray()


def _rows(file: Any, key: str) -> Any:
    """Rows in double precision, dense or CSR as they are stored."""
    if key in file.files:
        return file[key].astype(np.float64)
    data, indices, indptr = (file[f"{key}_{part}"] for part in ("data", "indices", "indptr"))
    parts = (data.astype(np.float64), indices.astype(np.int32), indptr.astype(np.int32))
    return sparse.csr_matrix(parts, shape=tuple(int(n) for n in file[f"{key}_shape"]))


def _folder() -> Path:
    folder = data_folder()
    if folder is None:
        raise ValueError("set LIKELIER_DATA to the folder of the data sets")
    return folder


def _counts(name: str) -> tuple[Any, Any, Any, Any]:
    """Counts of words by scikit-learn's CountVectorizer with its defaults, kept in the cache."""
    stored = CACHE / f"{name}-counts.npz"
    if not stored.exists():
        _count_words(name, stored)
    with np.load(stored) as file:
        parts = {key: file[key] for key in file.files}
    keys = ("X", "Xt") if "yt" in parts else ("X", "X")
    matrices = [
        sparse.csr_matrix(
            tuple(parts[f"{key}_{part}"] for part in ("data", "indices", "indptr")),
            shape=tuple(parts[f"{key}_shape"]),
        )
        for key in keys
    ]
    return matrices[0], parts["y"], matrices[1], parts.get("yt", parts["y"])


def _count_words(name: str, target: Path) -> None:
    from sklearn.feature_extraction.text import CountVectorizer

    corpus = load_corpus(TEXTS[name])
    words = CountVectorizer().fit(corpus.train)
    stored: dict[str, Any] = {}
    parts = {"": (corpus.train, corpus.y), "t": (corpus.test, corpus.yt)}
    for key, (texts, labels) in parts.items():
        if not texts:
            continue
        X = words.transform(texts).astype(np.float64).tocsr()
        stored |= {f"X{key}_{part}": getattr(X, part) for part in ("data", "indices", "indptr")}
        stored[f"X{key}_shape"] = np.array(X.shape)
        stored[f"y{key}"] = np.array(labels)
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(target, **stored)
