"""`TextFeatures`: sparse features of documents, with a learned vocabulary or hashing."""

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
from likelier.text.parameters import Parameters, checked_parameters
from likelier.text.vocabulary import Vocabulary
from likelier.text.weights import idf_weights


class TextFeatures(  # no set_output: data frames do not support sparse features
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # type: ignore[call-arg]
):
    r"""Turn documents into a sparse matrix of weighted terms.

    The matrix equals that of scikit-learn's ``TfidfVectorizer``, ``CountVectorizer`` (with
    ``idf=None, norm=None``) or ``HashingVectorizer`` (with ``n_features`` and ``idf=None``)
    with the same options.

    Parameters
    ----------
    analyzer : {"word", "char", "char_wb"}, default="word"
        Whether n-grams consist of words, of characters, or of characters within a word padded
        with a space on each side.
    ngram_range : tuple (min_n, max_n), default=(1, 1)
        Range of the n-gram lengths.
    lowercase : bool, default=True
        Whether to convert the documents to lower case.
    strip_accents : {"unicode", "ascii"} or None, default=None
        Whether to strip accents; "ascii" also drops the remaining non-ASCII characters.
    token_pattern : str, default=r"(?u)\\b\\w\\w+\\b"
        Regular expression of a token. Runs of one character class (``\\w+``, ``\\b\\w{3,}\\b``,
        ``[a-z]+``) are found by compiled code, other patterns by ``re``.
    stop_words : "english", collection of str or None, default=None
        Words to remove; use a list or tuple if the estimator is to be saved.
    min_df, max_df : int or float, default=1 and 1.0
        Smallest and largest document frequency of the terms to keep, as a number (int) or a
        fraction (float) of the documents.
    max_features : int or None, default=None
        Keep only this many terms, the most frequent ones.
    vocabulary : mapping, collection of str or None, default=None
        The terms, with their columns or in column order; None learns them.
    n_features : int or None, default=None
        Number of columns for hashed terms; None uses a vocabulary.
    alternate_sign : bool, default=True
        Whether half of the hashed terms count negatively, so that collisions cancel on average.
    tf : {"count", "frequency"}, default="count"
        Count of a term in a document, or the count divided by the number of terms.
    binary : bool, default=False
        Whether to count each term of a document only once.
    sublinear_tf : bool, default=False
        Whether to use ``1 + log(count)`` instead of the count.
    idf : {"smooth", "unsmoothed", "plain", "plain_plus_one"} or None, default="smooth"
        Inverse document frequency: ``log((1 + N)/(1 + df)) + 1``, ``log(N/df) + 1``,
        ``log(N/df)`` or ``log(N/(1 + df))``.
    norm : {"l1", "l2"} or None, default="l2"
        Norm by which each row is normalised.
    encoding : str, default="utf-8"
        Encoding of documents given as bytes or as paths of files.
    decode_error : {"strict", "ignore", "replace"}, default="strict"
        Handling of bytes that cannot be decoded: raise an error that names the document, drop
        them, or replace them with U+FFFD.
    dtype : dtype, default="float64"
        Type of the matrix, by name if the estimator is to be saved; integer types only for
        counts.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Column of each term.
    document_frequency_ : ndarray of shape (n_columns,)
        Number of training documents with each term; empty if hashed without ``idf``.
    idf_ : ndarray of shape (n_columns,)
        Inverse document frequencies; only with ``idf``.
    n_documents_ : int
        Number of training documents.

    Notes
    -----
    Time is linear in the length of the documents. ``X`` may be any iterable, which is read once: a
    block of about a megabyte is in memory at a time, besides the terms (or, with ``n_features``,
    two numbers per column). Documents may be strings, bytes, or path objects of files; an open
    file is an iterable of its lines. After `fit` only the terms of the vocabulary are stored.

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
        """Learn the vocabulary and document frequencies from an iterable of documents."""
        parameters = checked_parameters(self)
        self._learn(parameters, X, None, None)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Learn from documents and return their matrix in a single pass."""
        parameters = checked_parameters(self)
        rows = Rows()
        column_of = self._learn(parameters, X, None, rows)
        return self._matrix(parameters, rows, column_of)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from more documents; equivalent to `fit` on all documents at once.

        Terms excluded by ``min_df``, ``max_df`` and ``max_features`` are stored, because later
        documents may bring them back.
        """
        parameters = checked_parameters(self)
        self._learn(parameters, X, self._so_far(parameters), None, keep=True)
        return self

    def transform(self, X: Any) -> Any:
        """Return the matrix of an iterable of documents, with the learned columns."""
        parameters = checked_parameters(self)
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self, "document_frequency_")
        self._check_columns(parameters)
        rows, terms = Rows(), self._known_terms(parameters)
        counter = None if parameters.hashed else Counter(terms)
        for spans in self._spans(parameters.analysis, X):
            rows.add(*_counted(parameters, counter, spans), spans)
        column_of = None if parameters.hashed else np.arange(len(terms), dtype=np.int32)
        return self._matrix(parameters, rows, column_of)

    def _known_terms(self, parameters: Parameters) -> Vocabulary:
        """Terms of the columns: learned, or given if nothing has to be learned."""
        if "_terms" in vars(self):
            return self._terms
        return (
            parameters.vocabulary
            if parameters.vocabulary is not None
            else Vocabulary.from_terms([])
        )

    @property
    def vocabulary_(self) -> dict[str, int]:
        """Column of each term."""
        self._check_vocabulary("vocabulary_")
        terms = self._known_terms(checked_parameters(self)).terms()
        return {term: column for column, term in enumerate(terms)}

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the terms in column order; hashed columns are numbered."""
        if self.n_features is not None:
            return np.array([f"textfeatures{i}" for i in range(self.n_features)], dtype=object)
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self, "document_frequency_")
        return np.array(self._known_terms(checked_parameters(self)).terms(), dtype=object)

    def inverse_transform(self, X: Any) -> list[Array]:
        """Return the terms with nonzero entries in each row of a matrix."""
        self._check_vocabulary("inverse_transform")
        names = self.get_feature_names_out()
        X = sparse.csr_array(checked_matrix(X), copy=True)
        if X.shape[1] != len(names):
            raise ValueError(f"X has {X.shape[1]} columns, the vocabulary {len(names)} terms")
        X.eliminate_zeros()
        return np.split(names[X.indices], X.indptr[1:-1])

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `transform` works: given columns need no fit without ``idf``."""
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

    # -- private ------------------------------------------------------------------------
    def _spans(self, analysis: Analysis, X: Any) -> Iterator[Spans]:
        for block in blocks(X, analysis.block_size, self.encoding, self.decode_error):
            yield analysis.spans(block)

    def _learn(
        self,
        parameters: Parameters,
        X: Any,
        so_far: TermStatistics | None,
        rows: Rows | None,
        keep: bool = False,
    ) -> Array | None:
        """Process the documents; return the column of each counted term, None if hashed.

        Attributes are set at the end, so an interrupted pass leaves the estimator unchanged.
        """
        counter = None if parameters.hashed else Counter(parameters.vocabulary, so_far)
        found = Frequencies(so_far, parameters.n_fixed if parameters.counts_documents else 0)
        for spans in self._spans(parameters.analysis, X):
            counted = _counted(parameters, counter, spans)
            found.n_documents += len(spans.doc_ends)
            if parameters.counts_documents:
                found.add(counted[0], counted[1], parameters.n_fixed or _size(counter))
            if rows is not None:
                rows.add(*counted, spans)
        if counter is None or parameters.vocabulary is not None:
            self._store(parameters.vocabulary, found, slice(None))
            self._seen = None
            return None if counter is None else np.arange(parameters.n_fixed, dtype=np.int32)
        order = counter.table.order()
        try:
            order = parameters.selection.columns(
                order, found, self.binary, parameters.weighting.dtype
            )
        except ValueError:
            if not keep:
                raise
            order = order[:0]  # later documents may bring terms that are frequent enough
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

    def _so_far(self, parameters: Parameters) -> TermStatistics | None:
        """Statistics of earlier documents, for `partial_fit`."""
        if "document_frequency_" not in vars(self):
            return None
        self._check_columns(parameters)
        if self._seen is not None:
            return self._seen
        if (
            not parameters.hashed
            and parameters.vocabulary is None
            and not parameters.selection.keeps_all
        ):
            raise ValueError(
                "fit did not store the terms excluded by min_df, max_df or max_features, so "
                "partial_fit cannot continue; use partial_fit from the first documents on"
            )
        df = self.document_frequency_
        terms = None if parameters.hashed else self._terms
        return TermStatistics(terms, df, np.zeros_like(df), self.n_documents_)

    def _check_columns(self, parameters: Parameters) -> None:
        """Raise if parameters were changed after `fit` so that the columns no longer match."""
        if "document_frequency_" not in vars(self):
            return
        n_columns = parameters.n_fixed if parameters.n_fixed else len(self._terms)
        if n_columns == 0 and self._seen is None:  # hashed terms are not stored
            raise ValueError("fit hashed the terms, but n_features was changed; fit again")
        learned = [self.document_frequency_] if parameters.counts_documents else []
        learned += [] if self.idf is None else [vars(self).get("idf_", ())]
        for numbers in learned:
            if len(numbers) != n_columns:
                raise ValueError(
                    f"fit learned {len(numbers)} columns, but the parameters now require "
                    f"{n_columns}: n_features, vocabulary or idf was changed; fit again"
                )

    def _matrix(self, parameters: Parameters, rows: Rows, column_of: Array | None) -> Any:
        if column_of is None:
            counts = rows.hashed(parameters.n_features or 0)
        else:
            counts = rows.matrix(column_of, len(self._known_terms(parameters)))
        idf = self.idf_ if self.idf is not None else None
        X = parameters.weighting.matrix(counts, rows.all_lengths, idf)
        if get_config().get("sparse_interface") == "sparray":
            return X
        return sparse.csr_matrix(X)

    def _check_vocabulary(self, what: str) -> None:
        if self.n_features is not None:
            raise AttributeError(f"{what} is not available with n_features: terms are hashed")
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self, "document_frequency_")


def _size(counter: Counter | None) -> int:
    return 0 if counter is None else counter.n_terms


def _counted(
    parameters: Parameters, counter: Counter | None, spans: Spans
) -> tuple[Array, Array, Array]:
    if counter is None:
        return count_hashed(spans, parameters.n_features or 0, parameters.signed)
    return counter.count(spans)
