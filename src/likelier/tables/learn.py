"""Learning the encoding of a table: at most three passes, and nothing kept of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from likelier.data.tables import Table
from likelier.tables.column_dates import unread_date
from likelier.tables.dates import DateStyle, is_word
from likelier.tables.decide import KINDS, LEFT_OUT, Choices, Decision, decide, decide_as
from likelier.tables.encoding import LeftOut, TableEncoding
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
        Name or position of the target column; rows without a target are left out.
    choices : Choices, optional
        Kinds that columns are said to have, and sizes.
    exclude : sequence of str or int
        Columns to leave out.

    Notes
    -----
    One pass of sums per block; two more if there is text, or a category of many levels. Memory
    does not grow with the rows.
    """
    choices = choices or Choices({})
    name = None if target is None else resolve_column(table, target, "target")
    used = _used_columns(table, name, exclude)
    kinds = _checked_kinds(table, choices.kinds, name)
    first = FirstPass(table, used, name, kinds)
    first.run()
    decisions = {column: _decided(column, first, kinds, choices) for column in used}
    goal = None if first.target is None else first.target.target()
    if goal is not None:
        decisions = _with_telling(decisions, first, goal)
    decisions = _something_left(decisions, first, choices)
    terms = learn_terms(table, decisions, first, choices)
    codes = [
        code
        for column, decision in decisions.items()
        if decision.kind not in LEFT_OUT
        and (code := code_of(column, decision, first, terms.get(column))) is not None
    ]
    kept = {code.name for code in codes}
    if not codes:
        raise ValueError(
            f"{table.name!r} has no column left to learn from: no word of its texts is in two rows"
        )
    wordless = "text without a word that comes twice: left out"
    left_out = [
        LeftOut(column, d.kind, d.note if d.kind in LEFT_OUT else wordless)
        for column, d in decisions.items()
        if column not in kept
    ]
    left_out += [LeftOut(column, "identifier", "numbers the rows: left out")
                 for column in _index_columns(table, name, exclude)]  # fmt: skip
    return TableEncoding(
        columns=tuple(codes),
        left_out=tuple(left_out),
        target=goal,
        missing_values=table.missing_values,
        header=table.header,
        table_columns=tuple(table.column_names),
        hints=table.hints,
        delimiter=table.delimiter,
        n_rows=first.n_rows,
        n_dropped=0 if first.target is None else first.target.n_missing,
        leaks=() if goal is None else first.leaks(codes, goal),
    )


# -- decisions --------------------------------------------------------------------------
def _checked_kinds(table: Table, kinds: Mapping[str, str], target: str | None) -> dict[str, str]:
    found = {}
    for column, kind in kinds.items():
        if kind not in KINDS:
            raise ValueError(f"kinds: {column!r} is said to be {kind!r}, not one of {KINDS}")
        name = resolve_column(table, column, "kinds")
        if name == target and kind not in ("category", "number"):
            raise ValueError(f"kinds: the target {name!r} is a 'category' or a 'number'")
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
    """Return a text among dates that is none; one that comes again stands for a missing date."""
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


def _with_telling(
    decisions: dict[str, Decision], first: FirstPass, target: Target
) -> dict[str, Decision]:
    """Return the decisions, with numbers that rise by a step kept if they tell of the target.

    Numbers of rows, from 0 or 1 on, never do: the rows may be sorted.
    """
    found = dict(decisions)
    for name, decision in decisions.items():
        numbers = first.summaries[name].numbers
        rows = numbers.step == 1.0 and numbers.first in (0.0, 1.0)
        if decision.kind != "identifier" or not numbers.rises_by_step or rows:
            continue
        if "as asked for" not in decision.note and first.tells_much(name, target):
            note = f"numbers that rise by {numbers.step:g}, kept: they tell much of the target"
            found[name] = Decision("number", note)
    return found


def _something_left(
    decisions: dict[str, Decision], first: FirstPass, choices: Choices
) -> dict[str, Decision]:
    """Return the decisions, with identifiers (or else constants) kept if there is nothing else."""
    for kind in LEFT_OUT:
        if any(decision.kind not in LEFT_OUT for decision in decisions.values()):
            return decisions
        for name, decision in decisions.items():
            if decision.kind != kind or not decision.note.endswith(": left out"):
                continue
            if "as asked for" in decision.note:
                continue
            summary = first.summaries[name]
            note = f"{decision.note.removesuffix(': left out')}, kept: there is nothing else"
            as_kind = "category" if summary.types & {"text", "names"} else "number"
            if "time" in summary.types:
                as_kind = "date"
            kept = decide_as(as_kind, summary, None, choices.max_levels)
            decisions = {**decisions, name: replace(kept, note=note)}
    if all(decision.kind in LEFT_OUT for decision in decisions.values()):
        raise ValueError(f"{first.table.name!r} has no column left to learn from")
    return decisions


# -- columns of the table ---------------------------------------------------------------
def _index_columns(table: Table, target: str | None, exclude: Sequence[str | int]) -> list[str]:
    left_out = {resolve_column(table, column, "exclude") for column in exclude}
    return [name for name in table.index_columns if name not in {target} | left_out]


def _used_columns(table: Table, target: str | None, exclude: Sequence[str | int]) -> list[str]:
    """Return the columns to read: not those left out, nor those that only number the rows."""
    left_out = {resolve_column(table, column, "exclude") for column in exclude}
    if target in left_out:
        raise ValueError(f"exclude names the target column {target!r}")
    index = {*_index_columns(table, target, exclude)}
    used = [name for name in table.column_names if name not in left_out | index | {target}]
    if not used:
        raise ValueError(f"{table.name!r} has no column left to learn from")
    return used
