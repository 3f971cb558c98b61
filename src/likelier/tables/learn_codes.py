"""Column encodings from the detected kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from likelier.base import Array
from likelier.tables.column import ColumnCode
from likelier.tables.column_dates import DateColumn, varying_parts
from likelier.tables.column_levels import CategoryColumn, NameColumn, TextColumn
from likelier.tables.column_numbers import BooleanColumn, NumberColumn, truth_values
from likelier.tables.dates import DateStyle, is_word
from likelier.tables.decide import Decision
from likelier.tables.first_pass import FirstPass
from likelier.tables.numbers import NumberStyle, is_number
from likelier.tables.terms import Terms

N_EXAMPLES = 512
# With more distinct levels per row than this, unseen levels are expected.
MAX_DISTINCT = 0.5
# Numbers that commonly encode a missing value.
SENTINELS = (-9999.0, -999.0, -99.0, -1.0, 99.0, 999.0, 9999.0, 99999.0, 999999.0)
MIN_SENTINELS, SENTINEL_FRACTION, SENTINEL_GAP = 3, 0.005, 2.0


def code_of(
    name: str, decision: Decision, first: FirstPass, terms: tuple[Terms, Array | None] | None
) -> ColumnCode | None:
    """Return the encoding of a column; None if it yields no features."""
    summary, cells = first.summaries[name], first.sampled(name)
    common: dict[str, Any] = {"note": decision.note, "had_missing": summary.n_missing > 0}
    if decision.kind == "number":
        return _number_code(name, decision, first, common)
    if decision.kind == "boolean":
        truth = cells.plain_numbers
        truth = cells.map_texts(truth_values, np.nan) if truth is None else truth
        known = truth[~np.isnan(truth)]
        return BooleanColumn(name, frequency=float(known.mean()) if len(known) else 0.5, **common)
    if decision.kind == "date":
        return _date_code(name, decision, first, common)
    if decision.kind == "text":
        if terms is None:
            return None
        note = f"text, {len(terms[0]):,} words"
        if terms[1] is not None:
            note += f" reduced to {terms[1].shape[1]} columns"
        return TextColumn(name, terms[0], terms[1], **{**common, "note": note})
    if not decision.levels + decision.rare:
        assert terms is not None and terms[1] is not None
        return _name_code(name, first, terms[0], terms[1], common)
    assert summary.levels is not None
    counts = [summary.levels[level] for level in decision.levels]
    if decision.rare:
        counts.append(sum(summary.levels[level] for level in decision.rare))
    frequencies = tuple(count / sum(counts) for count in counts)
    return CategoryColumn(
        name, levels=decision.levels, rare=decision.rare, frequencies=frequencies, **common
    )


def _number_code(
    name: str, decision: Decision, first: FirstPass, common: dict[str, Any]
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


def _odd_numbers(decision: Decision, first: FirstPass, name: str) -> tuple[str, ...]:
    """Return texts that are numbers in another notation, which count as missing."""
    summary, style = first.summaries[name], decision.numbers or NumberStyle(first.table.decimal)
    others = summary.levels or summary.number_evidence().others(style).examples
    return tuple(t for t in others if is_number(t) and np.isnan(style.parse([t])[0]))


def sentinel(values: Array) -> str:
    """Return a note if a number such as -999 may encode a missing value, else an empty text.

    It has to be frequent, and far outside of the range of all other values.
    """
    for mark in SENTINELS:
        equal = values == mark
        count, others = int(equal.sum()), values[~equal]
        if count < max(MIN_SENTINELS, SENTINEL_FRACTION * len(values)) or not len(others):
            continue
        low, high = float(others.min()), float(others.max())
        gap = max(low - mark, mark - high)
        if gap > SENTINEL_GAP * (high - low) > 0:
            return (
                f"{mark:g} occurs {count} times, far from all other values: if it means missing, "
                f"leave these cells empty, or read the file with also_missing=['{mark:g}']"
            )
    return ""


def _needed(decision: Decision) -> Any:
    """Return the style of numbers, or None for plain ones, which are faster to parse."""
    style = decision.numbers
    return style if style is not None and style.describe() else None


def _date_code(
    name: str, decision: Decision, first: FirstPass, common: dict[str, Any]
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
    timestamps = code.read(cells, strict=False)
    known = timestamps[~np.isnat(timestamps)]
    had_missing = common["had_missing"] or summary.dated.words.rows > 0
    if not len(known):
        return replace(code, had_missing=had_missing)
    day = known.min().astype("M8[D]") if style.has_date else np.datetime64("1970-01-01")
    code = replace(code, origin=str(day), parts=varying_parts(known), had_missing=had_missing)
    return replace(code, fill=float(np.median(code.elapsed(known))))


def _name_code(
    name: str, first: FirstPass, terms: Terms, projection: Array, common: dict[str, Any]
) -> ColumnCode:
    summary, cells = first.summaries[name], first.sampled(name)
    texts, codes = cells.distinct
    present = codes[[texts[code] is not None for code in codes.tolist()]]
    known, examples = _NO_HASHES, tuple[str, ...]()
    if summary.n_distinct <= MAX_DISTINCT * summary.n_present and summary.hashes.complete:
        known = summary.hashes.values
        drawn = [str(texts[code]) for code in present[:N_EXAMPLES].tolist()]
        examples = tuple(dict.fromkeys(drawn))
    code = NameColumn(name, terms, projection, known, examples, **common)
    points = code.embed([text or "" for text in texts])
    return replace(code, mean=points[present].mean(axis=0) if len(present) else points[0])


_NO_HASHES = np.zeros(0, dtype=np.uint64)
