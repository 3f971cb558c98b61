"""`TableFeatures`: encoding of tables with columns of any kind, as a scikit-learn transformer."""

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
from likelier.tables.encoding import TableEncoding, UnseenCounts
from likelier.tables.first_pass import SAMPLE_ROWS
from likelier.tables.leaks import find_leaks
from likelier.tables.learn import learn_encoding
from likelier.tables.sources import is_table


class TableFeatures(TransformerMixin, BaseEstimator):
    """Encode a table with columns of any kind as a numeric feature matrix.

    The kind of each column is detected: numbers (also with units, currencies, percent signs or
    decimal commas), categories, dates and times, free text, booleans. Missing values are imputed
    and marked by an indicator column. Identifiers and constants are dropped. See `summary`.

    Parameters
    ----------
    kinds : dict of str to str, default=None
        Kinds of columns that should not be detected, by name: "number", "category", "text",
        "date", "boolean", "identifier" or "constant"; the last two are dropped.
    max_categories : int, default=40
        Categories with at most this many levels are one-hot encoded, with rare levels pooled;
        those with more are encoded by spelling.
    n_components : int, default=30
        Number of dense columns for a category encoded by spelling.
    sparse_output : bool, default=False
        Return a CSR matrix, with a column for each word of free text. Otherwise texts with many
        words are reduced to at most 100 dense columns.

    Attributes
    ----------
    encoding_ : TableEncoding
        The learned encoding of each column, which does not depend on scikit-learn.
    n_features_in_ : int
        Number of columns of the table.
    feature_names_in_ : ndarray of str
        Column names, if they are strings.

    Notes
    -----
    Numbers are imputed with the median. Dates become days since the first one, the year, and sine
    and cosine of month, day, weekday and hour, as far as these vary. Categories with many levels
    become TF-IDF weights of hashed character 3- and 4-grams, projected to their `n_components`
    leading directions. A level that did not occur in training is encoded as the average over the
    levels of training.

    `fit` makes one pass over the rows, and two more if there is text or a category with many
    levels. Its memory does not grow with the number of rows.

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
        """Learn the encoding of the columns.

        Parameters
        ----------
        X : data frame, dict of columns, path, likelier.data.Table or array
            pandas, Polars and Arrow frames; a CSV or Parquet file.
        y : array-like, default=None
            The target, used only to detect columns that nearly determine it by themselves
            (`encoding_.leaks`).
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
        """Return the features of the rows of a table as float64.

        Columns are matched by name; columns unknown to `fit` are ignored with a warning.
        """
        check_is_fitted(self)
        table = self._opened(X, reset=False)
        encoding, start = self.encoding_, 0
        parts: list[Any] = []
        columns, counts = encoding.align(table), UnseenCounts.empty()
        for raw in table.blocks(default_block_rows(encoding.n_features), list(columns.values())):
            batch = raw.rename_columns(list(columns))
            rows = np.arange(start, start + batch.num_rows)
            try:
                parts.append(encoding.transform(batch, table.decimal, rows, counts)[0])
            except ValueError as error:
                raise ValueError(f"{table.name!r}: {error}") from error
            start += batch.num_rows
        counts.warn(table.name)
        if not parts:
            raise ValueError(f"{table.name!r} contains no rows (0 samples); at least 1 is required")
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
        """Return a description of the encoding of each column, one per line."""
        check_is_fitted(self)
        return "\n".join(f"{name}: {text}" for name, text in self.encoding_.summary().items())

    # -- private ------------------------------------------------------------------------
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
        """Return the columns of an array, with the names that `fit` gave them."""
        if reset:
            self.__dict__.pop("feature_names_in_", None)
        array: Any = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite=False)
        if array.dtype.kind == "c":
            raise ValueError("Complex data not supported: X contains complex numbers")
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
    """Return the columns of a table that nearly determine the target by themselves."""
    drawn = np.sort(np.random.default_rng(0).permutation(encoding.n_rows)[:SAMPLE_ROWS])

    def cells(name: str) -> Cells:
        (batch,) = table.blocks(encoding.n_rows, [name])
        whole = Cells(batch[name], encoding.missing_values, table.decimal)
        return whole.only(drawn)

    return find_leaks(encoding.columns, cells, y[drawn])
