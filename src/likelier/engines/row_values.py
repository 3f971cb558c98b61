"""Values per row: a recipe that travels, and a cache where the rows are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from likelier.base import Array, Batch, RowValues

CACHE_BYTES = 1 << 29


class RowCache:
    """Values of rows by recipe and block, in bounded memory; what is missing is made again.

    A value from which another one was made is forgotten, since it is rarely needed again: an
    iteration that moves the values of all rows keeps one array for each block, not one for each
    step.
    """

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._bytes = 0
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[str, int], Array] = OrderedDict()

    def __reduce__(self) -> Any:  # what travels makes its values anew
        return RowCache, (self._limit,)

    def get(self, key: tuple[str, int]) -> Array | None:
        """The value, or None."""
        return self._values.get(key)

    def put(self, key: tuple[str, int], value: Array) -> None:
        """Keep a value, in place of the oldest ones if need be."""
        with self._lock:
            earlier = self._values.pop(key, None)
            self._bytes += value.nbytes - (0 if earlier is None else earlier.nbytes)
            self._values[key] = value
            while self._bytes > self._limit and len(self._values) > 1:
                self._bytes -= self._values.popitem(last=False)[1].nbytes

    def forget(self, key: tuple[str, int]) -> None:
        """Give up a value."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._bytes -= value.nbytes


def parts_of(rows: tuple[RowValues, ...], batch: Batch, cache: RowCache) -> list[Any]:
    """The values of the rows of a block."""
    return [_part(values, batch, cache) for values in rows]


def _part(values: RowValues, batch: Batch, cache: RowCache) -> Array:
    key = values.id, batch.index
    found = cache.get(key)
    if found is None:
        parts = parts_of(values.parents, batch, cache)
        state = () if values.state is None else (values.state,)
        found = values.map(batch, *parts, *state)
        cache.put(key, found)
        for parent in values.parents:
            cache.forget((parent.id, batch.index))
    return found
