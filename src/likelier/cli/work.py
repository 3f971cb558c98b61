"""The work of ``predict`` and ``evaluate``, without scikit-learn, which takes longer to load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.cli.output import prediction_file
from likelier.cli.progress import estimate_rows, progress_bar
from likelier.cli.scores import ClassificationScores, RegressionScores, Score
from likelier.predictor import Predictions, Predictor
from likelier.registry import load_predictor


# -- predict ------------------------------------------------------------------------------
def load_model(path: str) -> Predictor:
    """Load a model that the command line can use."""
    model = load_predictor(path)
    if model.encoding is None:
        raise ValueError(
            f"{path} holds a model that was fitted on arrays in Python, without an encoding of "
            "columns; use it from Python, or fit a model with likelier fit."
        )
    return model


def predict_file(
    model: Predictor,
    path: str,
    output: str,
    coverage: float,
    reading: Mapping[str, Any],
    quiet: bool,
) -> int:
    """Write the predictions for a file; return their number."""
    predictions = _predictions(model, path, coverage, reading, quiet, labelled=False)
    with prediction_file(output) as writer, predictions as blocks:
        for block in blocks:
            values = _values(block, typed=writer.parquet)
            writer.write(dict(zip(prediction_columns(model), values, strict=True)))
        return writer.rows


@contextmanager
def _predictions(
    model: Predictor,
    path: str,
    coverage: float,
    reading: Mapping[str, Any],
    quiet: bool,
    labelled: bool,
) -> Iterator[Iterator[Predictions]]:
    """Predict block by block with a progress bar; ``labelled`` also reads the targets."""
    with progress_bar(f"Predicting {path}", estimate_rows(path), quiet) as bar:

        def counted() -> Iterator[Predictions]:
            for block in model.predict_blocks(path, coverage, labelled=labelled, **reading):
                yield block
                bar.advance(len(block.label))

        yield counted()


def prediction_columns(model: Predictor) -> list[str]:
    """Return the column names of the model's prediction files."""
    if model.classes_ is not None:
        return ["prediction", *(f"probability_{name}" for name in model.classes_)]
    return ["prediction", "lower", "upper"] if model.has_intervals else ["prediction"]


def _values(block: Predictions, typed: bool) -> list[Array]:
    """Return prediction columns; float classes such as 1.0 keep their form in untyped files."""
    label, parts = block.label, (block.probability, block.interval)
    if block.probability is not None and label.dtype.kind == "f" and not typed:
        label = label.astype(str)
    return [label, *(column for part in parts if part is not None for column in part.T)]


# -- evaluate -----------------------------------------------------------------------------
def evaluate_file(
    model: Predictor, path: str, coverage: float, reading: Mapping[str, Any], quiet: bool
) -> dict[str, Any]:
    """Return the scores of a model on a file as plain values."""
    classes = model.classes_
    scores: Any = RegressionScores() if classes is None else ClassificationScores(len(classes))
    example = ""
    with _predictions(model, path, coverage, reading, quiet, labelled=True) as blocks:
        for block in blocks:
            if block.y is None:
                raise ValueError(
                    f"{path!r} has no target column {model.target!r}, which evaluate requires; "
                    "use predict for files without a target."
                )
            example = str(block.y[0])
            if classes is None:
                scores.add(block.y.astype(float), block.label, block.interval)
            else:
                indices = [_class_indices(classes, y) for y in (block.y, block.label)]
                scores.add(*indices, block.probability)
    report = {"task": model.task, "target": model.target, "rows": scores.count}
    if classes is not None:
        if scores.unseen_labels == scores.count:  # labels must be written differently
            known = ", ".join(repr(str(name)) for name in classes[:5])
            raise ValueError(
                f"no row of {path!r} has a known class: {model.target!r} is {example!r} there, but "
                f"one of {known} in the training data."
            )
        report["rows_of_unknown_class"] = scores.unseen_labels
    return {**report, "scores": {s.name: _plain(s) for s in scores.scores()}}


def _class_indices(classes: Array, y: Array) -> Array:
    """Return the index of each label among the sorted classes, -1 if it is unknown."""
    index = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return np.where(classes[index] == y, index, -1)


def _plain(score: Score) -> dict[str, float | None]:
    """Return value and standard error, None for NaN, which JSON does not support."""
    return {
        "value": score.value if np.isfinite(score.value) else None,
        "stderr": score.stderr if np.isfinite(score.stderr) else None,
    }
