"""Learning an encoding: one pass of additive summaries, and what they may not contain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from likelier.data.columns import MAX_CATEGORIES, Kind
from likelier.data.notation import has_decimal_comma
from likelier.data.summary import Summary, summarise
from likelier.data.tables import Table, default_block_rows
from likelier.data.text import is_running_text

LISTED = 10
SHOWN = 3


def resolve_column(table: Table, column: str | int, argument: str) -> str:
    """Return the name of a column given by name or by position (negative: from the end)."""
    names = table.column_names
    if isinstance(column, str) and column in names:
        return column
    try:
        return names[int(column)]
    except (ValueError, TypeError, IndexError):
        numbered = "" if table.header else " (the file has no header: count from 0)"
        single = "; name the delimiter if that is several" if len(names) == 1 else ""
        raise ValueError(
            f"{argument}: {table.name!r} has no column {column!r}{numbered}; "
            f"it has {listed(names)}{single if table.untyped else ''}"
        ) from None


def summarise_table(
    table: Table, columns: Sequence[str], categories: Collection[str] = ()
) -> dict[str, Summary]:
    """Return the summary of each column from one pass over the table.

    The columns in ``categories`` hold categories whatever their values look like.
    """
    found = {name: Summary() for name in columns}
    n_rows = 0
    for batch in table.blocks(default_block_rows(len(columns)), columns):
        for name in columns:
            so_far = found[name]
            found[name] = so_far.merge(_summarised(table, name, batch[name], so_far, categories))
            _check_categories(name, found[name], table.decimal)
        n_rows += batch.num_rows
    if n_rows == 0:
        raise ValueError(f"{table.name!r} holds no rows")
    return found


def _summarised(
    table: Table, name: str, values: pa.Array, so_far: Summary, categories: Collection[str]
) -> Summary:
    try:
        return summarise(
            values,
            so_far,
            untyped=table.untyped,
            missing=table.missing_values,
            decimal=table.decimal,
            categories=name in categories,
        )
    except ValueError as error:
        raise ValueError(f"column {name!r} {error}") from None


def check_target(name: str, summary: Summary, decimal: str) -> None:
    """Raise unless every row has a target that can be learned."""
    if summary.nearly_numbers:
        raise ValueError(f"target {unread_numbers(name, summary, decimal)}")
    if summary.n_missing:
        raise ValueError(
            f"target column {name!r} {missing_target(summary.n_missing, summary.first_missing)}"
        )
    if summary.kind in (Kind.DATE, Kind.OTHER):
        raise ValueError(
            f"target column {name!r} holds dates or values of another kind, which cannot be "
            "learned; name another target, or turn it into numbers or labels first"
        )
    if summary.n_infinite:
        raise ValueError(f"target column {name!r} holds {summary.n_infinite} infinite values")


def missing_target(count: int, first: int) -> str:
    """Say that the target is missing in some rows; rows are counted from 1."""
    return (
        f"is missing in {count} of the rows, first in row {first + 1} (of the data, from 1); "
        "remove these rows"
    )


def check_features(summaries: Mapping[str, Summary], missing: str, decimal: str) -> None:
    """Raise if a column cannot be encoded, naming all columns with the same fault."""
    for name, summary in summaries.items():
        if summary.nearly_numbers:
            raise ValueError(unread_numbers(name, summary, decimal))
    dates = [name for name, summary in summaries.items() if summary.kind == Kind.DATE]
    if dates:
        raise ValueError(
            f"dates or times in {listed(dates)}: what matters about them (the year, the weekday, "
            "the time since) is for you to say; add it as columns of numbers and exclude these"
        )
    others = [name for name, summary in summaries.items() if summary.kind == Kind.OTHER]
    if others:
        raise ValueError(f"neither numbers nor text in {listed(others)}; exclude or convert them")
    infinite = [name for name, summary in summaries.items() if summary.n_infinite]
    if infinite:
        raise ValueError(f"infinite values in {listed(infinite)}; replace them by finite ones")
    absent = {name: summary.n_missing for name, summary in summaries.items() if summary.n_missing}
    if absent and missing == "error":
        raise ValueError(missing_values(absent))


def unread_numbers(name: str, summary: Summary, decimal: str) -> str:
    """Say that a column seems to hold numbers, which values are none, and what to do."""
    shown = ", ".join(f"{text!r} (row {row + 1})" for text, row in summary.odd[:SHOWN])
    more = " and others" if len(summary.odd) > SHOWN else ""
    advice = ""
    if decimal == "," and any("." in text for text, _ in summary.odd):
        advice = "use decimal='.' if the point is the decimal sign (here it was the comma), "
    elif decimal == "." and any(has_decimal_comma(text) for text, _ in summary.odd):
        advice = "use decimal=',' if the comma is the decimal sign, "
    return (
        f"column {name!r} seems to hold numbers, but {shown}{more} cannot be read as such: "
        f"{advice}mend them (as in 1234.5), leave their cells empty or list them in also_missing "
        "if they stand for missing values, exclude the column, or use "
        f"categories=[{name!r}] if its values are names, not numbers"
    )


def missing_values(counts: Mapping[str, int], fitted: bool = False) -> str:
    """Say which columns have how many missing values, and what to do.

    ``fitted`` tells that a model was fitted already, and that without missing values.
    """
    columns = ", ".join(f"{name!r} ({count})" for name, count in [*counts.items()][:LISTED])
    more = f" and {len(counts) - LISTED} more columns" if len(counts) > LISTED else ""
    fault = f"missing values in column {columns}{more}: "
    if fitted:
        return f"{fault}remove the rows, or fit the model with missing='impute'"
    return (
        f"{fault}use missing='impute' to put in the mean and mark them, exclude the column, or "
        "remove the rows"
    )


def listed(names: Sequence[str]) -> str:
    """Return some names for a message, not hundreds."""
    word = "column " if len(names) == 1 else "columns "
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return word + ", ".join(map(repr, names[:LISTED])) + more


def _check_categories(name: str, summary: Summary, decimal: str) -> None:
    if summary.kind != Kind.TEXT or summary.values is not None or is_running_text(summary):
        return
    if summary.nearly_numbers:
        raise ValueError(unread_numbers(name, summary, decimal))
    example = f", such as {summary.odd[0][0]!r}," if summary.odd else ""
    raise ValueError(
        f"column {name!r} holds text{example} with more than "
        f"{MAX_CATEGORIES} different values, too many to give each a column of its own, and "
        "too few words in them for running text; "
        "exclude it or group its values (or, if it should hold numbers, mend this one)"
    )
