"""Results as human-readable tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from likelier.base import Array
from likelier.registry import load_contents, load_predictor, read_manifest
from likelier.tables import TableEncoding

MAX_COEFFICIENTS = 20
_NAMES = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier_score": "Brier score",
    "calibration_error": "calibration error (ECE)",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "r2": "R2",
    "interval_coverage": "interval coverage",
    "interval_width": "mean interval width",
}


def show_scores(report: Mapping[str, Any]) -> None:
    """Print the scores of `evaluate_file` as a table."""
    console = Console(highlight=False)
    table = Table(title=f"{report['task']} of {report['target']}, {report['rows']} rows")
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("standard error", justify="right")
    for name, score in report["scores"].items():
        table.add_row(_NAMES.get(name, name), _number(score["value"]), _number(score["stderr"]))
    console.print(table)
    unknown = report.get("rows_of_unknown_class")
    if unknown:
        console.print(f"{unknown} rows have a class that did not occur in training.")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def describe(path: str) -> dict[str, Any]:
    """Return a description of a saved model as plain values."""
    manifest, contents = read_manifest(path), load_contents(path)
    facts: dict[str, Any] = {
        "file": path,
        "bytes": Path(path).stat().st_size,
        "likelier": manifest["likelier"],
        "format": manifest["format"],
    }
    held, names = contents.values, contents.values.get("feature_names_in_")
    if held.get("encoding_") is not None:
        model = load_predictor(path)
        names = model.encoding.get_feature_names_out()
        facts |= {"task": model.task, "target": model.target}
        if isinstance(model.encoding, TableEncoding):
            facts["columns"] = model.encoding.summary()
    facts["model"] = contents.name
    if "n_features_in_" in held:
        facts["features"] = held["n_features_in_"]
    if "classes_" in held:
        facts["classes"] = [str(label) for label in held["classes_"]]
    facts["parameters"] = {name: _parameter(held[name]) for name in manifest["params"]}
    if "coef_" in held:
        facts["coefficients"] = _coefficients(np.atleast_2d(held["coef_"]), names)
    return facts


def _parameter(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _coefficients(coefficients: Array, names: Array | None) -> dict[str, list[float]]:
    """Return the largest coefficients by feature, one value per output."""
    if names is None:
        names = np.array([f"x{i}" for i in range(coefficients.shape[1])])
    order = np.argsort(-np.abs(coefficients).max(axis=0), kind="stable")[:MAX_COEFFICIENTS]
    return {str(names[i]): [float(value) for value in coefficients[:, i]] for i in order}


def show_description(facts: Mapping[str, Any]) -> None:
    """Print the facts of `describe`."""
    console = Console(highlight=False)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, fact in facts.items():
        if isinstance(fact, list):
            fact = ", ".join(fact)
        elif name == "parameters":
            fact = ", ".join(f"{key}={value}" for key, value in fact.items())
        elif name == "columns":
            fact = "\n".join(f"{column}: {text}" for column, text in fact.items())
        if name != "coefficients":
            table.add_row(name, Text(str(fact)))
    console.print(table)
    if "coefficients" in facts:
        console.print(_coefficient_table(facts))


def _coefficient_table(facts: Mapping[str, Any]) -> Table:
    shown = facts["coefficients"]
    title = f"the {len(shown)} largest coefficients of {facts['features']}"
    table = Table(title=title if len(shown) < facts["features"] else "coefficients")
    table.add_column("feature")
    width = len(next(iter(shown.values()), []))
    heads = facts.get("classes", []) if width > 1 else ["coefficient"]
    for head in heads[:8]:
        table.add_column(Text(head), justify="right")
    for name, values in shown.items():
        table.add_row(Text(name), *(_number(value) for value in values[:8]))
    return table
