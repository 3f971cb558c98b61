"""Compiled counting of n-grams, indexed by an exact table of terms or hashed to columns.

An n-gram is a span of bytes, from the start of one piece (word or character, see
`likelier.text.loops.tokens`) to the end of another. N-grams stay within a group of pieces (a
document, or a word), and groups belong to documents.

A table of terms consists of four arrays. ``slots`` is an open-addressing hash table whose entries
combine 32 bits of a term's hash with its index plus one (0: empty); ``hashes``, ``ends`` and
``arena`` store the full hash, the end, and the concatenated bytes of the terms. Terms are compared
byte by byte. Arrays of text have `PADDING`.
"""

import numpy as np

from likelier.jit import njit
from likelier.loops.rows import prefetch
from likelier.text.loops.murmur import murmur3
from likelier.text.loops.unaligned import PADDING, load64

_compiled = njit(cache=True, nogil=True, error_model="numpy")
_helper = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)

_ONE, _HALF, _LOW = np.uint64(1), np.uint64(32), np.uint64(0xFFFFFFFF)
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x9E3779B97F4A7C15)
AHEAD = 16  # spans (a power of two) by which hashes are computed in advance
_WRAP = 2 * AHEAD - 1
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@_helper
def _last_bytes(word, length):
    """Keep the first ``length`` (1 to 8) bytes of a word."""
    return word & (_ALL >> np.uint64(64 - 8 * length))


@_helper
def _hash(text, start, length):
    h = _BASIS ^ np.uint64(length)
    while length > 8:
        h = (h ^ load64(text, start)) * _PRIME
        h ^= h >> _HALF
        start += 8
        length -= 8
    if length > 0:
        h = (h ^ _last_bytes(load64(text, start), length)) * _PRIME
    h = (h ^ (h >> _HALF)) * _PRIME
    return h ^ (h >> _HALF)


@_helper
def _same(text, start, arena, first, length):
    while length > 8:
        if load64(text, start) != load64(arena, first):
            return False
        start += 8
        first += 8
        length -= 8
    if length == 0:
        return True
    return _last_bytes(load64(text, start) ^ load64(arena, first), length) == 0


@_compiled
def fill_slots(slots, hashes, n_terms):
    """Insert the first terms into empty slots, of which there must be more than terms."""
    mask = np.uint64(len(slots) - 1)
    for number in range(n_terms):
        place = hashes[number] & mask
        while slots[place] != 0:
            place = (place + _ONE) & mask
        slots[place] = (hashes[number] & ~_LOW) | np.uint64(number + 1)


@_compiled
def ngram_spans(starts, stops, group_ends, doc_ends, least, most, short):
    """List the n-grams of ``least`` to ``most`` pieces: start, stop, end of each document.

    If ``short``, a group with too few pieces for an n-gram yields one n-gram of all its pieces.
    """
    span_ends = np.empty(len(doc_ends), dtype=np.int64)
    spans = np.empty((2, 0), dtype=np.int32)
    for writing in range(2):
        n_spans = first_group = first = 0
        for doc in range(len(doc_ends)):
            for group in range(first_group, doc_ends[doc]):
                n_pieces = group_ends[group] - first
                for n in range(least, most + 1):
                    if n >= n_pieces and (short or n > n_pieces):
                        if short:
                            if writing:
                                spans[0, n_spans] = starts[first]
                                spans[1, n_spans] = stops[first + n_pieces - 1]
                            n_spans += 1
                        break
                    if writing:
                        for i in range(n_pieces - n + 1):
                            spans[0, n_spans + i] = starts[first + i]
                            spans[1, n_spans + i] = stops[first + i + n - 1]
                    n_spans += n_pieces - n + 1
                first = group_ends[group]
            first_group = doc_ends[doc]
            span_ends[doc] = n_spans
        if not writing:
            spans = np.empty((2, n_spans), dtype=np.int32)
    return spans[0], spans[1], span_ends


@_compiled
def hash_terms(arena, ends, hashes):
    """Compute the hash of each term."""
    first = 0
    for number in range(len(ends)):
        hashes[number] = _hash(arena, first, ends[number] - first)
        first = ends[number]


@_compiled
def number_spans(text, starts, stops, first, numbers, slots, hashes, ends, arena, n_terms, learn):
    """Write the term index of each span from ``first`` on, -1 if it is not a term.

    If ``learn``, new spans become terms while there is room for them.

    Returns
    -------
    n_done, n_terms : int
        Number of spans processed, and of terms. If not all spans are processed, the caller has to
        enlarge the table and continue.
    """
    mask = np.uint64(len(slots) - 1)
    used = ends[n_terms - 1] if n_terms > 0 else 0
    ahead = np.empty(2 * AHEAD, dtype=np.uint64)
    for i in range(first - AHEAD, len(starts)):
        # A lookup misses the cache three times, so its slot, the end of the term found there, and
        # its bytes are prefetched. (A function call with so many arrays would cost more than it
        # saves.)
        soon = i + AHEAD
        if soon < len(starts):
            ahead[soon & _WRAP] = _hash(text, starts[soon], stops[soon] - starts[soon])
            prefetch(slots, ahead[soon & _WRAP] & mask)
        soon = i + AHEAD // 2
        if first <= soon < len(starts):
            entry = slots[ahead[soon & _WRAP] & mask]
            if entry != 0:
                prefetch(ends, (entry & _LOW) - _ONE)
        soon = i + AHEAD // 4
        if first <= soon < len(starts):
            entry = slots[ahead[soon & _WRAP] & mask]
            if entry != 0:
                stop = ends[(entry & _LOW) - _ONE]
                prefetch(arena, np.uint64(stop - (stops[soon] - starts[soon])))
        if i < first:
            continue
        start = starts[i]
        length = stops[i] - start
        h = ahead[i & _WRAP]
        place = h & mask
        number = np.int64(-1)
        while slots[place] != 0:
            entry = slots[place]
            if (entry ^ h) <= _LOW:
                candidate = np.uint64((entry & _LOW) - _ONE)
                begin = ends[candidate - _ONE] if candidate > 0 else 0
                if ends[candidate] - begin == length and _same(text, start, arena, begin, length):
                    number = np.int64(candidate)
                    break
            place = (place + _ONE) & mask
        if number < 0 and learn:
            if (
                n_terms == len(hashes)
                or 2 * n_terms >= len(slots)
                or used + length + PADDING > len(arena)
            ):
                return i, n_terms
            for k in range(length):
                arena[used + k] = text[start + k]
            used += length
            number = np.int64(n_terms)
            hashes[number] = h
            ends[number] = used
            n_terms += 1
            slots[place] = (h & ~_LOW) | np.uint64(n_terms)
        numbers[i] = number
    return len(starts), n_terms


@_compiled
def count_rows(numbers, span_ends, entry_of, base, terms, counts, row_ends):
    """Count equal term indices within each document, in order of appearance; -1 is ignored.

    ``entry_of`` is the position of the last entry of each term, offset by ``base``, the number of
    earlier entries; a position before the current row belongs to an earlier document. ``terms``
    and ``counts`` are written; returns their number of entries.
    """
    n_entries = first = 0
    for doc in range(len(span_ends)):
        row = base + n_entries
        for i in range(first, span_ends[doc]):
            number = numbers[i]
            if number < 0:
                continue
            entry = entry_of[np.uint64(number)]
            if entry >= row:
                counts[np.uint64(entry - base)] += 1
            else:
                entry_of[np.uint64(number)] = base + n_entries
                terms[n_entries] = number
                counts[n_entries] = 1
                n_entries += 1
        first = span_ends[doc]
        row_ends[doc] = n_entries
    return n_entries


@_compiled
def hash_rows(text, starts, stops, span_ends, n_features, signed, columns, counts, row_ends):
    """Count spans within each document by the hash of their bytes, with sorted columns.

    The column is ``|h| mod n_features`` with the 32-bit MurmurHash3 ``h``; if ``signed``, spans
    with a negative hash count -1. The columns of a row are collected in an order-preserving hash
    table, whose contents are nearly sorted. ``columns`` and ``counts`` are written, and need one
    element more than there are spans; returns their number of entries.
    """
    hashes = np.empty(len(starts), dtype=np.int32)
    for i in range(len(starts)):
        hashes[i] = murmur3(text, starts[i], stops[i] - starts[i])
    largest = first = 0
    for doc in range(len(span_ends)):
        largest = max(largest, span_ends[doc] - first)
        first = span_ends[doc]
    table = np.full(3 * largest + 1, -1, dtype=np.int32)
    sums = np.zeros(len(table), dtype=np.int32)
    power = n_features & (n_features - 1) == 0
    low, negative = np.uint32(n_features - 1), np.int32(-2 if signed else 0)
    n_entries = np.uint64(0)
    first = 0
    for doc in range(len(span_ends)):
        size = 2 * (span_ends[doc] - first)
        ratio = np.uint64((size << 32) // n_features)
        used = np.uint64(0)
        for i in range(first, span_ends[doc]):
            below = hashes[i] >> np.int32(31)  # -1 for a negative hash
            magnitude = np.uint32((hashes[i] ^ below) - below)
            # a division would dominate the cost
            column = np.int32(magnitude & low) if power else np.int32(magnitude % n_features)
            place = (np.uint64(column) * ratio) >> _HALF
            while (table[place] >= 0) & (table[place] != column):
                place += _ONE
            table[place] = column
            sums[place] += np.int32(1) + (below & negative)
            used = max(used, place + _ONE)
        n_entries = _emptied(table, sums, used, columns, counts, n_entries)
        first = span_ends[doc]
        row_ends[doc] = n_entries
    return n_entries


@_helper
def _emptied(table, sums, size, columns, counts, row):
    """Write the contents of a table in sorted order from entry ``row`` on, and clear it."""
    end = row
    for place in range(size):
        column = table[place]
        columns[end] = column
        counts[end] = sums[place]
        end += np.uint64(column >= 0)
    table[:size] = -1
    sums[:size] = 0
    for i in range(np.int64(row) + 1, np.int64(end)):
        if columns[i] < columns[i - 1]:
            column, count, j = columns[i], counts[i], i
            while j > row and columns[j - 1] > column:
                columns[j], counts[j] = columns[j - 1], counts[j - 1]
                j -= 1
            columns[j], counts[j] = column, count
    return end
