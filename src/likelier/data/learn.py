"""Learning an encoding: one pass of additive summaries, and what they may not contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from likelier.data.columns import MAX_CATEGORIES, Kind, Summary, summarise
from likelier.data.tables import Table, default_block_rows
from likelier.data.text import is_running_text

LISTED = 10


def resolve_column(table: Table, column: str | int, argument: str) -> str:
    """Return the name of a column given by name or by position (negative: from the end)."""
    names = table.column_names
    if isinstance(column, str) and column in names:
        return column
    try:
        return names[int(column)]
    except (ValueError, TypeError, IndexError):
        numbered = "" if table.header else " (the file has no header: count from 0)"
        raise ValueError(
            f"{argument}: {table.name!r} has no column {column!r}{numbered}; it has {listed(names)}"
        ) from None


def summarise_table(table: Table, columns: Sequence[str]) -> dict[str, Summary]:
    """Return the summary of each column from one pass over the table."""
    found = {name: Summary() for name in columns}
    n_rows = 0
    for batch in table.blocks(default_block_rows(len(columns)), columns):
        for name in columns:
            so_far = found[name]
            part = summarise(
                batch[name], so_far, untyped=table.untyped, missing=table.missing_values
            )
            found[name] = so_far.merge(part)
            _check_categories(name, found[name])
        n_rows += batch.num_rows
    if n_rows == 0:
        raise ValueError(f"{table.name!r} holds no rows")
    return found


def check_target(name: str, summary: Summary) -> None:
    """Raise unless every row has a target that can be learned."""
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


def check_features(summaries: Mapping[str, Summary], missing: str) -> None:
    """Raise if a column cannot be encoded, naming all columns with the same fault."""
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


def missing_values(counts: Mapping[str, int]) -> str:
    """Say which columns have how many missing values, and what to do."""
    columns = ", ".join(f"{name!r} ({count})" for name, count in [*counts.items()][:LISTED])
    more = f" and {len(counts) - LISTED} more columns" if len(counts) > LISTED else ""
    return (
        f"missing values in column {columns}{more}: use missing='impute' to put in the mean and "
        "mark them, exclude the column, or remove the rows"
    )


def listed(names: Sequence[str]) -> str:
    """Return some names for a message, not hundreds."""
    word = "column " if len(names) == 1 else "columns "
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return word + ", ".join(map(repr, names[:LISTED])) + more


def _check_categories(name: str, summary: Summary) -> None:
    if summary.kind == Kind.TEXT and summary.values is None and not is_running_text(summary):
        raise ValueError(
            f"column {name!r} holds text, such as {summary.example!r}, with more than "
            f"{MAX_CATEGORIES} different values, too many to give each a column of its own, and "
            "too few words in them for running text; "
            "exclude it or group its values (or, if it should hold numbers, mend this one)"
        )
