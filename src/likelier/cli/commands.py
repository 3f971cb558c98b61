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
from likelier.cli.shell import OneLineErrors, starting

TASKS = ("auto", "classification", "regression")


def _log(text: str, quiet: bool) -> None:
    """Log to stderr; stdout is reserved for results."""
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
    """Classification and regression with calibrated uncertainty.

    \b
    Fit a model on one file, score it on another, predict a third:
      likelier fit train.csv --target price -o price.likelier
      likelier evaluate price.likelier test.csv
      likelier predict price.likelier new.csv -o predictions.csv

    Files may be CSV, Parquet or libsvm; files larger than memory are streamed.
    """  # noqa: D301 -- click reads the backspace
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@main.command(short_help="Fit a model on a file and save it.")
@click.argument("file", type=click.Path())
@click.option(
    "-t",
    "--target",
    metavar="COL",
    help="Column to predict, by name or position (-1: the last). Not for libsvm files.",
)
@click.option("-o", "--output", required=True, metavar="MODEL", help="File to save the model to.")
@replacing_option("a likelier model")
@click.option(
    "-m",
    "--model",
    type=click.Choice(list(MODELS)),
    metavar="KIND",
    help=f"One of {', '.join(MODELS)}.  [default: kernel; linear with --loss or --param]  "
    "svm does not scale the columns: standardise them first.",
)
@click.option(
    "--task",
    type=click.Choice(TASKS),
    default="auto",
    show_default=True,
    help="auto: classification if the target is text, boolean or has few distinct integers.",
)
@click.option("--loss", metavar="NAME", help="Loss, e.g. log_loss, hinge, huber, poisson.")
@click.option("--alpha", type=float, metavar="A", help="Strength of the L2 penalty.")
@click.option("--max-iter", type=int, metavar="N", help="Maximum number of iterations.")
@click.option(
    "--tol", type=float, metavar="T", help="Stop within this relative distance of the optimum."
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Random seed.")
@click.option("--jobs", type=int, metavar="N", help="Number of threads; -1 uses all cores.")
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Save the progress of the fit in FOLDER. If interrupted, the same command resumes it.",
)
@click.option(
    "--param",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other parameter of the model, e.g. --param solver=sgd or "
    "--param loss__tau=0.9. Repeatable.",
)
@click.option(
    "--missing-value",
    multiple=True,
    metavar="TEXT",
    help="Text to treat as missing, besides empty cells, ?, NA, N/A, NaN, NULL and None. "
    "A number (-999) matches however it is written (-999.0). Repeatable.",
)
@click.option("--exclude", multiple=True, metavar="COL", help="Column to drop. Repeatable.")
@click.option(
    "--kind",
    multiple=True,
    metavar="COL=KIND",
    help="Override the detected kind of a column: number, category, text, date, boolean, "
    "identifier or constant (the last two are dropped). Repeatable.",
)
@click.option(
    "--memory",
    type=click.IntRange(0),
    default=512,
    show_default=True,
    metavar="MB",
    help="Stream the file if its rows would need more memory than this.",
)
@reading_options
@common_options
def fit(file: str, output: str, quiet: bool, **given: Any) -> None:
    """Fit a model on FILE and save it.

    All columns of FILE other than the target are features: numbers (also with units or
    currencies), categories, dates, text. Missing values are imputed and marked; rows without a
    target are dropped. The detected kind of each column is reported; override it with --kind. The
    task is inferred from the target. The model remembers how FILE was read (--delimiter,
    --encoding, --decimal, ...) and reads later files in the same way.

    \b
    Examples:
      likelier fit iris.csv --target species -o iris.likelier
      likelier fit houses.parquet -t price --loss huber -o houses.likelier
      likelier fit a9a -o a9a.likelier              (libsvm includes labels)
      likelier fit log.csv -t ms --loss quantile --param loss__tau=0.9 -o p90
    """  # noqa: D301 -- click reads the backspace
    from likelier.cli.fit import fit_model
    from likelier.cli.output import check_model_output
    from likelier.registry import save

    def log(text: str) -> None:
        _log(text, quiet)

    check_model_output(output, [file], given["force"])
    options = {name: given[name] for name in ("target", "task", "exclude")}
    options["kinds"] = column_kinds(given["kind"])
    options["memory_limit"] = given["memory"] << 20
    try:
        model = fit_model(
            file,
            choose_model(given),
            estimator_parameters(given),
            options,
            reading_arguments(given),
            log,
            quiet,
        )
    except (KeyboardInterrupt, SystemExit):
        if given["checkpoint"] is not None:
            log(f"The same command resumes the fit from {given['checkpoint']}.")
        raise
    save(model, output)
    target = getattr(model.encoding_, "target", None)  # libsvm files have no names
    log(
        f"Saved {type(model).__name__} for {'label' if target is None else target.name!r} with "
        f"{model.n_features_in_} features to {output}."
    )


@main.command(short_help="Predict the rows of a file with a saved model.")
@click.argument("model", type=click.Path())
@click.argument("file", type=click.Path())
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="Output file, ending in .csv or .parquet; - writes CSV to stdout.",
)
@replacing_option("a file of predictions with the same columns")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    metavar="P",
    help="Coverage of the prediction intervals, for models that have them.",
)
@reading_options
@common_options
def predict(model: str, file: str, output: str, quiet: bool, **given: Any) -> None:
    """Predict the rows of FILE with a saved MODEL.

    Writes one row per row of FILE, in the same order. Columns: prediction, then probability_CLASS
    for each class (classification), or lower and upper (regression models with intervals).

    \b
    Examples:
      likelier predict iris.likelier new.csv -o predictions.csv
      likelier predict houses.likelier new.parquet -o - | head
    """  # noqa: D301 -- click reads the backspace
    with starting():
        from likelier.cli.output import check_prediction_output
        from likelier.cli.work import load_model, predict_file, prediction_columns

        reading, loaded = reading_arguments(given), load_model(model)
    check_prediction_output(output, prediction_columns(loaded), [file, model], given["force"])
    rows = predict_file(loaded, file, output, given["coverage"], reading, quiet)
    _log(f"Wrote {rows} predictions to {'stdout' if output == '-' else output}.", quiet)


@main.command(short_help="Score a saved model on a file with known targets.")
@click.argument("model", type=click.Path())
@click.argument("file", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    metavar="P",
    help="Coverage of the prediction intervals, for models that have them.",
)
@reading_options
@common_options
def evaluate(model: str, file: str, as_json: bool, quiet: bool, **given: Any) -> None:
    """Score a saved MODEL on FILE, which must include the target column.

    Classification: accuracy, log loss, Brier score and calibration error. Regression: root mean
    squared error, mean absolute error and R2; with intervals, their coverage and mean width.
    Scores are reported with standard errors.

    \b
    Examples:
      likelier evaluate iris.likelier test.csv
      likelier evaluate iris.likelier test.csv --json > scores.json
    """  # noqa: D301 -- click reads the backspace
    with starting():
        from likelier.cli.show import show_scores
        from likelier.cli.work import evaluate_file, load_model

        reading, loaded = reading_arguments(given), load_model(model)
    report = evaluate_file(loaded, file, given["coverage"], reading, quiet)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        show_scores(report)


@main.command(short_help="Describe a saved model.")
@click.argument("model", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@common_options
def info(model: str, as_json: bool, quiet: bool) -> None:
    """Describe a saved MODEL: task, target, columns, features, parameters and coefficients."""
    with starting():
        from likelier.cli.show import describe, show_description

        facts = describe(model)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        show_description(facts)


@main.command("warm-up", short_help="Compile ahead of time, e.g. in a container image.")
@common_options
def warm_up(quiet: bool) -> None:
    """Compile the code of all models ahead of time, by fitting each on a small data set.

    Compiled code is cached next to the package, or in the folder named by NUMBA_CACHE_DIR. Later
    processes with the same setting reuse it, even without write permission. Takes a few minutes.
    Exit code 2 if no cache folder is writable.

    \b
    Examples:
      likelier warm-up
      NUMBA_CACHE_DIR=/opt/compiled likelier warm-up
    """  # noqa: D301 -- click reads the backspace
    from likelier.cli.warm_up import warm_up as compile_all

    compile_all(lambda text: _log(text, quiet))
