"""Learning the encoding of a table: at most three passes, and nothing kept of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from likelier.base import Array
from likelier.data.columns import mask_array, row_array
from likelier.data.tables import Table, default_block_rows
from likelier.tables.cells import Cells
from likelier.tables.columns import (
    BooleanColumn,
    CategoryColumn,
    ColumnCode,
    DateColumn,
    NameColumn,
    NumberColumn,
    TextColumn,
    truth_values,
    unread_date,
    varying_parts,
)
from likelier.tables.dates import DateStyle, is_word
from likelier.tables.decide import KINDS, LEFT_OUT, Decision, decide, decide_as
from likelier.tables.encoding import LeftOut, TableEncoding, listed
from likelier.tables.leaks import find_leaks, tells_much
from likelier.tables.numbers import NumberStyle, is_number
from likelier.tables.summaries import MAX_HASHES, ColumnSummary
from likelier.tables.target import Target, TargetLearner, has_target
from likelier.tables.terms import Sketch, TermCounter, Terms

# Rows drawn at random: they give medians, examples of levels, and what determines the target.
SAMPLE_ROWS = 10_000
SAMPLE_CELLS = 1 << 21
# Hashes of different texts kept while learning, over all columns.
HASH_CELLS = 1 << 24
MIN_HASHES = 1 << 10
N_EXAMPLES = 512
# If more than half of the rows have a level of their own, another one is no surprise.
SURPRISE = 0.5
MAX_TERMS = 100_000
# Numbers that people write for a missing one.
SENTINELS = (-9999.0, -999.0, -99.0, -1.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0)
MIN_SENTINELS, SENTINEL_SHARE, SENTINEL_GAP = 3, 0.005, 2.0
# Words that a few dense columns are made of, and how many these are, at most and for each word.
REDUCED_TERMS, TEXT_COLUMNS, COLUMNS_PER_WORD = 20_000, 100, 5
# Rows for each of these columns, and of names, but so many columns in any case.
ROWS_PER_COLUMN, MIN_COLUMNS = 10, 5


@dataclass(frozen=True)
class Choices:
    """What is said about how a table is encoded.

    ``dense`` asks for few columns of a text, not one for each word.
    """

    kinds: Mapping[str, str]
    max_levels: int = 40
    n_components: int = 30
    dense: bool = True


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
    first = _FirstPass(table, used, name, kinds)
    first.run()
    decisions = {column: _decided(column, first, kinds, choices) for column in used}
    goal = None if first.target is None else first.target.target()
    if goal is not None:
        decisions = _with_telling(decisions, first, goal)
    decisions = _something_left(decisions, first, choices)
    terms = _learn_terms(table, decisions, first, choices)
    codes = [
        code
        for column, decision in decisions.items()
        if decision.kind not in LEFT_OUT
        and (code := _code(column, decision, first, terms.get(column))) is not None
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


# -- the first pass ---------------------------------------------------------------------
class _FirstPass:
    """Summaries of all columns, what the target holds, and rows drawn at random."""

    def __init__(
        self, table: Table, columns: list[str], target: str | None, kinds: Mapping[str, str]
    ) -> None:
        self.table, self.columns = table, columns
        self.summaries = {name: ColumnSummary() for name in columns}
        self.target: TargetLearner | None = None
        if target is not None:
            self.target = TargetLearner(
                target,
                untyped=table.untyped,
                decimal=table.decimal,
                as_names=kinds.get(target) == "category",
            )
        self._target_name = target
        self._as_names = {name for name, kind in kinds.items() if kind == "category"}
        self._hashes = min(MAX_HASHES, max(MIN_HASHES, HASH_CELLS // max(1, len(columns))))
        self._sample = _Sample(min(SAMPLE_ROWS, max(100, SAMPLE_CELLS // max(1, len(columns)))))
        self.n_rows = 0

    def run(self) -> None:
        """Read the table."""
        for batch in self.batches(learning=True):
            self.n_rows += batch.num_rows
            self._sample.add(batch)
            for name in self.columns:
                self.summaries[name] = self._merged(name, batch[name])
        if self.n_rows == 0:
            raise ValueError(f"{self.table.name!r} holds no rows{self._without_target()}")

    def _without_target(self) -> str:
        return "" if self.target is None or not self.target.n_missing else " with a target"

    def _merged(self, name: str, array: pa.Array) -> ColumnSummary:
        cells = self.cells(array)
        part = ColumnSummary.of(cells, self._hashes, name in self._as_names)
        return self.summaries[name].merge(part, self._hashes)

    def batches(
        self, columns: Sequence[str] | None = None, learning: bool = False
    ) -> Iterator[Any]:
        """Yield the rows that have a target, in blocks, with some columns."""
        names = list(self.columns if columns is None else columns)
        if self._target_name is not None:
            names = [*dict.fromkeys([*names, self._target_name])]
        with closing(self.table.blocks(default_block_rows(len(names)), names)) as blocks:  # type: ignore[type-var]
            for batch in blocks:
                if self.target is not None and self._target_name is not None:
                    array, missing = batch[self._target_name], self.table.missing_values
                    if learning:
                        present = self.target.add(array, missing)
                    else:
                        present = has_target(array, missing)
                    if not present.all():
                        batch = batch.filter(mask_array(present))
                if batch.num_rows:
                    yield batch

    def cells(self, array: pa.Array) -> Cells:
        """Return the cells of a column of some rows."""
        return Cells(array, self.table.missing_values, self.table.decimal)

    def sampled(self, name: str) -> Cells:
        """Return the cells of a column of the rows drawn."""
        return self.cells(self._sample.column(name))

    def leaks(self, codes: Sequence[ColumnCode], target: Target) -> tuple[str, ...]:
        """Return the columns that alone nearly determine the target."""
        return find_leaks(codes, self.sampled, self._sampled_target(target))

    def tells_much(self, name: str, target: Target) -> bool:
        """Whether a column of numbers alone tells much of the target."""
        y = self._sampled_target(target)
        return tells_much(NumberColumn(name), self.sampled(name), y)

    def _sampled_target(self, target: Target) -> Array:
        array = self._sample.column(target.name)
        return target.read(array, self.table.missing_values, self.table.decimal)

    def find(self, name: str, text: str) -> int:
        """Return the number of the first row with a text in a column, counted from 1."""
        start = 0
        for batch in self.table.blocks(default_block_rows(1), [name]):
            rows = np.arange(start, start + batch.num_rows)
            cells = Cells(batch[name], self.table.missing_values, self.table.decimal, rows)
            if text in cells.distinct[0]:
                return cells.row_of(lambda found: found == text)[0]
            start += batch.num_rows
        return 0


class _Sample:
    """Rows drawn at random from all: those of the smallest random numbers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._random = np.random.default_rng(0)
        self._keys = np.zeros(0)
        self._parts: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Draw from a block."""
        keys = self._random.random(batch.num_rows)
        worst = self._keys.max() if len(self._keys) >= self._most else np.inf
        rows = np.flatnonzero(keys < worst)
        if not len(rows):
            return
        self._parts.append(batch.take(row_array(rows)))
        self._keys = np.concatenate([self._keys, keys[rows]])
        if len(self._keys) > 2 * self._most:
            self._cut()

    def _cut(self) -> None:
        whole = pa.concat_batches(self._parts)
        kept = np.sort(np.argsort(self._keys, kind="stable")[: self._most])
        self._parts = [whole.take(row_array(kept))]
        self._keys = self._keys[kept]

    def column(self, name: str) -> pa.Array:
        """Return a column of the rows drawn."""
        if len(self._parts) > 1 or len(self._keys) > self._most:
            self._cut()
        return self._parts[0][name]


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


def _decided(name: str, first: _FirstPass, kinds: Mapping[str, str], choices: Choices) -> Decision:
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
    decisions: dict[str, Decision], first: _FirstPass, target: Target
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
    decisions: dict[str, Decision], first: _FirstPass, choices: Choices
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


# -- texts and names --------------------------------------------------------------------
def _learn_terms(
    table: Table, decisions: Mapping[str, Decision], first: _FirstPass, choices: Choices
) -> dict[str, tuple[Terms, Array | None]]:
    """Return the terms of columns of text and of many names, and what reduces them."""
    texts = [name for name, d in decisions.items() if d.kind == "text"]
    names = [
        name for name, d in decisions.items() if d.kind == "category" and not d.levels + d.rare
    ]
    wanted = [name for name in decisions if name in {*texts, *names}]
    if not wanted:
        return {}
    counters = {name: TermCounter(pieces=name in names) for name in wanted}
    for name, values, counts in _distinct(first, wanted):
        counters[name].add(values, counts)
    most = REDUCED_TERMS if choices.dense else MAX_TERMS
    found = {name: counter.terms(most) for name, counter in counters.items()}
    widths = _widths(found, names, first, choices)
    sketches = {name: Sketch(terms, widths[name]) for name in widths if (terms := found[name])}
    # The matrices are so thin that a second thread costs more than it does.
    with threadpool_limits(1, user_api="blas"):
        if sketches:
            for name, values, counts in _distinct(first, list(sketches)):
                sketches[name].add(values, counts)
        return {
            name: (terms, sketches[name].projection() if name in sketches else None)
            for name, terms in found.items()
            if terms is not None
        }


def _widths(
    found: Mapping[str, Terms | None], names: list[str], first: _FirstPass, choices: Choices
) -> dict[str, int]:
    """Return how many dense columns each column of names or text is reduced to.

    All of them together are few beside the rows, or a model learns the rows by heart.
    """
    reduced = [
        name
        for name, terms in found.items()
        if terms is not None and (name in names or (choices.dense and len(terms) > TEXT_COLUMNS))
    ]
    room = max(MIN_COLUMNS, first.n_rows // (ROWS_PER_COLUMN * max(1, len(reduced))))
    widths = {}
    for name in reduced:
        most = choices.n_components
        if name not in names:  # a text says more the longer it is
            words = first.summaries[name].words.mean
            most = max(most, min(TEXT_COLUMNS, round(COLUMNS_PER_WORD * words)))
        widths[name] = min(most, room)
    return widths


def _distinct(first: _FirstPass, names: list[str]) -> Iterator[tuple[str, list[str], Array]]:
    """Yield the different texts of columns block by block, with their numbers of rows."""
    for batch in first.batches(names):
        for name in names:
            cells = first.cells(batch[name])
            texts, counts = cells.distinct[0], cells.counts
            there = [place for place, text in enumerate(texts) if text is not None]
            if there:
                yield name, [str(texts[place]) for place in there], counts[there]


# -- codes ------------------------------------------------------------------------------
def _code(
    name: str, decision: Decision, first: _FirstPass, terms: tuple[Terms, Array | None] | None
) -> ColumnCode | None:
    """Return how to encode a column; None if nothing can be learned from it."""
    summary, cells = first.summaries[name], first.sampled(name)
    common: dict[str, Any] = {"note": decision.note, "had_missing": summary.n_missing > 0}
    if decision.kind == "number":
        return _number_code(name, decision, first, common)
    if decision.kind == "boolean":
        truth = cells.plain_numbers
        truth = cells.spread(truth_values, np.nan) if truth is None else truth
        known = truth[~np.isnan(truth)]
        return BooleanColumn(name, share=float(known.mean()) if len(known) else 0.5, **common)
    if decision.kind == "date":
        return _date_code(name, decision, first, common)
    if decision.kind == "text":
        if terms is None:
            return None
        note = f"text, {len(terms[0]):,} words"
        if terms[1] is not None:
            note += f" in {terms[1].shape[1]} columns"
        return TextColumn(name, terms[0], terms[1], **{**common, "note": note})
    if not decision.levels + decision.rare:
        assert terms is not None and terms[1] is not None
        return _name_code(name, first, terms[0], terms[1], common)
    assert summary.levels is not None
    counts = [summary.levels[level] for level in decision.levels]
    if decision.rare:
        counts.append(sum(summary.levels[level] for level in decision.rare))
    shares = tuple(count / sum(counts) for count in counts)
    return CategoryColumn(name, levels=decision.levels, rare=decision.rare, shares=shares, **common)


def _number_code(
    name: str, decision: Decision, first: _FirstPass, common: dict[str, Any]
) -> ColumnCode:
    if decision.loose:
        common = {**common, "had_missing": True, "texts": _odd_numbers(decision, first, name)}
    number = NumberColumn(name, style=_needed(decision), loose=decision.loose, **common)
    values = number.read(first.sampled(name))
    finite = values[np.isfinite(values)]
    note = (
        f"{common['note'] or 'numbers'}; {mark}" if (mark := sentinel(finite)) else common["note"]
    )
    return replace(number, fill=float(np.median(finite)) if len(finite) else 0.0, note=note)


def _odd_numbers(decision: Decision, first: _FirstPass, name: str) -> tuple[str, ...]:
    """Return texts that are numbers, but not as the column writes them: missing ones here."""
    summary, style = first.summaries[name], decision.numbers or NumberStyle(first.table.decimal)
    others = summary.levels or summary.number_evidence().others(style).examples
    return tuple(t for t in others if is_number(t) and np.isnan(style.parse([t])[0]))


def sentinel(values: Array) -> str:
    """Say that a number such as -999 may stand for a missing value; empty where none does.

    It comes again and again, at one end, farther from all others than these are from each other.
    """
    for mark in SENTINELS:
        there = values == mark
        count, others = int(there.sum()), values[~there]
        if count < max(MIN_SENTINELS, SENTINEL_SHARE * len(values)) or not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        gap = max(low - mark, mark - high)
        if gap > SENTINEL_GAP * (high - low) > 0:
            return (
                f"{mark:g} comes {count} times, far from all others: if it stands for a missing "
                f"value, leave these cells empty, or use also_missing=['{mark:g}'] to read the file"
            )
    return ""


def _needed(decision: Decision) -> Any:
    """Return the style of numbers unless they are plain, which is quicker to read."""
    style = decision.numbers
    return style if style is not None and style.describe() else None


def _date_code(
    name: str, decision: Decision, first: _FirstPass, common: dict[str, Any]
) -> ColumnCode:
    summary, style = first.summaries[name], decision.dates
    if style is None:
        typed = first.sampled(name)
        style = DateStyle("time" if typed.is_time else "year-month-day", has_time=True)
        if common["note"] == "dates" and not style.has_date:
            common = {**common, "note": "times of day"}
    words = any(map(is_word, summary.dated.words.examples))
    code = DateColumn(name, style, loose=words, **common)
    cells = first.sampled(name)
    moments = code.read(cells, strict=False)
    known = moments[~np.isnat(moments)]
    had_missing = common["had_missing"] or summary.dated.words.rows > 0
    if not len(known):
        return replace(code, had_missing=had_missing)
    day = known.min().astype("M8[D]") if style.has_date else np.datetime64("1970-01-01")
    code = replace(code, origin=str(day), parts=varying_parts(known), had_missing=had_missing)
    return replace(code, fill=float(np.median(code.elapsed(known))))


def _name_code(
    name: str, first: _FirstPass, terms: Terms, projection: Array, common: dict[str, Any]
) -> ColumnCode:
    summary, cells = first.summaries[name], first.sampled(name)
    texts, codes = cells.distinct
    present = codes[[texts[code] is not None for code in codes.tolist()]]
    known, examples = _NO_HASHES, tuple[str, ...]()
    if summary.n_distinct <= SURPRISE * summary.n_present and summary.hashes.complete:
        known = summary.hashes.values
        drawn = [str(texts[code]) for code in present[:N_EXAMPLES].tolist()]
        examples = tuple(dict.fromkeys(drawn))
    code = NameColumn(name, terms, projection, known, examples, **common)
    places = code.place([text or "" for text in texts])
    return replace(code, mean=places[present].mean(axis=0) if len(present) else places[0])


_NO_HASHES = np.zeros(0, dtype=np.uint64)


# -- columns of the table ---------------------------------------------------------------
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
