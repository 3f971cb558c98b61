"""Results as plain arrays by path, so that two processes can compare them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy import sparse

Arrays = dict[str, np.ndarray[Any, Any]]
DEEPEST = 12


def flatten(found: Mapping[str, Any]) -> Arrays:
    """Take results apart into arrays of numbers or text; a path names each."""
    arrays: Arrays = {}
    for name, value in found.items():
        for path, array in _parts(name, value, set()):
            arrays[path] = array
    return arrays


def _parts(path: str, value: Any, above: set[int]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    if isinstance(value, np.ndarray) and value.dtype != object:
        yield path, value
    elif value is None or isinstance(value, str | bytes):
        yield path, np.array(repr(value))
    elif isinstance(value, bool | int | float | complex | np.generic):
        yield path, _scalar(value)
    elif sparse.issparse(value):
        given: Any = value
        rows = given.tocsr()
        for name in ("data", "indices", "indptr"):
            yield f"{path}.{name}", getattr(rows, name)
    elif id(value) not in above and len(above) < DEEPEST:
        for name, part in _inside(value):
            yield from _parts(f"{path}{name}", part, above | {id(value)})


def _scalar(value: Any) -> np.ndarray[Any, Any]:
    array = np.array(value)
    return np.array(repr(value)) if array.dtype == object else array  # a very large int


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds; what only Python knows (functions, locks) is left out."""
    if isinstance(value, np.random.RandomState):
        yield ".state", value.get_state(legacy=False)
    elif isinstance(value, np.random.Generator):
        yield ".state", dict(value.bit_generator.state)
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, set | frozenset):
        yield from ((f"[{i}]", part) for i, part in enumerate(sorted(value, key=repr)))
    elif isinstance(value, np.ndarray | list | tuple):
        flat = value.ravel() if isinstance(value, np.ndarray) else value
        yield ".length", len(flat)
        yield from ((f"[{i}]", part) for i, part in enumerate(flat))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [item.name for item in dataclasses.fields(value)]
        yield from ((f".{name}", getattr(value, name, None)) for name in names)
    elif not callable(value) or hasattr(value, "fit"):
        yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
