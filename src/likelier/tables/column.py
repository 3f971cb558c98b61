"""Base class of column encoders: output columns, missing-value indicators, draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from likelier.base import Array
from likelier.tables.cells import Cells

# A row with an unseen level is predicted as a mixture over this many levels of training.
N_DRAWS = 32


@dataclass(frozen=True, eq=False)
class ColumnCode(ABC):
    """The encoding of one column.

    ``note`` reports what was assumed about it (empty for plain numbers). With ``had_missing``,
    values were missing in training and the last output column is an indicator of them.
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
        """Names of the output columns, without the missing-value indicator."""

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
        """Fill the output columns of some rows, which are initially zero.

        Returns
        -------
        unseen : ndarray of bool or None
            Rows with a level that did not occur in training, or a missing value in a column
            without missing values in training; ``out`` holds the training average for them. None
            if there are no such rows.
        """

    def draws(self, cells: Cells) -> Array | None:
        """Return `N_DRAWS` draws of the output columns for each of some unseen rows.

        None if the column only offers the training average.
        """
        return None

    def _mark(self, absent: Array, out: Array) -> Array | None:
        """Set the missing-value indicator; return missing values if training had none."""
        if self.had_missing:
            out[:, -1] = absent
            return None
        return absent if absent.any() else None

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as plain values and arrays."""
        names = [part.name for part in fields(self)]
        return {"class": type(self).__name__, **{n: _plain(getattr(self, n)) for n in names}}


def with_mark(drawn: Array, had_missing: bool) -> Array:
    """Return draws with the missing-value indicator appended, if the column has one."""
    if not had_missing:
        return drawn
    return np.concatenate([drawn, np.zeros((*drawn.shape[:2], 1))], axis=2)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value.to_json() if hasattr(value, "to_json") else value
