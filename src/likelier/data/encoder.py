"""The table encoder: from named columns of any kind to a matrix of floats."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from likelier.base import Array, Matrix
from likelier.data.assemble import Piece, csr, dense
from likelier.data.columns import Kind, kind_of, label_kind, to_floats, to_integers, to_texts
from likelier.data.dialect import NO_HINTS, Hints
from likelier.data.learn import (
    check_features,
    check_target,
    listed,
    missing_target,
    missing_values,
    resolve_column,
    summarise_table,
)
from likelier.data.summary import Summary
from likelier.data.tables import Table
from likelier.data.text import TextCode, documents_of, is_running_text, learn_texts

FORM = "table-1"
# With this many output columns, of which at most a tenth is not zero, rows are kept sparse.
SPARSE_COLUMNS = 200
SPARSE_DENSITY = 0.1


@dataclass(frozen=True)
class ColumnCode:
    """How one column is encoded.

    A number becomes one output column. A column with ``categories`` becomes one column of
    0 and 1 for each of them; a value that is not listed becomes zeros. A column of running
    text (``text``) becomes one column for each of its words. ``indicator`` adds a column that
    is 1 where the value is missing; ``mean`` stands in for a missing number.
    """

    name: str
    categories: tuple[str, ...] | None = None
    mean: float = 0.0
    indicator: bool = False
    text: TextCode | None = None

    @property
    def output_names(self) -> list[str]:
        """Names of the output columns."""
        names = [self.name]
        if self.categories is not None:
            names = [f"{self.name}={category}" for category in self.categories]
        if self.text is not None:
            names = [f"{self.name}:{term}" for term in self.text.terms]
        return [*names, f"{self.name} is missing"] if self.indicator else names


@dataclass(frozen=True)
class TableEncoder:
    """What was learned from a training table about turning tables into matrices.

    Make one with `fit` or `from_schema`. It is a frozen value with a plain JSON form.

    Parameters
    ----------
    columns : tuple of ColumnCode
        The feature columns, in the order of the training table.
    target : str or None
        Name of the target column.
    target_kind : Kind
        What the target holds; labels of a later table are brought to the same kind.
    missing : {"error", "impute"}
        What a missing value means.
    missing_values : tuple of str
        Texts that stand for a missing value.
    header : bool
        Whether the training table had column names of its own.
    table_columns : tuple of str
        All columns of the training table, in order.
    hints : Hints
        How a later CSV file is read where its own lines do not show it.
    """

    columns: tuple[ColumnCode, ...]
    target: str | None = None
    target_kind: Kind = Kind.EMPTY
    missing: str = "error"
    missing_values: tuple[str, ...] = ()
    header: bool = True
    table_columns: tuple[str, ...] = ()
    hints: Hints = NO_HINTS

    # -- learning -----------------------------------------------------------------------
    @classmethod
    def fit(
        cls,
        table: Table,
        target: str | int | None = None,
        *,
        missing: str = "error",
        exclude: Sequence[str | int] = (),
        categories: Sequence[str | int] = (),
    ) -> Self:
        """Learn the encoding from one pass over a table, and one more over running text.

        Parameters
        ----------
        table : Table
            Rows to learn from.
        target : str or int, optional
            Name or position of the target column.
        missing : {"error", "impute"}
            Whether a missing value is an error, or is replaced by the mean of its column (by
            no category, in a column of text) and marked in a column of its own.
        exclude : sequence of str or int
            Columns to leave out.
        categories : sequence of str or int
            Columns, perhaps also the target, whose values are names, even if they look like
            numbers, dates or running text.
        """
        if missing not in ("error", "impute"):
            raise ValueError(f"missing must be 'error' or 'impute', got {missing!r}")
        name = None if target is None else resolve_column(table, target, "target")
        used = _used_columns(table, name, exclude)
        named = {resolve_column(table, column, "categories") for column in categories}
        found = summarise_table(table, used, named)
        kind = Kind.EMPTY
        if name is not None:
            goal = found.pop(name)
            check_target(name, goal, table.decimal)
            kind = label_kind(goal.kind, goal.values) if table.untyped else goal.kind
        check_features(found, missing, table.decimal)
        return cls(
            columns=_codes(table, found),
            target=name,
            target_kind=kind,
            missing=missing,
            missing_values=table.missing_values,
            header=table.header,
            table_columns=tuple(table.column_names),
            hints=table.hints,
        )

    @classmethod
    def from_schema(cls, schema: pa.Schema, target: str | None = None) -> Self:
        """Make an encoder for a typed table of numbers without reading it."""
        if target is not None and target not in schema.names:
            raise ValueError(f"target {target!r} is not among {listed(schema.names)}")
        features = [field for field in schema if field.name != target]
        other = [field.name for field in features if not kind_of(field.type).numeric]
        if other:
            raise ValueError(f"{listed(other)} without numbers: use fit, which reads the data")
        return cls(
            columns=tuple(ColumnCode(field.name) for field in features),
            target=target,
            target_kind=Kind.EMPTY if target is None else kind_of(schema.field(target).type),
            table_columns=tuple(schema.names),
        )

    # -- using --------------------------------------------------------------------------
    @property
    def n_features(self) -> int:
        """Number of output columns."""
        return len(self._output_names)

    @property
    def sparse(self) -> bool:
        """Whether matrices are CSR: many columns, nearly all of them zero in a row."""
        filled = len(self.columns) / self.n_features
        return self.n_features >= SPARSE_COLUMNS and filled <= SPARSE_DENSITY

    @cached_property
    def strange(self) -> Counter[str]:
        """Rows so far whose category no model was fitted on, by column; they get zeros."""
        return Counter()

    def get_feature_names_out(self) -> Array:
        """Names of the output columns."""
        return np.array(self._output_names, dtype=object)

    def align(self, table: Table) -> dict[str, str]:
        """Return which column of a table to read for each column the encoder knows.

        The target may be absent. Columns are found by name; in a table without header by
        position, and if it has just the target less, by position without the target.
        """
        wanted = [code.name for code in self.columns]
        names = table.column_names
        by_position = not self.header and not table.header and self.target is not None
        if by_position and len(names) == len(self.table_columns) - 1:
            features = [name for name in self.table_columns if name != self.target]
            return {new: old for new, old in zip(features, names, strict=True) if new in wanted}
        absent = [name for name in wanted if name not in names]
        if absent:
            advice = ""
            if table.header != self.header:
                advice = "; the first line was taken " + ("as names" if table.header else "as data")
            raise ValueError(
                f"{table.name!r} lacks {listed(absent)}, which the model was fitted on{advice}"
            )
        known = {*self.table_columns, *table.index_columns}
        extra = [name for name in names if name not in known]
        if extra:
            text = f"{table.name!r}: ignoring {listed(extra)}, which the model was not fitted on"
            warnings.warn(text, UserWarning, stacklevel=2)
        if self.target is not None and self.target in names:
            wanted.append(self.target)
        return {name: name for name in wanted}

    def transform(self, batch: pa.RecordBatch, decimal: str = ".") -> Matrix:
        """Return the float64 matrix of some rows, dense or CSR (see `sparse`).

        ``decimal`` is the decimal sign of numbers in text.

        Raises
        ------
        ValueError
            If a value is missing and ``missing="error"``, or is infinite or no number.
        """
        pieces = [self._encode(code, batch[code.name], decimal) for code in self.columns]
        return csr(pieces) if self.sparse else dense(pieces)

    def labels(self, batch: pa.RecordBatch, start: int = 0, decimal: str = ".") -> Array:
        """Return the target of some rows: integers, booleans, floats or strings as they are.

        ``start`` is the number of the first row, for messages; ``decimal`` the decimal sign.
        """
        if self.target is None:
            raise ValueError("this encoder was made without a target column")
        array, markers = batch[self.target], self.missing_values
        try:
            if self.target_kind == Kind.TEXT:
                texts = to_texts(array, markers)
                _refuse_missing(texts.absent, start)
                return texts.strings()
            numbers = to_floats(array, markers, decimal)
            _refuse_missing(np.isnan(numbers), start)
        except ValueError as error:
            raise ValueError(f"target column {self.target!r} {error}") from None
        if self.target_kind == Kind.BOOLEAN:
            return numbers.astype(bool)
        if self.target_kind != Kind.INTEGER:
            return numbers
        whole = to_integers(array, markers, decimal)
        return numbers if whole is None else whole

    # -- as plain values ----------------------------------------------------------------
    def to_json(self) -> dict[str, Any]:
        """Plain form: only dicts, lists, strings, numbers and None."""
        bare = replace(self, columns=tuple(replace(code, text=None) for code in self.columns))
        plain = asdict(bare)
        plain["target_kind"] = str(self.target_kind)
        plain["hints"] = self.hints.to_json()
        for key in ("missing_values", "table_columns"):
            plain[key] = list(plain[key])
        plain["columns"] = [
            {**code, "categories": None if code["categories"] is None else list(code["categories"])}
            for code in plain["columns"]
        ]
        for code, own in zip(plain["columns"], self.columns, strict=True):
            code["text"] = None if own.text is None else own.text.to_json()
        return {"form": FORM, **plain}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Make the encoder again from its plain form."""
        if plain.get("form") != FORM:
            raise ValueError(f"not a table encoder of form {FORM!r}: {plain.get('form')!r}")
        try:
            columns = tuple(
                ColumnCode(
                    name=str(code["name"]),
                    categories=None if code["categories"] is None else _strings(code["categories"]),
                    mean=float(code["mean"]),
                    indicator=bool(code["indicator"]),
                    text=None if code.get("text") is None else TextCode.from_json(code["text"]),
                )
                for code in plain["columns"]
            )
            return cls(
                columns=columns,
                target=None if plain["target"] is None else str(plain["target"]),
                target_kind=Kind(plain["target_kind"]),
                missing=str(plain["missing"]),
                missing_values=_strings(plain["missing_values"]),
                header=bool(plain["header"]),
                table_columns=_strings(plain["table_columns"]),
                hints=Hints.from_json(plain.get("hints", {})),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"damaged table encoder: {error!r}") from error

    # -- inside -------------------------------------------------------------------------
    @cached_property
    def _output_names(self) -> list[str]:
        return [name for code in self.columns for name in code.output_names]

    @cached_property
    def _positions(self) -> dict[str, dict[str, float]]:
        """Number of each category, by column."""
        return {
            code.name: {category: float(i) for i, category in enumerate(code.categories)}
            for code in self.columns
            if code.categories is not None
        }

    def _encode(self, code: ColumnCode, array: pa.Array, decimal: str) -> Piece:
        """Encode one column: where the entry of each row goes, and its value."""
        slots: Array | None = None
        matrix = None
        try:
            if code.text is not None:
                documents, absent = documents_of(array, self.missing_values)
                matrix, values = code.text.matrix(documents), np.zeros(len(documents))
            elif code.categories is None:
                values = to_floats(array, self.missing_values, decimal)
                absent = np.isnan(values)
                if np.isinf(values).any():
                    raise ValueError("holds infinite values; replace them by finite ones")
            else:
                texts = to_texts(array, self.missing_values)
                absent = texts.absent
                slots = texts.look_up(self._positions[code.name], -1.0, -1.0).astype(np.int64)
                values = (slots >= 0).astype(float)
                self.strange[code.name] += int(((slots < 0) & ~absent).sum())
        except ValueError as error:
            raise ValueError(f"column {code.name!r} {error}") from None
        if absent.any():
            if self.missing == "error":
                raise ValueError(missing_values({code.name: int(absent.sum())}, fitted=True))
            if slots is None:
                values = np.where(absent, code.mean, values)
        mark = absent if code.indicator else None
        return Piece(values, slots, mark, len(code.output_names), matrix)


def _used_columns(table: Table, target: str | None, exclude: Sequence[str | int]) -> list[str]:
    """Return the columns to read: not those left out, nor those that only number the rows."""
    left_out = {resolve_column(table, column, "exclude") for column in exclude}
    if target in left_out:
        raise ValueError(f"exclude names the target column {target!r}")
    index = {*table.index_columns} - {target} - left_out
    if index and table.untyped:
        text = (
            f"{table.name!r}: leaving out the first column, which has no name and another whole "
            "number in every row; give it a name if it should be learned from"
        )
        warnings.warn(text, UserWarning, stacklevel=3)
    used = [name for name in table.column_names if name not in left_out | index]
    if not {*used} - {target}:
        raise ValueError(f"{table.name!r} has no column left to learn from")
    return used


def _codes(table: Table, found: Mapping[str, Summary]) -> tuple[ColumnCode, ...]:
    """Return how to encode columns with these summaries; running text is read once more."""
    texts = learn_texts(table, [name for name, s in found.items() if is_running_text(s)])
    return tuple(
        ColumnCode(name, indicator=summary.n_missing > 0, text=texts[name])
        if name in texts
        else _code(name, summary)
        for name, summary in found.items()
    )


def _code(name: str, summary: Summary) -> ColumnCode:
    """Return how to encode a column with this summary; categories in the order of their text."""
    if summary.kind == Kind.TEXT:
        categories = tuple(sorted(summary.values or ()))
        return ColumnCode(name, categories, indicator=summary.n_missing > 0)
    return ColumnCode(name, mean=summary.mean, indicator=summary.n_missing > 0)


def _refuse_missing(absent: Array, start: int) -> None:
    if absent.any():
        raise ValueError(missing_target(int(absent.sum()), start + int(np.argmax(absent))))


def _strings(items: Sequence[Any]) -> tuple[str, ...]:
    if isinstance(items, str):
        raise TypeError(f"expected a list of texts, got {items!r}")
    return tuple(str(item) for item in items)
