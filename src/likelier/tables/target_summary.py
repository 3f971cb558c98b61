"""Summaries of target columns: what their rows hold, added up block by block."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from likelier.base import Array
from likelier.data.columns import (
    LEADING_ZEROS,
    MAX_CATEGORIES,
    Kind,
    Texts,
    is_text,
    kind_of,
    null_rows,
    to_floats,
    to_texts,
)
from likelier.data.notation import MIN_NUMBERS, NUMBER_SHARE, is_written_number

ODD_VALUES = 4


@dataclass(frozen=True)
class Summary:
    """What is known about some rows of a column; `merge` adds other rows.

    ``values`` holds the different values as text, or None once there are more than
    `MAX_CATEGORIES`; ``mean`` is the mean of the finite numbers; ``first_missing`` is the
    number of the first row without a value, -1 if there is none. ``n_numbers`` rows hold a
    number in any notation, and ``odd`` has the first texts that are not plain numbers, with
    their rows. ``n_values`` texts, different within their block, had ``n_words`` words between
    spaces. ``declared`` says that somebody called the column one of categories.
    """

    kind: Kind = Kind.EMPTY
    n_rows: int = 0
    n_missing: int = 0
    n_infinite: int = 0
    mean: float = 0.0
    first_missing: int = -1
    values: frozenset[str] | None = frozenset()
    n_numbers: int = 0
    odd: tuple[tuple[str, int], ...] = ()
    n_values: int = 0
    n_words: int = 0
    declared: bool = False

    @property
    def mean_words(self) -> float:
        """Words of a text, on average."""
        return self.n_words / max(1, self.n_values)

    @property
    def nearly_numbers(self) -> bool:
        """Whether text among them kept numbers from being read as such.

        Nearly all rows are numbers, or nearly all different values where a text such as
        "unknown" comes often.
        """
        if self.kind != Kind.TEXT or self.declared or not (self.odd and self.n_numbers):
            return False
        if any(re.match(LEADING_ZEROS, text) for text, _ in self.odd):
            return False  # codes
        if self.n_numbers >= NUMBER_SHARE * (self.n_rows - self.n_missing):
            return self.values is None or self._different_numbers() >= MIN_NUMBERS
        if self.values is None:
            return False
        return self._different_numbers() >= max(MIN_NUMBERS, NUMBER_SHARE * len(self.values))

    def _different_numbers(self) -> int:
        return sum(map(is_written_number, self.values or ()))

    def merge(self, other: Summary) -> Summary:
        """Return the summary of both; ``other`` describes later rows."""
        values = None
        if self.values is not None and other.values is not None:
            values = self.values | other.values
        later = {text: row for text, row in other.odd if text not in dict(self.odd)}
        return Summary(
            kind=self.kind.widen(other.kind),
            n_rows=self.n_rows + other.n_rows,
            n_missing=self.n_missing + other.n_missing,
            n_infinite=self.n_infinite + other.n_infinite,
            mean=self._share(other) * self.mean + other._share(self) * other.mean,
            first_missing=other.first_missing if self.first_missing < 0 else self.first_missing,
            values=None if values is None or len(values) > MAX_CATEGORIES else values,
            n_numbers=self.n_numbers + other.n_numbers,
            odd=tuple((dict(self.odd) | later).items())[:ODD_VALUES],
            n_values=self.n_values + other.n_values,
            n_words=self.n_words + other.n_words,
            declared=self.declared or other.declared,
        )

    def _share(self, other: Summary) -> float:
        """Part of the values of both that are here; sums of large numbers could overflow."""
        here, there = self.n_rows - self.n_missing, other.n_rows - other.n_missing
        return here / (here + there) if here + there else 0.0


def summarise(
    array: pa.Array,
    so_far: Summary,
    *,
    untyped: bool,
    missing: Collection[str],
    decimal: str = ".",
    categories: bool = False,
) -> Summary:
    """Summarise the next block of a column.

    Parameters
    ----------
    array : Arrow array
        The values.
    so_far : Summary
        What is known from the rows before: it tells the number of the first row, and saves
        asking what has been answered (whether a column of text holds numbers).
    untyped : bool
        Whether text may turn out to hold numbers, truth values or dates.
    missing : collection of str
        Texts that stand for a missing value.
    decimal : str
        Decimal sign of numbers in text.
    categories : bool
        Whether the values are names, whatever they look like.
    """
    if categories:
        texts = to_texts(array, missing)
        return _of_texts(texts, Kind.TEXT, None, so_far, declared=True)
    if is_text(array.type):
        texts = Texts(array, missing, decimal)
        kind, numbers = texts.recognise(so_far.kind if untyped else Kind.TEXT)
        part = _of_texts(texts, kind, numbers, so_far)
        # A dictionary is how frames say that a column holds categories.
        return replace(part, n_numbers=0) if pa.types.is_dictionary(array.type) else part
    kind = kind_of(array.type)
    numbers = to_floats(array, missing) if kind.numeric else None
    absent = null_rows(array) if numbers is None else np.isnan(numbers)
    return _counted(kind, numbers, absent, so_far.n_rows)


def _of_texts(
    texts: Texts, kind: Kind, numbers: Array | None, so_far: Summary, declared: bool = False
) -> Summary:
    """Summary of a block of text whose kind has been found out."""
    absent = texts.absent if numbers is None else np.isnan(numbers)
    counted = _counted(kind, numbers, absent, so_far.n_rows)
    values = None if so_far.values is None else texts.few_values()
    if kind in (Kind.INTEGER, Kind.FLOAT):
        return replace(counted, values=values, n_numbers=len(absent) - counted.n_missing)
    wanted = ODD_VALUES if len(so_far.odd) < ODD_VALUES else 0
    n_values, n_words = texts.words() if kind == Kind.TEXT else (0, 0)
    return replace(
        counted,
        values=values,
        n_numbers=texts.count_numbers(),
        odd=tuple((text, so_far.n_rows + row) for text, row in texts.odd_values(wanted)),
        n_values=n_values,
        n_words=n_words,
        declared=declared,
    )


def _counted(kind: Kind, numbers: Array | None, absent: Array, first_row: int) -> Summary:
    """Summary of a block as far as it does not depend on how its values are stored."""
    finite = np.empty(0) if numbers is None else numbers[np.isfinite(numbers)]
    n_missing = int(absent.sum())
    return Summary(
        kind=Kind.EMPTY if n_missing == len(absent) and kind.numeric else kind,
        n_rows=len(absent),
        n_missing=n_missing,
        n_infinite=0 if numbers is None else int(np.isinf(numbers).sum()),
        mean=float((finite / max(1, len(finite))).sum()),
        first_missing=first_row + int(np.argmax(absent)) if n_missing else -1,
    )
