"""Generated data for the cases: the same numbers on every commit, from a seed and a size."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

NEW_ROWS, NEW_SHARE = 40, 20  # rows to predict: so many, and one for so many training rows
N_BLOCKS = 3


@dataclass(frozen=True)
class Data:
    """Training rows, targets and weights; rows to predict, and their targets."""

    X: Any
    y: Any
    weight: Any
    new: Any
    new_y: Any

    def blocks(self, weighted: bool = False) -> list[tuple[Any, ...]]:
        """Cut the rows into blocks of a stream."""
        parts = np.array_split(np.arange(self.X.shape[0]), N_BLOCKS)
        columns = (self.X, self.y, self.weight) if weighted else (self.X, self.y)
        return [tuple(column[part] for column in columns) for part in parts]

    def write(self, path: Path) -> Path:
        """Write a table of the columns ``x0, x1, ..., y``."""
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{j}" for j in range(self.X.shape[1])), "y"])
            for row, target in zip(self.X.tolist(), self.y.tolist(), strict=True):
                writer.writerow([*row, f"class {target}" if isinstance(target, int) else target])
        return path


def make_data(kind: str, n_rows: int, n_features: int) -> Data:
    """Make rows of one of the `KINDS`; weights are one, two and a few zeros."""
    rng = np.random.default_rng(20_261_118)
    n = n_rows + NEW_ROWS + n_rows // NEW_SHARE
    X, y = KINDS[kind](rng, n, n_features)
    weight = rng.choice([0.0, 1.0, 1.0, 2.0, 0.5], size=n_rows)
    return Data(X[:n_rows], y[:n_rows], weight, X[n_rows:], y[n_rows:])


def _dense(rng: np.random.Generator, n: int, d: int) -> Any:
    scale = np.geomspace(0.3, 3.0, d)
    return rng.normal(size=(n, d)) * scale + 0.2 * scale


def _words(rng: np.random.Generator, n: int, d: int) -> Any:
    """Make sparse rows of counts, about twelve columns each, some columns much more frequent."""
    column = np.minimum((d * rng.random((n, 12)) ** 2).astype(np.int64), d - 1)
    row = np.repeat(np.arange(n), 12)
    X = sparse.csr_array((np.ones(12 * n), (row, column.ravel())), shape=(n, d))
    X.sum_duplicates()
    return X


def _scores(rng: np.random.Generator, X: Any, k: int) -> Any:
    """Make scores of ``k`` classes: linear and, for dense rows, a bend."""
    linear = np.asarray(X @ rng.normal(size=(X.shape[1], k)))
    linear = 2.0 * linear / (linear.std() + 1e-12)
    if not sparse.issparse(X):
        linear[:, 0] += np.cos(2.0 * X[:, 0])
    return linear


def _classes(rng: np.random.Generator, X: Any, k: int) -> Any:
    scores = _scores(rng, X, k) + rng.gumbel(size=(X.shape[0], k))
    y = scores.argmax(axis=1)
    y[:k] = np.arange(k)  # every class is there, in the first block too
    return y


def _two(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _dense(rng, n, d)
    return X, _classes(rng, X, 2)


def _three(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _dense(rng, n, d)
    return X, np.array(["ash", "birch", "cedar"])[_classes(rng, X, 3)]


def _numbers(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _dense(rng, n, d)
    return X, 5.0 + 3.0 * (_scores(rng, X, 1)[:, 0] + 0.3 * rng.standard_t(4, size=n))


def _counts(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _dense(rng, n, d)
    return X, rng.poisson(np.exp(0.5 * _scores(rng, X, 1)[:, 0])).astype(np.float64)


def _missing(rng: np.random.Generator, n: int, d: int) -> Any:
    X, y = _three(rng, n, d)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, y


def _sparse_two(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _words(rng, n, d)
    return X, _classes(rng, X, 2)


def _sparse_three(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _words(rng, n, d)
    return X, _classes(rng, X, 3)


def _sparse_numbers(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _words(rng, n, d)
    return X, _scores(rng, X, 1)[:, 0] + 0.3 * rng.normal(size=n)


def _bits(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _dense(rng, n, d)
    return (X > 0.3).astype(np.float64), _classes(rng, X, 3)


def _labels(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _dense(rng, n, d)
    Y = (_scores(rng, X, 5) + rng.logistic(size=(n, 5)) > 0.5).astype(np.float64)
    Y[n // 2 : n // 2 + n // 10] = np.nan  # rows that nobody has labelled
    return X, Y


def _sparse_labels(rng: np.random.Generator, n: int, d: int) -> Any:
    X = _words(rng, n, d)
    return X, (_scores(rng, X, 5) + rng.logistic(size=(n, 5)) > 0.5).astype(np.float64)


def _documents(rng: np.random.Generator, n: int, d: int) -> Any:
    words = np.array([f"{a}{b}" for a in ("ka", "lo", "mi", "nu") for b in ("s", "tt", "ra", "n")])
    chosen = rng.integers(len(words), size=(n, d)) * (rng.random((n, d)) < 0.7)
    texts = [" ".join(words[row]) + ("." if row[0] % 2 else " And so on") for row in chosen]
    return np.array(texts, dtype=object), chosen[:, 0] % 2


KINDS: dict[str, Callable[[np.random.Generator, int, int], Any]] = {
    "two": _two,
    "three": _three,
    "numbers": _numbers,
    "counts": _counts,
    "missing": _missing,
    "sparse two": _sparse_two,
    "sparse three": _sparse_three,
    "sparse numbers": _sparse_numbers,
    "bits": _bits,
    "labels": _labels,
    "sparse labels": _sparse_labels,
    "documents": _documents,
}


def write_table(path: Path, n_rows: int, target: str) -> Path:
    """Write a mixed table: numbers, categories, dates, text, missing cells."""
    rng = np.random.default_rng(7)
    towns = np.array(["Ulm", "Bern", "Graz", "Turin", "Lyon"])
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["area", "town", "sold on", "note", "rooms", "target"])
        for _ in range(n_rows):
            area, town = 40.0 + 120.0 * rng.random(), int(rng.integers(len(towns)))
            rooms, month = int(rng.integers(1, 7)), int(rng.integers(1, 13))
            number = area * (1.0 + 0.2 * town) + 10.0 * rooms + rng.normal(0.0, 20.0)
            note = " ".join(rng.choice(["quiet", "bright", "old", "garden", "near"], size=3))
            cell = "" if rng.random() < 0.05 else f"{area:.1f}"
            answer = f"{number:.2f}" if target == "number" else ("dear", "cheap")[number < 150.0]
            day = f"20{rng.integers(10, 25)}-{month:02d}-{rng.integers(1, 29):02d}"
            writer.writerow([cell, towns[town], day, note, rooms, answer])
    return path
