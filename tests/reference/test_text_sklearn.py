"""`TextFeatures` gives scikit-learn's matrices, on real documents and on difficult ones."""

from __future__ import annotations

import json
import lzma
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.pipeline import make_pipeline
from tests.conftest import data_not_available

from likelier import TextFeatures

TORTURE = [
    "\u0130stanbul ISPARTA \u0131l\u0131k IĞDIR i\u0307",  # Turkish: one letter becomes two
    "Straße STRASSE ẞ groß",
    "e\u0301le\u0301ve éLÈVE a\u0308 n\u0303",  # combining marks
    "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ ΑΣ. ΑΣ' ΑΣ",  # a sigma at the end of a word
    "日本語のテキスト 漢字 かな交じり文",
    "\U0001f44d\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 smile\U0001f600face",
    "שלום עולם مرحبا بالعالم ١٢٣",  # right to left
    "हिन्दी में संयुक्ताक्षर क्ष",
    "ไทยไม่มีช่องว่าง",
    "Ǆ ǅ ǆ ﬁne ﬃ ™ K Å ½ x²",
    "\U0001d4b3\U0001d4ce\U0001d503 \U00010400\U00010428 \U0001d7d8\U0001d7d9",
    "\u00a0nbsp\u2003em\u3000ideographic\x1cfs\x85nel zz",
    "zero\u200bwidth soft\u00adhyphen joi\u200dner",
    "tabs\t\ttwo  spaces\n\nlines  ",
    "\x00nul a\x00b\x00\x00",
    "_under_score __ _ a_ 9 99 x don't e-mail O'Neil",
    "a" * 300 + " " + "b" * 7 + " " + "c" * 8 + " " + "d" * 9,
    "",
    "   ",
]
COUNTS = {"idf": None, "norm": None, "dtype": "int64"}
CORPORA = ["20newsgroups_bydate", "reuters_r8", "webkb", "movie_reviews"]


def corpus(name: str, rows: int) -> list[str]:
    documents = all_of(name)
    return documents[:: max(1, len(documents) // rows)]


@cache
def all_of(name: str) -> list[str]:
    folder = os.environ.get("LIKELIER_DATA", "")
    path = Path(folder) / f"{name}.jsonl.xz"
    if not folder or not path.is_file():
        data_not_available("LIKELIER_DATA names no folder that holds them")
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def assert_same(ours, theirs, documents):
    A, B = ours.fit_transform(documents), theirs.fit_transform(documents)
    assert A.shape == B.shape
    assert A.dtype == B.dtype
    assert type(A) is type(B)
    assert A.has_sorted_indices
    np.testing.assert_array_equal(A.indptr, B.indptr)
    np.testing.assert_array_equal(A.indices, B.sorted_indices().indices)
    np.testing.assert_allclose(A.data, B.sorted_indices().data, rtol=0, atol=1e-12)
    later = [*documents[::3], "words nobody has ever used qqqq"]
    difference = ours.transform(later) - theirs.transform(later)
    assert abs(difference).max() <= 1e-12
    if hasattr(theirs, "vocabulary_"):
        names = theirs.get_feature_names_out()
        assert list(ours.get_feature_names_out()) == list(names)
        assert ours.vocabulary_ == {name: i for i, name in enumerate(names)}


OPTIONS = [
    {},
    {"ngram_range": (1, 2)},
    {"stop_words": "english", "ngram_range": (2, 3)},
    {"min_df": 3, "max_df": 0.5, "max_features": 500},
    {"min_df": 0.01, "sublinear_tf": True, "norm": "l1"},
    {"binary": True, "lowercase": False},
    {"token_pattern": r"(?u)\b[^\W\d]\w*-?\w*", "strip_accents": "unicode"},
    {"analyzer": "char_wb", "ngram_range": (2, 4), "max_features": 2000},
    {"analyzer": "char", "ngram_range": (1, 3), "min_df": 2},
]


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "default")
def test_real_documents(name, options):
    documents = corpus(name, 150)
    assert_same(TextFeatures(**options), TfidfVectorizer(**options), documents)


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPORA)
def test_all_real_documents(name):
    documents = corpus(name, 10**6)
    assert_same(TextFeatures(), TfidfVectorizer(), documents)
    assert_same(TextFeatures(**COUNTS), CountVectorizer(), documents)
    assert_same(TextFeatures(n_features=2**20, idf=None), HashingVectorizer(), documents)


@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb"])
@pytest.mark.parametrize("accents", [None, "unicode", "ascii"])
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("ngrams", [(1, 1), (1, 3), (2, 5)])
def test_difficult_documents(analyzer, accents, lowercase, ngrams):
    options = {
        "analyzer": analyzer,
        "strip_accents": accents,
        "lowercase": lowercase,
        "ngram_range": ngrams,
    }
    assert_same(TextFeatures(**options, **COUNTS), CountVectorizer(**options), TORTURE)
    ours = TextFeatures(**options, n_features=97, idf=None, norm="l1")
    assert_same(ours, HashingVectorizer(**options, n_features=97, norm="l1"), TORTURE)


@pytest.mark.parametrize(
    "pattern", [r"\w+", r"\S+", r"(?u)\b\w{3,}\b", r"[a-zß]+", r"[^,]+", r"\w*", r"(\w)\w+"]
)
def test_token_patterns(pattern):
    options = {"token_pattern": pattern, "ngram_range": (1, 2)}
    assert_same(TextFeatures(**options, **COUNTS), CountVectorizer(**options), TORTURE)


@pytest.mark.parametrize("n_features", [1, 2, 97, 2**10, 2**20, 2**31 - 2])
@pytest.mark.parametrize("signed", [True, False])
def test_hashing(n_features, signed):
    documents = corpus("webkb", 200)
    options = {"n_features": n_features, "alternate_sign": signed}
    assert_same(TextFeatures(idf=None, **options), HashingVectorizer(**options), documents)
    if n_features < 2**21:
        ours = TextFeatures(**options)
        theirs = make_pipeline(HashingVectorizer(**options, norm=None), TfidfTransformer())
        assert_same(ours, theirs, documents)


def test_without_smoothing():
    documents = corpus("reuters_r8", 300)
    assert_same(TextFeatures(idf="unsmoothed"), TfidfVectorizer(smooth_idf=False), documents)


@pytest.mark.parametrize("terms", [["gold", "oil", "wheat"], {"wheat": 2, "gold": 0, "oil": 1}])
def test_a_given_vocabulary(terms):
    documents = corpus("reuters_r8", 300)
    assert_same(TextFeatures(vocabulary=terms), TfidfVectorizer(vocabulary=terms), documents)


def test_single_precision():
    documents = corpus("reuters_r8", 200)
    A = TextFeatures(dtype="float32").fit_transform(documents)
    B = TfidfVectorizer(dtype=np.float32).fit_transform(documents)
    assert A.dtype == np.float32
    assert abs(A - B).max() < 1e-6
