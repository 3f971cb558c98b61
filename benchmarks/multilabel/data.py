"""The multi-label data sets: official splits where there are some, else a third for testing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from benchmarks.datasets import data_folder

Array = npt.NDArray[Any]

SETS = (
    "flags", "emotions", "cal500", "yeast_ml", "scene", "enron", "langlog", "slashdot", "corel5k",
    "tmc2007-500", "bibtex",
)  # fmt: skip


@dataclass(frozen=True)
class LabelSet:
    """Training and test part; ``official`` says whether the split was shipped."""

    name: str
    X: Any
    Y: Array
    Xt: Any
    Yt: Array
    official: bool


def load(name: str, seed: int) -> LabelSet:
    """Read a set; where no split is shipped the seed draws one."""
    folder = data_folder()
    if folder is None:
        raise ValueError("the multi-label sets need LIKELIER_DATA to name the data folder")
    with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
        content = {key: archive[key] for key in archive.files}
    X, Y = _features(content, "X"), _labels(content, "Y")
    if "Xt" in content or "Xt_data" in content:
        return LabelSet(name, X, Y, _features(content, "Xt"), _labels(content, "Yt"), True)
    order = np.random.default_rng(seed).permutation(X.shape[0])
    test, train = np.sort(order[: len(order) // 3]), np.sort(order[len(order) // 3 :])
    return LabelSet(name, X[train], Y[train], X[test], Y[test], False)


def _features(content: dict[str, Array], key: str) -> Any:
    if key in content:
        return np.ascontiguousarray(content[key], dtype=np.float64)
    parts = (
        content[f"{key}_data"].astype(np.float64),
        content[f"{key}_indices"].astype(np.int32),
        content[f"{key}_indptr"].astype(np.int32),
    )
    return sparse.csr_matrix(parts, shape=tuple(int(n) for n in content[f"{key}_shape"]))


def _labels(content: dict[str, Array], key: str) -> Array:
    if key in content:
        return content[key].astype(np.float64)
    Y = np.zeros(tuple(int(n) for n in content[f"{key}_shape"]))
    lengths = np.diff(content[f"{key}_indptr"].astype(np.int64))
    Y[np.repeat(np.arange(len(lengths)), lengths), content[f"{key}_indices"]] = 1.0
    return Y


def f1_scores(Y: Array, P: Array) -> tuple[float, float]:
    """Micro- and macro-F1; a label that nobody has and nobody predicts counts 0."""
    hits, both = (Y * P).sum(axis=0), Y.sum(axis=0) + P.sum(axis=0)
    micro = 2.0 * hits.sum() / max(both.sum(), 1.0)
    return float(micro), float((2.0 * hits / np.maximum(both, 1.0)).mean())
