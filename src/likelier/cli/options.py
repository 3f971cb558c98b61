"""Options that several commands share, and how their values reach an estimator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class ModelChoice:
    """The public estimators behind one value of ``--model``; None where there is none."""

    classifier: str | None
    regressor: str | None


# Every model of the command line; a new one is one line here.
MODELS: dict[str, ModelChoice] = {
    "bayesian_linear": ModelChoice("BayesianLinearClassifier", None),
    "bernoulli_nb": ModelChoice("BernoulliNB", None),
    "gaussian_nb": ModelChoice("GaussianNB", None),
    "kernel": ModelChoice("BayesianKernelClassifier", "BayesianKernelRegressor"),
    "linear": ModelChoice("LinearClassifier", "LinearRegressor"),
    "multinomial_nb": ModelChoice("MultinomialNB", None),
    "one_pass": ModelChoice("OnePassClassifier", None),
}

DEFAULT_MODEL, MODEL_WITH_LOSS = "kernel", "linear"

FORMATS = ("auto", "csv", "parquet", "libsvm")


def reading_options(command: Command) -> Command:
    """Add the options on how a file is read."""
    options = (
        click.option(
            "--format",
            type=click.Choice(FORMATS),
            default="auto",
            help="Format of FILE; auto goes by its name and first line.",
        ),
        click.option(
            "--no-header",
            is_flag=True,
            help="The first line of a CSV file is data; columns are called x0, x1, ...",
        ),
        click.option("--delimiter", metavar="CHAR", help="Between the cells of a CSV file."),
        click.option("--encoding", help="Of a CSV file.  [default: utf8]"),
    )
    for option in reversed(options):
        command = option(command)
    return command


def common_options(command: Command) -> Command:
    """Add the options every command has."""
    command = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
    )(command)
    return click.option("-q", "--quiet", is_flag=True, help="Say only what goes wrong.")(command)


def reading_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the reading options into arguments of the readers; what was not given is left out."""
    arguments: dict[str, Any] = {}
    if given["format"] != "auto":
        arguments["format"] = given["format"]
    if given["no_header"]:
        arguments["header"] = False
    if given["delimiter"] is not None:
        tab = given["delimiter"] in ("\\t", "tab")
        arguments["delimiter"] = "\t" if tab else given["delimiter"]
    if given["encoding"] is not None:
        arguments["encoding"] = given["encoding"]
    return arguments


def choose_model(given: Mapping[str, Any]) -> ModelChoice:
    """Return the model asked for; a loss or a parameter without a model is the linear one's."""
    name = given["model"]
    if name is None:
        name = MODEL_WITH_LOSS if given["loss"] or given["param"] else DEFAULT_MODEL
    return MODELS[name]


def estimator_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor parameters asked for, by name."""
    names = ("loss", "alpha", "max_iter", "tol", "seed", "jobs")
    words = {"seed": "random_state", "jobs": "n_jobs"}
    found = {words.get(name, name): given[name] for name in names if given[name] is not None}
    for text in given["param"]:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--param {text!r} is not of the form NAME=VALUE.")
        found[name.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    """Return a number, True, False or None as what it is, and anything else as text."""
    constants = {"True": True, "False": False, "None": None}
    if text in constants:
        return constants[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
