"""Compiled splitting, hashing and numbering of text against plain Python."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils import murmurhash3_32

from likelier import TextFeatures
from likelier.text.analysis import Analysis, run_of
from likelier.text.documents import Block
from likelier.text.loops.murmur import murmur3
from likelier.text.loops.unaligned import PADDING
from likelier.text.vocabulary import TermTable, Vocabulary, sorted_order

# Any character but the halves of surrogate pairs, which UTF-8 cannot hold.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@njit
def hash_of(data, start, length):
    return murmur3(data, start, length)


def found(analysis, documents):
    """N-grams of each document as strings."""
    spans = analysis.spans(Block(documents, 0))
    whole = spans.text.tobytes()
    pairs = zip(spans.starts.tolist(), spans.stops.tolist(), strict=True)
    grams = [whole[start:stop].decode() for start, stop in pairs]
    return [grams[a:b] for a, b in pairwise([0, *spans.doc_ends.tolist()])]


@given(st.binary(max_size=40), st.integers(0, 5))
def test_murmur_is_that_of_scikit_learn(content, start):
    data = np.frombuffer(bytes(start) + content + b"\xff" * PADDING, dtype=np.uint8)
    assert hash_of(data, start, len(content)) == murmurhash3_32(content)


def block_with_hash(first: bytes, wanted: int) -> bytes:
    """Undo MurmurHash3: the four bytes behind four others that give this hash."""
    low = 0xFFFFFFFF

    def turned(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (32 - bits))) & low

    h = wanted
    h ^= h >> 16
    h = h * inverse(0xC2B2AE35) & low
    h ^= (h >> 13) ^ (h >> 26)
    h = h * inverse(0x85EBCA6B) & low
    h ^= h >> 16
    h = ((h ^ 8) - 0xE6546B64) * inverse(5) & low
    h = turned(h, 19)
    k = int.from_bytes(first, "little") * 0xCC9E2D51 & low
    start = turned(turned(k, 15) * 0x1B873593 & low, 13) * 5 + 0xE6546B64 & low
    k = turned((h ^ start) * inverse(0x1B873593) & low, 17) * inverse(0xCC9E2D51) & low
    return k.to_bytes(4, "little")


def test_the_hash_whose_negative_does_not_fit():
    """``abs(-2**31)`` is no number of 32 bits; one word in four thousand million has it."""
    letters = b"abcdefghijklmnopqrstuvwxyz0123456789_"
    heads = (bytes([a, b, c, 97]) for a in letters for b in letters for c in letters)
    words = (head + block_with_hash(head, 2**31) for head in heads)
    word = next(word for word in words if all(byte in letters for byte in word)).decode()
    assert murmurhash3_32(word) == -(2**31)
    for n_features in (97, 2**20):
        ours = TextFeatures(n_features=n_features, idf=None).transform([word])
        theirs = HashingVectorizer(n_features=n_features).transform([word])
        assert abs(ours - theirs).max() == 0.0


@cache
def inverse(number: int) -> int:
    return pow(number, -1, 2**32)


@given(st.lists(texts, min_size=1, max_size=6))
def test_words_are_those_of_re(documents):
    expected = [re.findall(r"(?u)\b\w\w+\b", document.lower()) for document in documents]
    assert found(Analysis(), documents) == expected


@pytest.mark.parametrize("pattern", [r"\w+", r"\S+", r"[a-z]+", r"[^,]+", r"\b\w{3,}\b"])
@given(documents=st.lists(texts, min_size=1, max_size=4))
def test_runs_of_other_classes(pattern, documents):
    assert run_of(pattern) is not None
    expected = [re.findall(pattern, document) for document in documents]
    assert found(Analysis(token_pattern=pattern, lowercase=False), documents) == expected


@pytest.mark.parametrize(
    "pattern", [r"\b\S+\b", r"\w+?", r"(\w)\w+", r"\w*", r"[a-z]+[0-9]", r"\w{2}", r"[\w-]+", "a+"]
)
def test_other_patterns_are_left_to_re(pattern):
    assert run_of(pattern) is None
    documents = ["one two-three, a1 aab", "", "x"]
    expected = [re.findall(pattern, document) for document in documents]
    assert found(Analysis(token_pattern=pattern), documents) == expected


@given(st.lists(texts, min_size=1, max_size=4))
def test_characters_and_their_spaces(documents):
    plain = [re.sub(r"\s\s+", " ", document.lower()) for document in documents]
    assert found(Analysis("char"), documents) == [list(document) for document in plain]
    pairs = [[a + b for a, b in pairwise(document)] for document in plain]
    assert found(Analysis("char", (2, 2)), documents) == pairs


def test_a_short_word_counts_once():
    grams = found(Analysis("char_wb", (2, 4)), ["ab c"])[0]
    assert grams == [" a", "ab", "b ", " ab", "ab ", " ab ", " c", "c ", " c "]


def test_words_of_ngrams_skip_stop_words_and_stay_in_their_document():
    analysis = Analysis(ngram_range=(2, 2), stop_words=("the",))
    assert found(analysis, ["Under the big tree", "the", "a tree"]) == [
        ["under big", "big tree"],
        [],
        [],
    ]


@given(st.lists(st.text(st.sampled_from("ab\0é漢😀"), max_size=20), unique=True))
def test_terms_are_sorted_by_code_point(terms):
    vocabulary = Vocabulary.from_terms(terms)
    ends = vocabulary._ends
    order = sorted_order(vocabulary._arena, np.append(0, ends[:-1])[: len(terms)], ends)
    assert [terms[i] for i in order] == sorted(terms)
    assert vocabulary.terms() == terms


def test_a_table_numbers_terms_as_they_appear_however_it_grows():
    rng = np.random.default_rng(0)
    words = [f"{n:x}" * (1 + n % 5) for n in rng.integers(0, 20_000, 60_000).tolist()]
    encoded = [word.encode() for word in words]
    stops = np.cumsum([len(word) for word in encoded]).astype(np.int32)
    starts = np.append(0, stops[:-1]).astype(np.int32)
    text = np.frombuffer(b"".join(encoded) + bytes(PADDING), dtype=np.uint8).copy()
    table = TermTable()
    numbers = table.numbers(text, starts, stops)
    known: dict[str, int] = {}
    assert numbers.tolist() == [known.setdefault(word, len(known)) for word in words]
    vocabulary = table.vocabulary()
    assert vocabulary.terms() == list(known)
    np.testing.assert_array_equal(vocabulary.numbers(text, starts, stops), numbers)
    again = TermTable(vocabulary)
    np.testing.assert_array_equal(again.numbers(text, starts, stops), numbers)
    assert table.vocabulary(table.order()).terms() == sorted(known)


def test_terms_that_share_a_hash_slot_are_told_apart_by_their_bytes():
    terms = [f"{a}{b}" for a in "xyz" for b in range(3000)]
    vocabulary = Vocabulary.from_terms(terms[::2])
    data = "".join(terms).encode() + bytes(PADDING)
    stops = np.cumsum([len(term) for term in terms]).astype(np.int32)
    starts = np.append(0, stops[:-1]).astype(np.int32)
    numbers = vocabulary.numbers(np.frombuffer(data, dtype=np.uint8).copy(), starts, stops)
    assert numbers[::2].tolist() == list(range(len(terms[::2])))
    assert (numbers[1::2] == -1).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ends": np.array([5, 2, 6])}, "do not fit"),
        ({"ends": np.array([1, 2, 7])}, "do not fit"),
        ({"ends": np.array([1.0, 2.0])}, "wrong types of bytes"),
        ({"bytes": np.array([255] * 6, dtype=np.uint8)}, "not valid UTF-8"),
        ({"bytes": np.frombuffer(b"aabbaa", dtype=np.uint8)}, "twice"),
    ],
)
def test_a_damaged_vocabulary_is_refused(change, message):
    plain = Vocabulary.from_terms(["ab", "cd", "ef"]).to_json()
    assert Vocabulary.from_json(plain).terms() == ["ab", "cd", "ef"]
    with pytest.raises(ValueError, match=message):
        Vocabulary.from_json({**plain, **change})
