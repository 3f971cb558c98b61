"""Detection of the header of a CSV file, and unique column names."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from likelier.data.notation import as_number, is_written_number

# A text that does not occur below is a name if at most this fraction of the values is unique.
_RARE = 0.05
_LISTED = 5
# This many consecutive integers are names, such as 2019, 2020, 2021, or 0, 1, 2.
_COUNTING = 3
_FEW = 3
# Characters of placeholders for missing values, which are never column names.
_DASHES = frozenset("-\u2013\u2014.*?_~")


def columns_of(rows: Sequence[Sequence[str]], width: int) -> list[tuple[str, ...]]:
    """Return the cells by column, skipping rows that are too short or too long."""
    whole = [row for row in rows if len(row) == width]
    return list(zip(*whole, strict=True)) or [()] * width


def names_columns(rows: Sequence[Sequence[str]], missing: Collection[str]) -> bool | None:
    """Whether the first row is a header; None if that is undecidable.

    Distinct words above numeric columns decide it, and so does a row of distinct words that do not
    recur as values. A first row that includes numbers is harder: numbers can be names (years,
    pixels), and a word above numbers can mean a missing value.

    Parameters
    ----------
    rows : sequence of rows
        The first rows of the file, as trimmed cells.
    missing : collection of str
        Texts that mean a missing value, compared case-insensitively.
    """
    first = _FirstRow(rows, missing)
    if first.over_numbers:
        if first.recurs and first.n_words < first.width:
            return False
        clear = not first.numbers or len(first.over_numbers) > 1 or first.unlike_values(1)
        return True if clear else None
    if first.recurs:
        return False
    if first.n_words == first.width:
        return first.distinct or first.new
    if not first.numbers:
        return first.n_words == first.n_filled > 0 and (first.new or first.has_row_numbers)
    if not first.could_be_names:
        return False
    unlike = first.unlike_values(_FEW)
    if first.new and unlike:
        return True
    return None if first.new or unlike else False


def lines_above(rows: Sequence[Sequence[str]], missing: Collection[str]) -> int:
    """Count the leading rows that are a title or comments instead of part of the table.

    They have fewer filled cells than most rows below. A row of full width may also be a header
    with gaps: it is a title only if the next row is clearly a header.
    """
    width = max(Counter(map(len, rows[1:])).items(), key=lambda item: item[1], default=(1, 0))[0]
    count = 0
    while count < len(rows) - 1 and _may_be_title(rows[count], width):
        count += 1
    if width == 1 or not count:
        return 0
    if any(len(row) < width for row in rows[:count]):
        # Some programs omit the name of the first column, which is a row index.
        lacks_one = count == 1 and len(rows[0]) == width - 1 > 1
        return 0 if lacks_one and not names_columns(rows[1:], missing) else count
    return count if _clearly_names(rows[count:], missing) else 0


def _may_be_title(row: Sequence[str], width: int) -> bool:
    filled = [cell for cell in row if cell]
    at_start = list(row[: len(filled)]) == filled and len(filled) < len(row) == width
    return len(row) < width or (at_start and not any(map(is_written_number, filled)))


def repeats_names(rows: Sequence[Sequence[str]], missing: Collection[str]) -> bool:
    """Whether the first row is a header that is repeated below."""
    others = [row for row in rows[1:] if row != rows[0]]
    return len(others) < len(rows) - 1 and _clearly_names([rows[0], *others], missing)


def _clearly_names(rows: Sequence[Sequence[str]], missing: Collection[str]) -> bool:
    """Whether all cells of the first row are words, unlike the values below them."""
    first = _FirstRow(rows, missing)
    new = first.width > 1 and first.all_new
    return first.n_words == first.width and not first.recurs and bool(first.over_numbers or new)


class _FirstRow:
    """Features of the first row in relation to the columns below it."""

    def __init__(self, rows: Sequence[Sequence[str]], missing: Collection[str]) -> None:
        marks = {mark.casefold() for mark in missing} | {""}
        first = rows[0]
        columns = columns_of(rows[1:], len(first))
        self._below = [[c for c in column if c.casefold() not in marks] for column in columns]
        present = [i for i, cell in enumerate(first) if cell.casefold() not in marks]
        texts = [i for i in present if not is_written_number(first[i])]
        words = [i for i in texts if not {*first[i]} <= _DASHES]
        self._first, self._at = first, [i for i in present if is_written_number(first[i])]
        self.numbers = [first[i] for i in self._at]
        self.width, self.n_words, self._words = len(first), len(words), words
        self.n_filled = sum(map(bool, first))
        self.distinct = len(set(first)) == len(first)
        self.over_numbers = {first[i] for i in words if is_numeric(self._below[i])}
        self.recurs = any(first[i] in self._below[i] for i in texts)
        self.has_row_numbers = not first[0] and numbers_rows(columns[0])

    @property
    def new(self) -> bool:
        """Whether a word is new to a column whose values nearly all recur."""
        return any(_has_few_rare(self._below[i]) for i in self._words)

    @property
    def all_new(self) -> bool:
        """Whether that holds for all columns."""
        return all(_has_few_rare(self._below[i]) for i in range(self.width))

    @property
    def could_be_names(self) -> bool:
        """Whether the numbers are distinct unsigned integers."""
        return all(map(str.isdecimal, self.numbers)) and len({*self.numbers}) == len(self.numbers)

    def unlike_values(self, least: int) -> bool:
        """Whether only the first row is consecutive, or its numbers are out of range of the others.

        Each column needs at least ``least`` other numbers.
        """
        if self.could_be_names and len(self._at) >= _COUNTING:
            columns = [self._below[i] for i in self._at]
            rows = zip(*columns, strict=False)
            if _consecutive(self.numbers) and not any(map(_consecutive, rows)):
                return True
        pairs = [(self._first[i], self._below[i]) for i in self._at]
        return len(pairs) > 1 and all(_out_of_range(cell, values, least) for cell, values in pairs)


def is_numeric(values: Sequence[str]) -> bool:
    """Whether there are values, and all of them are numbers."""
    return bool(values) and all(map(is_written_number, values))


def numbers_rows(column: Sequence[str]) -> bool:
    """Whether a column has a distinct integer in every row."""
    return all(map(str.isdecimal, column)) and 1 < len(column) == len(set(column))


def _has_few_rare(values: Sequence[str]) -> bool:
    """Whether so few values of a column are unique that a new one is unexpected."""
    once = sum(count == 1 for count in Counter(values).values())
    return once + 1 <= _RARE * (len(values) + 1)


def _consecutive(cells: Sequence[str]) -> bool:
    whole = all(map(str.isdecimal, cells))
    return whole and all(int(b) - int(a) == 1 for a, b in pairwise(cells))


def _out_of_range(cell: str, values: Sequence[str], least: int) -> bool:
    """Whether a number is outside of the range of others, extended by its width on both sides."""
    number = as_number(cell)
    others = [other for other in map(as_number, values) if other is not None]
    if number is None or len(others) < least:
        return False
    low, high = min(others), max(others)
    return not low - (high - low) <= number <= high + (high - low)


def distinct_names(names: Sequence[str], table: str) -> list[str]:
    """Return unique names, numbering duplicates, with a warning."""
    found, taken = list(names), set(names)
    last: dict[str, int] = {}
    renamed = []
    for i, name in enumerate(found):
        if name not in last:
            last[name] = 1
            continue
        while found[i] in taken:
            last[name] += 1
            found[i] = f"{name}_{last[name]}"
        taken.add(found[i])
        renamed.append(f"{name!r} as {found[i]!r}")
    if renamed:
        more = f" and {len(renamed) - _LISTED} more" if len(renamed) > _LISTED else ""
        text = f"{table!r} has duplicate column names; reading "
        text += ", ".join(renamed[:_LISTED]) + more
        warnings.warn(text, UserWarning, stacklevel=3)
    return found
