"""The encoding of a table: from named columns of any kind to a float matrix.

It is an immutable value, learned by `likelier.tables.learn` and saved with a model.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from scipy import sparse

from likelier.base import Array, Matrix
from likelier.data.columns import Kind
from likelier.data.dialect import NO_HINTS, Hints
from likelier.data.tables import Table
from likelier.tables.cells import Cells
from likelier.tables.column import N_DRAWS, ColumnCode
from likelier.tables.columns import column_from_json
from likelier.tables.target import Target

FORM = "table-2"
# Matrices are sparse with at least this many columns and at most this density.
SPARSE_COLUMNS = 200
SPARSE_DENSITY = 0.1
LISTED = 10


class Dropped(NamedTuple):
    """A column without features: its name, kind, and why it was dropped."""

    name: str
    kind: str
    note: str


class UnseenRows(NamedTuple):
    """Rows of a block with an unseen level in one column, and the cells of that column."""

    column: int
    rows: Array
    cells: Cells


@dataclass
class UnseenCounts:
    """Counts of unseen levels and unexpected missing values, for one warning at the end."""

    rows: int
    unseen: Counter[str]
    filled: Counter[str]

    @classmethod
    def empty(cls) -> Self:
        """Return the counts before the first row."""
        return cls(0, Counter(), Counter())

    def warn(self, table: str) -> None:
        """Warn once about unseen levels, and once about imputed values."""
        for counts, problem in (
            (self.unseen, "have categories that did not occur in training"),
            (self.filled, "lack values that were never missing in training (imputed)"),
        ):
            if counts:
                listed_counts = ", ".join(f"{n!r} ({k})" for n, k in counts.most_common(LISTED))
                more = f" and {len(counts) - LISTED} more" if len(counts) > LISTED else ""
                text = f"{table!r}: some of {self.rows:,} rows {problem}: {listed_counts}{more}"
                warnings.warn(text, UserWarning, stacklevel=3)


@dataclass(frozen=True, eq=False)
class TableEncoding:
    """How to turn tables into matrices, as learned from a training table.

    Parameters
    ----------
    columns : tuple of ColumnCode
        The feature columns, in the order of the training table.
    dropped : tuple of Dropped
        Columns without features.
    target : Target or None
        The target column.
    missing_values : tuple of str
        Texts that mean a missing value.
    header : bool
        Whether the training table had column names.
    table_columns : tuple of str
        All columns of the training table, in order.
    hints : Hints
        CSV dialect to assume for later files that leave it open.
    n_rows, n_dropped : int
        Rows used for learning, and rows dropped because their target was missing.
    leaks : tuple of str
        Columns that nearly determine the target by themselves.
    delimiter : str
        Delimiter of a CSV file; empty for other tables.
    """

    columns: tuple[ColumnCode, ...]
    dropped: tuple[Dropped, ...] = ()
    target: Target | None = None
    missing_values: tuple[str, ...] = ()
    header: bool = True
    table_columns: tuple[str, ...] = ()
    hints: Hints = NO_HINTS
    n_rows: int = 0
    n_dropped: int = 0
    leaks: tuple[str, ...] = ()
    delimiter: str = ""

    # -- description --------------------------------------------------------------------
    @property
    def n_features(self) -> int:
        """Number of output columns."""
        return self._ends[-1]

    @cached_property
    def sparse(self) -> bool:
        """Whether matrices are CSR: many columns, nearly all of which are zero in a row."""
        filled = sum(1 if column.sparse else column.width for column in self.columns)
        many = self.n_features >= SPARSE_COLUMNS
        has_words = any(column.sparse for column in self.columns)
        return has_words and many and filled <= SPARSE_DENSITY * self.n_features

    def get_feature_names_out(self) -> Array:
        """Names of the output columns."""
        names = [name for column in self.columns for name in column.output_names]
        return np.array(names, dtype=object)

    def notes(self) -> dict[str, str]:
        """Return what was assumed about every column that is not plain numbers."""
        notes = {column.name: column.note for column in self.columns if column.note}
        notes |= {column.name: column.note for column in self.dropped}
        return {name: notes[name] for name in self.table_columns if name in notes}

    def kinds(self) -> dict[str, str]:
        """Return the kind of each column except the target."""
        kinds = {column.name: column.kind for column in self.columns}
        kinds |= {column.name: column.kind for column in self.dropped}
        return {name: kinds[name] for name in self.table_columns if name in kinds}

    def summary(self) -> dict[str, str]:
        """Return a description of the encoding of each column except the target."""
        notes, texts = self.notes(), {}
        for name, kind in self.kinds().items():
            note = notes.get(name, "")
            texts[name] = note if note.startswith(kind) else f"{kind} ({note})" if note else kind
            if name in self.leaks:
                texts[name] += "; nearly determines the target by itself"
        return texts

    def with_leaks(self, leaks: tuple[str, ...]) -> Self:
        """Return the same encoding with these leaks recorded."""
        return replace(self, leaks=leaks)

    # -- using --------------------------------------------------------------------------
    def reading(self) -> dict[str, Any]:
        """Return arguments of `open_table` for later files of the same origin."""
        known: dict[str, Any] = {"header": self.header, "likely": self.hints}
        return known | ({"missing_values": self.missing_values} if self.missing_values else {})

    def align(self, table: Table) -> dict[str, str]:
        """Return the column of a table to read for each known column.

        Columns are matched by name. The target may be absent: a table without header that has
        exactly one column less is matched by position, without the target.
        """
        wanted = [column.name for column in self.columns]
        names, target = table.column_names, None if self.target is None else self.target.name
        by_position = not self.header and not table.header and target is not None
        if by_position and len(names) == len(self.table_columns) - 1:
            features = [name for name in self.table_columns if name != target]
            return {new: old for new, old in zip(features, names, strict=True) if new in wanted}
        absent = [name for name in wanted if name not in names]
        if absent:
            raise ValueError(self._lacking(table, absent))
        known = {*self.table_columns, *table.index_columns}
        extra = [name for name in names if name not in known]
        if extra:
            text = f"{table.name!r}: ignoring {listed(extra)}, not present in training"
            warnings.warn(text, UserWarning, stacklevel=2)
        if target is not None and target in names:
            wanted.append(target)
        return {name: name for name in wanted}

    def _lacking(self, table: Table, absent: list[str]) -> str:
        advice = ""
        if table.header != self.header:
            advice = "; the first line was read " + ("as names" if table.header else "as data")
        free = {name.casefold(): name for name in table.column_names}
        for name in self.table_columns:
            free.pop(name.casefold() if name not in absent else "", None)
        close = [get_close_matches(name.casefold(), free, n=1, cutoff=0.6) for name in absent]
        pairs = [(name, free[found[0]]) for name, found in zip(absent, close, strict=True) if found]
        if pairs:
            shown = ", ".join(f"{there!r} for {name!r}" for name, there in pairs[:3])
            advice += f"; did you mean {shown}? Rename it"
        return f"{table.name!r} lacks {listed(absent)}, which the model was fitted on{advice}"

    def transform(
        self,
        batch: pa.RecordBatch,
        decimal: str = ".",
        rows: Array | None = None,
        counts: UnseenCounts | None = None,
    ) -> tuple[Matrix, list[UnseenRows]]:
        """Return the float64 matrix of some rows, dense or CSR, and the rows with unseen levels.

        ``decimal`` is the decimal separator of numbers in text, and ``rows`` are row numbers for
        error messages. ``counts`` is updated with the unseen levels and missing values.
        """
        unseen_rows: list[UnseenRows] = []
        parts: list[Any] = []
        groups = groupby(enumerate(self.columns), lambda item: self.sparse and item[1].sparse)
        for words, group in groups:
            numbered = list(group)
            first, last = numbered[0][0], numbered[-1][0]
            block = None
            if not words:
                block = np.zeros((len(batch), self._ends[last + 1] - self._ends[first]))
                parts.append(block)
            for index, column in numbered:
                cells = Cells(batch[column.name], self.missing_values, decimal, rows)
                if cells.kind == Kind.OTHER:
                    held = batch[column.name].type
                    raise ValueError(
                        f"column {column.name!r} contains {held}, but was {column.kind} in training"
                    )
                if block is None:
                    parts += _word_parts(column, cells)
                    continue
                place = slice(*(end - self._ends[first] for end in self._ends[index : index + 2]))
                unseen = column.encode(cells, block[:, place])
                if unseen is not None:
                    unseen_rows.append(UnseenRows(index, np.flatnonzero(unseen), cells))
        if counts is not None:
            self._count(unseen_rows, len(batch), counts)
        if not self.sparse:
            return parts[0], unseen_rows
        whole = sparse.hstack([sparse.csr_array(part) for part in parts], format="csr")
        return sparse.csr_array(whole), unseen_rows

    def _count(self, unseen: Sequence[UnseenRows], n_rows: int, counts: UnseenCounts) -> None:
        counts.rows += n_rows
        for index, rows, cells in unseen:
            column = self.columns[index]
            name, absent = column.name, len(rows)
            if column.has_levels:
                absent = int(cells.absent[rows].sum())
            counts.filled.update({name: absent} if absent else {})
            counts.unseen.update({name: len(rows) - absent} if absent < len(rows) else {})

    def alternatives(self, X: Matrix, unseen: Sequence[UnseenRows]) -> tuple[Array, Matrix]:
        """Return rows with unseen levels, and `N_DRAWS` copies of each with levels of training.

        Returns
        -------
        rows : ndarray of int
            The rows.
        alternatives : array or csr_array of shape (`N_DRAWS` * len(rows), n_features)
            The copies of each row, one row after another.
        """
        drawn: list[tuple[int, Array, Array]] = []
        for index, rows, cells in unseen:
            values = self.columns[index].draws(cells.only(rows))
            if values is not None:
                drawn.append((index, rows, values))
        if not drawn:
            return np.zeros(0, dtype=np.int64), X[:0]
        rows = np.unique(np.concatenate([part for _, part, _ in drawn]))
        copies: Any = X[np.repeat(rows, N_DRAWS)]
        copies = copies.toarray() if self.sparse else copies
        shuffle = np.random.default_rng(0)
        for index, own, values in drawn:
            # Columns are drawn independently: each has its own order of levels.
            order = shuffle.permutation(N_DRAWS)
            places = np.searchsorted(rows, own)[:, None] * N_DRAWS + np.arange(N_DRAWS)
            copies[places, self._ends[index] : self._ends[index + 1]] = values[:, order]
        return rows, sparse.csr_array(copies) if self.sparse else copies

    # -- as plain values ----------------------------------------------------------------
    def to_json(self) -> dict[str, Any]:
        """Return plain values and arrays."""
        return {
            "form": FORM,
            "columns": [column.to_json() for column in self.columns],
            "dropped": [list(column) for column in self.dropped],
            "target": None if self.target is None else self.target.to_json(),
            "missing_values": list(self.missing_values),
            "header": self.header,
            "table_columns": list(self.table_columns),
            "hints": self.hints.to_json(),
            "n_rows": self.n_rows,
            "n_dropped": self.n_dropped,
            "leaks": list(self.leaks),
            "delimiter": self.delimiter,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the encoding that `to_json` wrote."""
        if plain.get("form") != FORM:
            raise ValueError(f"not a table encoding of form {FORM!r}: {plain.get('form')!r}")
        try:
            target = plain["target"]
            return cls(
                columns=tuple(map(column_from_json, plain["columns"])),
                dropped=tuple(Dropped(*map(str, column)) for column in plain["dropped"]),
                target=None if target is None else Target.from_json(target),
                missing_values=_strings(plain["missing_values"]),
                header=bool(plain["header"]),
                table_columns=_strings(plain["table_columns"]),
                hints=Hints.from_json(plain["hints"]),
                n_rows=int(plain["n_rows"]),
                n_dropped=int(plain["n_dropped"]),
                leaks=_strings(plain["leaks"]),
                delimiter=str(plain["delimiter"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"damaged table encoding: {error!r}") from error

    # -- private ------------------------------------------------------------------------
    @cached_property
    def _ends(self) -> list[int]:
        """Start of the output columns of each column, and the end of the last."""
        ends: list[int] = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
        return ends


def listed(names: Sequence[str]) -> str:
    """Return the first few names for a message."""
    noun = "column " if len(names) == 1 else "columns "
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return noun + ", ".join(map(repr, names[:LISTED])) + more


def _word_parts(column: ColumnCode, cells: Cells) -> list[Any]:
    """Return the sparse columns of free text."""
    matrix = column.matrix(cells)  # type: ignore[attr-defined]
    return [matrix, cells.absent[:, None].astype(float)] if column.had_missing else [matrix]


def _strings(items: Sequence[Any]) -> tuple[str, ...]:
    if isinstance(items, str):
        raise TypeError(f"expected a list of texts, got {items!r}")
    return tuple(map(str, items))
