"""What the command is measured against: a plain pipeline, boosted trees, and no features at all.

All peers get the table as pandas reads it, without its dates and without rows whose target is
missing. Identifiers stay in, as they do for the command.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks.tables.data import CLASSES, Split
from benchmarks.tables.scores import COVERAGE, class_scores, number_scores
from likelier import BayesianKernelClassifier, BayesianKernelRegressor

MAX_CATEGORIES = 40  # of one column; rarer ones share a column


def plain(split: Split) -> dict[str, Any]:
    """The model of the command behind a ColumnTransformer as people write it."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    names = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(handle_unknown="ignore", max_categories=MAX_CATEGORIES, sparse_output=False),
    )
    kinds = BayesianKernelClassifier, BayesianKernelRegressor
    return _measure(split, numbers, names, [kind(random_state=0) for kind in kinds])


def boosting(split: Split) -> dict[str, Any]:
    """HistGradientBoosting with its defaults, text as numbers of its levels."""
    names = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    kinds = HistGradientBoostingClassifier, HistGradientBoostingRegressor
    return _measure(split, "passthrough", names, [kind(random_state=0) for kind in kinds])


def trivial(split: Split) -> dict[str, Any]:
    """Frequencies of the classes, or the mean, of the training rows."""
    return _measure(split, "drop", "drop", [DummyClassifier(strategy="prior"), DummyRegressor()])


PEERS = {"plain": plain, "boosting": boosting, "trivial": trivial}


def _measure(split: Split, numbers: Any, names: Any, models: list[Any]) -> dict[str, Any]:
    X, y, X_held, y_held = split.frames()
    X, X_held = _plain_types(X), _plain_types(X_held)
    numeric = [name for name in X if is_numeric_dtype(X[name])]
    text = [name for name in X if name not in numeric]
    classify = split.table.task == CLASSES
    columns = ColumnTransformer([("numbers", numbers, numeric), ("names", names, text)])
    model = Pipeline([("columns", columns), ("model", models[0 if classify else 1])])
    # two threads of boosting that wait for each other on a busy machine take minutes
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # levels never seen, columns without a value
        start = time.perf_counter()
        model.fit(X, y)
        fitted = time.perf_counter() - start
        found = _scores(model, X_held, y_held, classify)
    done = time.perf_counter() - start - fitted
    size = {"rows": len(X), "columns": X.shape[1], "held_rows": len(X_held)}
    return {**size, "fit": fitted, "predict": done, **found}


def _scores(model: Pipeline, X: Any, y: Any, classify: bool) -> dict[str, float]:
    if classify:
        return class_scores(y, list(model.classes_), model.predict_proba(X))
    last, interval = model[-1], None
    if hasattr(last, "predict_interval"):
        interval = last.predict_interval(model[:-1].transform(X), coverage=COVERAGE)
    return number_scores(y, model.predict(X), interval)


def _plain_types(frame: Any) -> Any:
    """Truth values as numbers, text as objects with NaN where it is missing."""
    frame = frame.copy()
    for name in frame:
        if is_bool_dtype(frame[name]):
            frame[name] = frame[name].astype(float)
        elif not is_numeric_dtype(frame[name]):
            frame[name] = frame[name].astype(object).where(frame[name].notna(), np.nan)
    return frame
