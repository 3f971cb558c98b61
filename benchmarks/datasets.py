"""The data sets of the benchmarks, prepared once and the same for every tool.

The folder is named by ``LIKELIER_DATA``; its files are described in its ``MANIFEST.md``.
Only training parts are used: these benchmarks measure optimisation, not generalisation.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from benchmarks.common import CACHE

Array = npt.NDArray[Any]
Matrix = Array | sparse.csr_matrix


@dataclass(frozen=True)
class Dataset:
    """Rows ``X`` (float64, dense or CSR), classes ``y`` as 0..K-1, and what was done to them."""

    name: str
    X: Matrix
    y: Array
    preparation: str

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def n_values(self) -> int:
        """Stored values: what one pass over the rows has to touch."""
        return int(self.X.nnz if sparse.issparse(self.X) else self.X.size)

    @property
    def layout(self) -> str:
        return "CSR" if sparse.issparse(self.X) else "dense"

    def signs(self) -> Array:
        """Targets -1/+1, one column per binary problem: one for two classes, else K."""
        if self.n_classes == 2:
            return np.where(self.y == 1, 1.0, -1.0)[:, None]
        return np.where(self.y[:, None] == np.arange(self.n_classes), 1.0, -1.0)

    def head(self, n: int) -> Dataset:
        """Return the first ``n`` rows after a fixed shuffle (some files are sorted by class)."""
        rows = np.sort(np.random.default_rng(0).permutation(self.n_rows)[:n])
        _, y = np.unique(self.y[rows], return_inverse=True)
        return Dataset(f"{self.name}-{n}", self.X[rows], y, self.preparation)


def data_folder() -> Path | None:
    """Return the folder of the real data sets, or None where it is not set."""
    folder = os.environ.get("LIKELIER_DATA")
    return Path(folder) if folder and Path(folder).is_dir() else None


def load(name: str) -> Dataset:
    """Load one data set by name, as listed in ``LOADERS``."""
    if name not in LOADERS:
        raise ValueError(f"unknown data set {name!r}; choose from {sorted(LOADERS)}")
    return LOADERS[name](name)


def _archive(name: str) -> dict[str, Array]:
    folder = data_folder()
    if folder is None:
        raise ValueError(
            f"data set {name!r} needs the folder of data sets: set LIKELIER_DATA to it, "
            "or run with --quick, which also works on generated data"
        )
    with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
        # class names may be stored as objects, which are not needed here
        wanted = ("X", "X_data", "X_indices", "X_indptr", "X_shape", "y")
        return {key: archive[key] for key in wanted if key in archive.files}


def _rows(content: dict[str, Array]) -> Matrix:
    if "X" in content:
        return np.ascontiguousarray(content["X"], dtype=np.float64)
    parts = (
        content["X_data"].astype(np.float64),
        content["X_indices"].astype(np.int32),
        content["X_indptr"].astype(np.int32),
    )
    X = sparse.csr_matrix(parts, shape=tuple(content["X_shape"]))
    X.sum_duplicates()
    return X


def _codes(y: Array) -> Array:
    return np.unique(y, return_inverse=True)[1]


def _as_stored(name: str) -> Dataset:
    content = _archive(name)
    return Dataset(name, _rows(content), _codes(content["y"]), "as published")


def _ijcnn1(name: str) -> Dataset:
    content = _archive(name)
    X = sparse.csr_matrix(_rows(content))
    return Dataset(name, X, _codes(content["y"]), "as published (45% zeros, kept as CSR)")


def _covtype_raw(name: str) -> Dataset:
    content = _archive("covtype")
    y = (content["y"] == 2).astype(np.int64)
    return Dataset(name, _rows(content), y, "class 2 against the rest, in published units")


def _covtype(name: str) -> Dataset:
    data = _covtype_raw(name)
    X = data.X
    X[:, :10] = (X[:, :10] - X[:, :10].mean(axis=0)) / X[:, :10].std(axis=0)
    text = "class 2 against the rest; the 10 numeric columns standardised"
    return Dataset(name, X, data.y, text)


def _kddcup(name: str) -> Dataset:
    content = _archive(name)
    with np.load(data_folder() / f"{name}.npz", allow_pickle=False) as archive:
        class_names = [str(value) for value in archive["class_names"]]
    X = content["X"].astype(np.float64)
    numeric = [column for column in range(X.shape[1]) if column not in (1, 2, 3)]
    spread = X[:, numeric].std(axis=0)
    blocks = [sparse.csr_matrix(X[:, numeric] / np.where(spread > 0, spread, 1.0))]
    for column in (1, 2, 3):
        codes = X[:, column].astype(np.int64)
        ones = (np.ones(len(codes)), codes, np.arange(len(codes) + 1))
        blocks.append(sparse.csr_matrix(ones, shape=(len(codes), codes.max() + 1)))
    y = (content["y"] != class_names.index("normal.")).astype(np.int64)
    joined = sparse.csr_matrix(sparse.hstack(blocks, format="csr"))
    joined.sort_indices()
    text = "normal against the rest; categories one-hot, numeric columns divided by their "
    text += "standard deviation"
    return Dataset(name, joined, y, text)


def _sector(name: str) -> Dataset:
    content = _archive(name)
    X = _rows(content)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X = sparse.csr_matrix(sparse.diags_array(1 / np.where(norms > 0, norms, 1.0)) @ X)
    return Dataset(name, X, _codes(content["y"]), "rows normalised to length one")


def _mnist(name: str) -> Dataset:
    content = _archive(name)
    return Dataset(name, _rows(content) / 255, _codes(content["y"]), "pixels divided by 255")


def _newsgroups(name: str) -> Dataset:
    stored = CACHE / "20newsgroups-tfidf.npz"
    if not stored.exists():
        _vectorise_newsgroups(stored)
    with np.load(stored) as archive:
        content = {key: archive[key] for key in archive.files}
    return Dataset(name, _rows(content), content["y"], "TfidfVectorizer with its defaults")


def _vectorise_newsgroups(target: Path) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    folder = data_folder()
    if folder is None:
        raise ValueError("data set '20newsgroups' needs LIKELIER_DATA to name the data folder")
    with lzma.open(folder / "20newsgroups_bydate.jsonl.xz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    train = [record for record in records if record["split"] == "train"]
    X = TfidfVectorizer().fit_transform([record["text"] for record in train]).tocsr()
    y = _codes(np.array([str(record["label"]) for record in train]))
    target.parent.mkdir(parents=True, exist_ok=True)
    parts = {"X_data": X.data, "X_indices": X.indices, "X_indptr": X.indptr, "X_shape": X.shape}
    np.savez(target, y=y, **parts)


def _generated(name: str) -> Dataset:
    """Generate a small logistic problem, for runs without the real data."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(4000, 20))
    truth = rng.normal(size=20) / 3
    y = (rng.random(4000) < 1 / (1 + np.exp(-X @ truth))).astype(np.int64)
    return Dataset(name, X, y, "generated: logistic model, 20 normal features")


LOADERS: dict[str, Callable[[str], Dataset]] = {
    "a9a": _as_stored,
    "w8a": _as_stored,
    "ijcnn1": _ijcnn1,
    "covtype": _covtype,
    "covtype-raw": _covtype_raw,
    "kddcup99_10pct": _kddcup,
    "sector": _sector,
    "20newsgroups": _newsgroups,
    "mnist": _mnist,
    "generated": _generated,
}
