"""A model is changed whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def unchanged_on_failure(
    estimator: Any,
    kinds: tuple[type[BaseException], ...] = (BaseException,),
    unless_new: str | None = None,
) -> Iterator[None]:
    """Put all attributes back if learning fails: half a batch learned is worse than none.

    Learning replaces them and never changes them in place, so remembering them costs nothing.
    ``kinds`` are the failures that count. A fit that keeps what it has learned when the keyboard
    stops it names in ``unless_new`` an attribute that is replaced only together with all others.
    """
    before = dict(vars(estimator))
    try:
        yield
    except kinds as error:
        if isinstance(error, KeyboardInterrupt) and unless_new is not None:
            now = vars(estimator).get(unless_new)
            if now is not None and now is not before.get(unless_new):
                raise
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
