"""Documents of any container as blocks of strings, and their encoding as one array of bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import narwhals as nw
import numpy as np

from likelier.base import Array

CHUNK = 256
FEW = 16
LARGEST = 1 << 30
PLURAL = "give a list of documents, a column of a frame, or an iterator over documents"


@dataclass(frozen=True)
class Block:
    """Consecutive documents; ``start`` is the number of the first."""

    texts: list[str]
    start: int


@dataclass(frozen=True)
class Bytes:
    """Documents as UTF-8, each followed by a line break.

    ``ends`` is the end of each, and ``wide`` whether it contains non-ASCII characters.
    """

    data: Array
    ends: Array
    wide: Array


def blocks(
    documents: Any, size: int, encoding: str = "utf-8", errors: str = "strict"
) -> Iterator[Block]:
    """Yield documents in blocks of about ``size`` characters.

    Parameters
    ----------
    documents : list, array, series, one-column frame or iterable
        Documents are strings, bytes in the given encoding, or paths of files in it.
    size : int
        Characters per block; a longer document is a block by itself.
    encoding : str
        Encoding of bytes and files.
    errors : {"strict", "ignore", "replace"}
        Handling of bytes that cannot be decoded.

    Raises
    ------
    TypeError
        If the container or a document has another type.
    ValueError
        If a document is missing, cannot be decoded or is too long.
    """
    texts: list[str] = []
    start = length = 0
    for chunk in _chunks(documents):
        first = start + len(texts)
        if set(map(type, chunk)) != {str}:
            numbered = enumerate(chunk, first)
            chunk = [_as_text(item, number, encoding, errors) for number, item in numbered]
        if max(map(len, chunk)) > LARGEST:
            number = first + [len(text) > LARGEST for text in chunk].index(True)
            raise ValueError(f"document {number} is longer than {LARGEST:,} characters; split it")
        texts += chunk
        length += sum(map(len, chunk))
        if length >= size or len(texts) >= size:
            yield Block(texts, start)
            texts, start, length = [], start + len(texts), 0
    if texts:
        yield Block(texts, start)


def to_bytes(texts: list[str], start: int) -> Bytes:
    """Encode documents; ``start`` is the number of the first, for messages."""
    joined = "\n".join([*texts, ""])  # the last document gets its line break
    n_texts = len(texts)
    try:
        data = np.frombuffer(joined.encode(), dtype=np.uint8)
        if joined.isascii():
            lengths = np.fromiter(map(len, texts), np.int64, n_texts)
            wide = np.zeros(n_texts, dtype=np.bool_)
        else:
            sizes = (len(text.encode()) for text in texts)
            lengths = np.fromiter(sizes, np.int64, n_texts)
            wide = ~np.fromiter(map(str.isascii, texts), np.bool_, n_texts)
    except UnicodeEncodeError:
        raise ValueError(_surrogate(texts, start)) from None
    return Bytes(data, np.cumsum(lengths + 1) - 1, wide)


def _surrogate(texts: list[str], start: int) -> str:
    for number, text in enumerate(texts, start=start):
        for position, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                return (
                    f"document {number} contains a lone surrogate (U+{ord(character):04X} at "
                    f"position {position}), which is invalid Unicode from a wrong decoding. Repair "
                    "it with text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
                )
    return "the documents cannot be encoded as UTF-8"


def _chunks(documents: Any) -> Iterator[list[Any]]:
    """Yield the documents of a container in small chunks."""
    if isinstance(documents, str | bytes | os.PathLike):
        raise ValueError(f"X is a single {type(documents).__name__}; {PLURAL}")
    if nw.dependencies.is_into_dataframe(documents):
        frame = nw.from_native(documents, eager_only=True)
        if len(frame.columns) != 1:
            raise ValueError(
                f"X is a frame of {len(frame.columns)} columns; {PLURAL} (for several columns, "
                "one TextFeatures each in a ColumnTransformer)"
            )
        documents = frame.get_column(frame.columns[0]).to_native()
    if isinstance(documents, np.ndarray):
        if documents.ndim == 2 and documents.shape[1] == 1:
            documents = documents[:, 0]
        if documents.ndim != 1:
            raise ValueError(f"X has shape {documents.shape}; {PLURAL}")
    take = _slicer(documents)
    if take is not None:
        for first in range(0, len(documents), CHUNK):
            yield take(first)
        return
    if not isinstance(documents, Iterable) or hasattr(documents, "tocsr"):
        raise TypeError(f"X is of type {type(documents).__name__}; {PLURAL}")
    items = iter(documents)
    while chunk := list(islice(items, FEW)):
        yield chunk


def _slicer(documents: Any) -> Callable[[int], list[Any]] | None:
    """Return a function that gets the next chunk of a container, None for other iterables."""
    if isinstance(documents, list | tuple):
        return lambda first: list(documents[first : first + CHUNK])
    if isinstance(documents, np.ndarray):
        return lambda first: cast("list[Any]", documents[first : first + CHUNK].tolist())
    if hasattr(documents, "to_pylist") and hasattr(documents, "slice"):  # Arrow, chunked or not
        return lambda first: cast("list[Any]", documents.slice(first, CHUNK).to_pylist())
    if nw.dependencies.is_into_series(documents):
        series = nw.from_native(documents, series_only=True)
        return lambda first: series[first : first + CHUNK].to_list()
    return None


def _as_text(item: Any, number: int, encoding: str, errors: str) -> str:
    """Convert a document of another type to a string."""
    if isinstance(item, str):  # a subclass, such as numpy.str_
        return str(item)
    if item is None or type(item).__name__ == "NAType" or item != item:
        raise ValueError(f"document {number} is missing ({item!r}); use an empty text or remove it")
    if isinstance(item, os.PathLike):
        item = Path(item).read_bytes()
    if not isinstance(item, bytes | bytearray | memoryview):
        raise TypeError(
            f"document {number} is of type {type(item).__name__}, not text; convert it with str()"
        )
    try:
        return bytes(item).decode(encoding, errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"document {number} is not valid {encoding!r} ({error.reason} at byte "
            f"{error.start}); set encoding to the right one, or decode_error"
        ) from None
