"""Terms of text and high-cardinality columns, and their dimension reduction, in two passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from threadpoolctl import threadpool_limits

from likelier.base import Array
from likelier.data.tables import Table
from likelier.tables.decide import Choices, Decision
from likelier.tables.first_pass import FirstPass
from likelier.tables.terms import Sketch, TermCounter, Terms

MAX_TERMS = 100_000
# Terms before the reduction of a text; its dense columns, at most and per word of a mean text.
REDUCED_TERMS, TEXT_COLUMNS, COLUMNS_PER_WORD = 20_000, 100, 5
# Minimum number of rows per dense column; this many columns are always allowed.
ROWS_PER_COLUMN, MIN_COLUMNS = 10, 5


def learn_terms(
    table: Table, decisions: Mapping[str, Decision], first: FirstPass, choices: Choices
) -> dict[str, tuple[Terms, Array | None]]:
    """Return the terms of each text and high-cardinality column, and its projection or None."""
    texts = [name for name, d in decisions.items() if d.kind == "text"]
    names = [
        name for name, d in decisions.items() if d.kind == "category" and not d.levels + d.rare
    ]
    wanted = [name for name in decisions if name in {*texts, *names}]
    if not wanted:
        return {}
    counters = {name: TermCounter(ngrams=name in names) for name in wanted}
    for name, values, counts in _distinct(first, wanted):
        counters[name].add(values, counts)
    most = REDUCED_TERMS if choices.dense else MAX_TERMS
    found = {name: counter.terms(most) for name, counter in counters.items()}
    widths = _widths(found, names, first, choices)
    sketches = {name: Sketch(terms, widths[name]) for name in widths if (terms := found[name])}
    # The matrices are too thin for a second thread to pay off.
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
    found: Mapping[str, Terms | None], names: list[str], first: FirstPass, choices: Choices
) -> dict[str, int]:
    """Return the number of dense columns of each reduced column.

    Their total is limited relative to the number of rows, to avoid overfitting.
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
        if name not in names:  # longer texts carry more information
            words = first.summaries[name].words.mean
            most = max(most, min(TEXT_COLUMNS, round(COLUMNS_PER_WORD * words)))
        widths[name] = min(most, room)
    return widths


def _distinct(first: FirstPass, names: list[str]) -> Iterator[tuple[str, list[str], Array]]:
    """Yield the distinct texts of columns block by block, with their numbers of rows."""
    for batch in first.batches(names):
        for name in names:
            cells = first.cells(batch[name])
            texts, counts = cells.distinct[0], cells.counts
            known = [code for code, text in enumerate(texts) if text is not None]
            if known:
                yield name, [str(texts[code]) for code in known], counts[known]
