"""Conversion of Arrow columns to numbers and texts, and detection of their types."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from likelier.base import Array
from likelier.data.notation import WHOLE_PLAIN, WHOLE_WRITTEN, as_number

MAX_CATEGORIES = 1000
LEADING_ZEROS = r"^\s*0\d+\s*$"
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
# ISO dates and times, times alone, and dates with slashes or points.
DATE_PATTERN = (
    r"^(\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?"
    r"|\d{1,2}:\d{2}(:\d{2}.*)?"
    r"|\d{1,2}[/.]\d{1,2}[/.]\d{2,4})$"
)


class Kind(StrEnum):
    """Type of the values of a column."""

    EMPTY = "empty"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DATE = "date"
    TEXT = "text"
    OTHER = "other"

    @property
    def numeric(self) -> bool:
        """Whether its values can be used as numbers."""
        return self in (Kind.EMPTY, Kind.BOOLEAN, Kind.INTEGER, Kind.FLOAT)

    def widen(self, other: Kind) -> Kind:
        """Return the narrowest kind that holds the values of both."""
        if self == other or other == Kind.EMPTY:
            return self
        if self == Kind.EMPTY:
            return other
        if {self, other} == {Kind.INTEGER, Kind.FLOAT}:
            return Kind.FLOAT
        return Kind.TEXT


class Texts:
    """A dictionary-encoded text column with trimmed values.

    Tests and conversions run once per distinct value, except that numbers without missing values
    and padding are converted directly.
    """

    def __init__(self, array: pa.Array, missing: Collection[str], decimal: str = ".") -> None:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()  # the dictionary may list unused values
        self._array, self._missing, self._decimal = array, missing, decimal

    @cached_property
    def _encoded(self) -> tuple[pa.Array, Array]:
        """Distinct values as Arrow text, and the code of each row (one past the last: null)."""
        encoded = self._array.dictionary_encode()
        values = _trimmed(encoded.dictionary, self._missing)
        return values, _filled(encoded.indices, len(values))

    @cached_property
    def absent(self) -> Array:
        """Mask of the rows without a value."""
        values, codes = self._encoded
        return np.append(null_rows(values), True)[codes]

    def look_up(self, table: Mapping[str, float], unknown: float, absent: float) -> Array:
        """Map the value of each row by a dictionary."""
        values, codes = self._encoded
        found = [absent if v is None else table.get(v, unknown) for v in values.to_pylist()]
        return np.array([*found, absent])[codes]

    def few_values(self) -> frozenset[str] | None:
        """Return the distinct values, or None if there are more than `MAX_CATEGORIES`."""
        values = pc.unique(self._encoded[0]).drop_null()
        return frozenset(values.to_pylist()) if len(values) <= MAX_CATEGORIES else None

    def numbers(self, *types: pa.DataType) -> tuple[Array, pa.DataType] | None:
        """Return the values as numbers of the first type that fits them all, and that type.

        With missing values the numbers are floats, with NaN. None if a value is not a number.
        """
        if self._array.null_count == 0:
            array = _pointed(self._array, self._decimal)
            for type in types:
                parsed = _cast(array, type)
                if parsed is not None:
                    return numbers_of(parsed), type
        values, codes = self._encoded
        values = _pointed(values, self._decimal)
        for type in types:
            parsed = _cast(values, type)
            if parsed is not None and self.absent.any():
                return np.append(_floats(parsed), np.nan)[codes], type
            if parsed is not None:
                return numbers_of(parsed)[codes], type
        return None

    def truth_values(self) -> Array | None:
        """Return 1 for true, 0 for false, NaN if missing; None if there are other values."""
        values = self._encoded[0].drop_null()
        if not pc.all(pc.is_in(values, text_array(TRUE + FALSE))).as_py():
            return None
        truth = dict.fromkeys(TRUE, 1.0) | dict.fromkeys(FALSE, 0.0)
        return self.look_up(truth, np.nan, np.nan)

    def recognise(self, at_least: Kind) -> tuple[Kind, Array | None]:
        """Return the kind of the values, and the values if they are numeric.

        ``at_least`` is the kind of the column so far, which only widens.
        """
        if at_least == Kind.TEXT:
            return Kind.TEXT, None
        types = [pa.float64()] if at_least == Kind.FLOAT else [pa.int64(), pa.float64()]
        found = self.numbers(*types)
        if found is not None:
            codes = has_codes(self._array)
            return (Kind.TEXT, None) if codes else (kind_of(found[1]), found[0])
        truth = self.truth_values()
        if truth is not None:
            return Kind.BOOLEAN, truth
        values = self._encoded[0].drop_null()
        if pc.all(pc.match_substring_regex(values, DATE_PATTERN)).as_py():
            return Kind.DATE, None
        return Kind.TEXT, None

    def odd_values(self, limit: int) -> list[tuple[str, int]]:
        """Return the first distinct texts that are not plain numbers or have leading zeros."""
        values, codes = self._encoded
        plain = pc.match_substring_regex(_pointed(values, self._decimal), WHOLE_PLAIN)
        zeros = pc.match_substring_regex(values, LEADING_ZEROS)
        odd = np.flatnonzero(_filled(pc.and_not(plain, zeros).cast(pa.uint8()), 1) == 0)
        firsts = [(values[int(k)].as_py(), int(np.argmax(codes == k))) for k in odd[:limit]]
        return [(str(text), row) for text, row in firsts]

    def example(self) -> str | None:
        """Return a text that is not a number, if any."""
        odd = [text for text, _ in self.odd_values(10)]
        return next((text for text in odd if not re.match(LEADING_ZEROS, text)), None)

    def count_numbers(self) -> int:
        """Count the rows with a number in any notation, including unsupported ones."""
        values, codes = self._encoded
        written = _filled(pc.match_substring_regex(values, WHOLE_WRITTEN).cast(pa.uint8()), 0)
        return int(np.append(written, 0)[codes].sum())

    def strings(self) -> Array:
        """Return the texts as a NumPy array of strings; no value may be missing."""
        values, codes = self._encoded
        return np.array(values.to_pylist(), dtype=str)[codes]


def is_text(type: pa.DataType) -> bool:
    """Whether an Arrow type is text, plain or encoded by a dictionary."""
    if pa.types.is_dictionary(type):
        return True
    return bool(
        pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type)
    )


def kind_of(type: pa.DataType) -> Kind:
    """Return the kind of the values of an Arrow type."""
    tests = (
        (pa.types.is_boolean, Kind.BOOLEAN),
        (pa.types.is_integer, Kind.INTEGER),
        (pa.types.is_floating, Kind.FLOAT),
        (pa.types.is_decimal, Kind.FLOAT),
        (pa.types.is_temporal, Kind.DATE),
        (pa.types.is_null, Kind.EMPTY),
        (is_text, Kind.TEXT),
    )
    return next((kind for test, kind in tests if test(type)), Kind.OTHER)


def label_kind(kind: Kind, values: Collection[str] | None) -> Kind:
    """Return the kind with which labels in text keep their spelling.

    ``kind`` is the detected kind, and ``values`` are the distinct texts if they are few. Two labels
    such as True and False, or +1 and -1, keep their spelling; 1 and 1.0 are both 1.
    """
    if kind == Kind.BOOLEAN and values and len(values) <= 2:
        return Kind.TEXT
    if kind != Kind.FLOAT or not values:
        return kind
    numbers = {value: as_number(value) for value in values}
    if not all(n is not None and n.is_integer() and abs(n) < 2.0**63 for n in numbers.values()):
        return kind
    if len(values) <= 2 and len({*numbers.values()}) == len(values):
        return kind if all(value == repr(n) for value, n in numbers.items()) else Kind.TEXT
    return Kind.INTEGER if any(map(str.isdecimal, values)) else kind


def to_floats(array: pa.Array, missing: Collection[str], decimal: str = ".") -> Array:
    """Return numbers or booleans as float64, NaN if missing.

    ``decimal`` is the decimal separator of numbers in text.

    Raises
    ------
    ValueError
        If a value is not a number; callers prefix the message with the name of the column.
    """
    if is_text(array.type):
        texts = Texts(array, missing, decimal)
        found = texts.numbers(pa.float64())
        numbers = texts.truth_values() if found is None else found[0]
        if numbers is None:
            hint = "" if decimal == "." else f" with {decimal!r} as the decimal separator"
            raise ValueError(f"contains {texts.example()!r}, which is not a number{hint}")
        return numbers
    if not kind_of(array.type).numeric:
        raise ValueError(f"contains {array.type}, not numbers")
    return _floats(array)


def to_texts(array: pa.Array, missing: Collection[str]) -> Texts:
    """Return values as texts; numbers are formatted."""
    if not is_text(array.type):
        if not kind_of(array.type).numeric:
            raise ValueError(f"contains {array.type}, not text")
        if pa.types.is_floating(array.type):  # NaN is not a category
            array = pc.if_else(pc.is_nan(array), pa.nulls(1, array.type)[0], array)
        array = array.cast(pa.string())
    return Texts(array, missing)


def to_integers(array: pa.Array, missing: Collection[str], decimal: str = ".") -> Array | None:
    """Return values without missing ones as int64; None if one is not an integer."""
    if not is_text(array.type):
        converted = _cast(array, pa.int64())
        return None if converted is None else numbers_of(converted)
    found = Texts(array, missing, decimal).numbers(pa.int64())
    if found is not None:
        return found[0]
    floats = to_floats(array, missing, decimal)
    whole = (floats == np.rint(floats)).all() and (np.abs(floats) < 2.0**63).all()
    return floats.astype(np.int64) if whole else None


def without_marks(batch: pa.RecordBatch, numbers: Sequence[float], decimal: str) -> pa.RecordBatch:
    """Return a batch of texts, with null where a numeric column equals one of ``numbers``."""
    held = pa.py_buffer(np.array(numbers, dtype=np.float64))
    marks = pa.Array.from_buffers(pa.float64(), len(numbers), [None, held])
    arrays = []
    for array in batch.columns:
        trimmed = pc.utf8_trim_whitespace(array)
        parsed = None if has_codes(trimmed) else _cast(_pointed(trimmed, decimal), pa.float64())
        if parsed is not None:
            array = pc.if_else(pc.is_in(parsed, marks), pa.nulls(1, array.type)[0], array)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def has_codes(array: pa.Array) -> bool:
    """Whether any text has leading zeros, as in codes, unlike numbers."""
    return bool(pc.any(pc.match_substring_regex(array, LEADING_ZEROS)).as_py())


def _cast(array: pa.Array, type: pa.DataType) -> pa.Array | None:
    """Return the values as another type, or None if one of them does not fit.

    The first values are tried first, because a failing cast of the whole array is slow.
    """
    try:
        array.slice(0, 32).cast(type)
        return array.cast(type)
    except pa.ArrowInvalid:
        return None


def _pointed(array: pa.Array, decimal: str) -> pa.Array:
    """Return text with the decimal separator replaced by a point; existing points become ``#``."""
    if decimal == ".":
        return array
    return pc.replace_substring(pc.replace_substring(array, ".", "#"), decimal, ".")


def _trimmed(array: pa.Array, missing: Collection[str]) -> pa.Array:
    """Return text without surrounding spaces, null if it means a missing value."""
    if not pa.types.is_string(array.type):
        array = array.cast(pa.string())  # from large, view, or a dictionary of numbers
    trimmed = pc.utf8_trim_whitespace(array)
    if not missing:
        return trimmed
    return pc.if_else(pc.is_in(trimmed, text_array(missing)), pa.nulls(1, pa.string())[0], trimmed)


def as_text(array: pa.Array) -> pa.Array:
    """Return any values as Arrow text; whole floats are formatted as integers."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()  # the dictionary may list unused values
    if pa.types.is_string(array.type):
        return array
    if pa.types.is_floating(array.type):  # NaN is missing
        array = pc.if_else(pc.is_nan(array), pa.nulls(1, array.type)[0], array)
    return array.cast(pa.string())


def parsed_floats(array: pa.Array, decimal: str) -> Array | None:
    """Return numbers, or plain numbers in text, as float64; None if one is not a number."""
    if is_text(array.type):
        array = _cast(_pointed(array, decimal), pa.float64())
    return None if array is None else _floats(array)


def _floats(array: pa.Array) -> Array:
    """Return a numeric column as float64, NaN for null."""
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    elif not pa.types.is_float64(array.type):
        # Integers beyond 2**53 are rounded, as in any float matrix.
        array = array.cast(pa.float64(), safe=False)
    return _filled(array, np.nan)


def text_array(texts: Collection[str | None]) -> pa.Array:
    """Return an Arrow array of texts; `pyarrow.array` imports pandas where it is installed."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    validity = None
    if None in texts:
        bits = np.packbits([text is not None for text in texts], bitorder="little")
        validity = pa.py_buffer(bits)
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)), validity
    )


def text_scalar(text: str) -> pa.Scalar:
    """Return a text as an Arrow scalar, without importing pandas."""
    return text_array([text])[0]


def row_array(rows: Array) -> pa.Array:
    """Return an Arrow array of row numbers."""
    return arrow_array(np.asarray(rows, dtype=np.int64))


def arrow_array(values: Array) -> pa.Array:
    """Return a column of numbers, texts or booleans as an Arrow array, without importing pandas."""
    if values.dtype.kind == "b":
        return mask_array(values)
    if values.dtype.kind not in "iuf":
        return text_array(values.astype(str).tolist())
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, buffer])


def mask_array(mask: Array) -> pa.Array:
    """Return an Arrow array of booleans."""
    bits = np.packbits(np.asarray(mask, dtype=bool), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def mask_of(array: pa.Array) -> Array:
    """Return a NumPy array of Arrow booleans without nulls."""
    return numbers_of(array.cast(pa.uint8())).astype(bool)


def numbers_of(array: pa.Array) -> Array:
    """Return the values of a numeric array as a view; values of nulls are arbitrary.

    Arrow's own conversion imports pandas if it is installed, which costs fifty megabytes.
    """
    types = {pa.float64(): np.float64, pa.int64(): np.int64, pa.int32(): np.int32}
    dtype = types.get(array.type, np.uint8)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(buffer, dtype=dtype)[array.offset : array.offset + len(array)]


def _filled(array: pa.Array, value: float) -> Array:
    """Return the values of a numeric array with ``value`` for nulls."""
    if array.null_count == 0:
        return numbers_of(array)
    return np.where(
        null_rows(array), np.array(value, dtype=numbers_of(array).dtype), numbers_of(array)
    )


def null_rows(array: pa.Array) -> Array:
    """Mask of the nulls."""
    return mask_of(array.is_null())
