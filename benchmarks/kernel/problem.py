"""Data of the kernel machine benchmarks: splits determined by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.datasets import Array, data_folder

CLASSES = (
    "a9a", "connect-4", "covtype", "dna", "german.numer", "higgs_sample", "ijcnn1", "mnist",
    "pendigits", "phishing", "segment", "spambase", "splice", "svmguide1", "usps", "vowel", "w8a",
)  # fmt: skip
QUICK = ("german.numer", "segment", "svmguide1")
NUMBERS = (
    "airfoil", "autompg", "boston", "energy", "kin8nm", "naval", "pol", "power-plant",
    "protein-casp", "skillcraft", "winequality-red",
)  # fmt: skip
TRAIN_CAP, TEST_CAP = 5000, 10_000


@dataclass(frozen=True)
class Split:
    """Training and test rows."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def _part(archive: Any, name: str) -> Array:
    if name in archive.files:
        return np.asarray(archive[name], dtype=np.float64)
    parts = (
        archive[name + "_data"].astype(np.float64),
        archive[name + "_indices"].astype(np.int32),
        archive[name + "_indptr"].astype(np.int32),
    )
    return sparse.csr_matrix(parts, shape=tuple(archive[name + "_shape"])).toarray()


def _open(name: str) -> Any:
    folder = data_folder()
    if folder is None:
        raise ValueError(f"data set {name!r} needs LIKELIER_DATA to name the data folder")
    return np.load(folder / f"{name}.npz", allow_pickle=False)


def class_split(name: str, seed: int, cap: int = TRAIN_CAP) -> Split:
    """The published test part if there is one, else a random quarter; at most ``cap`` rows.

    If the training part is not larger than that, nine tenths of it are sampled, so that every seed
    has its own rows.
    """
    with _open(name) as archive:
        X, y = _part(archive, "X"), archive["y"]
        shipped = "yt" in archive.files
        X_test, y_test = (_part(archive, "Xt"), archive["yt"]) if shipped else (X[:0], y[:0])
    if name == "covtype":
        y = (y == 2).astype(np.int64)
    rng = np.random.default_rng([seed, 77])
    if not shipped:
        order, n_test = rng.permutation(len(y)), min(len(y) // 4, TEST_CAP)
        X_test, y_test = X[order[:n_test]], y[order[:n_test]]
        X, y = X[order[n_test:]], y[order[n_test:]]
    elif len(y_test) > TEST_CAP:
        rows = rng.permutation(len(y_test))[:TEST_CAP]
        X_test, y_test = X_test[rows], y_test[rows]
    n = cap if len(y) > cap else int(0.9 * len(y))
    rows = rng.permutation(len(y))[:n]
    classes, codes = np.unique(y[rows], return_inverse=True)
    return Split(X[rows], codes, X_test, np.searchsorted(classes, y_test))


def n_published(name: str) -> int:
    """Number of published splits of a set."""
    with _open(name) as archive:
        if "test_idx" in archive.files:
            return len(archive["test_idx"])
        return int(archive["test_fold"].max()) + 1


def number_split(name: str, index: int) -> Split:
    """One of the published splits."""
    with _open(name) as archive:
        X, y = archive["X"].astype(np.float64), archive["y"].astype(np.float64)
        if "test_idx" in archive.files:
            test = np.zeros(len(y), dtype=bool)
            test[archive["test_idx"][index]] = True
        else:
            test = archive["test_fold"] == index
    return Split(X[~test], y[~test], X[test], y[test])
