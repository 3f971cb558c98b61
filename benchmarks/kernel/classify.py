"""Classification with default options against a grid-searched SVC, on the same rows.

Each case (data set, seed, model) is stored as soon as it is measured, so a run can be resumed. A
small warm-up fit keeps the loading of compiled code out of the first measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.common import remember
from benchmarks.kernel.peers import PEERS
from benchmarks.kernel.problem import Split, class_split
from likelier import BayesianKernelClassifier
from likelier.calibration import ece

C_GRID, GAMMA_GRID, FOLDS = (0.1, 1, 10, 100), (0.1, 0.3, 1, 3, 10), 3


def run(
    folder: Path,
    sets: Iterable[str],
    seeds: Iterable[int],
    models: Iterable[str] = ("ours", "svc", *PEERS),
) -> None:
    """Measure every model on every set and seed that is not stored yet."""
    measures = {"ours": ours, "svc": svc, **{n: partial(peer, fit) for n, fit in PEERS.items()}}
    for seed in seeds:
        for name in sets:
            for model in models:
                record = remember(
                    folder / f"classify-{model}.json",
                    f"{name}/{seed}",
                    partial(_measure, measures[model], name, seed),
                )
                print(f"{name} seed {seed} {model}: accuracy {record['accuracy']:.4f}", flush=True)


def _measure(
    measure: Callable[[Split, int], dict[str, Any]], name: str, seed: int
) -> dict[str, Any]:
    return measured(measure, class_split(name, seed), seed)


def measured(
    measure: Callable[[Split, int], dict[str, Any]], split: Split, seed: int
) -> dict[str, Any]:
    """One model on one split, with one thread."""
    with threadpool_limits(1):
        warm_up()
        record = measure(split, seed)
    n, d = split.X.shape
    return {"rows": n, "inputs": d, "test_rows": len(split.y_test), **record}


@cache
def warm_up() -> None:
    """One small fit of each tool, once per process."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 5)), np.repeat([0, 1, 2], 50)
    BayesianKernelClassifier(random_state=0).fit(X, y).predict_proba(X)
    SVC().fit(X, y).predict(X)


def scores(p: Any, y: Any) -> dict[str, float]:
    """Accuracy, log loss and calibration error of probabilities."""
    given = np.clip(p[np.arange(len(y)), y], 1e-15, 1.0)
    return {
        "accuracy": float((p.argmax(axis=1) == y).mean()),
        "log_loss": float(-np.log(given).mean()),
        "ece": ece(np.clip(p, 0.0, 1.0), y),
    }


def ours(split: Split, seed: int) -> dict[str, Any]:
    """BayesianKernelClassifier with default options."""
    start = time.process_time()
    model = BayesianKernelClassifier(random_state=seed).fit(split.X, split.y)
    fitted = time.process_time() - start
    record = {"cpu": fitted, **scores(model.predict_proba(split.X_test), split.y_test)}
    if split.X.shape[1] == 784:  # images: also measure outlier detection
        record["ood"] = strange(model, split.X_test[:2000])
    return record


def strange(model: Any, X: Any) -> dict[str, float]:
    """AUROC of `score_samples` against three kinds of outlier images."""
    rng = np.random.default_rng(0)
    usual = model.score_samples(X)
    kinds = {
        "uniform noise": rng.uniform(0.0, 255.0, X.shape),
        "permuted pixels": X[:, rng.permutation(X.shape[1])],
        "inverted": 255.0 - X,
    }
    truth = np.repeat([1, 0], len(X))
    return {
        kind: float(roc_auc_score(truth, np.concatenate([usual, model.score_samples(rows)])))
        for kind, rows in kinds.items()
    }


def svc(split: Split, seed: int) -> dict[str, Any]:
    """Grid-searched SVC; the time includes the search and the final fit."""
    start = time.process_time()
    scaler = StandardScaler().fit(split.X)
    X, X_test = scaler.transform(split.X), scaler.transform(split.X_test)
    search = grid_search(X, split.y, seed)
    record: dict[str, Any] = {"cpu": time.process_time() - start, "best": search.best_params_}
    record["accuracy"] = float((search.predict(X_test) == split.y_test).mean())
    for method in ("sigmoid", "temperature"):
        model = CalibratedClassifierCV(
            SVC(cache_size=500, **search.best_params_), method=method, cv=search.cv, ensemble=False
        ).fit(X, split.y)
        record[method] = scores(model.predict_proba(X_test), split.y_test)
    return record


def grid_search(X: Any, y: Any, seed: int) -> Any:
    """SVC grid-searched on standardised rows."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    grid = {"C": C_GRID, "gamma": [value / X.shape[1] for value in GAMMA_GRID]}
    return GridSearchCV(SVC(cache_size=500), grid, cv=folds).fit(X, y)


def peer(fit: Callable[[Split, int], tuple[Any, float]], split: Split, seed: int) -> dict[str, Any]:
    """Scores of another classifier, and its processor time."""
    p, cpu = fit(split, seed)
    return {"cpu": cpu, **scores(p, split.y_test)}
