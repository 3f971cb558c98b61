"""Text analysis: extraction of n-grams from documents, as spans of bytes.

Lower-casing and accent stripping use Python's functions, and character classes are evaluated by
Python's ``re``; compiled code only finds runs of characters. Token patterns other than a run of one
character class are handled by ``re``.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from likelier.base import Array
from likelier.text.documents import Block, Bytes, to_bytes
from likelier.text.loops.ngrams import ngram_spans
from likelier.text.loops.tokens import join_words, split_bounded, split_characters, split_words
from likelier.text.loops.unaligned import PADDING
from likelier.text.vocabulary import Vocabulary

TOKEN_PATTERN = r"(?u)\b\w\w+\b"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Spans:
    """N-grams: start and stop of each in ``text``, and their cumulative count by document."""

    text: Array
    starts: Array
    stops: Array
    doc_ends: Array

    @property
    def lengths(self) -> Array:
        """Number of n-grams of each document."""
        return np.diff(self.doc_ends, prepend=0)


@dataclass(frozen=True)
class Analysis:
    """Settings of the n-gram extraction, with the parameters of `likelier.TextFeatures`."""

    analyzer: str = "word"
    ngram_range: tuple[int, int] = (1, 1)
    lowercase: bool = True
    strip_accents: str | None = None
    token_pattern: str = TOKEN_PATTERN
    stop_words: tuple[str, ...] = ()

    @property
    def block_size(self) -> int:
        """Characters per block, so that its spans take some tens of megabytes."""
        least, most = self.ngram_range
        per_character = (most - least + 1) * (1 if self.analyzer == "word" else 4)
        return max(1 << 16, _BLOCK // per_character)

    def spans(self, block: Block) -> Spans:
        """Find the n-grams of a block of documents."""
        texts = block.texts
        if self.strip_accents is not None:
            texts = [self.prepare(text) for text in texts]
        elif self.lowercase:  # ASCII documents are lower-cased by compiled code
            texts = [text if text.isascii() else text.lower() for text in texts]
        least, most = self.ngram_range
        if self.analyzer == "word" and self._run is None:
            text, starts, stops, group_ends = self._tokens_by_pattern(texts, block.start)
        else:
            encoded = to_bytes(texts, block.start)
            if self.analyzer == "char_wb":
                table = _members(r"\s", bool(encoded.wide.any()))
                text, starts, stops, group_ends, doc_ends = split_bounded(
                    encoded.data, encoded.ends, table, self._capitals
                )
                return Spans(
                    text, *ngram_spans(starts, stops, group_ends, doc_ends, least, most, True)
                )
            text, starts, stops, group_ends = self._pieces(encoded)
        if most == 1:
            return Spans(text, starts, stops, group_ends)
        doc_ends = np.arange(1, len(texts) + 1)
        return Spans(text, *ngram_spans(starts, stops, group_ends, doc_ends, least, most, False))

    def prepare(self, text: str) -> str:
        """Lower-case a text and strip its accents."""
        if self.lowercase:
            text = text.lower()
        if self.strip_accents is None or text.isascii():
            return text
        parts = unicodedata.normalize("NFKD", text)
        if self.strip_accents == "ascii":
            return parts.encode("ascii", "ignore").decode()
        return "".join(part for part in parts if not unicodedata.combining(part))

    def tokens(self, text: str) -> list[str]:
        """Return the tokens of a text before stop words are removed."""
        return list(re.findall(self.token_pattern, self.prepare(text)))

    # -- private ------------------------------------------------------------------------
    @property
    def _capitals(self) -> np.uint8:
        return np.uint8(26 if self.lowercase and self.strip_accents is None else 0)

    @cached_property
    def _run(self) -> tuple[str, int] | None:
        """Character class and minimum length, if the pattern is a run of one class."""
        return run_of(self.token_pattern)

    @cached_property
    def _stop(self) -> Vocabulary:
        return Vocabulary.from_terms(sorted(set(self.stop_words)))

    def _pieces(self, encoded: Bytes) -> tuple[Array, Array, Array, Array]:
        wide = bool(encoded.wide.any())
        if self.analyzer == "char":
            table = _members(r"\s", wide)
            found = split_characters(encoded.data, encoded.ends, table, self._capitals)
            return found[0], found[1], found[2], found[3]
        assert self._run is not None
        one, least = self._run
        text, starts, stops, ends = split_words(
            encoded.data, encoded.ends, encoded.wide, _members(one, wide), self._capitals, least
        )
        if not self.stop_words and self.ngram_range[1] == 1:
            return text, starts, stops, ends
        keep = np.ones(len(starts), dtype=np.bool_)
        if self.stop_words:
            keep = self._stop.numbers(text, starts, stops) < 0
        joined = join_words(text, starts, stops, ends, keep)
        return joined[0], joined[1], joined[2], joined[3]

    def _tokens_by_pattern(self, texts: list[str], start: int) -> tuple[Array, Array, Array, Array]:
        """Find the tokens by ``re``, and join them with single spaces."""
        if self._capitals:
            texts = [text.lower() for text in texts]
        find = re.compile(self.token_pattern).findall
        found = [find(text) for text in texts]
        if self.stop_words:
            stop = frozenset(self.stop_words)
            found = [[token for token in tokens if token not in stop] for tokens in found]
        words = to_bytes([token for tokens in found for token in tokens], start)
        ends = words.ends.astype(np.int32)
        starts = np.append(np.int32(0), ends[:-1] + np.int32(1)) if len(ends) else ends
        text = np.full(len(words.data) + PADDING, 32, dtype=np.uint8)
        text[: len(words.data)] = words.data
        text[ends] = 32
        word_ends = np.cumsum(np.fromiter(map(len, found), np.int64, len(found)))
        return text, starts.astype(np.int32), ends, word_ends


def run_of(pattern: str) -> tuple[str, int] | None:
    r"""Return character class and minimum length if a pattern matches maximal runs, or None.

    Such patterns are ``\w+``, ``\w\w+``, ``\w{3,}``, ``[a-z]+``, and those with ``\w`` between
    two ``\b``, which are redundant around a maximal run of ``\w``.
    """
    inner = pattern.removeprefix("(?u)")
    bordered = inner.startswith(r"\b") and inner.endswith(r"\b")
    inner = inner[2:-2] if bordered else inner
    match = re.match(r"\\w|\\S|\[[^\[\]\\]+\]", inner)
    if match is None or (bordered and match[0] != r"\w"):
        return None
    one, more = match[0], inner[match.end() :]
    number = re.fullmatch(r"\{(\d+),\}", more)
    if number is not None and int(number[1]) > 0:
        return one, int(number[1])
    least = 1
    while more.startswith(one):
        more, least = more.removeprefix(one), least + 1
    return (one, least) if more == "+" else None


@lru_cache(maxsize=16)
def _members(one: str, wide: bool) -> Array:
    """Table of the code points (bytes, if not ``wide``) in a character class of ``re``."""
    table = np.zeros(0x110000 if wide else 256, dtype=np.uint8)
    codes = np.delete(np.arange(len(table) if wide else 128), slice(0xD800, 0xE000))
    characters = codes.astype("<u4").tobytes().decode("utf-32-le")
    for run in re.finditer(f"(?:{one})+", characters):
        table[codes[run.start() : run.end()]] = 1
    return table
