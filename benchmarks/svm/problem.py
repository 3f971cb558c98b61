"""The problems: data sets, prepared once and the same for both tools, and the dual they solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import svm as libsvm

from benchmarks.datasets import data_folder
from likelier import SVC, SVR
from likelier.kernels import Rbf

CLASSES = ("svmguide1", "pendigits", "usps", "a9a", "splice")
NUMBERS = ("boston", "energy", "kin8nm")
SETS = CLASSES + NUMBERS
LABELLED = (*CLASSES, "vowel")
CS = (0.1, 1.0, 100.0, 1e4)
EPSILON = 0.1
MAX_ROWS = 10_000


@dataclass(frozen=True)
class Problem:
    """Rows, targets, and which estimators are for them."""

    name: str
    X: Any
    y: Any
    unit: float = 1.0  # standard deviation of the target before it was standardised

    @property
    def regression(self) -> bool:
        return self.y.dtype.kind == "f"

    def ours(self, **words: Any) -> Any:
        return SVR(**words) if self.regression else SVC(**words)

    def theirs(self, **words: Any) -> Any:
        return libsvm.SVR(**words) if self.regression else libsvm.SVC(**words)


def load(name: str, rows: int | None = None) -> Problem:
    """Features standardised (usps and a9a as published), numeric targets too."""
    folder = data_folder()
    if folder is None:
        raise ValueError("set LIKELIER_DATA to the folder of the data sets")
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        y = file["y"]
        if "X" in file.files:
            X: Any = file["X"].astype(np.float64)
        else:
            parts = (file["X_data"].astype(float), file["X_indices"].astype(np.int32),
                     file["X_indptr"].astype(np.int32))  # fmt: skip
            X = sparse.csr_matrix(parts, shape=tuple(file["X_shape"]))
    limit = min(rows or MAX_ROWS, MAX_ROWS)
    if X.shape[0] > limit:
        chosen = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:limit])
        X, y = X[chosen], y[chosen]
    if name not in ("usps", "a9a"):
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if name in LABELLED:
        return Problem(name, X, y)
    y = y.astype(np.float64)
    unit = float(y.std())
    return Problem(name, X, (y - y.mean()) / unit, unit)


def certificate(problem: Problem, model: Any) -> tuple[float, float]:
    """Dual objective summed over pairs of classes, and the largest violation, in float64."""
    table = model.dual_coef_.toarray() if sparse.issparse(model.dual_coef_) else model.dual_coef_
    rows = Rbf(float(model._gamma)).prepare(problem.X)
    if problem.regression:
        beta = np.zeros(len(problem.y))
        beta[model.support_] = table[0]
        return _one(rows, beta, problem.y, EPSILON, model.C)
    codes = np.unique(problem.y, return_inverse=True)[1]
    support, total, worst = codes[model.support_], 0.0, 0.0
    K = len(model.classes_)
    for first in range(K):
        for second in range(first + 1, K):
            inside = np.flatnonzero((codes == first) | (codes == second))
            sign = 1.0 if K > 2 else -1.0
            y = np.where(codes[inside] == first, sign, -sign)
            beta = np.zeros(len(codes))
            beta[model.support_[support == first]] = table[second - 1, support == first]
            beta[model.support_[support == second]] = table[first, support == second]
            value, gap = _one(rows.take(inside), beta[inside], y, 0.0, model.C)
            total, worst = total + value, max(worst, gap)
    return total, worst


def _one(rows: Any, beta: Any, y: Any, eps: float, C: float) -> tuple[float, float]:
    used = np.flatnonzero(beta)
    F = y.astype(np.float64).copy()
    for start in range(0, len(y), 2000):
        some = np.arange(start, min(start + 2000, len(y)))
        F[some] -= rows.take(some).block(rows.take(used)) @ beta[used]
    beta = np.where(abs(beta) > C * (1 - 1e-12), np.sign(beta) * C, beta)
    lower = -C if eps else np.where(y > 0, 0.0, -C)
    upper = C if eps else np.where(y > 0, C, 0.0)
    gain = np.where(beta < upper, F - np.where(beta >= 0, eps, -eps), -np.inf).max()
    cost = np.where(beta > lower, F - np.where(beta > 0, eps, -eps), np.inf).min()
    return float(0.5 * beta @ (y + F) - eps * abs(beta).sum()), float(gain - cost)
