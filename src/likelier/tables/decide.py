"""What a column holds, decided from its summary, and in words what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from likelier.tables.column_numbers import FALSE, TRUE
from likelier.tables.dates import DateStyle
from likelier.tables.numbers import NumberStyle, Seen, added
from likelier.tables.summaries import ColumnSummary

KINDS = ("number", "category", "text", "date", "boolean", "identifier", "constant")
LEFT_OUT = ("identifier", "constant")
# Running text has several words in a value, and values that seldom come twice.
MIN_WORDS = 3.0
MIN_TEXTS = 20
TEXT_SHARE = 0.5
# Fewer rows than these may all differ by chance, or rise by one step.
MIN_IDENTIFIERS = 20
LONGEST_IDENTIFIER = 64
# A column with texts is one of numbers if so many rows are, fewer if the texts are few.
MOSTLY, HALF, FEW_TEXTS = 0.8, 0.5, 10
# A level of fewer rows is rare; levels that are many may be so if nearly all rows have others.
MIN_LEVEL, RARE_LEVEL, COMMON_SHARE = 3, 0.001, 0.95
EXAMPLES = 3


@dataclass(frozen=True)
class Choices:
    """What is said about how a table is encoded.

    ``dense`` asks for few columns of a text, not one for each word.
    """

    kinds: Mapping[str, str]
    max_levels: int = 40
    n_components: int = 30
    dense: bool = True


@dataclass(frozen=True)
class Decision:
    """The kind of a column, and how its values are written.

    ``loose`` numbers have texts among them that count as missing. ``levels`` of a category
    that get columns of their own are listed, and the ``rare`` ones that share one; a category
    without either is read by the spelling of its names.
    """

    kind: str
    note: str = ""
    numbers: NumberStyle | None = None
    dates: DateStyle | None = None
    loose: bool = False
    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()


def decide(summary: ColumnSummary, decimal: str | None, max_levels: int) -> Decision:
    """Decide what a column holds.

    Parameters
    ----------
    summary : ColumnSummary
        What is known of its rows.
    decimal : "." or ",", optional
        The decimal sign of the file, where it is known.
    max_levels : int
        Categories of more levels are read by the spelling of their names.
    """
    if not summary.n_present:
        finite = "finite " if summary.n_infinite else ""
        return Decision("constant", f"no {finite}value in any row: left out")
    if not summary.types & {"text", "names"}:
        return _typed(summary)
    if "names" in summary.types:
        return _category(summary, max_levels)
    if summary.n_distinct == 1 and not summary.n_missing:
        return Decision("constant", f"always {_quoted(summary)}: left out")
    for decided in (_boolean(summary), _date(summary), _number(summary, decimal, max_levels)):
        if decided is not None:
            return decided
    if _is_running_text(summary):
        return Decision("text", "text")
    if _is_identifier(summary):
        return Decision("identifier", "identifier (all different): left out")
    return _category(summary, max_levels)


def decide_as(kind: str, summary: ColumnSummary, decimal: str | None, max_levels: int) -> Decision:
    """Return how to read a column that is said to be of this kind."""
    asked = "as asked for"
    if kind in LEFT_OUT:
        return Decision(kind, f"{kind}, {asked}: left out")
    if kind == "category":
        return _category(summary, max_levels)
    if kind == "text":
        return Decision("text", "text")
    if kind == "boolean":
        decided = Decision("boolean") if _is_zero_one(summary) else _boolean(summary)
        if decided is None:
            raise ValueError(
                f"is not boolean as kinds says: it holds {_quoted(summary)}, not one of "
                f"{', '.join(TRUE[:-1])} and one of {', '.join(FALSE[:-1])}"
            )
        return decided
    if kind == "date":
        style = summary.date_evidence().style(0.0)
        if style is None and summary.types != {"time"}:
            raise ValueError(f"holds no dates as kinds says, but {_quoted(summary)}")
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
        raise ValueError("holds dates or times, not numbers as kinds says")
    if not summary.types & {"text", "names"}:
        return Decision("number")
    evidence = summary.number_evidence()
    style = evidence.style(decimal) or NumberStyle(decimal or ".")
    coded = replace(style, zeros=True)
    if evidence.numbers(coded).rows > evidence.numbers(style).rows:
        style = coded
    if "names" not in summary.types and not evidence.numbers(style).rows:
        raise ValueError(f"holds no numbers as kinds says, but {_quoted(summary)}")
    others = evidence.others(style)
    note = _numbers(style, others) if others.rows else style.describe()
    return Decision("number", note, style, loose=others.rows > 0 or "names" in summary.types)


def _typed(summary: ColumnSummary) -> Decision:
    """Decide about a column without texts other than plain numbers."""
    if "other" in summary.types:
        raise ValueError("holds neither numbers, texts nor dates; convert or exclude it")
    if "time" in summary.types:
        if summary.types != {"time"}:
            raise ValueError("holds dates in some rows and other values in others; convert it")
        if summary.numbers.low == summary.numbers.high and not summary.n_missing:
            return Decision("constant", "always the same date or time: left out")
        return Decision("date", "dates")
    numbers = summary.numbers
    infinite = ""
    if summary.n_infinite:
        infinite = f"numbers; {_count(summary.n_infinite, 'infinite value')} as missing"
    if not numbers.n:
        return Decision("constant", "no finite value in any row: left out")
    if numbers.low == numbers.high and not summary.n_missing:
        return Decision("constant", f"always {numbers.low:g}: left out")
    if summary.types == {"boolean"}:
        return Decision("boolean")
    if summary.types == {"plain"} and numbers.whole and 19000101 <= numbers.low:
        style = summary.date_evidence().style()
        if style is not None and numbers.high <= 21001231:
            return Decision("date", _dates(style), dates=style)
    if numbers.rises_by_step and numbers.n >= MIN_IDENTIFIERS and not summary.n_missing:
        note = f"identifier (whole numbers that rise by {numbers.step:g}): left out"
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
    share = numbers.rows / (numbers.rows + others.rows)
    few = others.distinct <= FEW_TEXTS
    if summary.n_distinct <= max_levels or not (share >= MOSTLY or (few and share >= HALF)):
        return None
    return Decision("number", _numbers(style, others), style, loose=True)


def _numbers(style: NumberStyle, others: Seen) -> str:
    return f"{style.describe() or 'numbers'}{_as_missing(others)}"


def _as_missing(texts: Seen) -> str:
    if not texts.rows:
        return ""
    shown = ", ".join(map(repr, texts.examples[:EXAMPLES]))
    return f"; {_count(texts.rows, 'text')} such as {shown} as missing"


def _is_running_text(summary: ColumnSummary) -> bool:
    several = summary.words.mean >= MIN_WORDS
    return several and summary.n_distinct >= max(MIN_TEXTS, TEXT_SHARE * summary.n_present)


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
            len(counts) <= max_levels or covered >= COMMON_SHARE * n_present
        ):
            shared = f", {len(rare)} rare ones together" if rare else ""
            return Decision("category", f"{note}{shared}", levels=tuple(common), rare=tuple(rare))
    return Decision("category", f"{note}, by their spelling")


def _quoted(summary: ColumnSummary) -> str:
    texts = [*(summary.levels or ())] or added(summary.written.layouts.values()).examples
    return ", ".join(map(repr, texts[:EXAMPLES])) or "numbers"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
