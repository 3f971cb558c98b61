"""Whether the first row of a CSV file names its columns, and what their names are."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from likelier.data.notation import as_number, is_written_number

# A text that the rows below never have is a name if they show so few rare ones: one in twenty.
_RARE = 0.05
_LISTED = 5
# So many whole numbers that count up are names, such as 2019, 2020, 2021, or 0, 1, 2.
_COUNTING = 3
_FEW = 3
# What is written for a value that is not there, and never for the name of a column.
_DASHES = frozenset("-\u2013\u2014.*?_~")


def columns_of(rows: Sequence[Sequence[str]], width: int) -> list[tuple[str, ...]]:
    """Return the cells by column; rows that are too short or too long are left out."""
    whole = [row for row in rows if len(row) == width]
    return list(zip(*whole, strict=True)) or [()] * width


def names_columns(rows: Sequence[Sequence[str]], missing: Collection[str]) -> bool | None:
    """Whether the first row names the columns; None if that cannot be told.

    Different words above columns of numbers settle it, and so does a row of words that are all
    different and do not come again as values. A first row that has numbers too is harder:
    numbers can be names (years, pixels), and a word above numbers can stand for a missing one.

    Parameters
    ----------
    rows : sequence of rows
        The first rows of the file, as trimmed cells.
    missing : collection of str
        Texts that stand for a missing value, here in upper or lower case alike.
    """
    look = _Look(rows, missing)
    if look.over_numbers:
        if look.again and look.words < look.width:
            return False
        clear = not look.numbers or len(look.over_numbers) > 1 or look.strange(1)
        return True if clear else None
    if look.again:
        return False
    if look.words == look.width:
        return look.distinct or look.new
    if not look.numbers:
        return look.words == look.n_filled > 0 and (look.new or look.counts_rows)
    if not look.could_be_names:
        return False
    strange = look.strange(_FEW)
    if look.new and strange:
        return True
    return None if look.new or strange else False


def lines_above(rows: Sequence[Sequence[str]], missing: Collection[str]) -> int:
    """Count the first rows that are a title or comments, and no rows of the table.

    They have fewer filled cells than the rows below agree on. A row of the full width may also
    be names with gaps: it is a title only if the next row clearly names the columns.
    """
    width = max(Counter(map(len, rows[1:])).items(), key=lambda item: item[1], default=(1, 0))[0]
    count = 0
    while count < len(rows) - 1 and _may_be_title(rows[count], width):
        count += 1
    if width == 1 or not count:
        return 0
    if any(len(row) < width for row in rows[:count]):
        # Some programs write no name for the first column, which numbers the rows.
        lacks_one = count == 1 and len(rows[0]) == width - 1 > 1
        return 0 if lacks_one and not names_columns(rows[1:], missing) else count
    return count if _clearly_names(rows[count:], missing) else 0


def _may_be_title(row: Sequence[str], width: int) -> bool:
    filled = [cell for cell in row if cell]
    at_start = list(row[: len(filled)]) == filled and len(filled) < len(row) == width
    return len(row) < width or (at_start and not any(map(is_written_number, filled)))


def repeats_names(rows: Sequence[Sequence[str]], missing: Collection[str]) -> bool:
    """Whether the first row names the columns, and another row does so again."""
    others = [row for row in rows[1:] if row != rows[0]]
    return len(others) < len(rows) - 1 and _clearly_names([rows[0], *others], missing)


def _clearly_names(rows: Sequence[Sequence[str]], missing: Collection[str]) -> bool:
    """Whether all cells of the first row are words, strange to the values below them."""
    look = _Look(rows, missing)
    new = look.width > 1 and look.all_new
    return look.words == look.width and not look.again and bool(look.over_numbers or new)


class _Look:
    """What there is to see in the first row and in the columns below it."""

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
        self.width, self.words, self._words = len(first), len(words), words
        self.n_filled = sum(map(bool, first))
        self.distinct = len(set(first)) == len(first)
        self.over_numbers = {first[i] for i in words if is_numeric(self._below[i])}
        self.again = any(first[i] in self._below[i] for i in texts)
        self.counts_rows = not first[0] and numbers_rows(columns[0])

    @property
    def new(self) -> bool:
        """Whether a word is above a column whose values nearly all come again, but not it."""
        return any(_has_few_rare(self._below[i]) for i in self._words)

    @property
    def all_new(self) -> bool:
        """Whether this is so of all columns."""
        return all(_has_few_rare(self._below[i]) for i in range(self.width))

    @property
    def could_be_names(self) -> bool:
        """Whether the numbers are whole, without a sign, and all different."""
        return all(map(str.isdecimal, self.numbers)) and len({*self.numbers}) == len(self.numbers)

    def strange(self, least: int) -> bool:
        """Whether the numbers count up as no other row does, or are all far from those below.

        There must be so many below each to tell.
        """
        if self.could_be_names and len(self._at) >= _COUNTING:
            columns = [self._below[i] for i in self._at]
            rows = zip(*columns, strict=False)
            if _count_up(self.numbers) and not any(map(_count_up, rows)):
                return True
        pairs = [(self._first[i], self._below[i]) for i in self._at]
        return len(pairs) > 1 and all(_is_far(cell, values, least) for cell, values in pairs)


def is_numeric(values: Sequence[str]) -> bool:
    """Whether there are values, and all of them are numbers."""
    return bool(values) and all(map(is_written_number, values))


def numbers_rows(column: Sequence[str]) -> bool:
    """Whether a column has another whole number in every row."""
    return all(map(str.isdecimal, column)) and 1 < len(column) == len(set(column))


def _has_few_rare(values: Sequence[str]) -> bool:
    """Whether a value that comes but once would be a surprise in this column."""
    once = sum(count == 1 for count in Counter(values).values())
    return once + 1 <= _RARE * (len(values) + 1)


def _count_up(cells: Sequence[str]) -> bool:
    whole = all(map(str.isdecimal, cells))
    return whole and all(int(b) - int(a) == 1 for a, b in pairwise(cells))


def _is_far(cell: str, values: Sequence[str], least: int) -> bool:
    """Whether a number is farther from some others than they are from each other."""
    number = as_number(cell)
    others = [other for other in map(as_number, values) if other is not None]
    if number is None or len(others) < least:
        return False
    low, high = min(others), max(others)
    return not low - (high - low) <= number <= high + (high - low)


def distinct_names(names: Sequence[str], table: str) -> list[str]:
    """Return the names, those that come again with a number, and warn of it."""
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
        text = f"{table!r} has several columns of the same name; reading another "
        text += ", ".join(renamed[:_LISTED]) + more
        warnings.warn(text, UserWarning, stacklevel=3)
    return found
