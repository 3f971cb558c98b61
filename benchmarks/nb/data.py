"""Rows for naive Bayes: training rows, test rows and labels, the same for every tool."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.common import CACHE
from benchmarks.datasets import data_folder

TEXT = "20newsgroups"


def load(name: str) -> tuple[Any, Any, Any, Any]:
    """Training rows and labels, test rows and labels (the training ones where none ship)."""
    if name == TEXT:
        return _newsgroups()
    with np.load(_folder() / f"{name}.npz", allow_pickle=False) as file:
        X, y = _rows(file, "X"), file["y"]
        if "yt" not in file.files:
            return X, y, X, y
        return X, y, _rows(file, "Xt"), file["yt"]


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


def _newsgroups() -> tuple[Any, Any, Any, Any]:
    """Counts of words by scikit-learn's CountVectorizer with its defaults, kept in the cache."""
    stored = CACHE / "20newsgroups-counts.npz"
    if not stored.exists():
        _count_words(stored)
    with np.load(stored) as file:
        parts = {key: file[key] for key in file.files}
    matrices = [
        sparse.csr_matrix(
            tuple(parts[f"{key}_{part}"] for part in ("data", "indices", "indptr")),
            shape=tuple(parts[f"{key}_shape"]),
        )
        for key in ("X", "Xt")
    ]
    return matrices[0], parts["y"], matrices[1], parts["yt"]


def _count_words(target: Path) -> None:
    from sklearn.feature_extraction.text import CountVectorizer

    path = _folder() / "20newsgroups_bydate.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    words = CountVectorizer()
    stored: dict[str, Any] = {}
    for key, train in (("", True), ("t", False)):
        chosen = [record for record in records if (record["split"] == "train") is train]
        texts = [record["text"] for record in chosen]
        X = (words.fit_transform if train else words.transform)(texts).astype(np.float64).tocsr()
        stored |= {f"X{key}_{part}": getattr(X, part) for part in ("data", "indices", "indptr")}
        stored[f"X{key}_shape"] = np.array(X.shape)
        stored[f"y{key}"] = np.array([str(record["label"]) for record in chosen])
    target.parent.mkdir(parents=True, exist_ok=True)
    np.savez(target, **stored)
