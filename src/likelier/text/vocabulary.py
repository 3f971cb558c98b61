"""Vocabularies: terms in one array of bytes, with an exact hash table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np

from likelier.base import Array
from likelier.text.loops.ngrams import fill_slots, hash_terms, number_spans
from likelier.text.loops.term_rows import gather_terms, prefix_keys
from likelier.text.loops.unaligned import PADDING

_NO_HASHES = np.zeros(0, dtype=np.uint64)


class Vocabulary:
    """An immutable, ordered set of terms.

    Parameters
    ----------
    arena : ndarray of uint8
        The terms as concatenated UTF-8, plus `PADDING` bytes.
    ends : ndarray of int64
        End of each term.
    """

    def __init__(self, arena: Array, ends: Array) -> None:
        self._arena = arena
        self._ends = ends

    @classmethod
    def from_terms(cls, terms: Sequence[str]) -> Self:
        """Create a vocabulary of distinct strings."""
        encoded = [term.encode() for term in terms]
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        padded = b"".join(encoded) + bytes(PADDING)
        return cls(np.frombuffer(padded, dtype=np.uint8).copy(), ends)

    def __len__(self) -> int:
        return len(self._ends)

    def terms(self) -> list[str]:
        """Return the terms as strings."""
        whole = self._arena.tobytes()
        ends = self._ends.tolist()
        return [whole[start:end].decode() for start, end in pairwise([0, *ends])]

    def numbers(self, text: Array, starts: Array, stops: Array) -> Array:
        """Return the index of the term in each span of ``text``, -1 if there is none."""
        numbers = np.empty(len(starts), dtype=np.int32)
        table = (self._slots, _NO_HASHES, self._ends, self._arena, len(self))
        number_spans(text, starts, stops, 0, numbers, *table, False)
        return numbers

    @cached_property
    def _slots(self) -> Array:
        slots, _ = _hashed(self._arena, self._ends)
        return slots

    def __getstate__(self) -> dict[str, Any]:
        return {"_arena": self._arena, "_ends": self._ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: two arrays."""
        return {"bytes": self._arena[: len(self._arena) - PADDING], "ends": self._ends}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the vocabulary that `to_json` wrote, validated for use by compiled code."""
        data, ends = (np.asarray(plain[key]) for key in ("bytes", "ends"))
        if data.dtype != np.uint8 or data.ndim != 1 or ends.dtype != np.int64 or ends.ndim != 1:
            raise ValueError("damaged vocabulary: wrong types of bytes and ends")
        if np.any(np.diff(ends, prepend=0) < 0) or (ends[-1] if len(ends) else 0) != len(data):
            raise ValueError("damaged vocabulary: ends that do not fit its bytes")
        found = cls(np.append(data, np.zeros(PADDING, dtype=np.uint8)), ends.copy())
        try:
            different = len(set(found.terms())) == len(found)
        except UnicodeDecodeError:
            raise ValueError("damaged vocabulary: its bytes are not valid UTF-8") from None
        if not different:
            raise ValueError("damaged vocabulary: a term occurs twice")
        return found


class TermTable:
    """A growing vocabulary: new spans become terms, indexed in order of appearance."""

    def __init__(self, start: Vocabulary | None = None) -> None:
        self.n_terms = 0 if start is None else len(start)
        if start is None:
            self._arena = np.empty(1 << 16, dtype=np.uint8)
            self._ends = np.empty(1 << 12, dtype=np.int64)
            self._hashes = np.empty(1 << 12, dtype=np.uint64)
            self._slots = np.zeros(1 << 13, dtype=np.uint64)
        else:
            self._arena, self._ends = start._arena.copy(), start._ends.copy()
            self._slots, self._hashes = _hashed(self._arena, self._ends)

    def numbers(self, text: Array, starts: Array, stops: Array) -> Array:
        """Return the index of the term in each span of ``text``."""
        numbers = np.empty(len(starts), dtype=np.int32)
        done = 0
        while True:
            table = (self._slots, self._hashes, self._ends, self._arena, self.n_terms)
            done, self.n_terms = number_spans(text, starts, stops, done, numbers, *table, True)
            if done == len(starts):
                return numbers
            self._grow(int(stops[done] - starts[done]))

    def vocabulary(self, order: Array | None = None) -> Vocabulary:
        """Return the terms listed by ``order``, or all by index."""
        ends = self._ends[: self.n_terms]
        starts = np.append(0, ends[:-1])[: self.n_terms]
        if order is None:
            order = np.arange(self.n_terms)
        size = int((ends[order] - starts[order]).sum())
        arena = np.zeros(size + PADDING, dtype=np.uint8)
        new_ends = np.empty(len(order), dtype=np.int64)
        gather_terms(self._arena, starts, ends, order, arena, new_ends)
        return Vocabulary(arena, new_ends)

    def order(self) -> Array:
        """Return the indices of the terms in alphabetical order."""
        ends = self._ends[: self.n_terms]
        return sorted_order(self._arena, np.append(0, ends[:-1])[: self.n_terms], ends)

    def _grow(self, length: int) -> None:
        """Double the capacity, with room for at least one term of this length."""
        used = int(self._ends[self.n_terms - 1]) if self.n_terms else 0
        if used + length + PADDING > len(self._arena):
            self._arena = _larger(self._arena, 2 * (used + length + PADDING))
        if self.n_terms == len(self._ends):
            self._ends = _larger(self._ends, 2 * self.n_terms + 16)
            self._hashes = _larger(self._hashes, 2 * self.n_terms + 16)
        if 2 * self.n_terms >= len(self._slots):
            self._slots = np.zeros(4 * len(self._slots), dtype=np.uint64)
            fill_slots(self._slots, self._hashes, self.n_terms)


def sorted_order(arena: Array, starts: Array, ends: Array) -> Array:
    """Return the order of terms by their UTF-8 bytes, which is that of their code points.

    Terms are sorted by their first eight bytes; then tied terms by as many further bytes as fit in
    an integer next to the rank of their group. Each round sorts fewer integers.
    """
    keys = prefix_keys(arena, starts, ends, 0, 8)
    order = np.argsort(keys)
    tied, group = _ties(keys[order])
    skip = 8
    while len(tied):
        terms = order[tied]
        width = (64 - int(group[-1]).bit_length()) // 8
        keys = prefix_keys(arena, starts[terms], ends[terms], skip, width)
        remaining = (ends[terms] - starts[terms]).max() - skip
        if remaining <= 0:  # the terms differ only in trailing zero bytes
            keys = (ends[terms] - starts[terms]).astype(np.uint64)
        keys |= group << np.uint64(8 * width)
        inner = np.argsort(keys)
        order[tied] = terms[inner]
        if remaining <= 0:
            break
        again, group = _ties(keys[inner])
        tied = tied[again]
        skip += width
    return order


def _ties(keys: Array) -> tuple[Array, Array]:
    """Return the indices of tied sorted keys, and the rank of the group of each."""
    same = keys[1:] == keys[:-1]
    tied = np.flatnonzero(np.append(False, same) | np.append(same, False))
    first = np.append(True, ~same)[tied] if len(keys) else np.zeros(0, dtype=bool)
    return tied, np.cumsum(first).astype(np.uint64)


def _hashed(arena: Array, ends: Array) -> tuple[Array, Array]:
    """Return slots and hashes of some terms."""
    hashes = np.empty(len(ends), dtype=np.uint64)
    hash_terms(arena, ends, hashes)
    slots = np.zeros(1 << (2 * len(ends) + 1).bit_length(), dtype=np.uint64)
    fill_slots(slots, hashes, len(ends))
    return slots, hashes


def _larger(array: Array, size: int) -> Array:
    larger = np.empty(size, dtype=array.dtype)
    larger[: len(array)] = array
    return larger
