"""The work of the commands, independent of option parsing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

import likelier
from likelier.base import Array, Loss
from likelier.cli.assumptions import assumptions
from likelier.cli.options import ModelChoice, in_options
from likelier.cli.output import prediction_file
from likelier.cli.progress import ProgressCallback, estimate_rows, progress_bar
from likelier.cli.scores import ClassificationScores, RegressionScores, Score
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.tabular import Predictions, TabularModel
from likelier.losses import make_loss
from likelier.registry import load

Log = Callable[[str], None]

# pyarrow replaces Python's signal handlers while it reads a file; a SIGTERM during that time would
# end the process without cleaning up.
pa.enable_signal_handlers(False)


# -- fit ----------------------------------------------------------------------------------
def fit_model(
    path: str,
    choice: ModelChoice,
    parameters: Mapping[str, Any],
    options: Mapping[str, Any],
    reading: Mapping[str, Any],
    log: Log,
    quiet: bool,
) -> TabularModel:
    """Fit a model on a file, logging what was assumed."""
    options = dict(options)
    loss_tasks = _loss_tasks(choice)
    if not loss_tasks:
        parameters = _with_loss(parameters)
    parameters = _with_required(dict(parameters), choice.required)
    loss = parameters.get("loss")
    if loss is not None and loss_tasks and loss not in loss_tasks:
        known = ", ".join(sorted(loss_tasks))
        raise ValueError(f"--loss {loss} is not supported by this model; choose from {known}")
    if options["task"] == "auto" and loss is not None:
        options["task"] = loss_tasks[loss] if loss_tasks else _task_of(loss)
        name = loss if loss_tasks else loss.name
        log(f"Task: {options['task']}, because the loss {name} implies it.")
    _validate_parameters(choice, parameters, options["task"])
    rows = estimate_rows(path)
    with progress_bar(f"Scanning {path}", None, quiet) as bar:
        callback = ProgressCallback(bar, rows)
        model = TabularModel(
            _estimator(choice.classifier, parameters, callback),
            _estimator(choice.regressor, parameters, callback),
            **options,
        )
        source = model.prepare(path, **reading)
        for line in assumptions(path, model.encoder_):
            log(in_options(line))
        if options["task"] == "auto":
            log(f"Task: {model.task_}, because {model.task_reason_} (override: --task).")
        _validate_parameters(choice, parameters, model.task_)
        model.learn(source, callback.rows_read)
    return model


def _task_of(loss: Loss) -> str:
    return "classification" if loss.task in ("binary", "multiclass") else "regression"


def _loss_tasks(choice: ModelChoice) -> dict[str, str]:
    """Return the task of each loss, for a model that takes losses by name only."""
    tasks = {"classification": choice.classifier, "regression": choice.regressor}
    return {
        loss: task
        for task, name in tasks.items()
        if name is not None
        for loss in getattr(getattr(likelier, name), "_losses", ())
    }


def _with_loss(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with the loss as an object, with its parameters (loss__*) set."""
    inner = {k.removeprefix("loss__"): v for k, v in parameters.items() if k.startswith("loss__")}
    outer = {k: v for k, v in parameters.items() if not k.startswith("loss__")}
    if inner and "loss" not in outer:
        raise ValueError(f"--param loss__{next(iter(inner))} requires --loss")
    if "loss" in outer:
        outer["loss"] = make_loss(outer["loss"]).set_params(**inner)
    return outer


def _with_required(parameters: dict[str, Any], required: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with those required for probabilities or intervals."""
    for name, value in required.items():
        if parameters.setdefault(name, value) != value:
            raise ValueError(
                f"--param {name}={parameters[name]} is not supported here: predictions require "
                f"{name}={value}"
            )
    return parameters


def _estimator(name: str | None, parameters: Mapping[str, Any], callback: ProgressCallback) -> Any:
    """Return an unfitted estimator with the parameters that it has, or None without a name."""
    if name is None:
        return None
    estimator = getattr(likelier, name)()
    known = estimator.get_params(deep=False)
    own = {key: parameters[key] for key in parameters if key.partition("__")[0] in known}
    estimator.set_params(**own)
    iterative = isinstance(estimator, CallbackSupportMixin)
    return estimator.set_callbacks(callback) if iterative else estimator


def _validate_parameters(choice: ModelChoice, parameters: Mapping[str, Any], task: str) -> None:
    """Raise unless the model supports the task ("auto": any) and has all the parameters."""
    by_task = {"classification": choice.classifier, "regression": choice.regressor}
    names = [name for kind, name in by_task.items() if name and task in ("auto", kind)]
    if not names:
        raise ValueError(
            f"this --model is not for {task}; choose another --model, or set --task if the task "
            "was inferred wrongly"
        )
    known = [key for name in names for key in getattr(likelier, name)().get_params(deep=False)]
    for key in parameters:
        if key.partition("__")[0] not in known:
            listed = ", ".join(dict.fromkeys(known))
            raise ValueError(f"{' or '.join(names)} has no parameter {key!r}; it has {listed}")


# -- predict ------------------------------------------------------------------------------
def load_model(path: str) -> TabularModel:
    """Load a model that the command line can use."""
    model = load(path)
    if not isinstance(model, TabularModel):
        raise ValueError(
            f"{path} holds a {type(model).__name__} saved from Python, without a table encoding; "
            "use it from Python, or fit a model with likelier fit."
        )
    return model


def predict_file(
    model: TabularModel,
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
    model: TabularModel,
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


def prediction_columns(model: TabularModel) -> list[str]:
    """Return the column names of the model's prediction files."""
    if model.task_ == "classification":
        return ["prediction", *(f"probability_{name}" for name in model.classes_)]
    return ["prediction", "lower", "upper"] if model.has_intervals_ else ["prediction"]


def _values(block: Predictions, typed: bool) -> list[Array]:
    """Return prediction columns; float classes such as 1.0 keep their form in untyped files."""
    label, parts = block.label, (block.probability, block.interval)
    if block.probability is not None and label.dtype.kind == "f" and not typed:
        label = label.astype(str)
    return [label, *(column for part in parts if part is not None for column in part.T)]


# -- evaluate -----------------------------------------------------------------------------
def evaluate_file(
    model: TabularModel, path: str, coverage: float, reading: Mapping[str, Any], quiet: bool
) -> dict[str, Any]:
    """Return the scores of a model on a file as plain values."""
    classify = model.task_ == "classification"
    scores: Any = ClassificationScores(len(model.classes_)) if classify else RegressionScores()
    example = ""
    with _predictions(model, path, coverage, reading, quiet, labelled=True) as blocks:
        for block in blocks:
            if block.y is None:
                raise ValueError(
                    f"{path!r} has no target column {model.target_!r}, which evaluate requires; "
                    "use predict for files without a target."
                )
            example = str(block.y[0])
            if classify:
                indices = [_class_indices(model.classes_, y) for y in (block.y, block.label)]
                scores.add(*indices, block.probability)
            else:
                scores.add(block.y.astype(float), block.label, block.interval)
    report = {"task": model.task_, "target": model.target_, "rows": scores.count}
    if classify:
        _check_known_classes(model, path, scores, example)
        report["rows_of_unknown_class"] = scores.unseen_labels
    return {**report, "scores": {s.name: _plain(s) for s in scores.scores()}}


def _check_known_classes(
    model: TabularModel, path: str, scores: ClassificationScores, example: str
) -> None:
    """Raise if no row has a class of the model, which means that labels are written differently."""
    if scores.unseen_labels == scores.count:
        known = ", ".join(repr(str(name)) for name in model.classes_[:5])
        raise ValueError(
            f"no row of {path!r} has a known class: {model.target_!r} is {example!r} there, but "
            f"one of {known} in the training data."
        )


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
