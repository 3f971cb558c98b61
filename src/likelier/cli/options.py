"""Options that several commands share, and how their values reach an estimator."""

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
    """The public estimators behind one value of ``--model``; None where there is none.

    ``needs`` are parameters without which they could not say how sure they are.
    """

    classifier: str | None
    regressor: str | None
    needs: Mapping[str, Any] = field(default_factory=dict)


# Every model of the command line; a new one is one line here.
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


# How messages name arguments in Python, and the options that set them.
_OPTIONS = (
    (r"\bkinds=\{'(.+?)': '(\w+)'\}", r"--kind '\1=\2'"),
    (r"\bkinds: ", "--kind: "),
    (r"^exclude: ", "--exclude: "),
    (r"^exclude names\b", "--exclude names"),
    (r"\balso_missing=\['(.+?)'\]", r"--missing-value=\1"),
    (r"\bas kinds says\b", "as --kind says"),
    (r"\blist them in also_missing\b", "name them by --missing-value"),
    (r"\bdecimal='(.)'", r"--decimal \1"),
    (r"\bname its encoding \('cp1252'\?\)", "name its encoding, as in --encoding cp1252"),
    (r"\bname (another|the) delimiter\b", r"name \1 --delimiter"),
    (r"\bdelimiter must be\b", "--delimiter must be"),
    (r"\bencoding (?='[^']*' is not known)", "--encoding "),
    (r"\bheader=True\b", "--header"),
    (r"\bheader=False\b", "--no-header"),
    (r"\bquotes=False\b", "--no-quotes"),
    (r"\bname its format\b", "name its --format"),
    (r"^target must name\b", "--target must name"),
    (r"\bexclude (the column|it)\b", r"--exclude \1"),
    (r"\bleave out target, kinds, exclude\b", "give no --target, --kind, --exclude"),
)


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
            "--header/--no-header",
            default=None,
            help="Whether the first line of a CSV file names the columns, or is data with columns "
            "called x0, x1, ...  [default: found out]",
        ),
        click.option("--delimiter", metavar="CHAR", help="Between the cells of a CSV file."),
        click.option("--encoding", help="Of a CSV file.  [default: utf8]"),
        click.option(
            "--decimal",
            type=click.Choice([".", ","]),
            help="Decimal sign of the numbers in a CSV file.",
        ),
        click.option(
            "--no-quotes",
            is_flag=True,
            help='Quotation marks in a CSV file are part of the text, as in 5" pipe.',
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def replacing_option(kind: str) -> Callable[[Command], Command]:
    """Return the option to replace an existing file that is not of this kind."""
    text = f"Replace an existing output that is not {kind}; an input is never replaced."
    return click.option("--force", is_flag=True, help=text)


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
    """Return what columns are said to hold, from texts such as ``zip=category``."""
    kinds = {}
    for text in given:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise click.UsageError(f"--kind {text!r} is not of the form COLUMN=KIND.")
        kinds[name] = kind.strip()
    return kinds


def in_options(message: str) -> str:
    """Return advice about arguments in Python as advice about the options of the command."""
    for pattern, option in _OPTIONS:
        message = re.sub(pattern, option, message)
    return message


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
    named: set[str] = set()
    for text in given["param"]:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.UsageError(f"--param {text!r} is not of the form NAME=VALUE.")
        if name in set(found) - {"random_state"} | named:  # --seed has a default
            raise click.UsageError(f"--param {text!r} sets {name} a second time.")
        named.add(name)
        found[name] = _value(value.strip())
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
