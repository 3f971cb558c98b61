"""`TableFeatures`: tables of any kind of column for scikit-learn's pipelines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from likelier.base import Array, Matrix
from likelier.data.tables import Table, default_block_rows, open_table
from likelier.matrices import checked_matrix
from likelier.tables.cells import Cells
from likelier.tables.decide import Choices
from likelier.tables.encoding import Seen, TableEncoding
from likelier.tables.first_pass import SAMPLE_ROWS
from likelier.tables.leaks import find_leaks
from likelier.tables.learn import learn_encoding
from likelier.tables.sources import is_table


class TableFeatures(TransformerMixin, BaseEstimator):
    """Turn a table as people have it into numbers that a model can learn from.

    The kind of every column is found out: numbers (also with units, currencies, percent signs or
    decimal commas), categories, dates and times, running text, booleans. Missing values are
    filled in and marked. Identifiers and constants are left out. See `summary`.

    Parameters
    ----------
    kinds : dict of str to str, default=None
        What columns hold, by name, where it should not be found out: "number", "category",
        "text", "date", "boolean", "identifier" or "constant"; the last two are left out.
    max_categories : int, default=40
        Up to so many levels of a category get a column of zeros and ones each, and rare ones share
        one. The names of more levels are encoded by their spelling.
    n_components : int, default=30
        Dense columns for a category of many levels.
    sparse_output : bool, default=False
        Return a CSR matrix, with a column for each word of running text. Otherwise texts of many
        words become 100 dense columns each.

    Attributes
    ----------
    encoding_ : TableEncoding
        How each column is encoded; a plain value that needs no scikit-learn.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Their names, where they are strings.

    Notes
    -----
    Numbers: the median for a missing value. Dates: days since the first one, the year, and sine
    and cosine of month, day, weekday and hour, each if it varies. Many levels: TF-IDF weights of
    pieces of 3 and 4 characters, hashed, in their `n_components` leading directions. A level that
    training never saw is the average over the levels of training.

    `fit` passes over the rows once, and twice more if there is text or a category of many levels;
    it keeps none of them, and its memory does not grow with their number.

    Examples
    --------
    >>> from likelier import TableFeatures
    >>> table = {"rooms": [2, None, 4, 3], "price": ["$1,200", "$950", "$2,100", "$1,780"]}
    >>> features = TableFeatures().fit(table)
    >>> print(features.summary())
    rooms: number
    price: numbers with the thousands separator ',' and the currency '$'
    >>> features.transform(table)
    array([[2.00e+00, 0.00e+00, 1.20e+03],
           [3.00e+00, 1.00e+00, 9.50e+02],
           [4.00e+00, 0.00e+00, 2.10e+03],
           [3.00e+00, 0.00e+00, 1.78e+03]])
    """

    def __init__(
        self,
        kinds: Mapping[str, str] | None = None,
        *,
        max_categories: int = 40,
        n_components: int = 30,
        sparse_output: bool = False,
    ) -> None:
        self.kinds = kinds
        self.max_categories = max_categories
        self.n_components = n_components
        self.sparse_output = sparse_output

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn how to encode the columns.

        Parameters
        ----------
        X : data frame, dict of columns, path, likelier.data.Table or array
            pandas, Polars and Arrow frames; a CSV or Parquet file.
        y : array-like, default=None
            The target, only to name columns that alone nearly determine it (`encoding_.leaks`).
        """
        self._check_parameters()
        table = self._opened(X, reset=True)
        choices = Choices(
            dict(self.kinds or {}),
            max_levels=self.max_categories,
            n_components=self.n_components,
            dense=not self.sparse_output,
        )
        encoding = learn_encoding(table, choices=choices)
        if y is not None:
            check_consistent_length(np.empty(encoding.n_rows), y)
            leaks = _leaks(table, encoding, column_or_1d(y, warn=True))
            encoding = encoding.with_leaks(leaks)
        self.encoding_ = encoding
        return self

    def transform(self, X: Any) -> Matrix:
        """Return the features of the rows of a table, as float64.

        Columns are found by name; others than those of `fit` are ignored, with a warning.
        """
        check_is_fitted(self)
        table = self._opened(X, reset=False)
        encoding, start = self.encoding_, 0
        parts: list[Any] = []
        columns, seen = encoding.align(table), Seen.nothing()
        for raw in table.blocks(default_block_rows(encoding.n_features), list(columns.values())):
            batch = raw.rename_columns(list(columns))
            rows = np.arange(start, start + batch.num_rows)
            try:
                parts.append(encoding.transform(batch, table.decimal, rows, seen)[0])
            except ValueError as error:
                raise ValueError(f"{table.name!r}: {error}") from error
            start += batch.num_rows
        seen.warn(table.name)
        if not parts:
            raise ValueError(f"{table.name!r} holds no rows (0 samples); at least 1 is required")
        if self.sparse_output:
            parts = [sparse.csr_array(part) for part in parts]
            return sparse.csr_array(sparse.vstack(parts, format="csr"))
        if encoding.sparse:
            parts = [part.toarray() for part in parts]
        whole: Array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the features; ``input_features`` is not used."""
        check_is_fitted(self)
        return self.encoding_.get_feature_names_out()

    def summary(self) -> str:
        """Return what each column was taken for, a line each."""
        check_is_fitted(self)
        said = self.encoding_.summary()
        return "\n".join(f"{name}: {text}" for name, text in said.items())

    # -- inside -------------------------------------------------------------------------
    def _check_parameters(self) -> None:
        for name in ("max_categories", "n_components"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.kinds is not None and not isinstance(self.kinds, Mapping):
            raise TypeError(f"kinds must be a dict of column to kind, got {self.kinds!r}")

    def _opened(self, X: Any, reset: bool) -> Table:
        if isinstance(X, np.ma.MaskedArray):  # masked values are missing
            masked: Any = X.astype(float) if X.dtype.kind in "biuf" else X
            X = masked.filled(np.nan if X.dtype.kind in "biuf" else None)
        X = checked_matrix(X)
        if isinstance(X, Table):
            table = X
        elif isinstance(X, str | os.PathLike):
            reading = {} if reset else self.encoding_.reading()
            table = open_table(X, **reading)
        elif is_table(X):
            table = open_table(X)
        else:
            return self._opened_array(X, reset)
        if reset:
            self.n_features_in_ = len(table.column_names)
            self.feature_names_in_ = np.array(table.column_names, dtype=object)
        return table

    def _opened_array(self, X: Any, reset: bool) -> Table:
        """Return the columns of an array, by the names of `fit` where there were names."""
        if reset:
            self.__dict__.pop("feature_names_in_", None)
        array: Any = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
        if array.dtype.kind == "c":
            raise ValueError("Complex data not supported: X holds complex numbers")
        names = [f"x{i}" for i in range(array.shape[1])]
        if not reset:
            names = list(self.encoding_.table_columns)
        columns = {name: array[:, place] for place, name in enumerate(names)}
        return open_table(columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


def _leaks(table: Table, encoding: TableEncoding, y: Array) -> tuple[str, ...]:
    """Return the columns of a table that alone nearly determine some targets."""
    drawn = np.sort(np.random.default_rng(0).permutation(encoding.n_rows)[:SAMPLE_ROWS])

    def cells(name: str) -> Cells:
        (batch,) = table.blocks(encoding.n_rows, [name])
        whole = Cells(batch[name], encoding.missing_values, table.decimal)
        return whole.only(drawn)

    return find_leaks(encoding.columns, cells, y[drawn])
