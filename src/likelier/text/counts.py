"""Term counts: rows of counts per block, document frequencies, and the selection of terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Self

import numpy as np
from scipy import sparse

from likelier.base import Array
from likelier.text.analysis import Spans
from likelier.text.loops.ngrams import count_rows, hash_rows
from likelier.text.loops.term_rows import add_frequencies, sort_rows
from likelier.text.vocabulary import TermTable, Vocabulary


@dataclass
class Rows:
    """Term counts of documents, collected block by block; `matrix` assembles them.

    A term is an index into a growing table or a vocabulary, or the column of a hashed term.
    """

    terms: list[Array] = field(default_factory=list)
    counts: list[Array] = field(default_factory=list)
    sizes: list[Array] = field(default_factory=list)
    lengths: list[Array] = field(default_factory=list)

    def add(self, terms: Array, counts: Array, row_ends: Array, spans: Spans) -> None:
        """Append the rows of a block."""
        self.terms.append(terms)
        self.counts.append(counts)
        self.sizes.append(np.diff(row_ends, prepend=0))
        self.lengths.append(spans.lengths)

    @property
    def all_lengths(self) -> Array:
        """Number of terms of each document, including those without a column."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.lengths])

    def hashed(self, n_features: int) -> sparse.csr_array:
        """Return the count matrix of hashed terms, which are sorted columns."""
        row_ends, indices, data = self._joined()
        indptr = np.append(0, row_ends).astype(_index_type(len(data)))
        return sparse.csr_array(
            (data, indices.astype(indptr.dtype, copy=False), indptr),
            shape=(len(row_ends), n_features),
        )

    def matrix(self, column_of: Array, n_columns: int) -> sparse.csr_array:
        """Return the count matrix, given the column of each term (-1: none)."""
        row_ends, terms, counts = self._joined()
        index_type = _index_type(len(terms))
        indptr = np.empty(len(row_ends) + 1, dtype=index_type)
        indices = np.empty(len(terms), dtype=index_type)
        data = np.empty(len(terms), dtype=np.int32)
        size = sort_rows(terms, counts, row_ends, column_of, n_columns, indptr, indices, data)
        return sparse.csr_array(
            (data[:size], indices[:size], indptr), shape=(len(row_ends), n_columns)
        )

    def _joined(self) -> tuple[Array, Array, Array]:
        """Concatenate the row ends, terms and counts of all blocks, and release the blocks."""
        none = np.zeros(0, dtype=np.int32)
        row_ends = np.cumsum(np.concatenate([np.zeros(0, dtype=np.int64), *self.sizes]))
        terms = np.concatenate([none, *self.terms])
        self.terms.clear()
        counts = np.concatenate([none, *self.counts])
        self.counts.clear()
        return row_ends, terms, counts


class Counter:
    """Counts the terms of documents, with a fixed vocabulary or a growing table of terms.

    Parameters
    ----------
    vocabulary : Vocabulary, optional
        The terms to count; by default all terms.
    so_far : TermStatistics, optional
        Statistics of earlier documents, to continue from.
    """

    def __init__(
        self, vocabulary: Vocabulary | None = None, so_far: TermStatistics | None = None
    ) -> None:
        self._table: Vocabulary | TermTable = TermTable() if vocabulary is None else vocabulary
        self._entry_of = np.full(0, -1, dtype=np.int64)
        self._n_entries = 0
        if so_far is not None and vocabulary is None:
            self._table = TermTable(so_far.vocabulary)

    def count(self, spans: Spans) -> tuple[Array, Array, Array]:
        """Return terms and counts of the documents of a block, and the end of each row."""
        numbers = self._table.numbers(spans.text, spans.starts, spans.stops)
        self._extend()
        terms = np.empty(len(numbers), dtype=np.int32)
        counts = np.empty(len(numbers), dtype=np.int32)
        row_ends = np.empty(len(spans.doc_ends), dtype=np.int64)
        size = count_rows(
            numbers, spans.doc_ends, self._entry_of, self._n_entries, terms, counts, row_ends
        )
        self._n_entries += size
        return terms[:size].copy(), counts[:size].copy(), row_ends

    @property
    def n_terms(self) -> int:
        """Number of terms."""
        table = self._table
        return table.n_terms if isinstance(table, TermTable) else len(table)

    @property
    def table(self) -> TermTable:
        """The growing table; undefined with a fixed vocabulary."""
        assert isinstance(self._table, TermTable)
        return self._table

    def _extend(self) -> None:
        missing = self.n_terms - len(self._entry_of)
        if missing > 0:
            room = np.full(missing + len(self._entry_of), -1, dtype=np.int64)
            self._entry_of = np.append(self._entry_of, room)


def count_hashed(spans: Spans, n_features: int, signed: bool) -> tuple[Array, Array, Array]:
    """Return columns and counts of hashed terms of a block, and the end of each row."""
    columns = np.empty(len(spans.starts) + 1, dtype=np.int32)
    counts = np.empty(len(spans.starts) + 1, dtype=np.int32)
    row_ends = np.empty(len(spans.doc_ends), dtype=np.int64)
    arrays = (spans.text, spans.starts, spans.stops, spans.doc_ends)
    size = hash_rows(*arrays, n_features, signed, columns, counts, row_ends)
    return columns[:size].copy(), counts[:size].copy(), row_ends


@dataclass(frozen=True)
class TermStatistics:
    """Terms with their document frequencies and total occurrences, which `partial_fit` extends.

    ``vocabulary`` is None for hashed terms.
    """

    vocabulary: Vocabulary | None
    documents: Array
    occurrences: Array
    n_documents: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values: a vocabulary and arrays."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the statistics that `to_json` wrote."""
        found = cls(**plain)
        n_terms = len(found.documents if found.vocabulary is None else found.vocabulary)
        if not len(found.documents) == len(found.occurrences) == n_terms:
            raise ValueError("damaged term statistics: lengths differ")
        return found


class Frequencies:
    """Accumulates document frequencies and total occurrences of terms."""

    def __init__(self, so_far: TermStatistics | None = None, n_terms: int = 0) -> None:
        self.n_documents = 0 if so_far is None else so_far.n_documents
        self.documents = np.zeros(n_terms, dtype=np.int64)
        self.occurrences = np.zeros(n_terms, dtype=np.int64)
        if so_far is not None:
            self.documents, self.occurrences = so_far.documents.copy(), so_far.occurrences.copy()

    def add(self, terms: Array, counts: Array, n_terms: int) -> None:
        """Add the rows of a block, of ``n_terms`` terms so far."""
        missing = n_terms - len(self.documents)
        if missing > 0:
            room = np.zeros(missing + n_terms, dtype=np.int64)
            self.documents = np.append(self.documents, room)
            self.occurrences = np.append(self.occurrences, room)
        add_frequencies(terms, counts, self.documents, self.occurrences)

    def statistics(self, vocabulary: Vocabulary | None) -> TermStatistics:
        """Return the statistics; ``vocabulary`` lists the terms by index."""
        n_terms = len(self.documents) if vocabulary is None else len(vocabulary)
        parts = (self.documents[:n_terms].copy(), self.occurrences[:n_terms].copy())
        return TermStatistics(vocabulary, *parts, self.n_documents)


@dataclass(frozen=True)
class Selection:
    """Selection of the terms that become columns, by document frequency and occurrences."""

    min_df: int | float = 1
    max_df: int | float = 1.0
    max_features: int | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether all terms are kept."""
        whole = self.max_df == 1.0 and not isinstance(self.max_df, Integral)
        none = self.min_df == 0 or (self.min_df == 1 and isinstance(self.min_df, Integral))
        return whole and none and self.max_features is None

    def columns(
        self, order: Array, found: Frequencies, binary: bool, dtype: np.dtype[Any]
    ) -> Array:
        """Return the kept terms in column order; ``order`` is the order of all terms.

        Ties are broken as in scikit-learn, which sorts counts of type ``dtype`` by an unstable
        method.
        """
        if not len(order):
            raise ValueError(
                "empty vocabulary: the documents contain no terms; check that there are documents, "
                "that they have more than stop words, and that token_pattern matches their words"
            )
        documents = found.documents[order]
        most = _count(self.max_df, found.n_documents)
        least = _count(self.min_df, found.n_documents)
        if most < least:
            raise ValueError(
                f"max_df={self.max_df!r} corresponds to fewer documents than min_df={self.min_df!r}"
            )
        kept = np.flatnonzero((documents >= least) & (documents <= most))
        if self.max_features is not None and len(kept) > self.max_features:
            frequency = documents if binary else found.occurrences[order]
            first = np.argsort(-frequency[kept].astype(dtype))[: self.max_features]
            kept = np.sort(kept[first])
        if not len(kept):
            raise ValueError(
                "no terms remain: each occurs in too few or too many documents; use a lower min_df "
                "or a higher max_df"
            )
        return order[kept]


def _count(bound: Any, n_documents: int) -> float:
    """Return a bound as a number of documents; floats are fractions."""
    return float(bound if isinstance(bound, Integral) else bound * n_documents)


def _index_type(size: int) -> type[np.signedinteger[Any]]:
    return np.int32 if size < 2**31 - 1 else np.int64
