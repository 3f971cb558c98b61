"""Sums and residuals of a kernel regression in pieces, so that a later fit goes on after the last.

A closed form is one pass over the rows for its sums, and one over the sample that leaves its rows
out. Both are done block by block, and what the blocks have given so far is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.expert_rows import take
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.recipe import HEAD_BLOCK
from likelier.kernel_machine.regression import Sums, batch_sums


def kept_sums(
    engine: Engine, made: KernelMap, stage: tuple[str, list[Any]], budget: TimeBudget
) -> Sums:
    """Sums of all rows, from the first block to the last.

    ``stage`` is the name that they are kept under, and what says of which problem they are.
    """
    name, place = stage
    known, whole = budget.before.get(name, {}), not budget.cut
    total: Sums | None = None
    n_done = 0
    if known.get("place") == place:
        n_done = known["n_rows"]
        total = Sums(known["gram"], known["cross"], known["weight"])

    def look(batch: Batch) -> tuple[int, Sums | None]:
        n_rows, n_known = batch.n_rows, n_done - batch.start
        if n_known >= n_rows:
            return 0, None
        fresh = batch if n_known <= 0 else take(batch, np.arange(n_known, n_rows))
        # a closed form needs its digits: double precision
        return fresh.n_rows, batch_sums(fresh, made(fresh.X, np.float64))

    n_summed = n_done
    for n_rows, sums in engine.map_blocks(look):
        if sums is None:
            continue
        total, n_summed = sums if total is None else total + sums, n_summed + n_rows
        if whole:
            budget.kept[name] = vars(total) | {"place": place, "n_rows": n_summed}
        budget.pause()
    assert total is not None  # engines have rows
    return total


def kept_rest(
    n_rows: int, leave: Callable[[slice], Array], stage: tuple[str, list[Any]], budget: TimeBudget
) -> Array:
    """What ``leave`` says of so many rows, block by block; ``stage`` as for the sums."""
    name, place = stage
    known, whole = budget.before.get(name, {}), not budget.cut
    parts = [known["rest"]] if known.get("place") == place else []
    for start in range(sum(map(len, parts)), n_rows, HEAD_BLOCK):
        parts.append(leave(slice(start, min(start + HEAD_BLOCK, n_rows))))
        if whole:
            budget.kept[name] = {"place": place, "rest": np.concatenate(parts)}
        budget.pause()
    return np.concatenate(parts)
