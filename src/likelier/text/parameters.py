"""Validation of the parameters of `TextFeatures`."""

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
class Parameters:
    """Validated parameters of `TextFeatures`."""

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
        """Number of columns if it is known before the fit, else 0."""
        return self.n_features or (0 if self.vocabulary is None else len(self.vocabulary))

    @property
    def counts_documents(self) -> bool:
        """Whether document frequencies are needed."""
        return not self.hashed or self.weighting.idf is not None


def checked_parameters(parameters: Any) -> Parameters:
    """Validate the parameters of a `TextFeatures`."""
    for name in FLAGS:
        check_flag(name, getattr(parameters, name))
    _check_encoding(parameters.encoding)
    _one_of("decode_error", parameters.decode_error, ("strict", "ignore", "replace"))
    selection = _selection(parameters)
    _check_hashing(parameters, selection)
    return Parameters(
        analysis=_analysis(parameters),
        weighting=_weighting(parameters),
        selection=selection,
        vocabulary=_vocabulary(parameters.vocabulary, bool(parameters.lowercase)),
        n_features=None if parameters.n_features is None else int(parameters.n_features),
        signed=bool(parameters.alternate_sign),
    )


def _analysis(parameters: Any) -> Analysis:
    _one_of("analyzer", parameters.analyzer, ANALYZERS)
    _one_of("strip_accents", parameters.strip_accents, (None, "unicode", "ascii"))
    analysis = Analysis(
        analyzer=parameters.analyzer,
        ngram_range=_ngram_range(parameters.ngram_range),
        lowercase=bool(parameters.lowercase),
        strip_accents=parameters.strip_accents,
        token_pattern=_pattern(parameters.token_pattern),
        stop_words=_stop_words(parameters.stop_words),
    )
    _warn_about_stop_words(analysis)
    return analysis


def _weighting(parameters: Any) -> Weighting:
    _one_of("tf", parameters.tf, ("count", "frequency"))
    _one_of("idf", parameters.idf, (None, *IDF))
    _one_of("norm", parameters.norm, tuple(NORMS))
    try:
        dtype = np.dtype(parameters.dtype)
    except TypeError:
        raise TypeError(
            f"dtype must be a NumPy type or its name, got {parameters.dtype!r}"
        ) from None
    if dtype not in (np.float64, np.float32, np.int64, np.int32):
        raise ValueError(f"dtype must be float64, float32, int64 or int32, got {dtype}")
    flags = {"binary": bool(parameters.binary), "sublinear_tf": bool(parameters.sublinear_tf)}
    return Weighting(
        tf=parameters.tf, idf=parameters.idf, norm=parameters.norm, dtype=dtype, **flags
    )


def _check_encoding(encoding: Any) -> None:
    if not isinstance(encoding, str):
        raise TypeError(f"encoding must be the name of a text encoding, got {encoding!r}")
    try:
        "a".encode(encoding)
    except (LookupError, ValueError):
        raise ValueError(
            f'encoding={encoding!r} is not a known text encoding; use one such as "utf-8" or '
            '"latin-1"'
        ) from None


def _selection(parameters: Any) -> Selection:
    for name in ("min_df", "max_df"):
        value = getattr(parameters, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} must be a number or fraction of documents, got {value!r}")
        if not isinstance(value, Integral) and not 0 <= float(value) <= 1:
            raise ValueError(f"{name} as a float must be a fraction from 0 to 1, got {value!r}")
        if isinstance(value, Integral) and value < (1 if name == "max_df" else 0):
            raise ValueError(f"{name} must be positive, got {value!r}")
    if parameters.max_features is not None:
        _positive("max_features", parameters.max_features)
    return Selection(parameters.min_df, parameters.max_df, parameters.max_features)


def _check_hashing(parameters: Any, selection: Selection) -> None:
    if parameters.n_features is None:
        return
    _positive("n_features", parameters.n_features)
    if parameters.n_features >= 2**31:
        raise ValueError(f"n_features must be less than 2**31, got {parameters.n_features}")
    if parameters.vocabulary is not None:
        raise ValueError("vocabulary and n_features are mutually exclusive; set one of them")
    if not selection.keeps_all:
        raise ValueError(
            "min_df, max_df and max_features cannot be used with hashing (n_features); remove them "
            "or learn a vocabulary with n_features=None"
        )
    if parameters.sublinear_tf and parameters.alternate_sign:
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
            raise TypeError(f"vocabulary contains {term!r}, which is not a string")
    if not terms:
        raise ValueError("vocabulary is empty; use None to learn one")
    if len(set(terms)) < len(terms):
        twice = next(term for i, term in enumerate(terms) if term in terms[:i])
        raise ValueError(f"vocabulary contains {twice!r} twice")
    upper = [term for term in terms if lowercase and term != term.lower()]
    if upper:
        warnings.warn(
            f"vocabulary contains upper-case letters ({', '.join(map(repr, upper[:5]))}), which "
            "never match with lowercase=True: these columns stay zero",
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
            f"ngram_range must be integers (min_n, max_n) with 1 <= min_n <= max_n, got {given!r}"
        )
    return int(least), int(most)


def _pattern(pattern: Any) -> str:
    if not isinstance(pattern, str):
        raise TypeError(f"token_pattern must be a regular expression as text, got {pattern!r}")
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"token_pattern {pattern!r} is not a valid regex: {error}") from None
    if groups > 1:
        raise ValueError(
            f"token_pattern {pattern!r} has {groups} capturing groups; use at most one, and write "
            "the others as (?:...)"
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
    stop_words = list(given)
    for word in stop_words:
        if not isinstance(word, str):
            raise TypeError(f"stop_words contains {word!r}, which is not a string")
    return tuple(sorted(set(stop_words)))


def _warn_about_stop_words(analysis: Analysis) -> None:
    """Warn about stop parameters that never match, because tokenisation splits or changes them."""
    if analysis.analyzer != "word" or not analysis.stop_words:
        return
    stop = frozenset(analysis.stop_words)
    odd = sorted({t for w in stop for t in analysis.tokens(w) if t not in stop})
    if odd:
        warnings.warn(
            "some stop_words are changed by the preprocessing of documents and never match; add "
            f"the resulting words: {odd[:10]}",
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
        raise TypeError(f"{name} must be an integer or None, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}")
