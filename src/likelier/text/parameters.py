"""The constructor's words of `TextFeatures`, checked, as the parts they stand for."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from likelier.base import check_flag
from likelier.text.analysis import Analysis
from likelier.text.counts import Selection
from likelier.text.vocabulary import Vocabulary
from likelier.text.weights import IDF, NORMS, Weighting

ANALYZERS = ("word", "char", "char_wb")
FLAGS = ("lowercase", "alternate_sign", "binary", "sublinear_tf")


@dataclass(frozen=True)
class Words:
    """What the words of a constructor mean."""

    analysis: Analysis
    weighting: Weighting
    selection: Selection
    vocabulary: Vocabulary | None
    n_features: int | None
    signed: bool

    @property
    def hashed(self) -> bool:
        """Whether terms are hashed to columns."""
        return self.n_features is not None

    @property
    def n_fixed(self) -> int:
        """Number of columns known beforehand, 0 if a vocabulary is to be learned."""
        return self.n_features or (0 if self.vocabulary is None else len(self.vocabulary))

    @property
    def counts_documents(self) -> bool:
        """Whether it matters how many documents hold a term."""
        return not self.hashed or self.weighting.idf is not None


def checked_parameters(words: Any) -> Words:
    """Check the parameters of a `TextFeatures` and return what they mean."""
    for name in FLAGS:
        check_flag(name, getattr(words, name))
    _check_encoding(words.encoding)
    _one_of("decode_error", words.decode_error, ("strict", "ignore", "replace"))
    selection = _selection(words)
    _check_hashing(words, selection)
    return Words(
        analysis=_analysis(words),
        weighting=_weighting(words),
        selection=selection,
        vocabulary=_vocabulary(words.vocabulary, bool(words.lowercase)),
        n_features=None if words.n_features is None else int(words.n_features),
        signed=bool(words.alternate_sign),
    )


def _analysis(words: Any) -> Analysis:
    _one_of("analyzer", words.analyzer, ANALYZERS)
    _one_of("strip_accents", words.strip_accents, (None, "unicode", "ascii"))
    analysis = Analysis(
        analyzer=words.analyzer,
        ngram_range=_ngram_range(words.ngram_range),
        lowercase=bool(words.lowercase),
        strip_accents=words.strip_accents,
        token_pattern=_pattern(words.token_pattern),
        stop_words=_stop_words(words.stop_words),
    )
    _warn_about_stop_words(analysis)
    return analysis


def _weighting(words: Any) -> Weighting:
    _one_of("tf", words.tf, ("count", "frequency"))
    _one_of("idf", words.idf, (None, *IDF))
    _one_of("norm", words.norm, tuple(NORMS))
    try:
        dtype = np.dtype(words.dtype)
    except TypeError:
        raise TypeError(f"dtype must be the name of a NumPy type, got {words.dtype!r}") from None
    if dtype not in (np.float64, np.float32, np.int64, np.int32):
        raise ValueError(f"dtype must be float64, float32, int64 or int32, got {dtype}")
    flags = {"binary": bool(words.binary), "sublinear_tf": bool(words.sublinear_tf)}
    return Weighting(tf=words.tf, idf=words.idf, norm=words.norm, dtype=dtype, **flags)


def _check_encoding(encoding: Any) -> None:
    if not isinstance(encoding, str):
        raise TypeError(f"encoding must be the name of an encoding of text, got {encoding!r}")
    try:
        "a".encode(encoding)
    except (LookupError, ValueError):
        raise ValueError(
            f"encoding={encoding!r} is no encoding of text that Python knows; give one such as "
            '"utf-8" or "latin-1"'
        ) from None


def _selection(words: Any) -> Selection:
    for name in ("min_df", "max_df"):
        value = getattr(words, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} must be a number of documents or a share, got {value!r}")
        if not isinstance(value, Integral) and not 0 <= float(value) <= 1:
            raise ValueError(f"{name} as a float is a share from 0 to 1, got {value!r}")
        if isinstance(value, Integral) and value < (1 if name == "max_df" else 0):
            raise ValueError(f"{name} must be positive, got {value!r}")
    if words.max_features is not None:
        _positive("max_features", words.max_features)
    return Selection(words.min_df, words.max_df, words.max_features)


def _check_hashing(words: Any, selection: Selection) -> None:
    if words.n_features is None:
        return
    _positive("n_features", words.n_features)
    if words.n_features >= 2**31:
        raise ValueError(f"n_features must be less than 2**31, got {words.n_features}")
    if words.vocabulary is not None:
        raise ValueError("vocabulary and n_features exclude each other: terms are hashed or not")
    if not selection.keeps_all:
        raise ValueError(
            "min_df, max_df and max_features choose terms, which hashing (n_features) does not "
            "know; leave them out or learn a vocabulary with n_features=None"
        )
    if words.sublinear_tf and words.alternate_sign:
        raise ValueError(
            "sublinear_tf takes the logarithm of counts, which alternate_sign makes negative; "
            "set alternate_sign=False"
        )


def _vocabulary(given: Any, lowercase: bool) -> Vocabulary | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"vocabulary must be terms or a mapping of terms to columns, got {given!r}")
    terms = list(given)
    if isinstance(given, Mapping):
        columns = list(given.values())
        if sorted(columns) != list(range(len(columns))):
            raise ValueError("vocabulary must map terms to the columns 0, 1, 2, ..., each once")
        terms = [term for _, term in sorted(zip(columns, terms, strict=True))]
    elif isinstance(given, set | frozenset):
        terms = sorted(terms)
    for term in terms:
        if not isinstance(term, str):
            raise TypeError(f"vocabulary holds {term!r}, which is not a string")
    if not terms:
        raise ValueError("vocabulary is empty; None learns one")
    if len(set(terms)) < len(terms):
        twice = next(term for i, term in enumerate(terms) if term in terms[:i])
        raise ValueError(f"vocabulary holds {twice!r} twice")
    upper = [term for term in terms if lowercase and term != term.lower()]
    if upper:
        warnings.warn(
            f"vocabulary holds upper-case letters ({', '.join(map(repr, upper[:5]))}), which no "
            "term has with lowercase=True: these columns stay zero",
            UserWarning,
            stacklevel=4,
        )
    return Vocabulary.from_terms(terms)


def _ngram_range(given: Any) -> tuple[int, int]:
    try:
        least, most = given
        valid = 1 <= least <= most and isinstance(least + most, Integral)
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(
            f"ngram_range must be whole numbers (least, most), 1 <= least <= most, got {given!r}"
        )
    return int(least), int(most)


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise TypeError(f"token_pattern must be a regular expression as text, got {pattern!r}")
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"token_pattern {pattern!r} is no regular expression: {error}") from None
    if groups > 1:
        raise ValueError(
            f"token_pattern {pattern!r} has {groups} groups; at most one may say what a token is, "
            "write the others as (?:...)"
        )
    return pattern


def _stop_words(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        if given != "english":
            raise ValueError(
                f"stop_words must be 'english', a list of words or None, got {given!r}"
            )
        return tuple(sorted(ENGLISH_STOP_WORDS))
    if not isinstance(given, Iterable):
        raise TypeError(f"stop_words must be 'english', a list of words or None, got {given!r}")
    words = list(given)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"stop_words holds {word!r}, which is not a string")
    return tuple(sorted(set(words)))


def _warn_about_stop_words(analysis: Analysis) -> None:
    """Warn of stop words that no token can equal, since they are split or changed."""
    if analysis.analyzer != "word" or not analysis.stop_words:
        return
    stop = frozenset(analysis.stop_words)
    odd = sorted({t for w in stop for t in analysis.tokens(w) if t not in stop})
    if odd:
        warnings.warn(
            f"stop_words are prepared as documents are, which makes other words of some: "
            f"{odd[:10]} are not among them; add those",
            UserWarning,
            stacklevel=4,
        )


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if not any(
        value is choice or (isinstance(value, str) and value == choice) for choice in allowed
    ):
        raise ValueError(f"{name} must be one of {allowed}, got {value!r}")


def _positive(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number or None, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}")
