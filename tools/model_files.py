"""Write the stored model files of `tests/data/models`, which later versions must still read.

One small file per public class, and the predictions that it must give, as JSON beside it. Only
what is missing is written: a stored file is never replaced, unless ``--again NAME ...`` asks for
it, which is allowed before 1.0 only and belongs in the changelog (docs/stability.md).
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import likelier

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "models"
# Rounded, so that they are the same everywhere.
ROWS = np.round(3 * np.sin(1.7 * np.arange(120.0)), 1).reshape(40, 3)
COUNTS = np.floor(np.abs(ROWS))
SCORES = ROWS @ [1.0, -0.5, 0.2]
CLASSES = np.array(["high", "low", "middle"])[np.digitize(SCORES, [-1.0, 1.0])]
LABELS = np.stack([SCORES > 0, ROWS[:, 1] > 0, ROWS[:, 2] > 1], axis=1).astype(int)
TEXTS = [f"{name} row of {name}s, {i % 7} apples" for i, name in enumerate(CLASSES)]
TABLE = {
    "size": [f"{value:.1f} cm" for value in ROWS[:, 0]],
    "colour": ["red" if value > 0 else "blue" for value in ROWS[:, 1]],
    "day": [f"2024-03-{1 + i % 28:02d}" for i in range(len(ROWS))],
}
SHOWN = 8  # rows whose predictions are stored
METHODS = ("predict", "predict_proba", "transform", "decision_function")


def _fitted(name: str, target: Any = None, rows: Any = ROWS, **params: Any) -> Any:
    return getattr(likelier, name)(**params).fit(rows, target)


_SEED: dict[str, Any] = {"random_state": 0}
_DEEP: dict[str, Any] = {
    "n_inducing": 6,
    "hidden_dim": 2,
    "max_iter": 10,
    "kernel": likelier.ARD(length_scales="learned"),
} | _SEED
CASES: dict[str, Callable[[], Any]] = {
    "BayesianKernelClassifier": lambda: _fitted(
        "BayesianKernelClassifier", CLASSES, n_components=10, **_SEED
    ),
    "BayesianKernelRegressor": lambda: _fitted(
        "BayesianKernelRegressor", SCORES, n_components=10, **_SEED
    ),
    "BayesianLinearClassifier": lambda: _fitted(
        "BayesianLinearClassifier", CLASSES, inference=likelier.MCMC("auto", 1, 20), **_SEED
    ),
    "BernoulliNB": lambda: _fitted("BernoulliNB", CLASSES, **_SEED),
    "DeepGPClassifier": lambda: _fitted("DeepGPClassifier", CLASSES, **_DEEP),
    "DeepGPRegressor": lambda: _fitted("DeepGPRegressor", SCORES, **_DEEP),
    "FourierFeatures": lambda: _fitted("FourierFeatures", n_components=8, **_SEED),
    "GaussianNB": lambda: _fitted("GaussianNB", CLASSES, **_SEED),
    "LinearClassifier": lambda: _fitted("LinearClassifier", CLASSES, **_SEED),
    "LinearRegressor": lambda: _fitted("LinearRegressor", SCORES, **_SEED),
    "MultilabelClassifier": lambda: _fitted(
        "MultilabelClassifier", LABELS, mixture=likelier.Mixture(2), kernel=False, **_SEED
    ),
    "MultinomialNB": lambda: _fitted("MultinomialNB", CLASSES, COUNTS, **_SEED),
    "NystroemFeatures": lambda: _fitted("NystroemFeatures", n_components=5, **_SEED),
    "OnePassClassifier": lambda: _fitted("OnePassClassifier", CLASSES, **_SEED),
    "SVC": lambda: _fitted("SVC", CLASSES, probability=True, **_SEED),
    "SVR": lambda: _fitted("SVR", SCORES),
    "TableFeatures": lambda: likelier.TableFeatures().fit(pd.DataFrame(TABLE)),
    "TextFeatures": lambda: likelier.TextFeatures().fit(TEXTS),
    "Table": lambda: likelier.LinearClassifier(random_state=0).fit(
        TABLE | {"y": list(CLASSES)}, y="y"
    ),
}


def read(name: str) -> Any:
    """Load a stored model; that of a table as the predictor that a program would load."""
    load = likelier.load_predictor if name == "Table" else likelier.load
    return load(FOLDER / f"{name}.likelier")


def answers(model: Any, rows: Any) -> dict[str, Any]:
    """What a model says of rows, by method."""
    found = {}
    for name in METHODS:
        if (method := getattr(model, name, None)) is not None:
            values = method(rows)
            found[name] = (values.toarray() if hasattr(values, "toarray") else values).tolist()
    return found


def rows_of(name: str) -> Any:
    """The rows whose predictions are stored."""
    if name in ("Table", "TableFeatures"):
        return pd.DataFrame(TABLE)[:SHOWN]
    if name == "TextFeatures":
        return TEXTS[:SHOWN]
    return (COUNTS if name == "MultinomialNB" else ROWS)[:SHOWN]


def write(name: str) -> None:
    """Fit the model of a name, and store it with its predictions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forty rows are few for some
        model = CASES[name]()
        likelier.save(model, FOLDER / f"{name}.likelier")
        expected = json.dumps(answers(read(name), rows_of(name)))
    (FOLDER / f"{name}.json").write_text(expected + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write what is missing, or the named files again."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    again = arguments[1:] if arguments[:1] == ["--again"] else []
    missing = [name for name in CASES if not (FOLDER / f"{name}.likelier").exists()]
    for name in again or missing:
        write(name)
        sizes = [(FOLDER / f"{name}.{end}").stat().st_size for end in ("likelier", "json")]
        print(f"{name}: {sizes[0]} bytes, predictions {sizes[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
