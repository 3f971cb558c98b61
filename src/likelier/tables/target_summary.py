"""Mergeable summaries of target columns, accumulated block by block."""

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
from likelier.data.notation import MIN_NUMBERS, NUMBER_FRACTION, is_written_number

ODD_VALUES = 4


@dataclass(frozen=True)
class Summary:
    """Summary of some rows of a column; `merge` adds other rows.

    ``values`` holds the distinct values as text, or None beyond `MAX_CATEGORIES` of them.
    ``n_numbers`` rows contain a number in any notation, and ``odd`` has the first texts that are
    not plain numbers, with their rows. ``declared`` marks a column given as a category.
    """

    kind: Kind = Kind.EMPTY
    n_rows: int = 0
    n_missing: int = 0
    n_infinite: int = 0
    values: frozenset[str] | None = frozenset()
    n_numbers: int = 0
    odd: tuple[tuple[str, int], ...] = ()
    declared: bool = False

    @property
    def nearly_numbers(self) -> bool:
        """Whether a few texts prevented a numeric column from being read as numbers.

        Nearly all rows are numbers, or nearly all distinct values, if a text such as "unknown"
        is frequent.
        """
        if self.kind != Kind.TEXT or self.declared or not (self.odd and self.n_numbers):
            return False
        if any(re.match(LEADING_ZEROS, text) for text, _ in self.odd):
            return False  # codes
        if self.n_numbers >= NUMBER_FRACTION * (self.n_rows - self.n_missing):
            return self.values is None or self._distinct_numbers() >= MIN_NUMBERS
        if self.values is None:
            return False
        return self._distinct_numbers() >= max(MIN_NUMBERS, NUMBER_FRACTION * len(self.values))

    def _distinct_numbers(self) -> int:
        return sum(map(is_written_number, self.values or ()))

    def merge(self, other: Summary) -> Summary:
        """Return the merged summary; ``other`` describes later rows."""
        values = None
        if self.values is not None and other.values is not None:
            values = self.values | other.values
        later = {text: row for text, row in other.odd if text not in dict(self.odd)}
        return Summary(
            kind=self.kind.widen(other.kind),
            n_rows=self.n_rows + other.n_rows,
            n_missing=self.n_missing + other.n_missing,
            n_infinite=self.n_infinite + other.n_infinite,
            values=None if values is None or len(values) > MAX_CATEGORIES else values,
            n_numbers=self.n_numbers + other.n_numbers,
            odd=tuple((dict(self.odd) | later).items())[:ODD_VALUES],
            declared=self.declared or other.declared,
        )


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
        Summary of the preceding rows. It gives the number of the first row, and avoids repeating
        tests whose result is known (such as whether text contains numbers).
    untyped : bool
        Whether text may represent numbers, booleans or dates.
    missing : collection of str
        Texts that mean a missing value.
    decimal : str
        Decimal separator of numbers in text.
    categories : bool
        Whether the values are categories, even if they look like numbers.
    """
    if categories:
        texts = to_texts(array, missing)
        return _of_texts(texts, Kind.TEXT, None, so_far, declared=True)
    if is_text(array.type):
        texts = Texts(array, missing, decimal)
        kind, numbers = texts.recognise(so_far.kind if untyped else Kind.TEXT)
        part = _of_texts(texts, kind, numbers, so_far)
        # A dictionary is the categorical type of data frames.
        return replace(part, n_numbers=0) if pa.types.is_dictionary(array.type) else part
    kind = kind_of(array.type)
    numbers = to_floats(array, missing) if kind.numeric else None
    absent = null_rows(array) if numbers is None else np.isnan(numbers)
    return _counted(kind, numbers, absent)


def _of_texts(
    texts: Texts, kind: Kind, numbers: Array | None, so_far: Summary, declared: bool = False
) -> Summary:
    """Summary of a block of text whose kind has been detected."""
    absent = texts.absent if numbers is None else np.isnan(numbers)
    counted = _counted(kind, numbers, absent)
    values = None if so_far.values is None else texts.few_values()
    if kind in (Kind.INTEGER, Kind.FLOAT):
        return replace(counted, values=values, n_numbers=len(absent) - counted.n_missing)
    wanted = ODD_VALUES if len(so_far.odd) < ODD_VALUES else 0
    return replace(
        counted,
        values=values,
        n_numbers=texts.count_numbers(),
        odd=tuple((text, so_far.n_rows + row) for text, row in texts.odd_values(wanted)),
        declared=declared,
    )


def _counted(kind: Kind, numbers: Array | None, absent: Array) -> Summary:
    """The part of a summary that does not depend on the storage type of the values."""
    n_missing = int(absent.sum())
    return Summary(
        kind=Kind.EMPTY if n_missing == len(absent) and kind.numeric else kind,
        n_rows=len(absent),
        n_missing=n_missing,
        n_infinite=0 if numbers is None else int(np.isinf(numbers).sum()),
    )
