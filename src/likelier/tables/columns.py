"""Loading of column encodings, by the class names in saved models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from likelier.tables.column import ColumnCode
from likelier.tables.column_dates import DateColumn
from likelier.tables.column_levels import CategoryColumn, NameColumn, TextColumn
from likelier.tables.column_numbers import BooleanColumn, NumberColumn
from likelier.tables.dates import DateStyle
from likelier.tables.numbers import NumberStyle
from likelier.tables.terms import Terms

_CLASSES: dict[str, type[ColumnCode]] = {
    cls.__name__: cls
    for cls in (NumberColumn, BooleanColumn, DateColumn, CategoryColumn, NameColumn, TextColumn)
}


def column_from_json(plain: Mapping[str, Any]) -> ColumnCode:
    """Return the encoding that `ColumnCode.to_json` wrote."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    cls: Any = _CLASSES[values.pop("class")]
    if values.get("style") is not None:
        style = NumberStyle if cls is NumberColumn else DateStyle
        values["style"] = style.from_json(values["style"])
    if "terms" in values:
        values["terms"] = Terms.from_json(values["terms"])
    column: ColumnCode = cls(**values)
    return column
