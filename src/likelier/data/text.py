"""Columns of running text: told from categories, and encoded as weighted words.

The words of a column become output columns, weighted by TF-IDF as `likelier.TextFeatures` does
by default; a word of one row only says nothing about other rows and is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa

from likelier.base import Array
from likelier.data.columns import Kind, to_texts
from likelier.data.summary import Summary
from likelier.data.tables import Table, default_block_rows
from likelier.features.text_analysis import Analysis
from likelier.features.text_counts import Counter, Frequencies, Rows, Selection
from likelier.features.text_documents import blocks
from likelier.features.text_vocabulary import Vocabulary
from likelier.features.text_weights import FLOAT64, Weighting, idf_weights

# Running text has several words in a value, and values that seldom come twice.
MIN_WORDS = 3.0
MIN_VALUES = 20
MIN_SHARE = 0.5
MIN_ROWS = 2
MAX_TERMS = 100_000


def is_running_text(summary: Summary) -> bool:
    """Whether a column should be read as text, not as categories."""
    if summary.kind != Kind.TEXT or summary.declared or summary.mean_words < MIN_WORDS:
        return False
    if summary.values is None:
        return True
    n_present = summary.n_rows - summary.n_missing
    return len(summary.values) >= max(MIN_VALUES, MIN_SHARE * n_present)


@dataclass(frozen=True)
class TextCode:
    """The words of a column, and in how many of how many rows each was; a frozen value."""

    terms: tuple[str, ...]
    documents: tuple[int, ...]
    n_documents: int

    def __post_init__(self) -> None:
        if not self.terms or len(self.terms) != len(self.documents):
            raise ValueError("damaged words of a text column: not one number for each")
        if len(set(self.terms)) != len(self.terms):
            raise ValueError("damaged words of a text column: one occurs twice")

    def matrix(self, texts: list[str]) -> Any:
        """Return the weights of the words of some rows, in CSR form."""
        analysis, counter, rows = Analysis(), Counter(self._vocabulary), Rows()
        for block in blocks(texts, analysis.block_size):
            spans = analysis.spans(block)
            rows.add(*counter.count(spans), spans)
        counts = rows.matrix(np.arange(len(self.terms), dtype=np.int32), len(self.terms))
        return Weighting().matrix(counts, rows.all_lengths, self._idf)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.from_terms(self.terms)

    @cached_property
    def _idf(self) -> Array:
        return idf_weights("smooth", np.array(self.documents), self.n_documents)

    def to_json(self) -> dict[str, Any]:
        """Plain form."""
        words = {"terms": list(self.terms), "documents": list(self.documents)}
        return {**words, "n_documents": self.n_documents}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Make it again from its plain form."""
        terms = tuple(str(term) for term in plain["terms"])
        documents = tuple(int(count) for count in plain["documents"])
        return cls(terms, documents, int(plain["n_documents"]))


def documents_of(array: pa.Array, missing: Collection[str]) -> tuple[list[str], Array]:
    """Return the texts of some rows, empty where there is none, and where that is."""
    texts = to_texts(array, missing)
    return texts.documents(), texts.absent


def learn_texts(table: Table, columns: Sequence[str]) -> dict[str, TextCode]:
    """Learn the words of some columns from one pass over a table."""
    if not columns:
        return {}
    analysis = Analysis()
    counters = {name: (Counter(), Frequencies()) for name in columns}
    for batch in table.blocks(default_block_rows(len(columns)), columns):
        for name, (counter, found) in counters.items():
            texts, _ = documents_of(batch[name], table.missing_values)
            for block in blocks(texts, analysis.block_size):
                spans = analysis.spans(block)
                terms, counts, _ = counter.count(spans)
                found.add(terms, counts, counter.n_terms)
                found.n_documents += len(block.texts)
    return {name: _chosen(name, *counted) for name, counted in counters.items()}


def _chosen(name: str, counter: Counter, found: Frequencies) -> TextCode:
    """Keep the words that are in enough rows, the commonest if they are very many."""
    selection = Selection(min_df=MIN_ROWS, max_features=MAX_TERMS)
    try:
        order = selection.columns(counter.table.order(), found, False, FLOAT64)
    except ValueError:
        raise ValueError(
            f"column {name!r} holds text, but no word of it is in two rows, so nothing can be "
            "learned from it; exclude it"
        ) from None
    terms = counter.table.vocabulary(order).terms()
    return TextCode(tuple(terms), tuple(found.documents[order].tolist()), found.n_documents)
