"""Numba's `njit` with a cache that also works without a writable folder.

Numba raises an error for a cached function if no cache folder is writable, e.g. in a container
whose packages belong to root and whose user has no home. In that case code is read from an existing
cache (see ``likelier warm-up``), or compiled again in every process.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from functools import lru_cache
from typing import Any

from numba import njit as numba_njit
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache

NO_CACHE = (
    "no cache folder for compiled code is writable, so every process compiles again, which takes "
    "seconds to minutes; set NUMBA_CACHE_DIR to a writable folder, or to one that `likelier "
    "warm-up` has filled"
)

REPORTED_AFTER = 2.0  # seconds of compiling in a process


class Report(event.Listener):  # type: ignore[misc]
    """Logs one line once compiling has taken long, since a first fit says nothing else."""

    def __init__(self) -> None:
        self.open, self.seconds, self.reported = 0, 0.0, False
        self.seen = time.perf_counter()

    def on_start(self, event: Any) -> None:
        """A function begins to be compiled, perhaps inside another."""
        self._look()
        self.open += 1

    def on_end(self, event: Any) -> None:
        """A function is compiled."""
        self._look()
        self.open -= 1

    def _look(self) -> None:
        now = time.perf_counter()
        self.seconds += now - self.seen if self.open else 0.0
        self.seen = now
        if self.seconds > REPORTED_AFTER and not self.reported:
            self.reported = True
            logging.getLogger("likelier").warning(
                "likelier: compiling for this kind of fit, once; cached for later runs"
            )


event.register("numba:compile", Report())


class _ReadableFolder:
    """Mixin of a cache locator that accepts any folder with compiled code, writable or not."""

    def ensure_cache_path(self) -> None:
        """Raise OSError if there is no compiled code."""
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
    """Cache of a compiled function in a read-only folder."""

    _impl_class = _Readable

    def load_overload(self, *given: Any) -> Any:
        """Return the cached code; None if it cannot be read."""
        try:
            return super().load_overload(*given)
        except OSError:
            return None

    def save_overload(self, *given: Any) -> None:
        """Do nothing."""


def njit(*functions: Any, cache: bool = False, **options: Any) -> Any:
    """Return Numba's ``njit`` of a function; with ``cache``, cached if a folder is available."""
    # Nobody calls compiled code from C; without the wrapper for that, less has to be compiled.
    options["no_cfunc_wrapper"] = True

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
