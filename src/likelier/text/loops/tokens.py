"""Compiled splitting of UTF-8 texts into pieces: words, characters, or characters of words.

Documents are one array of bytes, each followed by a line break, with the end of each. The pieces
refer to a copy in which every n-gram is a contiguous span, from the start of its first piece to the
end of its last: characters are adjacent, and `join_words` puts one space between words.

Character classes (word characters, spaces) are lookup tables over bytes and code points, computed
by Python. ASCII capitals are lower-cased here if ``capitals`` is 26 instead of 0; other letters
must be lower-cased by the caller.
"""

import numpy as np

from likelier.jit import njit
from likelier.text.loops.unaligned import PADDING

_compiled = njit(cache=True, nogil=True, error_model="numpy")
_helper = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_SPACE = 32
_ONE = np.uint64(1)
_A = np.uint8(65)


@_helper
def _width(lead):
    """Number of bytes of the character with this lead byte (the text is valid UTF-8)."""
    if lead < 0x80:
        return 1
    if lead < 0xE0:
        return 2
    return 3 if lead < 0xF0 else 4


@_helper
def _code_point(data, i, width):
    lead = np.int64(data[i])
    if width == 1:
        return lead
    code = lead & (0x7F >> width)
    for k in range(1, width):
        code = (code << 6) | (np.int64(data[i + k]) & 0x3F)
    return code


@_helper
def _small(byte, capitals):
    return byte + np.uint8((np.uint8(byte - _A) < capitals) << 5)


@_helper
def _mark_wide(data, start, stop, is_member, inside):
    """Set ``inside`` for the bytes of non-ASCII characters by their membership."""
    for i in range(start, stop):
        if data[i] >= 0xC0:
            width = _width(data[i])
            inside[i : i + width] = is_member[_code_point(data, i, width)]


@_helper
def _characters(data, start, stop):
    """Number of characters of a span, i.e. of non-continuation bytes."""
    count = 0
    for i in range(start, stop):
        count += (data[i] & 0xC0) != 0x80
    return count


@_compiled
def split_words(data, doc_ends, wide, is_member, capitals, least):
    """Find the maximal runs of member characters, of at least ``least`` characters.

    ``wide`` marks documents with non-ASCII characters. The main loops are branch-free, because
    branches would be mispredicted at the end of every word.

    Returns the bytes, the start and end of each word, and the cumulative number of words by
    document.
    """
    size = len(data)
    text = np.empty(size + PADDING, dtype=np.uint8)
    inside = np.empty(size, dtype=np.uint8)
    for i in range(size):
        text[i] = _small(data[i], capitals)
    for i in range(size):  # a separate loop: fused with the previous one it takes twice as long
        inside[i] = is_member[text[i]]
    first = 0
    for doc in range(len(doc_ends)):
        if wide[doc]:
            _mark_wide(data, first, doc_ends[doc], is_member, inside)
        first = doc_ends[doc]
        inside[first] = 0  # words do not extend across documents
    borders = np.empty(size + 2, dtype=np.int32)
    before, n_borders = np.uint8(0), np.uint64(0)
    for i in range(size):  # the last byte is a line break
        borders[n_borders] = i
        n_borders += np.uint64(inside[i] ^ before)
        before = inside[i]
    starts = np.empty(n_borders // 2 + 1, dtype=np.int32)
    ends = np.empty(len(starts), dtype=np.int32)
    word_ends = np.empty(len(doc_ends), dtype=np.int64)
    k = n_words = np.uint64(0)
    for doc in range(len(doc_ends)):
        stop = doc_ends[doc]
        while k < n_borders and borders[k] < stop:
            start, end = borders[k], borders[k + _ONE]
            k += np.uint64(2)
            starts[n_words], ends[n_words] = start, end
            length = end - start
            if wide[doc] and length < 4 * least:
                length = _characters(data, start, end)
            n_words += np.uint64(length >= least)
        word_ends[doc] = n_words
    return text, starts[:n_words], ends[:n_words], word_ends


@_compiled
def join_words(text, starts, ends, word_ends, keep):
    """Join the words to keep with single spaces; returns the same as `split_words`."""
    size = len(starts)
    for i in range(len(starts)):
        size += ends[i] - starts[i]
    joined = np.empty(size + PADDING, dtype=np.uint8)
    new_starts = np.empty(len(starts), dtype=np.int32)
    new_ends = np.empty(len(starts), dtype=np.int32)
    new_word_ends = np.empty(len(word_ends), dtype=np.int64)
    written = n_words = first = 0
    for doc in range(len(word_ends)):
        for i in range(first, word_ends[doc]):
            if keep[i]:
                new_starts[n_words] = written
                for k in range(starts[i], ends[i]):
                    joined[written] = text[k]
                    written += 1
                new_ends[n_words] = written
                joined[written] = _SPACE
                written += 1
                n_words += 1
        first = word_ends[doc]
        new_word_ends[doc] = n_words
    return joined, new_starts[:n_words], new_ends[:n_words], new_word_ends


@_compiled
def split_characters(data, doc_ends, is_space, capitals):
    """Find the characters of each document, collapsing runs of spaces into one.

    Returns the same as `split_words`.
    """
    n_docs = len(doc_ends)
    text = np.empty(len(data) + PADDING, dtype=np.uint8)
    starts = np.empty(len(data) + 1, dtype=np.int32)
    char_ends = np.empty(n_docs, dtype=np.int64)
    i = written = n_chars = 0
    for doc in range(n_docs):
        stop = doc_ends[doc]
        n_spaces = 0
        while i < stop:
            byte = data[i]
            width = _width(byte)
            if is_space[_code_point(data, i, width)]:
                n_spaces += 1
                if n_spaces == 2:  # replace the first space, which was copied unchanged
                    written = starts[n_chars - 1]
                    text[written] = _SPACE
                    written += 1
                if n_spaces >= 2:
                    i += width
                    continue
            else:
                n_spaces = 0
            starts[n_chars] = written
            n_chars += 1
            text[written] = _small(byte, capitals)
            for k in range(1, width):
                text[written + k] = data[i + k]
            written += width
            i += width
        char_ends[doc] = n_chars
        i = stop + 1
    starts[n_chars] = written
    return text, starts[:n_chars], starts[1 : n_chars + 1], char_ends


@_compiled
def split_bounded(data, doc_ends, is_space, capitals):
    """Find the characters of each whitespace-separated word, padded with a space on each side.

    Returns bytes, starts and ends of the characters, the cumulative number of characters by word,
    and of words by document.
    """
    n_docs = len(doc_ends)
    # a one-byte word and the space after it become three characters
    room = 2 * (len(data) + n_docs) + 1
    text = np.empty(room + PADDING, dtype=np.uint8)
    starts = np.empty(room, dtype=np.int32)
    char_ends = np.empty((len(data) + n_docs) // 2 + 1, dtype=np.int64)
    word_ends = np.empty(n_docs, dtype=np.int64)
    i = written = n_chars = n_words = 0
    for doc in range(n_docs):
        stop = doc_ends[doc]
        inside = False
        while i <= stop:
            width, space = 1, True
            if i < stop:
                width = _width(data[i])
                space = is_space[_code_point(data, i, width)]
            if not space and not inside:
                starts[n_chars] = written
                text[written] = _SPACE
                n_chars += 1
                written += 1
                inside = True
            if not space:
                starts[n_chars] = written
                text[written] = _small(data[i], capitals)
                for k in range(1, width):
                    text[written + k] = data[i + k]
                n_chars += 1
                written += width
            elif inside:
                starts[n_chars] = written
                text[written] = _SPACE
                n_chars += 1
                written += 1
                char_ends[n_words] = n_chars
                n_words += 1
                inside = False
            i += width
        i = stop + 1
        word_ends[doc] = n_words
    starts[n_chars] = written
    return (
        text,
        starts[:n_chars],
        starts[1 : n_chars + 1],
        char_ends[:n_words],
        word_ends,
    )
