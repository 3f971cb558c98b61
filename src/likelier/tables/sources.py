"""Sources of encoded blocks for streaming fits, from a file, a frame or an iterator."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from likelier.base import Array, Batch, Matrix
from likelier.data.columns import mask_array
from likelier.data.files import as_path, detect_format
from likelier.data.libsvm import LibsvmLayout
from likelier.data.sources import IterableSource, LibsvmSource, Source
from likelier.data.tables import Table, default_block_rows, open_table
from likelier.tables.encoding import TableEncoding, UnseenCounts, UnseenRows
from likelier.tables.target import has_target

Encoder = TableEncoding | LibsvmLayout


class Encoded(NamedTuple):
    """A block of encoded rows, and the rows of it with unseen levels (``strange``)."""

    X: Matrix
    y: Array | None
    strange: list[UnseenRows]


class TableSource(Source):
    """Encoded blocks of a table; ``y`` is None if the table has no target column.

    If the target is read, rows without a target are dropped.
    """

    def __init__(self, table: Table, encoder: TableEncoding, block_rows: int | None = None) -> None:
        self.encoder: TableEncoding = encoder
        self._table = table
        self._columns = encoder.align(table)
        self._block_rows = block_rows or default_block_rows(encoder.n_features)

    def unlabelled(self) -> TableSource:
        """Return the same rows without reading the target, so that no row is dropped."""
        target = self.encoder.target
        bare = copy(self)
        bare._columns = {
            k: v for k, v in self._columns.items() if target is None or k != target.name
        }
        return bare

    @property
    def n_features(self) -> int:
        """Number of columns after encoding."""
        return self.encoder.n_features

    def __call__(self) -> Generator[Batch, None, None]:
        """Yield the blocks from the first."""
        index = start = 0
        for block in self.encoded():
            yield Batch(block.X, block.y, index=index, start=start)
            index, start = index + 1, start + int(block.X.shape[0])

    def encoded(self) -> Iterator[Encoded]:
        """Yield blocks with their unseen rows, and warn about these at the end."""
        encoder, decimal, start = self.encoder, self._table.decimal, 0
        target = encoder.target
        labelled = target is not None and target.name in self._columns
        read, counts, n_used = list(self._columns.values()), UnseenCounts.empty(), 0
        for raw in self._table.blocks(self._block_rows, read):
            batch, first = raw.rename_columns(list(self._columns)), start
            start += raw.num_rows
            rows, y = np.arange(first, start), None
            try:
                if labelled and target is not None:
                    missing = self._table.missing_values
                    present = has_target(batch[target.name], missing)
                    batch, rows = batch.filter(mask_array(present)), rows[present]
                    if not len(rows):
                        continue
                    y = target.read(batch[target.name], missing, decimal, rows)
                X, unseen = encoder.transform(batch, decimal, rows, counts)
            except ValueError as error:
                raise ValueError(f"{self._table.name!r}: {error}") from error
            n_used += len(rows)
            yield Encoded(X, y, unseen)
        if start and not n_used:
            raise ValueError(f"{self._table.name!r} contains no rows with a target")
        counts.warn(self._table.name)


def block_source(
    data: Any,
    *,
    target: str | int | None = None,
    encoder: Encoder | None = None,
    kinds: Mapping[str, str] | None = None,
    exclude: Sequence[str | int] = (),
    dense: bool = False,
    block_rows: int | None = None,
    allow_nan: bool = False,
    **reading: Any,
) -> Source:
    """Return a source of blocks for a path, a data frame, or an iterator of blocks.

    Parameters
    ----------
    data : path, data frame, iterable, callable or Source
        A CSV, Parquet or libsvm file; a pandas, Polars or Arrow frame; an iterable of
        ``(X, y)`` or ``(X, y, sample_weight)``; or a function that returns such an iterable,
        so that it can be iterated more than once. A source is returned unchanged.
    target : str or int, optional
        Target column of a table, by name or position; libsvm files include their labels.
    encoder : TableEncoding or LibsvmLayout, optional
        Encoding of the training data, to be applied to other data; the target may then be absent.
        By default the encoding is learned from the data.
    kinds : dict of str to str, optional
        Kinds of columns that should not be detected: see `likelier.TableFeatures`.
    exclude : sequence of str or int
        Columns of a table to drop.
    dense : bool
        Whether to reduce text to a few dense columns, instead of one per word.
    block_rows : int, optional
        Rows per block; by default a block takes a few megabytes.
    allow_nan : bool
        Whether blocks may contain NaN, for models that support missing values.
    **reading
        ``format`` and options of CSV files; see `likelier.data.open_table`.
    """
    if isinstance(data, Source):
        return data
    options = {"target": target, "kinds": kinds or None, "exclude": [*exclude] or None}
    if isinstance(data, str | os.PathLike):
        path = as_path(data)
        if (reading.get("format") or detect_format(path)) == "libsvm":
            _check_no_columns(options, f"{str(path)!r} is a libsvm file")
            if isinstance(encoder, TableEncoding):
                raise ValueError(f"{str(path)!r} is a libsvm file; the model was fitted on a table")
            return LibsvmSource(path, encoder, block_rows)
    elif not is_table(data):
        _check_no_columns(options, "the data are blocks")
        if encoder is not None:
            raise ValueError("the model was fitted on a file or frame; pass one, not blocks")
        return IterableSource(data, allow_nan)
    if isinstance(encoder, LibsvmLayout):
        raise ValueError("the model was fitted on a libsvm file and cannot read a table")
    if encoder is None:
        from likelier.tables.decide import Choices  # which predicting does not need
        from likelier.tables.learn import learn_encoding

        table = open_table(data, **reading)
        encoder = learn_encoding(table, target, Choices(kinds or {}, dense=dense), exclude)
    else:
        known = None if encoder.target is None else encoder.target.name
        if target not in (None, known):
            raise ValueError(f"target is {target!r}, but the model was fitted on {known!r}")
        table = open_table(data, **{**encoder.reading(), **reading})
    return TableSource(table, encoder, block_rows)


def is_table(data: Any) -> bool:
    """Whether data are a frame or a dictionary of columns."""
    if isinstance(data, dict):
        return not sparse.issparse(data)  # some sparse matrices are dictionaries
    import narwhals as nw  # which reading files does not need

    return bool(nw.dependencies.is_into_dataframe(data))


def _check_no_columns(options: Mapping[str, Any], why: str) -> None:
    """Raise if options that refer to the columns of a table are set."""
    if any(value is not None for value in options.values()):
        names = ", ".join(options)
        raise ValueError(f"{why}, not a table: leave out {names}")


def encoded_blocks(source: Source) -> Iterator[Encoded]:
    """Yield the blocks of a source; only tables have levels that training never saw."""
    if isinstance(source, TableSource):
        yield from source.encoded()
        return
    with closing(source()) as batches:
        for batch in batches:
            yield Encoded(batch.X, batch.y, [])
