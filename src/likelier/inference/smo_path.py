"""A path of duals with growing ``C``: kernel rows are kept, and each starts from the one before."""

from __future__ import annotations

import numpy as np

from likelier.base import Array
from likelier.inference.smo import SMO, KernelPosterior
from likelier.inference.smo_state import SMOState, on_bounds, whole_part
from likelier.models.kernel_expansion import KernelExpansion, Subset, dual_objective


def solve_path(
    inference: SMO, models: list[KernelExpansion], rows: Subset, y: Array,
    weight: Array | None = None,
) -> list[KernelPosterior]:  # fmt: skip
    """Solutions for growing ``C``: kernel rows are kept, each starts from the one before."""
    cache = inference.cache(rows)
    found: list[KernelPosterior] = []
    before: SMOState | None = None
    for model in models:
        state = inference.start(model, rows, y, weight, None, cache)
        if before is not None:
            _warm(state, before, model.C / before.model.C)
        found.append(inference.solve(state))
        state.cache.restart()
        cache, before = state.cache, state
    return found


def _warm(state: SMOState, before: SMOState, ratio: float) -> None:
    """Start from the coefficients of a smaller ``C``, as they are or in proportion."""
    box = state.box
    product = box.target - before.F  # K beta
    best = -np.inf
    for factor in (1.0, ratio):
        beta, F = factor * before.beta, box.target - factor * product
        value = dual_objective(box, beta, F)
        if value > best:
            best, chosen = value, (beta, F)
    beta, F = chosen
    beta = on_bounds(np.clip(beta, box.lower, box.upper), box.lower, box.upper)
    state.beta, state.anchor, state.F = beta, beta.copy(), F
    state.part = whole_part(box, beta, F)
