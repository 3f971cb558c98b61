"""The problems: rows and labels to learn from and to be tested on, the same for both tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from benchmarks.datasets import data_folder

Array = npt.NDArray[Any]
CATEGORIES = (1, 2, 3)  # columns of kddcup99 that hold codes
SETS = ("covtype", "kddcup99_10pct", "mnist")
SMALL = ("vowel", "segment", "dna", "spambase", "usps", "pendigits", "phishing", "ijcnn1")


@dataclass(frozen=True)
class Problem:
    """Training and test rows in single precision; labels as numbers."""

    name: str
    X: Array
    y: Array
    test_rows: Array
    test_y: Array
    preparation: str

    def ordered(self, order: str, seed: int) -> tuple[Array, Array]:
        """Training rows, shuffled or sorted by class (and shuffled within)."""
        rows = np.random.default_rng(seed).permutation(len(self.y))
        if order == "sorted":
            rows = rows[np.argsort(self.y[rows], kind="stable")]
        return self.X[rows], self.y[rows]

    def standardised(self) -> tuple[Array, Array]:
        """Training and test rows with mean zero and unit variance, for a tool that needs it."""
        mean = self.X.mean(axis=0, dtype=np.float64)
        std = self.X.std(axis=0, dtype=np.float64)
        std[std < 1e-9] = 1.0
        return tuple(((rows - mean) / std).astype(np.float32)
                     for rows in (self.X, self.test_rows))  # fmt: skip


def load(name: str) -> Problem:
    """Load a problem by name; "generated" needs no data folder."""
    if name == "generated":
        return _generated()
    folder = data_folder()
    if folder is None:
        raise ValueError("set LIKELIER_DATA to the folder of data sets, or run with --quick")
    with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
        found = {key: archive[key] for key in ("X", "y", "Xt", "yt") if key in archive.files}
    return {"covtype": _covtype, "kddcup99_10pct": _kddcup, "mnist": _mnist}[name](found)


def load_small(name: str, seed: int) -> Problem:
    """Rows of a small set in a random order; without published test rows, three tenths to test."""
    if name == "generated":
        return _generated()
    folder = data_folder()
    if folder is None:
        raise ValueError("set LIKELIER_DATA to the folder of data sets, or run with --quick")
    with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
        found = {key: archive[key] for key in archive.files}
    rows = np.random.default_rng(seed).permutation(len(found["y"]))
    X, y = _dense(found, "X")[rows], found["y"][rows]
    if "yt" in found:
        test_X = _dense(found, "Xt")
        width = max(X.shape[1], test_X.shape[1])  # a column may be empty in one of the parts
        X, test_X = (np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in (X, test_X))
        return Problem(name, X, y, test_X, found["yt"], "published test rows")
    cut = len(y) * 7 // 10
    return Problem(name, X[:cut], y[:cut], X[cut:], y[cut:], "random test rows")


def _dense(found: dict[str, Array], part: str) -> Array:
    if part in found:
        return found[part].astype(np.float32)
    arrays = (found[f"{part}_data"].astype(np.float32), found[f"{part}_indices"].astype(np.int32),
              found[f"{part}_indptr"].astype(np.int32))  # fmt: skip
    return np.asarray(sparse.csr_array(arrays, shape=tuple(found[f"{part}_shape"])).toarray())


def _mnist(found: dict[str, Array]) -> Problem:
    X, test_X = (np.asarray(found[key] / 255, dtype=np.float32) for key in ("X", "Xt"))
    return Problem("mnist", X, found["y"], test_X, found["yt"], "published test rows")


def _covtype(found: dict[str, Array]) -> Problem:
    X, y = found["X"].astype(np.float32), found["y"]
    rows = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(rows, [len(y) * 4 // 5])
    text = "all 7 classes, a random fifth of the rows to test"
    return Problem("covtype", X[train], y[train], X[test], y[test], text)


def _kddcup(found: dict[str, Array]) -> Problem:
    sizes = [int(max(found[k][:, c].max() for k in ("X", "Xt"))) + 1 for c in CATEGORIES]

    def encode(X: Array) -> Array:
        numbers = np.delete(X, CATEGORIES, axis=1).astype(np.float32)
        parts = [numbers]
        for column, size in zip(CATEGORIES, sizes, strict=True):
            parts.append(np.eye(size, dtype=np.float32)[X[:, column].astype(np.intp)])
        return np.hstack(parts)

    unseen = 1.0 - np.isin(found["yt"], found["y"]).mean()
    text = (
        f"all {len(np.unique(found['y']))} classes, categories one-hot; of the published test rows "
        f"{unseen:.0%} are of other classes"
    )
    return Problem("kddcup99_10pct", encode(found["X"]), found["y"], encode(found["Xt"]),
                   found["yt"], text)  # fmt: skip


def _generated() -> Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 10)).astype(np.float32)
    y = np.argmax(X @ rng.normal(size=(10, 4)) + rng.gumbel(size=(6000, 4)), axis=1)
    return Problem("generated", X[:4000], y[:4000], X[4000:], y[4000:], "a softmax model")
