"""The commands of ``likelier``."""

from __future__ import annotations

import json
from typing import Any

import click

from likelier import __version__
from likelier.cli.options import (
    MODELS,
    choose_model,
    column_kinds,
    common_options,
    estimator_parameters,
    reading_arguments,
    reading_options,
    replacing_option,
)
from likelier.cli.shell import OneLineErrors

TASKS = ("auto", "classification", "regression")


def _say(text: str, quiet: bool) -> None:
    """Tell what happens on stderr: stdout is for results."""
    if not quiet:
        click.echo(text, err=True)


@click.group(
    cls=OneLineErrors,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="likelier %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Classification and regression that says how sure it is.

    \b
    Fit a model on a file, see how good it is on another, predict a third:
      likelier fit train.csv --target price -o price.likelier
      likelier evaluate price.likelier test.csv
      likelier predict price.likelier new.csv -o predictions.csv

    Files are CSV, Parquet or libsvm; those larger than memory are streamed.
    """  # noqa: D301 -- click reads the backspace
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@main.command(short_help="Fit a model on a file and save it.")
@click.argument("file", type=click.Path())
@click.option("-t", "--target", metavar="COL", help="Column to predict (not for libsvm files).")
@click.option("-o", "--output", required=True, metavar="MODEL", help="Where to save the model.")
@replacing_option("a likelier model")
@click.option(
    "-m",
    "--model",
    type=click.Choice(list(MODELS)),
    metavar="KIND",
    help=f"One of {', '.join(MODELS)}. kernel by default, linear where --loss or --param is given. "
    "svm takes columns as they are: bring them to like scales before.",
)
@click.option(
    "--task",
    type=click.Choice(TASKS),
    default="auto",
    show_default=True,
    help="auto: classes if the target is text, true/false or few whole numbers.",
)
@click.option("--loss", metavar="NAME", help="Loss, such as log_loss, hinge, huber, poisson.")
@click.option("--alpha", type=float, metavar="A", help="Strength of the L2 penalty.")
@click.option("--max-iter", type=int, metavar="N", help="At most so many passes.")
@click.option("--tol", type=float, metavar="T", help="Stop this close to the optimum, relatively.")
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="S", help="Of random numbers."
)
@click.option("--jobs", type=int, metavar="N", help="Threads; -1 for all cores.")
@click.option(
    "--param",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other parameter of the model, as in --param update=explicit or "
    "--param loss__tau=0.9. Can be repeated.",
)
@click.option(
    "--missing-value",
    multiple=True,
    metavar="TEXT",
    help="Stands for a missing value, besides an empty cell, ?, NA, N/A, NaN, NULL and None. "
    "A number stands for all ways to write it. Repeatable.",
)
@click.option("--exclude", multiple=True, metavar="COL", help="Column to leave out. Repeatable.")
@click.option(
    "--kind",
    multiple=True,
    metavar="COL=KIND",
    help="What a column holds, instead of finding it out: number, category, text, date, boolean, "
    "identifier or constant (these two are left out). Repeatable.",
)
@click.option(
    "--memory",
    type=click.IntRange(0),
    default=512,
    show_default=True,
    metavar="MB",
    help="Stream the file if its rows would take more than this.",
)
@reading_options
@common_options
def fit(file: str, output: str, quiet: bool, **given: Any) -> None:
    """Fit a model on FILE and save it.

    The columns of FILE other than the target are the features, whatever they hold: numbers (also
    with units or currencies), categories, dates, text. Missing values are filled in and marked,
    rows without a target are left out. What was assumed of each column is told, and --kind says
    otherwise. The task is chosen from the target. How FILE had to be read (--delimiter,
    --encoding, --decimal, ...) is remembered by the model for other files.

    \b
    Examples:
      likelier fit iris.csv --target species -o iris.likelier
      likelier fit houses.parquet -t price --loss huber -o houses.likelier
      likelier fit a9a -o a9a.likelier              (libsvm has its own labels)
      likelier fit log.csv -t ms --loss quantile --param loss__tau=0.9 -o p90
    """  # noqa: D301 -- click reads the backspace
    from likelier.cli.output import check_model_output
    from likelier.cli.work import fit_model
    from likelier.registry import save

    def say(text: str) -> None:
        _say(text, quiet)

    check_model_output(output, [file], given["force"])
    options = {name: given[name] for name in ("target", "task", "exclude")}
    options["kinds"] = column_kinds(given["kind"])
    options["memory_limit"] = given["memory"] << 20
    model = fit_model(
        file,
        choose_model(given),
        estimator_parameters(given),
        options,
        reading_arguments(given),
        say,
        quiet,
    )
    save(model, output)
    name, features = type(model.estimator_).__name__, len(model.feature_names())
    say(f"Saved {name} for {model.target_!r} with {features} features to {output}.")


@main.command(short_help="Predict the rows of a file.")
@click.argument("model", type=click.Path())
@click.argument("file", type=click.Path())
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Where to write: a name in .csv or .parquet, or - for CSV on stdout.",
)
@replacing_option("predictions of such a model")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    metavar="P",
    help="Of intervals, for models that give them.",
)
@reading_options
@common_options
def predict(model: str, file: str, output: str, quiet: bool, **given: Any) -> None:
    """Predict the rows of FILE with a saved MODEL.

    Writes one row per row of FILE, in the same order: the column prediction, and one column
    probability_CLASS per class, or lower and upper where the model gives intervals.

    \b
    Examples:
      likelier predict iris.likelier new.csv -o predictions.csv
      likelier predict houses.likelier new.parquet -o - | head
    """  # noqa: D301 -- click reads the backspace
    from likelier.cli.output import check_prediction_output
    from likelier.cli.work import load_model, predict_file, prediction_columns

    reading, loaded = reading_arguments(given), load_model(model)
    check_prediction_output(output, prediction_columns(loaded), [file, model], given["force"])
    rows = predict_file(loaded, file, output, given["coverage"], reading, quiet)
    _say(f"Wrote {rows} predictions to {'stdout' if output == '-' else output}.", quiet)


@main.command(short_help="Score a model on a file with known targets.")
@click.argument("model", type=click.Path())
@click.argument("file", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    metavar="P",
    help="Of intervals, for models that give them.",
)
@reading_options
@common_options
def evaluate(model: str, file: str, as_json: bool, quiet: bool, **given: Any) -> None:
    """Score a saved MODEL on FILE, which holds the target too.

    Classification: accuracy, log loss, Brier score and calibration error. Regression: root
    mean squared error, mean absolute error and R2. Every score comes with its standard error.

    \b
    Examples:
      likelier evaluate iris.likelier test.csv
      likelier evaluate iris.likelier test.csv --json > scores.json
    """  # noqa: D301 -- click reads the backspace
    from likelier.cli.show import show_scores
    from likelier.cli.work import evaluate_file, load_model

    reading = reading_arguments(given)
    report = evaluate_file(load_model(model), file, given["coverage"], reading, quiet)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        show_scores(report)


@main.command(short_help="Show what a saved model is.")
@click.argument("model", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@common_options
def info(model: str, as_json: bool, quiet: bool) -> None:
    """Show what a saved MODEL is: task, target, features, parameters and coefficients."""
    from likelier.cli.show import describe, show_description
    from likelier.registry import load

    facts = describe(model, load(model))
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        show_description(facts)


@main.command("warm-up", short_help="Compile ahead of time, for images of containers.")
@common_options
def warm_up(quiet: bool) -> None:
    """Compile ahead of time what all models need, by small fits of every one.

    Compiled code is kept beside the package, or in the folder that NUMBA_CACHE_DIR names; there
    it is found by later processes with the same setting, also by users who cannot write to it.
    Takes some minutes. Exit code 2 where no such folder can be written.

    \b
    Examples:
      likelier warm-up
      NUMBA_CACHE_DIR=/opt/compiled likelier warm-up
    """  # noqa: D301 -- click reads the backspace
    from likelier.cli.warm_up import warm_up as compile_all

    compile_all(lambda text: _say(text, quiet))
