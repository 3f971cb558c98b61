"""Compiled splitting of UTF-8 texts into pieces: words, characters, or characters of words.

Documents come as one array of bytes, each followed by a line break, with the end of each. Pieces
are found in a copy of it in which an n-gram is a span, from the start of its first piece to the
end of its last: characters follow each other, and `join_words` puts one blank between words.

What a character is (of a word, a space) is told by arrays over bytes and code points, made from
Python's own tables, so that nothing here has an opinion on Unicode. Capital letters of ASCII are
made small here if there are ``capitals``, 26 of them or 0; the caller has done all others.
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
    """Bytes of the character that begins with this byte (the text is valid UTF-8)."""
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
    """Say of each byte of a character beyond ASCII whether that character is a member."""
    for i in range(start, stop):
        if data[i] >= 0xC0:
            width = _width(data[i])
            inside[i : i + width] = is_member[_code_point(data, i, width)]


@_helper
def _characters(data, start, stop):
    """Number of characters of a span: bytes that do not continue one."""
    count = 0
    for i in range(start, stop):
        count += (data[i] & 0xC0) != 0x80
    return count


@_compiled
def split_words(data, doc_ends, wide, is_member, capitals, least):
    """Find the longest runs of members, of at least ``least`` characters.

    ``wide`` tells which documents have characters beyond ASCII. Most of the work is done
    without branches, which the processor would guess wrong at the end of every word.

    Returns the bytes, the start and end of each word, and how many there are up to the end of
    each document.
    """
    size = len(data)
    text = np.empty(size + PADDING, dtype=np.uint8)
    inside = np.empty(size, dtype=np.uint8)
    for i in range(size):
        text[i] = _small(data[i], capitals)
    for i in range(size):  # a loop of its own, since together they take twice as long
        inside[i] = is_member[text[i]]
    first = 0
    for doc in range(len(doc_ends)):
        if wide[doc]:
            _mark_wide(data, first, doc_ends[doc], is_member, inside)
        first = doc_ends[doc]
        inside[first] = 0  # whatever the line break is, no word goes on behind it
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
    """Write the words to keep with one blank between them; returns as `split_words` does."""
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
    """Find the characters of each document, several spaces in a row being one blank.

    Returns as `split_words` does.
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
                if n_spaces == 2:  # what was written as it stood becomes a blank
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
    """Find the characters of each word between spaces, with a blank before and behind it.

    Returns bytes, starts and ends of the characters, how many there are up to the end of each
    word, and how many words up to the end of each document.
    """
    n_docs = len(doc_ends)
    # a word of one byte and the space behind it become three characters
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
