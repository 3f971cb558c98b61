"""Missing values: their sums against brute force, and accuracy beside filling them in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.naive_bayes as peer
from scipy import integrate, sparse
from scipy.special import logsumexp
from sklearn.impute import SimpleImputer

import likelier
from benchmarks.common import Cases
from benchmarks.nb.data import load

SETS = ("breast-cancer", "dna", "mushrooms", "pendigits", "spambase")
KINDS = ("GaussianNB", "BernoulliNB")
RATES = (0.1, 0.3, 0.5)
MOST_ROWS = 5000


def run(sets: Any = SETS, seeds: int = 3, report: Callable[[str], None] = print) -> Cases:
    """Errors of the sums, then accuracies with a share of all values missing at random."""
    errors = {"GaussianNB": _gaussian(), "BernoulliNB": _presence()}
    report(f"missing, brute force: {errors}")
    yield "brute force", {"error": errors}
    for name in sets:
        X, y, _, _ = load(name)
        X = X.toarray() if sparse.issparse(X) else X
        entry: dict[str, Any] = {}
        for kind, rate in itertools.product(KINDS, RATES):
            found = [_accuracy(kind, X, y, rate, seed) for seed in range(seeds)]
            entry[f"{kind} {rate}"] = dict(
                zip(("ours", "filled"), np.mean(found, axis=0), strict=True)
            )
        report(f"missing {name}: {entry}")
        yield name, {"accuracy": entry}


def _accuracy(kind: str, X: Any, y: Any, rate: float, seed: int) -> tuple[float, float]:
    """Test accuracy of ours, and of scikit-learn's on means or zeros, whichever is better."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))[:MOST_ROWS]
    rows, labels = X[order].astype(np.float64), y[order]
    rows[rng.random(rows.shape) < rate] = np.nan
    train, test = slice(0, len(rows) // 2), slice(len(rows) // 2, None)
    ours = getattr(likelier, kind)(random_state=seed).fit(rows[train], labels[train])
    filled = []
    for strategy in ("mean", "constant"):
        fill = SimpleImputer(strategy=strategy, fill_value=0.0, keep_empty_features=True)
        theirs = getattr(peer, kind)().fit(fill.fit_transform(rows[train]), labels[train])
        filled.append(float((theirs.predict(fill.transform(rows[test])) == labels[test]).mean()))
    return float((ours.predict(rows[test]) == labels[test]).mean()), max(filled)


def _rows(seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 3
    return rng.poisson(np.array([[4, 2, 2], [2, 4, 2], [3, 3, 5]])[y]).astype(float), y


def _gaussian() -> float:
    """Largest error of ``log p`` of rows with one missing value, against quadrature."""
    X, y = _rows()
    model = likelier.GaussianNB(random_state=0).fit(X, y)
    worst = 0.0
    for j in range(3):
        row = X[:1].copy()

        def density(value: float, row: Any = row, j: int = j) -> float:
            row[0, j] = value
            return float(np.exp(model.score_samples(row)[0]))

        area = integrate.quad(density, -40.0, 50.0, points=[2.0, 4.0], limit=400, epsrel=1e-12)[0]
        row[0, j] = np.nan
        worst = max(worst, abs(float(model.score_samples(row)[0]) - np.log(area)))
    return worst


def _presence() -> float:
    """The same for presence, over both values of every missing feature."""
    X, y = _rows()
    model = likelier.BernoulliNB(binarize=2.5, random_state=0).fit(X, y)
    worst = 0.0
    for pattern in itertools.product([0.0, 9.0, np.nan], repeat=3):
        row = np.array([pattern])
        holes = np.flatnonzero(np.isnan(row[0]))
        filled = np.repeat(row, 2 ** len(holes), axis=0)
        filled[:, holes] = list(itertools.product([0.0, 9.0], repeat=len(holes)))
        brute = logsumexp(model.score_samples(filled))
        worst = max(worst, abs(float(model.score_samples(row)[0]) - brute))
    return worst
