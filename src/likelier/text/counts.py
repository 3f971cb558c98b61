"""Counting terms: rows of counts block by block, additive frequencies, and which terms to keep."""

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
    """Counts of terms in documents, block after block; `matrix` puts them together.

    A term is a number, of a growing table or of a vocabulary, or a column of hashed terms.
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
        """Number of terms of each document, kept or not."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.lengths])

    def hashed(self, n_features: int) -> sparse.csr_array:
        """Return the matrix of counts if terms are columns, in order within each row."""
        row_ends, indices, data = self._joined()
        indptr = np.append(0, row_ends).astype(_index_type(len(data)))
        return sparse.csr_array(
            (data, indices.astype(indptr.dtype, copy=False), indptr),
            shape=(len(row_ends), n_features),
        )

    def matrix(self, column_of: Array, n_columns: int) -> sparse.csr_array:
        """Return the matrix of counts in which terms have these columns, -1 being none."""
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
        """End of each row, terms and counts of all blocks, which are let go."""
        none = np.zeros(0, dtype=np.int32)
        row_ends = np.cumsum(np.concatenate([np.zeros(0, dtype=np.int64), *self.sizes]))
        terms = np.concatenate([none, *self.terms])
        self.terms.clear()
        counts = np.concatenate([none, *self.counts])
        self.counts.clear()
        return row_ends, terms, counts


class Counter:
    """Counts the terms of documents: those of a vocabulary, or with none of a growing table.

    Parameters
    ----------
    vocabulary : Vocabulary, optional
        The only terms that count; without it all do.
    so_far : TermStatistics, optional
        What earlier documents gave, to go on from.
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
        """Return terms and counts of the documents of a block, and where each row ends."""
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
        """How many terms there are."""
        table = self._table
        return table.n_terms if isinstance(table, TermTable) else len(table)

    @property
    def table(self) -> TermTable:
        """The growing table; there is none if only the terms of a vocabulary count."""
        assert isinstance(self._table, TermTable)
        return self._table

    def _extend(self) -> None:
        missing = self.n_terms - len(self._entry_of)
        if missing > 0:
            room = np.full(missing + len(self._entry_of), -1, dtype=np.int64)
            self._entry_of = np.append(self._entry_of, room)


def count_hashed(spans: Spans, n_features: int, signed: bool) -> tuple[Array, Array, Array]:
    """Return columns and counts of hashed terms of a block, and where each row ends."""
    columns = np.empty(len(spans.starts) + 1, dtype=np.int32)
    counts = np.empty(len(spans.starts) + 1, dtype=np.int32)
    row_ends = np.empty(len(spans.doc_ends), dtype=np.int64)
    places = (spans.text, spans.starts, spans.stops, spans.doc_ends)
    size = hash_rows(*places, n_features, signed, columns, counts, row_ends)
    return columns[:size].copy(), counts[:size].copy(), row_ends


@dataclass(frozen=True)
class TermStatistics:
    """What is remembered of documents: terms, how many documents hold each, how often in all.

    ``vocabulary`` is None for hashed terms. It can be saved, and more documents added to it.
    """

    vocabulary: Vocabulary | None
    documents: Array
    occurrences: Array
    n_documents: int

    def to_json(self) -> dict[str, Any]:
        """Plain form, of a vocabulary and arrays."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Make it again from its plain form."""
        found = cls(**plain)
        n_terms = len(found.documents if found.vocabulary is None else found.vocabulary)
        if not len(found.documents) == len(found.occurrences) == n_terms:
            raise ValueError("damaged counts of terms: their lengths differ")
        return found


class Frequencies:
    """Adds up how many documents hold each term, and how often."""

    def __init__(self, so_far: TermStatistics | None = None, n_terms: int = 0) -> None:
        self.n_documents = 0 if so_far is None else so_far.n_documents
        self.documents = np.zeros(n_terms, dtype=np.int64)
        self.occurrences = np.zeros(n_terms, dtype=np.int64)
        if so_far is not None:
            self.documents, self.occurrences = so_far.documents.copy(), so_far.occurrences.copy()

    def add(self, terms: Array, counts: Array, n_terms: int) -> None:
        """Add the rows of a block; there are ``n_terms`` terms by now."""
        missing = n_terms - len(self.documents)
        if missing > 0:
            room = np.zeros(missing + n_terms, dtype=np.int64)
            self.documents = np.append(self.documents, room)
            self.occurrences = np.append(self.occurrences, room)
        add_frequencies(terms, counts, self.documents, self.occurrences)

    def statistics(self, vocabulary: Vocabulary | None) -> TermStatistics:
        """Return what was added up; ``vocabulary`` lists the terms by number."""
        n_terms = len(self.documents) if vocabulary is None else len(vocabulary)
        parts = (self.documents[:n_terms].copy(), self.occurrences[:n_terms].copy())
        return TermStatistics(vocabulary, *parts, self.n_documents)


@dataclass(frozen=True)
class Selection:
    """Which terms become columns: those of enough and not too many documents, the commonest."""

    min_df: int | float = 1
    max_df: int | float = 1.0
    max_features: int | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether no term is ever left out."""
        whole = self.max_df == 1.0 and not isinstance(self.max_df, Integral)
        none = self.min_df == 0 or (self.min_df == 1 and isinstance(self.min_df, Integral))
        return whole and none and self.max_features is None

    def columns(
        self, order: Array, found: Frequencies, binary: bool, dtype: np.dtype[Any]
    ) -> Array:
        """Return the kept terms in the order of their columns, ``order`` being that of all.

        Of equally common terms the same ones stay as in scikit-learn, which sorts numbers of
        type ``dtype`` by a method that keeps no order among equals.
        """
        if not len(order):
            raise ValueError(
                "empty vocabulary: there is no term in the documents; are there documents, do "
                "they hold more than stop words, and does token_pattern suit them?"
            )
        documents = found.documents[order]
        most = _count(self.max_df, found.n_documents)
        least = _count(self.min_df, found.n_documents)
        if most < least:
            raise ValueError(
                f"max_df={self.max_df!r} asks for fewer documents than min_df={self.min_df!r}"
            )
        kept = np.flatnonzero((documents >= least) & (documents <= most))
        if self.max_features is not None and len(kept) > self.max_features:
            commonness = documents if binary else found.occurrences[order]
            first = np.argsort(-commonness[kept].astype(dtype))[: self.max_features]
            kept = np.sort(kept[first])
        if not len(kept):
            raise ValueError(
                "no term remains: every one is in too few or too many documents; use a lower "
                "min_df or a higher max_df"
            )
        return order[kept]


def _count(bound: Any, n_documents: int) -> float:
    """Return a number of documents, which a share of them also is."""
    return float(bound if isinstance(bound, Integral) else bound * n_documents)


def _index_type(size: int) -> type[np.signedinteger[Any]]:
    return np.int32 if size < 2**31 - 1 else np.int64
