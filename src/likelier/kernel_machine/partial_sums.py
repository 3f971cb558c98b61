"""Resumable sums and residuals of a kernel regression.

The closed form takes one pass over the rows for its sums, and one over the sample for leave-one-out
residuals. Both run block by block and checkpoint their partial results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from likelier.base import Array, Batch, Engine
from likelier.fitting.time_budget import TimeBudget
from likelier.kernel_machine.expert_rows import take
from likelier.kernel_machine.features import KernelMap
from likelier.kernel_machine.recipe import FIT_BLOCK_ROWS
from likelier.kernel_machine.regression import Sums, batch_sums


def resumable_sums(
    engine: Engine, feature_map: KernelMap, stage: tuple[str, list[Any]], budget: TimeBudget
) -> Sums:
    """Sums of all rows, resumed after the blocks in the checkpoint.

    ``stage`` is the checkpoint key and a signature of the problem.
    """
    name, signature = stage
    saved, whole = budget.before.get(name, {}), not budget.cut
    total: Sums | None = None
    n_done = 0
    if saved.get("signature") == signature:
        n_done = saved["n_rows"]
        total = Sums(saved["gram"], saved["cross"], saved["weight"])

    def map_block(batch: Batch) -> tuple[int, Sums | None]:
        n_rows, n_known = batch.n_rows, n_done - batch.start
        if n_known >= n_rows:
            return 0, None
        fresh = batch if n_known <= 0 else take(batch, np.arange(n_known, n_rows))
        # the closed form needs double precision
        return fresh.n_rows, batch_sums(fresh, feature_map(fresh.X, np.float64))

    n_summed = n_done
    for n_rows, sums in engine.map_blocks(map_block):
        if sums is None:
            continue
        total, n_summed = sums if total is None else total + sums, n_summed + n_rows
        if whole:
            budget.kept[name] = vars(total) | {"signature": signature, "n_rows": n_summed}
        budget.pause()
    assert total is not None  # engines have at least one row
    return total


def resumable_residuals(
    n_rows: int,
    leave_out: Callable[[slice], Array],
    stage: tuple[str, list[Any]],
    budget: TimeBudget,
) -> Array:
    """Concatenate ``leave_out`` over blocks of rows; ``stage`` as in `resumable_sums`."""
    name, signature = stage
    saved, whole = budget.before.get(name, {}), not budget.cut
    parts = [saved["values"]] if saved.get("signature") == signature else []
    for start in range(sum(map(len, parts)), n_rows, FIT_BLOCK_ROWS):
        parts.append(leave_out(slice(start, min(start + FIT_BLOCK_ROWS, n_rows))))
        if whole:
            budget.kept[name] = {"signature": signature, "values": np.concatenate(parts)}
        budget.pause()
    return np.concatenate(parts)
