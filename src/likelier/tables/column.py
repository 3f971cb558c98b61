"""What the codes of all columns share: output columns, marks of missing values, draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array
from likelier.tables.cells import Cells

# A row with a level that training never saw is predicted as a mixture over so many that it did.
N_DRAWS = 32


@dataclass(frozen=True, eq=False)
class ColumnCode(ABC):
    """How one column is encoded.

    ``note`` says what was assumed of it, empty for plain numbers; ``had_missing`` whether
    values were missing in training: a last output column then marks them.
    """

    name: str
    note: str = field(default="", kw_only=True)
    had_missing: bool = field(default=False, kw_only=True)
    kind: ClassVar[str]
    sparse: ClassVar[bool] = False
    has_levels: ClassVar[bool] = False

    @property
    @abstractmethod
    def values(self) -> list[str]:
        """Names of the output columns, without the one that marks missing values."""

    @property
    def output_names(self) -> list[str]:
        """Names of all output columns."""
        return [*self.values, *([f"{self.name} is missing"] if self.had_missing else [])]

    @cached_property
    def width(self) -> int:
        """Number of output columns."""
        return len(self.output_names)

    @abstractmethod
    def encode(self, cells: Cells, out: Array) -> Array | None:
        """Fill the output columns of some rows, which are zero.

        Returns
        -------
        strange : ndarray of bool or None
            Rows with a level that training never saw, or with no value where none was ever
            missing: ``out`` holds the average for them. None if there are none.
        """

    def draws(self, cells: Cells) -> Array | None:
        """Return `N_DRAWS` rows of output columns for each of some strange rows.

        None where the average is all there is to say.
        """
        return None

    def _mark(self, absent: Array, out: Array) -> Array | None:
        """Mark missing values; return those that were never missing in training."""
        if self.had_missing:
            out[:, -1] = absent
            return None
        return absent if absent.any() else None

    def to_json(self) -> dict[str, Any]:
        """Return the code as plain values and arrays."""
        names = [part.name for part in fields(self)]
        return {"class": type(self).__name__, **{n: _plain(getattr(self, n)) for n in names}}


def with_mark(drawn: Array, had_missing: bool) -> Array:
    """Return draws with the column that marks missing values, where there is one."""
    if not had_missing:
        return drawn
    return np.concatenate([drawn, np.zeros((*drawn.shape[:2], 1))], axis=2)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value.to_json() if hasattr(value, "to_json") else value
