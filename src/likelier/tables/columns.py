"""Loading of column encodings, by the class names in saved models.

Each kind of column is imported where a table has one: few have dates or texts, and what reads these
takes longer to load than a small file to predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from likelier.tables.column import ColumnCode

_HOMES = {
    "BooleanColumn": "column_numbers",
    "CategoryColumn": "column_levels",
    "DateColumn": "column_dates",
    "NameColumn": "column_levels",
    "NumberColumn": "column_numbers",
    "TextColumn": "column_levels",
}
_STYLES = {"DateColumn": ("dates", "DateStyle"), "NumberColumn": ("numbers", "NumberStyle")}


def column_from_json(plain: Mapping[str, Any]) -> ColumnCode:
    """Return the encoding that `ColumnCode.to_json` wrote."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    name = values.pop("class")
    if values.get("style") is not None:
        values["style"] = _part(*_STYLES[name]).from_json(values["style"])
    if "terms" in values:
        values["terms"] = _part("terms", "Terms").from_json(values["terms"])
    column: ColumnCode = _part(_HOMES[name], name)(**values)
    return column


def _part(module: str, name: str) -> Any:
    return getattr(import_module(f"likelier.tables.{module}"), name)
