"""`njit` of numba that also works where no folder for compiled code can be written.

numba refuses to define a function it should keep compiled code of, if it finds no folder to write
to: in a container whose packages belong to root and whose user has no home. There, code is read
from a folder that was filled before (``likelier warm-up``), or compiled anew in every process.
"""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from typing import Any

from numba import njit as numba_njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache

NO_CACHE = (
    "no folder to keep compiled code in can be written, so every process compiles anew, which "
    "takes seconds to minutes; set NUMBA_CACHE_DIR to a folder that can be written, or to one that "
    "`likelier warm-up` has filled with the same setting"
)


class _ReadableFolder:
    """Part of a locator: a folder that holds compiled code will do, writable or not."""

    def ensure_cache_path(self) -> None:
        """Raise OSError where there is no compiled code."""
        path: str = self.get_cache_path()  # type: ignore[attr-defined]
        if not any(name.endswith(".nbi") for name in _names(path)):
            raise FileNotFoundError(path)


@lru_cache
def _names(path: str) -> tuple[str, ...]:
    return tuple(os.listdir(path))


class _Readable(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = tuple(
        type(f"Readable{kind.__name__}", (_ReadableFolder, kind), {})
        for kind in CompileResultCacheImpl._locator_classes[
            :2
        ]  # of NUMBA_CACHE_DIR, beside the source
    )


class ReadOnlyCache(FunctionCache):  # type: ignore[misc]
    """Compiled code of one function in a folder that cannot be written."""

    _impl_class = _Readable

    def load_overload(self, *given: Any) -> Any:
        """Return what was compiled before; None where that cannot be read."""
        try:
            return super().load_overload(*given)
        except OSError:
            return None

    def save_overload(self, *given: Any) -> None:
        """Keep nothing."""


def njit(*functions: Any, cache: bool = False, **options: Any) -> Any:
    """Return numba's ``njit`` of a function; with ``cache``, kept wherever that is possible."""

    def compiled(function: Any) -> Any:
        try:
            return numba_njit(cache=cache, **options)(function)
        except RuntimeError as error:
            if "no locator" not in str(error):
                raise
        dispatcher = numba_njit(**options)(function)
        try:
            dispatcher._cache = ReadOnlyCache(function)
        except RuntimeError:
            _warn_once()
        return dispatcher

    return compiled(*functions) if functions else compiled


@lru_cache
def _warn_once() -> None:
    warnings.warn(NO_CACHE, RuntimeWarning, stacklevel=2)
