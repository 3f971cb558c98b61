"""A short tour: fit, score with standard errors, explain, save and reload.

Run with ``make demo``. The data are three small data sets bundled with scikit-learn.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import likelier
from likelier.losses import Quantile

SHOWN = 6  # rows of a table of coefficients or of predictions


def main() -> None:
    """Run the whole tour."""
    console = Console()
    console.rule(f"[bold]likelier {likelier.__version__}")
    compile_once(console)
    classifier, rows = classify(console)
    regress(console)
    recognise(console)
    save_and_reload(console, classifier, rows)


def compile_once(console: Console) -> None:
    """Fit tiny data, so that the times below exclude compilation."""
    console.print("Compiling: half a minute the first time, then cached ...")
    X = np.arange(40.0).reshape(20, 2) % 7
    for y in (X[:, 0] > 3, X[:, 1]):
        kind = likelier.LinearClassifier if y.dtype == bool else likelier.LinearRegressor
        kind(random_state=0).fit(X, y)


def classify(console: Console) -> tuple[likelier.LinearClassifier, np.ndarray]:
    """Benign or malignant: logistic regression on 30 measurements of cell nuclei."""
    data = load_breast_cancer()
    split = train_test_split(data.data, data.target, random_state=0, stratify=data.target)
    X, X_test, y, y_test = split
    started = time.perf_counter()
    # The features differ in scale by a factor of 100,000; no preprocessing is needed.
    model = likelier.LinearClassifier(loss="log_loss", random_state=0).fit(X, y)
    describe_fit(console, "Classification: breast cancer", X, time.perf_counter() - started)

    probability = model.predict_proba(X_test)
    of_truth = probability[np.arange(len(y_test)), y_test]
    scores = Table("score on held-out rows", "value", "standard error")
    add_score(scores, "accuracy", model.predict(X_test) == y_test)
    add_score(scores, "log loss", -np.log(np.clip(of_truth, 1e-300, 1.0)))
    console.print(scores)

    table = Table("held-out row", *(f"P({name})" for name in data.target_names), "truth")
    # Show the least certain predictions.
    for i in np.argsort(probability.max(axis=1))[:SHOWN]:
        cells = (f"{p:.3f}" for p in probability[i])
        table.add_row(str(i), *cells, str(data.target_names[y_test[i]]))
    console.print(table)
    return model, X_test


def regress(console: Console) -> None:
    """Progress of diabetes after a year: coefficients of ten measurements with intervals."""
    data = load_diabetes(scaled=False)
    X, X_test, y, y_test = train_test_split(data.data, data.target, random_state=0)
    # Standardised only so that coefficients are comparable.
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    started = time.perf_counter()
    # Without a penalty, so that the intervals cover the population coefficients.
    model = likelier.LinearRegressor(alpha=0.0, random_state=0).fit(X, y)
    describe_fit(console, "Regression: diabetes", X, time.perf_counter() - started)

    upper = likelier.LinearRegressor(loss=Quantile(tau=0.9), random_state=0).fit(X, y)
    scores = Table("score on held-out rows", "value", "standard error")
    add_score(scores, "mean absolute error", np.abs(y_test - model.predict(X_test)))
    add_score(scores, "fraction below the predicted 90% quantile", y_test <= upper.predict(X_test))
    console.print(scores)
    console.print(coefficient_table(model, data.feature_names))


def coefficient_table(model: Any, names: list[str]) -> Table:
    """The largest coefficients with their standard errors and 95% intervals."""
    table = Table("coefficient", "estimate", "standard error", "95% interval")
    interval = model.coef_interval(0.95)
    for j in np.argsort(-np.abs(model.coef_))[:SHOWN]:
        estimate, error, (low, high) = model.coef_[j], model.coef_stderr_[j], interval[j]
        cells = (f"{estimate:.1f}", f"{error:.1f}", f"{low:.1f} to {high:.1f}")
        table.add_row(names[j], *cells, style=None if low <= 0.0 <= high else "bold")
    return table


def recognise(console: Console) -> None:
    """Handwritten digits: a kernel machine without tuning, and outlier detection."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    started = time.perf_counter()
    model = likelier.BayesianKernelClassifier(random_state=0).fit(X, y)
    describe_fit(console, "Kernel machine: digits", X, time.perf_counter() - started)

    probability = model.predict_proba(X_test)
    of_truth = probability[np.arange(len(y_test)), y_test]
    scores = Table("score on held-out rows", "value", "standard error")
    add_score(scores, "accuracy", model.predict(X_test) == y_test)
    add_score(scores, "log loss", -np.log(np.clip(of_truth, 1e-300, 1.0)))
    console.print(scores)

    shuffled = np.random.default_rng(0).permuted(X_test, axis=1)
    threshold = np.quantile(model.score_samples(X_test), 0.05)
    outliers = (model.score_samples(shuffled) < threshold).mean()
    console.print(f"With shuffled pixels, {outliers:.0%} score lower than 95% of the digits.")


def save_and_reload(console: Console, model: Any, rows: np.ndarray) -> None:
    """A saved model is one file of plain data, and its predictions are bit-identical."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "breast-cancer.likelier"
        likelier.save(model, path)
        again = likelier.load(path)
        size = path.stat().st_size / 1024
    same = np.array_equal(model.predict_proba(rows), again.predict_proba(rows))
    if not same:
        raise RuntimeError("the reloaded model gives different predictions")
    console.rule("Saved and reloaded", align="left")
    console.print(f"{size:.0f} kB; the reloaded model's probabilities are identical.")


def describe_fit(console: Console, title: str, X: np.ndarray, seconds: float) -> None:
    """Print a heading and how long the fit took."""
    console.rule(title, align="left")
    console.print(f"{X.shape[0]} rows x {X.shape[1]} features, fitted in {seconds:.2f} s.")


def add_score(table: Table, name: str, per_row: np.ndarray) -> None:
    """Add the mean of a score over rows, with the standard error of that mean."""
    per_row = np.asarray(per_row, dtype=float)
    error = per_row.std(ddof=1) / np.sqrt(len(per_row))
    table.add_row(name, f"{per_row.mean():.3f}", f"{error:.3f}")


if __name__ == "__main__":
    main()
