"""Values of a fit under way to bytes, and back: what model files hold, and dataclasses of likelier.

Beside the kinds of `likelier.files.values` these are object arrays in their memory order, dates,
dictionaries with tuples or None as keys, and dataclasses as ``likelier.module:Class`` with the
values of their fields. Nothing in the bytes can run code: a class is looked up in its module of
likelier, and must be a dataclass with exactly these fields.
"""

from __future__ import annotations

import importlib
import json
import re
import struct
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from likelier.base import Array, Loss
from likelier.files.archive import canonical
from likelier.files.values import Decoder, Encoder

_LENGTH = struct.Struct("<Q")  # of the JSON, which comes before the arrays
_CLASS = re.compile(r"(likelier(?:\.[A-Za-z]\w*)+):(\w+)")
_TIME = re.compile(r"[<>][mM]8(\[\w+\])?")
_KEYS = (str, int, float, tuple, np.generic, type(None))


def encode(value: Any, where: str) -> bytes:
    """Return a value as bytes; a TypeError names the part of ``where`` that has no plain form.

    Bits, types and memory order (rows or columns first) of arrays are kept. Other strides become
    rows first. Cost: about two copies of the arrays.
    """
    encoder = _Encoder(lambda name: None)
    try:
        plain = canonical({"value": encoder.value(value, where)})
    except RecursionError:
        raise TypeError(f"{where} is nested too deeply, or contains itself.") from None
    return _LENGTH.pack(len(plain)) + plain + save_tensors(encoder.arrays)


def decode(data: bytes) -> Any:
    """Return the value that `encode` was given, or raise a ValueError."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        plain = json.loads(data[_LENGTH.size : _LENGTH.size + length])
        arrays = load_tensors(data[_LENGTH.size + length :])
        return _Decoder(arrays, lambda name: None).value(plain["value"])
    except (SafetensorError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise ValueError(f"it is malformed ({error!r})") from error
    except (RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"it asks for absurd sizes ({error!r})") from error


class _Encoder(Encoder):
    """Encodes what a fit needs beyond what models hold."""

    def value(self, value: Any, where: str) -> Any:
        """Return the JSON form of any storable value."""
        kind = type(value)
        if kind is dict and all(isinstance(key, _KEYS) for key in value):
            names = [self.value(key, where) for key in value]
            parts = [self.value(item, f"{where}.{key}") for key, item in value.items()]
            return {"dict": [list(pair) for pair in zip(names, parts, strict=True)]}
        if isinstance(value, np.ndarray) and value.dtype == object:
            columns = _by_columns(value)
            items = (value.T if columns else value).ravel().tolist()
            parts = [self.value(item, f"{where}.{i}") for i, item in enumerate(items)]
            return {"objects": [list(value.shape), columns, parts]}
        if isinstance(value, np.ndarray) and value.dtype.kind in "mM":
            return {"times": [value.dtype.str, self.value(value.view("i8"), where)]}
        if is_dataclass(kind) and not isinstance(value, Loss):
            return {"dataclass": [_name_of(kind, where), self._fields(value, where)]}
        return super().value(value, where)

    def _fields(self, value: Any, where: str) -> list[list[Any]]:
        for item in fields(value):
            if not _is_stored(item) and item.default is item.default_factory is MISSING:
                raise TypeError(f"{where}.{item.name} is left out of checkpoints: give a default.")
        return [
            [item.name, self.value(getattr(value, item.name), f"{where}.{item.name}")]
            for item in fields(value)
            if _is_stored(item)
        ]


class _Decoder(Decoder):
    """Decodes what `_Encoder` wrote; trusts nothing."""

    def value(self, plain: Any) -> Any:
        """Return the value that `_Encoder.value` described."""
        if isinstance(plain, dict) and len(plain) == 1:
            ((kind, content),) = plain.items()
            if kind == "objects":
                return self._objects(*content)
            if kind == "times":
                return self._times(*content)
            if kind == "dataclass":
                return self._dataclass(*content)
        return super().value(plain)

    def _objects(self, shape: list[int], columns: bool, parts: list[Any]) -> Array:
        array = np.empty(len(parts), dtype=object)
        for i, part in enumerate(parts):  # one by one: lists must not become rows
            array[i] = self.value(part)
        return array.reshape(shape[::-1]).T if columns else array.reshape(shape)

    def _times(self, dtype: str, plain: Any) -> Array:
        if not _TIME.fullmatch(dtype):
            raise ValueError(f"{dtype!r} is not a NumPy type of dates")
        return np.asarray(self.value(plain)).view(dtype)

    def _dataclass(self, name: str, pairs: list[list[Any]]) -> Any:
        cls = _class_named(name)
        if [key for key, _ in pairs] != [item.name for item in fields(cls) if _is_stored(item)]:
            raise ValueError(f"{name} has other fields in this version of likelier")
        values = {key: self.value(plain) for key, plain in pairs}
        made = cls(**{f.name: values[f.name] for f in fields(cls) if f.init and f.name in values})
        for key, item in values.items():  # bits as recorded, whatever the constructor does
            object.__setattr__(made, key, item)
        return made


def _by_columns(array: Array) -> bool:
    return array.flags.f_contiguous and not array.flags.c_contiguous


def _is_stored(item: Field[Any]) -> bool:
    return bool(item.metadata.get("checkpoint", True))


def _name_of(cls: type, where: str) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found = _class_named(name)
    except ValueError:
        found = None
    if found is not cls:
        raise TypeError(f"{where} cannot be saved: {name} is not a dataclass of likelier.")
    return name


def _class_named(name: Any) -> Any:
    """Return the dataclass of a name like ``likelier.base:Info``."""
    match = _CLASS.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise ValueError(f"{name!r} does not name a class of likelier")
    try:
        cls = getattr(importlib.import_module(match[1]), match[2], None)
    except ImportError as error:
        raise ValueError(f"likelier has no module {match[1]} ({error})") from error
    if not (isinstance(cls, type) and is_dataclass(cls) and cls.__module__ == match[1]):
        raise ValueError(f"{name} is not a dataclass in this version of likelier")
    return cls
