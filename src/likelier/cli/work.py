"""What the commands do, without any parsing of options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.callback import CallbackSupportMixin

import likelier
from likelier.base import Array, Loss
from likelier.cli.assumptions import assumptions
from likelier.cli.options import ModelChoice, in_options
from likelier.cli.output import prediction_file
from likelier.cli.progress import PassWatcher, estimate_rows, progress_bar
from likelier.cli.scores import ClassificationScores, RegressionScores, Score
from likelier.fitting.tabular import Predictions, TabularModel
from likelier.losses import make_loss
from likelier.registry import load

Say = Callable[[str], None]

# While it reads a file, pyarrow puts its own handlers in place of Python's and takes them away
# again; a SIGTERM that arrives in between ends the process before it can tidy up.
pa.enable_signal_handlers(False)


# -- fit ----------------------------------------------------------------------------------
def fit_model(
    path: str,
    choice: ModelChoice,
    parameters: Mapping[str, Any],
    options: Mapping[str, Any],
    reading: Mapping[str, Any],
    say: Say,
    quiet: bool,
) -> TabularModel:
    """Fit a model on a file, telling what happens."""
    options = dict(options)
    words = _loss_words(choice)
    if not words:
        parameters = _with_loss(parameters)
    parameters = _with_needs(dict(parameters), choice.needs)
    loss = parameters.get("loss")
    if loss is not None and words and loss not in words:
        raise ValueError(f"--loss {loss} is not one of this model: {', '.join(sorted(words))}")
    if options["task"] == "auto" and loss is not None:
        options["task"] = words[loss] if words else _task_of(loss)
        name = loss if words else loss.name
        say(f"Task: {options['task']}, because the loss {name} is for that.")
    _validate_parameters(choice, parameters, options["task"])
    rows = estimate_rows(path)
    with progress_bar(f"Looking through {path}", None, quiet) as bar:
        watcher = PassWatcher(bar, rows)
        model = TabularModel(
            _estimator(choice.classifier, parameters, watcher),
            _estimator(choice.regressor, parameters, watcher),
            **options,
        )
        source = model.prepare(path, **reading)
        for line in assumptions(path, model.encoder_):
            say(in_options(line))
        if options["task"] == "auto":
            say(f"Task: {model.task_}, because {model.task_reason_} (--task overrides).")
        _validate_parameters(choice, parameters, model.task_)
        model.learn(source, watcher.rows_read)
    return model


def _task_of(loss: Loss) -> str:
    return "classification" if loss.task in ("binary", "multiclass") else "regression"


def _loss_words(choice: ModelChoice) -> dict[str, str]:
    """Return the task of every loss of a model that takes losses by their names only."""
    tasks = {"classification": choice.classifier, "regression": choice.regressor}
    return {
        word: task
        for task, name in tasks.items()
        if name is not None
        for word in getattr(getattr(likelier, name), "_losses", ())
    }


def _with_loss(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with the loss as an object, its own parameters (loss__*) set."""
    inner = {k.removeprefix("loss__"): v for k, v in parameters.items() if k.startswith("loss__")}
    outer = {k: v for k, v in parameters.items() if not k.startswith("loss__")}
    if inner and "loss" not in outer:
        raise ValueError(f"--param loss__{next(iter(inner))} needs --loss to name the loss")
    if "loss" in outer:
        outer["loss"] = make_loss(outer["loss"]).set_params(**inner)
    return outer


def _with_needs(parameters: dict[str, Any], needs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with those that predictions with probabilities or intervals need."""
    for name, value in needs.items():
        if parameters.setdefault(name, value) != value:
            raise ValueError(f"--param {name}={parameters[name]}: predictions need {name}={value}")
    return parameters


def _estimator(name: str | None, parameters: Mapping[str, Any], watcher: PassWatcher) -> Any:
    """Return an unfitted estimator with those parameters it has, or None if there is none."""
    if name is None:
        return None
    estimator = getattr(likelier, name)()
    known = estimator.get_params(deep=False)
    estimator.set_params(**{word: parameters[word] for word in parameters if word in known})
    watched = isinstance(estimator, CallbackSupportMixin)  # those that learn in passes
    return estimator.set_callbacks(watcher) if watched else estimator


def _validate_parameters(choice: ModelChoice, parameters: Mapping[str, Any], task: str) -> None:
    """Raise unless the model can do the task ("auto": any) and has all parameters there."""
    by_task = {"classification": choice.classifier, "regression": choice.regressor}
    names = [name for kind, name in by_task.items() if name and task in ("auto", kind)]
    if not names:
        raise ValueError(
            f"this --model is not for {task}; choose another, or another --task if the target is "
            "meant otherwise"
        )
    known = [word for name in names for word in getattr(likelier, name)().get_params(deep=False)]
    for word in parameters:
        if word not in known:
            told = ", ".join(dict.fromkeys(known))
            raise ValueError(f"{' or '.join(names)} has no parameter {word!r}; it has {told}")


# -- predict ------------------------------------------------------------------------------
def load_model(path: str) -> TabularModel:
    """Load a model that the command line can use."""
    model = load(path)
    if not isinstance(model, TabularModel):
        raise ValueError(
            f"{path} holds a {type(model).__name__} without the columns of a table; "
            "use it from Python, or make one with likelier fit."
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
    """Predict block by block under a bar; ``labelled`` to read the targets too."""
    with progress_bar(f"Predicting {path}", estimate_rows(path), quiet) as bar:

        def counted() -> Iterator[Predictions]:
            for block in model.predict_blocks(path, coverage, labelled=labelled, **reading):
                yield block
                bar.advance(len(block.label))

        yield counted()


def prediction_columns(model: TabularModel) -> list[str]:
    """Return the names of the columns that the model's predictions are written to."""
    if model.task_ == "classification":
        return ["prediction", *(f"probability_{name}" for name in model.classes_)]
    return ["prediction", "lower", "upper"] if model.has_intervals_ else ["prediction"]


def _values(block: Predictions, typed: bool) -> list[Array]:
    """Return the columns of some predictions; classes 1.0 are written so even without types."""
    label, parts = block.label, (block.probability, block.interval)
    if block.probability is not None and label.dtype.kind == "f" and not typed:
        label = label.astype(str)
    return [label, *(column for part in parts if part is not None for column in part.T)]


# -- evaluate -----------------------------------------------------------------------------
def evaluate_file(
    model: TabularModel, path: str, coverage: float, reading: Mapping[str, Any], quiet: bool
) -> dict[str, Any]:
    """Return the scores of a model on a file, as plain values."""
    classify = model.task_ == "classification"
    scores: Any = ClassificationScores(len(model.classes_)) if classify else RegressionScores()
    example = ""
    with _predictions(model, path, coverage, reading, quiet, labelled=True) as blocks:
        for block in blocks:
            if block.y is None:
                raise ValueError(
                    f"{path!r} has no target column {model.target_!r}; evaluate needs it, "
                    "predict does not."
                )
            example = str(block.y[0])
            if classify:
                numbers = [_class_numbers(model.classes_, y) for y in (block.y, block.label)]
                scores.add(*numbers, block.probability)
            else:
                scores.add(block.y.astype(float), block.label, block.interval)
    report = {"task": model.task_, "target": model.target_, "rows": scores.count}
    if classify:
        _refuse_strange_classes(model, path, scores, example)
        report["rows_of_unknown_class"] = scores.unseen_labels
    return {**report, "scores": {s.name: _plain(s) for s in scores.scores()}}


def _refuse_strange_classes(
    model: TabularModel, path: str, scores: ClassificationScores, example: str
) -> None:
    """Raise if no row has a class of the model: its labels are written in another way."""
    if scores.unseen_labels == scores.count:
        known = ", ".join(repr(str(name)) for name in model.classes_[:5])
        raise ValueError(
            f"no row of {path!r} has a class the model knows: {model.target_!r} is {example!r} "
            f"there, and one of {known} in the training data."
        )


def _class_numbers(classes: Array, y: Array) -> Array:
    """Return the position of each label among the sorted classes, -1 where it is unknown."""
    place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return np.where(classes[place] == y, place, -1)


def _plain(score: Score) -> dict[str, float | None]:
    """Return value and standard error; None where there is none, since JSON knows no NaN."""
    return {
        "value": score.value if np.isfinite(score.value) else None,
        "stderr": score.stderr if np.isfinite(score.stderr) else None,
    }
