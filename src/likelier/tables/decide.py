"""Detection of the kind of a column from its summary, with a note on what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from likelier.tables.column_numbers import FALSE, TRUE
from likelier.tables.dates import DateStyle
from likelier.tables.numbers import NumberStyle, Tally, combine
from likelier.tables.summaries import ColumnSummary

KINDS = ("number", "category", "text", "date", "boolean", "identifier", "constant")
DROPPED_KINDS = ("identifier", "constant")
# Free text has several words per value, and values that are mostly distinct.
MIN_WORDS = 3.0
MIN_TEXTS = 20
DISTINCT_TEXTS = 0.5
# In fewer rows all values may be distinct, or evenly increasing, by chance.
MIN_IDENTIFIERS = 20
LONGEST_IDENTIFIER = 64
# Minimum fraction of numbers in a numeric column with texts; HALF if there are few distinct texts.
MOSTLY, HALF, FEW_TEXTS = 0.8, 0.5, 10
# Levels with fewer rows are rare. Among many levels, those below RARE_LEVEL are rare if the others
# cover COMMON_ROWS of the rows.
MIN_LEVEL, RARE_LEVEL, COMMON_ROWS = 3, 0.001, 0.95
EXAMPLES = 3


@dataclass(frozen=True)
class Choices:
    """Options of the encoding of a table.

    ``dense`` reduces text to a few columns, instead of one per word.
    """

    kinds: Mapping[str, str]
    max_levels: int = 40
    n_components: int = 30
    dense: bool = True


@dataclass(frozen=True)
class Decision:
    """The kind of a column, and the format of its values.

    With ``loose``, texts among numbers count as missing. ``levels`` are the levels of a category
    with a column of their own, and ``rare`` those that share one; a category without either is
    encoded by the spelling of its levels.
    """

    kind: str
    note: str = ""
    numbers: NumberStyle | None = None
    dates: DateStyle | None = None
    loose: bool = False
    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()


def decide(summary: ColumnSummary, decimal: str | None, max_levels: int) -> Decision:
    """Detect the kind of a column.

    Parameters
    ----------
    summary : ColumnSummary
        Summary of its rows.
    decimal : "." or ",", optional
        The decimal separator of the file, if known.
    max_levels : int
        Categories with more levels are encoded by spelling.
    """
    if not summary.n_present:
        finite = "finite " if summary.n_infinite else ""
        return Decision("constant", f"no {finite}values: dropped")
    if not summary.types & {"text", "names"}:
        return _typed(summary)
    if "names" in summary.types:
        return _category(summary, max_levels)
    if summary.n_distinct == 1 and not summary.n_missing:
        return Decision("constant", f"always {_quoted(summary)}: dropped")
    for decided in (_boolean(summary), _date(summary), _number(summary, decimal, max_levels)):
        if decided is not None:
            return decided
    if _is_free_text(summary):
        return Decision("text", "text")
    if _is_identifier(summary):
        return Decision("identifier", "identifier (all distinct): dropped")
    return _category(summary, max_levels)


def decide_as(kind: str, summary: ColumnSummary, decimal: str | None, max_levels: int) -> Decision:
    """Return the decision for a column whose kind was given."""
    asked = "as requested"
    if kind in DROPPED_KINDS:
        return Decision(kind, f"{kind}, {asked}: dropped")
    if kind == "category":
        return _category(summary, max_levels)
    if kind == "text":
        return Decision("text", "text")
    if kind == "boolean":
        decided = Decision("boolean") if _is_zero_one(summary) else _boolean(summary)
        if decided is None:
            raise ValueError(
                f"contains {_quoted(summary)}, but kinds says 'boolean', which takes one of "
                f"{', '.join(TRUE[:-1])} and one of {', '.join(FALSE[:-1])}"
            )
        return decided
    if kind == "date":
        style = summary.date_evidence().style(0.0)
        if style is None and summary.types != {"time"}:
            raise ValueError(f"contains {_quoted(summary)}, but kinds says 'date'")
        return Decision("date", f"{_dates(style)}, {asked}", dates=style)
    return _as_number(summary, decimal)


def _is_zero_one(summary: ColumnSummary) -> bool:
    """Whether typed values are true and false, or 1 and 0."""
    numbers = summary.numbers
    return (
        summary.types <= {"boolean", "number"}
        and numbers.whole
        and (not numbers.n or (numbers.low >= 0.0 and numbers.high <= 1.0))
    )


def _as_number(summary: ColumnSummary, decimal: str | None) -> Decision:
    if "time" in summary.types:
        raise ValueError("contains dates or times, but kinds says 'number'")
    if not summary.types & {"text", "names"}:
        return Decision("number")
    evidence = summary.number_evidence()
    style = evidence.style(decimal) or NumberStyle(decimal or ".")
    coded = replace(style, zeros=True)
    if evidence.numbers(coded).rows > evidence.numbers(style).rows:
        style = coded
    if "names" not in summary.types and not evidence.numbers(style).rows:
        raise ValueError(f"contains {_quoted(summary)}, but kinds says 'number'")
    others = evidence.others(style)
    note = _numbers(style, others) if others.rows else style.describe()
    return Decision("number", note, style, loose=others.rows > 0 or "names" in summary.types)


def _typed(summary: ColumnSummary) -> Decision:
    """Decide on a column without texts other than plain numbers."""
    if "other" in summary.types:
        raise ValueError("contains neither numbers, text nor dates; convert or exclude it")
    if "time" in summary.types:
        if summary.types != {"time"}:
            raise ValueError("mixes dates with other values; convert it to one type")
        if summary.numbers.low == summary.numbers.high and not summary.n_missing:
            return Decision("constant", "always the same date or time: dropped")
        return Decision("date", "dates")
    numbers = summary.numbers
    infinite = ""
    if summary.n_infinite:
        infinite = f"numbers; {_count(summary.n_infinite, 'infinite value')} treated as missing"
    if not numbers.n:
        return Decision("constant", "no finite values: dropped")
    if numbers.low == numbers.high and not summary.n_missing:
        return Decision("constant", f"always {numbers.low:g}: dropped")
    if summary.types == {"boolean"}:
        return Decision("boolean")
    if summary.types == {"plain"} and numbers.whole and 19000101 <= numbers.low:
        style = summary.date_evidence().style()
        if style is not None and numbers.high <= 21001231:
            return Decision("date", _dates(style), dates=style)
    if numbers.evenly_increasing and numbers.n >= MIN_IDENTIFIERS and not summary.n_missing:
        note = f"identifier (integers increasing by {numbers.step:g}): dropped"
        return Decision("identifier", note)
    return Decision("number", infinite)


def _boolean(summary: ColumnSummary) -> Decision | None:
    meanings = {text.casefold() for text in summary.levels or ()}
    if len(meanings) != 2 or not any(meanings == {*pair} for pair in zip(TRUE, FALSE, strict=True)):
        return None
    return Decision("boolean", f"boolean ({_quoted(summary)})")


def _date(summary: ColumnSummary) -> Decision | None:
    evidence = summary.date_evidence()
    style = evidence.style()
    if style is None:
        return None
    return Decision("date", f"{_dates(style)}{_as_missing(evidence.words)}", dates=style)


def _dates(style: DateStyle | None) -> str:
    return "dates" if style is None else style.describe()


def _number(summary: ColumnSummary, decimal: str | None, max_levels: int) -> Decision | None:
    evidence = summary.number_evidence()
    style = evidence.style(decimal)
    if style is None:
        return None
    numbers, others = evidence.numbers(style), evidence.others(style)
    if not numbers.rows:
        return None
    if not others.rows:
        return Decision("number", style.describe(), style)
    fraction = numbers.rows / (numbers.rows + others.rows)
    few = others.distinct <= FEW_TEXTS
    if summary.n_distinct <= max_levels or not (fraction >= MOSTLY or (few and fraction >= HALF)):
        return None
    return Decision("number", _numbers(style, others), style, loose=True)


def _numbers(style: NumberStyle, others: Tally) -> str:
    return f"{style.describe() or 'numbers'}{_as_missing(others)}"


def _as_missing(texts: Tally) -> str:
    if not texts.rows:
        return ""
    shown = ", ".join(map(repr, texts.examples[:EXAMPLES]))
    return f"; {_count(texts.rows, 'text')} such as {shown} treated as missing"


def _is_free_text(summary: ColumnSummary) -> bool:
    several = summary.words.mean >= MIN_WORDS
    return several and summary.n_distinct >= max(MIN_TEXTS, DISTINCT_TEXTS * summary.n_present)


def _is_identifier(summary: ColumnSummary) -> bool:
    if summary.n_missing or summary.words.blanks or summary.n_rows < MIN_IDENTIFIERS:
        return False
    if summary.words.longest > LONGEST_IDENTIFIER:
        return False
    exact = summary.hashes.complete
    return summary.hashes.count >= (summary.n_rows if exact else 0.99 * summary.n_rows)


def _category(summary: ColumnSummary, max_levels: int) -> Decision:
    counts, n_present = summary.levels, summary.n_present
    note = f"category of {_count(summary.n_distinct, 'level')}"
    if counts is not None:
        least = MIN_LEVEL
        if len(counts) > max_levels:
            least = max(MIN_LEVEL, round(RARE_LEVEL * n_present))
        common = sorted(level for level, count in counts.items() if count >= least)
        rare = sorted(counts.keys() - {*common})
        covered = sum(counts[level] for level in common)
        if len(rare) == 1 or (not common and len(counts) <= max_levels):
            common, rare = sorted(counts), []
        if len(common) <= max_levels and (
            len(counts) <= max_levels or covered >= COMMON_ROWS * n_present
        ):
            pooled = f", {len(rare)} rare ones pooled" if rare else ""
            return Decision("category", f"{note}{pooled}", levels=tuple(common), rare=tuple(rare))
    return Decision("category", f"{note}, encoded by spelling")


def _quoted(summary: ColumnSummary) -> str:
    texts = [*(summary.levels or ())] or combine(summary.written.layouts.values()).examples
    return ", ".join(map(repr, texts[:EXAMPLES])) or "numbers"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
