"""Options shared by several commands, and their translation to estimator parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class ModelChoice:
    """The public estimators behind one value of ``--model``; None if a task is not supported.

    ``required`` are parameters that predictions with probabilities or intervals depend on.
    """

    classifier: str | None
    regressor: str | None
    required: Mapping[str, Any] = field(default_factory=dict)


# Every model of the command line.
MODELS: dict[str, ModelChoice] = {
    "bayesian_linear": ModelChoice("BayesianLinearClassifier", None),
    "bernoulli_nb": ModelChoice("BernoulliNB", None),
    "gaussian_nb": ModelChoice("GaussianNB", None),
    "kernel": ModelChoice("BayesianKernelClassifier", "BayesianKernelRegressor"),
    "linear": ModelChoice("LinearClassifier", "LinearRegressor"),
    "multinomial_nb": ModelChoice("MultinomialNB", None),
    "one_pass": ModelChoice("OnePassClassifier", None),
    "svm": ModelChoice("SVC", "SVR", {"probability": True}),
}

DEFAULT_MODEL, MODEL_WITH_LOSS = "kernel", "linear"

FORMATS = ("auto", "csv", "parquet", "libsvm")


# Python arguments as error messages write them, and the options that set them.
_OPTIONS = (
    (r"\bkinds=\{'(.+?)': '(\w+)'\}", r"--kind '\1=\2'"),
    (r"\bkinds: ", "--kind: "),
    (r"^exclude: ", "--exclude: "),
    (r"^exclude names\b", "--exclude names"),
    (r"\balso_missing=\['(.+?)'\]", r"--missing-value=\1"),
    (r"\bkinds says\b", "--kind says"),
    (r"\blist them in also_missing\b", "name them by --missing-value"),
    (r"\bdecimal='(.)'", r"--decimal \1"),
    (r"\bname its encoding \('cp1252'\?\)", "name its encoding, as in --encoding cp1252"),
    (r"\bname (another|the) delimiter\b", r"name \1 --delimiter"),
    (r"\bdelimiter must be\b", "--delimiter must be"),
    (r"\bunknown encoding (?=')", "unknown --encoding "),
    (r"\bheader=True\b", "--header"),
    (r"\bheader=False\b", "--no-header"),
    (r"\bquotes=False\b", "--no-quotes"),
    (r"\bname its format\b", "name its --format"),
    (r"^target must name\b", "--target must name"),
    (r"\bexclude (the column|it)\b", r"--exclude \1"),
    (r"\bleave out target, kinds, exclude\b", "give no --target, --kind, --exclude"),
)


def reading_options(command: Command) -> Command:
    """Add the options that control how a file is read."""
    options = (
        click.option(
            "--format",
            type=click.Choice(FORMATS),
            default="auto",
            help="Format of FILE; auto detects it from the extension or the first lines.",
        ),
        click.option(
            "--header/--no-header",
            default=None,
            help="Whether a CSV file starts with a line of column names; without one, columns are "
            "named x0, x1, ...  [default: detect]",
        ),
        click.option(
            "--delimiter",
            metavar="CHAR",
            help="Column delimiter of a CSV file; tab for a tab.  [default: detect]",
        ),
        click.option("--encoding", help="Character encoding of a CSV file.  [default: utf8]"),
        click.option(
            "--decimal",
            type=click.Choice([".", ","]),
            help="Decimal separator of a CSV file.  [default: detect]",
        ),
        click.option(
            "--no-quotes",
            is_flag=True,
            help='Treat quotation marks in a CSV file as part of the text, as in 5" pipe.',
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def replacing_option(kind: str) -> Callable[[Command], Command]:
    """Return the option to overwrite an existing file that is not of this kind."""
    text = f"Overwrite an existing output even if it is not {kind}. Inputs are never overwritten."
    return click.option("--force", is_flag=True, help=text)


def common_options(command: Command) -> Command:
    """Add the options of every command."""
    command = click.option(
        "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error."
    )(command)
    return click.option("-q", "--quiet", is_flag=True, help="Print only warnings and errors.")(
        command
    )


def reading_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the reading options that were given into arguments of the readers."""
    arguments: dict[str, Any] = {}
    if given["format"] != "auto":
        arguments["format"] = given["format"]
    if given["header"] is not None:
        arguments["header"] = given["header"]
    if given["no_quotes"]:
        arguments["quotes"] = False
    if given["delimiter"] is not None:
        tab = given["delimiter"] in ("\\t", "tab")
        arguments["delimiter"] = "\t" if tab else given["delimiter"]
    for name in ("encoding", "decimal"):
        if given[name] is not None:
            arguments[name] = given[name]
    if given.get("missing_value"):
        arguments["also_missing"] = given["missing_value"]
    return arguments


def column_kinds(given: Sequence[str]) -> dict[str, str]:
    """Return the kinds of columns, parsed from options such as ``zip=category``."""
    kinds = {}
    for text in given:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise click.UsageError(f"--kind {text!r} must have the form COLUMN=KIND.")
        kinds[name] = kind.strip()
    return kinds


def in_options(message: str) -> str:
    """Rewrite a message about Python arguments to name the options of the command."""
    for pattern, option in _OPTIONS:
        message = re.sub(pattern, option, message)
    return message


def choose_model(given: Mapping[str, Any]) -> ModelChoice:
    """Return the requested model; a loss or parameter without a model implies the linear one."""
    name = given["model"]
    if name is None:
        name = MODEL_WITH_LOSS if given["loss"] or given["param"] else DEFAULT_MODEL
    return MODELS[name]


def estimator_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor parameters that were given, by name."""
    names = ("loss", "alpha", "max_iter", "tol", "seed", "jobs", "checkpoint")
    renamed = {"seed": "random_state", "jobs": "n_jobs"}
    found = {renamed.get(name, name): given[name] for name in names if given[name] is not None}
    named: set[str] = set()
    for text in given["param"]:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.UsageError(f"--param {text!r} must have the form NAME=VALUE.")
        if name in set(found) - {"random_state"} | named:  # --seed has a default
            raise click.UsageError(f"--param {text!r}: {name} is set twice; give it once.")
        named.add(name)
        found[name] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    """Parse a number, True, False, None or JSON; return anything else as text."""
    constants = {"True": True, "False": False, "None": None}
    if text in constants:
        return constants[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
