"""The first pass over a table: summaries of all columns, and a random sample of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from likelier.base import Array
from likelier.data.columns import mask_array, row_array
from likelier.data.tables import Table, default_block_rows
from likelier.tables.cells import Cells
from likelier.tables.column import ColumnCode
from likelier.tables.column_numbers import NumberColumn
from likelier.tables.encoding import listed
from likelier.tables.leaks import find_leaks, is_predictive
from likelier.tables.summaries import MAX_HASHES, ColumnSummary
from likelier.tables.target import Target, TargetLearner, has_target

# Size of the random sample, from which medians, examples of levels and leaks are computed.
SAMPLE_ROWS = 10_000
SAMPLE_CELLS = 1 << 21
# Hashes of distinct texts kept while learning, over all columns.
HASH_CELLS = 1 << 24
MIN_HASHES = 1 << 10


class FirstPass:
    """Summaries of all columns and of the target, and a random sample of rows."""

    def __init__(
        self, table: Table, columns: list[str], target: str | None, kinds: Mapping[str, str]
    ) -> None:
        self.table, self.columns = table, columns
        self.summaries = {name: ColumnSummary() for name in columns}
        self.target: TargetLearner | None = None
        if target is not None:
            self.target = TargetLearner(
                target,
                untyped=table.untyped,
                decimal=table.decimal,
                as_category=kinds.get(target) == "category",
            )
        self._target_name = target
        self._categories = {name for name, kind in kinds.items() if kind == "category"}
        self._hashes = min(MAX_HASHES, max(MIN_HASHES, HASH_CELLS // max(1, len(columns))))
        self._sample = _Sample(min(SAMPLE_ROWS, max(100, SAMPLE_CELLS // max(1, len(columns)))))
        self.n_rows = 0

    def run(self) -> None:
        """Read the table."""
        for batch in self.batches(learning=True):
            self.n_rows += batch.num_rows
            self._sample.add(batch)
            for name in self.columns:
                self.summaries[name] = self._merged(name, batch[name])
        if self.n_rows == 0:
            raise ValueError(f"{self.table.name!r} contains no rows{self._without_target()}")

    def _without_target(self) -> str:
        return "" if self.target is None or not self.target.n_missing else " with a target"

    def _merged(self, name: str, array: pa.Array) -> ColumnSummary:
        cells = self.cells(array)
        part = ColumnSummary.of(cells, self._hashes, name in self._categories)
        return self.summaries[name].merge(part, self._hashes)

    def batches(
        self, columns: Sequence[str] | None = None, learning: bool = False
    ) -> Iterator[Any]:
        """Yield blocks of the rows that have a target, restricted to some columns."""
        names = list(self.columns if columns is None else columns)
        if self._target_name is not None:
            names = [*dict.fromkeys([*names, self._target_name])]
        with closing(self.table.blocks(default_block_rows(len(names)), names)) as blocks:  # type: ignore[type-var]
            for batch in blocks:
                if self.target is not None and self._target_name is not None:
                    array, missing = batch[self._target_name], self.table.missing_values
                    if learning:
                        present = self.target.add(array, missing)
                    else:
                        present = has_target(array, missing)
                    if not present.all():
                        batch = batch.filter(mask_array(present))
                if batch.num_rows:
                    yield batch

    def cells(self, array: pa.Array) -> Cells:
        """Return the cells of a column of some rows."""
        return Cells(array, self.table.missing_values, self.table.decimal)

    def sampled(self, name: str) -> Cells:
        """Return the cells of a column in the sample."""
        return self.cells(self._sample.column(name))

    def leaks(self, codes: Sequence[ColumnCode], target: Target) -> tuple[str, ...]:
        """Return the columns that nearly determine the target by themselves."""
        return find_leaks(codes, self.sampled, self._sampled_target(target))

    def is_predictive(self, name: str, target: Target) -> bool:
        """Whether a numeric column predicts much of the target by itself."""
        y = self._sampled_target(target)
        return is_predictive(NumberColumn(name), self.sampled(name), y)

    def _sampled_target(self, target: Target) -> Array:
        array = self._sample.column(target.name)
        return target.read(array, self.table.missing_values, self.table.decimal)

    def find(self, name: str, text: str) -> int:
        """Return the 1-based number of the first row with a text in a column."""
        start = 0
        for batch in self.table.blocks(default_block_rows(1), [name]):
            rows = np.arange(start, start + batch.num_rows)
            cells = Cells(batch[name], self.table.missing_values, self.table.decimal, rows)
            if text in cells.distinct[0]:
                return cells.row_of(lambda found: found == text)[0]
            start += batch.num_rows
        return 0


class _Sample:
    """A uniform sample of rows: those with the smallest random keys."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._random = np.random.default_rng(0)
        self._keys = np.zeros(0)
        self._parts: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a block to the candidates."""
        keys = self._random.random(batch.num_rows)
        worst = self._keys.max() if len(self._keys) >= self._most else np.inf
        rows = np.flatnonzero(keys < worst)
        if not len(rows):
            return
        self._parts.append(batch.take(row_array(rows)))
        self._keys = np.concatenate([self._keys, keys[rows]])
        if len(self._keys) > 2 * self._most:
            self._trim()

    def _trim(self) -> None:
        whole = pa.concat_batches(self._parts)
        kept = np.sort(np.argsort(self._keys, kind="stable")[: self._most])
        self._parts = [whole.take(row_array(kept))]
        self._keys = self._keys[kept]

    def column(self, name: str) -> pa.Array:
        """Return a column of the sample."""
        if len(self._parts) > 1 or len(self._keys) > self._most:
            self._trim()
        return self._parts[0][name]


def resolve_column(table: Table, column: str | int, argument: str) -> str:
    """Return the name of a column given by name or position (negative: from the end)."""
    names = table.column_names
    if isinstance(column, str) and column in names:
        return column
    try:
        return names[int(column)]
    except (ValueError, TypeError, IndexError):
        numbered = "" if table.header else " (the file has no header: count from 0)"
        single = "; name the delimiter if there should be several" if len(names) == 1 else ""
        raise ValueError(
            f"{argument}: {table.name!r} has no column {column!r}{numbered}; "
            f"it has {listed(names)}{single if table.untyped else ''}"
        ) from None
