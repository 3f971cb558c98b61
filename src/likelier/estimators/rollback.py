"""A model is changed whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def unchanged_on_failure(
    estimator: Any, kinds: tuple[type[BaseException], ...] = (BaseException,)
) -> Iterator[None]:
    """Put all attributes back if learning fails: half a batch learned is worse than none.

    Learning replaces them and never changes them in place, so remembering them costs nothing.
    ``kinds`` are the failures that count.
    """
    before = dict(vars(estimator))
    try:
        yield
    except kinds:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
