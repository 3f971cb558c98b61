"""TF-IDF terms of text columns (words) and of names (character n-grams), and their reduction.

The dimension reduction is a Nystroem sketch: with rows ``X`` and a thin random matrix ``R``, the
sum ``Y = X^T X R`` over rows determines the leading eigenvectors of ``X^T X`` nearly as well as a
second pass would (J. A. Tropp et al., "Fixed-rank approximation of a positive-semidefinite matrix
from streaming data", 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import linalg, sparse

from likelier.base import Array
from likelier.text.analysis import Analysis, Spans
from likelier.text.counts import Counter, Frequencies, Rows, Selection, count_hashed
from likelier.text.documents import blocks
from likelier.text.vocabulary import Vocabulary
from likelier.text.weights import FLOAT64, Weighting, idf_weights

N_HASHED = 4096
MIN_ROWS = 2
# Width of the random matrix, relative to the number of columns to find.
OVERSAMPLING = 3
_WORDS = Analysis()
# Character n-grams of length 3 and 4, which names of similar spelling share.
_NGRAMS = Analysis(analyzer="char_wb", ngram_range=(3, 4))
_NO_TERMS = np.zeros(0)


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a column with their document frequencies.

    ``terms`` lists words; None means hashed character n-grams.
    """

    terms: tuple[str, ...] | None
    documents: Array
    n_documents: int

    def __post_init__(self) -> None:
        n_terms = N_HASHED if self.terms is None else len(self.terms)
        if not n_terms or self.documents.shape != (n_terms,):
            raise ValueError("damaged terms of a text column: not one document frequency for each")
        if self.terms is not None and len(set(self.terms)) != n_terms:
            raise ValueError("damaged terms of a text column: a term occurs twice")

    def __len__(self) -> int:
        return len(self.documents)

    def matrix(self, texts: list[str]) -> Any:
        """Return the TF-IDF weights of some texts as a CSR matrix."""
        rows = Rows()
        analysis = _NGRAMS if self.terms is None else _WORDS
        counter = None if self.terms is None else Counter(self._vocabulary)
        for block in blocks(texts, analysis.block_size):
            spans = analysis.spans(block)
            counted = _hashed(spans) if counter is None else counter.count(spans)
            rows.add(*counted, spans)
        if counter is None:
            counts = rows.hashed(N_HASHED)
        else:
            counts = rows.matrix(np.arange(len(self), dtype=np.int32), len(self))
        return Weighting().matrix(counts, rows.all_lengths, self._idf)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary.from_terms(self.terms or ())

    @cached_property
    def _idf(self) -> Array:
        return idf_weights("smooth", self.documents, self.n_documents)

    def to_json(self) -> dict[str, Any]:
        """Return the terms as plain values."""
        words = None if self.terms is None else list(self.terms)
        return {"terms": words, "documents": self.documents, "n_documents": self.n_documents}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the terms that `to_json` wrote."""
        words = plain["terms"]
        terms = None if words is None else tuple(map(str, words))
        return cls(terms, np.asarray(plain["documents"]), int(plain["n_documents"]))


class TermCounter:
    """Counts the document frequencies of the terms of a column, block by block.

    Terms are hashed character ``ngrams``, or words.
    """

    def __init__(self, ngrams: bool) -> None:
        self._analysis = _NGRAMS if ngrams else _WORDS
        self._counter = None if ngrams else Counter()
        self._found = Frequencies(n_terms=N_HASHED if ngrams else 0)

    def add(self, texts: list[str], counts: Array) -> None:
        """Add distinct texts with their numbers of rows."""
        texts = [text for text, n in zip(texts, counts.tolist(), strict=True) for _ in range(n)]
        for block in blocks(texts, self._analysis.block_size):
            spans = self._analysis.spans(block)
            if self._counter is None:
                columns, times, _ = _hashed(spans)
                self._found.add(columns, times, N_HASHED)
            else:
                numbers, times, _ = self._counter.count(spans)
                self._found.add(numbers, times, self._counter.n_terms)
            self._found.n_documents += len(block.texts)

    def terms(self, most: int) -> Terms | None:
        """Return the ``most`` frequent terms that occur in `MIN_ROWS` rows, or None."""
        if self._counter is None:
            return Terms(None, self._found.documents, self._found.n_documents)
        selection = Selection(min_df=MIN_ROWS, max_features=most)
        try:
            order = selection.columns(self._counter.table.order(), self._found, False, FLOAT64)
        except ValueError:
            return None
        words = self._counter.table.vocabulary(order).terms()
        return Terms(tuple(words), self._found.documents[order], self._found.n_documents)


def _hashed(spans: Spans) -> tuple[Array, Array, Array]:
    return count_hashed(spans, N_HASHED, signed=False)


@dataclass
class Sketch:
    """The sketch ``X^T X R`` of a column's terms, accumulated block by block."""

    terms: Terms
    width: int
    _random: Array = field(init=False)
    _sum: Array = field(init=False)

    def __post_init__(self) -> None:
        shape = (len(self.terms), min(len(self.terms), OVERSAMPLING * self.width + 10))
        self._random = np.random.default_rng(0).standard_normal(shape)
        self._sum = np.zeros(shape)

    def add(self, texts: list[str], counts: Array) -> None:
        """Add distinct texts with their numbers of rows."""
        matrix = self.terms.matrix(texts)
        weighted = sparse.csr_array(matrix.multiply(counts[:, None]))
        self._sum += weighted.T @ (matrix @ self._random)

    def projection(self) -> Array:
        """Return the leading right singular vectors of the rows as columns."""
        shift = np.sqrt(len(self._sum)) * np.finfo(float).eps * linalg.norm(self._sum)
        if shift == 0.0:
            return np.zeros((len(self.terms), 1), dtype=np.float32)
        shifted = self._sum + shift * self._random
        inner = self._random.T @ shifted
        root = linalg.cholesky((inner + inner.T) / 2.0, lower=False)
        tall = linalg.solve_triangular(root, shifted.T, trans="T").T
        # The leading left singular vectors follow from the small Gram matrix.
        squares, rotation = linalg.eigh(tall.T @ tall)
        sizes = np.sqrt(np.maximum(squares[::-1][: self.width], 0.0))
        kept = int((sizes > 1e-6 * sizes[0]).sum())
        chosen = tall @ (rotation[:, ::-1][:, :kept] / sizes[:kept])
        # Fix the arbitrary signs: the largest entry of each direction is positive.
        signs = np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(kept)])
        return np.ascontiguousarray(chosen * signs, dtype=np.float32)
