"""Other ways to predict labels; each gives out-of-fold scores and scores of test rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold
from sklearn.multioutput import ClassifierChain
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from benchmarks.multilabel.data import Array

GRID = (0.01, 0.1, 1.0, 10.0)
FOLDS = 5
TINY = 1e-9
DENSE_COLUMNS = 2000  # up to which distances of dense rows are the quicker ones


def prepare(X: Any, Xt: Any) -> tuple[Any, Any]:
    """Dense columns standardised; sparse rows as they are."""
    if sparse.issparse(X):
        return X, Xt
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(Xt)


def logistic(C: float) -> Any:
    return LogisticRegression(C=C, solver="liblinear", max_iter=200)


def _known_odds(y: Array) -> float:
    return float(logit(np.clip((y.sum() + 0.5) / (len(y) + 1.0), TINY, 1.0 - TINY)))


def _fit_score(model: Any, X: Any, y: Array, Xt: Any) -> Array:
    """Scores of test rows; a label with one value only has a constant score."""
    if y.min() == y.max():
        return np.full(Xt.shape[0], _known_odds(y))
    return np.asarray(model.fit(X, y).decision_function(Xt))


def _folds(n: int, seed: int) -> list[tuple[Array, Array]]:
    return list(KFold(min(FOLDS, n), shuffle=True, random_state=seed).split(np.zeros(n)))


def binary_relevance(X: Any, Y: Array, Xt: Any, seed: int) -> tuple[Array, Array]:
    """One logistic regression per label, C by five folds (log loss) for every label."""
    X, Xt = prepare(X, Xt)
    S, T = np.empty(Y.shape), np.empty((Xt.shape[0], Y.shape[1]))
    folds = _folds(len(Y), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for c in range(Y.shape[1]):
            tried = []
            for C in GRID:
                scores = np.empty(len(Y))
                for train, test in folds:
                    scores[test] = _fit_score(logistic(C), X[train], Y[train, c], X[test])
                p = 1.0 / (1.0 + np.exp(-np.clip(scores, -30, 30)))
                tried.append((log_loss(Y[:, c], p, labels=[0, 1]), C, scores))
            _, C, S[:, c] = min(tried, key=lambda item: item[0])
            T[:, c] = _fit_score(logistic(C), X, Y[:, c], Xt)
    return S, T


def chain(X: Any, Y: Array, Xt: Any, seed: int) -> tuple[Array, Array]:
    """Classifier chain of logistic regressions in random order."""
    X, Xt = prepare(X, Xt)
    varied = np.flatnonzero((Y.min(axis=0) == 0) & (Y.max(axis=0) == 1) & (Y.sum(axis=0) >= FOLDS))
    S = np.tile([_known_odds(Y[:, c]) for c in range(Y.shape[1])], (len(Y), 1))
    T = np.tile(S[0], (Xt.shape[0], 1))
    model = ClassifierChain(_SafeLogistic(), order="random", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for train, test in _folds(len(Y), seed):
            p = model.fit(X[train], Y[train][:, varied]).predict_proba(X[test])
            S[np.ix_(test, varied)] = logit(np.clip(p, TINY, 1.0 - TINY))
        p = model.fit(X, Y[:, varied]).predict_proba(Xt)
        T[:, varied] = logit(np.clip(p, TINY, 1.0 - TINY))
    return S, T


class _SafeLogistic(LogisticRegression):
    """Logistic regression that puts up with a fold in which a label has one value."""

    def __init__(self) -> None:
        super().__init__(C=1.0, solver="liblinear", max_iter=200)

    def fit(self, X: Any, y: Array, sample_weight: Any = None) -> Any:
        if y.min() < y.max():
            return super().fit(X, y)
        self.classes_ = np.array([0.0, 1.0])
        self.coef_ = np.zeros((1, X.shape[1]))
        self.intercept_ = np.array([_known_odds(y)])
        return self


def ml_knn(X: Any, Y: Array, Xt: Any, seed: int, k: int = 10) -> tuple[Array, Array]:
    """ML-kNN: how many of ten neighbours have a label, weighed by Bayes' rule."""
    X, Xt = prepare(X, Xt)
    if sparse.issparse(X) and X.shape[1] <= DENSE_COLUMNS:
        X, Xt = X.toarray(), Xt.toarray()
    S = np.empty(Y.shape)
    for train, test in _folds(len(Y), seed):
        S[test] = _knn_odds(X[train], Y[train], X[test], k)
    return S, _knn_odds(X, Y, Xt, k)


def _knn_odds(X: Any, Y: Array, Xt: Any, k: int) -> Array:
    finder = NearestNeighbors(n_neighbors=min(k, len(Y) - 1)).fit(X)
    own = Y[finder.kneighbors(return_distance=False)].sum(axis=1).astype(int)
    found = Y[finder.kneighbors(Xt, return_distance=False)].sum(axis=1).astype(int)
    out = np.empty(found.shape)
    for c in range(Y.shape[1]):
        yes = np.bincount(own[Y[:, c] == 1, c], minlength=k + 1) + 1.0
        no = np.bincount(own[Y[:, c] == 0, c], minlength=k + 1) + 1.0
        odds = np.log(yes / yes.sum()) - np.log(no / no.sum())
        out[:, c] = odds[found[:, c]] + np.log((Y[:, c].sum() + 1) / (len(Y) - Y[:, c].sum() + 1))
    return out


def scut_fbr(X: Any, Y: Array, Xt: Any, seed: int, fbr: float = 0.1) -> tuple[Array, Array]:
    """Linear SVMs with thresholds by three folds and the fbr rule; decided scores, cut at 0.

    For every fold the threshold with the best F1 of the label is taken; where that F1 is below
    ``fbr`` the highest score is taken instead. Their mean is the threshold.
    """
    X, Xt = prepare(X, Xt)
    T = np.empty((Xt.shape[0], Y.shape[1]))
    folds = list(KFold(3, shuffle=True, random_state=seed).split(np.zeros(len(Y))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for c in range(Y.shape[1]):
            cuts = []
            for train, test in folds:
                f = _svm_score(X[train], Y[train, c], X[test])
                cuts.append(_scut(f, Y[test, c], fbr))
            T[:, c] = _svm_score(X, Y[:, c], Xt) - np.mean(cuts)
    return np.zeros((0, Y.shape[1])), T


def _svm_score(X: Any, y: Array, Xt: Any) -> Array:
    if y.min() == y.max():
        return np.full(Xt.shape[0], 2.0 * y[0] - 1.0)
    return np.asarray(LinearSVC(C=1.0, max_iter=2000).fit(X, y).decision_function(Xt))


def _scut(f: Array, y: Array, fbr: float) -> float:
    order = np.argsort(-f, kind="stable")
    hits = np.cumsum(y[order])
    F = 2.0 * hits / (np.arange(1, len(f) + 1) + y.sum() + TINY)
    best = int(F.argmax())
    if F[best] < fbr:
        return float(f.max())
    after = f[order[best + 1]] if best + 1 < len(f) else f[order[best]] - 1.0
    return float(0.5 * (f[order[best]] + after))
