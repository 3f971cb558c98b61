"""A path of duals with growing ``C``: kernel rows are kept, and each starts from the one before."""

from __future__ import annotations

from likelier.base import Array
from likelier.inference.smo import SMO, KernelPosterior
from likelier.inference.smo_cache import Memory
from likelier.inference.smo_start import rough_start
from likelier.inference.smo_state import SMOState, whole_part
from likelier.loops.smo import on_bounds
from likelier.models.kernel_expansion import KernelExpansion, Subset

HELD_EXACTLY = 1024  # rows whose float64 kernel matrix costs little beside the path


def solve_path(
    inference: SMO, models: list[KernelExpansion], rows: Subset, y: Array,
    weight: Array | None = None, memory: Memory | None = None,
) -> list[KernelPosterior]:  # fmt: skip
    """Solutions for growing ``C``: kernel rows are kept, each starts from the one before.

    ``memory`` is that of a problem solved before.
    """
    fits = 8 * rows.n_rows**2 <= inference.cache_bytes
    if len(models) > 1 and fits and rows.n_rows <= HELD_EXACTLY:
        rows = rows.hold()
    cache = inference.cache(rows, memory=memory)
    if len(models) > 1:
        cache.hold_everything(rows.held)
    found: list[KernelPosterior] = []
    before: SMOState | None = None
    ladder, rough = rough_start(inference, models[0], rows, y, weight, cache)
    for model in (*ladder, *models):
        state = inference.start(model, rows, y, weight, rough if before is None else None, cache)
        if before is not None:
            _warm(state, before, model.C / before.model.C)
        found.append(inference.solve(state))
        state.cache.restart()
        cache, before = state.cache, state
    return found[len(ladder) :]


def _warm(state: SMOState, before: SMOState, ratio: float) -> None:
    """Start from the coefficients of a smaller ``C``, as they are or in proportion.

    As they are, each one that was on its bound has to be moved to the new bound; in proportion
    these follow the bound, but each that was between the bounds is moved away from its place.
    Both keep the sum and cost nothing: the more of a kind decide.
    """
    box, beta = state.box, before.beta
    product = box.target - before.F  # K beta
    used = beta != 0.0
    bound = used & ((beta <= before.box.lower) | (beta >= before.box.upper))
    factor = ratio if 2 * bound.sum() >= used.sum() else 1.0
    beta, F = factor * beta, box.target - factor * product
    beta = on_bounds(beta, box.lower, box.upper)
    state.beta, state.anchor, state.F = beta, beta.copy(), F
    state.drift = factor * before.drift
    state.part = whole_part(box, beta, F)
