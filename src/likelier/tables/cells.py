"""The cells of one column of a block: numbers, timestamps, or distinct texts and their codes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cached_property
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.columns import (
    LEADING_ZEROS,
    Kind,
    as_text,
    is_text,
    kind_of,
    null_rows,
    numbers_of,
    parsed_floats,
    row_array,
    text_array,
)
from likelier.data.notation import is_plain_number

# Up to this many rows plain Python is faster than Arrow, e.g. when a service predicts single rows.
_FEW = 64
_code = re.compile(LEADING_ZEROS, re.ASCII)


class Cells:
    """One column of some rows.

    Parameters
    ----------
    array : Arrow array
        The values, of any type.
    missing : collection of str
        Texts that mean a missing value.
    decimal : str
        Decimal separator of plain numbers in text.
    rows : ndarray of int, optional
        Row numbers in the table, from 0, for error messages.
    """

    def __init__(
        self,
        array: pa.Array,
        missing: Collection[str] = (),
        decimal: str = ".",
        rows: Array | None = None,
    ) -> None:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_duration(array.type):  # in seconds
            array = pc.divide(array.cast(pa.duration("us")).cast(pa.int64()), 1e6)
        self.declared = pa.types.is_dictionary(array.type)  # the categorical type of data frames
        self._array = array
        self._missing, self.decimal, self._rows = missing, decimal, rows
        self.kind = kind_of(array.type)

    def __len__(self) -> int:
        return len(self._array)

    @property
    def is_text(self) -> bool:
        """Whether the values are texts, whose meaning has to be detected."""
        return is_text(self._array.type)

    @property
    def is_time(self) -> bool:
        """Whether the values are typed times of day."""
        return bool(pa.types.is_time(self._array.type))

    @cached_property
    def distinct(self) -> tuple[list[str | None], Array]:
        """Distinct values as trimmed texts (None if missing), and the code of each row."""
        array = as_text(self._array)
        if len(array) <= _FEW:
            return _distinct(array.to_pylist(), self._missing)
        encoded = array.dictionary_encode()
        texts = pc.utf8_trim_whitespace(encoded.dictionary)
        if self._missing:
            gone = pc.is_in(texts, text_array(self._missing))
            texts = pc.if_else(gone, pa.nulls(1, pa.string())[0], texts)
        codes = numbers_of(encoded.indices)
        if encoded.indices.null_count:
            codes = np.where(null_rows(encoded.indices), len(texts), codes)
        return [*texts.to_pylist(), None], codes.astype(np.int64)

    @property
    def absent(self) -> Array:
        """Mask of the rows without a value."""
        if not self.is_text:
            floats = self.kind == Kind.FLOAT
            return np.isnan(self._floats) if floats else null_rows(self._array)
        texts, codes = self.distinct
        return np.array([text is None for text in texts], bool)[codes]

    @property
    def counts(self) -> Array:
        """Number of rows with each of the distinct texts."""
        texts, codes = self.distinct
        return np.bincount(codes, minlength=len(texts))

    def map_texts(self, function: Callable[[list[str]], Array], missing: float) -> Array:
        """Apply a function to the distinct texts once, and return its values row by row."""
        texts, codes = self.distinct
        known = [code for code, text in enumerate(texts) if text is not None]
        values = np.full(len(texts), missing)
        if known:
            values[known] = function([str(texts[code]) for code in known])
        return values[codes]

    def texts_of(self, rows: Array) -> list[str]:
        """Return the distinct texts of some rows."""
        texts, codes = self.distinct
        return [str(texts[code]) for code in np.unique(codes[rows]).tolist()]

    def row_of(self, wanted: Callable[[str], bool]) -> tuple[int, str]:
        """Return the 1-based number of the first row whose text is ``wanted``, and the text."""
        texts, codes = self.distinct
        found = [text is not None and wanted(text) for text in texts]
        row = int(np.argmax(np.array(found)[codes]))
        number = row if self._rows is None else int(self._rows[row])
        return number + 1, str(texts[codes[row]])

    @cached_property
    def plain_numbers(self) -> Array | None:
        """The values as float64, NaN if missing; None if a text is not a plain number or a code."""
        if not self.is_text:
            return self._floats if self.kind.numeric else None
        if self.declared:
            return None
        array = as_text(self._array)
        if len(array) > _FEW:
            # Without missing values and padding all rows are parsed directly, otherwise the
            # distinct texts.
            if array.null_count == 0 and not _any(pc.match_substring_regex(array, LEADING_ZEROS)):
                whole = parsed_floats(array, self.decimal)
                if whole is not None:
                    return whole
            if _clearly_not_numeric(array):
                return None
        texts, codes = self.distinct
        if len(array) <= _FEW:
            few = _few_numbers(texts, self.decimal)
            return None if few is None else few[codes]
        written = text_array(texts)
        if _any(pc.match_substring_regex(written, LEADING_ZEROS)):
            return None
        found = parsed_floats(written, self.decimal)
        return None if found is None else found[codes]

    @cached_property
    def _floats(self) -> Array:
        found = parsed_floats(self._array, ".")
        assert found is not None
        return found

    def timestamps(self) -> Array:
        """Return typed dates and times as datetime64 in UTC, NaT if missing."""
        array = self._array
        if pa.types.is_time(array.type):
            array = array.cast(pa.time64("us")).cast(pa.int64()).cast(pa.timestamp("us"))
        elif pa.types.is_timestamp(array.type) and array.type.tz is not None:
            array = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
        else:
            array = array.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        values = numbers_of(array.cast(pa.int64())).astype(np.int64)
        timestamps = values.astype("M8[us]")
        timestamps[null_rows(self._array)] = np.datetime64("NaT")
        return timestamps

    def only(self, rows: Array) -> Cells:
        """Return the cells of some rows."""
        array = self._array.take(row_array(rows))
        numbers = rows if self._rows is None else self._rows[rows]
        return Cells(array, self._missing, self.decimal, numbers)


def _distinct(values: list[str | None], missing: Collection[str]) -> tuple[list[str | None], Array]:
    code_of: dict[str | None, int] = {}
    codes = []
    for value in values:
        text = None if value is None else value.strip()
        text = None if text in missing else text
        codes.append(code_of.setdefault(text, len(code_of)))
    return list(code_of), np.array(codes, dtype=np.int64)


def _few_numbers(texts: list[str | None], decimal: str) -> Array | None:
    """Parse a few texts one by one; None if one is not a plain number."""
    numbers = []
    for text in texts:
        pointed = (
            text if text is None or decimal == "." else text.replace(".", "#").replace(decimal, ".")
        )
        if pointed is not None and (not is_plain_number(pointed) or _code.fullmatch(pointed)):
            return None
        numbers.append(np.nan if pointed is None else float(pointed))
    return np.array(numbers, dtype=np.float64)


def _clearly_not_numeric(array: pa.Array) -> bool:
    """Whether the first texts already rule out a column of numbers."""
    head = array.slice(0, 16).drop_null()
    return len(head) > 0 and not _any(pc.match_substring_regex(head, r"\d"))


def _any(found: pa.Array) -> bool:
    return bool(pc.any(found).as_py())


def hashed(texts: list[str]) -> Array:
    """Return a 64-bit hash of each text."""
    joined = b"".join(
        blake2b(text.encode("utf8", "surrogatepass"), digest_size=8).digest() for text in texts
    )
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)
