"""Encoding of numeric and boolean columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from likelier.base import Array
from likelier.data.columns import Kind
from likelier.data.notation import has_decimal_comma
from likelier.tables.cells import Cells
from likelier.tables.column import N_DRAWS, ColumnCode, with_mark
from likelier.tables.numbers import NumberStyle, is_number

# English, German, French, Spanish and Italian; error messages list the first words
TRUE = ("true", "yes", "y", "t", "on", "1", "ja", "j", "oui", "si", "sí", "sì", "wahr", "vrai")
FALSE = (
    "false",
    "no",
    "n",
    "f",
    "off",
    "0",
    "nein",
    "n",
    "non",
    "no",
    "no",
    "no",
    "falsch",
    "faux",
)


@dataclass(frozen=True, eq=False)
class NumberColumn(ColumnCode):
    """Numbers; missing ones are imputed with ``fill``.

    With ``loose``, texts that are not numbers are missing; otherwise they are errors. Numbers in
    another notation are always errors, unless ``texts`` lists them as missing.
    """

    fill: float = 0.0
    style: NumberStyle | None = None
    loose: bool = False
    texts: tuple[str, ...] = ()
    kind: ClassVar[str] = "number"

    @property
    def values(self) -> list[str]:
        return [self.name]

    def encode(self, cells: Cells, out: Array) -> Array | None:
        numbers = self.read(cells)
        absent = ~np.isfinite(numbers)
        out[:, 0] = np.where(absent, self.fill, numbers)
        return self._mark(absent, out)

    def read(self, cells: Cells) -> Array:
        """Return the numbers, NaN if missing."""
        if cells.kind == Kind.DATE:
            raise ValueError(
                f"column {self.name!r} contains dates or times, but contained numbers in training"
            )
        if self.style is None or not cells.is_text:
            plain = cells.plain_numbers
            if plain is not None:
                return plain
        style = self.style or NumberStyle(cells.decimal)
        numbers = cells.map_texts(style.parse, np.nan)
        unread = np.isnan(numbers) & ~cells.absent
        wrong = {text for text in cells.texts_of(unread) if not self._missing(text)}
        if wrong:
            row, text = cells.row_of(lambda text: text in wrong)
            raise ValueError(
                f"column {self.name!r}, row {row}: {text!r} cannot be read as a number; the model "
                f"was fitted on {style.describe() or 'plain numbers'}; "
                f"{_remedy(text, cells.decimal)}"
            )
        return numbers

    def _missing(self, text: str) -> bool:
        """Whether a text that is not a number of the column means a missing one."""
        if text in self.texts or (self.style or NumberStyle()).is_blank(text):
            return True
        return self.loose and not is_number(text)


def _remedy(text: str, decimal: str) -> str:
    if decimal == "." and has_decimal_comma(text):
        return "use decimal=',' if the comma is the decimal separator, or correct the cell"
    return "correct the cell, or leave it empty if the value is missing"


@dataclass(frozen=True, eq=False)
class BooleanColumn(ColumnCode):
    """Two values that mean yes and no, as 1 and 0; ``frequency`` is the fraction of yes."""

    frequency: float = 0.5
    kind: ClassVar[str] = "boolean"
    has_levels: ClassVar[bool] = True

    @property
    def values(self) -> list[str]:
        return [self.name]

    def encode(self, cells: Cells, out: Array) -> Array | None:
        self._mark(cells.absent, out)
        truth = cells.plain_numbers if not cells.is_text else None
        if truth is None:
            truth = cells.map_texts(truth_values, np.nan)
        truth = np.where((truth == 0.0) | (truth == 1.0), truth, np.nan)
        out[:, 0] = np.where(np.isnan(truth), self.frequency, truth)
        unseen = np.isnan(truth) & ~(cells.absent & self.had_missing)
        return unseen if unseen.any() else None

    def draws(self, cells: Cells) -> Array:
        drawn = np.arange(N_DRAWS) < round(self.frequency * N_DRAWS)
        return with_mark(
            np.broadcast_to(drawn[:, None], (len(cells), N_DRAWS, 1)), self.had_missing
        )


def truth_values(texts: list[str]) -> Array:
    """Return 1 for texts that mean yes, 0 for no, NaN for others."""
    meaning = dict.fromkeys(TRUE, 1.0) | dict.fromkeys(FALSE, 0.0)
    return np.array([meaning.get(text.casefold(), np.nan) for text in texts])
