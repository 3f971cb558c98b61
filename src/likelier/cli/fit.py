"""The work of ``likelier fit``, independent of option parsing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import likelier
from likelier.base import Loss
from likelier.cli.assumptions import assumptions
from likelier.cli.options import ModelChoice, in_options
from likelier.cli.progress import ProgressCallback, estimate_rows, progress_bar
from likelier.fitting.monitor import CallbackSupportMixin
from likelier.fitting.tables import choose_task, fit_source, target_source
from likelier.losses import make_loss

Log = Callable[[str], None]


def fit_model(
    path: str,
    choice: ModelChoice,
    parameters: Mapping[str, Any],
    options: Mapping[str, Any],
    reading: Mapping[str, Any],
    log: Log,
    quiet: bool,
) -> Any:
    """Return the estimator that was fitted on a file, logging what was assumed."""
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
    with progress_bar(f"Scanning {path}", None, quiet) as bar:
        callback = ProgressCallback(bar, estimate_rows(path))
        estimators = {
            "classification": _estimator(choice.classifier, parameters, callback),
            "regression": _estimator(choice.regressor, parameters, callback),
        }
        dense = any(getattr(type(e), "dense_inputs", False) for e in estimators.values())
        columns = {name: options[name] for name in ("kinds", "exclude")}
        source = target_source(path, options["target"], dense=dense, **columns, **reading)
        task, reason = choose_task(source, options["task"])
        for line in assumptions(path, source.encoder):
            log(in_options(line))
        if options["task"] == "auto":
            log(f"Task: {task}, because {reason} (override: --task).")
        _validate_parameters(choice, parameters, task)
        estimator = estimators[task]
        return fit_source(estimator, source, options["memory_limit"], callback.rows_read)


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
