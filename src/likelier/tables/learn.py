"""Learning the encoding of a table in at most three passes, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from likelier.data.tables import Table
from likelier.tables.column_dates import unread_date
from likelier.tables.dates import DateStyle, is_word
from likelier.tables.decide import DROPPED_KINDS, KINDS, Choices, Decision, decide, decide_as
from likelier.tables.encoding import Dropped, TableEncoding
from likelier.tables.first_pass import FirstPass, resolve_column
from likelier.tables.learn_codes import code_of
from likelier.tables.learn_terms import learn_terms
from likelier.tables.summaries import ColumnSummary
from likelier.tables.target import Target


def learn_encoding(
    table: Table,
    target: str | int | None = None,
    choices: Choices | None = None,
    exclude: Sequence[str | int] = (),
) -> TableEncoding:
    """Learn how to turn a table into a matrix.

    Parameters
    ----------
    table : Table
        Rows to learn from.
    target : str or int, optional
        Name or position of the target column; rows without a target are dropped.
    choices : Choices, optional
        Given kinds of columns, and sizes.
    exclude : sequence of str or int
        Columns to drop.

    Notes
    -----
    One pass accumulates summaries; text and categories with many levels take two more. Memory
    does not grow with the number of rows.
    """
    choices = choices or Choices({})
    name = None if target is None else resolve_column(table, target, "target")
    used = _used_columns(table, name, exclude)
    kinds = _checked_kinds(table, choices.kinds, name)
    first = FirstPass(table, used, name, kinds)
    first.run()
    decisions = {column: _decided(column, first, kinds, choices) for column in used}
    target_column = None if first.target is None else first.target.target()
    if target_column is not None:
        decisions = _keep_predictive(decisions, first, target_column)
    decisions = _ensure_features(decisions, first, choices)
    terms = learn_terms(table, decisions, first, choices)
    codes = [
        code
        for column, decision in decisions.items()
        if decision.kind not in DROPPED_KINDS
        and (code := code_of(column, decision, first, terms.get(column))) is not None
    ]
    kept = {code.name for code in codes}
    if not codes:
        raise ValueError(
            f"{table.name!r} has no usable feature column: no word of its texts occurs in two rows"
        )
    unrepeated = "text without repeated words: dropped"
    dropped = [
        Dropped(column, d.kind, d.note if d.kind in DROPPED_KINDS else unrepeated)
        for column, d in decisions.items()
        if column not in kept
    ]
    dropped += [Dropped(column, "identifier", "row number: dropped")
                for column in _index_columns(table, name, exclude)]  # fmt: skip
    return TableEncoding(
        columns=tuple(codes),
        dropped=tuple(dropped),
        target=target_column,
        missing_values=table.missing_values,
        header=table.header,
        table_columns=tuple(table.column_names),
        hints=table.hints,
        delimiter=table.delimiter,
        n_rows=first.n_rows,
        n_dropped=0 if first.target is None else first.target.n_missing,
        leaks=() if target_column is None else first.leaks(codes, target_column),
    )


# -- decisions --------------------------------------------------------------------------
def _checked_kinds(table: Table, kinds: Mapping[str, str], target: str | None) -> dict[str, str]:
    found = {}
    for column, kind in kinds.items():
        if kind not in KINDS:
            raise ValueError(f"kinds: {column!r} has the unknown kind {kind!r}; use one of {KINDS}")
        name = resolve_column(table, column, "kinds")
        if name == target and kind not in ("category", "number"):
            raise ValueError(f"kinds: the target {name!r} must be a 'category' or a 'number'")
        found[name] = kind
    return found


def _decided(name: str, first: FirstPass, kinds: Mapping[str, str], choices: Choices) -> Decision:
    summary, table = first.summaries[name], first.table
    decimal = table.decimal if table.untyped else None
    try:
        if name in kinds:
            decision = decide_as(kinds[name], summary, decimal, choices.max_levels)
        else:
            decision = decide(summary, decimal, choices.max_levels)
    except ValueError as error:
        raise ValueError(f"{table.name!r}: column {name!r} {error}") from None
    if decision.dates is not None:
        text = _unread_date(summary, decision.dates)
        if text is not None:
            message = unread_date(name, first.find(name, text), text, decision.dates)
            raise ValueError(f"{table.name!r}: {message}")
    return decision


def _unread_date(summary: ColumnSummary, style: DateStyle) -> str | None:
    """Return a text among dates that cannot be read; repeated words mean a missing date."""
    evidence = summary.date_evidence()
    if evidence.unread(style).rows:
        return evidence.unread(style).examples[0]
    for text in evidence.words.examples:
        alone = 2 * evidence.words.distinct > evidence.words.rows
        if summary.levels is not None:
            alone = summary.levels[text] == 1
        if alone and is_word(text):
            return text
    return None


def _keep_predictive(
    decisions: dict[str, Decision], first: FirstPass, target: Target
) -> dict[str, Decision]:
    """Return the decisions, with evenly increasing numbers kept if they predict the target.

    Row numbers, from 0 or 1 on, are never kept: the rows may be sorted by the target.
    """
    found = dict(decisions)
    for name, decision in decisions.items():
        numbers = first.summaries[name].numbers
        rows = numbers.step == 1.0 and numbers.first in (0.0, 1.0)
        if decision.kind != "identifier" or not numbers.evenly_increasing or rows:
            continue
        if "as requested" not in decision.note and first.is_predictive(name, target):
            note = f"numbers increasing by {numbers.step:g}, kept: predictive of the target"
            found[name] = Decision("number", note)
    return found


def _ensure_features(
    decisions: dict[str, Decision], first: FirstPass, choices: Choices
) -> dict[str, Decision]:
    """Return the decisions, keeping identifiers (or else constants) if nothing else remains."""
    for kind in DROPPED_KINDS:
        if any(decision.kind not in DROPPED_KINDS for decision in decisions.values()):
            return decisions
        for name, decision in decisions.items():
            if decision.kind != kind or not decision.note.endswith(": dropped"):
                continue
            if "as requested" in decision.note:
                continue
            summary = first.summaries[name]
            note = f"{decision.note.removesuffix(': dropped')}, kept: no other columns"
            as_kind = "category" if summary.types & {"text", "names"} else "number"
            if "time" in summary.types:
                as_kind = "date"
            kept = decide_as(as_kind, summary, None, choices.max_levels)
            decisions = {**decisions, name: replace(kept, note=note)}
    if all(decision.kind in DROPPED_KINDS for decision in decisions.values()):
        raise ValueError(f"{first.table.name!r} has no usable feature column")
    return decisions


# -- columns of the table ---------------------------------------------------------------
def _index_columns(table: Table, target: str | None, exclude: Sequence[str | int]) -> list[str]:
    excluded = {resolve_column(table, column, "exclude") for column in exclude}
    return [name for name in table.index_columns if name not in {target} | excluded]


def _used_columns(table: Table, target: str | None, exclude: Sequence[str | int]) -> list[str]:
    """Return the columns to read, without excluded ones and row numbers."""
    excluded = {resolve_column(table, column, "exclude") for column in exclude}
    if target in excluded:
        raise ValueError(f"exclude names the target column {target!r}")
    index = {*_index_columns(table, target, exclude)}
    used = [name for name in table.column_names if name not in excluded | index | {target}]
    if not used:
        raise ValueError(f"{table.name!r} has no usable feature column")
    return used
