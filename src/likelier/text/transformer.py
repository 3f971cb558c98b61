"""`TextFeatures`: documents to sparse features, with a learned vocabulary or hashed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from likelier.base import Array
from likelier.matrices import checked_matrix
from likelier.text.analysis import TOKEN_PATTERN, Analysis, Spans
from likelier.text.counts import Counter, Frequencies, Rows, TermStatistics, count_hashed
from likelier.text.documents import blocks
from likelier.text.parameters import Words, checked_parameters
from likelier.text.vocabulary import Vocabulary
from likelier.text.weights import idf_weights


class TextFeatures(  # a frame of sparse features there is none: set_output is not offered
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # type: ignore[call-arg]
):
    r"""Turn documents into a sparse matrix of weighted terms.

    The matrix is that of scikit-learn's ``TfidfVectorizer``, ``CountVectorizer`` (with
    ``idf=None, norm=None``) or ``HashingVectorizer`` (with ``n_features`` and ``idf=None``)
    with the same options.

    Parameters
    ----------
    analyzer : {"word", "char", "char_wb"}, default="word"
        What n-grams are made of: words, characters, or characters of one word with a blank
        before and behind it.
    ngram_range : tuple (least, most), default=(1, 1)
        How many pieces an n-gram has.
    lowercase : bool, default=True
        Whether to make all letters small, by the rules of Unicode.
    strip_accents : {"unicode", "ascii"} or None, default=None
        Whether to take accents off letters; "ascii" also drops what is not ASCII then.
    token_pattern : str, default=r"(?u)\\b\\w\\w+\\b"
        Regular expression of a word. Runs of one class of characters (``\\w+``,
        ``\\b\\w{3,}\\b``, ``[a-z]+``) are found by compiled code, other patterns by ``re``.
    stop_words : "english", collection of str or None, default=None
        Words to leave out; a list or tuple if the estimator is to be saved.
    min_df, max_df : int or float, default=1 and 1.0
        In how many documents a term of the vocabulary must at least, and may at most, be: a
        number of them, or a share.
    max_features : int or None, default=None
        Keep only this many terms, those that occur most often.
    vocabulary : mapping, collection of str or None, default=None
        The terms, with their columns or in the order of columns; None learns them.
    n_features : int or None, default=None
        Number of columns for hashed terms; None uses a vocabulary.
    alternate_sign : bool, default=True
        Whether half of all hashed terms count negatively, so that collisions cancel on average.
    tf : {"count", "frequency"}, default="count"
        How often a term is in a document, or that divided by the number of its terms.
    binary : bool, default=False
        Count a term once however often it is in the document.
    sublinear_tf : bool, default=False
        Use ``1 + log(count)`` instead of the count.
    idf : {"smooth", "unsmoothed", "plain", "plain_plus_one"} or None, default="smooth"
        Inverse document frequency: ``log((1 + N)/(1 + df)) + 1``, ``log(N/df) + 1``,
        ``log(N/df)`` or ``log(N/(1 + df))``.
    norm : {"l1", "l2"} or None, default="l2"
        Norm that each row is scaled to one in.
    encoding : str, default="utf-8"
        How documents given as bytes or as paths of files are decoded.
    decode_error : {"strict", "ignore", "replace"}, default="strict"
        What becomes of bytes that are not in that encoding: an error that names the document,
        nothing, or the character U+FFFD.
    dtype : dtype, default="float64"
        Type of the matrix, by name if the estimator is to be saved; a whole-number type only
        for counts.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Column of each term.
    document_frequency_ : ndarray of shape (n_columns,)
        How many training documents hold each term; empty if hashed without ``idf``.
    idf_ : ndarray of shape (n_columns,)
        Only with ``idf``.
    n_documents_ : int
        How many documents were seen.

    Notes
    -----
    Time is linear in the length of the documents. ``X`` may be any iterable, read once: a
    block of about a megabyte is in memory at a time, and with `fit` or `partial_fit` nothing
    else but the terms seen (with ``n_features``, two numbers per column). Documents may be
    strings, bytes, or path objects of files; an open file is an iterable of its lines. After
    `fit` nothing remains of the documents but the terms of the vocabulary.

    Examples
    --------
    >>> from likelier import TextFeatures
    >>> text = TextFeatures(idf=None, norm=None, dtype="int64")
    >>> text.fit_transform(["to be or not to be", "to do is to be"]).toarray()
    array([[2, 0, 0, 1, 1, 2],
           [1, 1, 1, 0, 0, 2]])
    >>> list(text.get_feature_names_out())
    ['be', 'do', 'is', 'not', 'or', 'to']
    """

    def __init__(
        self,
        analyzer: str = "word",
        *,
        ngram_range: tuple[int, int] = (1, 1),
        lowercase: bool = True,
        strip_accents: str | None = None,
        token_pattern: str = TOKEN_PATTERN,
        stop_words: Any = None,
        min_df: int | float = 1,
        max_df: int | float = 1.0,
        max_features: int | None = None,
        vocabulary: Any = None,
        n_features: int | None = None,
        alternate_sign: bool = True,
        tf: str = "count",
        binary: bool = False,
        sublinear_tf: bool = False,
        idf: str | None = "smooth",
        norm: str | None = "l2",
        encoding: str = "utf-8",
        decode_error: str = "strict",
        dtype: npt.DTypeLike = "float64",
    ) -> None:
        self.analyzer = analyzer
        self.ngram_range = ngram_range
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.token_pattern = token_pattern
        self.stop_words = stop_words
        self.min_df = min_df
        self.max_df = max_df
        self.max_features = max_features
        self.vocabulary = vocabulary
        self.n_features = n_features
        self.alternate_sign = alternate_sign
        self.tf = tf
        self.binary = binary
        self.sublinear_tf = sublinear_tf
        self.idf = idf
        self.norm = norm
        self.encoding = encoding
        self.decode_error = decode_error
        self.dtype = dtype

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn vocabulary and document frequencies from any iterable of documents."""
        words = checked_parameters(self)
        self._learn(words, X, None, None)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Learn from documents and return their matrix, reading them once."""
        words = checked_parameters(self)
        rows = Rows()
        column_of = self._learn(words, X, None, rows)
        return self._matrix(words, rows, column_of)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from more documents: the same as `fit` on all documents at once.

        Terms that ``min_df``, ``max_df`` and ``max_features`` leave out are remembered, since
        later documents may bring them back.
        """
        words = checked_parameters(self)
        self._learn(words, X, self._so_far(words), None, keep=True)
        return self

    def transform(self, X: Any) -> Any:
        """Return the matrix of documents, of any iterable, with the learned columns."""
        words = checked_parameters(self)
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self, "document_frequency_")
        self._check_columns(words)
        rows, terms = Rows(), self._known_terms(words)
        counter = None if words.hashed else Counter(terms)
        for spans in self._spans(words.analysis, X):
            rows.add(*_counted(words, counter, spans), spans)
        column_of = None if words.hashed else np.arange(len(terms), dtype=np.int32)
        return self._matrix(words, rows, column_of)

    def _known_terms(self, words: Words) -> Vocabulary:
        """Terms of the columns: those learned, or those given where nothing has to be learned."""
        if "_terms" in vars(self):
            return self._terms
        return words.vocabulary if words.vocabulary is not None else Vocabulary.from_terms([])

    @property
    def vocabulary_(self) -> dict[str, int]:
        """Column of each term."""
        self._check_vocabulary("vocabulary_")
        terms = self._known_terms(checked_parameters(self)).terms()
        return {term: column for column, term in enumerate(terms)}

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the terms in the order of their columns; hashed columns have numbers only."""
        if self.n_features is not None:
            return np.array([f"textfeatures{i}" for i in range(self.n_features)], dtype=object)
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self, "document_frequency_")
        return np.array(self._known_terms(checked_parameters(self)).terms(), dtype=object)

    def inverse_transform(self, X: Any) -> list[Array]:
        """Return the terms of each row of a matrix that are not zero."""
        self._check_vocabulary("inverse_transform")
        names = self.get_feature_names_out()
        X = sparse.csr_array(checked_matrix(X), copy=True)
        if X.shape[1] != len(names):
            raise ValueError(f"X has {X.shape[1]} columns, the vocabulary {len(names)} terms")
        X.eliminate_zeros()
        return np.split(names[X.indices], X.indptr[1:-1])

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `transform` works: without ``idf`` columns that are given need no fit."""
        return "document_frequency_" in vars(self) or not self._has_to_learn()

    def _has_to_learn(self) -> bool:
        given = self.n_features is not None or self.vocabulary is not None
        return not given or self.idf is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = self._has_to_learn()
        return tags

    # -- inside -------------------------------------------------------------------------
    def _spans(self, analysis: Analysis, X: Any) -> Iterator[Spans]:
        for block in blocks(X, analysis.block_size, self.encoding, self.decode_error):
            yield analysis.spans(block)

    def _learn(
        self,
        words: Words,
        X: Any,
        so_far: TermStatistics | None,
        rows: Rows | None,
        keep: bool = False,
    ) -> Array | None:
        """Pass over documents; return the column of each counted term, None if hashed.

        Attributes are set at the end: an interrupted pass leaves the estimator as it was.
        """
        counter = None if words.hashed else Counter(words.vocabulary, so_far)
        found = Frequencies(so_far, words.n_fixed if words.counts_documents else 0)
        for spans in self._spans(words.analysis, X):
            counted = _counted(words, counter, spans)
            found.n_documents += len(spans.doc_ends)
            if words.counts_documents:
                found.add(counted[0], counted[1], words.n_fixed or _size(counter))
            if rows is not None:
                rows.add(*counted, spans)
        if counter is None or words.vocabulary is not None:
            self._store(words.vocabulary, found, slice(None))
            self._seen = None
            return None if counter is None else np.arange(words.n_fixed, dtype=np.int32)
        order = counter.table.order()
        try:
            order = words.selection.columns(order, found, self.binary, words.weighting.dtype)
        except ValueError:
            if not keep:
                raise
            order = order[:0]  # later documents may bring terms that are common enough
        self._store(counter.table.vocabulary(order), found, order)
        self._seen = found.statistics(counter.table.vocabulary()) if keep else None
        column_of = np.full(counter.n_terms, -1, dtype=np.int32)
        column_of[order] = np.arange(len(order), dtype=np.int32)
        return column_of

    def _store(self, terms: Vocabulary | None, found: Frequencies, order: Array | slice) -> None:
        """Set the fitted attributes; ``order`` lists the terms that became columns."""
        self.document_frequency_ = found.documents[order].copy()
        self.n_documents_ = found.n_documents
        self._terms = terms if terms is not None else Vocabulary.from_terms([])
        self.__dict__.pop("idf_", None)
        if self.idf is not None:
            self.idf_: Array = idf_weights(self.idf, self.document_frequency_, found.n_documents)

    def _so_far(self, words: Words) -> TermStatistics | None:
        """What earlier documents gave, for `partial_fit` to go on from."""
        if "document_frequency_" not in vars(self):
            return None
        self._check_columns(words)
        if self._seen is not None:
            return self._seen
        if not words.hashed and words.vocabulary is None and not words.selection.keeps_all:
            raise ValueError(
                "fit has forgotten the terms it left out (min_df, max_df, max_features), so "
                "partial_fit cannot go on from it; call partial_fit from the first documents on"
            )
        df = self.document_frequency_
        terms = None if words.hashed else self._terms
        return TermStatistics(terms, df, np.zeros_like(df), self.n_documents_)

    def _check_columns(self, words: Words) -> None:
        """Raise if words that were changed after `fit` ask for other columns than it learned."""
        if "document_frequency_" not in vars(self):
            return
        n_columns = words.n_fixed if words.n_fixed else len(self._terms)
        if n_columns == 0 and self._seen is None:  # terms that were hashed are not remembered
            raise ValueError("fit hashed the terms, but n_features was changed; fit again")
        learned = [self.document_frequency_] if words.counts_documents else []
        learned += [] if self.idf is None else [vars(self).get("idf_", ())]
        for numbers in learned:
            if len(numbers) != n_columns:
                raise ValueError(
                    f"fit learned numbers for {len(numbers)} columns, but the words now ask for "
                    f"{n_columns}: n_features, vocabulary or idf was changed; fit again"
                )

    def _matrix(self, words: Words, rows: Rows, column_of: Array | None) -> Any:
        if column_of is None:
            counts = rows.hashed(words.n_features or 0)
        else:
            counts = rows.matrix(column_of, len(self._known_terms(words)))
        idf = self.idf_ if self.idf is not None else None
        X = words.weighting.matrix(counts, rows.all_lengths, idf)
        if get_config().get("sparse_interface") == "sparray":
            return X
        return sparse.csr_matrix(X)

    def _check_vocabulary(self, what: str) -> None:
        if self.n_features is not None:
            raise AttributeError(f"there is no {what} with n_features: hashed terms are forgotten")
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self, "document_frequency_")


def _size(counter: Counter | None) -> int:
    return 0 if counter is None else counter.n_terms


def _counted(words: Words, counter: Counter | None, spans: Spans) -> tuple[Array, Array, Array]:
    if counter is None:
        return count_hashed(spans, words.n_features or 0, words.signed)
    return counter.count(spans)
