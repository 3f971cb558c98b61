"""The target column: its kind, and parsing of its labels or numbers."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.columns import (
    Kind,
    as_text,
    is_text,
    kind_of,
    label_kind,
    mask_array,
    mask_of,
    null_rows,
    numbers_of,
    text_array,
    to_floats,
    to_integers,
    to_texts,
)
from likelier.data.notation import has_decimal_comma
from likelier.tables.numbers import NumberEvidence, NumberStyle
from likelier.tables.target_summary import Summary, summarise

SHOWN = 3
# Up to this many distinct texts such as "5 %" or "2 stars" are classes, more are numbers.
MAX_CLASSES = 20


@dataclass(frozen=True)
class Target:
    """The kind and notation of a target column.

    Parameters
    ----------
    name : str
        Column name.
    kind : Kind
        Type of the values returned: text, integer, boolean or float.
    style : NumberStyle or None
        Notation of numbers with units, currencies or separators.
    exact : bool
        Whether whitespace around labels is significant.
    """

    name: str
    kind: Kind = Kind.EMPTY
    style: NumberStyle | None = None
    exact: bool = False

    def read(
        self,
        array: pa.Array,
        missing: Collection[str],
        decimal: str = ".",
        rows: Array | None = None,
    ) -> Array:
        """Return the labels or numbers; no value may be missing.

        ``rows`` are row numbers for error messages.
        """
        try:
            return self._read(array, missing, decimal)
        except ValueError as error:
            where = "" if rows is None else f", rows {rows[0] + 1} to {rows[-1] + 1},"
            raise ValueError(f"target column {self.name!r}{where} {error}") from None

    def _read(self, array: pa.Array, missing: Collection[str], decimal: str) -> Array:
        if self.exact:
            return np.array(as_text(array).to_pylist(), dtype=str)
        if self.kind == Kind.TEXT:
            return to_texts(array, missing).strings()
        if self.style is not None and is_text(array.type):
            texts = as_text(array).to_pylist()
            numbers = self.style.parse([text.strip() for text in texts])
            if np.isnan(numbers).any():
                text = texts[int(np.isnan(numbers).argmax())]
                raise ValueError(f"contains {text!r}, which is not a number like the others")
            return numbers
        numbers = to_floats(array, missing, decimal)
        if self.kind == Kind.BOOLEAN:
            return numbers.astype(bool)
        if self.kind != Kind.INTEGER:
            return numbers
        whole = to_integers(array, missing, decimal)
        return numbers if whole is None else whole

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        style = None if self.style is None else self.style.to_json()
        return {"name": self.name, "kind": str(self.kind), "style": style, "exact": self.exact}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the target that `to_json` wrote."""
        style = None if plain["style"] is None else NumberStyle.from_json(plain["style"])
        return cls(str(plain["name"]), Kind(plain["kind"]), style, bool(plain["exact"]))


class TargetLearner:
    """Detects the kind of a target column, block by block."""

    def __init__(self, name: str, *, untyped: bool, decimal: str, as_category: bool) -> None:
        self._name, self._untyped, self._decimal = name, untyped, decimal
        self._as_category = as_category
        self._summary = Summary()
        self._spellings: dict[str, set[str]] | None = {}
        self._written = NumberEvidence()
        self.n_missing = 0

    def add(self, array: pa.Array, missing: Collection[str]) -> Array:
        """Add a block; return a mask of the rows with a target."""
        present = has_target(array, missing)
        self.n_missing += int((~present).sum())
        try:  # including rows without a target, so that row numbers are those of the table
            part = summarise(
                array,
                self._summary,
                untyped=self._untyped,
                missing=missing,
                decimal=self._decimal,
                categories=self._as_category,
            )
        except ValueError as error:
            raise ValueError(f"target column {self._name!r} {error}") from None
        self._summary = self._summary.merge(part)
        if is_text(array.type):
            self._learn_spellings(as_text(array.filter(mask_array(present))))
        return present

    def _learn_spellings(self, array: pa.Array) -> None:
        counted = array.value_counts()
        texts, counts = counted.field("values").to_pylist(), numbers_of(counted.field("counts"))
        if self._spellings is not None:
            for text in texts:
                self._spellings.setdefault(text.strip(), set()).add(text)
            if len(self._spellings) > 1000:
                self._spellings = None
        if not self._as_category:
            self._written = self._written.merge(
                NumberEvidence.of([text.strip() for text in texts], counts)
            )

    def target(self) -> Target:
        """Return the detected target; raise a ValueError if it cannot be learned."""
        summary, found = self._summary, Target(self._name)
        if summary.n_rows == summary.n_missing:
            raise ValueError(f"target column {self._name!r} has no values")
        if summary.kind in (Kind.DATE, Kind.OTHER):
            raise ValueError(
                f"target column {self._name!r} contains dates or other unsupported values; choose "
                "another target, or convert it to numbers or labels"
            )
        if summary.n_infinite:
            raise ValueError(
                f"target column {self._name!r} contains {summary.n_infinite} infinite values; "
                "replace them with finite ones, or leave the cells empty to drop these rows"
            )
        if summary.kind == Kind.TEXT and not summary.declared:
            style = self._written.style(self._decimal if self._untyped else None)
            many = summary.values is None or len(summary.values) > MAX_CLASSES
            if many and style is not None and not self._written.others(style).rows:
                return replace(found, kind=Kind.FLOAT, style=style)
            if summary.nearly_numbers:
                raise ValueError(unread_numbers(self._name, summary, self._decimal))
        kind = label_kind(summary.kind, summary.values) if self._untyped else summary.kind
        return replace(found, kind=kind, exact=kind == Kind.TEXT and self._warn_if_similar())

    def _warn_if_similar(self) -> bool:
        """Warn about labels that differ only by case or spaces; return whether spaces matter."""
        spellings = self._spellings or {}
        exact = any(len(same) > 1 for same in spellings.values())
        alike = defaultdict(set)
        for same in spellings.values():
            for text in same if exact else {next(iter(same)).strip()}:
                alike[" ".join(text.split()).casefold()].add(text)
        pairs = [sorted(same) for same in alike.values() if len(same) > 1]
        if pairs:
            shown = "; ".join(" and ".join(map(repr, same)) for same in pairs[:SHOWN])
            more = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
            text = (
                f"target column {self._name!r}: labels that differ only by case or spaces are "
                f"treated as distinct classes: {shown}{more}; make them equal if they mean the same"
            )
            warnings.warn(text, UserWarning, stacklevel=2)
        return exact


def has_target(array: pa.Array, missing: Collection[str]) -> Array:
    """Mask of the rows with a target."""
    if is_text(array.type):
        trimmed = pc.utf8_trim_whitespace(as_text(array))
        gone = pc.is_in(trimmed, text_array([*missing])) if missing else trimmed.is_null()
        absent = null_rows(array) | mask_of(gone)
    else:
        absent = null_rows(array)
    if kind_of(array.type) == Kind.FLOAT:
        absent = absent | np.isnan(to_floats(array, ()))
    present: Array = ~absent
    return present


def unread_numbers(name: str, summary: Summary, decimal: str) -> str:
    """Return the error message for a numeric target with values that are not numbers."""
    shown = ", ".join(f"{text!r} (row {row + 1})" for text, row in summary.odd[:SHOWN])
    more = " and others" if len(summary.odd) > SHOWN else ""
    advice = ""
    if decimal == "," and any("." in text for text, _ in summary.odd):
        advice = (
            "use decimal='.' if the point is the decimal separator (it was read as the comma), "
        )
    elif decimal == "." and any(has_decimal_comma(text) for text, _ in summary.odd):
        advice = "use decimal=',' if the comma is the decimal separator, "
    return (
        f"target column {name!r} seems numeric, but {shown}{more} cannot be read as numbers: "
        f"{advice}correct them (as in 1234.5), leave their cells empty or list them in "
        "also_missing (rows without a target are dropped), or use "
        f"kinds={{{name!r}: 'category'}} if the values are classes"
    )
