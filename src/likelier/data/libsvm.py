"""The libsvm (svmlight) text format: sparse rows ``label column:value ...``, in bounded memory."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyarrow import csv
from scipy import sparse

from likelier.base import Array
from likelier.data.columns import numbers_of
from likelier.data.files import as_path, open_bytes, read_sample

FORM = "libsvm-1"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
CHUNK_BYTES = 1 << 22
MAX_BLOCK_ENTRIES = 1 << 20
MAX_COLUMN = 2**31 - 2
LONE_LINES = bytes.maketrans(b" \t\r:", b"\n\n\n\n")
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
PLUS = re.compile(rb"(?<![^\s:eE])\+(?=[\d.])")  # of a number; Arrow accepts none


@dataclass(frozen=True)
class LibsvmLayout:
    """Properties of a libsvm file that take a pass over it to detect.

    An immutable value, saved with a model, so that later files are read in the same way.
    """

    n_features: int
    zero_based: bool
    integer_labels: bool

    def get_feature_names_out(self) -> Array:
        """Names of the columns: their numbers in the file."""
        first = 0 if self.zero_based else 1
        return np.array([str(first + i) for i in range(self.n_features)], dtype=object)

    def to_json(self) -> dict[str, Any]:
        """Return the layout as plain values."""
        return {"form": FORM, **asdict(self)}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the layout that `to_json` wrote."""
        if plain.get("form") != FORM:
            raise ValueError(f"not a libsvm layout of form {FORM!r}: {plain.get('form')!r}")
        try:
            return cls(
                int(plain["n_features"]), bool(plain["zero_based"]), bool(plain["integer_labels"])
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"damaged libsvm layout: {error!r}") from error


@dataclass(frozen=True)
class _Rows:
    """Some rows of the file: raw column numbers, and labels as floats."""

    indptr: Array
    columns: Array
    values: Array
    labels: Array | None

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    def part(self, start: int, stop: int) -> _Rows:
        """Return some of the rows, sharing memory."""
        first, last = self.indptr[start], self.indptr[stop]
        return _Rows(
            self.indptr[start : stop + 1] - first,
            self.columns[first:last],
            self.values[first:last],
            None if self.labels is None else self.labels[start:stop],
        )


class LibsvmFile:
    """A libsvm file, plain or compressed, read as CSR blocks as often as needed.

    Parameters
    ----------
    path : path
        The file.
    layout : LibsvmLayout, optional
        Layout of the training file. Without it, the first use makes one pass over the file to
        detect the number of columns, whether they are counted from 0 or 1, and whether labels are
        integers.

    Notes
    -----
    Columns beyond those of the layout are dropped with a warning. Duplicate entries of a row are
    summed. ``qid:`` is skipped. If the first line has no label, no line may have one, and the file
    is unlabelled.
    """

    def __init__(self, path: str | os.PathLike[str], layout: LibsvmLayout | None = None) -> None:
        self._path = as_path(path)
        self._layout = layout
        self.name = str(self._path)
        self.labelled = _starts_with_label(self._path)

    @property
    def layout(self) -> LibsvmLayout:
        """The layout, given or detected."""
        if self._layout is None:
            self._layout = self._find_layout()
        return self._layout

    def blocks(self, block_rows: int) -> Iterator[tuple[sparse.csr_array, Array | None]]:
        """Yield blocks of rows and their labels (None in an unlabelled file), from the start.

        A block has ``block_rows`` rows, or fewer if rows have very many entries; the last block
        may be shorter.
        """
        if block_rows < 1:
            raise ValueError(f"block_rows must be at least 1, got {block_rows}")
        layout = self.layout
        dropped = 0
        for rows in _regroup(self._chunks(), block_rows):
            X, beyond = _matrix(rows, layout)
            dropped += beyond
            yield X, self._labels(rows, layout)
        if dropped:
            text = (
                f"{self.name!r}: ignored {dropped} entries in columns beyond the "
                f"{layout.n_features} that the model was fitted on"
            )
            warnings.warn(text, UserWarning, stacklevel=2)

    def _labels(self, rows: _Rows, layout: LibsvmLayout) -> Array | None:
        if rows.labels is None or not layout.integer_labels:
            return rows.labels
        # A later file may contain labels that are not integers.
        return rows.labels.astype(np.int64) if _all_whole(rows.labels) else rows.labels

    def _find_layout(self) -> LibsvmLayout:
        smallest, largest, whole, n_rows = 1, -1, True, 0
        for rows in self._chunks():
            n_rows += rows.n_rows
            if len(rows.columns):
                smallest = min(smallest, int(rows.columns.min()))
                largest = max(largest, int(rows.columns.max()))
            whole = whole and (rows.labels is None or _all_whole(rows.labels))
        if n_rows == 0:
            raise ValueError(f"{self.name!r} contains no rows")
        if largest < 0:
            raise ValueError(f"{self.name!r} has no entries: every row is zero")
        zero_based = smallest == 0
        return LibsvmLayout(largest + 1 if zero_based else largest, zero_based, whole)

    def _chunks(self) -> Iterator[_Rows]:
        """Parse the file in chunks of whole lines."""
        line = 1
        pieces: list[bytes] = []
        with open_bytes(self._path) as stream:
            while piece := stream.read(CHUNK_BYTES):
                end = piece.rfind(b"\n") + 1
                pieces.append(piece[:end] if end else piece)
                if end:
                    text = b"".join(pieces)
                    pieces = [piece[end:]]
                    yield self._parse(text, line)
                    line += text.count(b"\n")
        if rest := b"".join(pieces):
            yield self._parse(rest, line)

    def _parse(self, text: bytes, line: int) -> _Rows:
        """Parse whole lines, of which the first has the number ``line``."""
        if line == 1:
            text = text.removeprefix(BYTE_ORDER_MARK)
        lowest = 1 if self._layout is not None and not self._layout.zero_based else 0
        if b"#" in text:
            text = re.sub(rb"#[^\n]*", b"", text)
        if b"qid:" in text:
            text = re.sub(rb"(?<!\S)qid:\S*", b"", text)
        rows = _parse_rows(text, self.labelled, lowest)
        if rows is None:
            raise ValueError(f"{self.name!r}, line {_fault(text, line, self.labelled, lowest)}")
        return rows if _is_ordered(rows) else _sum_duplicates(rows)


def _parse_rows(text: bytes, labelled: bool, lowest: int) -> _Rows | None:
    """Rows of whole lines without comments; None if there is a fault, see `_fault`."""
    letters = np.frombuffer(text, dtype=np.uint8)
    is_blank = letters <= ord(" ")
    starts = np.flatnonzero(is_blank[:-1] > is_blank[1:]) + 1
    if len(text) and not is_blank[0]:
        starts = np.append(0, starts)
    colons, ends_of_lines = (np.flatnonzero(letters == ord(letter)) for letter in ":\n")
    first = np.zeros(len(starts) + 1, dtype=bool)  # token of its line
    first[np.append(0, np.searchsorted(starts, ends_of_lines))] = True
    first = first[:-1]
    # all tokens but labels are a column, one colon and a value
    is_entry = ~first if labelled else np.ones(len(starts), dtype=bool)
    after = np.append(starts[1:], len(text))[is_entry]
    if len(colons) != len(after) or not (
        (starts[is_entry] < colons).all() and (colons < after).all()
    ):
        return None
    numbers = _numbers(text)
    if numbers is None or len(numbers) != len(starts) + len(colons):
        return None
    ends = np.cumsum(1 + is_entry)  # numbers of a token
    columns, values = numbers[ends[is_entry] - 2], numbers[ends[is_entry] - 1]
    if (columns != np.rint(columns)).any() or not (
        lowest <= columns.min(initial=lowest) and columns.max(initial=lowest) <= MAX_COLUMN
    ):
        return None
    indptr = np.append(0, np.cumsum(is_entry))[np.append(np.flatnonzero(first), len(starts))]
    labels = numbers[ends[~is_entry] - 1] if labelled else None
    return _Rows(indptr, columns.astype(np.int32), values, labels)


def _numbers(text: bytes) -> Array | None:
    """All numbers between blanks and colons; None if there is anything else."""
    if not text.strip():
        return np.empty(0)
    if b"+" in text:
        text = PLUS.sub(b"", text)
    try:
        table = csv.read_csv(
            pa.BufferReader(text.translate(LONE_LINES)),
            csv.ReadOptions(use_threads=False, column_names=["number"]),
            csv.ParseOptions(quote_char=False),
            csv.ConvertOptions(column_types={"number": pa.float64()}, null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    numbers = np.concatenate([numbers_of(chunk) for chunk in table["number"].chunks])
    return numbers if np.isfinite(numbers).all() else None


def _fault(text: bytes, line: int, labelled: bool, lowest: int) -> str:
    """The first fault of these lines, after the number of its line."""
    for number, content in enumerate(text.split(b"\n"), line):
        tokens = content.split()
        for place, token in enumerate(tokens):
            label = labelled and place == 0
            fault = _label_fault(token) if label else _entry_fault(token, lowest)
            if fault and not (label or labelled or place or b":" in token):
                fault = "there is a label, but the first line has none"
            if fault:
                return f"{number}: {fault}; found {token[:40].decode(errors='replace')!r}"
    return f"{line} or later: expected rows of column:value"


def _label_fault(token: bytes) -> str:
    if b":" in token:
        return "there is no label before the first column, unlike in the first line"
    if b"," in token:
        return "there are several labels; only one label per row is supported"
    return "" if _is_finite(token) else "the label is not a number; labels must be numbers"


def _entry_fault(token: bytes, lowest: int) -> str:
    column, colon, value = token.partition(b":")
    if not (colon and column.isdigit()):
        return "expected column:value with an integer column"
    if int(column) > MAX_COLUMN:
        return f"the column number is larger than {MAX_COLUMN}"
    if int(column) < lowest:
        return "column 0, but the model was fitted on columns counted from 1"
    return "" if _is_finite(value) else "the value is not a finite number"


def _is_finite(token: bytes) -> bool:
    return NUMBER.fullmatch(token) is not None and bool(np.isfinite(float(token)))


def _starts_with_label(path: Path) -> bool:
    """Whether the first row begins with a label, not with ``column:value``."""
    for line in read_sample(path).removeprefix(BYTE_ORDER_MARK).splitlines():
        tokens = line.partition(b"#")[0].split(maxsplit=1)
        if tokens:
            return b":" not in tokens[0]
    return True


def _all_whole(labels: Array) -> bool:
    return bool((labels == np.rint(labels)).all() and (np.abs(labels) < 2.0**53).all())


def _is_ordered(rows: _Rows) -> bool:
    """Whether columns increase in every row."""
    rises = np.diff(rows.columns) > 0
    starts = rows.indptr[1:-1]
    rises[starts[(starts > 0) & (starts < len(rows.columns))] - 1] = True
    return bool(rises.all())


def _sum_duplicates(rows: _Rows) -> _Rows:
    """Return rows with sorted columns and summed duplicates."""
    width = int(rows.columns.max()) + 1
    X = sparse.csr_array((rows.values, rows.columns, rows.indptr), shape=(rows.n_rows, width))
    X.sum_duplicates()
    return replace(rows, indptr=X.indptr.astype(np.int64), columns=X.indices, values=X.data)


def _regroup(chunks: Iterator[_Rows], block_rows: int) -> Iterator[_Rows]:
    """Yield the same rows in groups of ``block_rows``, or fewer if they have many entries."""
    parts: list[_Rows] = []
    n_rows = n_entries = 0
    for rows in chunks:
        start = 0
        while start < rows.n_rows:
            room = rows.indptr[start] + MAX_BLOCK_ENTRIES - n_entries
            stop = int(np.searchsorted(rows.indptr, room, side="right")) - 1
            stop = max(stop, start + (n_rows == 0))  # a row larger than a block is a block
            stop = min(stop, start + block_rows - n_rows, rows.n_rows)
            parts.append(rows.part(start, stop))
            n_rows += stop - start
            n_entries += int(rows.indptr[stop] - rows.indptr[start])
            start = stop
            if n_rows == block_rows or start < rows.n_rows:
                yield _join(parts)
                parts, n_rows, n_entries = [], 0, 0
    if parts:
        yield _join(parts)


def _join(parts: list[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    labels = [part.labels for part in parts if part.labels is not None]
    return _Rows(
        np.append(0, np.cumsum(counts)),
        np.concatenate([part.columns for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate(labels) if labels else None,
    )


def _matrix(rows: _Rows, layout: LibsvmLayout) -> tuple[sparse.csr_array, int]:
    """Return the rows as a matrix of the layout's width, and the number of dropped entries."""
    columns = rows.columns if layout.zero_based else rows.columns - np.int32(1)
    values, indptr = rows.values, rows.indptr
    beyond = 0
    if len(columns) and columns.max() >= layout.n_features:
        known = columns < layout.n_features
        beyond = len(known) - int(known.sum())
        indptr = np.append(0, np.cumsum(known))[indptr]
        columns, values = columns[known], values[known]
    shape = (rows.n_rows, layout.n_features)
    return sparse.csr_array((values, columns, indptr.astype(np.int32)), shape=shape), beyond
