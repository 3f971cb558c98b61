"""Merges short batches of the same matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from likelier.base import Batch

JOINED_ROWS = 1 << 14  # maximum number of rows of a merged batch


def joined(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same rows in fewer batches, if batches share their matrix and list their rows.

    A batch has the overhead of a few hundred rows, but must be short enough for a prompt reaction
    to Ctrl-C.
    """
    waiting: list[Batch] = []
    n_rows = 0
    for batch in batches:
        first = waiting[0] if waiting else batch
        n_rows += batch.n_rows
        enough = n_rows > JOINED_ROWS
        alone = batch.rows is None or first.rows is None or batch.X is not first.X
        if waiting and (enough or alone):
            yield _one_batch(waiting)
            waiting, n_rows = [], batch.n_rows
        waiting.append(batch)
    if waiting:
        yield _one_batch(waiting)


def _one_batch(batches: list[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    rows: Any = [batch.rows for batch in batches]
    return replace(batches[0], rows=np.concatenate(rows))
